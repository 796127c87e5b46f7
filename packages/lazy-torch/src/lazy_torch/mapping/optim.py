"""Fused optimizer steps: `_fused_adam_` and relatives, written from the update rules of the papers and torch.optim's documentation.

Owns: adam, adamw, sgd, adagrad. Each returns the new values of the arguments that it writes to, in schema order; a step whose gradients
were found to hold infinities changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .compare import truth
from .promotion import Scalar, cast, math_dtype, num, operand, reshape

Tensors = Sequence[Expr]


class _Step:
    """What all fused steps share: unscaling, skipping, and the new lists."""

    def __init__(self, grad_scale: Expr | None, found_inf: Expr | None) -> None:
        self.scale = grad_scale
        self.skip = None if found_inf is None else reshape(truth(found_inf), ())

    def gradient(self, g: Expr) -> Expr:
        x = cast(g, math_dtype(g.shape.dtype))
        return x if self.scale is None else ops.div(x, reshape(cast(self.scale, x.shape.dtype), ()))

    def settle(self, new: Expr, old: Expr) -> Expr:
        value = cast(new, old.shape.dtype)
        return value if self.skip is None else ops.where(self.skip, old, value)

    def gradients(self, grads: Tensors) -> list[Expr] | None:
        return None if self.scale is None else [self.settle(self.gradient(g), g) for g in grads]


def _adam(decoupled: bool) -> object:
    def build(
        self: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        max_exp_avg_sqs: Tensors,
        state_steps: Tensors,
        *,
        lr: Scalar,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Expr | None = None,
        found_inf: Expr | None = None,
    ) -> tuple[list[Expr], list[Expr] | None, list[Expr], list[Expr], list[Expr]]:
        step = _Step(grad_scale, found_inf)
        params, firsts, seconds, largest = [], [], [], []
        for i, p in enumerate(self):
            g = step.gradient(grads[i])
            wide = g.shape.dtype
            x, m, v = cast(p, wide), cast(exp_avgs[i], wide), cast(exp_avg_sqs[i], wide)
            rate = reshape(operand(lr, wide), ())
            count = cast(state_steps[i], wide)
            if maximize:
                g = ops.neg(g)
            if weight_decay != 0:
                if decoupled:
                    x = ops.sub(x, ops.mul(ops.mul(rate, num(weight_decay, x)), x))
                else:
                    g = ops.add(g, ops.mul(x, num(weight_decay, x)))
            m = ops.add(m, ops.mul(ops.sub(g, m), num(1 - beta1, m)))
            v = ops.add(ops.mul(v, num(beta2, v)), ops.mul(ops.mul(g, g), num(1 - beta2, v)))
            fix1 = ops.sub(num(1, x), ops.pow(num(beta1, x), count))
            fix2 = ops.sqrt(ops.sub(num(1, x), ops.pow(num(beta2, x), count)))
            spread = v
            if amsgrad:
                spread = ops.maximum(cast(max_exp_avg_sqs[i], wide), v)
                largest.append(step.settle(spread, max_exp_avg_sqs[i]))
            bottom = ops.add(ops.div(ops.sqrt(spread), fix2), num(eps, x))
            x = ops.sub(x, ops.div(ops.mul(ops.div(rate, fix1), m), bottom))
            params.append(step.settle(x, p))
            firsts.append(step.settle(m, exp_avgs[i]))
            seconds.append(step.settle(v, exp_avg_sqs[i]))
        return params, step.gradients(grads), firsts, seconds, largest

    return build


aten("_fused_adam_", "_fused_adam_.tensor_lr", lift=("lr",))(_adam(False))  # type: ignore[type-var]
aten("_fused_adamw_", "_fused_adamw_.tensor_lr", lift=("lr",))(_adam(True))  # type: ignore[type-var]


@aten("_fused_sgd_", "_fused_sgd_.tensor_lr", lift=("lr",))
def fused_sgd(
    self: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Scalar,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Expr | None = None,
    found_inf: Expr | None = None,
) -> tuple[list[Expr], list[Expr] | None, list[Expr]]:
    step = _Step(grad_scale, found_inf)
    params, buffers = [], []
    for i, p in enumerate(self):
        g = step.gradient(grads[i])
        x = cast(p, g.shape.dtype)
        if maximize:
            g = ops.neg(g)
        if weight_decay != 0:
            g = ops.add(g, ops.mul(x, num(weight_decay, x)))
        if momentum != 0:
            old = momentum_buffer_list[i]
            moved = ops.add(ops.mul(cast(old, g.shape.dtype), num(momentum, g)), ops.mul(g, num(1 - dampening, g)))
            buffer = g if is_first_step else moved
            buffers.append(step.settle(buffer, old))
            g = ops.add(g, ops.mul(buffer, num(momentum, g))) if nesterov else buffer
        x = ops.sub(x, ops.mul(reshape(operand(lr, g.shape.dtype), ()), g))
        params.append(step.settle(x, p))
    return params, step.gradients(grads), buffers


@aten("_fused_adagrad_", lift=("lr",))
def fused_adagrad(
    self: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Scalar,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Expr | None = None,
    found_inf: Expr | None = None,
) -> tuple[list[Expr], list[Expr] | None, list[Expr], None]:
    step = _Step(grad_scale, found_inf)
    params, sums = [], []
    for i, p in enumerate(self):
        g = step.gradient(grads[i])
        x = cast(p, g.shape.dtype)
        if maximize:
            g = ops.neg(g)
        if weight_decay != 0:
            g = ops.add(g, ops.mul(x, num(weight_decay, x)))
        count = ops.sub(cast(state_steps[i], g.shape.dtype), num(1, g))
        rate = ops.div(reshape(operand(lr, g.shape.dtype), ()), ops.add(num(1, g), ops.mul(count, num(lr_decay, g))))
        total = ops.add(cast(state_sums[i], g.shape.dtype), ops.mul(g, g))
        x = ops.sub(x, ops.div(ops.mul(rate, g), ops.add(ops.sqrt(total), num(eps, g))))
        params.append(step.settle(x, p))
        sums.append(step.settle(total, state_sums[i]))
    return params, step.gradients(grads), sums, None


@aten("_fused_adagrad_.tensor_lr")
def fused_adagrad_tensor_lr(*args: Tensors, **kw: Any) -> tuple[list[Expr], list[Expr] | None, list[Expr]]:
    return fused_adagrad(*args, **kw)[:3]
