"""Functions of two operands of one dtype, element by element, dims broadcast as NumPy does.

Owns: arithmetic, division in all its kinds, powers, extremes, bits.  Integer division by zero gives zero, as in NumPy, and nothing is
promoted. Imports the registry and jax's lax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError
from .arithmetic import kind, like, negative_bit
from .registry import ANY, BOOL, COMPLEX, FLOAT, INT, NUMBER, REAL, Sample, align, binary_samples, describe, numbers, op, same_dtype


def operands(name: str, x: Any, y: Any, kinds: str = "biufc", expected: str = "numbers") -> list[Any]:
    """Two operands checked and broadcast.

    Raises:
        DtypeError: the dtypes differ or are not of these kinds.
        ShapeError: the dims cannot be broadcast.
    """
    same_dtype(name, x, y)
    if kind(x) not in kinds:
        raise DtypeError(f"{name}({describe(x, y)}): expected {expected}; convert the operands first")
    return align(name, x, y)


def _wide(x: Any, y: Any) -> tuple[Any, Any]:
    """16-bit floats as f32: several roundings in a row would show."""
    if x.dtype.itemsize > 2:
        return x, y
    return lax.convert_element_type(x, np.float32), lax.convert_element_type(y, np.float32)


def _scalar_last(x: Any, y: Any) -> tuple[Any, Any]:
    """Operands of a commutative operation in one order: libraries differ in what `2 * x` records, and one graph should be one program."""
    return (y, x) if x.ndim == 0 < y.ndim else (x, y)


@op(samples=binary_samples(), dtypes=ANY)
def add(x: Any, y: Any) -> Any:
    """Elementwise x + y; integers wrap, bools or: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Add.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("add", *_scalar_last(x, y))
    return lax.bitwise_or(x, y) if kind(x) == "b" else lax.add(x, y)


@op(samples=binary_samples(), dtypes=NUMBER)
def sub(x: Any, y: Any) -> Any:
    """Elementwise x - y; integers wrap: number[*dims], number[*dims] -> number[*dims].  XLA: Subtract.

    Raises:
        DtypeError: the dtypes differ, or are bool.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("sub", x, y, "iufc")
    return lax.sub(x, y)


@op(samples=binary_samples(), dtypes=ANY)
def mul(x: Any, y: Any) -> Any:
    """Elementwise x * y; integers wrap, bools and: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Multiply.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("mul", *_scalar_last(x, y))
    return lax.bitwise_and(x, y) if kind(x) == "b" else lax.mul(x, y)


@op(samples=binary_samples(0.5, 4), dtypes=FLOAT + COMPLEX)
def div(x: Any, y: Any) -> Any:
    """Elementwise x / y: float or complex[*dims], the same -> the same.  XLA: Divide.

    Raises:
        DtypeError: the dtypes differ, or are not float or complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("div", x, y, "fc", "float or complex")
    return lax.div(x, y)


# ------------------------------------------------------------------ division that rounds


def _nonzero(y: Any) -> tuple[Any, Any]:
    """Whether integer divisors are zero, and divisors with ones in those places."""
    zero = lax.eq(y, like(y, 0))
    return zero, lax.select(zero, like(y, 1), y)


def _differ(x: Any, y: Any) -> Any:
    return lax.ne(lax.lt(x, like(x, 0)), lax.lt(y, like(y, 0)))


@op(samples=binary_samples(), dtypes=REAL)
def floor_div(x: Any, y: Any) -> Any:
    """The quotient rounded down, as Python's //; integers by zero give 0: real[*dims], real[*dims] -> real[*dims].

    Floats follow Python's divmod: inf // 1 is NaN, and x // 0 is x / 0.  XLA: Divide, Remainder, Select.

    Raises:
        DtypeError: the dtypes differ, or are bool or complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("floor_div", x, y, "iuf", "real numbers")
    if kind(x) in "iu":
        zero, divisor = _nonzero(y)
        quotient = lax.div(x, divisor)
        if kind(x) == "i":
            down = lax.bitwise_and(_differ(x, divisor), lax.ne(lax.rem(x, divisor), like(x, 0)))
            quotient = lax.sub(quotient, lax.convert_element_type(down, x.dtype))
        return lax.select(zero, like(x, 0), quotient)
    dtype = x.dtype
    x, y = _wide(x, y)
    rest = lax.rem(x, y)
    ratio = lax.div(lax.sub(x, rest), y)
    down = lax.bitwise_and(lax.ne(rest, like(x, 0)), _differ(rest, y))
    ratio = lax.select(down, lax.sub(ratio, like(x, 1)), ratio)
    whole = lax.floor(ratio)
    whole = lax.select(lax.gt(lax.sub(ratio, whole), like(x, 0.5)), lax.add(whole, like(x, 1)), whole)
    signed_zero = lax.select(lax.ne(negative_bit(x), negative_bit(y)), like(x, -0.0), like(x, 0.0))
    whole = lax.select(lax.eq(ratio, like(x, 0)), signed_zero, whole)
    return lax.convert_element_type(lax.select(lax.eq(y, like(y, 0)), lax.div(x, y), whole), dtype)


