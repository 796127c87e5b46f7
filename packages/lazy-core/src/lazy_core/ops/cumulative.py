"""Running sums, products and extremes along a dim.

Owns: prefix scans.  16-bit floats are accumulated in f32.  Imports the registry, logaddexp and jax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError
from .arithmetic import kind, like
from .binary import logaddexp
from .reductions import wide
from .registry import BOOL, COMPLEX, FLOAT, NUMBER, REAL, Sample, axis_of, describe, numbers, op


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, axis in (((7,), 0), ((3, 4), 0), ((2, 3, 4), -1), ((0, 3), 0)):
        yield Sample((numbers(rng, dims, dtype, -2, 2),), {"axis": axis})


def _nan_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(dtype, rng)
    if dtype.kind not in "biuc":
        yield Sample((np.array([1, 3, 2, np.nan, 5, 3, 3, np.nan], np.float64).astype(dtype),), {"axis": 0})


def _prefix(scan: Callable[..., Any], combine: Callable[..., Any], x: Any, axis: int) -> Any:
    """A prefix scan.

    Integers go through the associative scan: jaxlib 0.10 dies in the compiler where a bitwise operation follows a narrowing
    cast of its reduce-window (`tests/test_ops_properties.py` holds the case).
    """
    if x.shape[axis] and kind(x) in "iu":
        return lax.associative_scan(combine, x, axis=axis)
    return scan(x, axis=axis)


def _scan(name: str, scan: Callable[..., Any], combine: Callable[..., Any], x: Any, axis: int) -> Any:
    if kind(x) == "b":
        raise DtypeError(f"{name}({describe(x)}): expected numbers; convert to an integer dtype first")
    return lax.convert_element_type(_prefix(scan, combine, wide(x), axis_of(name, axis, x.ndim)), x.dtype)


@op(samples=_samples, dtypes=NUMBER)
def cumsum(x: Any, *, axis: int) -> Any:
    """The sums of what is up to each place; integers wrap: number[*dims] -> the same.  XLA: a tree of Adds.

    Attributes: axis.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is bool.
    """
    return _scan("cumsum", lax.cumsum, lax.add, x, axis)


@op(samples=_samples, dtypes=NUMBER)
def cumprod(x: Any, *, axis: int) -> Any:
    """The products of what is up to each place; integers wrap: number[*dims] -> the same.  XLA: a tree of Multiplies.

    Attributes: axis.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is bool.
    """
    return _scan("cumprod", lax.cumprod, lax.mul, x, axis)


def _infinite_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(dtype, rng)
    yield Sample((np.array([-np.inf, -np.inf, 900, 1, -np.inf, 901], np.float64).astype(dtype),), {"axis": 0})
    yield Sample((np.array([3, np.inf, 2, np.nan, 1], np.float64).astype(dtype),), {"axis": 0})


@op(samples=_infinite_samples, dtypes=FLOAT + COMPLEX)
def logcumsumexp(x: Any, *, axis: int) -> Any:
    """The logarithms of the sums of exponentials of what is up to each place: float or complex[*dims] -> the same.

    Complex numbers are added one after the other by `logaddexp`, from one place to the next: imaginary parts go on beyond pi.

    Attributes: axis.  XLA: a tree of Exps and Log1ps; for complex numbers a While.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is neither float nor complex.
    """
    if kind(x) not in "fc":
        raise DtypeError(f"logcumsumexp({describe(x)}): expected float or complex numbers; convert first")
    axis = axis_of("logcumsumexp", axis, x.ndim)
    if x.shape[axis] == 0:
        return x
    if kind(x) == "f":
        return lax.convert_element_type(lax.associative_scan(logaddexp.fn, wide(x), axis=axis), x.dtype)

    def step(total: Any, value: Any) -> tuple[Any, Any]:
        total = logaddexp.fn(value, total)
        return total, total

    rows = jnp.moveaxis(x, axis, 0)
    return jnp.moveaxis(lax.scan(step, jnp.full_like(rows[0], -np.inf), rows)[1], 0, axis)


def _extreme(name: str, scan: Callable[..., Any], combine: Callable[..., Any], x: Any, axis: int) -> tuple[Any, Any]:
    if kind(x) == "c":
        raise DtypeError(f"{name}({describe(x)}): complex numbers have no order here; take abs or real first")
    axis = axis_of(name, axis, x.ndim)
    values = lax.convert_element_type(x, np.uint8) if kind(x) == "b" else x
    best = _prefix(scan, combine, values, axis)
    hit = lax.eq(values, best)
    if kind(x) == "f":
        hit = lax.bitwise_or(hit, lax.ne(x, x))
    place = lax.broadcasted_iota(np.dtype(np.int64), x.shape, axis)
    places = _prefix(lax.cummax, lax.max, lax.select(hit, place, like(place, 0)), axis)
    return lax.convert_element_type(best, x.dtype), places


@op(samples=_nan_samples, dtypes=REAL + BOOL)
def cummax(x: Any, *, axis: int) -> Any:
    """The largest up to each place and the last position of it; NaN from the first NaN on: real[*dims] -> real[*dims], s64[*dims].

    Attributes: axis.  XLA: a tree of Maximums.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is complex.
    """
    return _extreme("cummax", lax.cummax, lax.max, x, axis)


@op(samples=_nan_samples, dtypes=REAL + BOOL)
def cummin(x: Any, *, axis: int) -> Any:
    """The smallest up to each place and the last position of it; NaN from the first NaN on: real[*dims] -> real[*dims], s64[*dims].

    Attributes: axis.  XLA: a tree of Minimums.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is complex.
    """
    return _extreme("cummin", lax.cummin, lax.min, x, axis)
