"""Elementwise mathematics, selection, casts and matrix products.

Source: `gen_math_ops` and `gen_bitwise_ops`; gradients of activations follow the CPU kernels.  May import `rules` and the core.
"""

from __future__ import annotations

import numpy as np

from lazy_core import ir, ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr

from .rules import direct, like, lower

direct(ops.abs, "Abs", "ComplexAbs")
direct(ops.acos, "Acos")
direct(ops.acosh, "Acosh")
direct(ops.asin, "Asin")
direct(ops.asinh, "Asinh")
direct(ops.atan, "Atan")
direct(ops.atanh, "Atanh")
direct(ops.bessel_i0e, "BesselI0e")
direct(ops.bessel_i1e, "BesselI1e")
direct(ops.bessel_j0, "BesselJ0")
direct(ops.bessel_j1, "BesselJ1")
direct(ops.bessel_k0e, "BesselK0e")
direct(ops.bessel_k1e, "BesselK1e")
direct(ops.bessel_y0, "BesselY0")
direct(ops.bessel_y1, "BesselY1")
direct(ops.bitwise_not, "Invert")
direct(ops.ceil, "Ceil")
direct(ops.conj, "Conj")
direct(ops.cos, "Cos")
direct(ops.cosh, "Cosh")
direct(ops.digamma, "Digamma")
direct(ops.erf, "Erf")
direct(ops.erfc, "Erfc")
direct(ops.erfinv, "Erfinv")
direct(ops.exp, "Exp")
direct(ops.expm1, "Expm1")
direct(ops.floor, "Floor")
direct(ops.imag, "Imag")
direct(ops.isfinite, "IsFinite")
direct(ops.isinf, "IsInf")
direct(ops.isnan, "IsNan")
direct(ops.lgamma, "Lgamma")
direct(ops.log, "Log")
direct(ops.log1p, "Log1p")
direct(ops.logical_not, "LogicalNot")
direct(ops.ndtri, "Ndtri")
direct(ops.neg, "Neg")
direct(ops.real, "Real")
direct(ops.relu, "Relu")
direct(ops.reciprocal, "Reciprocal", "Inv")
direct(ops.rsqrt, "Rsqrt")
direct(ops.sigmoid, "Sigmoid")
direct(ops.sign, "Sign")
direct(ops.sin, "Sin")
direct(ops.sinh, "Sinh")
direct(ops.sqrt, "Sqrt")
direct(ops.square, "Square")
direct(ops.tan, "Tan")
direct(ops.tanh, "Tanh")

direct(ops.add, "AddV2", "Add")
direct(ops.atan2, "Atan2")
direct(ops.bitwise_and, "BitwiseAnd")
direct(ops.bitwise_or, "BitwiseOr")
direct(ops.bitwise_xor, "BitwiseXor")
direct(ops.div, "RealDiv")
direct(ops.fmod, "TruncateMod", "Mod")
direct(ops.ge, "GreaterEqual")
direct(ops.gt, "Greater")
direct(ops.le, "LessEqual")
direct(ops.logical_and, "LogicalAnd")
direct(ops.logical_or, "LogicalOr")
direct(ops.lt, "Less")
direct(ops.maximum, "Maximum")
direct(ops.minimum, "Minimum")
direct(ops.mul, "Mul")
direct(ops.nextafter, "NextAfter")
direct(ops.pow, "Pow")
direct(ops.remainder, "FloorMod")
direct(ops.sub, "Sub")
direct(ops.trunc_div, "TruncateDiv")

direct(ops.where, "SelectV2")


@lower("Round", "Rint")
def _round(x: Expr) -> Expr:
    return ops.round(x) if x.shape.dtype.kind not in "iu" else x


@lower("Div")
def _div(x: Expr, y: Expr) -> Expr:
    return ops.trunc_div(x, y) if x.shape.dtype.kind in "iu" else ops.div(x, y)


@lower("FloorDiv")
def _floor_div(x: Expr, y: Expr) -> Expr:
    return ops.floor_div(x, y) if x.shape.dtype.kind in "iu" else ops.floor(ops.div(x, y))


