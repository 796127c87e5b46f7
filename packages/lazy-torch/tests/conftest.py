"""Fixtures of lazy-torch's tests: the device is built once, the report is fresh in every test."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs

from collections.abc import Iterator

import pytest

import lazy_core
import lazy_torch
from lazy_core import compiling

# Whoever starts the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def fresh_report() -> Iterator[None]:
    """Counters count from zero, and nothing pending leaks into the next test."""
    assert lazy_torch.__version__
    lazy_core.barrier()
    assert compiling.wait(120)  # what other tests left in the background would be counted
    lazy_core.reset_report()
    yield
    lazy_core.barrier()
