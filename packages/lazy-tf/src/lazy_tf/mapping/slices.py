"""Slices and padding.

Where a slice lies is an operand of the program rather than a part of it, so that a loop over slices compiles twice and not once a
turn; XLA folds it where it stays constant.  Strides follow the masks of `tf.strided_slice`'s documentation.  Source: `gen_array_ops`.
May import `rules` and the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lazy_core import ir, ops
from lazy_core.errors import ShapeError
from lazy_core.ir import Expr
from lazy_core.ops.registry import composite

from .rules import like, lower


@composite("tf.window")
def _window(x: Expr, *starts: Expr, axes: tuple[int, ...], sizes: tuple[int, ...], dims: tuple[int, ...]) -> Expr:
    """Cut `sizes` out of an operand from `starts` along `axes`, then reshape."""
    zero = ir.const(0, np.dtype(np.int64))
    given = dict(zip(axes, starts, strict=True))
    return ops.reshape(ops.dynamic_slice(x, *[given.get(i, zero) for i in range(x.shape.ndim)], sizes=sizes), dims=dims)


@composite("tf.window_gradient")
def _window_gradient(dy: Expr, *starts: Expr, axes: tuple[int, ...], sizes: tuple[int, ...], dims: tuple[int, ...]) -> Expr:
    """Put a gradient at `starts` along `axes` into zeros of `dims`."""
    zero = ir.const(0, np.dtype(np.int64))
    given = dict(zip(axes, starts, strict=True))
    places = [given.get(i, zero) for i in range(len(dims))]
    return ops.dynamic_update_slice(ops.full(like(dy, 0), dims=dims), ops.reshape(dy, dims=sizes), *places)


@composite("tf.window_update")
def _window_update(x: Expr, value: Expr, *starts: Expr, axes: tuple[int, ...], sizes: tuple[int, ...], dims: tuple[int, ...]) -> Expr:
    """Put a value of `dims` at `starts` along `axes` into an operand."""
    if value.shape.dims != dims:
        raise ShapeError(f"a slice of {dims} cannot be assigned a value of {value.shape}")
    zero = ir.const(0, np.dtype(np.int64))
    given = dict(zip(axes, starts, strict=True))
    return ops.dynamic_update_slice(x, ops.reshape(value, dims=sizes), *[given.get(i, zero) for i in range(x.shape.ndim)])


Lifted = tuple[Any, tuple[int, ...], dict[str, Any]]


def _lift(target: Any, dims: tuple[int, ...], starts: Any, sizes: Any, result: Any) -> Lifted | None:
    axes = tuple([i for i, d in enumerate(dims) if sizes[i] != d])
    if not axes or 0 in sizes:
        return None
    return target, tuple([starts[i] for i in axes]), {"axes": axes, "sizes": tuple(sizes), "dims": tuple(result)}


def _lift_slice(dims: tuple[int, ...], static: Mapping[str, Any]) -> Lifted | None:
    begin, size = static["begin"], static["size"]
    if len(begin) != len(dims) or len(size) != len(dims):
        return None
    sizes = [d - b if s == -1 else s for b, s, d in zip(begin, size, dims, strict=True)]
    if any(b < 0 or s < 0 or b + s > d for b, s, d in zip(begin, sizes, dims, strict=True)):
        return None
    return _lift(_window, dims, begin, sizes, sizes)


@lower("Slice", lift=_lift_slice)
def _slice(x: Expr, *, begin: tuple[int, ...], size: tuple[int, ...]) -> Expr:
    dims = x.shape.dims
    if len(begin) != len(dims) or len(size) != len(dims):
        raise ShapeError(f"Slice: begin {begin} and size {size} for {x.shape}")
    limits = tuple([d if s == -1 else b + s for b, s, d in zip(begin, size, dims, strict=True)])
    if any(b < 0 or e > d or e < b for b, e, d in zip(begin, limits, dims, strict=True)):
        raise ShapeError(f"Slice: begin {begin} and size {size} leave {x.shape}")
    return ops.slice_(x, starts=begin, limits=limits, strides=(1,) * len(dims))


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def _bit(mask: int, index: int) -> bool:
    return bool(mask >> index & 1)


class StridedIndex:
    """A strided slice with its masks applied to one shape.

    Attributes:
        starts, limits, strides: the positive-stride slice of every dimension of the operand.
        flipped: dimensions that are reversed after it.
        sliced: the dimensions after slicing.
        result: the dimensions of the result, where indexed dimensions are dropped and new ones added.
    """

    def __init__(self, dims: tuple[int, ...], begin: Any, end: Any, strides: Any, masks: tuple[int, ...]) -> None:
        begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask = masks
        count = len(begin)
        ellipses = [i for i in range(count) if _bit(ellipsis_mask, i)]
        if len(ellipses) > 1:
            raise ShapeError("StridedSlice: multiple ellipses in a slice are not allowed")
        new_axes = sum(1 for i in range(count) if _bit(new_axis_mask, i) and not _bit(ellipsis_mask, i))
        spare = len(dims) - (count - new_axes - len(ellipses))
        if spare < 0:
            raise ShapeError(f"StridedSlice: too many indices ({count - new_axes}) for {len(dims)} dimensions")
        self.starts: list[int] = []
        self.limits: list[int] = []
        self.strides: list[int] = []
        self.flipped: list[int] = []
        self.sliced: list[int] = []
        self.result: list[int] = []
        for i in range(count):
            if _bit(ellipsis_mask, i):
                for _ in range(spare):
                    self._whole(dims)
            elif _bit(new_axis_mask, i):
                self.result.append(1)
            elif _bit(shrink_axis_mask, i):
                self._index(dims, begin[i], strides[i])
            else:
                self._range(dims, None if _bit(begin_mask, i) else begin[i], None if _bit(end_mask, i) else end[i], strides[i])
        while len(self.starts) < len(dims):
            self._whole(dims)

    def _whole(self, dims: tuple[int, ...]) -> None:
        size = dims[len(self.starts)]
        self._add(0, size, 1, size)
        self.result.append(size)

    def _add(self, start: int, limit: int, stride: int, size: int) -> None:
        self.starts.append(start)
        self.limits.append(limit)
        self.strides.append(stride)
        self.sliced.append(size)

    def _index(self, dims: tuple[int, ...], at: int, stride: int) -> None:
        axis = len(self.starts)
        size = dims[axis]
        if not -size <= at < size:
            raise ShapeError(f"StridedSlice: slice index {at} of dimension {axis} out of bounds for size {size}")
        if stride <= 0:
            raise ShapeError("StridedSlice: only stride 1 is allowed on a dimension that is indexed by one number")
        start = at % size
        self._add(start, start + 1, 1, 1)

    def _range(self, dims: tuple[int, ...], begin: int | None, end: int | None, stride: int) -> None:
        axis = len(self.starts)
        if stride == 0:
            raise ShapeError(f"StridedSlice: strides[{axis}] must be non-zero")
        start, stop, step = slice(begin, end, stride).indices(dims[axis])
        size = len(range(start, stop, step))
        if size == 0:
            self._add(0, 0, 1, 0)
        elif step > 0:
            self._add(start, start + (size - 1) * step + 1, step, size)
        else:
            self._add(start + (size - 1) * step, start + 1, -step, size)
            self.flipped.append(axis)
        self.result.append(size)


def _strided_index(dims: tuple[int, ...], static: Mapping[str, Any]) -> StridedIndex | None:
    try:
        index = StridedIndex(dims, static["begin"], static["end"], static["strides"], tuple([static[f"{m}_mask"] for m in _MASKS]))
    except ShapeError:
        return None
    return index if not index.flipped and all(s == 1 for s in index.strides) else None


def _lift_strided(dims: tuple[int, ...], static: Mapping[str, Any]) -> Lifted | None:
    index = _strided_index(dims, static)
    return None if index is None else _lift(_window, dims, index.starts, index.sliced, index.result)


def _lift_strided_gradient(dims: tuple[int, ...], static: Mapping[str, Any]) -> Lifted | None:
    index = _strided_index(static["shape"], static)
    if index is None or tuple(index.result) != dims:
        return None
    return _lift(_window_gradient, static["shape"], index.starts, index.sliced, static["shape"])


def _lift_strided_update(dims: tuple[int, ...], static: Mapping[str, Any]) -> Lifted | None:
    index = _strided_index(dims, static)
    return None if index is None else _lift(_window_update, dims, index.starts, index.sliced, index.result)


@lower("StridedSlice", lift=_lift_strided)
def _strided_slice(
    x: Expr,
    *,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> Expr:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    index = StridedIndex(x.shape.dims, begin, end, strides, masks)
    if tuple(index.sliced) != x.shape.dims:
        x = ops.slice_(x, starts=tuple(index.starts), limits=tuple(index.limits), strides=tuple(index.strides))
    if index.flipped:
        x = ops.reverse(x, axes=tuple(index.flipped))
    return x if tuple(index.result) == x.shape.dims else ops.reshape(x, dims=tuple(index.result))


@lower("StridedSliceGrad", lift=_lift_strided_gradient)
def _strided_slice_grad(
    dy: Expr,
    *,
    shape: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> Expr:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    index = StridedIndex(shape, begin, end, strides, masks)
    if tuple(index.result) != dy.shape.dims:
        raise ShapeError(f"StridedSliceGrad: a gradient of {dy.shape} for a slice of {index.result}")
    sliced = ops.reshape(dy, dims=tuple(index.sliced))
    if index.flipped:
        sliced = ops.reverse(sliced, axes=tuple(index.flipped))
    high = tuple([d - s - max(0, (n - 1) * k + 1) for d, s, n, k in zip(shape, index.starts, index.sliced, index.strides, strict=True)])
    return ops.pad(sliced, like(dy, 0), low=tuple(index.starts), high=high, interior=tuple([k - 1 for k in index.strides]))


@lower("TensorStridedSliceUpdate", lift=_lift_strided_update)
def _strided_update(
    x: Expr,
    value: Expr,
    *,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> Expr:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    index = StridedIndex(x.shape.dims, begin, end, strides, masks)
    if tuple(index.result) != value.shape.dims:
        raise ShapeError(f"TensorStridedSliceUpdate: a value of {value.shape} for a slice of {index.result}")
    if 0 in index.sliced:
        return x
    sliced = ops.reshape(value, dims=tuple(index.sliced))
    if index.flipped:
        sliced = ops.reverse(sliced, axes=tuple(index.flipped))
    spread = {
        "low": tuple(index.starts),
        "high": tuple(
            [d - s - (n - 1) * k - 1 for d, s, n, k in zip(x.shape.dims, index.starts, index.sliced, index.strides, strict=True)]
        ),
        "interior": tuple([k - 1 for k in index.strides]),
    }
    no, yes = (ir.const(flag, np.dtype(bool)) for flag in (False, True))
    written = ops.pad(ops.full(yes, dims=tuple(index.sliced)), no, **spread)
    return ops.where(written, ops.pad(sliced, like(x, 0), **spread), x)


def _pads(paddings: tuple[tuple[int, int], ...], rank: int, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(paddings) != rank:
        raise ShapeError(f"{name}: {len(paddings)} pairs of paddings for rank {rank}")
    if any(p < 0 for pair in paddings for p in pair):
        raise ShapeError(f"{name}: paddings must be non-negative: {paddings}")
    return tuple([p[0] for p in paddings]), tuple([p[1] for p in paddings])


def _lift_pad(dims: tuple[int, ...], static: Mapping[str, Any]) -> Lifted | None:
    paddings = static["paddings"]
    if len(paddings) != len(dims) or any(p < 0 for pair in paddings for p in pair):
        return None
    padded = tuple([d + low + high for d, (low, high) in zip(dims, paddings, strict=True)])
    return _lift(_window_gradient, padded, [low for low, _ in paddings], dims, padded)


@lower("Pad", lift=_lift_pad)
def _pad(x: Expr, *, paddings: tuple[tuple[int, int], ...]) -> Expr:
    low, high = _pads(paddings, x.shape.ndim, "Pad")
    return ops.pad(x, like(x, 0), low=low, high=high, interior=(0,) * x.shape.ndim)


@lower("PadV2")
def _pad_v2(x: Expr, constant_values: Expr, *, paddings: tuple[tuple[int, int], ...]) -> Expr:
    low, high = _pads(paddings, x.shape.ndim, "PadV2")
    return ops.pad(x, constant_values, low=low, high=high, interior=(0,) * x.shape.ndim)