def _shift_count(y: Expr) -> Expr:
    """Counts outside the width of the dtype are clamped, as in the CPU kernel."""
    return ops.minimum(ops.maximum(y, like(y, 0)), like(y, y.shape.dtype.itemsize * 8 - 1))


@lower("LeftShift")
def _left_shift(x: Expr, y: Expr) -> Expr:
    return ops.shift_left(x, _shift_count(y))


@lower("RightShift")
def _right_shift(x: Expr, y: Expr) -> Expr:
    return ops.shift_right(x, _shift_count(y))


def _fits(x: Expr, y: Expr) -> None:
    np.broadcast_shapes(x.shape.dims, y.shape.dims)


@lower("Equal")
def _equal(x: Expr, y: Expr, *, incompatible_shape_error: bool) -> Expr:
    if not incompatible_shape_error:
        try:
            _fits(x, y)
        except ValueError:
            return ops.full(ir.const(False, np.dtype(bool)), dims=())
    return ops.eq(x, y)


@lower("NotEqual")
def _not_equal(x: Expr, y: Expr, *, incompatible_shape_error: bool) -> Expr:
    if not incompatible_shape_error:
        try:
            _fits(x, y)
        except ValueError:
            return ops.full(ir.const(True, np.dtype(bool)), dims=())
    return ops.ne(x, y)


@lower("SquaredDifference")
def _squared_difference(x: Expr, y: Expr) -> Expr:
    difference = ops.sub(x, y)
    if x.shape.dtype.kind == "c":
        return ops.mul(ops.conj(difference), difference)
    return ops.square(difference)


@lower("DivNoNan")
def _div_no_nan(x: Expr, y: Expr) -> Expr:
    zero = ops.eq(y, like(y, 0))
    return ops.where(zero, like(x, 0), ops.div(x, ops.where(zero, like(y, 1), y)))


@lower("MulNoNan")
def _mul_no_nan(x: Expr, y: Expr) -> Expr:
    return ops.where(ops.eq(y, like(y, 0)), like(x, 0), ops.mul(x, y))


@lower("Xdivy")
def _xdivy(x: Expr, y: Expr) -> Expr:
    return ops.where(ops.eq(x, like(x, 0)), like(x, 0), ops.div(x, y))


@lower("Xlogy")
def _xlogy(x: Expr, y: Expr) -> Expr:
    return ops.where(ops.eq(x, like(x, 0)), like(x, 0), ops.mul(x, ops.log(y)))


@lower("Xlog1py")
def _xlog1py(x: Expr, y: Expr) -> Expr:
    return ops.where(ops.eq(x, like(x, 0)), like(x, 0), ops.mul(x, ops.log1p(y)))


@lower("BesselI0")
def _bessel_i0(x: Expr) -> Expr:
    return ops.mul(ops.exp(ops.abs(x)), ops.bessel_i0e(x))


@lower("BesselI1")
def _bessel_i1(x: Expr) -> Expr:
    return ops.mul(ops.exp(ops.abs(x)), ops.bessel_i1e(x))


@lower("BesselK0")
def _bessel_k0(x: Expr) -> Expr:
    return ops.mul(ops.exp(ops.neg(x)), ops.bessel_k0e(x))


@lower("BesselK1")
def _bessel_k1(x: Expr) -> Expr:
    return ops.mul(ops.exp(ops.neg(x)), ops.bessel_k1e(x))


@lower("AddN", "AccumulateNV2")
def _add_n(*inputs: Expr) -> Expr:
    total = inputs[0]
    for x in inputs[1:]:
        if x.shape is not total.shape:
            raise ShapeError(f"AddN: {x.shape} and {total.shape}; all inputs must have the same shape")
        total = ops.add(total, x)
    return total


@lower("ClipByValue")
def _clip_by_value(t: Expr, low: Expr, high: Expr) -> Expr:
    return ops.minimum(ops.maximum(t, low), high)


