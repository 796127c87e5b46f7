"""Sorting, searching and order statistics.

Owns: `np.sort` to `np.searchsorted`.  May import `base`, lazy_core's ops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const

from .. import dtypes
from ..fallback import NotLowered
from ..tensor import ndarray, wrap, wrap_any
from . import ranges, shapes
from .base import array, axis_index, lowers, recorded, store


@recorded("numpy.sort")
def _sort(x: Any, *, axis: int, positions: bool) -> Any:
    if positions:
        return ops.argsort(x, axis=axis, descending=False, stable=True, dtype=dtypes.INTP)
    return ops.sort(x, axis=axis, descending=False, stable=True)


def _ordered(a: Any, axis: Any, order: Any) -> tuple[ndarray, int]:
    a = array(a)
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if axis is None:
        a, axis = shapes.ravel(a), 0
    return a, axis_index(axis, a._shape.ndim)


@lowers(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """`np.sort`."""
    x, index = _ordered(a, axis, order)
    return wrap(_sort(x._get(), axis=index, positions=False))


@lowers(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """`np.argsort`; always stable."""
    x, index = _ordered(a, axis, order)
    value = _sort(x._get(), axis=index, positions=True)
    ranges.note(value, 0, max(x._shape.dims[index] - 1, 0))
    return wrap(value)


@lowers(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """`np.partition`: a full sort is one."""
    return sort(a, axis)


@lowers(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """`np.argpartition`: a full sort is one."""
    return argsort(a, axis)


@recorded("numpy.searchsorted")
def _searchsorted(a: Any, v: Any, *, side: str, dtype: np.dtype) -> Any:
    a = a if a.shape.dtype == dtype else ops.convert(a, dtype=dtype)
    v = v if v.shape.dtype == dtype else ops.convert(v, dtype=dtype)
    found = ops.searchsorted(a, v, side=side)
    return found if found.shape.dtype == dtypes.INTP else ops.convert(found, dtype=dtypes.INTP)


@lowers(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """`np.searchsorted`."""
    x = array(a)
    y = array(v) if type(v) not in (int, float) else array(np.asarray(v))
    if sorter is not None:
        x = x[sorter]
    target = np.result_type(x._shape.dtype, y._shape.dtype)
    if target.kind == "c" or x._shape.ndim != 1:
        raise NotLowered("an ordering of complex numbers, or more than one dimension")
    value = _searchsorted(x._get(), y._get(), side=side, dtype=target)
    ranges.note(value, 0, x._shape.dims[0])
    return wrap_any(value)


@lowers(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """`np.median` along one axis or all."""
    x = array(a)
    if out is not None or isinstance(axis, (tuple, list)) or x._shape.dtype.kind not in "biuf" or x._shape.dtype == np.float16:
        raise NotLowered("several axes, an output, or half precision")
    index = 0 if axis is None else axis_index(axis, x._shape.ndim)
    length = x._shape.size if axis is None else x._shape.dims[index]
    if length == 0:
        raise NotLowered("a median of nothing")
    return wrap_any(_median(x._get(), axis=index, flat=axis is None, keepdims=bool(keepdims), dtype=dtypes.mean_dtype(x._shape.dtype)))


@recorded("numpy.median")
def _median(x: Any, *, axis: int, flat: bool, keepdims: bool, dtype: np.dtype) -> Any:
    ndim = len(x.shape.dims)
    if flat:
        x = ops.reshape(x, dims=(x.shape.size,))
    n = x.shape.dims[axis]
    rows = ops.sort(x, axis=axis, descending=False, stable=True)

    def at(i: int) -> Any:
        starts = tuple([i if a == axis else 0 for a in range(len(x.shape.dims))])
        limits = tuple([i + 1 if a == axis else d for a, d in enumerate(x.shape.dims)])
        row = ops.slice_(rows, starts=starts, limits=limits, strides=(1,) * len(limits))
        return row if row.shape.dtype == dtype else ops.convert(row, dtype=dtype)

    middle = ops.mean(ops.concatenate(at((n - 1) // 2), at(n // 2), axis=axis), axes=(axis,), keepdims=True)
    if dtype.kind == "f" and x.shape.dtype.kind == "f":
        last = at(n - 1)  # NaNs sort last, and a median of anything with a NaN is NaN
        middle = ops.where(ops.isnan(last), last, middle)
    if flat:
        return ops.reshape(middle, dims=(1,) * ndim if keepdims else ())
    return middle if keepdims else ops.squeeze(middle, axes=(axis,))


@recorded("numpy.quantile")
def _quantile(x: Any, *, qs: tuple[float, ...], axis: int, flat: bool, keepdims: bool) -> Any:
    """Linear interpolation between neighbours in order, by NumPy's formula; one row for each q."""
    dtype = dtypes.FLOAT64
    ndim = len(x.shape.dims)
    nans = x.shape.dtype.kind == "f"
    if flat:
        x = ops.reshape(x, dims=(x.shape.size,))
    n = x.shape.dims[axis]
    rows = ops.sort(x, axis=axis, descending=False, stable=True)
    rows = rows if rows.shape.dtype == dtype else ops.convert(rows, dtype=dtype)

    def at(i: int) -> Any:
        starts = tuple([i if a == axis else 0 for a in range(len(rows.shape.dims))])
        limits = tuple([i + 1 if a == axis else d for a, d in enumerate(rows.shape.dims)])
        return ops.slice_(rows, starts=starts, limits=limits, strides=(1,) * len(limits))

    parts = []
    for q in qs:
        place = q * (n - 1)
        low = min(math.floor(place), n - 1)
        high, t = min(low + 1, n - 1), place - low
        a, b = at(low), at(high)
        rise = ops.sub(b, a)
        value = ops.add(a, ops.mul(rise, const(t, dtype))) if t < 0.5 else ops.sub(b, ops.mul(rise, const(1 - t, dtype)))
        if nans:
            last = at(n - 1)
            value = ops.where(ops.isnan(last), last, value)
        if flat:
            value = ops.reshape(value, dims=(1,) * ndim if keepdims else ())
        elif not keepdims:
            value = ops.squeeze(value, axes=(axis,))
        parts.append(value)
    return ops.stack(*parts, axis=0)


