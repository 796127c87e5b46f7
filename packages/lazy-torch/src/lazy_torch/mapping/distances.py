"""Distances between rows: cdist and pdist, with gradients.

Owns: _cdist_* and _pdist_*. The norm of order 2 is taken from differences, never from products, which would cancel.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import F64, I64, broadcast_dims, cast, filled, iota, num


def _norm(gap: Expr, p: float) -> Expr:
    """The norm of the last dim."""
    last = (gap.shape.ndim - 1,)
    gap = ops.abs(gap)
    if gap.shape.dims[-1] == 0:
        return filled(0, gap.shape.dims[:-1], gap.shape.dtype)
    if p == 0:
        return ops.sum(cast(ops.ne(gap, num(0, gap)), gap.shape.dtype), axes=last, keepdims=False)
    if p == 1:
        return ops.sum(gap, axes=last, keepdims=False)
    if p == math.inf:
        return ops.max(gap, axes=last, keepdims=False)
    if p == 2:
        return ops.sqrt(ops.sum(ops.mul(gap, gap), axes=last, keepdims=False))
    return ops.pow(ops.sum(ops.pow(gap, num(p, gap)), axes=last, keepdims=False), num(1 / p, gap))


def _rate(gap: Expr, g: Expr, d: Expr, p: float) -> Expr:
    """The gradient by the differences `gap`, given that by their norms `d`, both with a last dim of 1."""
    size = ops.abs(gap)
    zero = ops.eq(d, num(0, d))
    safe = ops.where(zero, num(1, d), d)
    sign = ops.sign(gap)
    if p == 0:
        return ops.mul(gap, num(0, gap))
    if p == 1:
        return ops.mul(g, sign)
    if p == 2:
        return ops.where(zero, num(0, d), ops.mul(g, ops.div(gap, safe)))
    if p == math.inf:
        return ops.where(ops.eq(size, d), ops.mul(g, sign), num(0, d))
    ratio = ops.div(ops.mul(sign, ops.pow(size, num(p - 1, d))), ops.pow(safe, num(p - 1, d)))
    return ops.where(ops.logical_or(zero, ops.eq(size, num(0, d))), num(0, d), ops.mul(g, ratio))


@aten("_cdist_forward")
def cdist(x1: Expr, x2: Expr, p: float, compute_mode: int | None) -> Expr:
    left = ops.expand_dims(x1, axes=(x1.shape.ndim - 1,))
    right = ops.expand_dims(x2, axes=(x2.shape.ndim - 2,))
    return _norm(ops.sub(left, right), p)


@aten("_cdist_backward")
def cdist_backward(grad: Expr, x1: Expr, x2: Expr, p: float, cdist: Expr) -> Expr:
    if x1.shape.size == 0 or x2.shape.size == 0:
        return filled(0, x1.shape.dims, x1.shape.dtype)
    if p == 0:
        return filled(0, (*broadcast_dims(x1.shape.dims[:-2], x2.shape.dims[:-2]), *x1.shape.dims[-2:]), x1.shape.dtype)
    left = ops.expand_dims(x1, axes=(x1.shape.ndim - 1,))
    right = ops.expand_dims(x2, axes=(x2.shape.ndim - 2,))
    g, d = (ops.expand_dims(v, axes=(v.shape.ndim,)) for v in (grad, cdist))
    part = _rate(ops.sub(left, right), g, d, p)
    return ops.sum(part, axes=(part.shape.ndim - 2,), keepdims=False)  # batch dims that were broadcast are added up by autograd


def _pairs(n: int) -> tuple[Expr, Expr]:
    """Rows i < j of every pair, in order; found by solving for the triangle that a pair's number lies in."""
    count = n * (n - 1) // 2
    k = cast(iota((count,), 0), F64)
    root = ops.sqrt(ops.sub(num(4.0 * n * (n - 1) - 7, k), ops.mul(num(8, k), k)))
    i = ops.sub(num(n - 2, k), ops.floor(ops.sub(ops.mul(num(0.5, k), root), num(0.5, k))))
    left = ops.sub(num(n, k), i)
    before = ops.sub(num(count, k), ops.mul(num(0.5, k), ops.mul(left, ops.sub(left, num(1, k)))))
    j = ops.add(ops.sub(k, before), ops.add(i, num(1, k)))
    return cast(i, I64), cast(j, I64)


@aten("_pdist_forward")
def pdist(self: Expr, p: float = 2.0) -> Expr:
    n = self.shape.dims[0]
    if n <= 1:
        return filled(0, (0,), self.shape.dtype)
    i, j = _pairs(n)
    return _norm(ops.sub(ops.take(self, i, axis=0, mode="clip"), ops.take(self, j, axis=0, mode="clip")), p)


@aten("_pdist_backward")
def pdist_backward(grad: Expr, self: Expr, p: float, pdist: Expr) -> Expr:
    n = self.shape.dims[0]
    zeros = filled(0, self.shape.dims, self.shape.dtype)
    if n <= 1 or self.shape.size == 0 or p == 0:
        return zeros
    i, j = _pairs(n)
    gap = ops.sub(ops.take(self, i, axis=0, mode="clip"), ops.take(self, j, axis=0, mode="clip"))
    g, d = (ops.expand_dims(v, axes=(1,)) for v in (grad, pdist))
    part = _rate(gap, g, d, p)
    total = ops.index_put(zeros, part, i, axes=(0,), accumulate=True)
    return ops.index_put(total, ops.neg(part), j, axes=(0,), accumulate=True)
