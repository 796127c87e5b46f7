"""Reads and writes at places held in arrays.

Owns: gathers and scatters.  Negative indices count from the end unless an attribute says otherwise.  Whoever records must have refused
indices that are out of bounds, where its library does, since a program cannot raise.  0-d indices become dynamic slices.
Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind, like
from .registry import ANY, NUMBER, Sample, axes_of, axis_of, describe, numbers, op, same_dtype, spread


def check_indices(name: str, *indices: Any) -> None:
    """Check that indices are integers.

    Raises:
        DtypeError: they are not.
    """
    if any(kind(i) not in "iu" for i in indices):
        raise DtypeError(f"{name}: indices {describe(*indices)} must be integers; turn a mask into where, or into positions")


def _wrapped(index: Any, size: int) -> Any:
    """Negative indices counted from the end."""
    if kind(index) == "u":
        return index
    return lax.select(lax.lt(index, like(index, 0)), lax.add(index, like(index, size)), index)


def _room(index: Any, size: int) -> Any:
    """Indices in a dtype that can hold the size."""
    if index.dtype.itemsize < 4 or (index.dtype.itemsize == 4 and size >= 1 << 31):
        return lax.convert_element_type(index, np.int32 if size < 1 << 31 else np.int64)
    return index


def _take_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (4, 5), dtype)
    yield Sample((x, np.array([0, 3, 1], np.int64)), {"axis": 0, "mode": "clip"})
    yield Sample((x, np.array([[0, 9], [4, -1]], np.int32)), {"axis": 1, "mode": "clip"})
    yield Sample((x, np.array([-1, 7], np.int64)), {"axis": -1, "mode": "wrap"})
    yield Sample((x, np.array(2, np.int64)), {"axis": 0, "mode": "clip"})
    yield Sample((x, np.zeros((0,), np.int64)), {"axis": 0, "mode": "clip"})


@op(samples=_take_samples)
def take(x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    """Whole slices along a dim: dtype[..,n,..], integer[*idx] -> dtype[..,*idx,..].  XLA: Gather; DynamicSlice for a 0-d index.

    Attributes: axis; mode: "clip" moves indices into 0..n-1, negative ones to 0; "wrap" takes them modulo n; "fill" counts negative ones
    from the end and gives NaN, the smallest signed or the largest unsigned integer outside.

    Raises:
        ShapeError: the axis is out of bounds, or of size 0 while there are indices.
        DtypeError: indices are not integers.
    """
    check_indices("take", indices)
    axis = axis_of("take", axis, x.ndim)
    size = x.shape[axis]
    if size == 0 and indices.size:
        raise ShapeError(f"take({describe(x, indices)}) along axis {axis}: a dim of size 0 has no elements to take")
    if mode not in ("clip", "wrap", "fill"):
        raise ShapeError(f"take: mode {mode!r}; expected 'clip', 'wrap' or 'fill'")
    indices = _room(indices, size)
    if mode == "wrap" and size:
        indices = jnp.remainder(indices, like(indices, size))
    if mode == "fill":
        return jnp.take(x, indices, axis=axis, mode="fill")
    if indices.ndim == 0:
        return lax.dynamic_index_in_dim(x, lax.clamp(like(indices, 0), indices, like(indices, size - 1)), axis, keepdims=False)
    return x.at[(slice(None),) * axis + (indices,)].get(mode="clip", wrap_negative_indices=False)


def _along_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (3, 4), dtype)
    yield Sample((x, rng.integers(0, 4, (3, 2)).astype(np.int64)), {"axis": 1})
    yield Sample((x, rng.integers(-3, 3, (5, 4)).astype(np.int64)), {"axis": 0})


@op(samples=_along_samples)
def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    """One element for each index along a dim: dtype[..,n,..], integer[..,k,..] -> dtype[..,k,..], other dims broadcast.  XLA: Gather.

    Attributes: axis.

    Raises:
        ShapeError: the ranks differ, other dims do not fit, or the axis is out of bounds.
        DtypeError: indices are not integers.
    """
    check_indices("take_along_axis", indices)
    axis = axis_of("take_along_axis", axis, x.ndim)
    if indices.ndim != x.ndim:
        raise ShapeError(f"take_along_axis({describe(x, indices)}): expected as many dims in the indices as in the operand")
    return jnp.take_along_axis(x, _wrapped(_room(indices, x.shape[axis]), x.shape[axis]), axis, mode="clip")


# ------------------------------------------------------------------ advanced indexing


def _index_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (4, 5, 3), dtype)
    i, j = np.array([0, -1, 2], np.int64), np.array([[1], [-3]], np.int64)
    yield Sample((x, i), {"axes": (0,), "mode": "clip"})
    yield Sample((x, i), {"axes": (1,), "mode": "clip"})
    yield Sample((x, i, j), {"axes": (0, 1), "mode": "clip"})
    yield Sample((x, i, j), {"axes": (0, 2), "mode": "clip"})
    yield Sample((x, np.array(1, np.int64), np.array(-1, np.int64)), {"axes": (0, 1), "mode": "clip"})


def _places(name: str, x: Any, indices: Sequence[Any], axes: Sequence[int]) -> tuple[tuple[int, ...], list[Any], tuple[int, ...]]:
    """Axes, wrapped indices and the dims that the indices have together, checked."""
    check_indices(name, *indices)
    found = axes_of(name, axes, x.ndim)
    if len(found) != len(indices):
        raise ShapeError(f"{name}({describe(x, *indices)}): {len(indices)} index operands for axes {tuple(axes)}; expected one for each")
    try:
        dims = np.broadcast_shapes(*[i.shape for i in indices])
    except ValueError as error:
        raise ShapeError(f"{name}: indices {describe(*indices)} cannot be broadcast together") from error
    wrapped = [_wrapped(_room(i, x.shape[a]), x.shape[a]) for i, a in zip(indices, found, strict=True)]
    return found, wrapped, dims


def _key(ndim: int, axes: tuple[int, ...], indices: Sequence[Any]) -> tuple[Any, ...]:
    at = dict(zip(axes, indices, strict=True))
    return tuple([at.get(a, slice(None)) for a in range(ndim)])


def _box(x: Any, axes: tuple[int, ...], indices: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Starts and sizes of the slice that 0-d indices name."""
    at = dict(zip(axes, indices, strict=True))
    starts = [lax.convert_element_type(at[a], np.int64) if a in at else np.int64(0) for a in range(x.ndim)]
    return starts, tuple(1 if a in at else x.shape[a] for a in range(x.ndim))


