"""Importing large packages in the background, at a pace that the program does not feel.

Owns: `start`, `Rests` and `map_library`. A thread that imports holds the interpreter's lock nearly all the time. Imports nothing of the
package, and can be loaded without it.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

# Python's own note of which thread wants the lock of which modules: the lock itself, or a list of them.
_waiting: Any = getattr(importlib._bootstrap, "_blocking_on", {})


_threads: list[threading.Thread] = []
_ending = threading.Event()


def start(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread that imports. When the process ends it stops at the next module: to end it amid another's C++ would abort the process."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    _threads.append(thread)
    thread.start()
    return thread


def ending() -> bool:
    """Whether the process ends, so that nothing is to be imported any more."""
    return _ending.is_set()


def _end() -> None:
    _ending.set()
    for thread in _threads:
        thread.join(10)


atexit.register(_end)


class Rests(MetaPathFinder):
    """Finds no module, but is asked about each one: then the importing thread rests until its share of the time so far is small enough.

    Otherwise another thread would wait for it at every operation. It does not rest while another thread waits for a module that it has
    begun, nor once `hurried` is set.
    """

    _SLICE_SECONDS = 0.002

    def __init__(self, share: float, hurried: threading.Event) -> None:
        self._share = share
        self._hurried = hurried
        self._thread = threading.get_ident()
        self._began = time.perf_counter(), time.thread_time()

    def find_spec(self, _name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """None: others find it.

        Raises:
            SystemExit: the process ends.
        """
        if threading.get_ident() == self._thread and _ending.is_set():
            raise SystemExit
        if threading.get_ident() == self._thread and not self._hurried.is_set():
            began, had = self._began
            until = began + (time.thread_time() - had) / self._share
            while time.perf_counter() < until and not (_ending.is_set() or self._hurried.is_set() or self._awaited()):
                time.sleep(self._SLICE_SECONDS)

    def _awaited(self) -> bool:
        """Whether another thread stands at the lock of a module."""
        return any(locks for thread, locks in list(_waiting.items()) if thread != self._thread)


def map_library() -> None:
    """Map jaxlib's library (350 MB) before Python does: importing it keeps the interpreter's lock for 0.1 s, a foreign call does not."""
    spec = importlib.util.find_spec("jaxlib") if hasattr(os, "RTLD_NOW") else None  # finding a package imports nothing
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in Path(folder).glob("libjax_common.*"):
            ctypes.CDLL(None).dlopen(os.fsencode(library), os.RTLD_NOW)
