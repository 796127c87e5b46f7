"""Reading and writing by index tensors.

Owns: index, index_put, gather, scatter*, index_*, take, put, embedding and its gradient, masked_scatter, searchsorted. Index tensors out
of range are clipped, as nothing on a device can raise; boolean masks whose result has a data-dependent size are left to the frontend
(UnsupportedError).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .compare import truth
from .promotion import (
    BOOL,
    I32,
    I64,
    Scalar,
    axis,
    broadcast_dims,
    cast,
    expand,
    filled,
    iota,
    is_float,
    math_dtype,
    num,
    operand,
    promote,
    reshape,
)
from .shapes import crop

Indices = Sequence[Expr | None]
MODE = "clip"


def _positions(index: Expr) -> Expr:
    return cast(index, I64)


def _split(indices: Indices) -> tuple[tuple[int, ...], list[Expr]]:
    found = [(a, i) for a, i in enumerate(indices) if i is not None]
    if any(i.shape.dtype == BOOL or i.shape.dtype.name == "uint8" for _, i in found):
        raise UnsupportedError("indexing by a boolean mask: the size of the result depends on the data")
    return tuple(a for a, _ in found), [_positions(i) for _, i in found]


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(self: Expr, indices: Indices) -> Expr:
    where, positions = _split(indices)
    if len(indices) > self.shape.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.shape.ndim} (got {len(indices)})")
    if not where:
        return self
    return ops.index(self, *positions, axes=where, mode=MODE)


@aten("index_put", "_index_put_impl_", "_unsafe_index_put")
def index_put(self: Expr, indices: Indices, values: Expr, accumulate: bool = False, unsafe: bool = False) -> Expr:
    values = cast(values, self.shape.dtype) if values.shape.ndim == 0 else values
    if values.shape.dtype != self.shape.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {self.shape.dtype.name} for the destination "
            f"and {values.shape.dtype.name} for the source."
        )
    masks = [i for i in indices if i is not None]
    if len(masks) == 1 and masks[0].shape.dtype == BOOL and values.shape.size == 1 and not accumulate:
        return _fill_where(self, indices, reshape(values, ()))
    where, positions = _split(indices)
    if not where:
        wide = expand(values, self.shape.dims)
        return ops.add(self, wide) if accumulate else wide
    return _put(self, values, positions, where, accumulate)


def _put(x: Expr, values: Expr, positions: Sequence[Expr], where: tuple[int, ...], accumulate: bool) -> Expr:
    if x.shape.dtype == BOOL and accumulate:  # bools add up to whether any is true
        total = ops.index_put(cast(x, I64), cast(values, I64), *positions, axes=where, accumulate=True)
        return ops.ne(total, num(0, total))
    return ops.index_put(x, values, *positions, axes=where, accumulate=accumulate)


def _fill_where(x: Expr, indices: Indices, value: Expr) -> Expr:
    at, mask = next((a, i) for a, i in enumerate(indices) if i is not None)
    span = mask.shape.ndim
    if x.shape.dims[at : at + span] != mask.shape.dims:
        raise IndexError(f"The shape of the mask {mask.shape} at index {at} does not match the shape of the indexed tensor {x.shape}")
    lifted = reshape(mask, (1,) * at + mask.shape.dims + (1,) * (x.shape.ndim - at - span))
    return ops.where(lifted, value, x)


@aten("_unsafe_masked_index")
def masked_index(self: Expr, mask: Expr, indices: Indices, fill: Scalar) -> Expr:
    found = index(self, indices)
    return ops.where(mask, found, operand(fill, self.shape.dtype))


@aten("_unsafe_masked_index_put_accumulate")
def masked_index_put(self: Expr, mask: Expr, indices: Indices, values: Expr) -> Expr:
    return index_put(self, indices, ops.where(mask, values, num(0, values)), True)


# ------------------------------------------------------------------ along one dimension


def _lift(x: Expr) -> Expr:
    return x if x.shape.ndim else reshape(x, (1,))


@aten("gather")
def gather(self: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    x, i = _lift(self), _lift(index)
    a = axis(dim, x.shape.ndim)
    if i.shape.size == 0:
        return filled(0, index.shape.dims, self.shape.dtype)
    if x.shape.ndim != i.shape.ndim:
        raise RuntimeError(f"Index tensor must have the same number of dimensions as input tensor: got {index.shape} and {self.shape}")
    dims = tuple(d if k == a else n for k, (d, n) in enumerate(zip(x.shape.dims, i.shape.dims, strict=True)))
    if any(n > d for k, (d, n) in enumerate(zip(x.shape.dims, i.shape.dims, strict=True)) if k != a):
        raise RuntimeError(f"gather: expected index {index.shape} to be no larger than self {self.shape} apart from dimension {dim}")
    return reshape(ops.take_along_axis(crop(x, dims), _positions(i), axis=a), index.shape.dims)


def _scatter(x: Expr, dim: int, index: Expr, src: Expr, reduce: str) -> Expr:
    target, i, s = _lift(x), _lift(index), _lift(src)
    if i.shape.size == 0:
        return x
    if any(n > d for n, d in zip(i.shape.dims, s.shape.dims, strict=True)):
        raise RuntimeError(f"Expected index {index.shape} to be no larger than src {src.shape}")
    if s.shape.dtype != target.shape.dtype:
        raise RuntimeError(f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.shape} and {src.shape}")
    if target.shape.dtype == BOOL:
        reduce = {"add": "max", "mul": "min"}.get(reduce, reduce)
    wide = math_dtype(target.shape.dtype) if reduce in ("add", "mul") else target.shape.dtype
    result = ops.scatter(
        cast(target, wide), _positions(i), cast(crop(s, i.shape.dims), wide), axis=axis(dim, target.shape.ndim), reduce=reduce
    )
    return reshape(cast(result, x.shape.dtype), x.shape.dims)


_LEGACY = {"add": "add", "multiply": "mul"}


def _as_src(x: Expr, index: Expr, value: Scalar) -> Expr:
    return expand(operand(value, x.shape.dtype), index.shape.dims)


@aten("scatter.src")
def scatter(self: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return _scatter(self, dim, index, src, "set")


@aten("scatter.value")
def scatter_value(self: Expr, dim: int, index: Expr, value: Scalar) -> Expr:
    return _scatter(self, dim, index, _as_src(self, index, value), "set")


@aten("scatter.reduce")
def scatter_legacy(self: Expr, dim: int, index: Expr, src: Expr, *, reduce: str) -> Expr:
    return _scatter(self, dim, index, src, _LEGACY[reduce])


@aten("scatter.value_reduce")
def scatter_value_legacy(self: Expr, dim: int, index: Expr, value: Scalar, *, reduce: str) -> Expr:
    return _scatter(self, dim, index, _as_src(self, index, value), _LEGACY[reduce])


@aten("scatter_add")
def scatter_add(self: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return _scatter(self, dim, index, src, "add")


_REDUCE = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


@aten("scatter_reduce.two")
def scatter_reduce(self: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool = True) -> Expr:
    if reduce not in _REDUCE:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if index.shape.size == 0:
        return self
    core = _REDUCE[reduce]
    start = self
    ones = filled(1, index.shape.dims, I64)
    touched = _scatter(filled(0, self.shape.dims, I64), dim, index, ones, "add")
    hit = ops.gt(touched, num(0, touched))
    if not include_self:
        neutral = _neutral(reduce, self)
        start = ops.where(hit, neutral, self)
    result = _scatter(start, dim, index, src, core)
    if reduce == "mean":
        count = ops.add(touched, num(1, touched)) if include_self else ops.maximum(touched, num(1, touched))
        count = cast(count, self.shape.dtype)
        mean = ops.div(result, count) if is_float(self.shape.dtype) or self.shape.dtype.kind == "c" else ops.floor_div(result, count)
        return ops.where(hit, mean, self)
    return result


def _neutral(reduce: str, like: Expr) -> Expr:
    kind = like.shape.dtype
    if reduce in ("sum", "mean"):
        return num(0, like)
    if reduce == "prod":
        return num(1, like)
    lowest = reduce == "amax"
    if kind == BOOL:
        return num(not lowest, like)
    if is_float(kind):
        return num(-math.inf if lowest else math.inf, like)
    import numpy as np

    info = np.iinfo(kind)
    return num(int(info.min if lowest else info.max), like)


@aten("index_select")
def index_select(self: Expr, dim: int, index: Expr) -> Expr:
    if index.shape.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got {index.shape}")
    if self.shape.ndim == 0:
        return self
    return ops.take(self, _positions(_lift(index)), axis=axis(dim, self.shape.ndim), mode=MODE)


def _along(x: Expr, dim: int, index: Expr, source: Expr) -> tuple[Expr, Expr, Expr, int]:
    target = _lift(x)
    a = axis(dim, target.shape.ndim)
    i = _positions(_lift(index))
    values = reshape(source, tuple(i.shape.dims[0] if k == a else d for k, d in enumerate(target.shape.dims)))
    return target, i, values, a


@aten("index_add")
def index_add(self: Expr, dim: int, index: Expr, source: Expr, *, alpha: Scalar = 1) -> Expr:
    if source.shape.dtype != self.shape.dtype:
        raise RuntimeError(f"index_add(): self and source expected to have the same dtype, but got {self.shape} and {source.shape}")
    target, i, values, a = _along(self, dim, index, source)
    if isinstance(alpha, Expr) or alpha != 1:
        values = ops.mul(values, operand(alpha, values.shape.dtype))
    wide = math_dtype(self.shape.dtype)
    result = _put(cast(target, wide), cast(values, wide), [i], (a,), True)
    return reshape(cast(result, self.shape.dtype), self.shape.dims)


@aten("index_copy")
def index_copy(self: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    target, i, values, a = _along(self, dim, index, source)
    return reshape(ops.index_put(target, values, i, axes=(a,), accumulate=False), self.shape.dims)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(self: Expr, dim: int, index: Expr, value: Scalar) -> Expr:
    target = _lift(self)
    a = axis(dim, target.shape.ndim)
    fill = operand(value, self.shape.dtype)
    return reshape(ops.index_put(target, reshape(fill, ()), _positions(_lift(index)), axes=(a,), accumulate=False), self.shape.dims)


@aten("index_reduce")
def index_reduce(self: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True) -> Expr:
    target, i, values, a = _along(self, dim, index, source)
    shape = tuple(-1 if k == a else 1 for k in range(target.shape.ndim))
    wide = expand(reshape(i, tuple(i.shape.dims[0] if s == -1 else 1 for s in shape)), values.shape.dims)
    names = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}
    return reshape(scatter_reduce(target, a, wide, values, names[reduce], include_self=include_self), self.shape.dims)


# ------------------------------------------------------------------ flat


@aten("take")
def take(self: Expr, index: Expr) -> Expr:
    return ops.index(reshape(self, (self.shape.size,)), _positions(index), axes=(0,), mode=MODE)


@aten("put")
def put(self: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    flat = reshape(self, (self.shape.size,))
    n = index.shape.size
    values = reshape(source, (n,))
    return reshape(_put(flat, values, [reshape(_positions(index), (n,))], (0,), accumulate), self.shape.dims)


@aten("masked_scatter")
def masked_scatter(self: Expr, mask: Expr, source: Expr) -> Expr:
    dims = broadcast_dims(self.shape.dims, mask.shape.dims)
    chosen = expand(truth(mask), dims)
    n = math.prod(dims)
    if n == 0 or source.shape.size == 0:
        return expand(self, dims)
    order = ops.sub(ops.cumsum(ops.convert(reshape(chosen, (n,)), dtype=I64), axis=0), operand(1, I64))
    values = ops.take(reshape(source, (source.shape.size,)), ops.maximum(order, operand(0, I64)), axis=0, mode=MODE)
    return ops.where(chosen, reshape(values, dims), expand(self, dims))


@aten("masked_scatter_backward")
def masked_scatter_backward(grad_output: Expr, mask: Expr, sizes: Sequence[int]) -> Expr:
    n, m = grad_output.shape.size, math.prod(sizes)
    chosen = reshape(expand(truth(mask), grad_output.shape.dims), (n,))
    order = ops.argsort(ops.convert(ops.logical_not(chosen), dtype=I64), axis=0, descending=False, stable=True, dtype=I64)
    kept = ops.where(chosen, reshape(grad_output, (n,)), num(0, grad_output))
    values = ops.take(kept, order, axis=0, mode=MODE)
    if m <= n:
        return reshape(crop(values, (m,)), sizes)
    return reshape(ops.pad(values, num(0, values), low=(0,), high=(m - n,), interior=(0,)), sizes)


# ------------------------------------------------------------------ embedding


@aten("embedding")
def embedding(weight: Expr, indices: Expr, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Expr:
    return ops.take(weight, _positions(indices), axis=0, mode=MODE)


@aten("embedding_dense_backward")
def embedding_dense_backward(grad_output: Expr, indices: Expr, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Expr:
    n = indices.shape.size
    width = grad_output.shape.dims[-1]
    kind = grad_output.shape.dtype
    wide = math_dtype(kind)
    g = cast(reshape(grad_output, (n, width)), wide)
    i = reshape(_positions(indices), (n,))
    if scale_grad_by_freq:
        counts = ops.index_put(filled(0, (num_weights,), I64), filled(1, (n,), I64), i, axes=(0,), accumulate=True)
        g = ops.div(g, reshape(cast(ops.take(counts, i, axis=0, mode=MODE), wide), (n, 1)))
    if padding_idx >= 0:
        g = ops.where(reshape(ops.eq(i, num(padding_idx, i)), (n, 1)), num(0, g), g)
    return cast(ops.index_put(filled(0, (num_weights, width), wide), g, i, axes=(0,), accumulate=True), kind)


# ------------------------------------------------------------------ counting


@aten("nonzero_static")
def nonzero_static(self: Expr, *, size: int, fill_value: int = -1) -> Expr:
    """The first `size` positions that are not zero, the rest filled."""
    n, rank = self.shape.size, self.shape.ndim
    if n == 0 or size == 0 or rank == 0:
        return filled(fill_value, (size, rank), I64)
    hit = reshape(truth(self), (n,))
    order = ops.argsort(cast(ops.logical_not(hit), I64), axis=0, descending=False, stable=True, dtype=I64)
    count = ops.sum(cast(hit, I64), axes=(0,), keepdims=False)
    flat = ops.take(order, iota((size,), 0), axis=0, mode="clip")
    valid = ops.lt(iota((size,), 0), count)
    columns = []
    for k, d in enumerate(self.shape.dims):
        below = math.prod(self.shape.dims[k + 1 :])
        columns.append(ops.remainder(ops.floor_div(flat, num(below, flat)), num(d, flat)))
    return ops.where(reshape(valid, (size, 1)), ops.stack(*columns, axis=1), num(fill_value, flat))


# ------------------------------------------------------------------ searching


def _search(seq: Expr, value: Expr, right: bool, out_int32: bool) -> Expr:
    """Positions in sorted rows, by counting: nan sorts last."""
    rows = ops.expand_dims(seq, axes=(seq.shape.ndim - 1,))
    wanted = ops.expand_dims(value, axes=(value.shape.ndim,))
    beyond = ops.gt(rows, wanted) if right else ops.ge(rows, wanted)
    if is_float(seq.shape.dtype):
        beyond = ops.logical_and(beyond, ops.logical_not(ops.isnan(wanted)))
        if not right:
            beyond = ops.logical_or(beyond, ops.isnan(rows))
    count = ops.sum(ops.convert(ops.logical_not(beyond), dtype=I64), axes=(value.shape.ndim,), keepdims=False)
    return cast(count, I32 if out_int32 else I64)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    sorted_sequence: Expr, self: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Expr | None = None
) -> Expr:
    seq, value = promote(sorted_sequence, self)[0] if not isinstance(self, Expr) else (sorted_sequence, self)
    if seq.shape.dtype != value.shape.dtype:
        (seq, value), _ = promote(seq, value)
    if sorter is not None:
        seq = ops.take_along_axis(seq, _positions(sorter), axis=seq.shape.ndim - 1)
    to_right = right or side == "right"
    if seq.shape.ndim == 1:
        flat = reshape(value, (value.shape.size,))
        return reshape(_search(seq, flat, to_right, out_int32), value.shape.dims)
    return _search(seq, value, to_right, out_int32)


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(self: Any, boundaries: Expr, *, out_int32: bool = False, right: bool = False) -> Expr:
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)
