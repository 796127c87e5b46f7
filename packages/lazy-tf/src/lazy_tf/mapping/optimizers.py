"""The optimisers' steps that TensorFlow has operations for: `ResourceApply*`.

Source: `gen_training_ops` and the functors in TensorFlow's `training_ops.cc`.  May import `rules`, `variables` and the core.
"""

from __future__ import annotations

from lazy_core import ops
from lazy_core.ir import Expr

from .rules import like
from .variables import update


@update("ResourceApplyGradientDescent")
def _gradient_descent(var: Expr, alpha: Expr, delta: Expr) -> Expr:
    return ops.sub(var, ops.mul(alpha, delta))


@update("ResourceApplyMomentum", "use_nesterov")
def _momentum(var: Expr, accum: Expr, lr: Expr, grad: Expr, momentum: Expr, *, use_nesterov: bool) -> tuple[Expr, Expr]:
    accum = ops.add(ops.mul(accum, momentum), grad)
    step = ops.mul(accum, lr)
    if use_nesterov:
        step = ops.add(ops.mul(grad, lr), ops.mul(step, momentum))
    return ops.sub(var, step), accum


@update("ResourceApplyKerasMomentum", "use_nesterov")
def _keras_momentum(var: Expr, accum: Expr, lr: Expr, grad: Expr, momentum: Expr, *, use_nesterov: bool) -> tuple[Expr, Expr]:
    accum = ops.sub(ops.mul(accum, momentum), ops.mul(grad, lr))
    step = ops.sub(ops.mul(accum, momentum), ops.mul(grad, lr)) if use_nesterov else accum
    return ops.add(var, step), accum


@update("ResourceApplyAdam", "use_nesterov")
def _adam(
    var: Expr,
    m: Expr,
    v: Expr,
    beta1_power: Expr,
    beta2_power: Expr,
    lr: Expr,
    beta1: Expr,
    beta2: Expr,
    epsilon: Expr,
    grad: Expr,
    *,
    use_nesterov: bool,
) -> tuple[Expr, Expr, Expr]:
    one = like(var, 1)
    alpha = ops.div(ops.mul(lr, ops.sqrt(ops.sub(one, beta2_power))), ops.sub(one, beta1_power))
    m = ops.add(m, ops.mul(ops.sub(grad, m), ops.sub(one, beta1)))
    v = ops.add(v, ops.mul(ops.sub(ops.square(grad), v), ops.sub(one, beta2)))
    direction = ops.add(ops.mul(grad, ops.sub(one, beta1)), ops.mul(beta1, m)) if use_nesterov else m
    return ops.sub(var, ops.div(ops.mul(direction, alpha), ops.add(ops.sqrt(v), epsilon))), m, v


@update("ResourceApplyRMSProp")
def _rms_prop(var: Expr, ms: Expr, mom: Expr, lr: Expr, rho: Expr, momentum: Expr, epsilon: Expr, grad: Expr) -> tuple[Expr, Expr, Expr]:
    ms = ops.add(ms, ops.mul(ops.sub(ops.square(grad), ms), ops.sub(like(var, 1), rho)))
    mom = ops.add(ops.mul(mom, momentum), ops.div(ops.mul(grad, lr), ops.sqrt(ops.add(ms, epsilon))))
    return ops.sub(var, mom), ms, mom


@update("ResourceApplyAdagradV2", "update_slots")
def _adagrad(var: Expr, accum: Expr, lr: Expr, epsilon: Expr, grad: Expr, *, update_slots: bool) -> tuple[Expr, Expr]:
    if update_slots:
        accum = ops.add(accum, ops.square(grad))
    return ops.sub(var, ops.div(ops.mul(grad, lr), ops.add(ops.sqrt(accum), epsilon))), accum


@update("ResourceApplyAdagrad", "update_slots")
def _adagrad_v1(var: Expr, accum: Expr, lr: Expr, grad: Expr, *, update_slots: bool) -> tuple[Expr, Expr]:
    if update_slots:
        accum = ops.add(accum, ops.square(grad))
    return ops.sub(var, ops.mul(ops.mul(grad, lr), ops.rsqrt(accum))), accum


