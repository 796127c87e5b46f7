"""Importing what recording takes, in the background: jax, the core and the builders take over a second, which nobody should wait for.

Owns: the thread that does it.  Until it is done operations run natively.  Imports nothing of the package at the top.
"""

from __future__ import annotations

import os
import threading

from . import build

_thread: threading.Thread | None = None


def start() -> None:
    """Begin importing, once; the extension is told when it is done."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_import, name="lazy-torch-import", daemon=True)
        _thread.start()


def _import() -> None:
    from . import mapping, tensor  # noqa: F401 (importing it is the purpose)

    mapping.load()
    build.native().set_awake()


def _after_fork_in_child() -> None:
    global _thread
    if _thread is not None and _thread.is_alive():
        _thread = None
        start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
