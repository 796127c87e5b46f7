"""Rows looked up or added up in groups: embeddings of bounded length, embedding bags and segments.

Owns: embedding_renorm, _embedding_bag* and segment_reduce with their gradients. Which group an element belongs to is found by counting the
groups that have ended before it.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import BOOL, I64, Scalar, axis, cast, expand, filled, iota, math_dtype, num, operand, reshape
from .reductions import vector_norm
from .shapes import cut


@aten("embedding_renorm")
def embedding_renorm(self: Expr, indices: Expr, max_norm: float, norm_type: float) -> Expr:
    """Rows that are looked up and longer than allowed are shortened."""
    rows = self.shape.dims[0]
    flat = reshape(cast(indices, I64), (indices.shape.size,))
    hits = ops.segment_sum(filled(1, flat.shape.dims, I64), flat, num=rows)
    wide = cast(self, math_dtype(self.shape.dtype))
    norm = vector_norm(wide, norm_type, 1, True)
    limit = num(max_norm, norm)
    long = ops.logical_and(reshape(ops.gt(hits, num(0, hits)), (rows, 1)), ops.gt(norm, limit))
    scale = ops.where(long, ops.div(limit, ops.add(norm, num(1e-7, norm))), num(1, norm))
    return cast(ops.mul(wide, scale), self.shape.dtype)


# ------------------------------------------------------------------ embedding bags

SUM, MEAN, MAX = 0, 1, 2


def _bags(indices: Expr, offsets: Expr) -> Expr:
    """The bag of every index: the last one that begins at or before it."""
    begun = ops.le(reshape(cast(offsets, I64), (1, offsets.shape.size)), iota((indices.shape.size, 1), 0))
    return ops.sub(ops.sum(cast(begun, I64), axes=(1,), keepdims=False), operand(1, I64))


def _kept(indices: Expr, padding_idx: int) -> Expr:
    if padding_idx < 0:
        return filled(True, indices.shape.dims, BOOL)
    return ops.ne(indices, num(padding_idx, indices))


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Expr | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Expr, Expr, Expr, Expr]:
    count = offsets.shape.size - int(include_last_offset)
    n, width = indices.shape.size, weight.shape.dims[1]
    kind = weight.shape.dtype
    wide = math_dtype(kind)
    i = cast(indices, I64)
    bag = _bags(indices, cut(offsets, 0, 0, count))
    keep = _kept(i, padding_idx)
    sizes = ops.segment_sum(cast(keep, I64), bag, num=count)
    rows = cast(ops.take(weight, i, axis=0, mode="clip"), wide)
    best = filled(0, (0,), indices.shape.dtype)
    if mode == MAX:
        low = ops.where(reshape(keep, (n, 1)), rows, num(-math.inf, rows))
        wider = expand(reshape(bag, (n, 1)), (n, width))
        out = ops.scatter(filled(-math.inf, (count, width), wide), wider, low, axis=0, reduce="max")
        hit = ops.logical_and(reshape(keep, (n, 1)), ops.eq(low, ops.take(out, bag, axis=0, mode="clip")))
        first = ops.where(hit, reshape(iota((n,), 0), (n, 1)), num(n, bag))  # of several equal ones the first
        at = ops.scatter(filled(n, (count, width), I64), wider, first, axis=0, reduce="min")
        empty = reshape(ops.eq(sizes, num(0, sizes)), (count, 1))
        found = ops.take(i, ops.minimum(at, num(max(n - 1, 0), at)), axis=0, mode="clip") if n else filled(-1, (count, width), I64)
        best = cast(ops.where(empty, num(-1, found), found), indices.shape.dtype)
        out = ops.where(empty, num(0, out), out)
    else:
        scale = cast(keep, wide)
        if per_sample_weights is not None:
            scale = ops.mul(scale, cast(per_sample_weights, wide))
        out = ops.segment_sum(ops.mul(rows, reshape(scale, (n, 1))), bag, num=count)
        if mode == MEAN:
            out = ops.div(out, reshape(cast(ops.maximum(sizes, num(1, sizes)), wide), (count, 1)))
    if include_last_offset:
        sizes = ops.concatenate(sizes, filled(0, (1,), I64), axis=0)
    return cast(out, kind), cast(bag, indices.shape.dtype), cast(sizes, indices.shape.dtype), best


@aten("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Expr,
    indices: Expr,
    offset2bag: Expr,
    bag_size: Expr,
    maximum_indices: Expr,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Expr | None,
    padding_idx: int = -1,
) -> Expr:
    width = grad.shape.dims[1]
    n = indices.shape.size
    kind = grad.shape.dtype
    wide = math_dtype(kind)
    g, i, bag = cast(grad, wide), cast(indices, I64), cast(offset2bag, I64)
    base = filled(0, (num_weights, width), wide)
    if mode == MAX:
        at = cast(maximum_indices, I64)
        at = ops.where(ops.lt(at, num(0, at)), num(num_weights, at), at)  # an empty bag's gradient goes nowhere
        return cast(ops.scatter(base, at, g, axis=0, reduce="add"), kind)
    scale = cast(_kept(i, padding_idx), wide)
    if per_sample_weights is not None:
        scale = ops.mul(scale, cast(per_sample_weights, wide))
    if mode == MEAN:
        sizes = cast(ops.take(cast(bag_size, I64), bag, axis=0, mode="clip"), wide)
        scale = ops.div(scale, ops.maximum(sizes, num(1, sizes)))
    if scale_grad_by_freq:
        often = ops.segment_sum(filled(1, (n,), wide), i, num=num_weights)
        scale = ops.div(scale, ops.take(often, i, axis=0, mode="clip"))
    rows = ops.mul(ops.take(g, bag, axis=0, mode="clip"), reshape(scale, (n, 1)))
    return cast(ops.index_put(base, rows, i, axes=(0,), accumulate=True), kind)


@aten("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Expr,
    indices: Expr,
    offsets: Expr,
    offset2bag: Expr,
    bag_size: Expr,
    maximum_indices: Expr,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Expr | None,
    padding_idx: int = -1,
) -> Expr:
    if sparse:
        raise UnsupportedError("sparse gradients")
    return embedding_bag_dense_backward(
        grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@aten("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: Expr, weight: Expr, indices: Expr, offsets: Expr, offset2bag: Expr, mode: int, padding_idx: int = -1
) -> Expr:
    kind = grad.shape.dtype
    wide = math_dtype(kind)
    i = cast(indices, I64)
    rows = cast(ops.take(weight, i, axis=0, mode="clip"), wide)
    given = cast(ops.take(grad, cast(offset2bag, I64), axis=0, mode="clip"), wide)
    dots = ops.sum(ops.mul(rows, given), axes=(1,), keepdims=False)
    return cast(ops.where(_kept(i, padding_idx), dots, num(0, dots)), kind)


# ------------------------------------------------------------------ segments

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


class _Segments:
    """Where the segments of `data` along an axis lie: lengths s64[*lead, n] or offsets s64[*lead, n + 1]."""

    def __init__(self, data: Expr, lengths: Expr | None, offsets: Expr | None, along: int) -> None:
        self.a = axis(along, data.shape.ndim)
        dims = data.shape.dims
        if lengths is not None:
            sizes = cast(lengths, I64)
            ends = ops.cumsum(sizes, axis=self.a)
        elif offsets is not None:
            o = cast(offsets, I64)
            n = o.shape.dims[self.a] - 1
            ends = cut(o, self.a, 1, n + 1)
            sizes = ops.sub(ends, cut(o, self.a, 0, n))
        else:
            raise UnsupportedError("segments given by indices")
        self.count = ends.shape.dims[self.a]
        lead, length = dims[: self.a], dims[self.a]
        ended = ops.ge(iota((*lead, length, 1), self.a), reshape(ends, (*lead, 1, self.count)))
        number = ops.sum(cast(ended, I64), axes=(self.a + 1,), keepdims=False)
        rest = (1,) * (len(dims) - self.a - 1)
        self.ids = expand(reshape(number, (*lead, length, *rest)), dims)  # those beyond the last segment are dropped by scatter
        self.out = (*lead, self.count, *dims[self.a + 1 :])
        self.sizes = expand(reshape(sizes, (*lead, self.count, *rest)), self.out)

    def reduce(self, values: Expr, start: Expr, how: str) -> Expr:
        return ops.scatter(expand(start, self.out), self.ids, values, axis=self.a, reduce=how)

    def spread(self, values: Expr) -> Expr:
        """Each segment's value for each of its elements, 0 beyond the last segment."""
        inside = ops.lt(self.ids, num(self.count, self.ids))
        if not self.count:
            return filled(0, self.ids.shape.dims, values.shape.dtype)
        return ops.where(inside, ops.take_along_axis(values, self.ids, axis=self.a), num(0, values))