@update("ResourceApplyAdadelta")
def _adadelta(var: Expr, accum: Expr, accum_update: Expr, lr: Expr, rho: Expr, epsilon: Expr, grad: Expr) -> tuple[Expr, Expr, Expr]:
    rest = ops.sub(like(var, 1), rho)
    accum = ops.add(ops.mul(accum, rho), ops.mul(ops.square(grad), rest))
    step = ops.mul(ops.mul(ops.sqrt(ops.add(accum_update, epsilon)), ops.rsqrt(ops.add(accum, epsilon))), grad)
    accum_update = ops.add(ops.mul(accum_update, rho), ops.mul(ops.square(step), rest))
    return ops.sub(var, ops.mul(step, lr)), accum, accum_update


def _decayed(average: Expr, value: Expr, decay: Expr) -> Expr:
    return ops.add(average, ops.mul(ops.sub(value, average), ops.sub(like(average, 1), decay)))


@update("ResourceApplyAdaMax")
def _adamax(
    var: Expr, m: Expr, v: Expr, beta1_power: Expr, lr: Expr, beta1: Expr, beta2: Expr, epsilon: Expr, grad: Expr
) -> tuple[Expr, Expr, Expr]:
    m = _decayed(m, grad, beta1)
    v = ops.maximum(ops.mul(beta2, v), ops.abs(grad))
    rate = ops.div(lr, ops.sub(like(var, 1), beta1_power))
    return ops.sub(var, ops.mul(rate, ops.div(m, ops.add(v, epsilon)))), m, v


@update("ResourceApplyAdamWithAmsgrad")
def _amsgrad(
    var: Expr,
    m: Expr,
    v: Expr,
    vhat: Expr,
    beta1_power: Expr,
    beta2_power: Expr,
    lr: Expr,
    beta1: Expr,
    beta2: Expr,
    epsilon: Expr,
    grad: Expr,
) -> tuple[Expr, Expr, Expr, Expr]:
    one = like(var, 1)
    alpha = ops.div(ops.mul(lr, ops.sqrt(ops.sub(one, beta2_power))), ops.sub(one, beta1_power))
    m, v = _decayed(m, grad, beta1), _decayed(v, ops.square(grad), beta2)
    vhat = ops.maximum(vhat, v)
    return ops.sub(var, ops.div(ops.mul(m, alpha), ops.add(ops.sqrt(vhat), epsilon))), m, v, vhat


def _agreement(m: Expr, grad: Expr) -> Expr:
    return ops.mul(ops.sign(grad), ops.sign(m))


@update("ResourceApplyAddSign")
def _add_sign(var: Expr, m: Expr, lr: Expr, alpha: Expr, sign_decay: Expr, beta: Expr, grad: Expr) -> tuple[Expr, Expr]:
    m = ops.add(ops.mul(m, beta), ops.mul(grad, ops.sub(like(var, 1), beta)))
    factor = ops.add(alpha, ops.mul(sign_decay, _agreement(m, grad)))
    return ops.sub(var, ops.mul(ops.mul(lr, factor), grad)), m


@update("ResourceApplyPowerSign")
def _power_sign(var: Expr, m: Expr, lr: Expr, logbase: Expr, sign_decay: Expr, beta: Expr, grad: Expr) -> tuple[Expr, Expr]:
    m = ops.add(ops.mul(m, beta), ops.mul(grad, ops.sub(like(var, 1), beta)))
    factor = ops.exp(ops.mul(ops.mul(logbase, sign_decay), _agreement(m, grad)))
    return ops.sub(var, ops.mul(ops.mul(lr, factor), grad)), m


@update("ResourceApplyCenteredRMSProp")
def _centered_rms_prop(
    var: Expr, mg: Expr, ms: Expr, mom: Expr, lr: Expr, rho: Expr, momentum: Expr, epsilon: Expr, grad: Expr
) -> tuple[Expr, Expr, Expr, Expr]:
    ms, mg = _decayed(ms, ops.square(grad), rho), _decayed(mg, grad, rho)
    spread = ops.add(ops.sub(ms, ops.square(mg)), epsilon)
    mom = ops.add(ops.mul(mom, momentum), ops.mul(ops.mul(grad, lr), ops.rsqrt(spread)))
    return ops.sub(var, mom), mg, ms, mom


