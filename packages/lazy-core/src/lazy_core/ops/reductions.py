"""Reductions over dims.

Owns: sums, products, extremes, their positions, means and variances.  The result's dtype is the operand's (widening `cumsum(int32)` or
`sum(bool)` is the frontend's promotion), but 16-bit floats are accumulated in f32.  Imports the registry and jax's lax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind, like
from .compare import truth
from .registry import ANY, BOOL, COMPLEX, FLOAT, INT, NUMBER, REAL, Sample, axes_of, axis_of, describe, numbers, op

Axes = Sequence[int]


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, axes, keepdims in (
        ((3, 4), (0,), False),
        ((3, 4), (0, 1), False),
        ((2, 3, 4), (0, 2), True),
        ((2, 3), (-1,), True),
        ((5,), (), False),
        ((), (), False),
    ):
        yield Sample((numbers(rng, dims, dtype, -2, 2),), {"axes": axes, "keepdims": keepdims})


def _empty_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(dtype, rng)
    yield Sample((np.zeros((0, 3), dtype),), {"axes": (0,), "keepdims": False})


def _nan_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(dtype, rng)
    if dtype.kind not in "biuc":
        yield Sample((np.array([[1, np.nan], [3, 4]], np.float64).astype(dtype),), {"axes": (1,), "keepdims": False})


def kept(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The result of a reduction with its dims put back as ones where wanted."""
    return lax.expand_dims(x, axes) if keepdims else x


def wide(x: Any) -> Any:
    """16-bit floats as f32, to be accumulated."""
    return lax.convert_element_type(x, np.float32) if kind(x) == "f" and x.dtype.itemsize == 2 else x


def _fold(name: str, reduce: Callable[..., Any], x: Any, axes: Axes, keepdims: bool) -> Any:
    """A reduction in a dtype wide enough, back in the operand's."""
    if kind(x) == "b":
        raise DtypeError(f"{name}({describe(x)}): expected numbers; convert to an integer dtype first")
    found = axes_of(name, axes, x.ndim)
    return kept(lax.convert_element_type(reduce(wide(x), found), x.dtype), found, keepdims)


@op(samples=_empty_samples, dtypes=NUMBER, name="sum")
def sum_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """The sum over dims, 0 of none; integers wrap: number[*dims] -> number[*dims without axes].  XLA: Reduce(Add).

    Attributes: axes, none of them twice, () reduces nothing; keepdims, reduced dims stay as 1.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
        DtypeError: x is bool.
    """
    return _fold("sum", lax.reduce_sum, x, axes, keepdims)


