"""Kernels of reads and writes at places held in arrays: the family `indexing`.

Owns: what becomes of indices that are out of bounds, as the operations declare it, and sums at repeated places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .registry import F32, INT64, Array, kernel, kind, narrow
from .shapes import owned


def _signed(indices: Array, size: int) -> Array:
    """Indices as s64; unsigned ones that do not fit are outside all the same."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(size))
    return indices.astype(INT64, copy=False)


def _wrapped(indices: Array, size: int) -> Array:
    """Indices as s64, negative ones counted from the end."""
    found = _signed(indices, size)
    return found if indices.dtype.kind == "u" else np.where(np.less(found, 0), found + size, found)


def _inside(indices: Array, size: int) -> Array:
    return np.logical_and(np.greater_equal(indices, 0), np.less(indices, size))


def _clipped(indices: Array, size: int) -> Array:
    return np.minimum(np.maximum(indices, 0), max(size - 1, 0))


def _filler(dtype: np.dtype) -> Any:
    """What "fill" gives outside."""
    if kind(dtype) in "fc":
        return dtype.type(np.nan)
    if dtype.kind == "b":
        return np.True_
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


@kernel("take")
def take(x: Array, indices: Array, *, axis: int, mode: str) -> Array:
    """NumPy's, on indices that are inside by then."""
    axis %= x.ndim
    size = x.shape[axis]
    if size == 0:
        return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    if mode == "clip":
        return x.take(_signed(indices, size), axis, mode="clip")
    if mode == "wrap":
        return x.take(
            np.remainder(indices, indices.dtype.type(size)) if _fits(indices.dtype, size) else _signed(indices, size) % size, axis
        )
    places = _wrapped(indices, size)
    inside = _inside(places, size)
    found = np.asarray(x.take(_clipped(places, size), axis))
    if not inside.all():
        outside = np.logical_not(inside).reshape(indices.shape + (1,) * (x.ndim - 1 - axis))
        found = np.where(outside, _filler(x.dtype), found).astype(x.dtype, copy=False)
    return found


def _fits(dtype: np.dtype, size: int) -> bool:
    return size <= np.iinfo(dtype).max


@kernel("take_along_axis")
def take_along_axis(x: Array, indices: Array, *, axis: int) -> Array:
    """The other dims broadcast."""
    axis %= x.ndim
    places = _clipped(_wrapped(indices, x.shape[axis]), x.shape[axis])
    key: list[Any] = []
    for a in range(x.ndim):
        along = [1] * x.ndim
        along[a] = x.shape[a]
        key.append(places if a == axis else np.arange(x.shape[a]).reshape(along))
    found: Array = x[tuple(key)]
    return found


# ------------------------------------------------------------------ advanced indexing


def _places(x: Array, indices: Sequence[Array], axes: Sequence[int]) -> tuple[list[int], list[Array]]:
    found = [a % x.ndim for a in axes]
    return found, [_wrapped(i, x.shape[a]) for i, a in zip(indices, found, strict=True)]


def _key(ndim: int, axes: Sequence[int], indices: Sequence[Any]) -> tuple[Any, ...]:
    at = dict(zip(axes, indices, strict=True))
    return (*[at.get(a, slice(None)) for a in range(ndim)], ...)


@kernel("index")
def index(x: Array, *indices: Array, axes: Sequence[int], mode: str = "clip") -> Array:
    """NumPy's, on indices that are inside by then."""
    found, places = _places(x, indices, axes)
    sizes = [x.shape[a] for a in found]
    if 0 in sizes:
        dims = np.empty((*[1 if a in found else n for a, n in enumerate(x.shape)],), bool)[
            _key(x.ndim, found, [np.zeros_like(p) for p in places])
        ].shape
        return np.full(dims, _filler(x.dtype) if mode == "fill" else 0, x.dtype)
    result: Array = x[_key(x.ndim, found, [_clipped(p, n) for p, n in zip(places, sizes, strict=True)])]
    if mode == "fill":
        inside = _all_inside(places, sizes)
        if not inside.all():
            lead = result.ndim - inside.ndim if not _neighbours(found) else min(found)
            trail = result.ndim - inside.ndim - lead if _neighbours(found) else lead
            outside = np.logical_not(inside).reshape(inside.shape + (1,) * trail)
            result = np.where(outside, _filler(x.dtype), result).astype(x.dtype, copy=False)
    return result


def _neighbours(axes: Sequence[int]) -> bool:
    order = sorted(axes)
    return order == list(range(order[0], order[0] + len(order)))


def _all_inside(places: Sequence[Array], sizes: Sequence[int]) -> Array:
    result = _inside(places[0], sizes[0])
    for p, n in zip(places[1:], sizes[1:], strict=True):
        result = np.logical_and(result, _inside(p, n))
    return np.asarray(result)


