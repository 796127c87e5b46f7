"""Shapes, slices, joining and splitting, gathering and scattering.

Source: `gen_array_ops`; strided slices follow the masks of `tf.strided_slice`'s documentation.  May import `rules` and the core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lazy_core import ir, ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr
from lazy_core.ops.registry import composite

from .rules import like, lower


def axis_of(axis: Any, rank: int, name: str) -> int:
    """An axis as a number from 0, or a ShapeError that names the operation."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ShapeError(f"{name}: axis {axis} must be one number")
        axis = axis[0]
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: axis {axis} is out of range for rank {rank}")
    return int(axis) % rank


@lower("Reshape")
def _reshape(tensor: Expr, *, shape: tuple[int, ...]) -> Expr:
    size = tensor.shape.size
    dims = list(shape)
    unknown = [i for i, d in enumerate(dims) if d == -1]
    if len(unknown) == 1:
        rest = math.prod(d for d in dims if d != -1)
        if rest == 0 or size % rest:
            raise ShapeError(f"Reshape: {tensor.shape} does not fit {shape}")
        dims[unknown[0]] = size // rest
    if math.prod(dims) != size or len(unknown) > 1:
        raise ShapeError(f"Reshape: {tensor.shape} of {size} elements does not fit {shape}")
    return tensor if tuple(dims) == tensor.shape.dims else ops.reshape(tensor, dims=tuple(dims))


@lower("Transpose")
def _transpose(x: Expr, *, perm: tuple[int, ...]) -> Expr:
    rank = x.shape.ndim
    order = tuple([p + rank if p < 0 else p for p in perm])
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"Transpose: {perm} is not a permutation of the {rank} axes of {x.shape}")
    return x if order == tuple(range(rank)) else ops.transpose(x, perm=order)


@lower("ConjugateTranspose")
def _conjugate_transpose(x: Expr, *, perm: tuple[int, ...]) -> Expr:
    return ops.conj(_transpose(x, perm=perm))


@lower("ExpandDims")
def _expand_dims(x: Expr, *, dim: Any) -> Expr:
    axis = axis_of(dim, x.shape.ndim + 1, "ExpandDims")
    return ops.reshape(x, dims=(*x.shape.dims[:axis], 1, *x.shape.dims[axis:]))


@lower("Squeeze")
def _squeeze(x: Expr, *, squeeze_dims: tuple[int, ...]) -> Expr:
    dims = x.shape.dims
    axes = {axis_of(a, len(dims), "Squeeze") for a in squeeze_dims} or {i for i, d in enumerate(dims) if d == 1}
    if any(dims[a] != 1 for a in axes):
        raise ShapeError(f"Squeeze: can only squeeze dimensions of size 1; {x.shape} on axes {sorted(axes)}")
    return ops.reshape(x, dims=tuple([d for i, d in enumerate(dims) if i not in axes]))


@lower("Fill")
def _fill(value: Expr, *, dims: tuple[int, ...]) -> Expr:
    if value.shape.ndim:
        raise ShapeError(f"Fill: value must be a scalar, not {value.shape}")
    return ops.full(value, dims=dims)


@lower("BroadcastTo")
def _broadcast_to(x: Expr, *, shape: tuple[int, ...]) -> Expr:
    return x if x.shape.dims == shape else ops.broadcast_to(x, dims=shape)


@lower("Tile")
def _tile(x: Expr, *, multiples: tuple[int, ...]) -> Expr:
    if len(multiples) != x.shape.ndim:
        raise ShapeError(f"Tile: {len(multiples)} multiples for {x.shape}")
    return x if all(m == 1 for m in multiples) else ops.tile(x, reps=multiples)


@lower("ConcatV2")
def _concat_v2(*values: Expr, axis: Any) -> Expr:
    where = axis_of(axis, values[0].shape.ndim, "ConcatV2")
    return values[0] if len(values) == 1 else ops.concatenate(*values, axis=where)


@lower("Concat")
def _concat(*values: Expr, concat_dim: Any) -> Expr:
    return _concat_v2(*values, axis=concat_dim)


@lower("Pack")
def _pack(*values: Expr, axis: int) -> Expr:
    return ops.stack(*values, axis=axis_of(axis, values[0].shape.ndim + 1, "Pack"))


