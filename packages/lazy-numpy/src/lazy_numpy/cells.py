"""Storages whose contents are a value or, for the time being, NumPy's own memory.

Owns: `Cell`, memory that several lazy arrays show, and `Storage`, whose contents go to and fro between a cell and a value: the memory of a
cell is frozen when something is recorded that reads it, and becomes the buffer of a value; the buffer of a value is shown in place to be
read, and copied before the first write.  May import `recording`, lazy_core and NumPy.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from lazy_core import storage as core_storage
from lazy_core import trace, values
from lazy_core.storage import Layout
from lazy_core.values import Value

from .recording import from_array, from_host, record

lock = trace.current().lock
_ref = weakref.ref

# Called with a cell, or an array that has none, when its memory is about to be frozen (see `elements`).
freezing: Callable[[Any], None] = lambda owner: None  # noqa: E731


class Cell:
    """Memory that several lazy arrays show.

    Attributes:
        root: the array of all of it; dense.
        storage: the storage whose contents this is, once there is one.
        alive: whether the memory is what counts; if not, the storage's value does.
        writable: whether the memory is the cell's own; if not, it is the buffer of a value.
        pinned: whether a view shows the memory in a way that no layout can say, so that it has to stay memory.
        read_only: whether the root is read-only to the user.
        arrays: the lazy arrays that show it, weakly.
    """

    __slots__ = ("_prune_at", "alive", "arrays", "pinned", "read_only", "root", "storage", "writable")

    def __init__(self, root: np.ndarray, storage: Any, writable: bool) -> None:
        self.root = root
        self.storage = storage
        self.alive = True
        self.writable = writable
        if not writable:
            root.flags.writeable = False  # it may be a copy that nobody else protects, laid out as the views are
        self.pinned = False
        self.read_only = False
        self.arrays: list[weakref.ref[Any]] = []
        self._prune_at = 64

    def add(self, array: Any) -> None:
        """A lazy array shows this memory from now on."""
        arrays = self.arrays
        arrays.append(_ref(array))
        if len(arrays) >= self._prune_at:
            arrays[:] = [r for r in arrays if r() is not None]
            self._prune_at = 2 * len(arrays) + 64

    def must_stay(self) -> bool:
        """Whether the memory has to stay what counts for now: a view is pinned, or NumPy's own arrays show it as well."""
        if self.pinned or not self.writable:
            return self.pinned
        freezing(self)
        known, counted = 0, set()
        for found in list(self.arrays):
            array = found()
            if array is not None and id(array) not in counted and array._cell is self:
                counted.add(id(array))
                shown = array._np
                known += shown is self.root or (shown is not None and shown.base is self.root)
                del shown
        return getrefcount(self.root) - known > _UNSHARED

    def retire(self) -> None:
        """The memory no longer counts; if it was the cell's own, nobody writes to it from now on."""
        self.alive = False
        if self.writable:
            self.read_only = not self.root.flags.writeable
            self.root.flags.writeable = False


def _unshared() -> int:
    cell = Cell(np.empty(1), None, True)
    return getrefcount(cell.root)


_UNSHARED = _unshared()


class Storage(core_storage.Storage):
    """A storage whose contents are a value, or a cell."""

    __slots__ = ("_value", "cell")

    _value: Value | None
    cell: Cell | None

    def __init__(self, value: Value, layout: Layout) -> None:
        self.cell = None
        self._value = value
        self.layout = layout
        self.generation = 0

    @staticmethod
    def over(cell: Cell) -> Storage:
        """The storage of a cell that has had none."""
        root = cell.root
        made: Storage = object.__new__(Storage)
        made.layout = layout_of(root)
        made.generation = 0
        if cell.alive:
            made._value, made.cell = None, cell
        else:
            made._value, made.cell = frozen(root), None
        return made

    @property  # type: ignore[override]
    def value(self) -> Value:
        """The current value of all elements; memory that has counted until now is frozen."""
        found = self._value
        return found if found is not None else self._settled()

    @value.setter
    def value(self, value: Value) -> None:
        cell = self.cell
        if cell is not None:
            if cell.must_stay():
                np.copyto(cell.root, values.to_host(value))
                return
            with lock:
                cell.retire()
                self.cell = None
        self._value = value

    def _settled(self) -> Value:
        with lock:
            cell = self.cell
            if self._value is None:
                assert cell is not None
                if cell.must_stay():
                    return from_host(np.array(cell.root), copy=False)
                cell.retire()
                self.cell = None
                self._value = frozen(cell.root)
            return self._value

    def read(self, view: Layout) -> Value:
        """See the core's."""
        value = self._value
        if value is None:
            value = self._settled()
        return value if view is self.layout else core_storage.read(value, self.layout, view, record)

    def write(self, view: Layout, value: Value) -> None:
        """See the core's; the value has the view's sizes and the storage's dtype."""
        if view is self.layout or view.covers(self.layout.size):
            cell = self.cell
            if cell is None or not cell.must_stay():
                self.layout = view
            elif view is not self.layout:
                value = core_storage.write(self.value, self.layout, view, value, record)
        else:
            value = core_storage.write(self.value, self.layout, view, value, record)
        self.value = value
        self.generation += 1

    def host(self, layout: Layout, writable: bool) -> tuple[np.ndarray, Cell]:
        """The memory that a view shows, to be read or written to, and the cell that it belongs to."""
        cell = self.cell
        if cell is None:
            with lock:
                assert self._value is not None
                root = values.to_host(self._value)
                cell = self.cell = Cell(root if self.layout.is_contiguous else _as_laid_out(root, self.layout), self, writable=False)
        if writable and not cell.writable:
            with lock:
                cell.retire()
                cell = self.cell = Cell(np.array(cell.root), self, writable=True)
                self._value = None
        return show(cell.root, layout), cell


def frozen(array: np.ndarray) -> Value:
    """A value whose buffer is an array that nobody writes to from now on."""
    array.flags.writeable = False
    value = from_array(array)
    if array.dtype.kind in "iu" and 0 < array.size <= 1 << 20:
        from .mapping import ranges  # indices are checked once, here

        ranges.note(value, int(array.min()), int(array.max()))
    return value


def layout_of(root: np.ndarray) -> Layout:
    """How the elements of a dense array lie."""
    if root.flags.c_contiguous:
        return Layout.contiguous(root.shape)
    return Layout.of(root.shape, [s // root.itemsize for s in root.strides])


def _as_laid_out(array: np.ndarray, layout: Layout) -> np.ndarray:
    """A copy whose elements lie in memory as a dense layout says."""
    made = np.ndarray(layout.sizes, array.dtype, np.empty(array.size, array.dtype), 0, [s * array.itemsize for s in layout.strides])
    made[...] = array
    return made


def show(root: np.ndarray, layout: Layout) -> np.ndarray:
    """What a layout shows of dense memory."""
    size = root.itemsize
    if layout.size == 0:
        return np.ndarray(layout.sizes, root.dtype)
    if not root.flags.c_contiguous:
        root = root.transpose(sorted(range(root.ndim), key=lambda k: -root.strides[k] * (root.shape[k] > 1))).reshape(-1)
    return np.ndarray(layout.sizes, root.dtype, root, layout.offset * size, tuple([s * size for s in layout.strides]))
