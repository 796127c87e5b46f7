"""Arithmetic and mathematical functions element by element: tables for the plain cases, functions where torch differs.

Owns: unary and binary arithmetic, rounding, division modes, clamp, lerp, addcmul.  Imports `promotion` and core's ops.
"""

from __future__ import annotations

import math
from typing import Any

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import (
    BOOL,
    F64,
    I32,
    DType,
    Scalar,
    broadcast_dims,
    cast,
    complex_of,
    dtype_of,
    expand,
    filled,
    float_type,
    is_complex,
    is_float,
    is_static,
    math_dtype,
    num,
    operand,
    promote,
    real_of,
    result_type,
)

# named alike in core; integers become the default float type
FLOAT_UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma",
    "reciprocal",
)  # fmt: skip
ROUNDING = ("floor", "ceil", "trunc", "round")


def _float_unary(name: str) -> None:
    @aten(name)
    def build(self: Expr) -> Expr:
        return getattr(ops, name)(cast(self, float_type(self.shape.dtype)))


for _name in FLOAT_UNARY:
    _float_unary(_name)


@aten("digamma")
def digamma(self: Expr) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    pole = ops.copysign(num(math.inf, x), ops.neg(x))  # at 0 the sign is that of the zero, turned
    return ops.where(ops.eq(x, num(0, x)), pole, ops.digamma(x))


def _rounding(name: str) -> None:
    @aten(name)
    def build(self: Expr) -> Expr:
        return getattr(ops, name)(self) if is_float(self.shape.dtype) else self


for _name in ROUNDING:
    _rounding(_name)


@aten("abs")
def abs_(self: Expr) -> Expr:
    return self if self.shape.dtype == BOOL else ops.abs(self)


@aten("neg")
def neg(self: Expr) -> Expr:
    if self.shape.dtype == BOOL:
        raise RuntimeError("neg of a bool tensor is not defined; use ~ or logical_not()")
    return ops.neg(self)


@aten("sign")
def sign(self: Expr) -> Expr:
    if self.shape.dtype == BOOL:
        return self
    if is_float(self.shape.dtype):  # torch: the sign of nan is 0
        return ops.where(ops.isnan(self), num(0, self), ops.sign(self))
    return ops.sign(self)


@aten("sgn")
def sgn(self: Expr) -> Expr:
    if not is_complex(self.shape.dtype):
        return sign(self)
    size = ops.abs(self)
    zero = ops.eq(size, num(0, size))
    return ops.where(zero, num(0, self), ops.div(self, cast(ops.where(zero, num(1, size), size), self.shape.dtype)))


@aten("signbit")
def signbit(self: Expr) -> Expr:
    if self.shape.dtype == BOOL:
        return filled(False, self.shape.dims, BOOL)
    return ops.signbit(self) if is_float(self.shape.dtype) else ops.lt(self, num(0, self))


@aten("positive", "lift", "clone", "alias_copy", "detach_copy", "_lazy_clone", "lift_fresh_copy")
def clone(self: Expr, *, memory_format: None = None) -> Expr:
    return self


@aten("copy")
def copy(self: Expr, src: Expr, non_blocking: bool = False) -> Expr:
    return expand(cast(src, self.shape.dtype), self.shape.dims)


@aten("_to_copy")
def to_copy(
    self: Expr, *, dtype: DType | None = None, layout: None = None, device: None = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: None = None,
) -> Expr:  # fmt: skip
    return self if dtype is None else cast(self, dtype)


@aten("_conj_physical", "conj_physical", "_conj_copy")
def conj_physical(self: Expr) -> Expr:
    return ops.conj(self) if is_complex(self.shape.dtype) else self


@aten("_neg_view_copy")
def neg_view_copy(self: Expr) -> Expr:
    return ops.neg(self)


@aten("real")
def real(self: Expr) -> Expr:
    return ops.real(self) if is_complex(self.shape.dtype) else self


@aten("angle")
def angle(self: Expr) -> Expr:
    if is_complex(self.shape.dtype):
        return ops.atan2(ops.imag(self), ops.real(self))
    x = cast(self, float_type(self.shape.dtype))
    turned = ops.where(ops.lt(x, num(0, x)), num(math.pi, x), num(0, x))
    return ops.where(ops.isnan(x), x, turned)


@aten("complex")
def complex_(real: Expr, imag: Expr) -> Expr:
    kind = complex_of(real.shape.dtype)
    return _join(real, imag, broadcast_dims(real.shape.dims, imag.shape.dims), kind)


def _join(re: Expr, im: Expr, dims: tuple[int, ...], kind: DType) -> Expr:
    part = real_of(kind)
    return ops.complex(expand(cast(re, part), dims), expand(cast(im, part), dims))