@lower("Unpack")
def _unpack(value: Expr, *, num: int, axis: int) -> tuple[Expr, ...]:
    where = axis_of(axis, value.shape.ndim, "Unpack")
    dims = value.shape.dims
    if dims[where] != num:
        raise ShapeError(f"Unpack: {value.shape} has {dims[where]} parts along axis {axis}, not {num}")
    return tuple([ops.reshape(_cut(value, where, i, i + 1), dims=dims[:where] + dims[where + 1 :]) for i in range(num)])


def _cut(x: Expr, axis: int, start: int, limit: int) -> Expr:
    dims = x.shape.dims
    if (start, limit) == (0, dims[axis]):
        return x
    starts = tuple([start if i == axis else 0 for i in range(len(dims))])
    limits = tuple([limit if i == axis else d for i, d in enumerate(dims)])
    return ops.slice_(x, starts=starts, limits=limits, strides=(1,) * len(dims))


@lower("Split")
def _split(value: Expr, *, split_dim: Any, num_split: int) -> tuple[Expr, ...]:
    axis = axis_of(split_dim, value.shape.ndim, "Split")
    size, rest = divmod(value.shape.dims[axis], num_split)
    if rest:
        raise ShapeError(f"Split: {value.shape} does not split into {num_split} equal parts along axis {axis}")
    return tuple([_cut(value, axis, i * size, (i + 1) * size) for i in range(num_split)])


@lower("SplitV")
def _split_v(value: Expr, *, size_splits: tuple[int, ...], split_dim: Any, num_split: int) -> tuple[Expr, ...]:
    axis = axis_of(split_dim, value.shape.ndim, "SplitV")
    total = value.shape.dims[axis]
    known = sum(s for s in size_splits if s >= 0)
    sizes = [total - known if s < 0 else s for s in size_splits]
    if sum(sizes) != total or len(sizes) != num_split or min(sizes, default=0) < 0:
        raise ShapeError(f"SplitV: sizes {size_splits} do not add up to {total}, the size of axis {axis} of {value.shape}")
    edges = np.cumsum([0, *sizes]).tolist()
    return tuple([_cut(value, axis, edges[i], edges[i + 1]) for i in range(num_split)])


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


@lower("ReverseV2")
def _reverse_v2(tensor: Expr, *, axis: tuple[int, ...]) -> Expr:
    axes = tuple([axis_of(a, tensor.shape.ndim, "ReverseV2") for a in axis])
    return ops.reverse(tensor, axes=axes) if axes else tensor


@lower("Roll")
def _roll(x: Expr, *, shift: Any, axis: Any) -> Expr:
    shifts = shift if isinstance(shift, tuple) else (shift,)
    axes = tuple([axis_of(a, x.shape.ndim, "Roll") for a in (axis if isinstance(axis, tuple) else (axis,))])
    return ops.roll(x, shifts=shifts, axes=axes)


