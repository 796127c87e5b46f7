"""Kernels of pooling and its gradients: the family `pooling`.

Owns: windows as one slice of the operand for each of their places.  Maxima and sums are taken one dim after the other; padding is never
materialised.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .registry import Array, kernel, wide

Dims = Sequence[int]
Padding = Sequence[tuple[int, int]]


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _out(size: int, window: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    return max((size + sum(pads) - dilation * (window - 1) - 1) // stride + 1, 0)


def _span(k: int, size: int, out: int, stride: int, low: int, dilation: int) -> tuple[slice, slice] | None:
    """Which windows have their place `k` inside, and what they see there; None if none has."""
    start = k * dilation - low
    first = max(-(start // stride), 0)
    last = min((size - 1 - start) // stride, out - 1)
    if first > last:
        return None
    seen = start + first * stride
    return slice(first, last + 1), slice(seen, start + last * stride + 1, stride)


def _along(axis: int, part: slice) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, part)


def _separable(function: Any, x: Array, fill: Any, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> Array:
    """A reduction over windows, one dim after the other."""
    for axis, (w, s, (lo, hi), d) in enumerate(zip(window, strides, padding, dilation, strict=True)):
        if (w, s, lo, hi) == (1, 1, 0, 0):
            continue
        size = x.shape[axis]
        out = _out(size, w, s, (lo, hi), d)
        result = np.full((*x.shape[:axis], out, *x.shape[axis + 1 :]), fill, x.dtype)
        for k in range(w):
            span = _span(k, size, out, s, lo, d)
            if span is not None:
                target = result[_along(axis, span[0])]
                function(target, x[_along(axis, span[1])], out=target)
        x = result
    return x


@kernel("max_pool")
def max_pool(x: Array, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> Array:
    """NaN if any is NaN."""
    values = wide(x)
    return _separable(np.maximum, values, _lowest(values.dtype), window, strides, padding, dilation).astype(x.dtype, copy=False)


# ------------------------------------------------------------------ positions


class _Windows:
    """The places of windows over the trailing dims of an operand."""

    def __init__(self, dims: Dims, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> None:
        self.count = len(window)
        self.lead = tuple(dims[: len(dims) - self.count])
        self.sizes = tuple(dims[len(dims) - self.count :])
        self.window, self.strides, self.padding, self.dilation = window, strides, padding, dilation
        self.out = tuple([_out(*each) for each in zip(self.sizes, window, strides, padding, dilation, strict=True)])

    def offsets(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], Array]]:
        """For each place of a window: which windows have it inside, what they see, and where that is, flat over the trailing dims."""
        per_dim = []
        for size, out, w, s, (lo, _), d in zip(self.sizes, self.out, self.window, self.strides, self.padding, self.dilation, strict=True):
            per_dim.append([_span(k, size, out, s, lo, d) for k in range(w)])
        for spans in itertools.product(*per_dim):
            if any(span is None for span in spans):
                continue
            flat: Any = np.zeros((), np.int64)
            for (_, seen), size in zip(spans, self.sizes, strict=True):  # type: ignore[misc]
                flat = flat[..., None] * size + np.arange(seen.start, seen.stop, seen.step)
            yield (..., *[s[0] for s in spans]), (..., *[s[1] for s in spans]), flat  # type: ignore[index]

    def first(self) -> Array:
        """The flat index of the first place of every window that is inside."""
        flat: Any = np.zeros((), np.int64)
        for size, out, s, (lo, _), d in zip(self.sizes, self.out, self.strides, self.padding, self.dilation, strict=True):
            at = np.arange(out) * s - lo
            at += (np.maximum(-at, 0) + d - 1) // d * d
            flat = flat[..., None] * size + at
        return np.asarray(flat)


def _winners(x: Array, windows: _Windows) -> tuple[Array, Array]:
    """The largest of each window and its flat index: the first largest, or the last NaN."""
    dims = (*windows.lead, *windows.out)
    best = np.full(dims, _lowest(x.dtype), x.dtype)
    index = np.empty(dims, np.int64)
    index[...] = windows.first()
    careful = x.dtype.kind == "f" and bool(np.isnan(x).any())
    for which, seen, place in windows.offsets():
        value, held = x[seen], best[which]
        better = np.greater(value, held)
        if careful:
            better |= np.isnan(value)
        np.copyto(held, value, where=better)
        np.copyto(index[which], place, where=better)
    return best, index


@kernel("max_pool_with_indices")
def max_pool_with_indices(x: Array, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> tuple[Array, Array]:
    """Both in one pass over the places of a window."""
    best, index = _winners(wide(x), _Windows(x.shape, window, strides, padding, dilation))
    return best.astype(x.dtype, copy=False), index


def _unpool(g: Array, index: Array, windows: _Windows) -> Array:
    """Each window's gradient put where its index says, added up."""
    values = wide(g)
    result = np.zeros((*windows.lead, *windows.sizes), values.dtype)
    zero = values.dtype.type(0)
    for which, seen, place in windows.offsets():
        part = np.where(np.equal(index[which], place), values[which], zero)
        target = result[seen]
        np.add(target, part, out=target)
    return result.astype(g.dtype, copy=False)


