"""Mutable storage and aliasing views over functional values.

Owns: `Layout`, where the elements of an array lie in its storage, with the algebra of views (all of it static); and
`Storage`, one mutable cell that holds the current value of all its elements.  A view is a layout on a storage: reading
it records `strided_read`, writing it replaces the storage's value by a `strided_write`, so every other view sees the
write.  May import `ops`, `values`, `ir`, `errors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ops, trace, values
from .errors import DtypeError, ShapeError
from .ir import Attrs, Const, attrs, const
from .ops import strided

if TYPE_CHECKING:
    from .values import Value

Dims = tuple[int, ...]
Key = tuple[Dims, Dims, int]

_TABLE: dict[Key, Layout] = {}
_TABLE_LIMIT = 100_000
# So many places of one moving view within a trace; past it the places are part of the program, for good.
_PLACES_IN_A_TRACE = 64


class Layout:
    """Where the elements of an array lie in a storage, in elements; interned, so that equal layouts are the same object.

    Attributes:
        sizes: the dimensions.
        strides: how far apart neighbours lie along each dimension; may be zero or negative.
        offset: where the first element lies.
        key: `(sizes, strides, offset)` as plain tuples, which is what the strided operations take as attributes.
        moving: whether the offset should be fed at run time if it changes (see `moves`).
    """

    __slots__ = ("_accesses", "_derived", "_walked", "key", "moving", "offset", "size", "sizes", "strides")

    sizes: Dims
    strides: Dims
    offset: int
    key: Key
    size: int
    moving: bool
    _accesses: dict[Layout, tuple[Any, Any, Attrs, tuple[Const, ...]]]
    _derived: dict[Any, Layout]
    _walked: dict[tuple[Dims, Dims], tuple[int, int]]

    def __init__(self) -> None:
        raise TypeError("layouts are interned: use Layout.of(sizes, strides, offset) or Layout.contiguous(sizes)")

    @staticmethod
    def of(sizes: Iterable[int], strides: Iterable[int], offset: int = 0) -> Layout:
        """The interned layout with these sizes, strides and offset.

        Raises:
            ShapeError: the numbers of sizes and strides differ.
        """
        key = (tuple(sizes), tuple(strides), offset)
        found = _TABLE.get(key)
        if found is None:
            if len(key[0]) != len(key[1]):
                raise ShapeError(f"a layout of sizes {key[0]} needs as many strides, not {key[1]}")
            if len(_TABLE) > _TABLE_LIMIT:
                _TABLE.clear()
            found = object.__new__(Layout)
            found.sizes, found.strides, found.offset = key
            found.key = key
            found.size = math.prod(key[0])
            found._accesses = {}
            found.moving = False
            found._derived = {}
            found._walked = {}
            found = _TABLE.setdefault(key, found)
        return found

    @staticmethod
    def contiguous(sizes: Iterable[int]) -> Layout:
        """Elements in C order from the start of a storage."""
        sizes = tuple(sizes)
        strides, step = [1] * len(sizes), 1
        for axis in range(len(sizes) - 1, -1, -1):
            strides[axis] = step
            step *= max(sizes[axis], 1)
        return Layout.of(sizes, strides, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout.of, self.key

    def __repr__(self) -> str:
        return f"Layout(sizes={self.sizes}, strides={self.strides}, offset={self.offset})"

    # -------------------------------------------------------------- questions

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie next to each other in C order (from any offset)."""
        step = 1
        for n, s in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return self.size == 0
            step *= n
        return True

    def covers(self, count: int) -> bool:
        """Whether the view shows each of the first `count` elements of the storage exactly once, in any order of dims."""
        if self.size != count or self.offset != 0:
            return False
        step = 1
        for s, n in sorted((s, n) for n, s in zip(self.sizes, self.strides, strict=True) if n != 1):
            if s != step:
                return False
            step *= n
        return True

    def bounds(self) -> tuple[int, int]:
        """The lowest element shown and one past the highest; (0, 0) if there is none."""
        if self.size == 0:
            return (0, 0)
        ends = [(n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)]
        return self.offset + sum(e for e in ends if e < 0), self.offset + sum(e for e in ends if e > 0) + 1

    # -------------------------------------------------------------- views of views

    def derive(self, key: Any, make: Callable[[], Layout | None]) -> Layout | None:
        """A view of this view, remembered under a key."""
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) > 4096:
                self._derived.clear()
            found = make()
            if found is not None:
                self._derived[key] = found
        return found

    def transpose(self, perm: Sequence[int]) -> Layout:
        """Dimension i of the result is dimension perm[i] of this."""
        return Layout.of([self.sizes[p] for p in perm], [self.strides[p] for p in perm], self.offset)

    def slice(self, axis: int, start: int, count: int, step: int) -> Layout:
        """`count` elements along an axis from `start`, `step` apart."""
        sizes, strides = list(self.sizes), list(self.strides)
        offset = self.offset + (start * strides[axis] if count else 0)
        sizes[axis], strides[axis] = count, strides[axis] * step
        return Layout.of(sizes, strides, offset)

    def select(self, axis: int, index: int) -> Layout:
        """One element along an axis, which goes away."""
        offset = self.offset + index * self.strides[axis]
        return Layout.of(self.sizes[:axis] + self.sizes[axis + 1 :], self.strides[:axis] + self.strides[axis + 1 :], offset)

    def insert(self, axis: int) -> Layout:
        """A new dimension of one element before `axis`."""
        return Layout.of((*self.sizes[:axis], 1, *self.sizes[axis:]), (*self.strides[:axis], 0, *self.strides[axis:]), self.offset)

    def broadcast(self, sizes: Sequence[int]) -> Layout:
        """The same elements, repeated to wider sizes by NumPy's rule.

        Raises:
            ShapeError: the sizes do not fit.
        """
        lead = len(sizes) - len(self.sizes)
        if lead < 0 or any(n not in (1, m) for n, m in zip(self.sizes, sizes[lead:], strict=True)):
            raise ShapeError(f"cannot broadcast sizes {self.sizes} to {tuple(sizes)}")
        widened = [s if n == m else 0 for n, m, s in zip(self.sizes, sizes[lead:], self.strides, strict=True)]
        return Layout.of(sizes, [0] * lead + widened, self.offset)

    def diagonal(self, offset: int, axis1: int, axis2: int) -> Layout:
        """The elements whose index along axis2 is that along axis1 plus `offset`, as a new last dimension."""
        rows, columns = self.sizes[axis1], self.sizes[axis2]
        s1, s2 = self.strides[axis1], self.strides[axis2]
        count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        start = (offset * s2 if offset > 0 else -offset * s1) if count else 0
        kept = [a for a in range(len(self.sizes)) if a not in (axis1, axis2)]
        return Layout.of([*[self.sizes[a] for a in kept], count], [*[self.strides[a] for a in kept], s1 + s2], self.offset + start)

    def reshape(self, sizes: Sequence[int]) -> Layout | None:
        """These elements in C order with other sizes (of the same number), or None where no strides can say so."""
        sizes = tuple(sizes)
        if self.size == 0:
            return Layout.of(sizes, Layout.contiguous(sizes).strides, self.offset)
        runs: list[list[int]] = []  # [elements, stride of the innermost] of dims that count on through each other
        for n, s in zip(self.sizes, self.strides, strict=True):
            if n == 1:
                continue
            if runs and runs[-1][1] == n * s:
                runs[-1] = [runs[-1][0] * n, s]
            else:
                runs.append([n, s])
        strides = [0] * len(sizes)
        axis = len(sizes) - 1
        for count, step in reversed(runs):
            while count > 1:
                while axis >= 0 and sizes[axis] == 1:
                    axis -= 1
                if axis < 0 or count % sizes[axis]:
                    return None
                strides[axis] = step
                step *= sizes[axis]
                count //= sizes[axis]
                axis -= 1
        return Layout.of(sizes, strides, self.offset)

    def moves(self) -> Layout:
        """Say that programs go through views like this at changing offsets, so that these are no part of a program."""
        self.moving = True
        return self

    def _access(self, view: Layout) -> tuple[Any, Any, Attrs, tuple[Const, ...]]:
        """How a view of a storage laid out like this is read and written: the operations, attributes and offset."""
        if len(self._accesses) > 4096:
            self._accesses.clear()
        found: tuple[Any, Any, Attrs, tuple[Const, ...]]
        if view.moving and strided.movable(self.key, view.key) and self._may_move(view):
            at_zero = attrs(layout=self.key, view=(view.sizes, view.strides, 0))
            found = ops.strided_read_at, ops.strided_write_at, at_zero, (const(view.offset, np.int64),)
        else:
            found = ops.strided_read, ops.strided_write, attrs(layout=self.key, view=view.key), ()
        self._accesses[view] = found
        return found

    def _may_move(self, view: Layout) -> bool:
        """A loop that is unrolled within one trace gains nothing from offsets at run time, and compiles slowly with many."""
        epoch = trace.current().epoch
        kind = (view.sizes, view.strides)
        last, places = self._walked.get(kind, (epoch, 0))
        places = places + 1 if last == epoch or places > _PLACES_IN_A_TRACE else 1
        self._walked[kind] = (epoch, places)
        return places <= _PLACES_IN_A_TRACE


