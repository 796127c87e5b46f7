"""Arithmetic of one operand, element by element: signs, rounding, predicates, parts of complex numbers, activations.

Owns: unary operations for all dtypes that they make sense for.  Imports the registry and jax's lax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError
from .registry import ANY, BOOL, COMPLEX, FLOAT, INT, NUMBER, REAL, Sample, describe, numbers, op, unary_samples


def kind(x: Any) -> str:
    """b, i, u, f or c; 16-bit and 8-bit floats of ml_dtypes are f."""
    found = np.dtype(x.dtype).kind
    return "f" if found == "V" else found


def like(x: Any, value: float) -> Any:
    """A full array of x's dims and dtype."""
    return lax.full(x.shape, value, x.dtype)


def negative_bit(x: Any) -> Any:
    """Whether the sign bit of a float is set, NaN and -0.0 included."""
    bits = np.dtype(f"i{x.dtype.itemsize}")
    return lax.lt(lax.bitcast_convert_type(x, bits), np.zeros((), bits))


@op(samples=unary_samples(), dtypes=ANY)
def identity(x: Any) -> Any:
    """A copy: dtype[*dims] -> the same.  XLA: none."""
    return x


@op(samples=unary_samples(), dtypes=NUMBER)
def neg(x: Any) -> Any:
    """-x; unsigned integers wrap: number[*dims] -> the same.  XLA: Negate.

    Raises:
        DtypeError: x is bool.
    """
    return lax.neg(x)


@op(samples=unary_samples(), dtypes=ANY, name="abs")
def abs_(x: Any) -> Any:
    """The absolute value: dtype[*dims] -> the same, or f32 of c64 and f64 of c128.  XLA: Abs."""
    return x if kind(x) in "bu" else lax.abs(x)


@op(samples=unary_samples(), dtypes=NUMBER)
def sign(x: Any) -> Any:
    """-1, +0 or 1; NaN stays NaN; of complex numbers x / |x|: number[*dims] -> the same.  XLA: Sign.

    Raises:
        DtypeError: x is bool.
    """
    return lax.select(lax.eq(x, like(x, 0)), like(x, 0), lax.sign(x))


@op(samples=unary_samples(), dtypes=NUMBER)
def square(x: Any) -> Any:
    """Elementwise x * x: number[*dims] -> the same.  XLA: Multiply.

    Raises:
        DtypeError: x is bool.
    """
    if kind(x) == "b":
        raise DtypeError(f"square({describe(x)}): expected numbers; convert to an integer dtype first")
    return lax.mul(x, x)


@op(samples=unary_samples(0.5, 4), dtypes=FLOAT + COMPLEX)
def reciprocal(x: Any) -> Any:
    """1 / x: float or complex[*dims] -> the same.  XLA: Divide.

    Raises:
        DtypeError: x is not float or complex.
    """
    if kind(x) not in "fc":
        raise DtypeError(f"reciprocal({describe(x)}): expected float or complex; convert first")
    return lax.div(like(x, 1), x)


@op(samples=unary_samples(), dtypes=REAL + BOOL)
def floor(x: Any) -> Any:
    """The largest whole number that is not above x; integers as they are: real[*dims] -> the same.  XLA: Floor."""
    return x if kind(x) in "biu" else lax.floor(x)


@op(samples=unary_samples(), dtypes=REAL + BOOL)
def ceil(x: Any) -> Any:
    """The smallest whole number that is not below x; integers as they are: real[*dims] -> the same.  XLA: Ceil."""
    return x if kind(x) in "biu" else lax.ceil(x)


@op(samples=unary_samples(), dtypes=REAL + BOOL)
def trunc(x: Any) -> Any:
    """Elementwise x without its fraction, sign of zero kept; integers as they are: real[*dims] -> the same.  XLA: Floor, Ceil, Select."""
    return x if kind(x) in "biu" else lax.select(lax.lt(x, like(x, 0)), lax.ceil(x), lax.floor(x))


@op(samples=unary_samples(), dtypes=REAL + BOOL, name="round")
def round_(x: Any) -> Any:
    """The nearest whole number, halves to even; integers as they are: real[*dims] -> the same.  XLA: RoundNearestEven."""
    return x if kind(x) in "biu" else lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@op(samples=unary_samples(), dtypes=ANY)
def isnan(x: Any) -> Any:
    """Whether x is NaN: dtype[*dims] -> pred[*dims].  XLA: Compare."""
    return like_bool(x, False) if kind(x) in "biu" else lax.ne(x, x)


@op(samples=unary_samples(), dtypes=ANY)
def isinf(x: Any) -> Any:
    """Whether x is infinite (either part of a complex number): dtype[*dims] -> pred[*dims].  XLA: Abs, Compare."""
    if kind(x) == "c":
        return lax.bitwise_or(isinf.fn(lax.real(x)), isinf.fn(lax.imag(x)))
    return like_bool(x, False) if kind(x) in "biu" else lax.eq(lax.abs(x), like(x, math.inf))


@op(samples=unary_samples(), dtypes=ANY)
def isfinite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN: dtype[*dims] -> pred[*dims].  XLA: IsFinite."""
    if kind(x) == "c":
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return like_bool(x, True) if kind(x) in "biu" else lax.is_finite(x)


def like_bool(x: Any, value: bool) -> Any:
    """A full bool array of x's dims."""
    return lax.full(x.shape, value, np.dtype(bool))


