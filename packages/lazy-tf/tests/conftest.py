"""Shared set-up: quiet TensorFlow, Keras on TensorFlow, a report that starts at zero."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from collections.abc import Iterator

import pytest

import lazy_core
from lazy_core import compiling

# Whoever starts the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def lazy() -> Iterator[None]:
    """Run the test inside the lazy device's scope, with a fresh report."""
    import lazy_tf

    lazy_core.barrier()
    assert compiling.wait(120)  # what other tests left in the background would be counted
    lazy_core.reset_report()
    with lazy_tf.device():
        yield


@pytest.fixture
def no_fallback(lazy: None) -> Iterator[None]:
    """Like `lazy`; the test fails if anything fell back to the CPU."""
    yield
    from lazy_core import events

    assert dict(events.fallback_names) == {}
