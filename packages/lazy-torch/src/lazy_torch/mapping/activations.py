"""Activation functions and their gradients, softmax and log-softmax.

Owns: what autograd calls forward and backward for nn's activations.  Half floats are computed in f32 and rounded once, as CPU torch does.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import DType, Scalar, axis, cast, expand, filled, float_type, in_math_dtype, math_dtype, num, operand, promote, result_type
from .shapes import cut


def _wide(*xs: Expr) -> list[Expr]:
    kind = math_dtype(result_type(*xs))
    return [cast(x, kind) for x in xs]


def _like(x: Expr) -> DType:
    return x.shape.dtype


@aten("relu")
def relu(self: Expr) -> Expr:
    return ops.relu(self)


@aten("sigmoid_backward")
def sigmoid_backward(grad_output: Expr, output: Expr) -> Expr:
    g, y = _wide(grad_output, output)
    y_bar = ops.conj(y) if y.shape.dtype.kind == "c" else y
    return cast(ops.mul(g, ops.mul(ops.sub(num(1, y), y_bar), y_bar)), result_type(grad_output, output))


@aten("tanh_backward")
def tanh_backward(grad_output: Expr, output: Expr) -> Expr:
    g, y = _wide(grad_output, output)
    y_bar = ops.conj(y) if y.shape.dtype.kind == "c" else y
    return cast(ops.mul(g, ops.sub(num(1, y), ops.mul(y_bar, y_bar))), result_type(grad_output, output))


@aten("threshold")
def threshold(self: Expr, threshold: Scalar, value: Scalar) -> Expr:
    kind = _like(self)
    return ops.where(ops.le(self, operand(threshold, kind)), operand(value, kind), self)


@aten("threshold_backward")
def threshold_backward(grad_output: Expr, self: Expr, threshold: Scalar) -> Expr:
    (g, x), kind = promote(grad_output, self)
    return ops.where(ops.le(x, operand(threshold, kind)), num(0, g), g)


@aten("hardtanh")
def hardtanh(self: Expr, min_val: Scalar = -1, max_val: Scalar = 1) -> Expr:
    kind = _like(self)
    return ops.minimum(ops.maximum(self, operand(min_val, kind)), operand(max_val, kind))


@aten("hardtanh_backward")
def hardtanh_backward(grad_output: Expr, self: Expr, min_val: Scalar, max_val: Scalar) -> Expr:
    kind = _like(self)
    outside = ops.logical_or(ops.le(self, operand(min_val, kind)), ops.ge(self, operand(max_val, kind)))
    return ops.where(outside, num(0, grad_output), grad_output)


@aten("leaky_relu")
def leaky_relu(self: Expr, negative_slope: Scalar = 0.01) -> Expr:
    (x,) = _wide(self)
    return cast(ops.where(ops.gt(x, num(0, x)), x, ops.mul(x, operand(negative_slope, _like(x)))), _like(self))


@aten("leaky_relu_backward")
def leaky_relu_backward(grad_output: Expr, self: Expr, negative_slope: Scalar, self_is_result: bool) -> Expr:
    g, x = _wide(grad_output, self)
    return cast(ops.where(ops.gt(x, num(0, x)), g, ops.mul(g, operand(negative_slope, _like(g)))), _like(grad_output))


@aten("_prelu_kernel")
def prelu(self: Expr, weight: Expr) -> Expr:
    return ops.where(ops.gt(self, num(0, self)), self, ops.mul(self, weight))


@aten("_prelu_kernel_backward")
def prelu_backward(grad_output: Expr, self: Expr, weight: Expr) -> tuple[Expr, Expr]:
    positive = ops.gt(self, num(0, self))
    return ops.where(positive, grad_output, ops.mul(weight, grad_output)), ops.where(positive, num(0, self), ops.mul(self, grad_output))


@aten("rrelu_with_noise_backward")
def rrelu_backward(grad_output: Expr, self: Expr, noise: Expr, lower: Scalar, upper: Scalar, training: bool, self_is_result: bool) -> Expr:
    if training:
        return ops.mul(grad_output, noise)
    kind = _like(grad_output)
    slope = ops.mul(ops.add(operand(lower, kind), operand(upper, kind)), operand(0.5, kind))
    return leaky_relu_backward(grad_output, self, slope, self_is_result)


@aten("elu")
def elu(self: Expr, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Expr:
    (x,) = _wide(self)
    a, s, i = (operand(v, _like(x)) for v in (alpha, scale, input_scale))
    low = ops.mul(ops.mul(ops.expm1(ops.mul(ops.minimum(x, num(0, x)), i)), a), s)
    return cast(ops.where(ops.gt(x, num(0, x)), ops.mul(x, s), ops.where(ops.isnan(x), x, low)), _like(self))


@aten("elu_backward")
def elu_backward(grad_output: Expr, alpha: Scalar, scale: Scalar, input_scale: Scalar, is_result: bool, self_or_result: Expr) -> Expr:
    g, x = _wide(grad_output, self_or_result)
    a, s, i = (operand(v, _like(x)) for v in (alpha, scale, input_scale))
    negative = ops.le(x, num(0, x))
    if is_result:
        low = ops.mul(ops.mul(g, i), ops.add(x, ops.mul(a, s)))
    else:
        low = ops.mul(ops.mul(ops.mul(ops.mul(g, i), a), s), ops.exp(ops.mul(ops.minimum(x, num(0, x)), i)))
    return cast(ops.where(negative, low, ops.mul(g, s)), _like(grad_output))


@aten("celu")
def celu(self: Expr, alpha: Scalar = 1.0) -> Expr:
    kind = math_dtype(_like(self))
    return elu(self, alpha, 1.0, ops.reciprocal(operand(alpha, kind)))


@aten("selu")
def selu(self: Expr) -> Expr:
    return elu(self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)


# ------------------------------------------------------------------ smooth ones


@aten("gelu")
def gelu(self: Expr, *, approximate: str = "none") -> Expr:
    return in_math_dtype(lambda x: ops.gelu(x, approximate=approximate == "tanh"))(self)


@aten("gelu_backward")
def gelu_backward(grad_output: Expr, self: Expr, *, approximate: str = "none") -> Expr:
    g, x = _wide(grad_output, self)
    half = num(0.5, x)
    if approximate == "tanh":
        beta, kappa = num(math.sqrt(2 / math.pi), x), num(0.044715, x)
        square = ops.mul(x, x)
        inner = ops.mul(beta, ops.add(x, ops.mul(kappa, ops.mul(square, x))))
        t = ops.tanh(inner)
        slope = ops.mul(ops.sub(num(1, x), ops.mul(t, t)), ops.mul(beta, ops.add(num(1, x), ops.mul(ops.mul(num(3.0, x), kappa), square))))
        d = ops.add(ops.mul(half, ops.add(num(1, x), t)), ops.mul(ops.mul(half, x), slope))
    else:
        cdf = ops.mul(half, ops.add(num(1, x), ops.erf(ops.mul(x, num(math.sqrt(0.5), x)))))
        pdf = ops.mul(ops.exp(ops.mul(num(-0.5, x), ops.mul(x, x))), num(1 / math.sqrt(2 * math.pi), x))
        d = ops.add(cdf, ops.mul(x, pdf))
    return cast(ops.mul(g, d), _like(grad_output))


@aten("silu")
def silu(self: Expr) -> Expr:
    return in_math_dtype(lambda x: ops.mul(x, ops.sigmoid(x)))(self)


@aten("silu_backward")
def silu_backward(grad_output: Expr, self: Expr) -> Expr:
    g, x = _wide(grad_output, self)
    s = ops.sigmoid(x)
    return cast(ops.mul(ops.mul(g, s), ops.add(num(1, x), ops.mul(x, ops.sub(num(1, x), s)))), _like(grad_output))


def _softplus(x: Expr) -> Expr:
    return ops.logaddexp(x, num(0, x))


@aten("mish")
def mish(self: Expr) -> Expr:
    return in_math_dtype(lambda x: ops.mul(x, ops.tanh(_softplus(x))))(self)


@aten("mish_backward")
def mish_backward(grad_output: Expr, self: Expr) -> Expr:
    g, x = _wide(grad_output, self)
    t, s = ops.tanh(_softplus(x)), ops.sigmoid(x)
    d = ops.add(t, ops.mul(ops.mul(x, s), ops.sub(num(1, x), ops.mul(t, t))))
    return cast(ops.mul(g, d), _like(grad_output))


@aten("softplus")
def softplus(self: Expr, beta: Scalar = 1, threshold: Scalar = 20) -> Expr:
    (x,) = _wide(self)
    b, t = operand(beta, _like(x)), operand(threshold, _like(x))
    z = ops.mul(x, b)
    body = ops.div(ops.log1p(ops.exp(ops.minimum(z, t))), b)
    return cast(ops.where(ops.gt(z, t), x, body), _like(self))


@aten("softplus_backward")
def softplus_backward(grad_output: Expr, self: Expr, beta: Scalar, threshold: Scalar) -> Expr:
    g, x = _wide(grad_output, self)
    z = ops.mul(x, operand(beta, _like(x)))
    return cast(ops.where(ops.gt(z, operand(threshold, _like(x))), g, ops.mul(g, ops.sigmoid(z))), _like(grad_output))


@aten("log_sigmoid_forward")
def log_sigmoid(self: Expr) -> tuple[Expr, Expr]:
    """log(sigmoid(x)), and exp(-|x|) in the buffer as CPU torch does."""
    (x,) = _wide(self)
    return cast(ops.neg(_softplus(ops.neg(x))), _like(self)), cast(ops.exp(ops.neg(ops.abs(x))), _like(self))


@aten("log_sigmoid_backward")
def log_sigmoid_backward(grad_output: Expr, self: Expr, buffer: Expr) -> Expr:
    g, x = _wide(grad_output, self)
    return cast(ops.mul(g, ops.sigmoid(ops.neg(x))), _like(grad_output))


@aten("hardsigmoid")
def hardsigmoid(self: Expr) -> Expr:
    def body(x: Expr) -> Expr:
        return ops.div(ops.minimum(ops.maximum(ops.add(x, num(3, x)), num(0, x)), num(6, x)), num(6, x))

    return in_math_dtype(body)(self)


@aten("hardsigmoid_backward")
def hardsigmoid_backward(grad_output: Expr, self: Expr) -> Expr:
    g, x = _wide(grad_output, self)
    inside = ops.logical_and(ops.gt(x, num(-3, x)), ops.lt(x, num(3, x)))
    return cast(ops.where(inside, ops.mul(g, num(1 / 6, g)), num(0, g)), _like(grad_output))


@aten("hardswish")
def hardswish(self: Expr) -> Expr:
    def body(x: Expr) -> Expr:
        return ops.div(ops.mul(x, ops.minimum(ops.maximum(ops.add(x, num(3, x)), num(0, x)), num(6, x))), num(6, x))

    return in_math_dtype(body)(self)


@aten("hardswish_backward")
def hardswish_backward(grad_output: Expr, self: Expr) -> Expr:
    g, x = _wide(grad_output, self)
    middle = ops.mul(g, ops.add(ops.div(x, num(3, x)), num(0.5, x)))
    inner = ops.where(ops.le(x, num(-3, x)), num(0, g), ops.where(ops.lt(x, num(3, x)), middle, g))
    return cast(inner, _like(grad_output))


@aten("hardshrink")
def hardshrink(self: Expr, lambd: Scalar = 0.5) -> Expr:
    edge = operand(lambd, _like(self))
    inside = ops.logical_and(ops.ge(self, ops.neg(edge)), ops.le(self, edge))
    return ops.where(inside, num(0, self), self)


@aten("softshrink")
def softshrink(self: Expr, lambd: Scalar = 0.5) -> Expr:
    edge = operand(lambd, _like(self))
    low = ops.where(ops.lt(self, ops.neg(edge)), ops.add(self, edge), ops.mul(self, num(0, self)))
    return ops.where(ops.gt(self, edge), ops.sub(self, edge), low)


@aten("hardshrink_backward", "softshrink_backward")
def shrink_backward(grad_output: Expr, self: Expr, lambd: Scalar) -> Expr:
    edge = operand(lambd, _like(self))
    inside = ops.logical_and(ops.ge(self, ops.neg(edge)), ops.le(self, edge))
    return ops.where(inside, num(0, grad_output), grad_output)


@aten("glu")
def glu(self: Expr, dim: int = -1) -> Expr:
    a = axis(dim, self.shape.ndim)
    n = self.shape.dims[a] // 2
    if self.shape.ndim == 0 or self.shape.dims[a] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} of {self.shape} is not")
    return in_math_dtype(lambda x: ops.mul(cut(x, a, 0, n), ops.sigmoid(cut(x, a, n, 2 * n))))(self)


@aten("glu_backward")
def glu_backward(grad_output: Expr, self: Expr, dim: int) -> Expr:
    a = axis(dim, self.shape.ndim)
    n = self.shape.dims[a] // 2
    g, x = _wide(grad_output, self)
    left, gate = cut(x, a, 0, n), ops.sigmoid(cut(x, a, n, 2 * n))
    high = ops.mul(ops.mul(ops.mul(ops.sub(num(1, gate), gate), gate), g), left)
    return cast(ops.concatenate(ops.mul(gate, g), high, axis=a), _like(self))


# ------------------------------------------------------------------ softmax


def _soft(x: Expr, dim: int, core: str, out: DType) -> Expr:
    if x.shape.ndim == 0:
        return filled(1 if core == "softmax" else 0, (), out)
    y = cast(x, math_dtype(_like(x)))
    return cast(getattr(ops, core)(y, axis=axis(dim, x.shape.ndim)), out)


@aten("_softmax")
def softmax(self: Expr, dim: int, half_to_float: bool) -> Expr:
    return _soft(self, dim, "softmax", math_dtype(_like(self)) if half_to_float else _like(self))


@aten("_log_softmax")
def log_softmax(self: Expr, dim: int, half_to_float: bool) -> Expr:
    return _soft(self, dim, "log_softmax", math_dtype(_like(self)) if half_to_float else _like(self))


@aten("_safe_softmax")
def safe_softmax(self: Expr, dim: int, dtype: DType | None = None) -> Expr:
    kind = dtype or float_type(_like(self))
    x = cast(self, kind)
    if x.shape.ndim == 0:
        return filled(1, (), kind)
    a = axis(dim, x.shape.ndim)
    dead = ops.all(ops.eq(x, num(-math.inf, x)), axes=(a,), keepdims=True)
    return ops.where(expand(dead, x.shape.dims), num(0, x), _soft(x, a, "softmax", kind))


@aten("_softmax_backward_data")
def softmax_backward(grad_output: Expr, output: Expr, dim: int, input_dtype: DType) -> Expr:
    g, y = _wide(grad_output, output)
    weighted = ops.mul(g, y)
    if y.shape.ndim == 0:
        return filled(0, (), input_dtype)
    total = ops.sum(weighted, axes=(axis(dim, y.shape.ndim),), keepdims=True)
    return cast(ops.sub(weighted, ops.mul(y, total)), input_dtype)


@aten("_log_softmax_backward_data")
def log_softmax_backward(grad_output: Expr, output: Expr, dim: int, input_dtype: DType) -> Expr:
    g, y = _wide(grad_output, output)
    if y.shape.ndim == 0:
        return filled(0, (), input_dtype)
    total = ops.sum(g, axes=(axis(dim, y.shape.ndim),), keepdims=True)
    return cast(ops.sub(g, ops.mul(ops.exp(y), total)), input_dtype)