@lower("Cast")
def _cast(x: Expr, *, DstT: np.dtype, Truncate: bool) -> Expr:
    if Truncate:
        raise UnsupportedError("Cast: Truncate=True is not supported")
    return x if x.shape.dtype == DstT else ops.convert(x, dtype=DstT)


@lower("Bitcast")
def _bitcast(x: Expr, *, type: np.dtype) -> Expr:
    return ops.bitcast(x, dtype=type)


@lower("Complex")
def _complex(real: Expr, imag: Expr, *, Tout: np.dtype) -> Expr:
    return ops.add(ops.convert(real, dtype=Tout), ops.mul(ops.convert(imag, dtype=Tout), ir.const(1j, Tout)))


@lower("Select")
def _select(condition: Expr, t: Expr, e: Expr) -> Expr:
    if t.shape is not e.shape:
        raise ShapeError(f"Select: {t.shape} and {e.shape}; both sides must have the same shape")
    if condition.shape.ndim == 1 and t.shape.ndim > 1:
        if condition.shape.dims[0] != t.shape.dims[0]:
            raise ShapeError(f"Select: a condition of {condition.shape} for {t.shape}")
        condition = ops.reshape(condition, dims=condition.shape.dims + (1,) * (t.shape.ndim - 1))
    elif condition.shape.ndim and condition.shape.dims != t.shape.dims:
        raise ShapeError(f"Select: a condition of {condition.shape} for {t.shape}")
    return ops.where(condition, t, e)


@lower("ZerosLike")
def _zeros_like(x: Expr) -> Expr:
    return ops.full(like(x, 0), dims=x.shape.dims)


@lower("OnesLike")
def _ones_like(x: Expr) -> Expr:
    return ops.full(like(x, 1), dims=x.shape.dims)


# ------------------------------------------------------------------ activations and their gradients


@lower("ReluGrad")
def _relu_grad(gradients: Expr, features: Expr) -> Expr:
    return ops.where(ops.gt(features, like(features, 0)), gradients, like(gradients, 0))


@lower("Relu6")
def _relu6(x: Expr) -> Expr:
    return ops.minimum(ops.maximum(x, like(x, 0)), like(x, 6))


@lower("Relu6Grad")
def _relu6_grad(gradients: Expr, features: Expr) -> Expr:
    inside = ops.logical_and(ops.gt(features, like(features, 0)), ops.lt(features, like(features, 6)))
    return ops.where(inside, gradients, like(gradients, 0))


@lower("LeakyRelu")
def _leaky_relu(x: Expr, *, alpha: float) -> Expr:
    return ops.where(ops.gt(x, like(x, 0)), x, ops.mul(x, like(x, alpha)))


@lower("LeakyReluGrad")
def _leaky_relu_grad(gradients: Expr, features: Expr, *, alpha: float) -> Expr:
    return ops.where(ops.gt(features, like(features, 0)), gradients, ops.mul(gradients, like(gradients, alpha)))


@lower("Elu")
def _elu(x: Expr) -> Expr:
    return ops.where(ops.lt(x, like(x, 0)), ops.expm1(x), x)


@lower("EluGrad")
def _elu_grad(gradients: Expr, outputs: Expr) -> Expr:
    return ops.where(ops.lt(outputs, like(outputs, 0)), ops.mul(gradients, ops.add(outputs, like(outputs, 1))), gradients)


_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772


@lower("Selu")
def _selu(x: Expr) -> Expr:
    negative = ops.mul(ops.expm1(x), like(x, _SELU_SCALE * _SELU_ALPHA))
    return ops.where(ops.lt(x, like(x, 0)), negative, ops.mul(x, like(x, _SELU_SCALE)))


@lower("SeluGrad")
def _selu_grad(gradients: Expr, outputs: Expr) -> Expr:
    below = ops.mul(gradients, ops.add(outputs, like(outputs, _SELU_SCALE * _SELU_ALPHA)))
    return ops.where(ops.lt(outputs, like(outputs, 0)), below, ops.mul(gradients, like(gradients, _SELU_SCALE)))


