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


@kernel("sort")
def sort(x: Array, *, axis: int, descending: bool, stable: bool) -> Array:
    """Stable only where equal elements can be told apart: -0.0 and 0.0, and NaNs."""
    values = _plain(x)
    how: Any = "stable" if stable and values.dtype.kind in "fc" else "quicksort"
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
    """The first k in order."""
    key = (slice(None),) * (axis % x.ndim) + (slice(0, k),)
    places = np.ascontiguousarray(_order(x, axis, largest)[key])
    return np.take_along_axis(x, places, axis), places


@kernel("searchsorted")
def searchsorted(ordered: Array, v: Array, *, side: Any) -> Array:
    """NumPy's binary search."""
    return np.asarray(np.searchsorted(_plain(ordered), _plain(v), side)).astype(INT64, copy=False)
