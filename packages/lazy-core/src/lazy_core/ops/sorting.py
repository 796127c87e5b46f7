"""Sorting and what follows from it.

Owns: sorts along a dim.  NaN counts as the largest number, -0.0 equals 0.0.  Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .registry import BOOL, REAL, Sample, axis_of, describe, numbers, op, same_dtype


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, axis in (((6,), 0), ((3, 5), 0), ((2, 3, 4), -1)):
        for descending in (False, True):
            yield Sample((numbers(rng, dims, dtype, -9, 9),), {"axis": axis, "descending": descending, "stable": True})
    if dtype.kind not in "biuc":
        yield Sample(
            (np.array([3, np.nan, -np.inf, 1, np.inf, 3], np.float64).astype(dtype),), {"axis": 0, "descending": False, "stable": True}
        )


def _arg_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for args, attributes in _samples(dtype, rng):
        yield Sample(args, {**attributes, "dtype": np.dtype(np.int64)})


def _sorted(x: Any, axis: int, descending: bool, stable: bool, indices: bool) -> tuple[Any, ...]:
    """Sorted values and, where wanted, s32 or s64 positions."""
    if descending:  # from the back, so that equal elements keep their order once reversed
        x = lax.rev(x, (axis,))
    operands = [lax.convert_element_type(x, np.uint8) if kind(x) == "b" else x]
    size = x.shape[axis]
    if indices:
        counter = np.dtype(np.int32 if size < 1 << 31 else np.int64)
        places = lax.broadcasted_iota(counter, x.shape, axis)
        operands.append(lax.sub(lax.full(x.shape, size - 1, counter), places) if descending else places)
    found = lax.sort(operands, dimension=axis, is_stable=stable or indices, num_keys=1)
    results = [lax.convert_element_type(found[0], x.dtype), *found[1:]]
    return tuple([lax.rev(r, (axis,)) for r in results] if descending else results)


def _checked(name: str, x: Any, axis: int) -> int:
    return axis_of(name, axis, x.ndim)


@op(samples=_samples)
def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    """In order along a dim, NaN as the largest: dtype[*dims] -> the same.  XLA: Sort.

    Attributes: axis; descending; stable, equal elements keep their order.

    Raises:
        ShapeError: the axis is out of bounds.
    """
    return _sorted(x, _checked("sort", x, axis), descending, stable, False)[0]


@op(samples=_arg_samples)
def argsort(x: Any, *, axis: int, descending: bool, stable: bool, dtype: np.dtype) -> Any:
    """The positions in sorted order along a dim: dtype[*dims] -> integer[*dims].  XLA: Sort of pairs.

    Attributes: as for sort; dtype of the result.

    Raises:
        ShapeError: the axis is out of bounds.
    """
    return lax.convert_element_type(_sorted(x, _checked("argsort", x, axis), descending, stable, True)[1], np.dtype(dtype))


@op(samples=_samples)
def sort_with_indices(x: Any, *, axis: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    """In order along a dim, and where each element was: dtype[*dims] -> dtype[*dims], s64[*dims].  XLA: Sort of pairs.

    Attributes: as for sort.

    Raises:
        ShapeError: the axis is out of bounds.
    """
    found, places = _sorted(x, _checked("sort_with_indices", x, axis), descending, stable, True)
    return found, lax.convert_element_type(places, np.int64)


def _topk_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = np.argsort(rng.standard_normal((3, 6)), axis=1).astype(dtype)
    for k, axis, largest in ((2, 1, True), (3, -1, False), (1, 0, True)):
        yield Sample(
            (x if axis else np.argsort(rng.standard_normal((6, 3)), axis=0).astype(dtype),), {"k": k, "axis": axis, "largest": largest}
        )


@op(samples=_topk_samples, dtypes=REAL)
def topk(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    """The k largest or smallest along a dim, best first, and where they were: dtype[..,n,..] -> dtype[..,k,..], s64[..,k,..].

    Attributes: k; axis; largest.  NaN counts as the largest; of equal elements the first comes first.  XLA: Sort of pairs, Slice.

    Raises:
        ShapeError: the axis is out of bounds, or k is larger than the dim.
    """
    axis = axis_of("topk", axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"topk({describe(x)}) with k={k} along axis {axis}: expected 0 <= k <= {x.shape[axis]}")
    found, places = _sorted(x, axis, largest, True, True)
    return lax.slice_in_dim(found, 0, k, axis=axis), lax.convert_element_type(lax.slice_in_dim(places, 0, k, axis=axis), np.int64)


def _search_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    ordered = np.sort(numbers(rng, (7,), dtype, -9, 9))
    for side in ("left", "right"):
        yield Sample((ordered, numbers(rng, (2, 3), dtype, -9, 9)), {"side": side})
        yield Sample((ordered, ordered[2:4]), {"side": side})


@op(samples=_search_samples, dtypes=REAL + BOOL)
def searchsorted(ordered: Any, v: Any, *, side: str) -> Any:
    """Where each of v belongs in an ascending vector: dtype[n], dtype[*dims] -> s64[*dims].  XLA: a loop of Gathers.

    Attributes: side, "left" of equal elements or "right".

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the first operand is not a vector, or side is another.
    """
    same_dtype("searchsorted", ordered, v)
    if ordered.ndim != 1 or side not in ("left", "right"):
        raise ShapeError(f"searchsorted({describe(ordered, v)}) on side {side!r}: expected a vector first, and side 'left' or 'right'")
    if kind(ordered) == "c":
        raise DtypeError(f"searchsorted({describe(ordered, v)}): complex numbers are not searched; take real or abs first")
    return lax.convert_element_type(jnp.searchsorted(ordered, v, side=side), np.int64)
