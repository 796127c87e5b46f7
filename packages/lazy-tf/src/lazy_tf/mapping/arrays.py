"""Shapes, joining and splitting, gathering and scattering.

Source: `gen_array_ops`.  May import `rules` and the core.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazy_core import ir, ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr

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


@lower("Empty")
def _empty(*, shape: tuple[int, ...], dtype: np.dtype) -> Expr:
    return ops.full(ir.const(0, dtype), dims=shape)


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


@lower("GatherNd", "ResourceGatherNd")
def _gather_nd(params: Expr, indices: Expr) -> Expr:
    columns = index_columns(params, indices)
    return ops.index(params, *columns, axes=tuple(range(len(columns))), mode="clip")