def _quantiles(a: Any, q: Any, scale: float, axis: Any, out: Any, method: str, keepdims: bool, weights: Any, rest: Any) -> Any:
    x = array(a)
    host = np.asarray(q)
    if method != "linear" or weights is not None or rest or isinstance(axis, (tuple, list)) or host.ndim > 1 or host.size > 64:
        raise NotLowered("another method, weights, several axes, or many quantiles")
    if (x._shape.dtype != np.float64 and x._shape.dtype.kind not in "iu") or host.dtype.kind not in "iuf":
        raise NotLowered(f"quantiles in {x._shape.dtype}")
    qs = host.astype(float) / scale
    if not ((qs >= 0) & (qs <= 1)).all():
        raise ValueError("Percentiles must be in the range [0, 100]" if scale != 1.0 else "Quantiles must be in the range [0, 1]")
    index = 0 if axis is None else axis_index(axis, x._shape.ndim)
    if x._shape.size == 0 or qs.size == 0:
        raise NotLowered("quantiles of nothing")
    value = wrap(_quantile(x._get(), qs=tuple(qs.reshape(-1).tolist()), axis=index, flat=axis is None, keepdims=bool(keepdims)))
    return store(value if host.ndim else value[0], out)


@lowers(np.quantile)
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    **rest: Any,
) -> Any:
    """`np.quantile` by linear interpolation."""
    return _quantiles(a, q, 1.0, axis, out, method, keepdims, weights, rest)


@lowers(np.percentile)
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    **rest: Any,
) -> Any:
    """`np.percentile` by linear interpolation."""
    return _quantiles(a, q, 100.0, axis, out, method, keepdims, weights, rest)
