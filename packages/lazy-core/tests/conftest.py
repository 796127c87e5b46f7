"""Tests of the core run compiled and without the user's disk cache; those of the disk cache and of tiers make their own."""

import os

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs
