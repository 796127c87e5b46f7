"""Counting values into bins.

Owns: histc, histogram and histogramdd. A value's bin is found by comparing it with the edges, so that it agrees with the edges that are
returned; the last bin includes its right edge, and what lies outside is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import F64, I64, Number, Scalar, cast, filled, iota, is_float, num, operand, reshape
from .shapes import cut


def _bounds(x: Expr, low: Scalar, high: Scalar, margin: float) -> tuple[Expr, Expr]:
    """The outer edges: those given, or where both are equal the data's extremes, moved apart if they are equal too."""
    left, right = operand(low, x.shape.dtype), operand(high, x.shape.dtype)
    if low == high:
        if x.shape.size == 0:
            left, right = num(0, x), num(1, x)
        else:
            over = tuple(range(x.shape.ndim))
            left, right = ops.min(x, axes=over, keepdims=False), ops.max(x, axes=over, keepdims=False)
    same = ops.eq(left, right)
    return ops.where(same, ops.sub(left, num(margin, x)), left), ops.where(same, ops.add(right, num(margin, x)), right)


@aten("histc", static=("min", "max"))
def histc(self: Expr, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Expr:
    kind = self.shape.dtype
    x = reshape(cast(self, kind if is_float(kind) else F64), (self.shape.size,))
    left, right = _bounds(x, min, max, 1)
    inside = ops.logical_and(ops.ge(x, left), ops.le(x, right))
    place = ops.floor(ops.div(ops.mul(ops.sub(x, left), num(bins, x)), ops.sub(right, left)))
    number = ops.minimum(cast(ops.where(inside, place, num(0, x)), I64), operand(bins - 1, I64))
    counts = ops.segment_sum(cast(inside, I64), number, num=bins)
    return cast(counts, kind)


def _edges(left: Expr, right: Expr, bins: int) -> Expr:
    """bins + 1 edges, counted from the nearer end, as torch's linspace does."""
    i = cast(iota((bins + 1,), 0), left.shape.dtype)
    step = ops.div(ops.sub(right, left), num(bins, left))
    low = ops.add(left, ops.mul(i, step))
    high = ops.sub(right, ops.mul(ops.sub(num(bins, i), i), step))
    return ops.where(ops.lt(i, num((bins + 1) // 2, i)), low, high)


def _count(x: Expr, edges: Sequence[Expr], weight: Expr | None, density: bool) -> Expr:
    """Points x[n, d] counted into the boxes between edges, one vector of edges a dim."""
    n = x.shape.dims[0]
    bins = tuple(e.shape.size - 1 for e in edges)
    number: Expr | None = None
    inside = filled(True, (n,), ops.lt(num(0, x), num(1, x)).shape.dtype)
    for d, e in enumerate(edges):
        value = cut(x, 1, d, d + 1)
        reached = ops.sum(cast(ops.le(reshape(e, (1, bins[d] + 1)), value), I64), axes=(1,), keepdims=False)
        last = ops.eq(reshape(value, (n,)), reshape(cut(e, 0, bins[d], bins[d] + 1), ()))
        at = ops.where(last, operand(bins[d] - 1, I64), ops.sub(reached, operand(1, I64)))
        inside = ops.logical_and(inside, ops.logical_and(ops.ge(at, num(0, at)), ops.lt(at, num(bins[d], at))))
        number = at if number is None else ops.add(ops.mul(number, num(bins[d], number)), at)
    assert number is not None
    one = filled(1, (n,), x.shape.dtype) if weight is None else reshape(cast(weight, x.shape.dtype), (n,))
    held = ops.where(inside, one, num(0, one))
    hist = reshape(ops.segment_sum(held, ops.where(inside, number, num(0, number)), num=math.prod(bins)), bins)
    if not density:
        return hist
    hist = ops.div(hist, ops.sum(hist, axes=tuple(range(len(bins))), keepdims=False))
    for d, e in enumerate(edges):
        widths = ops.sub(cut(e, 0, 1, bins[d] + 1), cut(e, 0, 0, bins[d]))
        hist = ops.div(hist, reshape(widths, tuple(bins[d] if k == d else 1 for k in range(len(bins)))))
    return hist


def _made(x: Expr, bins: Sequence[int], range_: Sequence[Number] | None) -> list[Expr]:
    """The edges of each dim of x[n, d]."""
    found = []
    for d, count in enumerate(bins):
        low, high = (0, 0) if range_ is None else range_[2 * d : 2 * d + 2]
        if range_ is not None and low == high:
            left, right = num(low - 0.5, x), num(high + 0.5, x)  # type: ignore[operator]
        else:
            left, right = _bounds(cut(x, 1, d, d + 1), low, high, 0.5)
        found.append(_edges(left, right, count))
    return found


def _points(self: Expr) -> Expr:
    if not is_float(self.shape.dtype):
        raise UnsupportedError("histogram of integers")
    return reshape(self, (self.shape.size, 1))


@aten("histogram.bin_ct")
def histogram(
    self: Expr, bins: int = 100, *, range: Sequence[Number] | None = None, weight: Expr | None = None, density: bool = False
) -> tuple[Expr, Expr]:
    x = _points(self)
    edges = _made(x, [bins], range)
    return _count(x, edges, weight, density), edges[0]


@aten("histogram.bins_tensor")
def histogram_of_edges(self: Expr, bins: Expr, *, weight: Expr | None = None, density: bool = False) -> tuple[Expr, Expr]:
    return _count(_points(self), [bins], weight, density), bins


def _rows(self: Expr) -> Expr:
    return reshape(self, (math.prod(self.shape.dims[:-1]), self.shape.dims[-1]))


@aten("_histogramdd_bin_edges")
def histogramdd_edges(
    self: Expr, bins: Sequence[int], *, range: Sequence[Number] | None = None, weight: Expr | None = None, density: bool = False
) -> list[Expr]:
    return _made(_rows(self), bins, range)


@aten("_histogramdd_from_bin_cts")
def histogramdd(
    self: Expr, bins: Sequence[int], *, range: Sequence[Number] | None = None, weight: Expr | None = None, density: bool = False
) -> Expr:
    x = _rows(self)
    return _count(x, _made(x, bins, range), weight, density)


@aten("_histogramdd_from_bin_tensors")
def histogramdd_of_edges(self: Expr, bins: Sequence[Expr], *, weight: Expr | None = None, density: bool = False) -> Expr:
    return _count(_rows(self), list(bins), weight, density)
