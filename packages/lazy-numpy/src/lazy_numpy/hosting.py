"""Lazy arrays in the native state: their contents lie in NumPy's memory, not in a value.

Owns: the state's invariants and its transitions.  Such an array holds a NumPy array (`_np`): memory of its own, which NumPy's kernels read
and write, or a view of a `Cell` (`_cell`).  Views of one cell alias as NumPy's do, because they are NumPy's.  None of the attributes that
recording uses is set then; touching one *settles* the array: its memory is frozen and becomes the buffer of a value.  An array that has a
value may hold its buffer in `_np` as well, to be read.  May import `cells`, `tensor`, `dtypes`, lazy_core and NumPy.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

from lazy_core import values
from lazy_core.shape import Shape
from lazy_core.storage import Layout
from lazy_core.values import Value

from . import cells, dtypes
from .cells import Cell, Storage, frozen, lock
from .recording import from_host
from .tensor import _hooks, _new, ndarray


def wrap_host(array: np.ndarray) -> ndarray:
    """A lazy array over memory that nobody else holds."""
    made: ndarray = _new(ndarray)
    made._np = array
    made._cell = None
    return made


def view_of(a: ndarray, array: np.ndarray) -> ndarray:
    """A lazy view of a lazy array, given what NumPy made of its memory."""
    cell = a._cell
    if cell is None or not cell.alive:
        cell = cell_of(a)
    made: ndarray = _new(ndarray)
    made._np = array
    made._cell = cell
    cell.add(made)
    if array.dtype != cell.root.dtype and not cell.pinned and _units(array, cell.root) is None:
        with lock:
            cell.pinned = True
            if cell.storage is None:
                cell.storage = Storage.over(cell)
    return made


def cell_of(a: ndarray) -> Cell:
    """The cell of an array, made now if nobody else has shown its memory so far."""
    array = host_of(a)
    cell = a._cell
    if cell is None:
        if a._has_value():
            storage, layout = a._share()
            a._np, cell = storage.host(layout, False)
        else:
            cell = Cell(root_of(array), None, writable=True)
        a._cell = cell
        cell.add(a)
    return cell


def leave_cell(a: ndarray) -> bool:
    """Whether an array alone holds its memory: a cell whose other views are gone is given up."""
    cell = a._cell
    if cell is None:
        return True
    with lock:
        if cell.storage is not None or cell.pinned or not (cell.alive and cell.writable) or cell.root is not a._np:
            return False
        if any([found is not None and found is not a and found._cell is cell for found in [r() for r in cell.arrays]]):
            return False
        a._cell = None
    return True


def root_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory an array shows."""
    base = array.base
    return base if base.__class__ is np.ndarray else array


# ------------------------------------------------------------------ the memory of an array


def native(a: ndarray) -> np.ndarray | None:
    """What an array shows, if that lies in NumPy's memory now."""
    array = a._np
    if array is None:
        return None
    cell = a._cell
    return array if cell is None or cell.alive else None


def host_of(a: ndarray) -> np.ndarray:
    """What an array shows, to be read: computes what is pending.  The result aliases, and may be read-only."""
    array = a._np
    if array is not None:
        cell = a._cell
        if cell is None or cell.alive:
            return array
        settle(a)
    value = a._value
    if value is not None:
        array = a._np = values.to_host(value)
        a._cell = None
        return array
    return _show(a, False)


def _show(a: ndarray, writable: bool) -> np.ndarray:
    array, cell = a._storage.host(a._layout, writable)
    if not a._writeable:
        array.flags.writeable = False
    a._np, a._cell = array, cell
    cell.add(a)
    return array


def writable(a: ndarray) -> np.ndarray:
    """What an array shows, to be written to; what is read-only to its user stays so."""
    array = host_of(a)
    cell = a._cell
    if cell is None:
        if a._has_value():
            array = a._np = np.array(array)
            del a._value
    elif not cell.writable:
        settle(a)
        array = _show(a, True)
    return array


# ------------------------------------------------------------------ settling


