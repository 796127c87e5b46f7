"""Tests of lazy-numpy run compiled and without the user's disk cache."""

import os

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs
