"""jax, imported when something of it is first used: a program whose calls all run natively does without.

Owns: `jax`, `lax`, `jnp`, the parts of jaxlib that the backend uses, `load`, `begin` and `imported`. Whoever needs jax takes it from here,
and uses nothing of it while a module is being imported.  May import `interrupts`, `importing` and `background`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from . import background, importing, interrupts

if TYPE_CHECKING:
    import jax as jax
    from jax import lax as lax
    from jax import numpy as jnp
    from jax._src import xla_bridge as xla_bridge
    from jaxlib import lapack as lapack
    from jaxlib import version as jaxlib_version
    from jaxlib import xla_client as xla_client

__all__ = ["begin", "imported", "jax", "jaxlib_version", "jnp", "lapack", "lax", "load", "xla_bridge", "xla_client"]


class _Module:
    """Stands for a module; each attribute is looked up once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__version__":  # what inspects objects must not import
            raise AttributeError(attribute)
        load()
        found = self.__dict__[attribute] = getattr(import_module(self._name), attribute)
        return found

    def __repr__(self) -> str:
        return f"<module {self._name}, imported when it is used>"


_lock = threading.Lock()
_thread: threading.Thread | None = None
_hurried = threading.Event()


def begin(percent: float) -> bool:
    """Have jax imported in the background, with so much of the time at most; returns whether it has been."""
    global _thread
    with _lock:
        if _thread is None:
            if imported():
                return True
            _thread = importing.start(lambda: _import_in_back(percent), "lazy-import")
        return not _thread.is_alive()


def load() -> None:
    """Import jax, for whoever is about to time what uses it; an interrupt waits until that is done, for half of jax would be of no use."""
    if imported():
        return
    with interrupts.held():
        _finish()
        _import()


def _finish() -> None:
    """Wait for what was begun in the background, which goes on without rests."""
    if _thread is not None and _thread is not threading.current_thread() and _thread.is_alive():
        _hurried.set()
        _thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish)  # the child would find modules that nobody imports on


def _import_in_back(percent: float) -> None:
    rests = importing.Rests(min(percent / 100, 1.0), _hurried)
    with background.polite():
        sys.meta_path.insert(0, rests)
        try:
            importing.map_library()
            _import()
        finally:
            sys.meta_path.remove(rests)


def _import() -> None:
    with _own_stream(), background.few_collections():
        import_module("jax")


@contextlib.contextmanager
def _own_stream() -> Iterator[None]:
    """In this block `numpy.random.rand` draws from another stream, in this thread.

    Importing jax calls it, for waiting times of its cluster client. The global stream is the program's: its other threads may draw from it
    meanwhile, so that putting back afterwards what was there before would repeat their numbers.
    """
    usual, ours, stream = np.random.rand, threading.get_ident(), np.random.RandomState(0)

    def rand(*dims: int) -> Any:
        return (stream.rand if threading.get_ident() == ours else usual)(*dims)

    np.random.rand = rand
    try:
        yield
    finally:
        if np.random.rand is rand:
            np.random.rand = usual


def imported() -> bool:
    """Whether anybody in this process has imported jax; not while that is going on in the background."""
    return "jax" in sys.modules and (_thread is None or not _thread.is_alive())


if not TYPE_CHECKING:
    jax = _Module("jax")
    lax = _Module("jax.lax")
    jnp = _Module("jax.numpy")
    xla_bridge = _Module("jax._src.xla_bridge")
    lapack = _Module("jaxlib.lapack")
    jaxlib_version = _Module("jaxlib.version")
    xla_client = _Module("jaxlib.xla_client")
