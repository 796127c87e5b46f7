"""Tests of lazy-numpy run compiled and without the user's disk cache, except where they choose another tier."""

import os
import signal

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")

import contextlib

import pytest

import lazy_core
from lazy_numpy.recording import mode, settings

# Whoever starts the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _in_form(name):
    """Calls are recorded, and what is pending runs natively; or NumPy runs each call at once.  Nothing is compiled."""
    with lazy_core.options(tier="native"):
        if name == "recorded":
            mode._tier = "compiled"
            mode._follow()
        try:
            yield
        finally:
            mode._tier = "native"


@pytest.fixture
def in_form(monkeypatch):
    """A context manager that chooses how calls are made, "recorded" or "immediate"; the smallest arrays are lazy too."""
    monkeypatch.setattr(settings, "small", -1)
    monkeypatch.setattr(settings, "result", -1)
    monkeypatch.setattr(settings, "part", -1)
    return _in_form
