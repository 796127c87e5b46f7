"""Kernels of pooling and its gradients: the family `pooling`.

Owns: windows as one slice of the operand for each of their places.  Maxima and sums are taken one dim after the other; padding is never
materialised.
"""

from __future__ import annotations

import itertools
import math
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

    def offsets(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
        """For each place of a window: which windows have it inside, what they see, and how far it is from the window's origin, flat."""
        per_dim = [
            [(k * d, _span(k, size, out, s, lo, d)) for k in range(w)]
            for size, out, w, s, (lo, _), d in zip(
                self.sizes, self.out, self.window, self.strides, self.padding, self.dilation, strict=True
            )
        ]
        for places in itertools.product(*per_dim):
            spans = [span for _, span in places if span is not None]
            if len(spans) < self.count:
                continue
            distance = 0
            for (along, _), size in zip(places, self.sizes, strict=True):
                distance = distance * size + along
            yield (..., *[s[0] for s in spans]), (..., *[s[1] for s in spans]), distance

    def origins(self) -> list[Array]:
        """For each dim where windows begin, which may be in the padding."""
        return [np.arange(out) * s - lo for out, s, (lo, _) in zip(self.out, self.strides, self.padding, strict=True)]

    def firsts(self) -> list[Array]:
        """For each dim the first place of windows that is not in the padding before it."""
        return [at + (np.maximum(-at, 0) + d - 1) // d * d for at, d in zip(self.origins(), self.dilation, strict=True)]

    def flat(self, along: Sequence[Array]) -> Array:
        """Places given dim by dim as one number over all of them: s64[*out]."""
        result: Any = np.zeros((), np.int64)
        for at, size in zip(along, self.sizes, strict=True):
            result = result[..., None] * size + at
        return result


def _winners(x: Array, windows: _Windows) -> tuple[Array, Array]:
    """The largest of each window and its flat index: the first largest, or the last NaN."""
    dims = (*windows.lead, *windows.out)
    best = np.full(dims, _lowest(x.dtype), x.dtype)
    careful = x.dtype.kind == "f" and bool(np.isnan(x).any())
    distances = [0]
    # The number of the place that won; later places have larger numbers, so that a maximum, which has no branches, keeps the last winner.
    number = np.dtype(np.uint8 if math.prod(windows.window) < 255 else np.uint32)
    winner = np.zeros(dims, number)
    for which, seen, distance in windows.offsets():
        value, held, won = x[seen], best[which], winner[which]
        better = np.greater(value, held)
        if careful:
            better |= np.isnan(value)
        np.maximum(held, value, out=held)
        np.maximum(won, np.multiply(better, number.type(len(distances)), dtype=number), out=won)
        distances.append(distance)
    origin = windows.flat(windows.origins())
    index = np.take(np.array(distances, np.int64), winner)
    index += origin
    none = np.equal(winner, 0)
    if none.any():  # nothing but the lowest number in sight
        np.copyto(index, windows.flat(windows.firsts()), where=none)
    return best, index


@kernel("max_pool_with_indices")
def max_pool_with_indices(x: Array, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> tuple[Array, Array]:
    """Both in one pass over the places of a window."""
    best, index = _winners(wide(x), _Windows(x.shape, window, strides, padding, dilation))
    return best.astype(x.dtype, copy=False), index


def _unpool(g: Array, index: Array, windows: _Windows) -> Array:
    """Each window's gradient added where its index says, if that is a place of the window."""
    values = wide(g)
    size = math.prod(windows.sizes)
    ok = np.logical_and(np.greater_equal(index, 0), np.less(index, size))
    rest = index
    per_dim = list(zip(windows.origins(), windows.sizes, windows.window, windows.dilation, strict=True))
    for back, (origin, n, w, d) in enumerate(reversed(per_dim)):
        along = [1] * windows.count
        along[-1 - back] = -1
        at = np.remainder(rest, n) - origin.reshape(along)
        rest = np.floor_divide(rest, n)
        ok &= np.greater_equal(at, 0)
        ok &= np.less_equal(at, (w - 1) * d)
        if d > 1:
            ok &= np.equal(np.remainder(at, d), 0)
    lead = math.prod(windows.lead)
    result = np.zeros((lead, size), values.dtype)
    rows = index.reshape(lead, -1) + (np.arange(lead) * size)[:, None]
    chosen = ok.reshape(-1)
    if chosen.all():
        np.add.at(result.reshape(-1), rows.reshape(-1), values.reshape(-1))
    else:
        np.add.at(result.reshape(-1), rows.reshape(-1)[chosen], values.reshape(-1)[chosen])
    return result.reshape(*windows.lead, *windows.sizes).astype(g.dtype, copy=False)


@kernel("max_pool_with_indices_grad")
def max_pool_with_indices_grad(
    g: Array, indices: Array, *, input_dims: Dims, window: Dims, strides: Dims, padding: Padding, dilation: Dims
) -> Array:
    """From the indices; one that is no place of its window counts for nothing."""
    return _unpool(g, indices.astype(np.int64, copy=False), _Windows(input_dims, window, strides, padding, dilation))


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
