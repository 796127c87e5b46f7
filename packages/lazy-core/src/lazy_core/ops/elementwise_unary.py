"""Functions of one operand, element by element: logarithms, trigonometry, special functions.

Owns: the mathematical functions, for floats and complex numbers only; arithmetic and rounding stand in `arithmetic`.  16-bit floats are
computed by XLA in 32 bits.  Imports the registry, `arithmetic` and jax's lax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..deferred import lax
from .arithmetic import negative_bit
from .registry import COMPLEX, FLOAT, op, unary_samples


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def exp(x: Any) -> Any:
    """The exponential, e to the power of x: float or complex[*dims] -> the same.  XLA: Exp.

    Raises:
        DtypeError: x is not float or complex.
    """
    return _complex_exp(x) if x.dtype.kind == "c" else lax.exp(x)


def _complex_exp(x: Any) -> Any:
    """As C's annex G has it: real where x is real, and 0 or infinity at an infinite real part, whatever the angle; XLA gives NaN."""
    angle, size = lax.imag(x), lax.real(x)
    found = lax.exp(x)
    turning = lax.bitwise_not(lax.is_finite(angle))
    none = lax.full_like(angle, 0)
    at_zero = lax.bitwise_and(turning, lax.eq(size, lax.full_like(size, -np.inf)))
    at_infinity = lax.bitwise_and(turning, lax.eq(size, lax.full_like(size, np.inf)))
    is_real = lax.eq(angle, none)
    re = lax.select(is_real, lax.exp(size), lax.select(at_zero, none, lax.select(at_infinity, size, lax.real(found))))
    return lax.complex(re, lax.select(is_real, angle, lax.select(at_zero, none, lax.imag(found))))


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near zero: float or complex[*dims] -> the same.  XLA: Expm1.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.expm1(x)


@op(samples=unary_samples(0.1, 8), dtypes=FLOAT + COMPLEX)
def log(x: Any) -> Any:
    """The natural logarithm; NaN below zero, -inf at zero: float or complex[*dims] -> the same.  XLA: Log.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.log(x)


@op(samples=unary_samples(-0.5, 8), dtypes=FLOAT + COMPLEX)
def log1p(x: Any) -> Any:
    """log(1 + x), exact near zero: float or complex[*dims] -> the same.  XLA: Log1p.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.log1p(x)


@op(samples=unary_samples(0, 8), dtypes=FLOAT + COMPLEX)
def sqrt(x: Any) -> Any:
    """The square root; NaN below zero: float or complex[*dims] -> the same.  XLA: Sqrt.

    Raises:
        DtypeError: x is not float or complex.
    """
    if x.dtype.kind != "c":
        return lax.sqrt(x)
    found = lax.sqrt(x)  # XLA takes -0.0 for 0.0, which is the other side of the cut
    wrong = lax.ne(negative_bit(lax.imag(x)), negative_bit(lax.imag(found)))
    return lax.complex(lax.real(found), lax.select(wrong, lax.neg(lax.imag(found)), lax.imag(found)))


@op(samples=unary_samples(0.1, 8), dtypes=FLOAT + COMPLEX)
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x): float or complex[*dims] -> the same.  XLA: Rsqrt.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.rsqrt(x)


@op(samples=unary_samples(-8, 8), dtypes=FLOAT)
def cbrt(x: Any) -> Any:
    """The cube root, of negative numbers too: float[*dims] -> the same.  XLA: Cbrt.

    Raises:
        DtypeError: x is not float.
    """
    return lax.cbrt(x)


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def sin(x: Any) -> Any:
    """The sine of x radians: float or complex[*dims] -> the same.  XLA: Sine.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.sin(x)


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def cos(x: Any) -> Any:
    """The cosine of x radians: float or complex[*dims] -> the same.  XLA: Cosine.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.cos(x)


@op(samples=unary_samples(-1.2, 1.2), dtypes=FLOAT + COMPLEX)
def tan(x: Any) -> Any:
    """The tangent of x radians: float or complex[*dims] -> the same.  XLA: Tan.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.tan(x)


@op(samples=unary_samples(-0.9, 0.9), dtypes=FLOAT + COMPLEX)
def asin(x: Any) -> Any:
    """The inverse sine; NaN outside [-1, 1]: float or complex[*dims] -> the same.  XLA: Atan2.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.asin(x)


@op(samples=unary_samples(-0.9, 0.9), dtypes=FLOAT + COMPLEX)
def acos(x: Any) -> Any:
    """The inverse cosine; NaN outside [-1, 1]: float or complex[*dims] -> the same.  XLA: Atan2.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.acos(x)


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def atan(x: Any) -> Any:
    """The inverse tangent, within (-pi/2, pi/2): float or complex[*dims] -> the same.  XLA: Atan2.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.atan(x)