@kernel("max_pool_with_indices_grad")
def max_pool_with_indices_grad(
    g: Array, indices: Array, *, input_dims: Dims, window: Dims, strides: Dims, padding: Padding, dilation: Dims
) -> Array:
    """From the indices; one that is no place of its window counts for nothing."""
    return _unpool(g, indices, _Windows(input_dims, window, strides, padding, dilation))


@kernel("max_pool_grad")
def max_pool_grad(x: Array, g: Array, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> Array:
    """Given to the first of equal elements."""
    windows = _Windows(x.shape, window, strides, padding, dilation)
    return _unpool(g, _winners(wide(x), windows)[1], windows)


# ------------------------------------------------------------------ averages


def _counts(dims: Dims, window: Dims, strides: Dims, padding: Padding, include: bool) -> Array:
    """How many elements each window averages."""
    result: Any = np.ones((), np.int64)
    for n, w, s, (lo, hi) in zip(dims, window, strides, padding, strict=True):
        start = np.arange(_out(n, w, s, (lo, hi), 1)) * s - lo
        count = np.full(start.shape, w) if include else np.minimum(start + w, n) - np.maximum(start, 0)
        if count.size and np.all(count == count[0]):
            count = count[:1]
        result = result[..., None] * count
    return np.asarray(result)


@kernel("avg_pool")
def avg_pool(x: Array, *, window: Dims, strides: Dims, padding: Padding, count_include_pad: bool) -> Array:
    """Sums over counts."""
    values = wide(x)
    total = _separable(np.add, values, 0, window, strides, padding, (1,) * x.ndim)
    return (total / _counts(x.shape, window, strides, padding, count_include_pad).astype(values.dtype)).astype(x.dtype, copy=False)


@kernel("avg_pool_grad")
def avg_pool_grad(g: Array, *, input_dims: Dims, window: Dims, strides: Dims, padding: Padding, count_include_pad: bool) -> Array:
    """Each window's share added to what it saw, one dim after the other."""
    values = wide(g)
    shares = values / _counts(input_dims, window, strides, padding, count_include_pad).astype(values.dtype)
    for axis, (n, w, s, (lo, hi)) in enumerate(zip(input_dims, window, strides, padding, strict=True)):
        if (w, s, lo, hi) == (1, 1, 0, 0):
            continue
        out = shares.shape[axis]
        result = np.zeros((*shares.shape[:axis], n, *shares.shape[axis + 1 :]), shares.dtype)
        for k in range(w):
            span = _span(k, n, out, s, lo, 1)
            if span is not None:
                target = result[_along(axis, span[1])]
                np.add(target, shares[_along(axis, span[0])], out=target)
        shares = result
    return shares.astype(g.dtype, copy=False)
