"""Loops over single elements and small parts of an array, at nearly NumPy's speed.

Owns: `speed_up`.  An array whose elements or small parts are read or written one by one while calls run immediately gets a class of its
own, whose item methods are bound to its memory, so that Python calls NumPy with little or nothing of ours in between.  The class goes when
the memory is about to be frozen, when calls are deferred again, and with the array.  If the array has no views, `__getitem__` is NumPy's
own, so that a slice is a NumPy array which shows the memory; where such slices are still held, the memory stays NumPy's for good (see
`cells.Cell.pinned`).  Where there is the extension
none of this is needed.  May import `cells`, `extension`, `hosting`, `tensor`, `recording`.
"""

from __future__ import annotations

import operator
import weakref
from types import MethodType
from typing import Any

import numpy as np

from . import cells, extension, hosting
from .recording import mode
from .tensor import _ArrayType, ndarray

# An array gets its class after so many elements and small parts; until then the general way is less work than making the class.
OFTEN = 100
# A large part outweighs so many of them: what is done with it may be worth recording, and no part of such an array is recorded.
LARGE = 4
_AGAIN = 20 * OFTEN  # and again after so many more, if the class had to go

# The arrays that have a class of their own, by identity.
_fast: dict[int, weakref.ref[Any]] = {}


def speed_up(a: ndarray) -> None:
    """Give an array a class whose item methods are bound to its memory."""
    a._reads = OFTEN - _AGAIN
    if type(a) is not ndarray or extension.is_on():  # whose short way is as fast
        return
    array = hosting.host_of(a)
    direct = array.base is None and not a._shows_value() and hosting.leave_cell(a)
    methods: dict[str, Any] = {"__slots__": (), "__module__": ndarray.__module__, "__qualname__": "ndarray"}
    # A bound function in C is called without a frame, a tuple of arguments, or a copy of them.
    methods["__getitem__"] = MethodType(operator.getitem, array) if direct else _checked(array)
    if not a._shows_value():
        methods["__setitem__"] = MethodType(operator.setitem, array)
    made: Any = type.__new__(_ArrayType, "ndarray", (ndarray,), methods)
    key = id(a)

    def dies(_: Any) -> None:
        _fast.pop(key, None)
        _unbind(made)

    a.__class__ = made
    _fast[key] = weakref.ref(a, dies)


def _checked(array: np.ndarray) -> Any:
    """Reads elements from memory that has other views; what is more than an element is left to the general way."""
    get, kind, general = array.__getitem__, array.dtype.type, ndarray.__getitem__

    def __getitem__(self: Any, key: Any) -> Any:
        found = get(key)
        return found if type(found) is kind else general(self, key)

    return __getitem__


def _unbind(kind: type) -> None:
    for name in ("__getitem__", "__setitem__"):
        if name in kind.__dict__:
            delattr(kind, name)


def _slow_down_one(a: Any) -> None:
    kind = type(a)
    a.__class__ = ndarray
    _fast.pop(id(a), None)
    _unbind(kind)


def slow_down() -> None:
    """Take every class back."""
    for found in list(_fast.values()):
        a = found()
        if a is not None:
            _slow_down_one(a)


def _before_freezing(owner: Any) -> None:
    """Take the classes back of an array, or of all arrays that show a cell."""
    for found in list(_fast.values()):
        a = found()
        if a is not None and (a is owner or a._cell is owner):
            _slow_down_one(a)


cells.freezing = _before_freezing
mode.leaving = slow_down
