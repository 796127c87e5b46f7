"""`np.errstate` and `np.seterr` of user modules: whoever wants to be told of each floating-point error is told, call by call.

Owns: the two, and when calls are run as they come on their account: while any kind of error raises, calls a function, or is printed or
logged.  Under NumPy's default, a warning, compiled programs are silent.  May import `recording`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .recording import mode

_TOLD = frozenset(("raise", "call", "print", "log"))
_lock = threading.Lock()
_blocks = 0  # how many blocks that want to be told are entered, in any thread
_set = False  # whether `seterr` has said so


def _wants_to_be_told() -> bool:
    return not _TOLD.isdisjoint(np.geterr().values())


def _count(blocks: int) -> None:
    global _blocks
    with _lock:
        _blocks += blocks
        mode.run_each_call(_blocks > 0 or _set)


class errstate(np.errstate):
    """`np.errstate`, also for lazy arrays."""

    def __init__(self, **kinds: Any) -> None:
        super().__init__(**kinds)
        self._kinds = kinds
        self._told = 0

    def __enter__(self) -> None:
        super().__enter__()
        self._told = int(_wants_to_be_told())
        _count(self._told)

    def __exit__(self, *exc: Any) -> None:
        _count(-self._told)
        super().__exit__(*exc)

    def __call__(self, function: Callable[..., Any]) -> Any:
        """The function, run in such a block."""

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with type(self)(**self._kinds):
                return function(*args, **kwargs)

        return inner


@functools.wraps(np.seterr)
def seterr(*args: Any, **kinds: Any) -> Any:
    """`np.seterr`, also for lazy arrays."""
    global _set
    before = np.seterr(*args, **kinds)
    if not _blocks:
        _set = _wants_to_be_told()
    _count(0)
    return before


REPLACED = {"errstate": errstate, "seterr": seterr}
