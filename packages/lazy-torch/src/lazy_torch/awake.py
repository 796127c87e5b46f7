"""Importing what recording takes, in the background: jax, the core and the builders take over a second, which nobody should wait for.

Owns: when that begins, the thread that does it, and how little of the interpreter it takes meanwhile.  Until it is done operations run
natively.  Imports nothing of the package at the top.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from . import build

# Python's own note of which thread wants the lock of which modules: the lock itself, or a list of them.
_waiting: Any = getattr(importlib._bootstrap, "_blocking_on", {})  # type: ignore[attr-defined]
_thread: threading.Thread | None = None
_hurried = threading.Event()


def _percent() -> float:
    try:
        return float(os.environ.get("LAZY_LEARN_PERCENT", "10"))
    except ValueError:  # core's settings say what is wrong with it, once they are read
        return 10.0


def delay() -> float:
    """For how many seconds a program runs natively before anything is imported for it: that must take a small part of its time."""
    return 10 / _percent() if _percent() > 0 else math.inf


class _Rests(MetaPathFinder):
    """Finds no module, but is asked about each one: then the importing thread rests until its share of the time so far is small enough.

    A thread that imports holds the interpreter's lock nearly all the time, so another one would wait for it at every operation. It does
    not rest while another thread waits for a module that it has begun.
    """

    _SLICE_SECONDS = 0.002

    def __init__(self, share: float) -> None:
        self._share = share
        self._thread = threading.get_ident()
        self._began = time.perf_counter(), time.thread_time()

    def find_spec(self, _name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """None: others find it."""
        if threading.get_ident() == self._thread and not _hurried.is_set():
            began, had = self._began
            until = began + (time.thread_time() - had) / self._share
            while time.perf_counter() < until and not _hurried.is_set() and not self._awaited():
                time.sleep(self._SLICE_SECONDS)

    def _awaited(self) -> bool:
        """Whether another thread stands at the lock of a module."""
        return any(locks for thread, locks in list(_waiting.items()) if thread != self._thread)


def start() -> None:
    """Begin importing, once; the extension is told when it is done."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_import, name="lazy-torch-import", daemon=True)
        _thread.start()


def importing() -> bool:
    """Whether that is under way: nothing is recorded before it is done."""
    return _thread is not None and _thread.is_alive()


def finish() -> None:
    """Import all of it now, and return when that is done."""
    _hurried.set()
    start()
    assert _thread is not None
    _thread.join()


def _map_library() -> None:
    """Map jaxlib's library (350 MB) before Python does: importing it keeps the interpreter's lock for 0.1 s, a foreign call does not."""
    spec = importlib.util.find_spec("jaxlib") if hasattr(os, "RTLD_NOW") else None  # finding a package imports nothing
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in Path(folder).glob("libjax_common.*"):
            ctypes.CDLL(None).dlopen(os.fsencode(library), os.RTLD_NOW)


def _import() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, 50e-6))  # see `lazy_core.background`, which cannot be imported before the rest
    rests = _Rests(min(_percent() / 100, 1.0))
    sys.meta_path.insert(0, rests)
    try:
        _map_library()
        from lazy_core import background

        with background.few_collections():
            from . import mapping, tensor  # noqa: F401 (importing it is the purpose)

            mapping.load()
    finally:
        sys.meta_path.remove(rests)
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
