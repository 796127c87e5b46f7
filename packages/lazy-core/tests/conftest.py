"""Tests of the core run without the user's disk cache; those of the disk cache make one of their own."""

import os

os.environ.setdefault("LAZY_CACHE_DIR", "off")