@aten("polar")
def polar(abs: Expr, angle: Expr) -> Expr:
    dims = broadcast_dims(abs.shape.dims, angle.shape.dims)
    return _join(ops.mul(abs, ops.cos(angle)), ops.mul(abs, ops.sin(angle)), dims, complex_of(abs.shape.dtype))


@aten("frac")
def frac(self: Expr) -> Expr:
    return ops.sub(self, ops.trunc(self))


@aten("round.decimals")
def round_decimals(self: Expr, *, decimals: int) -> Expr:
    if not is_float(self.shape.dtype):
        return self
    if decimals == 0:
        return ops.round(self)
    scale = num(10.0 ** abs(decimals), self)
    if decimals > 0:
        return ops.div(ops.round(ops.mul(self, scale)), scale)
    return ops.mul(ops.round(ops.div(self, scale)), scale)


@aten("deg2rad")
def deg2rad(self: Expr) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    return ops.mul(x, num(math.pi / 180, x))


@aten("rad2deg")
def rad2deg(self: Expr) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    return ops.mul(x, num(180 / math.pi, x))


@aten("sinc")
def sinc(self: Expr) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    zero = ops.eq(x, num(0, x))
    turn = ops.mul(ops.where(zero, num(1, x), x), num(math.pi, x))
    return ops.where(zero, num(1, x), ops.div(ops.sin(turn), turn))


@aten("logit")
def logit(self: Expr, eps: float | None = None) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    if eps is not None:
        x = ops.clip(x, num(eps, x), num(1 - eps, x))
    return ops.log(ops.div(x, ops.sub(num(1, x), x)))


@aten("logit_backward")
def logit_backward(grad_output: Expr, self: Expr, eps: float | None = None) -> Expr:
    g = ops.div(grad_output, ops.mul(self, ops.sub(num(1, self), self)))
    lo = num(0.0 if eps is None else eps, self)
    hi = num(1.0 if eps is None else 1 - eps, self)
    inside = ops.logical_and(ops.ge(self, lo), ops.le(self, hi))
    return ops.where(inside, g, num(math.nan if eps is None else 0.0, self))


@aten("special_entr")
def entr(self: Expr) -> Expr:
    x = cast(self, float_type(self.shape.dtype))
    positive = ops.gt(x, num(0, x))
    body = ops.neg(ops.mul(x, ops.log(ops.where(positive, x, num(1, x)))))
    rest = ops.where(ops.eq(x, num(0, x)), num(0, x), num(-math.inf, x))
    return ops.where(ops.isnan(x), x, ops.where(positive, body, rest))


