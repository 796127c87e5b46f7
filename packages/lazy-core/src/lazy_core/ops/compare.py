"""Comparisons, logic, selection and conversion, element by element.

Owns: what yields or takes bools, and casts with the C rules that NumPy has on x86.  Imports the registry and jax's lax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..deferred import lax
from ..errors import DtypeError
from .arithmetic import kind, like
from .binary import operands
from .registry import ANY, REAL, Sample, align, binary_samples, describe, numbers, op, same_dtype


def _ordered(name: str, compare: Callable[[Any, Any], Any], strict: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    x, y = operands(name, x, y)
    if kind(x) != "c":
        return compare(x, y)
    first, second = (lax.real(x), lax.real(y)), (lax.imag(x), lax.imag(y))  # complex numbers in lexicographic order
    return lax.bitwise_or(strict(*first), lax.bitwise_and(lax.eq(*first), compare(*second)))


@op(samples=binary_samples(), dtypes=ANY)
def eq(x: Any, y: Any) -> Any:
    """Elementwise x == y: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.eq(*operands("eq", x, y))


@op(samples=binary_samples(), dtypes=ANY)
def ne(x: Any, y: Any) -> Any:
    """Elementwise x != y, true of NaN: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return lax.ne(*operands("ne", x, y))


@op(samples=binary_samples(), dtypes=ANY)
def lt(x: Any, y: Any) -> Any:
    """Elementwise x < y; complex numbers in lexicographic order: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ordered("lt", lax.lt, lax.lt, x, y)


@op(samples=binary_samples(), dtypes=ANY)
def le(x: Any, y: Any) -> Any:
    """Elementwise x <= y; complex numbers in lexicographic order: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ordered("le", lax.le, lax.lt, x, y)


@op(samples=binary_samples(), dtypes=ANY)
def gt(x: Any, y: Any) -> Any:
    """Elementwise x > y; complex numbers in lexicographic order: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ordered("gt", lax.gt, lax.gt, x, y)


@op(samples=binary_samples(), dtypes=ANY)
def ge(x: Any, y: Any) -> Any:
    """Elementwise x >= y; complex numbers in lexicographic order: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Compare.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    return _ordered("ge", lax.ge, lax.gt, x, y)


# ------------------------------------------------------------------ logic


def truth(x: Any) -> Any:
    """Elementwise x != 0, of any dtype; NaN is true."""
    return x if kind(x) == "b" else lax.ne(x, like(x, 0))


@op(samples=binary_samples(), dtypes=ANY)
def logical_and(x: Any, y: Any) -> Any:
    """Whether both are nonzero, of any dtypes: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: And.

    Raises:
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_and(*align("logical_and", truth(x), truth(y)))


