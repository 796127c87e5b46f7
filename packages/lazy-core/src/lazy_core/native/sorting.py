"""Kernels of sorts along a dim: the family `sorting`.

Owns: NumPy's sorts, which put NaN last as the operations do; the floats of ml_dtypes are sorted as f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import F32, INT64, Array, extension, kernel


def _plain(x: Array) -> Array:
    return x.astype(F32) if extension(x.dtype) else x


def _order(x: Array, axis: int, descending: bool) -> Array:
    """The positions in sorted order: of equal elements the first comes first, both ways."""
    values = _plain(x)
    if not descending:
        return np.argsort(values, axis, kind="stable")
    found: Array = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(values, axis), axis, kind="stable"), axis)
    return found


def _distinguishable(values: Array) -> bool:
    """Whether equal elements may look different: -0.0 and 0.0, or complex numbers made of them."""
    kind = values.dtype.kind
    return bool(kind == "c" or (kind == "f" and np.any(np.equal(values, 0) & np.signbit(values))))


@kernel("sort")
def sort(x: Array, *, axis: int, descending: bool, stable: bool) -> Array:
    """Stable only where equal elements can be told apart: NumPy's other sort is many times faster."""
    values = _plain(x)
    how: Any = "stable" if stable and _distinguishable(values) else "quicksort"
    if not descending:
        return np.sort(values, axis, kind=how).astype(x.dtype, copy=False)
    return np.flip(np.sort(np.flip(values, axis), axis, kind=how), axis).astype(x.dtype, copy=False)


@kernel("argsort")
def argsort(x: Array, *, axis: int, descending: bool, stable: bool, dtype: np.dtype) -> Array:
    """Stable always."""
    return _order(x, axis, descending).astype(dtype, copy=False)


@kernel("sort_with_indices")
def sort_with_indices(x: Array, *, axis: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    """The elements in the order of their positions."""
    places = _order(x, axis, descending)
    return np.take_along_axis(x, places, axis), places


@kernel("topk")
def topk(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """The first k in order; of a long dim the k best are singled out before they are sorted."""
    places = _best(_plain(x), k, axis, largest) if 0 < k <= x.shape[axis] // 8 else None
    if places is None:
        key = (slice(None),) * (axis % x.ndim) + (slice(0, k),)
        places = np.ascontiguousarray(_order(x, axis, largest)[key])
    return np.take_along_axis(x, places, axis), places


def _best(values: Array, k: int, axis: int, largest: bool) -> Array:
    """The positions of the k best in order, or None where the last of them ties with one that was left out."""
    last = values.shape[axis] - k if largest else k - 1
    chosen = slice(last, None) if largest else slice(0, k)
    places = np.argpartition(values, last, axis)[(slice(None),) * (axis % values.ndim) + (chosen,)]
    places = np.sort(places, axis)  # equal elements in their own order
    found = np.take_along_axis(values, places, axis)
    order = _order(found, axis, largest)
    worst = np.take_along_axis(found, np.take(order, [k - 1], axis), axis)
    if values.dtype.kind == "f" and np.isnan(worst).any():
        return None
    if np.any(np.sum(values == worst, axis) != np.sum(found == worst, axis)):
        return None
    return np.take_along_axis(places, order, axis)


@kernel("searchsorted")
def searchsorted(ordered: Array, v: Array, *, side: Any) -> Array:
    """NumPy's binary search."""
    return np.asarray(np.searchsorted(_plain(ordered), _plain(v), side)).astype(INT64, copy=False)