@lower("Softplus")
def _softplus(x: Expr) -> Expr:
    return ops.add(ops.maximum(x, like(x, 0)), ops.log1p(ops.exp(ops.neg(ops.abs(x)))))


@lower("SoftplusGrad")
def _softplus_grad(gradients: Expr, features: Expr) -> Expr:
    return ops.mul(gradients, ops.sigmoid(features))


@lower("Softsign")
def _softsign(x: Expr) -> Expr:
    return ops.div(x, ops.add(ops.abs(x), like(x, 1)))


@lower("SoftsignGrad")
def _softsign_grad(gradients: Expr, features: Expr) -> Expr:
    return ops.div(gradients, ops.square(ops.add(ops.abs(features), like(features, 1))))


@lower("SigmoidGrad")
def _sigmoid_grad(y: Expr, dy: Expr) -> Expr:
    return ops.mul(dy, ops.mul(y, ops.sub(like(y, 1), y)))


@lower("TanhGrad")
def _tanh_grad(y: Expr, dy: Expr) -> Expr:
    return ops.mul(dy, ops.sub(like(y, 1), ops.square(y)))


@lower("SqrtGrad")
def _sqrt_grad(y: Expr, dy: Expr) -> Expr:
    return ops.div(ops.mul(dy, like(dy, 0.5)), y)


@lower("RsqrtGrad")
def _rsqrt_grad(y: Expr, dy: Expr) -> Expr:
    return ops.mul(ops.mul(like(y, -0.5), dy), ops.mul(y, ops.square(y)))


@lower("ReciprocalGrad", "InvGrad")
def _reciprocal_grad(y: Expr, dy: Expr) -> Expr:
    return ops.mul(ops.neg(dy), ops.square(y))


# ------------------------------------------------------------------ products


def _swap_last(x: Expr) -> Expr:
    n = x.shape.ndim
    return ops.transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def adjoint_of(x: Expr, flag: bool) -> Expr:
    """The conjugate transpose of the last two dimensions if the flag is set, else the operand."""
    if not flag:
        return x
    return ops.conj(_swap_last(x)) if x.shape.dtype.kind == "c" else _swap_last(x)


@lower("MatMul")
def _matmul(a: Expr, b: Expr, *, transpose_a: bool, transpose_b: bool) -> Expr:
    if a.shape.ndim != 2 or b.shape.ndim != 2:
        raise ShapeError(f"MatMul: {a.shape} and {b.shape}; both operands must be matrices")
    return ops.matmul(_swap_last(a) if transpose_a else a, _swap_last(b) if transpose_b else b)


@lower("BatchMatMul", "BatchMatMulV2")
def _batch_matmul(x: Expr, y: Expr, *, adj_x: bool, adj_y: bool) -> Expr:
    if x.shape.ndim < 2 or y.shape.ndim < 2:
        raise ShapeError(f"BatchMatMulV2: {x.shape} and {y.shape}; both operands need two dimensions or more")
    return ops.matmul(adjoint_of(x, adj_x), adjoint_of(y, adj_y))


@lower("BatchMatMulV3")
def _batch_matmul_v3(x: Expr, y: Expr, *, adj_x: bool, adj_y: bool, Tout: np.dtype) -> Expr:
    x, y = (e if e.shape.dtype == Tout else ops.convert(e, dtype=Tout) for e in (x, y))
    return ops.matmul(adjoint_of(x, adj_x), adjoint_of(y, adj_y))


@lower("Einsum")
def _einsum(*inputs: Expr, equation: str) -> Expr:
    return ops.einsum(*inputs, equation=equation)


@lower("L2Loss")
def _l2_loss(t: Expr) -> Expr:
    total = ops.sum(ops.square(t), axes=tuple(range(t.shape.ndim)), keepdims=False)
    return ops.mul(total, like(t, 0.5))


@lower("Angle")
def _angle(x: Expr) -> Expr:
    return ops.atan2(ops.imag(x), ops.real(x))