@op(samples=binary_samples(), dtypes=REAL)
def remainder(x: Any, y: Any) -> Any:
    """Elementwise x - floor(x / y) y, with the sign of y, as Python's %; integers by zero give 0: real[*dims], real[*dims] -> real[*dims].

    XLA: Remainder, Select.

    Raises:
        DtypeError: the dtypes differ, or are bool or complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("remainder", x, y, "iuf", "real numbers")
    if kind(x) in "iu":
        zero, divisor = _nonzero(y)
        rest = lax.rem(x, divisor)
        if kind(x) == "i":
            away = lax.bitwise_and(_differ(rest, divisor), lax.ne(rest, like(x, 0)))
            rest = lax.select(away, lax.add(rest, divisor), rest)
        return lax.select(zero, like(x, 0), rest)
    dtype = x.dtype
    x, y = _wide(x, y)
    rest = lax.rem(x, y)
    rest = lax.select(lax.bitwise_and(_differ(rest, y), lax.ne(rest, like(x, 0))), lax.add(rest, y), rest)
    signed_zero = lax.select(negative_bit(y), like(x, -0.0), like(x, 0.0))
    return lax.convert_element_type(lax.select(lax.eq(rest, like(x, 0)), signed_zero, rest), dtype)


@op(samples=binary_samples(), dtypes=REAL)
def trunc_div(x: Any, y: Any) -> Any:
    """The quotient rounded to zero; integers by zero give 0: real[*dims], real[*dims] -> real[*dims].  XLA: Divide.

    Raises:
        DtypeError: the dtypes differ, or are bool or complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("trunc_div", x, y, "iuf", "real numbers")
    if kind(x) in "iu":
        zero, divisor = _nonzero(y)
        return lax.select(zero, like(x, 0), lax.div(x, divisor))
    ratio = lax.div(x, y)
    return lax.select(lax.lt(ratio, like(x, 0)), lax.ceil(ratio), lax.floor(ratio))


@op(samples=binary_samples(), dtypes=REAL)
def fmod(x: Any, y: Any) -> Any:
    """Elementwise x - trunc(x / y) y, with the sign of x, as C's fmod; integers by zero give 0: real[*dims], real[*dims] -> real[*dims].

    XLA: Remainder.

    Raises:
        DtypeError: the dtypes differ, or are bool or complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("fmod", x, y, "iuf", "real numbers")
    if kind(x) in "iu":
        zero, divisor = _nonzero(y)
        return lax.select(zero, like(x, 0), lax.rem(x, divisor))
    return lax.rem(x, y)


# ------------------------------------------------------------------ powers


def _pow_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    if dtype.kind in "iu":
        yield Sample((numbers(rng, (3, 4), dtype), rng.integers(0, 6, (4,)).astype(dtype)), {})
    else:
        yield Sample((numbers(rng, (3, 1), dtype, 0.2, 3), numbers(rng, (4,), dtype, -2, 2)), {})
    yield Sample((numbers(rng, (3,), dtype), np.array(2, dtype)), {})


@op(samples=_pow_samples, dtypes=NUMBER, name="pow", raw=True)
def pow_(x: Any, y: Any) -> Any:
    """Elementwise x to the power of y: number[*dims], number[*dims] -> number[*dims].

    Integers wrap, and their exponents must not be negative.  The constant exponents -1, 0.5, 1, 2 and 3 become divisions, roots and
    products.  XLA: Power, or a loop of products.

    Raises:
        DtypeError: the dtypes differ, or are bool.
        ShapeError: the dims cannot be broadcast.
    """
    constant = y.item() if isinstance(y, np.generic) else None
    x, y = jnp.asarray(x), jnp.asarray(y)
    x, y = operands("pow", x, y, "iufc")
    if constant == 2:
        return lax.mul(x, x)
    if constant == 3:
        return lax.mul(lax.mul(x, x), x)
    if constant == 1:
        return x
    if kind(x) in "fc":
        if constant == -1:
            return lax.div(like(x, 1), x)
        if constant == 0.5:
            return lax.sqrt(x)
        return lax.pow(x, y)
    return _integer_pow(x, y)


def _integer_pow(x: Any, y: Any) -> Any:
    def more(state: tuple[Any, Any, Any]) -> Any:
        return lax.reduce_or(lax.gt(state[2], like(y, 0)), tuple(range(y.ndim)))

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        result, base, exponent = state
        odd = lax.eq(lax.bitwise_and(exponent, like(y, 1)), like(y, 1))
        return lax.select(odd, lax.mul(result, base), result), lax.mul(base, base), lax.shift_right_logical(exponent, like(y, 1))

    return lax.while_loop(more, step, (like(x, 1), x, lax.max(y, like(y, 0))))[0]


@op(samples=binary_samples(0.1, 4), dtypes=FLOAT)
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x x + y y) without overflow; infinite where either is: float[*dims], float[*dims] -> float[*dims].  XLA: Sqrt, Divide.

    Raises:
        DtypeError: the dtypes differ, or are not float.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("hypot", x, y, "f", "float")
    dtype = x.dtype
    x, y = _wide(lax.abs(x), lax.abs(y))
    big, small = lax.max(x, y), lax.min(x, y)
    ratio = lax.div(small, lax.select(lax.eq(big, like(x, 0)), like(x, 1), big))
    length = lax.mul(big, lax.sqrt(lax.add(like(x, 1), lax.mul(ratio, ratio))))
    infinite = lax.bitwise_or(lax.eq(x, like(x, math.inf)), lax.eq(y, like(x, math.inf)))
    return lax.convert_element_type(lax.select(infinite, like(x, math.inf), length), dtype)


@op(samples=binary_samples(), dtypes=FLOAT)
def atan2(x: Any, y: Any) -> Any:
    """The angle of the point (y, x), x being the ordinate, in (-pi, pi]: float[*dims], float[*dims] -> float[*dims].  XLA: Atan2.

    Raises:
        DtypeError: the dtypes differ, or are not float.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("atan2", x, y, "f", "float")
    return lax.atan2(x, y)


