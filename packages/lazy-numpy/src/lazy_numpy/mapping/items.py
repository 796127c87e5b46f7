"""`a[key]` and `a[key] = value`, recorded or immediate.

Owns: the two ways in.  What recorded keys mean is in `indexing`.  May import `indexing`, `immediate`, `hosting`, `recording`, `tensor`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import elements
from ..dtypes import supports
from ..hosting import host_of, view_of, wrap_host, writable
from ..immediate import again, catching, number, take, tell_result
from ..recording import Miss, mode, settings
from ..tensor import _ArrayType, _new, ndarray
from . import indexing

_get_recorded = indexing.getitem
_set_recorded = indexing.setitem
_ndarray = np.ndarray
GET, SET = number(), number()


def getitem(self: ndarray, key: Any) -> Any:
    """`a[key]`."""
    if mode.immediate:
        x = self._np
        if x is None or ((cell := self._cell) is not None and not cell.alive):
            x = host_of(self)
        kind = type(key)
        result = x[key if kind is int or kind is slice or kind is tuple else take(key)]
        # One element, or a small part: NumPy's own.
        if type(result) is not _ndarray or (
            (size := result.size) <= settings.part
            and (size < x.size or size <= settings.small)
            and (result.flags.writeable or self._stays_read_only())
        ):
            reads = self._reads = self._reads + 1
            if reads >= elements.OFTEN:
                elements.speed_up(self)
            return result
        self._reads = max(self._reads - elements.LARGE, min(self._reads, 0))
        base = result.base
        if base is None:
            made = wrap_host(result)
        elif base is x or base is x.base:
            cell = self._cell
            if cell is not None and cell.root.dtype == result.dtype:
                made = _new(ndarray)
                made._np = result
                made._cell = cell
                cell.add(made)
                return made
            return view_of(self, result)
        else:
            made = wrap_host(result)
        note = mode.note
        if note is not None:
            note(GET, result)
        return made
    if mode.on:
        return _learn_get(self, key)
    try:
        return _get_recorded(self, key)
    except Miss as miss:
        return again(miss, getitem, (self, key), {})


def _learn_get(self: ndarray, key: Any) -> Any:
    try:
        result = mode.call(_get_recorded, (self, key), {})
    except Miss as miss:
        return again(miss, getitem, (self, key), {})
    tell_result(GET, result)
    return result


def setitem(self: ndarray, key: Any, value: Any) -> None:
    """`a[key] = value`."""
    if mode.on:
        if not mode.immediate:
            _learn_set(self, key, value)
            return
        x = self._np
        if x is None or ((cell := self._cell) is not None and not cell.alive):
            x = host_of(self)
        kind = type(key)
        if kind is not int and kind is not slice and kind is not tuple:
            key = take(key)
        kind = type(value)
        given = value if kind is float or kind is int else take(value)
        try:
            x[key] = given
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            own = writable(self)
            if own is x:
                raise
            own[key] = given
        if type(given) is _ndarray and given.size > settings.result:
            note = mode.note
            if note is not None:
                note(SET, given)
        else:
            reads = self._reads = self._reads + 1
            if reads >= elements.OFTEN:
                elements.speed_up(self)
        return
    try:
        _set_recorded(self, key, value)
    except Miss as miss:
        again(miss, setitem, (self, key, value), {})


def _learn_set(self: ndarray, key: Any, value: Any) -> None:
    try:
        mode.call(_set_recorded, (self, key, value), {})
    except Miss as miss:
        again(miss, setitem, (self, key, value), {})
        return
    note = mode.note
    if note is not None and (type(value) is ndarray or type(value) is _ndarray) and value.size > settings.result:
        note(SET, value)


for _function in (getitem, setitem, _learn_get, _learn_set):
    catching(_function)

__all__ = ["_ArrayType", "getitem", "setitem", "supports"]