@op(samples=_index_samples)
def index(x: Any, *indices: Any, axes: Sequence[int], mode: str = "clip") -> Any:
    """Advanced indexing: dtype[*dims], integer[*idx].. -> dtype[*result].

    The indices broadcast together and select along `axes`; their dims stand where the axes stood if those are neighbours, else in front,
    as in NumPy.

    Attributes: axes, one for each index; mode, what happens outside after counting negative indices from the end: "clip" or "fill" (see
    take).
    XLA: Gather; DynamicSlice where all indices are 0-d.

    Raises:
        ShapeError: the indices do not broadcast, or an axis is out of bounds or named twice.
        DtypeError: an index is not an integer.
    """
    found, wrapped, dims = _places("index", x, indices, axes)
    if dims == () and mode == "clip" and all(x.shape[a] for a in found):
        starts, sizes = _box(x, found, wrapped)
        return lax.squeeze(lax.dynamic_slice(x, starts, sizes), found)
    return x.at[_key(x.ndim, found, wrapped)].get(mode=mode, wrap_negative_indices=False)


def _put_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (4, 5), dtype)
    i, j = np.array([0, -1, 2], np.int64), np.array([1, 4, 1], np.int64)
    for accumulate in (False, True) if dtype.kind != "b" else (False,):
        yield Sample((x, numbers(rng, (3, 5), dtype), i), {"axes": (0,), "accumulate": accumulate})
        yield Sample((x, numbers(rng, (3,), dtype), i, j), {"axes": (0, 1), "accumulate": accumulate})
        yield Sample((x, numbers(rng, (), dtype), np.array(2, np.int64)), {"axes": (1,), "accumulate": accumulate})
    if dtype.kind != "b":
        yield Sample((x, numbers(rng, (3, 5), dtype), np.array([1, 1, 1], np.int64)), {"axes": (0,), "accumulate": True})