def _logaddexp_complex(x: Any, y: Any) -> Any:
    less = lax.lt(lax.real(x), lax.real(y))
    small, big = lax.select(less, x, y), lax.select(less, y, x)
    low, high = lax.real(small), lax.real(big)
    result = lax.add(lax.log1p(lax.exp(lax.sub(small, big))), big)
    result = lax.select(lax.eq(lax.sub(low, high), like(low, -math.inf)), big, result)  # whatever the imaginary parts are
    endless = lax.bitwise_and(lax.eq(low, high), lax.eq(lax.abs(low), like(low, math.inf)))
    both = lax.select(lax.lt(low, like(low, 0)), small, lax.log(lax.add(lax.exp(small), lax.exp(big))))
    result = lax.select(endless, both, result)
    unknown = lax.bitwise_or(lax.ne(x, x), lax.ne(y, y))
    return lax.select(unknown, lax.full_like(x, complex(math.nan, math.nan)), result)


@op(samples=binary_samples(), dtypes=FLOAT + COMPLEX)
def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)) without overflow: float or complex[*dims], the same -> the same.  XLA: Exp, Log1p.

    The imaginary part of a complex result is counted from that of the operand with the larger real part, x of equal ones: it may lie
    beyond pi.

    Raises:
        DtypeError: the dtypes differ, or are neither float nor complex.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("logaddexp", x, y, "fc", "float or complex")
    dtype = x.dtype
    if kind(x) == "c":
        return _logaddexp_complex(x, y)
    x, y = _wide(x, y)
    apart = lax.sub(x, y)
    result = lax.add(lax.max(x, y), lax.log1p(lax.exp(lax.neg(lax.abs(apart)))))
    same = lax.add(x, like(x, math.log(2.0)))  # equal infinities have no difference
    return lax.convert_element_type(lax.select(lax.eq(x, y), same, result), dtype)


# ------------------------------------------------------------------ extremes and signs


@op(samples=binary_samples(), dtypes=ANY)
def maximum(x: Any, y: Any) -> Any:
    """The larger; NaN if either is NaN: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Maximum.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("maximum", x, y)
    return lax.max(x, y)


@op(samples=binary_samples(), dtypes=ANY)
def minimum(x: Any, y: Any) -> Any:
    """The smaller; NaN if either is NaN: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Minimum.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("minimum", x, y)
    return lax.min(x, y)


