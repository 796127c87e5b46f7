"""torch.special: Bessel and Airy functions, the gamma and zeta families, error functions, orthogonal polynomials.

Owns: functions that core computes in f32 and f64, with torch's values at poles and infinities; 16-bit floats are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, Scalar, cast, float_type, in_math_dtype, num, operand, result_type

# ------------------------------------------------------------------ one operand

# torch's name -> core's
_UNARY = {
    "special_i0e": "bessel_i0e",
    "special_i1e": "bessel_i1e",
    "special_bessel_j0": "bessel_j0",
    "special_bessel_j1": "bessel_j1",
    "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1",
    "special_scaled_modified_bessel_k0": "bessel_k0e",
    "special_scaled_modified_bessel_k1": "bessel_k1e",
    "special_airy_ai": "airy_ai",
    "special_erfcx": "erfcx",
    "special_ndtri": "ndtri",
}


def _as_float(fn: Callable[..., Expr], self: Expr) -> Expr:
    return in_math_dtype(fn)(cast(self, float_type(self.shape.dtype)))


def _unary(name: str, fn: Callable[..., Expr]) -> None:
    @aten(name)
    def build(self: Expr) -> Expr:
        return _as_float(fn, self)


for _name, _op in _UNARY.items():
    _unary(_name, getattr(ops, _op))


def _growing(scaled: Callable[..., Expr]) -> Callable[[Expr], Expr]:
    return lambda x: ops.mul(scaled(x), ops.exp(ops.abs(x)))


def _decaying(scaled: Callable[..., Expr]) -> Callable[[Expr], Expr]:
    return lambda x: ops.mul(scaled(x), ops.exp(ops.neg(x)))


for _name, _fn in {
    "i0": _growing(ops.bessel_i0e),
    "special_i1": _growing(ops.bessel_i1e),
    "special_modified_bessel_i0": _growing(ops.bessel_i0e),
    "special_modified_bessel_i1": _growing(ops.bessel_i1e),
    "special_modified_bessel_k0": _decaying(ops.bessel_k0e),
    "special_modified_bessel_k1": _decaying(ops.bessel_k1e),
}.items():
    _unary(_name, _fn)


@aten("special_spherical_bessel_j0")
def spherical_bessel_j0(self: Expr) -> Expr:
    def sinc(x: Expr) -> Expr:
        gone = ops.isinf(x)
        zero = ops.eq(x, num(0, x))
        value = ops.div(ops.sin(x), ops.where(zero, num(1, x), x))
        return ops.where(gone, num(0, x), ops.where(zero, num(1, x), value))

    return _as_float(sinc, self)


@aten("special_log_ndtr")
def log_ndtr(self: Expr) -> Expr:
    def logarithm(x: Expr) -> Expr:
        t = ops.mul(x, num(math.sqrt(0.5), x))
        tail = ops.sub(ops.log(ops.mul(ops.erfcx(ops.neg(t)), num(0.5, x))), ops.mul(t, t))
        return ops.where(ops.lt(x, num(-1, x)), tail, ops.log1p(ops.mul(ops.erfc(t), num(-0.5, x))))

    return _as_float(logarithm, self)


# ------------------------------------------------------------------ gamma and zeta


def _pair(fn: Callable[..., Expr], a: Scalar, b: Scalar) -> Expr:
    kind = float_type(result_type(a, b))
    return in_math_dtype(fn)(operand(a, kind), operand(b, kind))


@aten("igamma")
def igamma(self: Expr, other: Expr) -> Expr:
    def lower(a: Expr, x: Expr) -> Expr:
        edge = ops.logical_and(ops.eq(a, num(0, a)), ops.gt(x, num(0, x)))
        return ops.where(edge, num(1, a), ops.igamma(a, x))

    return _pair(lower, self, other)


@aten("igammac")
def igammac(self: Expr, other: Expr) -> Expr:
    def upper(a: Expr, x: Expr) -> Expr:
        edge = ops.logical_and(ops.eq(a, num(0, a)), ops.gt(x, num(0, x)))
        return ops.where(edge, num(0, a), ops.igammac(a, x))

    return _pair(upper, self, other)


@aten("special_zeta")
def zeta(self: Expr, other: Expr) -> Expr:
    return _pair(ops.zeta, self, other)


def _trigamma(x: Expr) -> Expr:
    low = ops.lt(x, num(0.5, x))
    value = ops.zeta(num(2, x), ops.where(low, ops.sub(num(1, x), x), x))
    sine = ops.div(num(math.pi, x), ops.sin(ops.mul(num(math.pi, x), x)))
    return ops.where(low, ops.sub(ops.mul(sine, sine), value), value)


@aten("polygamma")
def polygamma(n: int, self: Expr) -> Expr:
    from .pointwise import digamma

    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, but got {n}")
    if n == 0:
        return digamma(self)
    if n == 1:
        return _as_float(_trigamma, self)
    scale = (-1.0) ** (n + 1) * math.gamma(n + 1)
    return _as_float(lambda x: ops.mul(num(scale, x), ops.zeta(num(n + 1, x), x)), self)


# ------------------------------------------------------------------ orthogonal polynomials


def _polynomial(name: str, kind: str, shifted: bool) -> None:
    @aten(name)
    def build(x: Expr, n: Expr) -> Expr:
        dtype = float_type(result_type(x, n))
        at = operand(x, dtype)
        if shifted:
            at = ops.sub(ops.add(at, at), num(1, at))
        return ops.orthogonal_polynomial(at, operand(n, I64), kind=kind)


for _kind in ("t", "u", "v", "w"):
    _polynomial(f"special_chebyshev_polynomial_{_kind}", f"chebyshev_{_kind}", False)
    _polynomial(f"special_shifted_chebyshev_polynomial_{_kind}", f"chebyshev_{_kind}", True)
for _name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
    _polynomial(f"special_{_name}", _name.replace("_polynomial", ""), False)