@op(samples=_put_samples)
def index_put(x: Any, values: Any, *indices: Any, axes: Sequence[int], accumulate: bool) -> Any:
    """Advanced indexing, written: dtype[*dims], dtype[*vals], integer[*idx].. -> dtype[*dims], vals broadcast to what `index` would read.

    Attributes: axes; accumulate, add instead of replace.  Outside is dropped; of several writes to one place the last stays.
    XLA: Scatter; DynamicUpdateSlice where all indices are 0-d.

    Raises:
        ShapeError: the indices or values do not broadcast, or an axis is out of bounds or named twice.
        DtypeError: an index is not an integer, or the dtypes of x and values differ.
    """
    same_dtype("index_put", x, values)
    found, wrapped, dims = _places("index_put", x, indices, axes)
    if accumulate and kind(x) == "b":
        raise DtypeError(f"index_put({describe(x, values)}): bools cannot be added up; use an integer dtype")
    key = _key(x.ndim, found, wrapped)
    if dims == () and all(x.shape[a] for a in found):
        starts, sizes = _box(x, found, wrapped)
        rest = tuple(n for a, n in enumerate(x.shape) if a not in found)
        update = lax.reshape(_fit("index_put", values, rest), sizes)
        if accumulate:
            update = lax.add(lax.dynamic_slice(x, starts, sizes), update)
        return lax.dynamic_update_slice(x, update, starts)
    at = x.at[key]
    target = _result_dims(x.shape, found, dims)
    values = _fit("index_put", values, target)
    write = at.add if accumulate else at.set
    return write(values, mode="drop", wrap_negative_indices=False)