def read(value: Value, layout: Layout, view: Layout, record: Callable[..., Any] = values.record) -> Value:
    """The elements that a view shows of a value laid out as `layout`."""
    found = layout._accesses.get(view) or layout._access(view)
    result: Value = record(found[0], (value, *found[3]), found[2])
    return result


def write(value: Value, layout: Layout, view: Layout, update: Value, record: Callable[..., Any] = values.record) -> Value:
    """A value laid out as `layout` with the elements that a view shows replaced."""
    found = layout._accesses.get(view) or layout._access(view)
    result: Value = record(found[1], (value, update, *found[3]), found[2])
    return result


class Storage:
    """A mutable cell of elements, shared by views.

    Views are not kept: reading the same view twice in a trace finds the same interned expression, and a value kept here
    would be live, and so an output of every program, for no use.

    Attributes:
        value: the current value of all elements, with the dims of `layout`.
        layout: how `value` lies in the storage; always dense.
        generation: grows at every write.
    """

    __slots__ = ("__weakref__", "generation", "layout", "value")

    def __init__(self, value: Value, layout: Layout | None = None) -> None:
        self.value = value
        self.layout = Layout.contiguous(value.shape.dims) if layout is None else layout
        self.generation = 0

    def read(self, view: Layout) -> Value:
        """The elements that a view shows, as they are now; the storage's own layout gives the value itself."""
        if view is self.layout:
            return self.value
        return read(self.value, self.layout, view)

    def write(self, view: Layout, value: Value) -> None:
        """Replace the elements that a view shows; `value` has the view's sizes and the storage's dtype.

        Raises:
            ShapeError: the sizes differ.
            DtypeError: the dtypes differ.
        """
        shape = self.value.shape
        if value.shape.dims != view.sizes or value.shape.dtype != shape.dtype:
            kind = ShapeError if value.shape.dims != view.sizes else DtypeError
            raise kind(f"writing {value.shape} to a view of sizes {view.sizes} of a storage of {shape}: convert or broadcast first")
        if view is not self.layout and not view.covers(shape.size):
            value = write(self.value, self.layout, view, value)
        else:
            self.layout = view
        self.value = value
        self.generation += 1