@aten("nan_to_num")
def nan_to_num(self: Expr, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Expr:
    if not is_float(self.shape.dtype):
        if is_complex(self.shape.dtype):
            parts = [nan_to_num(p, nan, posinf, neginf) for p in (ops.real(self), ops.imag(self))]
            return _join(parts[0], parts[1], self.shape.dims, self.shape.dtype)
        return self
    largest = _largest(self.shape.dtype)
    x = ops.where(ops.isnan(self), num(0.0 if nan is None else nan, self), self)
    x = ops.where(ops.eq(x, num(math.inf, x)), num(largest if posinf is None else posinf, x), x)
    return ops.where(ops.eq(x, num(-math.inf, x)), num(-largest if neginf is None else neginf, x), x)


def _largest(dtype: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


@aten("frexp.Tensor")
def frexp(self: Expr) -> tuple[Expr, Expr]:
    wide = cast(self, F64)
    special = ops.logical_or(ops.eq(wide, num(0, wide)), ops.logical_not(ops.isfinite(wide)))
    size = ops.where(special, num(1, wide), ops.abs(wide))
    power = ops.add(ops.floor(ops.log2(size)), num(1, size))
    mantissa = ops.div(size, ops.exp2(power))
    up = ops.ge(mantissa, num(1, size))  # log2 may be off by one at powers of two
    down = ops.lt(mantissa, num(0.5, size))
    step = ops.where(up, num(1, size), ops.where(down, num(-1, size), num(0, size)))
    power = ops.round(ops.add(power, step))
    mantissa = ops.div(wide, ops.exp2(ops.where(special, num(0, power), power)))
    return cast(mantissa, self.shape.dtype), cast(ops.where(special, num(0, power), power), I32)


# ------------------------------------------------------------------ binary


def _scaled(other: Scalar, alpha: Scalar, dtype: DType) -> Expr:
    y = operand(other, dtype)
    if is_static(alpha) and alpha == 1:
        return y
    return ops.mul(y, operand(alpha, dtype)) if dtype != BOOL else ops.logical_and(y, operand(alpha, dtype))


@aten("add.Tensor", "add.Scalar")
def add(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Expr:
    dtype = result_type(self, other)
    x = operand(self, dtype)
    y = _scaled(other, alpha, dtype)
    return ops.logical_or(x, y) if dtype == BOOL else ops.add(x, y)


@aten("sub.Tensor", "sub.Scalar")
def sub(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Expr:
    if dtype_of(self) == BOOL and dtype_of(other) == BOOL:
        raise RuntimeError("subtraction of two bool tensors is not defined; use ^ or logical_xor()")
    dtype = result_type(self, other)
    return ops.sub(operand(self, dtype), _scaled(other, alpha, dtype))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Expr:
    return sub(other, self, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(self: Scalar, other: Scalar) -> Expr:
    (x, y), dtype = promote(self, other)
    return ops.logical_and(x, y) if dtype == BOOL else ops.mul(x, y)


@aten("div.Tensor", "div.Scalar")
def div(self: Scalar, other: Scalar) -> Expr:
    dtype = float_type(result_type(self, other))
    return ops.div(operand(self, dtype), operand(other, dtype))


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(self: Scalar, other: Scalar, *, rounding_mode: str | None) -> Expr:
    if rounding_mode is None:
        return div(self, other)
    (x, y), dtype = promote(self, other)
    if dtype == BOOL:
        raise RuntimeError("integer division of bool tensors is not defined; convert them to an integer type")
    if rounding_mode == "floor":
        return ops.floor_div(x, y)
    if rounding_mode != "trunc":
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
    return ops.trunc(ops.div(x, y)) if is_float(dtype) else ops.trunc_div(x, y)


@aten("floor_divide", "floor_divide.Scalar")
def floor_divide(self: Scalar, other: Scalar) -> Expr:
    return div_mode(self, other, rounding_mode="floor")


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(self: Scalar, other: Scalar) -> Expr:
    (x, y), _ = promote(self, other)
    return ops.remainder(x, y)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(self: Scalar, other: Scalar) -> Expr:
    (x, y), _ = promote(self, other)
    return ops.fmod(x, y)


@aten("pow.Tensor_Tensor", "pow.Scalar", "pow.Tensor_Scalar")
def pow_(self: Scalar, exponent: Scalar) -> Expr:
    dtype = result_type(self, exponent)
    if is_static(exponent) and (is_float(dtype) or is_complex(dtype)):
        x = operand(self, dtype)
        if exponent == 0.5:
            return ops.sqrt(x) if is_float(dtype) else ops.pow(x, num(0.5, x))
        if exponent == 1:
            return x
        if exponent == 2:
            return ops.mul(x, x)
        if exponent == 3:
            return ops.mul(ops.mul(x, x), x)
        if exponent == -0.5:
            return ops.rsqrt(x) if is_float(dtype) else ops.pow(x, num(-0.5, x))
        if exponent == -1:
            return ops.reciprocal(x)
        if exponent == 0:
            return filled(1, x.shape.dims, dtype)
    if dtype == BOOL:
        x, y = operand(self, BOOL), operand(exponent, BOOL)
        return ops.logical_or(x, ops.logical_not(y))
    if dtype.kind in "iu" and is_static(exponent) and exponent < 0:  # type: ignore[operator]
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    x, y = operand(self, dtype), operand(exponent, dtype)
    if dtype.kind != "i" or is_static(exponent):
        return ops.pow(x, y)
    # A negative power of an integer is 0, but for 1 and -1.
    odd = ops.ne(ops.bitwise_and(y, num(1, y)), num(0, y))
    unit = ops.where(ops.eq(x, num(-1, x)), ops.where(odd, num(-1, x), num(1, x)), num(0, x))
    below = ops.where(ops.eq(x, num(1, x)), num(1, x), unit)
    return ops.where(ops.lt(y, num(0, y)), below, ops.pow(x, ops.maximum(y, num(0, y))))


def _plain_binary(name: str, core: str, float_only: bool = False) -> None:
    @aten(name)
    def build(self: Scalar, other: Scalar) -> Expr:
        dtype = result_type(self, other)
        if float_only:
            dtype = float_type(dtype)
        return getattr(ops, core)(operand(self, dtype), operand(other, dtype))


for _name, _core, _float in [
    ("atan2", "atan2", True), ("hypot", "hypot", False), ("nextafter", "nextafter", False), ("copysign.Tensor", "copysign", True),
    ("copysign.Scalar", "copysign", True),
]:  # fmt: skip
    _plain_binary(_name, _core, _float)


@aten("logaddexp")
def logaddexp(self: Expr, other: Expr) -> Expr:
    (x, y), _ = promote(self, other)
    return ops.logaddexp(x, y)


@aten("logaddexp2")
def logaddexp2(self: Expr, other: Expr) -> Expr:
    (x, y), _ = promote(self, other)
    ln2 = num(math.log(2), x)
    return ops.div(ops.logaddexp(ops.mul(x, ln2), ops.mul(y, ln2)), ln2)


@aten("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def xlogy(self: Scalar, other: Scalar) -> Expr:
    return _xlog(self, other, ops.log)


@aten("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def xlog1py(self: Scalar, other: Scalar) -> Expr:
    return _xlog(self, other, ops.log1p)


def _xlog(self: Scalar, other: Scalar, log: Any) -> Expr:
    dtype = float_type(result_type(self, other))
    x, y = operand(self, dtype), operand(other, dtype)
    zero = ops.eq(x, num(0, x))
    body = ops.where(zero, num(0, x), ops.mul(x, log(y)))
    return ops.where(ops.isnan(y), y, body)


@aten("ldexp.Tensor")
def ldexp(self: Expr, other: Expr) -> Expr:
    dtype = float_type(result_type(self, other))
    return ops.mul(operand(self, dtype), ops.exp2(operand(other, dtype)))


@aten("heaviside")
def heaviside(self: Expr, values: Expr) -> Expr:
    (x, v), _ = promote(self, values)
    zero = ops.eq(x, num(0, x))
    step = ops.where(ops.gt(x, num(0, x)), num(1, x), num(0, x))
    return ops.where(zero, v, step)


# ------------------------------------------------------------------ clamp


@aten("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(self: Expr, min: Scalar | None = None, max: Scalar | None = None) -> Expr:
    if min is None and max is None:
        raise RuntimeError("torch.clamp: at least one of 'min' or 'max' must not be None")
    dtype = result_type(*[v for v in (self, min, max) if v is not None])
    x = operand(self, dtype)
    # nan passes through: minimum and maximum propagate it; where min > max the result is max
    if min is not None:
        x = ops.maximum(x, operand(min, dtype))
    return x if max is None else ops.minimum(x, operand(max, dtype))


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(self: Expr, min: Scalar) -> Expr:
    return clamp(self, min, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(self: Expr, max: Scalar) -> Expr:
    return clamp(self, None, max)


# ------------------------------------------------------------------ ternary


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(self: Expr, end: Expr, weight: Scalar) -> Expr:
    kind = self.shape.dtype
    wide = math_dtype(kind)
    x, y, w = cast(self, wide), cast(end, wide), operand(weight, wide)
    gap = ops.sub(y, x)
    near = ops.add(x, ops.mul(w, gap))
    far = ops.sub(y, ops.mul(gap, ops.sub(num(1, w), w)))
    size = ops.abs(w)
    if is_static(weight):
        return cast(near if abs(weight) < 0.5 else far, kind)  # type: ignore[arg-type]
    return cast(ops.where(ops.lt(size, num(0.5, size)), near, far), kind)


@aten("addcmul")
def addcmul(self: Expr, tensor1: Expr, tensor2: Expr, *, value: Scalar = 1) -> Expr:
    dtype = result_type(self, tensor1, tensor2)
    wide = math_dtype(dtype)
    x, a, b = (operand(v, wide) for v in (self, tensor1, tensor2))
    product = ops.mul(a, b) if is_static(value) and value == 1 else ops.mul(ops.mul(operand(value, wide), a), b)
    return cast(ops.add(x, product), dtype)


@aten("addcdiv")
def addcdiv(self: Expr, tensor1: Expr, tensor2: Expr, *, value: Scalar = 1) -> Expr:
    dtype = result_type(self, tensor1, tensor2)
    if not (is_float(dtype) or is_complex(dtype)):
        raise RuntimeError("Integer division with addcdiv is no longer supported; convert the operands to a floating point type")
    wide = math_dtype(dtype)
    x, a, b = (operand(v, wide) for v in (self, tensor1, tensor2))
    top = a if is_static(value) and value == 1 else ops.mul(operand(value, wide), a)
    return cast(ops.add(x, ops.div(top, b)), dtype)


# ------------------------------------------------------------------ divisors


@aten("gcd")
def gcd(self: Expr, other: Expr) -> Expr:
    (x, y), _ = promote(self, other)
    return ops.gcd(x, y)


@aten("lcm")
def lcm(self: Expr, other: Expr) -> Expr:
    (x, y), _ = promote(self, other)
    divisor = ops.gcd(x, y)
    zero = ops.eq(divisor, num(0, x))
    share = ops.trunc_div(x, ops.where(zero, num(1, x), divisor))
    return ops.where(zero, num(0, x), ops.abs(ops.mul(share, y)))
