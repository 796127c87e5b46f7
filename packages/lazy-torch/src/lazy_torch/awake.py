"""Importing what recording takes, in the background: jax, the core and the builders take over a second, which nobody should wait for.

Owns: when that begins, the thread that does it, and how little of the interpreter it takes meanwhile.  Until it is done operations run
natively.  Imports nothing of the package at the top.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

from . import build

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


def _tools() -> ModuleType:
    """`lazy_core.importing`, by itself: importing the core is what it is needed for."""
    package = importlib.util.find_spec("lazy_core")  # finding a package imports nothing
    assert package is not None and package.origin is not None
    spec = importlib.util.spec_from_file_location("lazy_core.importing", Path(package.origin).with_name("importing.py"))
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def start() -> None:
    """Begin importing, once; the extension is told when it is done."""
    global _thread
    if _thread is None:
        tools = _tools()
        _thread = tools.start(lambda: _import(tools), "lazy-torch-import")


def importing() -> bool:
    """Whether that is under way: nothing is recorded before it is done."""
    return _thread is not None and _thread.is_alive()


def finish() -> None:
    """Import all of it now, and return when that is done."""
    _hurried.set()
    start()
    assert _thread is not None
    _thread.join()


def _import(tools: ModuleType) -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, 50e-6))  # see `lazy_core.background`, which cannot be imported before the rest
    rests = tools.Rests(min(_percent() / 100, 1.0), _hurried)
    sys.meta_path.insert(0, rests)
    try:
        tools.map_library()
        from lazy_core import background

        with background.few_collections():
            from . import mapping, tensor  # noqa: F401 (importing it is the purpose)

            mapping.load()
    finally:
        sys.meta_path.remove(rests)
        if not tools.ending():
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