def _ignoring_nan(choose: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    if kind(x) not in "fc":
        return choose(x, y)
    return lax.select(lax.ne(x, x), y, lax.select(lax.ne(y, y), x, choose(x, y)))


@op(samples=binary_samples(), dtypes=ANY)
def fmax(x: Any, y: Any) -> Any:
    """The larger; the other if one is NaN: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Maximum, Select.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ignoring_nan(lax.max, *operands("fmax", x, y))


@op(samples=binary_samples(), dtypes=ANY)
def fmin(x: Any, y: Any) -> Any:
    """The smaller; the other if one is NaN: dtype[*dims], dtype[*dims] -> dtype[*dims].  XLA: Minimum, Select.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ignoring_nan(lax.min, *operands("fmin", x, y))


@op(samples=binary_samples(), dtypes=FLOAT)
def copysign(x: Any, y: Any) -> Any:
    """Elementwise x with the sign bit of y: float[*dims], float[*dims] -> float[*dims].  XLA: BitcastConvert, Negate, Select.

    Raises:
        DtypeError: the dtypes differ, or are not float.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("copysign", x, y, "f", "float")
    return lax.select(lax.ne(negative_bit(x), negative_bit(y)), lax.neg(x), x)


@op(samples=binary_samples(), dtypes=tuple(d for d in FLOAT if d.itemsize > 2))
def nextafter(x: Any, y: Any) -> Any:
    """The next number from x towards y: f32[*dims], f32[*dims] -> f32[*dims], and f64.  XLA: BitcastConvert, Add, Select.

    Raises:
        DtypeError: the dtypes differ, or are not float.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("nextafter", x, y, "f", "float")
    return lax.nextafter(x, y)


def _divisor_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype, -60, 60), numbers(rng, (4,), dtype, -60, 60)), {})
    yield Sample((np.array([0, 0, 12, 7, 120], dtype), np.array([0, 5, 18, 0, 96], dtype)), {})
    yield Sample((numbers(rng, (0, 2), dtype), numbers(rng, (2,), dtype)), {})


@op(samples=_divisor_samples, dtypes=INT)
def gcd(x: Any, y: Any) -> Any:
    """The greatest common divisor: integer[*dims], integer[*dims] -> the same; that of 0 and 0 is 0.

    Not negative, but for the one magnitude that the dtype has not, as in NumPy.  XLA: While.

    Raises:
        DtypeError: the dtypes differ, or are not integer.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("gcd", x, y, "iu", "integers")
    unsigned = np.dtype(f"u{x.dtype.itemsize}")  # the magnitude of the lowest integer exists there only
    a, b = (lax.convert_element_type(v if v.dtype.kind == "u" else lax.abs(v), unsigned) for v in (x, y))
    none = like(b, 0)

    def more(pair: tuple[Any, Any]) -> Any:
        return lax.reduce_or(lax.ne(pair[1], none), tuple(range(none.ndim)))

    def step(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        done = lax.eq(pair[1], none)
        rest = lax.rem(pair[0], lax.select(done, like(none, 1), pair[1]))
        return lax.select(done, pair[0], pair[1]), lax.select(done, none, rest)

    return lax.convert_element_type(lax.while_loop(more, step, (a, b))[0], x.dtype)


# ------------------------------------------------------------------ bits


@op(samples=binary_samples(), dtypes=INT + BOOL)
def bitwise_and(x: Any, y: Any) -> Any:
    """Elementwise x & y: integer or bool[*dims], the same -> the same.  XLA: And.

    Raises:
        DtypeError: the dtypes differ, or are float or complex.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_and(*operands("bitwise_and", x, y, "biu", "integers or bool"))


@op(samples=binary_samples(), dtypes=INT + BOOL)
def bitwise_or(x: Any, y: Any) -> Any:
    """Elementwise x | y: integer or bool[*dims], the same -> the same.  XLA: Or.

    Raises:
        DtypeError: the dtypes differ, or are float or complex.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_or(*operands("bitwise_or", x, y, "biu", "integers or bool"))


@op(samples=binary_samples(), dtypes=INT + BOOL)
def bitwise_xor(x: Any, y: Any) -> Any:
    """Elementwise x ^ y: integer or bool[*dims], the same -> the same.  XLA: Xor.

    Raises:
        DtypeError: the dtypes differ, or are float or complex.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_xor(*operands("bitwise_xor", x, y, "biu", "integers or bool"))


def _shift_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype, -100, 100), numbers(rng, (4,), dtype, 0, 7)), {})
    yield Sample((numbers(rng, (3,), dtype, -100, 100), np.array([0, 8, 100], dtype)), {})


@op(samples=_shift_samples, dtypes=INT)
def shift_left(x: Any, y: Any) -> Any:
    """Elementwise x << y, zero past the width: integer[*dims], integer[*dims] -> integer[*dims].  XLA: ShiftLeft.

    Raises:
        DtypeError: the dtypes differ, or are not integers.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.shift_left(*operands("shift_left", x, y, "iu", "integers"))


@op(samples=_shift_samples, dtypes=INT)
def shift_right(x: Any, y: Any) -> Any:
    """Elementwise x >> y, filled with the sign: integer[*dims], integer[*dims] -> integer[*dims].

    XLA: ShiftRightArithmetic, ShiftRightLogical.

    Raises:
        DtypeError: the dtypes differ, or are not integers.
        ShapeError: the dims cannot be broadcast.
    """
    x, y = operands("shift_right", x, y, "iu", "integers")
    return lax.shift_right_logical(x, y) if kind(x) == "u" else lax.shift_right_arithmetic(x, y)
