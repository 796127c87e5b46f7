"""Pooling over windows, and its gradients.

Owns: maximum and average pooling.  Gradients are sums of padded arrays, one for each place in the window, which XLA fuses into one pass;
nothing is scattered. Imports the registry and jax.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import jax, lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind, like
from .registry import FLOAT, REAL, Sample, abstract, describe, numbers, op

Dims = Sequence[int]
Padding = Sequence[tuple[int, int]]


def _lowest(dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    return np.array(np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf, dtype)


def _check(name: str, x: Any, count: int, *per_dim: Sequence[Any]) -> None:
    if any(len(p) != count for p in per_dim) or count > x.ndim:
        raise ShapeError(f"{name}({describe(x)}): window, strides, padding and dilation must have {count} entries each")
    if kind(x) in "bc":
        raise DtypeError(f"{name}({describe(x)}): expected real numbers; convert first")


def _pool_cases() -> list[tuple[tuple[int, ...], dict[str, Any]]]:
    return [
        (
            (1, 2, 6, 6),
            {"window": (1, 1, 2, 2), "strides": (1, 1, 2, 2), "padding": ((0, 0), (0, 0), (0, 0), (0, 0)), "dilation": (1, 1, 1, 1)},
        ),
        (
            (1, 7, 5, 2),
            {"window": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "padding": ((0, 0), (1, 1), (0, 1), (0, 0)), "dilation": (1, 1, 2, 1)},
        ),
    ]


def _max_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, attributes in _pool_cases():
        yield Sample((numbers(rng, dims, dtype),), attributes)


@op(samples=_max_samples, dtypes=REAL)
def max_pool(x: Any, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> Any:
    """The largest in each window; NaN if any is NaN: real[*dims] -> real[*out].

    Attributes: window, strides, padding as (before, after), dilation, for every dim of x (1, 1, (0, 0), 1 for those not pooled).
    XLA: ReduceWindow(Maximum).

    Raises:
        ShapeError: there is not one entry for each dim.
        DtypeError: x is bool or complex.
    """
    _check("max_pool", x, x.ndim, window, strides, padding, dilation)
    return lax.reduce_window(
        x, _lowest(x.dtype), lax.max, tuple(window), tuple(strides), [(lo, hi) for lo, hi in padding], None, tuple(dilation)
    )


# ------------------------------------------------------------------ windows, one place at a time


def _out(size: int, window: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    return max((size + sum(pads) - dilation * (window - 1) - 1) // stride + 1, 0)


class _Windows:
    """The places of windows over the trailing dims of an operand."""

    def __init__(self, dims: tuple[int, ...], window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> None:
        self.count = len(window)
        self.lead = dims[: len(dims) - self.count]
        self.sizes = dims[len(dims) - self.count :]
        self.strides, self.padding, self.dilation = tuple(strides), [(lo, hi) for lo, hi in padding], tuple(dilation)
        per_dim = zip(self.sizes, window, strides, self.padding, dilation, strict=True)
        self.out = tuple(_out(*each) for each in per_dim)
        self.offsets = list(itertools.product(*[range(w) for w in window]))

    def read(self, x: Any, offset: Dims, fill: Any) -> Any:
        """What all windows see at one place of theirs; `fill` in the padding."""
        highs = [(o - 1) * s + 1 for o, s in zip(self.out, self.strides, strict=True)]
        starts = [k * d - lo for k, d, (lo, _) in zip(offset, self.dilation, self.padding, strict=True)]
        config = [(0, 0, 0)] * len(self.lead)
        config += [(-lo, lo + high - n, 0) for lo, high, n in zip(starts, highs, self.sizes, strict=True)]
        boxed = x if all(c == (0, 0, 0) for c in config) else lax.pad(x, fill, config)
        if all(s == 1 for s in self.strides):
            return boxed
        return lax.slice(boxed, (0,) * x.ndim, boxed.shape, (1,) * len(self.lead) + self.strides)

    def write(self, g: Any, offset: Dims) -> Any:
        """The transpose of `read`: each window's element put back at one place, zero elsewhere."""
        config = [(0, 0, 0)] * len(self.lead)
        for k, d, s, (lo, _), n, o in zip(offset, self.dilation, self.strides, self.padding, self.sizes, self.out, strict=True):
            start = k * d - lo
            config.append((start, n - start - ((o - 1) * s + 1), s - 1))
        return lax.pad(g, np.zeros((), g.dtype), config)

    def place(self, offset: Dims) -> Any:
        """The flat index, over the trailing dims, of one place of every window: s32[*out]; it is outside where the window is."""
        counter = np.dtype(np.int32 if math.prod(self.sizes) < 1 << 30 else np.int64)
        flat = lax.full(self.out, 0, counter)
        step = 1
        for axis in reversed(range(self.count)):
            at = self._coordinate(axis, offset[axis], counter)
            flat = lax.add(flat, lax.mul(at, lax.full(self.out, step, counter)))
            step *= self.sizes[axis]
        return flat

    def _coordinate(self, axis: int, k: int, counter: np.dtype) -> Any:
        along = lax.broadcasted_iota(counter, self.out, axis)
        scaled = lax.mul(along, lax.full(self.out, self.strides[axis], counter))
        return lax.add(scaled, lax.full(self.out, k * self.dilation[axis] - self.padding[axis][0], counter))

    def first(self) -> Any:
        """The flat index of the first place of every window that is inside."""
        counter = np.dtype(np.int32 if math.prod(self.sizes) < 1 << 30 else np.int64)
        flat = lax.full(self.out, 0, counter)
        step = 1
        for axis in reversed(range(self.count)):
            at = self._coordinate(axis, 0, counter)
            d = lax.full(self.out, self.dilation[axis], counter)
            short = lax.max(lax.neg(at), like(at, 0))
            at = lax.add(at, lax.mul(lax.div(lax.add(short, lax.sub(d, like(d, 1))), d), d))
            flat = lax.add(flat, lax.mul(at, lax.full(self.out, step, counter)))
            step *= self.sizes[axis]
        return flat

    def inside(self, offset: Dims) -> Any | None:
        """Whether one place of every window is inside; None if it always is."""
        mask = None
        for axis in range(self.count):
            low = offset[axis] * self.dilation[axis] - self.padding[axis][0]
            high = low + (self.out[axis] - 1) * self.strides[axis]
            if low < 0 or high >= self.sizes[axis]:
                at = self._coordinate(axis, offset[axis], np.dtype(np.int32))
                ok = lax.bitwise_and(lax.ge(at, like(at, 0)), lax.lt(at, like(at, self.sizes[axis])))
                mask = ok if mask is None else lax.bitwise_and(mask, ok)
        return mask

    def full(self, value: Any) -> Any:
        """An array over the windows, repeated over the leading dims."""
        dims = self.lead + self.out
        return lax.broadcast_in_dim(value, dims, tuple(range(len(self.lead), len(dims))))