def _result_dims(shape: tuple[int, ...], axes: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dims of an advanced index: `dims` in place of neighbouring axes, else in front."""
    order = sorted(axes)
    rest = [(a, n) for a, n in enumerate(shape) if a not in axes]
    if order == list(range(order[0], order[0] + len(order))):
        return tuple(n for a, n in rest if a < order[0]) + tuple(dims) + tuple(n for a, n in rest if a > order[0])
    return tuple(dims) + tuple(n for _, n in rest)


def _fit(name: str, values: Any, dims: tuple[int, ...]) -> Any:
    while values.ndim > len(dims) and values.shape[0] == 1:
        values = lax.squeeze(values, (0,))
    try:
        fits = np.broadcast_shapes(values.shape, dims) == tuple(dims)
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: values {describe(values)} cannot be broadcast to the indexed dims {tuple(dims)}")
    return spread(values, tuple(dims))


# ------------------------------------------------------------------ scatter along a dim


def _scatter_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    x = numbers(rng, (4, 5), dtype)
    once = np.array([[0, 1, 2], [3, 2, 0]], np.int64)
    yield Sample((x, once, numbers(rng, (2, 3), dtype)), {"axis": 0, "reduce": "set"})
    yield Sample((x, once, numbers(rng, (2, 3), dtype)), {"axis": 1, "reduce": "set"})
    if dtype.kind != "b":
        twice = np.array([[0, 0, 2], [0, 0, 1]], np.int64)
        for reduce in ("add", "mul", "max", "min"):
            if dtype.kind != "c" or reduce in ("add", "mul"):
                yield Sample((x, twice, numbers(rng, (2, 3), dtype)), {"axis": 0, "reduce": reduce})


@op(samples=_scatter_samples)
def scatter(x: Any, indices: Any, updates: Any, *, axis: int, reduce: str) -> Any:
    """With x[.., indices[.., i, ..], ..] combined with updates[.., i, ..]: dtype[*dims], integer[*idx], dtype[*idx] -> dtype[*dims].

    Attributes: axis; reduce, "set" (of several writes the last stays), "add", "mul", "max" or "min".  No dim of the indices but `axis` may
    be larger than the operand's.  XLA: Scatter.

    Raises:
        ShapeError: the dims do not fit, or the axis is out of bounds.
        DtypeError: the indices are not integers, or the dtypes of x and updates differ.
    """
    same_dtype("scatter", x, updates)
    check_indices("scatter", indices)
    axis = axis_of("scatter", axis, x.ndim)
    if (
        indices.shape != updates.shape
        or indices.ndim != x.ndim
        or any(n > m for a, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)) if a != axis)
    ):
        raise ShapeError(
            f"scatter({describe(x, indices, updates)}) along axis {axis}: "
            f"indices and updates must have equal dims, none but the axis larger than x's"
        )
    write = {"set": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}.get(reduce)
    if write is None:
        raise ShapeError(f"scatter: reduce {reduce!r}; expected 'set', 'add', 'mul', 'max' or 'min'")
    indices = _wrapped(_room(indices, x.shape[axis]), x.shape[axis])
    key = tuple([indices if a == axis else lax.broadcasted_iota(indices.dtype, indices.shape, a) for a in range(x.ndim)])
    return getattr(x.at[key], write)(updates, mode="drop", wrap_negative_indices=False)


def _one_hot_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((4,), (2, 3)):
        yield Sample((rng.integers(0, 5, dims).astype(np.int64),), {"depth": 5, "dtype": dtype})


@op(samples=_one_hot_samples, dtypes=ANY)
def one_hot(indices: Any, *, depth: int, dtype: np.dtype) -> Any:
    """1 at each index along a new last dim, 0 elsewhere, all 0 for indices outside: integer[*dims] -> dtype[*dims, depth].

    Attributes: depth; dtype.  XLA: Iota, Compare, Convert.

    Raises:
        DtypeError: indices are not integers.
    """
    check_indices("one_hot", indices)
    dims = (*indices.shape, depth)
    hit = lax.eq(lax.broadcast_in_dim(indices, dims, tuple(range(indices.ndim))), lax.broadcasted_iota(indices.dtype, dims, indices.ndim))
    return lax.convert_element_type(hit, np.dtype(dtype))


def _segment_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (5,), dtype), np.array([0, 2, 0, 1, 2], np.int64)), {"num": 4})
    yield Sample((numbers(rng, (4, 3), dtype), np.array([1, 1, 0, 1], np.int32)), {"num": 2})


@op(samples=_segment_samples, dtypes=NUMBER)
def segment_sum(data: Any, ids: Any, *, num: int) -> Any:
    """Rows added up by their id; ids outside are dropped: number[n,*rest], integer[n] -> number[num,*rest].  XLA: Scatter.

    Attributes: num, how many sums.

    Raises:
        ShapeError: there is not one id for each row.
        DtypeError: ids are not integers, or data is bool.
    """
    check_indices("segment_sum", ids)
    if ids.ndim != 1 or data.ndim == 0 or data.shape[0] != ids.shape[0]:
        raise ShapeError(f"segment_sum({describe(data, ids)}): expected one id for each row of the first operand")
    wide = np.dtype(np.float32) if kind(data) == "f" and data.dtype.itemsize == 2 else data.dtype
    sums = (
        lax.full((num, *data.shape[1:]), 0, wide)
        .at[_room(ids, num)]
        .add(lax.convert_element_type(data, wide), mode="drop", wrap_negative_indices=False)
    )
    return lax.convert_element_type(sums, data.dtype)
