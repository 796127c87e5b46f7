"""Moving elements without changing them: dims, order, slices, pads and static updates.

Owns: every operation whose result is made of its operands' elements at places known when it is recorded (dynamic starts included).
Imports the registry and jax's lax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import ShapeError
from .registry import Sample, axes_of, axis_of, describe, numbers, op, same_dtype

Dims = Sequence[int]


def _one(*cases: tuple[tuple[int, ...], dict[str, Any]]) -> Any:
    """Samples of one operand: (dims, attributes) each."""

    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for dims, attributes in cases:
            yield Sample((numbers(rng, dims, dtype),), attributes)

    return make


def _many(*cases: tuple[tuple[tuple[int, ...], ...], dict[str, Any]]) -> Any:
    """Samples of several operands of one dtype: (dims of each, attributes)."""

    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for each, attributes in cases:
            yield Sample(tuple(numbers(rng, dims, dtype) for dims in each), attributes)

    return make


@op(samples=_one(((3, 4), {"dims": (2, 6)}), ((4,), {"dims": (2, 1, 2)}), ((1,), {"dims": ()}), ((0, 3), {"dims": (3, 0, 2)})))
def reshape(x: Any, *, dims: Dims) -> Any:
    """The elements in C order under other dims: dtype[*old] -> dtype[*dims].  XLA: Reshape.

    Attributes: dims, none of them -1.

    Raises:
        ShapeError: the number of elements differs.
    """
    dims = tuple(dims)
    if math.prod(dims) != x.size or any(d < 0 for d in dims):
        raise ShapeError(
            f"reshape({describe(x)}) to dims {dims}: {x.size} elements cannot fill {math.prod(dims)}; the products must be equal"
        )
    return lax.reshape(x, dims)


@op(samples=_one(((3, 4), {"perm": (1, 0)}), ((2, 3, 4), {"perm": (2, 0, 1)}), ((), {"perm": ()})))
def transpose(x: Any, *, perm: Dims) -> Any:
    """The dims in another order, dim i of the result being dim perm[i]: dtype[*dims] -> dtype[*permuted].  XLA: Transpose, Reshape.

    Attributes: perm, each dim once.

    Raises:
        ShapeError: perm is not a permutation of the dims.
    """
    found = axes_of("transpose", perm, x.ndim)
    if len(found) != x.ndim:
        raise ShapeError(f"transpose({describe(x)}) with perm {tuple(perm)}: expected each of {x.ndim} dims once")
    if [a for a in found if x.shape[a] != 1] == [a for a in range(x.ndim) if x.shape[a] != 1]:
        return lax.reshape(x, tuple(x.shape[a] for a in found))  # only ones have moved: the elements stay where they are
    return lax.transpose(x, found)


@op(samples=_one(((3, 1), {"dims": (3, 4)}), ((4,), {"dims": (2, 3, 4)}), ((), {"dims": (2,)}), ((1,), {"dims": (0,)})))
def broadcast_to(x: Any, *, dims: Dims) -> Any:
    """Repeated along dims that are 1 or missing, from the last dim back: dtype[*old] -> dtype[*dims].  XLA: BroadcastInDim.

    Attributes: dims.

    Raises:
        ShapeError: a size is neither 1 nor the wanted one.
    """
    dims = tuple(dims)
    lead = len(dims) - x.ndim
    if lead < 0 or any(have not in (1, want) for have, want in zip(x.shape, dims[max(lead, 0) :], strict=True)):
        raise ShapeError(f"broadcast_to({describe(x)}) to dims {dims}: sizes must be equal or 1, counted from the last dim")
    return x if x.shape == dims else lax.broadcast_in_dim(x, dims, tuple(range(lead, len(dims))))


@op(samples=_one(((3, 4), {"axes": (0, 2)}), ((3,), {"axes": (-1,)}), ((), {"axes": (0,)})))
def expand_dims(x: Any, *, axes: Dims) -> Any:
    """New dims of size 1: dtype[*dims] -> dtype[*dims with ones].  XLA: Reshape.

    Attributes: axes, places in the result.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
    """
    return lax.expand_dims(x, axes_of("expand_dims", axes, x.ndim + len(axes)))


@op(samples=_one(((1, 4, 1), {"axes": (0, 2)}), ((3, 1), {"axes": (-1,)}), ((2,), {"axes": ()})))
def squeeze(x: Any, *, axes: Dims) -> Any:
    """Without these dims of size 1: dtype[*dims] -> dtype[*dims without axes].  XLA: Reshape.

    Attributes: axes.

    Raises:
        ShapeError: an axis is out of bounds, named twice, or not of size 1.
    """
    found = axes_of("squeeze", axes, x.ndim)
    if any(x.shape[a] != 1 for a in found):
        raise ShapeError(f"squeeze({describe(x)}) of axes {tuple(axes)}: only dims of size 1 can go")
    return lax.squeeze(x, found)


_JOIN = (
    (((3, 4), (2, 4)), {"axis": 0}),
    (((3, 2), (3, 1), (3, 3)), {"axis": -1}),
    (((0,), (3,)), {"axis": 0}),
    (((2,),), {"axis": 0}),
)


@op(samples=_many(*_JOIN))
def concatenate(*xs: Any, axis: int) -> Any:
    """One after the other along a dim: dtype[.., n, ..], dtype[.., m, ..] -> dtype[.., n+m, ..].  XLA: Concatenate.

    Attributes: axis.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the other dims differ, or the axis is out of bounds.
    """
    same_dtype("concatenate", *xs)
    axis = axis_of("concatenate", axis, xs[0].ndim)
    if any(x.shape[:axis] + x.shape[axis + 1 :] != xs[0].shape[:axis] + xs[0].shape[axis + 1 :] or x.ndim != xs[0].ndim for x in xs):
        raise ShapeError(f"concatenate({describe(*xs)}) along axis {axis}: all other dims must be equal")
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, axis)


@op(samples=_many((((3, 4), (3, 4)), {"axis": 0}), (((3,), (3,), (3,)), {"axis": -1}), (((), ()), {"axis": 0})))
def stack(*xs: Any, axis: int) -> Any:
    """Side by side along a new dim: dtype[*dims], dtype[*dims] -> dtype[2 among *dims].  XLA: Reshape, Concatenate.

    Attributes: axis, a place in the result.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims differ, or the axis is out of bounds.
    """
    same_dtype("stack", *xs)
    axis = axis_of("stack", axis, xs[0].ndim + 1)
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(f"stack({describe(*xs)}): all dims must be equal")
    return lax.concatenate([lax.expand_dims(x, (axis,)) for x in xs], axis)


@op(
    samples=_many(
        (((3, 4), ()), {"low": (1, 0), "high": (0, 2), "interior": (0, 1)}),
        (((4,), ()), {"low": (-1,), "high": (3,), "interior": (0,)}),
    )
)
def pad(x: Any, value: Any, *, low: Dims, high: Dims, interior: Dims) -> Any:
    """Surrounded by a value: dtype[*dims], dtype[] -> dtype[*padded].  XLA: Pad.

    Attributes: low, high, how many before and after (negative: cut off); interior, how many between neighbours.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: there is not one amount for each dim, or value is not 0-d.
    """
    same_dtype("pad", x, value)
    if not len(low) == len(high) == len(interior) == x.ndim or value.ndim:
        raise ShapeError(f"pad({describe(x, value)}): expected a 0-d value, and low, high and interior for each of {x.ndim} dims")
    return lax.pad(x, value, tuple(zip(low, high, interior, strict=True)))


@op(samples=_one(((3, 4), {"axes": (0,)}), ((3, 4), {"axes": (0, -1)}), ((3,), {"axes": ()})))
def reverse(x: Any, *, axes: Dims) -> Any:
    """Back to front along dims: dtype[*dims] -> the same.  XLA: Reverse.

    Attributes: axes.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
    """
    return lax.rev(x, axes_of("reverse", axes, x.ndim))


@op(samples=_one(((2, 3), {"reps": (2, 1)}), ((3,), {"reps": (2, 2)}), ((2, 2), {"reps": (3,)})))
def tile(x: Any, *, reps: Dims) -> Any:
    """The whole repeated along each dim, missing dims and repetitions being 1: dtype[*dims] -> dtype[*dims times reps].

    Attributes: reps.  XLA: BroadcastInDim, Reshape.
    """
    return jnp.tile(x, tuple(reps))


@op(
    samples=_one(
        ((3, 4), {"shifts": (1,), "axes": (0,)}), ((3, 4), {"shifts": (-1, 6), "axes": (0, 1)}), ((0,), {"shifts": (1,), "axes": (0,)})
    )
)
def roll(x: Any, *, shifts: Dims, axes: Dims) -> Any:
    """Moved along dims, what leaves at the end entering at the start: dtype[*dims] -> the same.  XLA: Slice, Concatenate.

    Attributes: shifts; axes, one for each shift.

    Raises:
        ShapeError: an axis is out of bounds, or the numbers of shifts and axes differ.
    """
    if len(shifts) != len(axes):
        raise ShapeError(f"roll({describe(x)}): {len(shifts)} shifts for {len(axes)} axes; expected one for each")
    for shift, given in zip(shifts, axes, strict=True):
        axis = axis_of("roll", given, x.ndim)
        size = x.shape[axis]
        by = shift % size if size else 0
        if by:
            x = lax.concatenate([lax.slice_in_dim(x, size - by, size, axis=axis), lax.slice_in_dim(x, 0, size - by, axis=axis)], axis)
    return x


# ------------------------------------------------------------------ slices and updates


@op(
    samples=_one(
        ((5, 6), {"starts": (1, 0), "limits": (4, 6), "strides": (1, 2)}),
        ((7,), {"starts": (2,), "limits": (2,), "strides": (1,)}),
        ((), {"starts": (), "limits": (), "strides": ()}),
    ),
    name="slice",
)
def slice_(x: Any, *, starts: Dims, limits: Dims, strides: Dims) -> Any:
    """A box, with steps: dtype[*dims] -> dtype[*ceil((limit - start) / stride)].  XLA: Slice.

    Attributes: starts, limits, within the dims; strides, positive.

    Raises:
        ShapeError: the box leaves the operand, or a stride is not positive.
    """
    if not len(starts) == len(limits) == len(strides) == x.ndim:
        raise ShapeError(f"slice({describe(x)}): expected starts, limits and strides for each of {x.ndim} dims")
    if any(not 0 <= lo <= hi <= n or by < 1 for lo, hi, by, n in zip(starts, limits, strides, x.shape, strict=True)):
        raise ShapeError(
            f"slice({describe(x)}) from {tuple(starts)} to {tuple(limits)} by {tuple(strides)}: "
            f"outside the operand; expected 0 <= start <= limit <= size, stride > 0"
        )
    return lax.slice(x, tuple(starts), tuple(limits), tuple(strides))


def _start_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (5, 6), dtype)
    yield Sample((x, np.array(1, np.int64), np.array(2, np.int64)), {"sizes": (2, 3)})
    yield Sample((x, np.array(4, np.int32), np.array(0, np.int32)), {"sizes": (1, 6)})


def _check_box(name: str, x: Any, sizes: Sequence[int], starts: Sequence[Any]) -> None:
    if (
        len(sizes) != x.ndim
        or len(starts) != x.ndim
        or any(s.ndim for s in starts)
        or any(not 0 <= s <= n for s, n in zip(sizes, x.shape, strict=False))
    ):
        raise ShapeError(
            f"{name}({describe(x, *starts)}): "
            f"expected one 0-d start for each of {x.ndim} dims, and a box within the operand, not {tuple(sizes)}"
        )


@op(samples=_start_samples)
def dynamic_slice(x: Any, *starts: Any, sizes: Dims) -> Any:
    """A box at places known at run time, moved inside where it would leave: dtype[*dims], s64[] a dim -> dtype[*sizes].  XLA: DynamicSlice.

    Attributes: sizes.

    Raises:
        ShapeError: there is not one 0-d start for each dim, or the box is larger than the operand.
    """
    _check_box("dynamic_slice", x, sizes, starts)
    return lax.dynamic_slice(x, starts, tuple(sizes))


def _dynamic_update_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (5, 6), dtype), numbers(rng, (2, 3), dtype), np.array(1, np.int64), np.array(2, np.int64)), {})


@op(samples=_dynamic_update_samples)
def dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    """With a box replaced at places known at run time: dtype[*dims], dtype[*box], s64[] a dim -> dtype[*dims].

    The box is moved inside where it would leave.

    XLA: DynamicUpdateSlice.

    Raises:
        DtypeError: the dtypes of x and update differ.
        ShapeError: there is not one 0-d start for each dim, or the box is larger than the operand.
    """
    same_dtype("dynamic_update_slice", x, update)
    _check_box("dynamic_update_slice", x, update.shape, starts)
    return lax.dynamic_update_slice(x, update, starts)


@op(
    samples=_many(
        (((5, 6), (2, 3)), {"starts": (1, 2), "strides": (1, 1)}),
        (((5, 6), (2, 3)), {"starts": (0, 1), "strides": (3, 2)}),
        (((4,), (0,)), {"starts": (1,), "strides": (1,)}),
        (((), ()), {"starts": (), "strides": ()}),
    )
)
def update_slice(x: Any, update: Any, *, starts: Dims, strides: Dims) -> Any:
    """With a box replaced, with steps: dtype[*dims], dtype[*box] -> dtype[*dims].

    Attributes: starts; strides, positive.  XLA: DynamicUpdateSlice; with steps Pad and Select on the box between.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the box leaves the operand, or a stride is not positive.
    """
    same_dtype("update_slice", x, update)
    spans = [max((n - 1) * by + 1, 0) if n else 0 for n, by in zip(update.shape, strides, strict=False)]
    if not x.ndim == update.ndim == len(starts) == len(strides) or any(
        lo < 0 or by < 1 or lo + span > n for lo, by, span, n in zip(starts, strides, spans, x.shape, strict=True)
    ):
        raise ShapeError(
            f"update_slice({describe(x, update)}) from {tuple(starts)} by {tuple(strides)}: "
            "the box leaves the operand, or a stride is not positive"
        )
    if update.size == 0:
        return x
    if tuple(update.shape) == tuple(x.shape):
        return update
    if any(by > 1 and n > 1 for by, n in zip(strides, update.shape, strict=True)):
        box = lax.slice(x, tuple(starts), tuple(lo + span for lo, span in zip(starts, spans, strict=True)))
        gaps = tuple((0, 0, by - 1 if n > 1 else 0) for by, n in zip(strides, update.shape, strict=True))
        spread = lax.pad(update, lax.full((), 0, x.dtype), gaps)
        mask = lax.full(box.shape, True, np.dtype(bool))
        for axis, by in enumerate(strides):
            if by > 1 and update.shape[axis] > 1:
                place = lax.rem(lax.iota(np.dtype(np.int32), box.shape[axis]), np.int32(by))
                mask = lax.bitwise_and(mask, lax.broadcast_in_dim(lax.eq(place, np.int32(0)), box.shape, (axis,)))
        update = lax.select(mask, spread, box)
    return (
        update
        if update.shape == x.shape
        else lax.dynamic_update_slice(x, update, [np.int32(lo) if lo < 1 << 31 else np.int64(lo) for lo in starts])
    )


# ------------------------------------------------------------------ matrices as shapes


def _band(x: Any, k: int, upper: bool) -> Any:
    if x.ndim < 2:
        raise ShapeError(f"{'triu' if upper else 'tril'}({describe(x)}): expected a matrix, or matrices along leading dims")
    dims = x.shape[-2:]
    row, column = (lax.broadcasted_iota(np.dtype(np.int32), dims, axis) for axis in (0, 1))
    edge = lax.add(row, lax.full(dims, max(min(k, 1 << 30), -(1 << 30)), np.dtype(np.int32)))
    mask = lax.broadcast_in_dim(lax.ge(column, edge) if upper else lax.le(column, edge), x.shape, (x.ndim - 2, x.ndim - 1))
    return lax.select(mask, x, lax.full(x.shape, 0, x.dtype))


_BANDS = _one(((4, 4), {"k": 0}), ((3, 5), {"k": 1}), ((2, 4, 3), {"k": -1}))


@op(samples=_BANDS)
def triu(x: Any, *, k: int) -> Any:
    """Zero below the k-th diagonal: dtype[..,m,n] -> the same.  XLA: Iota, Compare, Select.

    Attributes: k, above the main diagonal where positive.

    Raises:
        ShapeError: x has fewer than 2 dims.
    """
    return _band(x, k, True)


@op(samples=_BANDS)
def tril(x: Any, *, k: int) -> Any:
    """Zero above the k-th diagonal: dtype[..,m,n] -> the same.  XLA: Iota, Compare, Select.

    Attributes: k, above the main diagonal where positive.

    Raises:
        ShapeError: x has fewer than 2 dims.
    """
    return _band(x, k, False)


_DIAGONALS = _one(
    ((4, 4), {"offset": 0, "axis1": 0, "axis2": 1}),
    ((3, 5), {"offset": 1, "axis1": 0, "axis2": 1}),
    ((2, 4, 3), {"offset": -1, "axis1": 2, "axis2": 0}),
    ((3, 3), {"offset": 3, "axis1": 0, "axis2": 1}),
)


@op(samples=_DIAGONALS)
def diagonal(x: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    """A diagonal of two dims, as the last dim: dtype[..,m,n] -> dtype[..,length].  XLA: Transpose, Reshape, Slice.

    Attributes: offset, above the main diagonal where positive; axis1, axis2, the dims of rows and columns.

    Raises:
        ShapeError: an axis is out of bounds, or both are the same.
    """
    first, second = axes_of("diagonal", (axis1, axis2), x.ndim)
    rest = [a for a in range(x.ndim) if a not in (first, second)]
    x = lax.transpose(x, (*rest, first, second))
    *lead, rows, columns = x.shape
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    flat = lax.reshape(x, (*lead, rows * columns))
    start = offset if offset >= 0 else -offset * columns
    if length == 0:
        return lax.slice_in_dim(flat, 0, 0, axis=-1)
    return lax.slice_in_dim(flat, start, start + (length - 1) * (columns + 1) + 1, columns + 1, axis=-1)
