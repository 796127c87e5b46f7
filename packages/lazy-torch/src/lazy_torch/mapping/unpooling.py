"""Maxima over windows that differ from place to place, and writing values back where maxima came from.

Owns: adaptive_max_pool*, fractional_max_pool*, max_unpool*. Windows are gathered, padded to the longest one by repeating an element, which
changes no maximum; indices are flat positions in the trailing dims.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, cast, expand, filled, iota, math_dtype, num, reshape

Sizes = Sequence[int]


def _largest(windows: Expr, places: Expr) -> tuple[Expr, Expr]:
    """Maxima over the last dim, and the flat position of each: dtype[..., k], s64[..., k] -> dtype[...], s64[...]."""
    last = windows.shape.ndim - 1
    at = ops.argmax(windows, axis=last, keepdims=True, dtype=I64)
    values = ops.take_along_axis(windows, at, axis=last)
    where = ops.take_along_axis(expand(places, windows.shape.dims), at, axis=last)
    return ops.squeeze(values, axes=(last,)), ops.squeeze(where, axes=(last,))


def _flat(starts: Sequence[Expr], lengths: Sequence[int], dims: Sequence[int], ends: Sequence[Expr] | None) -> Expr:
    """Flat positions of all windows: for starts s64[*b, m] one a dim, s64[*b, m0, m1, .., k0 * k1 * ..]."""
    rank = len(starts)
    lead = starts[0].shape.dims[:-1]
    total: Expr | None = None
    for a, start in enumerate(starts):
        m = start.shape.dims[-1]
        at = ops.add(reshape(start, (*lead, m, 1)), iota((lengths[a],), 0))
        if ends is not None:
            last = ops.sub(ends[a], num(1, ends[a]))
            at = ops.minimum(at, reshape(last, (*lead, m, 1)))
        shape = [*lead, *(m if i == a else 1 for i in range(rank)), *(lengths[a] if i == a else 1 for i in range(rank))]
        part = reshape(at, shape)
        total = part if total is None else ops.add(ops.mul(total, num(dims[a], total)), part)
    assert total is not None
    places = tuple(start.shape.dims[-1] for start in starts)
    return reshape(expand(total, (*lead, *places, *lengths)), (*lead, *places, math.prod(lengths)))


# ------------------------------------------------------------------ adaptive


def _edges(n: int, m: int) -> tuple[Expr, Expr, int]:
    """Where the m windows of a dim of n elements begin and end, and the length of the longest."""
    i = iota((m,), 0)
    start = ops.floor_div(ops.mul(i, num(n, i)), num(m, i))
    end = ops.floor_div(ops.add(ops.mul(ops.add(i, num(1, i)), num(n, i)), num(m - 1, i)), num(m, i))
    longest = max((-(-(k + 1) * n // m) - k * n // m for k in range(m)), default=1)
    return start, end, longest


def _adaptive_max(rank: int) -> None:
    @aten(f"adaptive_max_pool{rank}d")
    def forward(self: Expr, output_size: Sizes) -> tuple[Expr, Expr]:
        dims = self.shape.dims[-rank:]
        lead = self.shape.dims[:-rank]
        if all(n % m == 0 for n, m in zip(dims, output_size, strict=True) if m) and all(output_size):
            k = tuple(n // m for n, m in zip(dims, output_size, strict=True))
            values, indices = ops.max_pool_with_indices(self, window=k, strides=k, padding=((0, 0),) * rank, dilation=(1,) * rank)
            return values, cast(indices, I64)
        found = [_edges(n, m) for n, m in zip(dims, output_size, strict=True)]
        places = _flat([f[0] for f in found], [f[2] for f in found], dims, [f[1] for f in found])
        windows = ops.take(reshape(self, (*lead, math.prod(dims))), places, axis=len(lead), mode="clip")
        return _largest(windows, places)

    @aten(f"adaptive_max_pool{rank}d_backward")
    def backward(grad_output: Expr, self: Expr, indices: Expr) -> Expr:
        return _unpool(grad_output, indices, self, rank)


# ------------------------------------------------------------------ fractional


def _intervals(sample: Expr, n: int, m: int, k: int) -> Expr:
    """Where m windows of length k begin in n elements, from one random number each: float[b, c] -> s64[b, c, m]."""
    drawn = ops.expand_dims(sample, axes=(sample.shape.ndim,))
    if m == 1:
        return filled(n - k, (*sample.shape.dims, 1), I64)
    alpha = num((n - k) / (m - 1), drawn)
    i = iota((m,), 0)
    moved = ops.floor(ops.mul(ops.add(cast(i, drawn.shape.dtype), drawn), alpha))
    start = cast(ops.sub(moved, ops.floor(ops.mul(drawn, alpha))), I64)
    return ops.where(ops.eq(i, num(m - 1, i)), num(n - k, start), start)


def _fractional(rank: int) -> None:
    @aten(f"fractional_max_pool{rank}d")
    def forward(self: Expr, kernel_size: Sizes, output_size: Sizes, random_samples: Expr) -> tuple[Expr, Expr]:
        dims = self.shape.dims[-rank:]
        batched = self if self.shape.ndim == rank + 2 else ops.expand_dims(self, axes=(0,))
        b, c = batched.shape.dims[:2]
        order = range(rank) if rank == 3 else range(rank - 1, -1, -1)  # in two dims torch draws the width first
        starts = []
        for a, which in enumerate(order):
            drawn = ops.slice_(random_samples, starts=(0, 0, which), limits=(b, c, which + 1), strides=(1, 1, 1))
            starts.append(_intervals(reshape(drawn, (b, c)), dims[a], output_size[a], kernel_size[a]))
        places = _flat(starts, list(kernel_size), dims, None)
        count = math.prod(places.shape.dims[2:])
        flat = reshape(batched, (b, c, math.prod(dims)))
        windows = reshape(ops.take_along_axis(flat, reshape(places, (b, c, count)), axis=2), places.shape.dims)
        values, indices = _largest(windows, places)
        return reshape(values, (*self.shape.dims[:-rank], *output_size)), reshape(indices, (*self.shape.dims[:-rank], *output_size))

    @aten(f"fractional_max_pool{rank}d_backward")
    def backward(grad_output: Expr, self: Expr, kernel_size: Sizes, output_size: Sizes, indices: Expr) -> Expr:
        return _unpool(grad_output, indices, self, rank)


# ------------------------------------------------------------------ back


def _unpool(g: Expr, indices: Expr, x: Expr, rank: int) -> Expr:
    """Add each gradient at the flat position that its maximum came from."""
    kind = g.shape.dtype
    wide = math_dtype(kind)
    lead = math.prod(x.shape.dims[:-rank])
    n, m = math.prod(x.shape.dims[-rank:]), math.prod(g.shape.dims[-rank:])
    base = filled(0, (lead, n), wide)
    if g.shape.size == 0:
        return reshape(cast(base, kind), x.shape.dims)
    flat = ops.scatter(base, reshape(cast(indices, I64), (lead, m)), reshape(cast(g, wide), (lead, m)), axis=1, reduce="add")
    return reshape(cast(flat, kind), x.shape.dims)


def _max_unpool(rank: int) -> None:
    @aten(f"max_unpool{rank}d")
    def forward(self: Expr, indices: Expr, output_size: Sizes, stride: Sizes = (), padding: Sizes = ()) -> Expr:
        lead, m, n = math.prod(self.shape.dims[:-rank]), math.prod(self.shape.dims[-rank:]), math.prod(output_size)
        base = filled(0, (lead, n), self.shape.dtype)
        flat = ops.scatter(base, reshape(cast(indices, I64), (lead, m)), reshape(self, (lead, m)), axis=1, reduce="set")
        return reshape(flat, (*self.shape.dims[:-rank], *output_size))


for _rank in (2, 3):
    _adaptive_max(_rank)
    _fractional(_rank)
    _max_unpool(_rank)
