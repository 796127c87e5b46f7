"""Loss functions and their gradients.

Owns: mse, smooth l1, huber, binary cross entropy, negative log likelihood (1-D and 2-D), soft margin. A reduction is 0 (none), 1 (mean)
or 2 (sum).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, broadcast_dims, cast, expand, filled, math_dtype, num, reshape, result_type

NONE, MEAN, SUM = 0, 1, 2


def reduced(x: Expr, reduction: int) -> Expr:
    if reduction == NONE:
        return x
    total = ops.sum(x, axes=tuple(range(x.shape.ndim)), keepdims=False) if x.shape.ndim else x
    return total if reduction == SUM else ops.div(total, num(x.shape.size, total))


def _loss(self: Expr, target: Expr, reduction: int, fn: Callable[[Expr, Expr], Expr]) -> Expr:
    kind = result_type(self, target)
    wide = math_dtype(kind)
    dims = broadcast_dims(self.shape.dims, target.shape.dims)
    return cast(reduced(expand(fn(cast(self, wide), cast(target, wide)), dims), reduction), kind)


def _grad(grad_output: Expr, self: Expr, target: Expr, reduction: int, fn: Callable[[Expr, Expr], Expr]) -> Expr:
    """grad_output * fn(self, target), averaged where the loss was."""
    kind = result_type(self, target, grad_output)
    wide = math_dtype(kind)
    x, t, g = cast(self, wide), cast(target, wide), cast(grad_output, wide)
    dims = broadcast_dims(self.shape.dims, target.shape.dims)
    size = math.prod(dims)
    slope = fn(x, t)
    if reduction == MEAN:
        slope = ops.mul(slope, num(1 / size if size else 0.0, slope))
    return cast(expand(ops.mul(slope, g), dims), kind)


@aten("mse_loss")
def mse_loss(self: Expr, target: Expr, reduction: int = MEAN) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        gap = ops.sub(x, t)
        return ops.mul(gap, gap)

    return _loss(self, target, reduction, body)


@aten("mse_loss_backward")
def mse_loss_backward(grad_output: Expr, self: Expr, target: Expr, reduction: int) -> Expr:
    return _grad(grad_output, self, target, reduction, lambda x, t: ops.mul(num(2, x), ops.sub(x, t)))


@aten("smooth_l1_loss")
def smooth_l1_loss(self: Expr, target: Expr, reduction: int = MEAN, beta: float = 1.0) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        gap = ops.abs(ops.sub(x, t))
        if beta == 0:
            return gap
        near = ops.div(ops.mul(num(0.5, x), ops.mul(gap, gap)), num(beta, x))
        return ops.where(ops.lt(gap, num(beta, x)), near, ops.sub(gap, num(0.5 * beta, x)))

    return _loss(self, target, reduction, body)


@aten("smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad_output: Expr, self: Expr, target: Expr, reduction: int, beta: float) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        gap = ops.sub(x, t)
        if beta == 0:
            return ops.sign(gap)
        return ops.where(ops.lt(ops.abs(gap), num(beta, x)), ops.div(gap, num(beta, x)), ops.sign(gap))

    return _grad(grad_output, self, target, reduction, body)


@aten("huber_loss")
def huber_loss(self: Expr, target: Expr, reduction: int = MEAN, delta: float = 1.0) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        gap = ops.abs(ops.sub(x, t))
        near = ops.mul(num(0.5, x), ops.mul(gap, gap))
        return ops.where(ops.le(gap, num(delta, x)), near, ops.mul(num(delta, x), ops.sub(gap, num(0.5 * delta, x))))

    return _loss(self, target, reduction, body)


@aten("huber_loss_backward")
def huber_loss_backward(grad_output: Expr, self: Expr, target: Expr, reduction: int, delta: float) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        gap = ops.sub(x, t)
        return ops.where(ops.le(ops.abs(gap), num(delta, x)), gap, ops.mul(num(delta, x), ops.sign(gap)))

    return _grad(grad_output, self, target, reduction, body)


@aten("soft_margin_loss")
def soft_margin_loss(self: Expr, target: Expr, reduction: int = MEAN) -> Expr:
    return _loss(self, target, reduction, lambda x, t: ops.log1p(ops.exp(ops.neg(ops.mul(x, t)))))


@aten("soft_margin_loss_backward")
def soft_margin_loss_backward(grad_output: Expr, self: Expr, target: Expr, reduction: int) -> Expr:
    return _grad(grad_output, self, target, reduction, lambda x, t: ops.neg(ops.mul(t, ops.sigmoid(ops.neg(ops.mul(x, t))))))


# ------------------------------------------------------------------ binary cross entropy


@aten("binary_cross_entropy")
def bce(self: Expr, target: Expr, weight: Expr | None = None, reduction: int = MEAN) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        floor = num(-100, x)
        yes = ops.maximum(ops.log(x), floor)
        no = ops.maximum(ops.log1p(ops.neg(x)), floor)
        loss = ops.sub(ops.mul(ops.sub(t, num(1, x)), no), ops.mul(t, yes))
        return loss if weight is None else ops.mul(loss, cast(weight, x.shape.dtype))

    return _loss(self, target, reduction, body)


@aten("binary_cross_entropy_backward")
def bce_backward(grad_output: Expr, self: Expr, target: Expr, weight: Expr | None = None, reduction: int = MEAN) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        spread = ops.maximum(ops.mul(ops.sub(num(1, x), x), x), num(1e-12, x))
        slope = ops.div(ops.sub(x, t), spread)
        return slope if weight is None else ops.mul(slope, cast(weight, x.shape.dtype))

    return _grad(grad_output, self, target, reduction, body)


@aten("binary_cross_entropy_with_logits")
def bce_with_logits(self: Expr, target: Expr, weight: Expr | None = None, pos_weight: Expr | None = None, reduction: int = MEAN) -> Expr:
    def body(x: Expr, t: Expr) -> Expr:
        log_sigmoid = ops.neg(ops.logaddexp(ops.neg(x), num(0, x)))
        scale = log_sigmoid
        if pos_weight is not None:
            factor = ops.add(ops.mul(ops.sub(cast(pos_weight, x.shape.dtype), num(1, x)), t), num(1, x))
            scale = ops.mul(factor, log_sigmoid)
        loss = ops.sub(ops.mul(ops.sub(num(1, x), t), x), scale)
        return loss if weight is None else ops.mul(loss, cast(weight, x.shape.dtype))

    return _loss(self, target, reduction, body)


# ------------------------------------------------------------------ negative log likelihood


def _rows(x: Expr, target: Expr) -> tuple[Expr, Expr]:
    """Scores as [N, C, ...] and targets as [N, ...], also for one unbatched row."""
    if x.shape.ndim == 1:
        return reshape(x, (1, *x.shape.dims)), reshape(cast(target, I64), (1,))
    wanted = (x.shape.dims[0], *x.shape.dims[2:])
    if target.shape.dims != wanted:
        raise ValueError(f"Expected target size {list(wanted)} for input {x.shape}, got {target.shape}")
    return x, cast(target, I64)


def _picked(target: Expr, weight: Expr | None, ignore_index: int, like: Expr) -> tuple[Expr, Expr]:
    """A safe class index for each target, and each target's weight (0 where ignored)."""
    ignored = ops.eq(target, num(ignore_index, target))
    safe = ops.where(ignored, num(0, target), target)
    if weight is None:
        w = filled(1, target.shape.dims, like.shape.dtype)
    else:
        flat = ops.take(cast(weight, like.shape.dtype), reshape(safe, (safe.shape.size,)), axis=0, mode="clip")
        w = reshape(flat, target.shape.dims)
    return safe, ops.where(ignored, num(0, w), w)


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(self: Expr, target: Expr, weight: Expr | None, reduction: int, ignore_index: int) -> tuple[Expr, Expr]:
    kind = self.shape.dtype
    x, t = _rows(cast(self, math_dtype(kind)), target)
    safe, w = _picked(t, weight, ignore_index, x)
    found = ops.squeeze(ops.take_along_axis(x, ops.expand_dims(safe, axes=(1,)), axis=1), axes=(1,))
    loss = ops.where(ops.eq(w, num(0, w)), num(0, w), ops.neg(ops.mul(found, w)))
    if reduction == NONE:
        return cast(reshape(loss, target.shape.dims), kind), filled(0, (), kind)
    over = tuple(range(loss.shape.ndim))
    total, mass = ops.sum(loss, axes=over, keepdims=False), ops.sum(w, axes=over, keepdims=False)
    return cast(ops.div(total, mass) if reduction == MEAN else total, kind), cast(mass, kind)


@aten("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Expr, self: Expr, target: Expr, weight: Expr | None, reduction: int, ignore_index: int, total_weight: Expr
) -> Expr:
    kind = self.shape.dtype
    x, t = _rows(cast(self, math_dtype(kind)), target)
    safe, w = _picked(t, weight, ignore_index, x)
    g = cast(grad_output, x.shape.dtype)
    if reduction == NONE:
        g = reshape(g, t.shape.dims)
    elif reduction == MEAN:
        g = ops.div(g, cast(total_weight, x.shape.dtype))
    slope = ops.where(ops.eq(w, num(0, w)), num(0, w), ops.neg(ops.mul(w, g)))
    chosen = ops.one_hot(safe, depth=x.shape.dims[1], dtype=x.shape.dtype)
    moved = ops.transpose(chosen, perm=(0, chosen.shape.ndim - 1, *range(1, chosen.shape.ndim - 1)))
    return cast(reshape(ops.mul(moved, ops.expand_dims(slope, axes=(1,))), self.shape.dims), kind)