@lower("Range")
def _range(*, start: Any, limit: Any, delta: Any, Tidx: np.dtype) -> Expr:
    if delta == 0 or (limit - start) * delta < 0:
        raise ShapeError(f"Range: start {start}, limit {limit} and delta {delta} do not make a range")
    size = max(0, math.ceil((limit - start) / delta) if Tidx.kind == "f" else -((start - limit) // delta))
    steps = ops.iota(dims=(size,), axis=0, dtype=Tidx)
    return ops.add(ir.const(start, Tidx), ops.mul(steps, ir.const(delta, Tidx)))


@lower("GatherV2")
def _gather_v2(params: Expr, indices: Expr, *, axis: Any, batch_dims: int) -> Expr:
    where = axis_of(axis, params.shape.ndim, "GatherV2")
    batch = batch_dims + indices.shape.ndim if batch_dims < 0 else batch_dims
    if batch == 0:
        return ops.take(params, indices, axis=where, mode="clip")
    if params.shape.dims[:batch] != indices.shape.dims[:batch] or where < batch:
        raise ShapeError(f"GatherV2: {params.shape} and {indices.shape} with {batch} batch dimensions and axis {axis}")
    rank = indices.shape.ndim
    grids = []
    for i in range(batch):
        span = ops.iota(dims=(indices.shape.dims[i],), axis=0, dtype=indices.shape.dtype)
        grids.append(ops.reshape(span, dims=tuple([indices.shape.dims[i] if k == i else 1 for k in range(rank)])))
    if where == batch:
        return ops.index(params, *grids, indices, axes=(*range(batch), where), mode="clip")
    raise UnsupportedError("GatherV2: an axis beyond the batch dimensions")


@lower("Gather")
def _gather(params: Expr, indices: Expr) -> Expr:
    return ops.take(params, indices, axis=0, mode="clip")


@lower("OneHot")
def _one_hot(indices: Expr, on_value: Expr, off_value: Expr, *, depth: int, axis: int) -> Expr:
    rank = indices.shape.ndim + 1
    where = axis_of(axis, rank, "OneHot")
    if depth < 0:
        raise ShapeError(f"OneHot: depth must be non-negative, not {depth}")
    expanded = ops.reshape(indices, dims=(*indices.shape.dims[:where], 1, *indices.shape.dims[where:]))
    classes = ops.reshape(
        ops.iota(dims=(depth,), axis=0, dtype=indices.shape.dtype), dims=tuple([depth if i == where else 1 for i in range(rank)])
    )
    return ops.where(ops.eq(expanded, classes), on_value, off_value)


@lower("MatrixBandPart")
def _matrix_band_part(x: Expr, *, num_lower: int, num_upper: int) -> Expr:
    if num_lower >= 0:
        x = ops.triu(x, k=-num_lower)
    if num_upper >= 0:
        x = ops.tril(x, k=num_upper)
    return x


@lower("UnsortedSegmentSum")
def _unsorted_segment_sum(data: Expr, segment_ids: Expr, *, num_segments: int) -> Expr:
    lead = segment_ids.shape.dims
    if data.shape.dims[: len(lead)] != lead:
        raise ShapeError(f"UnsortedSegmentSum: {data.shape} does not begin with the dimensions of {segment_ids.shape}")
    rest = data.shape.dims[len(lead) :]
    flat = ops.reshape(data, dims=(math.prod(lead), *rest))
    return ops.segment_sum(flat, ops.reshape(segment_ids, dims=(math.prod(lead),)), num=num_segments)


@lower("ResourceGather")
def _resource_gather(params: Expr, indices: Expr, *, batch_dims: int) -> Expr:
    return _gather_v2(params, indices, axis=batch_dims, batch_dims=batch_dims)


@lower("TensorScatterUpdate")
def _tensor_scatter_update(tensor: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(tensor, indices, updates, accumulate=False)


@lower("TensorScatterAdd")
def _tensor_scatter_add(tensor: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(tensor, indices, updates, accumulate=True)


@lower("TensorScatterSub")
def _tensor_scatter_sub(tensor: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(tensor, indices, ops.neg(updates), accumulate=True)


@lower("ScatterNd")
def _scatter_nd(indices: Expr, updates: Expr, *, shape: tuple[int, ...]) -> Expr:
    return scatter_nd(ops.full(like(updates, 0), dims=shape), indices, updates, accumulate=True)


def index_columns(tensor: Expr, indices: Expr) -> list[Expr]:
    """The columns of a matrix of indices `i[..., n]` into the first n axes of a tensor."""
    depth = indices.shape.dims[-1] if indices.shape.ndim else 0
    if not 0 < depth <= tensor.shape.ndim:
        raise UnsupportedError(f"indices of {indices.shape} into {tensor.shape}")
    last = indices.shape.ndim - 1
    return [ops.reshape(_cut(indices, last, i, i + 1), dims=indices.shape.dims[:-1]) for i in range(depth)]


def scatter_nd(tensor: Expr, indices: Expr, updates: Expr, *, accumulate: bool) -> Expr:
    """Write or add `updates` at the places that the rows of `indices` name."""
    columns = index_columns(tensor, indices)
    expected = indices.shape.dims[:-1] + tensor.shape.dims[len(columns) :]
    if updates.shape.dims != expected:
        raise ShapeError(
            f"ScatterNd: updates of {updates.shape}; expected dimensions {expected} for indices {indices.shape} into {tensor.shape}"
        )
    return ops.index_put(tensor, updates, *columns, axes=tuple(range(len(columns))), accumulate=accumulate)


@lower("GatherNd")
def _gather_nd(params: Expr, indices: Expr) -> Expr:
    columns = index_columns(params, indices)
    return ops.index(params, *columns, axes=tuple(range(len(columns))), mode="clip")
