"""Tests of the core run compiled and without the user's disk cache; those of the disk cache and of tiers make their own."""

import os
import signal

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs

# Whoever starts the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