def _winners(x: Any, windows: _Windows) -> tuple[Any, Any]:
    """The largest of each window and its flat index: the first largest, or the last NaN."""
    lowest = _lowest(x.dtype)
    best = lax.full(windows.lead + windows.out, lowest, x.dtype)
    index = windows.full(windows.first())
    for offset in windows.offsets:
        value = windows.read(x, offset, lowest)
        better = lax.gt(value, best)
        if kind(x) == "f":
            better = lax.bitwise_or(better, lax.ne(value, value))
        inside = windows.inside(offset)
        if inside is not None:
            better = lax.bitwise_and(better, windows.full(inside))
        best = lax.select(better, value, best)
        index = lax.select(better, windows.full(windows.place(offset)), index)
    return best, index


def _indices_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for window, strides, padding, dilation in (((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 2))):
        yield Sample((numbers(rng, (2, 3, 7, 6), dtype),), {"window": window, "strides": strides, "padding": padding, "dilation": dilation})
    if dtype.kind not in "biuc":
        x = np.array([[[1, np.nan, 3, 3], [2, 3, np.nan, 3]]], np.float64).astype(dtype)
        yield Sample((x,), {"window": (2,), "strides": (2,), "padding": ((0, 0),), "dilation": (1,)})


@op(samples=_indices_samples, dtypes=REAL)
def max_pool_with_indices(x: Any, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> tuple[Any, Any]:
    """The largest in each window and where it was: real[..,*spatial] -> real[..,*out], s64[..,*out], flat over the spatial dims.

    The first of equal elements wins, and NaN before all.  Attributes: window, strides, padding, dilation, for the trailing (spatial) dims.
    XLA: Pad, Slice, Compare, Select, once for each place in the window.

    Raises:
        ShapeError: the attributes differ in length or exceed the dims.
        DtypeError: x is bool or complex.
    """
    _check("max_pool_with_indices", x, len(window), window, strides, padding, dilation)
    best, index = _winners(x, _Windows(x.shape, window, strides, padding, dilation))
    return best, lax.convert_element_type(index, np.int64)


def _unpool(g: Any, index: Any, windows: _Windows) -> Any:
    """Each window's gradient put where its index says, added up."""
    total = None
    zero = like(g, 0)
    for offset in windows.offsets:
        hit = lax.eq(index, lax.convert_element_type(windows.full(windows.place(offset)), index.dtype))
        inside = windows.inside(offset)
        if inside is not None:
            hit = lax.bitwise_and(hit, windows.full(inside))
        part = windows.write(lax.select(hit, g, zero), offset)
        total = part if total is None else lax.add(total, part)
    return total


def _indices_grad_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    index = np.array([[[0, 3, 5], [12, 14, 16]]], np.int64)
    attributes = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    yield Sample((numbers(rng, (1, 2, 3), dtype), index), {"input_dims": (1, 4, 6), **attributes})


@op(samples=_indices_grad_samples, dtypes=FLOAT)
def max_pool_with_indices_grad(
    g: Any, indices: Any, *, input_dims: Dims, window: Dims, strides: Dims, padding: Padding, dilation: Dims
) -> Any:
    """The gradient of max_pool_with_indices, from its indices: float[..,*out], s64[..,*out] -> float[*input_dims].

    Attributes: input_dims; the others as the forward operation's.  XLA: Compare, Select, Pad, Add, once for each place in the window.

    Raises:
        ShapeError: g and the indices have not the dims of the forward result.
        DtypeError: g is bool or complex.
    """
    windows = _Windows(tuple(input_dims), window, strides, padding, dilation)
    _check("max_pool_with_indices_grad", g, len(window), window, strides, padding, dilation)
    if g.shape != windows.lead + windows.out or indices.shape != g.shape:
        raise ShapeError(f"max_pool_with_indices_grad({describe(g, indices)}): expected dims {windows.lead + windows.out}")
    return _unpool(g, lax.convert_element_type(indices, np.int64), windows)


def _max_grad_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, attributes in _pool_cases():
        windows = _Windows(dims, *(attributes[k] for k in ("window", "strides", "padding", "dilation")))
        yield Sample((numbers(rng, dims, dtype), numbers(rng, windows.out, dtype)), attributes)


@op(samples=_max_grad_samples, dtypes=FLOAT)
def max_pool_grad(x: Any, g: Any, *, window: Dims, strides: Dims, padding: Padding, dilation: Dims) -> Any:
    """The gradient of max_pool, given to the first of equal elements: float[*dims], float[*out] -> float[*dims].

    Attributes: as max_pool's, for every dim.  XLA: Compare, Select, Pad, Add, once for each place in the window.

    Raises:
        ShapeError: g has not the dims of the forward result.
        DtypeError: x is bool or complex.
    """
    _check("max_pool_grad", x, x.ndim, window, strides, padding, dilation)
    windows = _Windows(x.shape, window, strides, padding, dilation)
    if g.shape != windows.out:
        raise ShapeError(f"max_pool_grad({describe(x, g)}): expected a gradient of dims {windows.out}")
    return _unpool(g, _winners(x, windows)[1], windows)


# ------------------------------------------------------------------ averages


def _avg_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, attributes in _pool_cases():
        for include in (True, False):
            kept = {k: v for k, v in attributes.items() if k != "dilation"}
            yield Sample((numbers(rng, dims, dtype),), {**kept, "count_include_pad": include})


def _counts(dims: Dims, window: Dims, strides: Dims, padding: Padding, include: bool) -> Any:
    """How many elements each window averages, as a product of one small vector a dim."""
    result: Any = 1
    for axis, (n, w, s, (lo, hi)) in enumerate(zip(dims, window, strides, padding, strict=True)):
        start = np.arange(_out(n, w, s, (lo, hi), 1)) * s - lo
        end = start + w
        count = end - start if include else np.minimum(end, n) - np.maximum(start, 0)
        if np.any(count != count[:1]):
            result = result * count.reshape([-1 if a == axis else 1 for a in range(len(dims))])
        elif count.size:
            result = result * int(count[0])
    return np.asarray(result)


def _averaged(total: Any, dims: Dims, window: Dims, strides: Dims, padding: Padding, include: bool) -> Any:
    counts = _counts(dims, window, strides, padding, include).astype(total.dtype)
    return lax.div(
        total, like(total, counts.item()) if counts.ndim == 0 else lax.broadcast_in_dim(counts, total.shape, tuple(range(total.ndim)))
    )


def _sum_windows(x: Any, window: Dims, strides: Dims, padding: Padding) -> Any:
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(window), tuple(strides), [(lo, hi) for lo, hi in padding])