@kernel("index_put", reuse=(0,))
def index_put(x: Array, values: Array, *indices: Array, axes: Sequence[int], accumulate: bool, out: Array | None = None) -> Array:
    """Written in C order, so that the last of several writes stays; what is outside is left out."""
    found, places = _places(x, indices, axes)
    sizes = [x.shape[a] for a in found]
    inside = _all_inside(places, sizes)
    result = owned(x, out)
    if not inside.size or not result.size:
        return result
    if not accumulate and inside.all():
        result[_key(x.ndim, found, places)] = _dropped(values, x.ndim - len(found) + inside.ndim)
        return result
    # The indexed dims in front, and one row for each place.
    order = [*found, *[a for a in range(x.ndim) if a not in found]]
    moved = result.transpose(order)
    rest = tuple([n for a, n in enumerate(x.shape) if a not in found])
    at = min(found) if _neighbours(found) else 0
    target = (*rest[:at], *inside.shape, *rest[at:])
    rows = np.moveaxis(np.broadcast_to(_dropped(values, len(target)), target), range(at, at + inside.ndim), range(inside.ndim))
    chosen = inside.reshape(-1)
    rows = rows.reshape(inside.size, *rest)[chosen]
    flat = [np.broadcast_to(p, inside.shape).reshape(-1)[chosen] for p in places]
    if accumulate:
        _add_rows(moved, np.ravel_multi_index(tuple(flat), tuple(sizes)), rows, len(found))
    else:
        moved[tuple(flat)] = rows
    return result


def _dropped(values: Array, ndim: int) -> Array:
    """Without leading dims of 1 that are too many."""
    return values.reshape(values.shape[values.ndim - ndim :]) if values.ndim > ndim else values


def _add_rows(base: Array, places: Array, rows: Array, count: int) -> None:
    """Add one row at each flat place of the first `count` dims of the base, which is written to."""
    if not places.size:
        return
    if places.size == 1 or not base.flags.c_contiguous:
        lead = np.unravel_index(places, base.shape[:count])
        np.add.at(base, lead, rows)
        return
    wide = F32 if narrow(base.dtype) else base.dtype
    if rows.size == places.size and wide is base.dtype:  # one number each, for which NumPy has a fast way
        np.add.at(base.reshape(-1), places, rows.reshape(-1))
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    table = base.reshape(math.prod(base.shape[:count]), -1)
    rows = rows.reshape(places.size, -1).astype(wide, copy=False)
    sums = np.add.reduceat(rows[order], starts, axis=0, dtype=wide) if starts.size < places.size else rows[order]
    where = ordered[starts]
    table[where] = (table[where].astype(wide, copy=False) + sums).astype(base.dtype, copy=False)


# ------------------------------------------------------------------ scatter along a dim

_AT: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@kernel("scatter", reuse=(0,))
def scatter(x: Array, indices: Array, updates: Array, *, axis: int, reduce: str, out: Array | None = None) -> Array:
    """At flat places, in C order; what is outside is left out."""
    axis %= x.ndim
    result = owned(x, out)
    if not indices.size or not x.size:
        return result
    places = _wrapped(indices, x.shape[axis])
    inside = _inside(places, x.shape[axis])
    flat = np.zeros(indices.shape, INT64)
    step = 1
    for a in reversed(range(x.ndim)):
        along = [1] * x.ndim
        along[a] = indices.shape[a]
        flat += (places if a == axis else np.arange(indices.shape[a]).reshape(along)) * step
        step *= x.shape[a]
    if inside.all():
        where, what = flat.reshape(-1), updates.reshape(-1)
    else:
        where, what = flat[inside], updates[inside]
    if not result.flags.c_contiguous:
        result = np.ascontiguousarray(result)
    target = result.reshape(-1)
    if reduce == "set":
        target[where] = what
    elif narrow(x.dtype):
        wide = target.astype(F32)
        _AT[reduce].at(wide, where, what.astype(F32))
        target[...] = wide.astype(x.dtype)
    else:
        _AT[reduce].at(target, where, what)
    return result


@kernel("one_hot")
def one_hot(indices: Array, *, depth: int, dtype: np.dtype) -> Array:
    """Compared in the indices' own dtype."""
    hit: Array = indices[..., None] == np.arange(depth).astype(indices.dtype)
    return hit.astype(dtype)


@kernel("segment_sum")
def segment_sum(data: Array, ids: Array, *, num: int) -> Array:
    """Negative ids are outside too."""
    wide = F32 if narrow(data.dtype) else data.dtype
    places = _signed(ids, num)
    inside = _inside(places, num)
    sums = np.zeros((num, *data.shape[1:]), wide)
    if sums.size and data.size:
        _add_rows(sums, places[inside], data[inside].astype(wide, copy=False), 1)
    return sums.astype(data.dtype, copy=False)
