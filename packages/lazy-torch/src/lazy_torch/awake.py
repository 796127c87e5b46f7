"""Importing what recording takes, in the background: jax, the core and the builders take over a second, which nobody should wait for.

Owns: when that begins, and the thread that does it.  Until it is done operations run natively.  Imports nothing of the package at the top.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading

from . import build

_thread: threading.Thread | None = None


def delay() -> float:
    """For how many seconds a program runs natively before anything is imported for it: that must take a small part of its time."""
    try:
        percent = float(os.environ.get("LAZY_LEARN_PERCENT", "20"))
    except ValueError:  # core's settings say what is wrong with it, once they are read
        percent = 20.0
    return 20 / percent if percent > 0 else math.inf


def start() -> None:
    """Begin importing, once; the extension is told when it is done."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_import, name="lazy-torch-import", daemon=True)
        _thread.start()


def _import() -> None:
    usual, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(usual, 50e-6))  # see `lazy_core.background`, which cannot be imported before the rest
    # Importing makes hundreds of thousands of objects that stay, which makes Python walk all there are again and again, 0.1 s each time.
    gc.set_threshold(thresholds[0], thresholds[1], 1_000_000)
    try:
        from . import mapping, tensor  # noqa: F401 (importing it is the purpose)

        mapping.load()
    finally:
        gc.set_threshold(*thresholds)
        from lazy_core import backend, background

        backend.start_client()
        background.usual_interval(usual)
    build.native().set_awake()


def _after_fork_in_child() -> None:
    global _thread
    if _thread is not None and _thread.is_alive():
        _thread = None
        start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