@op(samples=_avg_samples, dtypes=FLOAT)
def avg_pool(x: Any, *, window: Dims, strides: Dims, padding: Padding, count_include_pad: bool) -> Any:
    """The mean of each window: float[*dims] -> float[*out]; 16-bit floats in 32 bits.

    Attributes: window, strides, padding as (before, after), for every dim of x; count_include_pad, whether padding counts.
    XLA: ReduceWindow(Add), Divide.

    Raises:
        ShapeError: there is not one entry for each dim.
        DtypeError: x is bool or complex.
    """
    _check("avg_pool", x, x.ndim, window, strides, padding)
    wide = lax.convert_element_type(x, np.float32) if x.dtype.itemsize == 2 else x
    total = _sum_windows(wide, window, strides, padding)
    return lax.convert_element_type(_averaged(total, x.shape, window, strides, padding, count_include_pad), x.dtype)


def _avg_grad_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, attributes in _pool_cases():
        kept = {k: v for k, v in attributes.items() if k != "dilation"}
        out = _Windows(dims, kept["window"], kept["strides"], kept["padding"], (1,) * len(dims)).out
        for include in (True, False):
            yield Sample((numbers(rng, out, dtype),), {"input_dims": dims, **kept, "count_include_pad": include})


@op(samples=_avg_grad_samples, dtypes=FLOAT)
def avg_pool_grad(g: Any, *, input_dims: Dims, window: Dims, strides: Dims, padding: Padding, count_include_pad: bool) -> Any:
    """The transpose of avg_pool: float[*out] -> float[*input_dims]; 16-bit floats in 32 bits.

    Attributes: input_dims; the others as avg_pool's.  XLA: Divide, Pad, ReduceWindow(Add).

    Raises:
        ShapeError: g has not the dims of the forward result.
        DtypeError: g is bool or complex.
    """
    _check("avg_pool_grad", g, len(input_dims), window, strides, padding)
    wide = lax.convert_element_type(g, np.float32) if g.dtype.itemsize == 2 else g
    expected = _Windows(tuple(input_dims), window, strides, padding, (1,) * len(input_dims)).out
    if g.shape != expected:
        raise ShapeError(f"avg_pool_grad({describe(g)}): expected a gradient of dims {expected}")
    shares = _averaged(wide, input_dims, window, strides, padding, count_include_pad)
    forward = jax.linear_transpose(lambda x: _sum_windows(x, window, strides, padding), abstract(input_dims, wide.dtype))
    return lax.convert_element_type(forward(shares)[0], g.dtype)