@op(samples=unary_samples(), dtypes=REAL)
def signbit(x: Any) -> Any:
    """Whether the sign bit is set, of -0.0 and NaN too: real[*dims] -> pred[*dims].  XLA: BitcastConvert, Compare.

    Raises:
        DtypeError: x is complex.
    """
    if kind(x) == "c":
        raise DtypeError(f"signbit({describe(x)}): complex numbers have no sign; take real or imag first")
    if kind(x) in "bu":
        return like_bool(x, False)
    return lax.lt(x, like(x, 0)) if kind(x) == "i" else negative_bit(x)


@op(samples=unary_samples(), dtypes=ANY)
def logical_not(x: Any) -> Any:
    """Elementwise x == 0: dtype[*dims] -> pred[*dims].  XLA: Compare, or Not."""
    return lax.bitwise_not(x) if kind(x) == "b" else lax.eq(x, like(x, 0))


@op(samples=unary_samples(), dtypes=INT + BOOL)
def bitwise_not(x: Any) -> Any:
    """Every bit inverted; the logical opposite of a bool: integer or bool[*dims] -> the same.  XLA: Not.

    Raises:
        DtypeError: x is float or complex.
    """
    return lax.bitwise_not(x)


@op(samples=unary_samples(), dtypes=ANY)
def conj(x: Any) -> Any:
    """The complex conjugate; real numbers as they are: dtype[*dims] -> the same.  XLA: Real, Imag, Complex."""
    return lax.conj(x) if kind(x) == "c" else x


@op(samples=unary_samples(), dtypes=ANY)
def real(x: Any) -> Any:
    """The real part: c64[*dims] -> f32[*dims], c128 -> f64; real numbers as they are.  XLA: Real."""
    return lax.real(x) if kind(x) == "c" else x


@op(samples=unary_samples(), dtypes=ANY)
def imag(x: Any) -> Any:
    """The imaginary part: c64[*dims] -> f32[*dims], c128 -> f64; zero of real numbers.  XLA: Imag."""
    return lax.imag(x) if kind(x) == "c" else like(x, 0)


# ------------------------------------------------------------------ activations


@op(samples=unary_samples(), dtypes=REAL)
def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN: real[*dims] -> the same.  XLA: Maximum."""
    return lax.max(x, like(x, 0))


def _in_f32(x: Any) -> Any:
    return lax.convert_element_type(x, np.float32) if x.dtype.itemsize == 2 else x


@op(samples=unary_samples(), dtypes=FLOAT)
def silu(x: Any) -> Any:
    """Elementwise x * sigmoid(x): float[*dims] -> the same; 16-bit floats in 32 bits.  XLA: Logistic, Multiply.

    Raises:
        DtypeError: x is not float.
    """
    wide = _in_f32(x)
    return lax.convert_element_type(lax.mul(wide, lax.logistic(wide)), x.dtype)


def _softplus_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype),), {"beta": 1.0, "threshold": 20.0})
    yield Sample((numbers(rng, (5,), dtype),), {"beta": 2.0, "threshold": 3.0})


@op(samples=_softplus_samples, dtypes=FLOAT)
def softplus(x: Any, *, beta: float, threshold: float) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold: float[*dims] -> the same; 16-bit floats in 32 bits.

    Attributes: beta; threshold.  XLA: Exp, Log1p, Select.

    Raises:
        DtypeError: x is not float.
    """
    wide = _in_f32(x)
    scaled = lax.mul(wide, like(wide, beta))
    soft = lax.div(lax.add(lax.max(scaled, like(wide, 0)), lax.log1p(lax.exp(lax.neg(lax.abs(scaled))))), like(wide, beta))
    return lax.convert_element_type(lax.select(lax.gt(scaled, like(wide, threshold)), wide, soft), x.dtype)


def _gelu_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for approximate in (False, True):
        yield Sample((numbers(rng, (3, 4), dtype),), {"approximate": approximate})


@op(samples=_gelu_samples, dtypes=FLOAT)
def gelu(x: Any, *, approximate: bool) -> Any:
    """Elementwise x times the normal distribution function of x: float[*dims] -> the same; 16-bit floats in 32 bits.

    Attributes: approximate, by tanh of a cubic instead of erf.  XLA: Erf or Tanh, Multiply.

    Raises:
        DtypeError: x is not float.
    """
    wide = _in_f32(x)
    if approximate:
        cubic = lax.mul(
            like(wide, math.sqrt(2 / math.pi)), lax.add(wide, lax.mul(like(wide, 0.044715), lax.mul(wide, lax.mul(wide, wide))))
        )
        cdf = lax.mul(like(wide, 0.5), lax.add(like(wide, 1), lax.tanh(cubic)))
    else:
        cdf = lax.mul(like(wide, 0.5), lax.add(like(wide, 1), lax.erf(lax.mul(wide, like(wide, math.sqrt(0.5))))))
    return lax.convert_element_type(lax.mul(wide, cdf), x.dtype)


def _complex_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype), numbers(rng, (4,), dtype)), {})


@op(samples=_complex_samples, dtypes=tuple(d for d in FLOAT if d.itemsize > 2), name="complex")
def complex_(re: Any, im: Any) -> Any:
    """Re + i im, dims broadcast: f32[*dims], f32[*dims] -> c64[*dims], f64 -> c128.  XLA: Complex.

    Raises:
        DtypeError: the operands are not both f32 or both f64.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.complex(*jnp.broadcast_arrays(re, im))