@op(samples=_empty_samples, dtypes=NUMBER)
def prod(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """The product over dims, 1 of none; integers wrap: number[*dims] -> number[*dims without axes].  XLA: Reduce(Multiply).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
        DtypeError: x is bool.
    """
    return _fold("prod", lax.reduce_prod, x, axes, keepdims)


def _not_empty(name: str, x: Any, axes: tuple[int, ...]) -> None:
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{name}({describe(x)}) over axes {axes}: an empty set of numbers has no {name}; reduce dims that are not 0")


@op(samples=_nan_samples, dtypes=ANY, name="max")
def max_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """The largest over dims; NaN if any is NaN: dtype[*dims] -> dtype[*dims without axes].  XLA: Reduce(Maximum).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds, named twice, or of size 0.
    """
    found = axes_of("max", axes, x.ndim)
    _not_empty("max", x, found)
    return kept(lax.reduce_max(x, found), found, keepdims)


@op(samples=_nan_samples, dtypes=ANY, name="min")
def min_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """The smallest over dims; NaN if any is NaN: dtype[*dims] -> dtype[*dims without axes].  XLA: Reduce(Minimum).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds, named twice, or of size 0.
    """
    found = axes_of("min", axes, x.ndim)
    _not_empty("min", x, found)
    return kept(lax.reduce_min(x, found), found, keepdims)


@op(samples=_empty_samples, dtypes=ANY, name="all")
def all_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Whether every element is nonzero, true of none: dtype[*dims] -> pred[*dims without axes].  XLA: Reduce(And).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
    """
    found = axes_of("all", axes, x.ndim)
    return kept(lax.reduce_and(truth(x), found), found, keepdims)


@op(samples=_empty_samples, dtypes=ANY, name="any")
def any_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Whether some element is nonzero, false of none: dtype[*dims] -> pred[*dims without axes].  XLA: Reduce(Or).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
    """
    found = axes_of("any", axes, x.ndim)
    return kept(lax.reduce_or(truth(x), found), found, keepdims)


@op(samples=_empty_samples, dtypes=INT + BOOL)
def reduce_xor(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Bits that are set in an odd number of elements: integer or bool[*dims] -> the same[*dims without axes].  XLA: Reduce(Xor).

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
        DtypeError: x is float or complex.
    """
    if kind(x) not in "biu":
        raise DtypeError(f"reduce_xor({describe(x)}): expected integers or bool; use bitcast on others")
    found = axes_of("reduce_xor", axes, x.ndim)
    return kept(lax.reduce_xor(x, found), found, keepdims)


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


@op(samples=_empty_samples, dtypes=FLOAT + COMPLEX)
def mean(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """The mean over dims, NaN of none: float or complex[*dims] -> the same[*dims without axes].  XLA: Reduce(Add), Divide.

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
        DtypeError: x is not float or complex.
    """
    if kind(x) not in "fc":
        raise DtypeError(f"mean({describe(x)}): expected float or complex; convert first")
    found = axes_of("mean", axes, x.ndim)
    total = lax.reduce_sum(wide(x), found)
    return kept(lax.convert_element_type(lax.div(total, like(total, _count(x, found))), x.dtype), found, keepdims)


def _var_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for correction in (0.0, 1.0):
        yield Sample((numbers(rng, (3, 4), dtype),), {"axes": (1,), "keepdims": False, "correction": correction})
    yield Sample((numbers(rng, (2, 3, 4), dtype),), {"axes": (0, 2), "keepdims": True, "correction": 1.0})
    yield Sample((numbers(rng, (1, 3), dtype),), {"axes": (0,), "keepdims": False, "correction": 1.0})


@op(samples=_var_samples, dtypes=FLOAT + COMPLEX)
def var(x: Any, *, axes: Axes, keepdims: bool, correction: float) -> Any:
    """The variance over dims, in two passes: float[*dims] -> float[*dims without axes].

    Of complex numbers it is real: the mean squared distance.

    Attributes: as for sum; correction, taken from the count in the divisor, which is at least 0.  XLA: Reduce(Add), Divide.

    Raises:
        ShapeError: an axis is out of bounds or named twice.
        DtypeError: x is not float or complex.
    """
    if kind(x) not in "fc":
        raise DtypeError(f"var({describe(x)}): expected float or complex; convert first")
    found = axes_of("var", axes, x.ndim)
    values, count = wide(x), _count(x, found)
    total = lax.expand_dims(lax.reduce_sum(values, found), found)
    apart = lax.sub(values, lax.broadcast_in_dim(lax.div(total, like(total, count)), x.shape, tuple(range(x.ndim))))
    squares = lax.add(lax.square(lax.real(apart)), lax.square(lax.imag(apart))) if kind(x) == "c" else lax.square(apart)
    result = lax.reduce_sum(squares, found)
    result = lax.div(result, like(result, max(count - correction, 0.0)))
    return kept(result if kind(x) == "c" else lax.convert_element_type(result, x.dtype), found, keepdims)


def _logsumexp_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(dtype, rng)
    yield Sample((np.array([[-np.inf, -np.inf], [1000, 1000], [np.inf, 1]], np.float64).astype(dtype),), {"axes": (1,), "keepdims": False})


@op(samples=_logsumexp_samples, dtypes=FLOAT)
def logsumexp(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """log(sum(exp(x))) without overflow: float[*dims] -> float[*dims without axes].  XLA: Reduce, Exp, Log.

    Attributes: as for sum.

    Raises:
        ShapeError: an axis is out of bounds, named twice, or of size 0.
        DtypeError: x is not float.
    """
    found = axes_of("logsumexp", axes, x.ndim)
    _not_empty("logsumexp", x, found)
    values = wide(x)
    top = lax.reduce_max(values, found)
    top = lax.select(lax.is_finite(top), top, like(top, 0))
    shifted = lax.sub(values, lax.broadcast_in_dim(lax.expand_dims(top, found), x.shape, tuple(range(x.ndim))))
    result = lax.add(lax.log(lax.reduce_sum(lax.exp(shifted), found)), top)
    return kept(lax.convert_element_type(result, x.dtype), found, keepdims)


# ------------------------------------------------------------------ positions


def _arg_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    index = np.dtype(np.int64)
    for dims, axis, keepdims in (((3, 4), 0, False), ((3, 4), 1, True), ((2, 3, 4), -2, False), ((5,), 0, False)):
        yield Sample((numbers(rng, dims, dtype, -2, 2),), {"axis": axis, "keepdims": keepdims, "dtype": index})
    if dtype.kind not in "biuc":
        yield Sample(
            (np.array([[1, np.nan, np.nan], [2, 3, 3]], np.float64).astype(dtype),), {"axis": 1, "keepdims": False, "dtype": index}
        )


def _position(name: str, reduce: Callable[..., Any], x: Any, axis: int, keepdims: bool, dtype: np.dtype) -> Any:
    # Two plain reductions, which XLA vectorises, where its own argmax is a reduction of pairs.
    if kind(x) == "c":
        raise DtypeError(f"{name}({describe(x)}): complex numbers have no order here; take abs or real first")
    axis = axis_of(name, axis, x.ndim)
    _not_empty(name, x, (axis,))
    best = lax.expand_dims(reduce(x, (axis,)), (axis,))
    hit = lax.eq(x, lax.broadcast_in_dim(best, x.shape, tuple(range(x.ndim))))
    if kind(x) == "f":
        hit = lax.bitwise_or(hit, lax.ne(x, x))
    counter = np.dtype(np.int32 if x.shape[axis] < 1 << 31 else np.int64)
    places = lax.select(hit, lax.broadcasted_iota(counter, x.shape, axis), lax.full(x.shape, x.shape[axis] - 1, counter))
    return kept(lax.convert_element_type(lax.reduce_min(places, (axis,)), np.dtype(dtype)), (axis,), keepdims)


@op(samples=_arg_samples, dtypes=REAL + BOOL)
def argmax(x: Any, *, axis: int, keepdims: bool, dtype: np.dtype) -> Any:
    """The first position of the largest along a dim, of the first NaN if there is one: real[*dims] -> integer[*dims without axis].

    Attributes: axis; keepdims; dtype of the result.  XLA: Reduce(Maximum), Compare, Reduce(Minimum).

    Raises:
        ShapeError: the axis is out of bounds or of size 0.
        DtypeError: x is complex.
    """
    return _position("argmax", lax.reduce_max, x, axis, keepdims, dtype)


@op(samples=_arg_samples, dtypes=REAL + BOOL)
def argmin(x: Any, *, axis: int, keepdims: bool, dtype: np.dtype) -> Any:
    """The first position of the smallest along a dim, of the first NaN if there is one: real[*dims] -> integer[*dims without axis].

    Attributes: axis; keepdims; dtype of the result.  XLA: Reduce(Minimum), Compare.

    Raises:
        ShapeError: the axis is out of bounds or of size 0.
        DtypeError: x is complex.
    """
    return _position("argmin", lax.reduce_min, x, axis, keepdims, dtype)
