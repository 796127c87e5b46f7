"""Kernels that move elements without changing them: the family `shapes`.

Owns: views wherever NumPy has them, and updates that write into the base's own buffer where nobody else holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Node
from .registry import Array, Function, builder, extension, kernel

Dims = Sequence[int]


def spread(x: Array, dims: tuple[int, ...]) -> Array:
    """`numpy.broadcast_to`, without its cost where the operand is one element."""
    if x.ndim == 0 and not extension(x.dtype):
        return np.ndarray(dims, x.dtype, x, 0, (0,) * len(dims))
    return np.broadcast_to(x, dims)


@builder("reshape", "expand_dims", "squeeze")
def reshape(node: Node) -> Function:
    """To the result's dims; a view where the strides allow it."""
    dims = node.outputs[0].shape.dims
    return lambda x: x.reshape(dims)


@builder("transpose")
def transpose(node: Node) -> Function:
    """A view."""
    perm = tuple(node.attrs.kwargs["perm"])
    return lambda x: x.transpose(perm)


@builder("broadcast_to")
def broadcast_to(node: Node) -> Function:
    """A view, made directly where the operand is contiguous: NumPy's own function costs microseconds."""
    before, after = node.inputs[0].shape, node.outputs[0].shape
    dims, dtype = after.dims, after.dtype
    if before is after:
        return lambda x: x
    if extension(dtype):
        return lambda x: np.broadcast_to(x, dims)
    strides, step = [0] * len(dims), dtype.itemsize
    for axis in range(1, len(before.dims) + 1):
        if before.dims[-axis] != 1:
            strides[-axis] = step
            step *= before.dims[-axis]
    fixed = tuple(strides)

    def run(x: Array) -> Array:
        return np.ndarray(dims, dtype, x, 0, fixed) if x.flags.c_contiguous else np.broadcast_to(x, dims)

    return run


@kernel("concatenate")
def concatenate(*xs: Array, axis: int) -> Array:
    """NumPy's; one operand is itself."""
    return xs[0] if len(xs) == 1 else np.concatenate(xs, axis)


@builder("stack")
def stack(node: Node) -> Function:
    """Concatenated along a dim of size 1 each."""
    ndim = node.inputs[0].shape.ndim + 1
    axis = node.attrs.kwargs["axis"] % ndim
    dims = node.inputs[0].shape.dims
    each = (*dims[:axis], 1, *dims[axis:])
    return lambda *xs: np.concatenate([x.reshape(each) for x in xs], axis)


def placement(n: int, size: int, low: int, gap: int) -> tuple[slice, slice]:
    """Which of n elements a dim padded to `size` keeps, and where: `low` in front (cut off if negative), `gap` between neighbours."""
    step = gap + 1
    first = -(min(low, 0) // step)  # the first element that is inside
    start = low + first * step
    count = max(min(n - first, -(-(size - start) // step)), 0)
    return slice(first, first + count), slice(start, start + (count - 1) * step + 1 if count else start, step)


@builder("pad")
def pad(node: Node) -> Function:
    """Written into an array of the value; what is cut off is never copied."""
    before, after, attributes = node.inputs[0].shape.dims, node.outputs[0].shape.dims, node.attrs.kwargs
    each = zip(before, after, attributes["low"], attributes["interior"], strict=True)
    pairs = [placement(*args) for args in each]
    take: Any = (*[p[0] for p in pairs], ...)
    put: Any = (*[p[1] for p in pairs], ...)
    dtype = node.outputs[0].shape.dtype

    def run(x: Array, value: Array) -> Array:
        result = np.empty(after, dtype)
        result.fill(value[()])
        result[put] = x[take]
        return result

    return run


@builder("reverse")
def reverse(node: Node) -> Function:
    """A view."""
    ndim = node.inputs[0].shape.ndim
    flipped = {a % ndim for a in node.attrs.kwargs["axes"]}
    key = tuple([slice(None, None, -1) if a in flipped else slice(None) for a in range(ndim)])
    return lambda x: x[key]


@kernel("tile")
def tile(x: Array, *, reps: Dims) -> Array:
    """NumPy's."""
    return np.tile(x, tuple(reps))


@kernel("roll")
def roll(x: Array, *, shifts: Dims, axes: Dims) -> Array:
    """Two slices a dim."""
    for shift, axis in zip(shifts, axes, strict=True):
        size = x.shape[axis]
        by = shift % size if size else 0
        if by:
            lead = (slice(None),) * (axis % x.ndim)
            x = np.concatenate([x[(*lead, slice(size - by, None))], x[(*lead, slice(0, size - by))]], axis)
    return x


# ------------------------------------------------------------------ slices and updates


@builder("slice")
def slice_(node: Node) -> Function:
    """A view."""
    attributes = node.attrs.kwargs
    key = tuple([slice(*each) for each in zip(attributes["starts"], attributes["limits"], attributes["strides"], strict=True)])
    return lambda x: x[key]


def owned(base: Array, out: Array | None) -> Array:
    """What an update is written into: the base's own buffer where it was handed over, else a copy."""
    return base.copy() if out is None else out


@builder("update_slice", reuse=(0,))
def update_slice(node: Node) -> Function:
    """The box assigned."""
    dims, attributes = node.inputs[1].shape.dims, node.attrs.kwargs
    boxes = zip(dims, attributes["starts"], attributes["strides"], strict=True)
    key: tuple[Any, ...] = (*[slice(start, start + (n - 1) * by + 1 if n else start, by) for n, start, by in boxes], ...)
    if 0 in dims:
        return lambda x, update, out=None: x
    if node.inputs[1].shape is node.inputs[0].shape:
        return lambda x, update, out=None: update

    def run(x: Array, update: Array, out: Array | None = None) -> Array:
        result: Array = owned(x, out)
        result[key] = update
        return result

    return run


def _box(dims: Dims, sizes: Dims, starts: Sequence[Array]) -> tuple[slice, ...]:
    """The box at places known now: negative ones count from the end, and what would leave is moved inside."""
    key = []
    for n, size, at in zip(dims, sizes, starts, strict=True):
        start = int(at)
        start = min(max(start + n if start < 0 else start, 0), n - size)
        key.append(slice(start, start + size))
    return tuple(key)


@kernel("dynamic_slice")
def dynamic_slice(x: Array, *starts: Array, sizes: Dims) -> Array:
    """A view."""
    return x[(*_box(x.shape, sizes, starts), ...)]


@kernel("dynamic_update_slice", reuse=(0,))
def dynamic_update_slice(x: Array, update: Array, *starts: Array, out: Array | None = None) -> Array:
    """The box assigned."""
    result = owned(x, out)
    result[(*_box(x.shape, update.shape, starts), ...)] = update
    return result


# ------------------------------------------------------------------ matrices as shapes

_FAR = 1 << 30


@kernel("triu")
def triu(x: Array, *, k: int) -> Array:
    """NumPy's."""
    return np.triu(x, min(max(k, -_FAR), _FAR))


@kernel("tril")
def tril(x: Array, *, k: int) -> Array:
    """NumPy's."""
    return np.tril(x, min(max(k, -_FAR), _FAR))


@kernel("diagonal")
def diagonal(x: Array, *, offset: int, axis1: int, axis2: int) -> Any:
    """A view that cannot be written to."""
    return np.diagonal(x, offset, axis1, axis2)