@op(samples=unary_samples(-3, 3), dtypes=FLOAT + COMPLEX)
def sinh(x: Any) -> Any:
    """The hyperbolic sine: float or complex[*dims] -> the same.  XLA: Exp.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.sinh(x)


@op(samples=unary_samples(-3, 3), dtypes=FLOAT + COMPLEX)
def cosh(x: Any) -> Any:
    """The hyperbolic cosine: float or complex[*dims] -> the same.  XLA: Exp.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.cosh(x)


@op(samples=unary_samples(-3, 3), dtypes=FLOAT + COMPLEX)
def tanh(x: Any) -> Any:
    """The hyperbolic tangent: float or complex[*dims] -> the same.  XLA: Tanh.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.tanh(x)


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def asinh(x: Any) -> Any:
    """The inverse hyperbolic sine: float or complex[*dims] -> the same.  XLA: Log.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.asinh(x)


@op(samples=unary_samples(1.1, 8), dtypes=FLOAT + COMPLEX)
def acosh(x: Any) -> Any:
    """The inverse hyperbolic cosine; NaN below 1: float or complex[*dims] -> the same.  XLA: Log.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.acosh(x)


@op(samples=unary_samples(-0.9, 0.9), dtypes=FLOAT + COMPLEX)
def atanh(x: Any) -> Any:
    """The inverse hyperbolic tangent; NaN outside [-1, 1]: float or complex[*dims] -> the same.  XLA: Log1p.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.atanh(x)


@op(samples=unary_samples(-4, 4), dtypes=FLOAT + COMPLEX)
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)): float or complex[*dims] -> the same.  XLA: Logistic.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.logistic(x)


@op(samples=unary_samples(-3, 3), dtypes=FLOAT)
def erf(x: Any) -> Any:
    """The error function: float[*dims] -> the same.  XLA: Erf.

    Raises:
        DtypeError: x is not float.
    """
    return lax.erf(x)


@op(samples=unary_samples(-3, 3), dtypes=FLOAT)
def erfc(x: Any) -> Any:
    """1 - erf(x), without cancellation: float[*dims] -> the same.  XLA: Erfc.

    Raises:
        DtypeError: x is not float.
    """
    return lax.erfc(x)


@op(samples=unary_samples(-0.95, 0.95), dtypes=FLOAT)
def erfinv(x: Any) -> Any:
    """The inverse of the error function on (-1, 1); infinite at the ends: float[*dims] -> the same.  XLA: ErfInv.

    Raises:
        DtypeError: x is not float.
    """
    return lax.erf_inv(x)


@op(samples=unary_samples(0.1, 8, special=False), dtypes=FLOAT)
def lgamma(x: Any) -> Any:
    """The logarithm of |gamma(x)|: float[*dims] -> the same.  XLA: Lgamma.

    Raises:
        DtypeError: x is not float.
    """
    return lax.lgamma(x)


@op(samples=unary_samples(0.1, 8, special=False), dtypes=FLOAT)
def digamma(x: Any) -> Any:
    """The derivative of lgamma: float[*dims] -> the same.  XLA: Digamma.

    Raises:
        DtypeError: x is not float.
    """
    return lax.digamma(x)


@op(samples=unary_samples(), dtypes=FLOAT + COMPLEX)
def exp2(x: Any) -> Any:
    """2 to the power of x: float or complex[*dims] -> the same.  XLA: Exp.

    Raises:
        DtypeError: x is not float or complex.
    """
    return lax.exp2(x)


def _snapped(x: Any, base: float) -> Any:
    """A logarithm to a whole base, exact at the base's own powers (a quotient of logarithms gives 2.9999999999999996 for log10(1000))."""
    quotient = lax.div(lax.log(x), lax.full(x.shape, math.log(base), x.dtype))
    if np.dtype(x.dtype).kind == "c":
        return quotient
    whole = lax.round(quotient, lax.RoundingMethod.TO_NEAREST_EVEN)
    slack = lax.abs(whole) * np.array(4 * np.finfo(x.dtype).eps if x.dtype.itemsize > 2 else 0, x.dtype)
    return lax.select(lax.le(lax.abs(lax.sub(quotient, whole)), slack), whole, quotient)


@op(samples=unary_samples(0.1, 8), dtypes=FLOAT + COMPLEX)
def log2(x: Any) -> Any:
    """The logarithm to base 2, exact at powers of two: float or complex[*dims] -> the same.  XLA: Log, Divide.

    Raises:
        DtypeError: x is not float or complex.
    """
    return _snapped(x, 2.0)


@op(samples=unary_samples(0.1, 8), dtypes=FLOAT + COMPLEX)
def log10(x: Any) -> Any:
    """The logarithm to base 10, exact at powers of ten: float or complex[*dims] -> the same.  XLA: Log, Divide.

    Raises:
        DtypeError: x is not float or complex.
    """
    return _snapped(x, 10.0)
