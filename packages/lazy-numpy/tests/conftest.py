"""Tests of lazy-numpy run compiled and without the user's disk cache, except where they choose another tier."""

import os
import signal

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")

import contextlib

import pytest

import lazy_core
from lazy_core import deferred
from lazy_numpy import extension
from lazy_numpy.recording import mode, settings

# Whoever starts the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def jax_is_imported():
    """In a program that happens in the background, and until then nothing is learned; tests of that start processes of their own."""
    deferred.load()


@contextlib.contextmanager
def _in_form(name):
    """Calls are recorded, and what is pending runs natively; or NumPy runs each at once, "longer" without short ways."""
    with lazy_core.options(tier="native"), without_short_ways() if name == "longer" else contextlib.nullcontext():
        if name == "recorded":
            mode._tier = "compiled"
            mode._follow()
        try:
            yield
        finally:
            mode._tier = "native"


@contextlib.contextmanager
def without_short_ways():
    """In this block the Python functions serve everything, as where there is no extension."""
    module = extension.loaded()
    if module is None:
        yield
        return
    module.enable(False)
    try:
        yield
    finally:
        module.enable(True)


@pytest.fixture
def in_form(monkeypatch):
    """A context manager that chooses how calls are made, "recorded", "immediate" or "longer"; the smallest arrays are lazy too."""
    monkeypatch.setattr(settings, "small", -1)
    monkeypatch.setattr(settings, "result", -1)
    monkeypatch.setattr(settings, "part", -1)
    return _in_form


@pytest.fixture
def longer():
    """Nothing takes the extension's short ways."""
    with without_short_ways():
        yield


@pytest.fixture
def native():
    """NumPy runs every call as it comes."""
    with lazy_core.options(tier="native"):
        yield