@op(samples=binary_samples(), dtypes=ANY)
def logical_or(x: Any, y: Any) -> Any:
    """Whether either is nonzero, of any dtypes: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Or.

    Raises:
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_or(*align("logical_or", truth(x), truth(y)))


@op(samples=binary_samples(), dtypes=ANY)
def logical_xor(x: Any, y: Any) -> Any:
    """Whether exactly one is nonzero, of any dtypes: dtype[*dims], dtype[*dims] -> pred[*dims].  XLA: Xor.

    Raises:
        ShapeError: the dims cannot be broadcast.
    """
    return lax.bitwise_xor(*align("logical_xor", truth(x), truth(y)))


# ------------------------------------------------------------------ selection


def _where_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for pred, x, y in (((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), ()), ((), (2, 2), (2, 2)), ((0, 2), (2,), ())):
        yield Sample((numbers(rng, pred, bool), numbers(rng, x, dtype), numbers(rng, y, dtype)), {})


@op(samples=_where_samples)
def where(pred: Any, x: Any, y: Any) -> Any:
    """Elementwise x where pred is true, else y: pred[*dims], dtype[*dims], dtype[*dims] -> dtype[*dims], all broadcast.  XLA: Select.

    Raises:
        DtypeError: pred is not bool, or the dtypes of x and y differ.
        ShapeError: the dims cannot be broadcast.
    """
    if kind(pred) != "b":
        raise DtypeError(f"where({describe(pred, x, y)}): the first operand must be bool; compare it with zero first")
    same_dtype("where", x, y)
    return lax.select(*align("where", pred, x, y))


def _clip_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype), np.array(1, dtype), np.array(2, dtype)), {})
    yield Sample((numbers(rng, (3, 4), dtype), numbers(rng, (4,), dtype, -1, 0), numbers(rng, (3, 1), dtype, 1, 2)), {})


@op(samples=_clip_samples, dtypes=REAL)
def clip(x: Any, lo: Any, hi: Any) -> Any:
    """min(max(x, lo), hi); hi where lo > hi, NaN where any is NaN: real[*dims] three times -> real[*dims], all broadcast.

    XLA: Maximum, Minimum.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the dims cannot be broadcast.
    """
    same_dtype("clip", x, lo, hi)
    x, lo, hi = align("clip", x, lo, hi)
    return lax.min(lax.max(x, lo), hi)


# ------------------------------------------------------------------ conversion


def _convert_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for to in ("bool", "int32", "int64", "uint8", "float32", "float64"):
        yield Sample((numbers(rng, (3, 4), dtype, 0, 4),), {"dtype": np.dtype(to)})
    if dtype.kind == "f":
        far = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.7, -1.5, -0.0], np.float64).clip(-6e4, 6e4) if dtype.itemsize == 2 else None
        far = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e19, 300.7, -1.5], np.float64) if far is None else far
        for to in ("int32", "int64"):
            yield Sample((far.astype(dtype),), {"dtype": np.dtype(to)})
    if dtype.kind != "u":
        yield Sample((numbers(rng, (4,), dtype),), {"dtype": np.dtype("complex64")})


@op(samples=_convert_samples)
def convert(x: Any, *, dtype: np.dtype) -> Any:
    """A cast with the rules of C on x86: dtype[*dims] -> another dtype[*dims].

    Integers wrap; floats lose their fraction, and become the smallest integer of the width that the processor converts to (32 bits for
    narrower dtypes, 64 for u32) where they do not fit; complex numbers lose their imaginary part; bool is x != 0.

    Attributes: dtype.  XLA: Convert, and Compare and Select from float to integer.
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return truth(x)
    if kind(x) == "c" and dtype.kind != "c":
        return convert.fn(lax.real(x), dtype=dtype)
    if kind(x) == "f" and dtype.kind in "iu":
        return _float_to_integer(x, dtype)
    return lax.convert_element_type(x, dtype)


def _float_to_integer(x: Any, dtype: np.dtype) -> Any:
    name = "int64" if dtype.itemsize == 8 or dtype == np.uint32 else "int32"
    limit = 2.0 ** (63 if name == "int64" else 31)
    if x.dtype == np.float16:
        x = lax.convert_element_type(x, np.float32)
    if dtype == np.uint64:  # the upper half goes through the lower one
        big = lax.ge(x, like(x, limit))
        low = _truncated(lax.select(big, lax.sub(x, like(x, limit)), x), name, limit)
        result = lax.convert_element_type(low, dtype)
        return lax.select(big, lax.bitwise_xor(result, like(result, 1 << 63)), result)
    return lax.convert_element_type(_truncated(x, name, limit), dtype)


def _truncated(x: Any, name: str, limit: float) -> Any:
    """A float as s32 or s64, the smallest of them where it does not fit; XLA's conversion saturates, which gives that below."""
    whole = lax.convert_element_type(x, np.dtype(name))
    return lax.select(lax.lt(x, like(x, limit)), whole, lax.full(x.shape, np.iinfo(name).min, np.dtype(name)))


def _bitcast_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype),), {"dtype": np.dtype(f"uint{8 * dtype.itemsize}")})


@op(samples=_bitcast_samples, dtypes=REAL)
def bitcast(x: Any, *, dtype: np.dtype) -> Any:
    """The same bits under another dtype: dtype[*dims] -> another dtype[*dims]; a last dim appears or goes where widths differ.

    Attributes: dtype.  XLA: BitcastConvert.

    Raises:
        ShapeError: narrow elements do not fill whole wide ones.
        DtypeError: bool or complex.
    """
    return lax.bitcast_convert_type(x, np.dtype(dtype))