def _shrunk(x: Expr, threshold: Expr) -> Expr:
    """An L1 penalty's proximal step: towards zero by the threshold, and no further."""
    return ops.mul(ops.sign(x), ops.maximum(ops.sub(ops.abs(x), threshold), like(x, 0)))


@update("ResourceApplyProximalGradientDescent")
def _proximal_gradient_descent(var: Expr, alpha: Expr, l1: Expr, l2: Expr, delta: Expr) -> Expr:
    moved = ops.sub(var, ops.mul(delta, alpha))
    return ops.div(_shrunk(moved, ops.mul(alpha, l1)), ops.add(like(var, 1), ops.mul(l2, alpha)))


@update("ResourceApplyProximalAdagrad")
def _proximal_adagrad(var: Expr, accum: Expr, lr: Expr, l1: Expr, l2: Expr, grad: Expr) -> tuple[Expr, Expr]:
    accum = ops.add(accum, ops.square(grad))
    rate = ops.mul(lr, ops.rsqrt(accum))
    moved = ops.sub(var, ops.mul(grad, rate))
    return ops.div(_shrunk(moved, ops.mul(rate, l1)), ops.add(like(var, 1), ops.mul(l2, rate))), accum


@update("ResourceApplyAdagradDA")
def _adagrad_da(
    var: Expr, total: Expr, squares: Expr, grad: Expr, lr: Expr, l1: Expr, l2: Expr, global_step: Expr
) -> tuple[Expr, Expr, Expr]:
    total, squares = ops.add(total, grad), ops.add(squares, ops.square(grad))
    step = ops.convert(global_step, dtype=var.shape.dtype)
    spread = ops.add(ops.mul(ops.mul(l2, step), lr), ops.sqrt(squares))
    return ops.neg(ops.div(ops.mul(lr, _shrunk(total, ops.mul(l1, step))), spread)), total, squares


def _ftrl_step(
    var: Expr, accum: Expr, linear: Expr, grad: Expr, lr: Expr, l1: Expr, l2: Expr, shrunk: Expr, power: Expr, scaled: bool
) -> tuple[Expr, Expr, Expr]:
    after = ops.add(accum, ops.square(grad))
    exponent = ops.neg(power)
    new, old = ops.pow(after, exponent), ops.pow(accum, exponent)
    two = like(var, 2)
    if scaled:
        linear = ops.add(linear, ops.sub(ops.mul(shrunk, lr), ops.mul(ops.sub(new, old), var)))
        threshold, curvature = ops.mul(l1, lr), ops.add(new, ops.mul(ops.mul(two, l2), lr))
    else:
        linear = ops.add(linear, ops.sub(shrunk, ops.mul(ops.div(ops.sub(new, old), lr), var)))
        threshold, curvature = l1, ops.add(ops.div(new, lr), ops.mul(two, l2))
    return ops.neg(ops.div(_shrunk(linear, threshold), curvature)), after, linear


@update("ResourceApplyFtrl", "multiply_linear_by_lr")
def _ftrl(
    var: Expr, accum: Expr, linear: Expr, grad: Expr, lr: Expr, l1: Expr, l2: Expr, lr_power: Expr, *, multiply_linear_by_lr: bool
) -> tuple[Expr, Expr, Expr]:
    return _ftrl_step(var, accum, linear, grad, lr, l1, l2, grad, lr_power, multiply_linear_by_lr)


@update("ResourceApplyFtrlV2", "multiply_linear_by_lr")
def _ftrl_v2(
    var: Expr,
    accum: Expr,
    linear: Expr,
    grad: Expr,
    lr: Expr,
    l1: Expr,
    l2: Expr,
    l2_shrinkage: Expr,
    lr_power: Expr,
    *,
    multiply_linear_by_lr: bool,
) -> tuple[Expr, Expr, Expr]:
    shrunk = ops.add(grad, ops.mul(ops.mul(like(var, 2), l2_shrinkage), var))
    return _ftrl_step(var, accum, linear, grad, lr, l1, l2, shrunk, lr_power, multiply_linear_by_lr)
