"""Losses over the margins between classes.

Owns: multi_margin_loss and multilabel_margin_loss with their gradients.
"""

from __future__ import annotations

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .losses import MEAN, NONE, reduced
from .promotion import I64, cast, expand, iota, num, reshape

# ------------------------------------------------------------------ one class a row


def _rows(self: Expr, target: Expr) -> tuple[Expr, Expr]:
    """Scores as [N, C], targets as [N, 1]."""
    x = self if self.shape.ndim > 1 else reshape(self, (1, max(self.shape.size, 1)))
    return x, reshape(cast(target, I64), (x.shape.dims[0], 1))


def _gaps(x: Expr, t: Expr, margin: float) -> Expr:
    own = ops.take_along_axis(x, t, axis=1)
    gap = ops.maximum(ops.add(ops.sub(num(margin, x), own), x), num(0, x))
    mine = ops.eq(iota(x.shape.dims, 1), t)
    return ops.where(mine, num(0, x), gap)


@aten("multi_margin_loss", static=("p", "margin"))
def multi_margin_loss(self: Expr, target: Expr, p: float = 1, margin: float = 1, weight: Expr | None = None, reduction: int = MEAN) -> Expr:
    x, t = _rows(self, target)
    gap = _gaps(x, t, margin)
    parts = gap if p == 1 else ops.mul(gap, gap)
    if weight is not None:
        parts = ops.mul(parts, ops.take(weight, t, axis=0, mode="clip"))
    rows = ops.div(ops.sum(parts, axes=(1,), keepdims=False), num(x.shape.dims[1], x))
    return reduced(rows if self.shape.ndim > 1 or reduction != NONE else reshape(rows, ()), reduction)


@aten("multi_margin_loss_backward", static=("p", "margin"))
def multi_margin_loss_backward(
    grad_output: Expr, self: Expr, target: Expr, p: float, margin: float, weight: Expr | None = None, reduction: int = MEAN
) -> Expr:
    x, t = _rows(self, target)
    n, c = x.shape.dims
    gap = _gaps(x, t, margin)
    on = cast(ops.gt(gap, num(0, gap)), x.shape.dtype)
    slope = on if p == 1 else ops.mul(num(2, x), gap)
    if weight is not None:
        slope = ops.mul(slope, ops.take(weight, t, axis=0, mode="clip"))
    slope = ops.div(slope, num(c * n if reduction == MEAN else c, x))
    mine = ops.eq(iota(x.shape.dims, 1), t)
    slope = ops.where(mine, ops.neg(ops.sum(slope, axes=(1,), keepdims=True)), slope)
    g = reshape(grad_output, (n, 1)) if reduction == NONE else grad_output
    return reshape(ops.mul(slope, g), self.shape.dims)


# ------------------------------------------------------------------ several classes a row


def _labels(self: Expr, target: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Scores [N, C], safe labels [N, C], which of them count (those before the first negative one), and which classes are labels."""
    c = self.shape.dims[-1] if self.shape.ndim else 1
    x = reshape(self, (self.shape.size // max(c, 1), c))
    t = reshape(cast(target, I64), x.shape.dims)
    ended = ops.cumsum(cast(ops.lt(t, num(0, t)), I64), axis=1)
    counts = ops.eq(ended, num(0, ended))
    safe = ops.where(counts, t, num(0, t))
    hits = ops.logical_and(ops.expand_dims(counts, axes=(2,)), ops.eq(ops.expand_dims(safe, axes=(2,)), iota((1, 1, c), 2)))
    return x, safe, counts, ops.any(hits, axes=(1,), keepdims=False)


def _violations(x: Expr, safe: Expr, counts: Expr, is_label: Expr) -> Expr:
    """1 - (x[label] - x[other]) where positive, [N, label, other]."""
    own = ops.take_along_axis(x, safe, axis=1)
    gap = ops.add(ops.sub(num(1, x), ops.expand_dims(own, axes=(2,))), ops.expand_dims(x, axes=(1,)))
    used = ops.logical_and(ops.expand_dims(counts, axes=(2,)), ops.logical_not(ops.expand_dims(is_label, axes=(1,))))
    return ops.where(used, ops.maximum(gap, num(0, x)), num(0, x))


@aten("multilabel_margin_loss_forward")
def multilabel_margin_loss(self: Expr, target: Expr, reduction: int) -> tuple[Expr, Expr]:
    x, safe, counts, is_label = _labels(self, target)
    rows = ops.div(ops.sum(_violations(x, safe, counts, is_label), axes=(1, 2), keepdims=False), num(x.shape.dims[1], x))
    rows = reshape(rows, self.shape.dims[:-1]) if reduction == NONE else rows
    return reduced(rows, reduction), reshape(cast(is_label, self.shape.dtype), target.shape.dims)


@aten("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(grad_output: Expr, self: Expr, target: Expr, reduction: int, is_target: Expr) -> Expr:
    x, safe, counts, is_label = _labels(self, target)
    n, c = x.shape.dims
    on = _violations(x, safe, counts, is_label)
    on = cast(ops.gt(on, num(0, on)), x.shape.dtype)
    up = ops.sum(on, axes=(1,), keepdims=False)
    down = ops.sum(on, axes=(2,), keepdims=False)
    labels = cast(ops.eq(ops.expand_dims(safe, axes=(2,)), iota((1, 1, c), 2)), x.shape.dtype)
    slope = ops.sub(up, ops.sum(ops.mul(labels, ops.expand_dims(down, axes=(2,))), axes=(1,), keepdims=False))
    slope = ops.div(slope, num(c * n if reduction == MEAN else c, x))
    g = expand(reshape(grad_output, (n, 1)), (n, c)) if reduction == NONE else grad_output
    return reshape(ops.mul(slope, g), self.shape.dims)