@aten("segment_reduce", static=("initial",))
def segment_reduce(
    data: Expr,
    reduce: str,
    *,
    lengths: Expr | None = None,
    indices: Expr | None = None,
    offsets: Expr | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> Expr:
    segments = _Segments(data, lengths, offsets, axis)
    kind = data.shape.dtype
    x = cast(data, math_dtype(kind))
    start = operand(_START[reduce] if initial is None else initial, x.shape.dtype)
    value = segments.reduce(x, start, _REDUCE[reduce])
    if reduce == "mean":
        sizes = cast(segments.sizes, x.shape.dtype)
        empty = ops.eq(sizes, num(0, sizes))
        nothing = expand(num(math.nan, value), value.shape.dims) if initial is None else value
        value = ops.where(empty, nothing, ops.div(value, ops.where(empty, num(1, sizes), sizes)))
    return cast(value, kind)


@aten("_segment_reduce_backward", static=("initial",))
def segment_reduce_backward(
    grad: Expr,
    output: Expr,
    data: Expr,
    reduce: str,
    *,
    lengths: Expr | None = None,
    offsets: Expr | None = None,
    axis: int = 0,
    initial: Scalar | None = None,
) -> Expr:
    segments = _Segments(data, lengths, offsets, axis)
    kind = data.shape.dtype
    wide = math_dtype(kind)
    x, g = cast(data, wide), cast(grad, wide)
    zero = num(0, x)
    if reduce == "mean":
        sizes = cast(segments.sizes, wide)
        g = ops.div(g, ops.maximum(sizes, num(1, sizes)))
    if reduce in ("sum", "mean"):
        return cast(segments.spread(g), kind)
    if reduce in ("max", "min"):  # shared by all elements that are the extreme
        hit = ops.eq(x, segments.spread(cast(output, wide)))
        counts = segments.reduce(cast(hit, wide), zero, "add")
        return cast(ops.where(hit, segments.spread(ops.div(g, ops.maximum(counts, num(1, counts)))), zero), kind)
    is_zero = ops.eq(x, zero)
    zeros = segments.spread(segments.reduce(cast(is_zero, wide), zero, "add"))
    start = operand(1.0 if initial is None else initial, wide)
    rest = segments.spread(segments.reduce(ops.where(is_zero, num(1, x), x), start, "mul"))
    alone = ops.logical_and(is_zero, ops.eq(zeros, num(1, x)))
    others = ops.where(alone, rest, ops.where(ops.eq(zeros, zero), ops.div(rest, ops.where(is_zero, num(1, x), x)), zero))
    return cast(ops.mul(segments.spread(g), others), kind)
