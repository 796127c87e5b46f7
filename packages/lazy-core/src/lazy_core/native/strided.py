"""Kernels of strided reads and writes: the family `strided`.

Owns: the views themselves, which NumPy has.  A write copies its base once, or not at all where nobody else holds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Node
from ..ops.strided import Dims, View, plan
from .registry import Array, Function, builder, extension
from .shapes import owned


def _storage(layout: View) -> tuple[Dims, bool]:
    """The base's dims in storage order, and whether that is C order."""
    sizes, strides, _ = layout
    order = tuple(sorted(range(len(sizes)), key=lambda a: (-strides[a], a)))
    moved = [a for a in order if sizes[a] != 1]
    return order, moved == sorted(moved)


def _window(dtype: np.dtype, view: View) -> Function:
    """A function of a storage, one-dimensional and contiguous, that shows a view of it, moved by some elements."""
    sizes, strides, offset = view
    width = dtype.itemsize
    steps = tuple([s * width for s in strides])
    first = offset * width
    plain = np.dtype(f"V{width}") if extension(dtype) else dtype

    def show(flat: Array, by: int = 0) -> Array:
        return np.ndarray(sizes, dtype, flat, first + by * width, steps)

    def show_bits(flat: Array, by: int = 0) -> Array:  # NumPy exports no buffer of a dtype that it does not know
        return np.ndarray(sizes, plain, flat.view(plain), first + by * width, steps).view(dtype)

    return show_bits if extension(dtype) else show


def _flat(layout: View) -> Function:
    """The storage of a base: one-dimensional and contiguous, a view where the base lies like that."""
    order, plain = _storage(layout)
    if plain:
        return lambda base: np.ascontiguousarray(base).reshape(-1)
    return lambda base: np.ascontiguousarray(base.transpose(order)).reshape(-1)


def _unflat(layout: View) -> Function:
    order, _ = _storage(layout)
    sizes = tuple([layout[0][a] for a in order])
    back = tuple([order.index(a) for a in range(len(order))])
    return lambda flat: flat.reshape(sizes).transpose(back)


def _check(layout: View, view: View) -> None:
    """A view that left its storage would read other memory."""
    plan(layout, view)


@builder("strided_read")
def strided_read(node: Node) -> Function:
    """The view."""
    layout, view = node.attrs.kwargs["layout"], node.attrs.kwargs["view"]
    _check(layout, view)
    shape = node.outputs[0].shape
    if 0 in view[0]:
        return lambda base: np.zeros(shape.dims, shape.dtype)
    flat, show = _flat(layout), _window(shape.dtype, view)
    return lambda base: show(flat(base))


def _writer(layout: View, view: View, dtype: np.dtype) -> Any:
    """A function `(storage, update, by)` that writes an update to a view of a storage."""
    sizes, strides, offset = view
    if plan(layout, view).steps is None:  # an element may be shown twice; in C order the last one stays

        def scatter(flat: Array, update: Array, by: int) -> None:
            where = np.full(sizes, offset + by, np.int64)
            for axis, stride in enumerate(strides):
                where += (np.arange(sizes[axis]) * stride).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
            flat[where.reshape(-1)] = update.reshape(-1)

        return scatter
    last = tuple([slice(n - 1, n) if s == 0 else slice(None) for n, s in zip(sizes, strides, strict=True)])
    show = _window(dtype, (tuple([1 if s == 0 else n for n, s in zip(sizes, strides, strict=True)]), strides, offset))

    def assign(flat: Array, update: Array, by: int) -> None:
        show(flat, by)[...] = update[last]

    return assign


def _target(layout: View) -> Function:
    """A function of the base and `out` that gives the storage to write to, and the result that it is."""
    flat, unflat = _flat(layout), _unflat(layout)
    in_order = _storage(layout)[1]

    def target(base: Array, out: Array | None) -> tuple[Array, Array]:
        if in_order:
            result = owned(base, out)
            return result.reshape(-1), result
        storage = flat(base)
        if np.may_share_memory(storage, base):
            storage = storage.copy()
        return storage, unflat(storage)

    return target


@builder("strided_write", reuse=(0,))
def strided_write(node: Node) -> Function:
    """The view assigned."""
    layout, view = node.attrs.kwargs["layout"], node.attrs.kwargs["view"]
    _check(layout, view)
    if 0 in view[0]:
        return lambda base, update, out=None: base
    if view == layout:
        return lambda base, update, out=None: update
    write, target = _writer(layout, view, node.outputs[0].shape.dtype), _target(layout)

    def run(base: Array, update: Array, out: Array | None = None) -> Array:
        storage, result = target(base, out)
        write(storage, update, 0)
        return result

    return run


# ------------------------------------------------------------------ views that move


def _moving(layout: View, view: View) -> Function:
    """A function of an offset: by how much the view moves, its box staying inside the base."""
    steps = plan(layout, (*view[:2], 0)).steps
    assert steps is not None
    box = layout[0]
    if steps and steps[0].kind == "slice":
        starts, limits, _ = steps[0].args
        box = tuple([hi - lo for lo, hi in zip(starts, limits, strict=True)])
    dims = list(zip(*layout[:2], box, strict=True))

    def by(offset: Array) -> int:
        number, total = int(offset), 0
        for n, stride, size in dims:
            start = abs(number) // max(stride, 1) % n if n else 0
            start = n - start if number < 0 < start else start
            start = min(max(start, 0), n - size)
            total += start * stride
        return total

    return by


@builder("strided_read_at")
def strided_read_at(node: Node) -> Function:
    """The view at an offset."""
    layout, view = node.attrs.kwargs["layout"], node.attrs.kwargs["view"]
    shape = node.outputs[0].shape
    flat, show, moving = _flat(layout), _window(shape.dtype, (*view[:2], 0)), _moving(layout, view)
    start = view[2]
    return lambda base, offset: show(flat(base), moving(offset + start))


@builder("strided_write_at", reuse=(0,))
def strided_write_at(node: Node) -> Function:
    """The view at an offset assigned."""
    layout, view = node.attrs.kwargs["layout"], node.attrs.kwargs["view"]
    write, target = _writer(layout, (*view[:2], 0), node.outputs[0].shape.dtype), _target(layout)
    moving, start = _moving(layout, view), view[2]

    def run(base: Array, update: Array, offset: Array, out: Array | None = None) -> Array:
        storage, result = target(base, out)
        write(storage, update, moving(offset + start))
        return result

    return run