def settle(a: ndarray) -> None:
    """Leave the native state."""
    with lock:
        array = a._np
        if array is None:
            return
        cell = a._cell
        if cell is None:
            if not a._has_value():
                cells.freezing(a)
                base = array.base
                if getrefcount(array) > _UNSHARED or (base is not None and getrefcount(base) > _UNSHARED):
                    del base  # NumPy's own arrays show the memory: it stays
                    cell_of(a)
                    settle(a)
                    return
                a._shape = Shape.of(array.shape, array.dtype)
                read_only = not array.flags.writeable
                a._value = frozen(array)
                if read_only:
                    a._share()
                    a._writeable = False
            a._np = None
            return
        if not a._has_value():
            storage = cell.storage
            if storage is None:
                storage = cell.storage = Storage.over(cell)
            shown = array.flags.writeable if cell.alive or array is not cell.root else not cell.read_only
            a._shape = Shape.of(array.shape, array.dtype)
            a._storage, a._layout = _place(array, cell.root, storage)
            a._writeable = shown or not cell.writable
            a._value = None
        a._np = a._cell = None


def make_read_only(a: ndarray) -> None:
    """Say that a view is read-only to its user, where its memory is so anyway."""
    if a._cell is not None and not a._cell.writable:
        settle(a)
        a._writeable = False


def _units(array: np.ndarray, root: np.ndarray) -> tuple[int, int] | None:
    """Where an array begins in its root, in elements of the root and bytes left over; None where no layout says what it shows."""
    size = root.itemsize
    if any([s % size for s, n in zip(array.strides, array.shape, strict=True) if n > 1]):
        return None
    offset, rest = divmod(_address(array) - _address(root), size) if array.size else (0, 0)
    if array.dtype == root.dtype:
        return (offset, rest) if rest == 0 else None
    if root.dtype.kind == "c" and array.dtype.kind == "f" and 2 * array.itemsize == size and rest in (0, array.itemsize):
        return offset, rest
    if array.itemsize == size and rest == 0 and "b" not in (array.dtype.kind, root.dtype.kind) and dtypes.supports(array.dtype):
        return offset, rest
    return None


def _address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _place(array: np.ndarray, root: np.ndarray, storage: Storage) -> tuple[Any, Layout]:
    """The storage and layout of what an array shows of a root."""
    found = _units(array, root)
    if found is None:
        pinned = Pinned(array, root)
        return pinned, pinned.layout
    offset, rest = found
    size = root.itemsize
    if array.shape == root.shape and offset == 0 and (array.strides == root.strides or not array.size):
        layout = storage.layout if storage.layout.sizes == array.shape else cells.layout_of(root)
    else:
        layout = Layout.of(array.shape, [s // size for s in array.strides], offset)
    if array.dtype == root.dtype:
        return storage, layout
    from .components import BitsStorage, ComponentStorage

    if root.dtype.kind == "c" and array.itemsize != size:
        return ComponentStorage(storage, "imag" if rest else "real"), layout
    return BitsStorage(storage, array.dtype), layout


class Pinned:
    """The storage of a view that no layout on its root can say, because its elements are of another size; it stays NumPy's memory."""

    __slots__ = ("_array", "_root", "layout")

    def __init__(self, array: np.ndarray, root: np.ndarray) -> None:
        self._array = array
        self._root = root
        self.layout = Layout.of(array.shape, [s // array.itemsize for s in array.strides])

    @property
    def value(self) -> Value:
        """A copy of the contents."""
        return self.read(self.layout)

    def read(self, view: Layout) -> Value:
        """A copy of what a view shows."""
        return from_host(np.array(self.host(view, False)[0]), copy=False)

    def write(self, view: Layout, value: Value) -> None:
        """Write through a view; reads the value."""
        np.copyto(self.host(view, True)[0], values.to_host(value))

    def host(self, view: Layout, writable: bool) -> tuple[np.ndarray, Cell]:
        """The memory that a view shows, and a cell that is never frozen."""
        whole = cells.show(self._root, Layout.contiguous((self._root.size,))).view(np.uint8)
        start = _address(self._array) - _address(whole) + view.offset * self._array.itemsize
        strides = [s * self._array.itemsize for s in view.strides]
        cell = Cell(self._root, None, writable=True)
        cell.pinned = True
        return np.ndarray(view.sizes, self._array.dtype, whole, start if view.size else 0, strides), cell


def _unshared() -> int:
    """The references that `settle` sees to memory which only a lazy array holds."""
    counts: list[int] = []

    def look(a: ndarray) -> None:
        array = a._np
        counts.append(getrefcount(array))

    look(wrap_host(np.empty(1)))
    return counts[0]


_UNSHARED = _unshared()
_hooks["settle"] = settle
