"""Signals that arrive where work must not be torn apart wait until it is whole.

Owns: `hold` and `release`.  Python runs the handlers of signals in the main thread, between any two of its instructions, and Ctrl-C's
raises: between a program that has taken the memory of a model's parameters and the moment when the new ones have their holders, that would
lose the model.  The handlers themselves stay the program's, since others look at them (asyncio's runner, IPython): they are exchanged for
the moment only, which takes about a microsecond.  Imports nothing of the package.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.signal makes enums of what it takes and gives, which takes ten times as long
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any

_NAMES = ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")  # sent by others: the rest tells of faults, or is the system's
_NUMBERS = tuple([getattr(_signal, name) for name in _NAMES if hasattr(_signal, name)])
_handler = _signal.getsignal
_exchange = _signal.signal
_main_thread = threading.main_thread

_held: list[tuple[int, Any]] = []  # numbers and the handlers to put back; only the main thread touches it
_came: list[tuple[int, FrameType | None]] = []


def _later(number: int, frame: FrameType | None) -> None:
    _came.append((number, frame))


def hold() -> bool:
    """From now on handlers of signals wait for `release`; returns whether they did not before.

    In a thread other than the main one, where none runs, this does nothing.
    """
    if _held or get_ident() != _main_thread().ident:
        return False
    try:
        for number in _NUMBERS:
            handler = _handler(number)
            if handler.__class__ is not int and callable(handler):  # else it is the default or ignored, or not set from Python
                _held.append((number, handler))
                _exchange(number, _later)
    except BaseException:  # of one that was on its way
        _restore()
        raise
    return True


def release() -> None:
    """Handlers run again, first those of the signals that came meanwhile; raises what they raise."""
    if not _held or get_ident() != _main_thread().ident:
        return
    _restore()
    _run_handlers()


def _restore() -> None:
    try:
        while _held:
            number, handler = _held[-1]
            if _handler(number) is _later:
                _exchange(number, handler)
            _held.pop()
    finally:
        if _held:
            _restore()


def _run_handlers() -> None:
    try:
        while _came:
            number, frame = _came.pop(0)
            handler = _handler(number)
            if callable(handler):
                handler(number, frame)
    finally:
        if _came:
            _run_handlers()


@contextmanager
def held() -> Iterator[None]:
    """In this block handlers of signals wait; in another such block they go on waiting at its end."""
    outermost = hold()
    try:
        yield
    finally:
        if outermost:
            release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore)
