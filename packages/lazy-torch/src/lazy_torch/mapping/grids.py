"""Sampling at given places (F.grid_sample), in two and three dims, with gradients.

Owns: grid_sampler_*. A place is brought to element coordinates and then, by the padding mode, into the array; each corner around it is one
gather with a weight. A place that padding moves has no gradient, as in torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, cast, filled, math_dtype, num, reshape
from .resampling import cubic_inner, cubic_outer

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
_CUBIC = -0.75


class Place(NamedTuple):
    """Coordinates along one dim, and their derivative by what the grid holds."""

    at: Expr
    slope: Expr


def _scaled(grid: Expr, n: int, align: bool) -> Place:
    half = (n - 1) / 2 if align else n / 2
    at = ops.mul(ops.add(grid, num(1, grid)), num(half, grid))
    return Place(at if align else ops.sub(at, num(0.5, at)), num(half, at))


def _clipped(place: Place, n: int) -> Place:
    at = place.at
    inside = ops.logical_and(ops.gt(at, num(0, at)), ops.lt(at, num(n - 1, at)))
    return Place(ops.minimum(ops.maximum(at, num(0, at)), num(n - 1, at)), ops.where(inside, place.slope, num(0, at)))


def _reflected(place: Place, n: int, align: bool) -> Place:
    low, high = (0.0, float(n - 1)) if align else (-0.5, n - 0.5)
    at, slope = place
    if low == high:
        return Place(ops.mul(at, num(0, at)), num(0, at))
    gap = ops.sub(at, num(low, at))
    size = ops.abs(gap)
    flips = ops.floor(ops.div(size, num(high - low, at)))
    extra = ops.sub(size, ops.mul(flips, num(high - low, at)))
    halves = ops.mul(flips, num(0.5, at))
    even = ops.eq(halves, ops.floor(halves))
    turned = ops.where(even, ops.add(extra, num(low, at)), ops.sub(num(high, at), extra))
    sign = ops.mul(ops.where(ops.lt(gap, num(0, at)), num(-1, at), num(1, at)), ops.where(even, num(1, at), num(-1, at)))
    return Place(turned, ops.mul(slope, sign))


def _padded(place: Place, n: int, mode: int, align: bool) -> Place:
    if mode == ZEROS:
        return place
    if mode == REFLECTION:
        place = _reflected(place, n, align)
    return _clipped(place, n)


class Tap(NamedTuple):
    """One element of those around a place, along one dim: its coordinate, its weight, and the weight's derivative by the coordinate."""

    at: Expr
    weight: Expr
    slope: Expr


def _linear(at: Expr) -> list[Tap]:
    low = ops.floor(at)
    right = ops.sub(at, low)
    one = num(1, at)
    return [Tap(low, ops.sub(one, right), num(-1, at)), Tap(ops.add(low, one), right, one)]


def _nearest(at: Expr) -> list[Tap]:
    return [Tap(ops.round(at), num(1, at), num(0, at))]


def _cubic(at: Expr) -> list[Tap]:
    low = ops.floor(at)
    t = ops.sub(at, low)
    taps = []
    for k in (-1, 0, 1, 2):
        d = ops.sub(t, num(k, t))
        size, sign = ops.abs(d), num(1 if k <= 0 else -1, t)
        outer = k in (-1, 2)
        weight = cubic_outer(size, _CUBIC) if outer else cubic_inner(size, _CUBIC)
        rate = _outer_rate(size) if outer else _inner_rate(size)
        taps.append(Tap(ops.add(low, num(k, t)), weight, ops.mul(rate, sign)))
    return taps


def _inner_rate(d: Expr) -> Expr:
    return ops.sub(ops.mul(num(3 * (_CUBIC + 2), d), ops.mul(d, d)), ops.mul(num(2 * (_CUBIC + 3), d), d))


def _outer_rate(d: Expr) -> Expr:
    return ops.add(ops.sub(ops.mul(num(3 * _CUBIC, d), ops.mul(d, d)), ops.mul(num(10 * _CUBIC, d), d)), num(8 * _CUBIC, d))


_TAPS: dict[int, Callable[[Expr], list[Tap]]] = {BILINEAR: _linear, NEAREST: _nearest, BICUBIC: _cubic}


class _Sampler:
    """The corners around every place: x[N, C, *dims], grid[N, *out, rank] with the last dim's coordinate first."""

    def __init__(self, x: Expr, grid: Expr, interpolation: int, padding: int, align: bool) -> None:
        self.rank = rank = x.shape.ndim - 2
        self.kind = math_dtype(x.shape.dtype)
        self.dims = x.shape.dims[2:]
        self.n, self.c = x.shape.dims[:2]
        self.out = grid.shape.dims[1:-1]
        self.count = math.prod(self.out)
        self.x = reshape(cast(x, self.kind), (self.n, self.c, math.prod(self.dims)))
        flat = reshape(cast(grid, self.kind), (self.n, self.count, rank))
        self.places, self.taps = [], []
        for a, size in enumerate(self.dims):
            k = rank - 1 - a
            value = reshape(ops.slice_(flat, starts=(0, 0, k), limits=(self.n, self.count, k + 1), strides=(1, 1, 1)), (self.n, self.count))
            place = _scaled(value, size, align)
            if interpolation != BICUBIC:
                place = _padded(place, size, padding, align)
            taps = _TAPS[interpolation](place.at)
            if interpolation == BICUBIC:
                taps = [Tap(_padded(Place(t.at, t.at), size, padding, align).at, t.weight, t.slope) for t in taps]
            self.places.append(place)
            self.taps.append(taps)

    def corners(self) -> list[tuple[tuple[Tap, ...], Expr, Expr]]:
        """(taps, flat position s64[N, 1, count], whether it is inside [N, count]) of every corner."""
        found = []
        for taps in itertools.product(*self.taps):
            inside: Expr | None = None
            position: Expr | None = None
            for tap, size in zip(taps, self.dims, strict=True):
                within = ops.logical_and(ops.ge(tap.at, num(0, tap.at)), ops.le(tap.at, num(size - 1, tap.at)))
                inside = within if inside is None else ops.logical_and(inside, within)
                safe = cast(ops.where(within, tap.at, num(0, tap.at)), I64)
                position = safe if position is None else ops.add(ops.mul(position, num(size, position)), safe)
            assert inside is not None
            assert position is not None
            found.append((taps, reshape(position, (self.n, 1, self.count)), inside))
        return found

    def read(self, position: Expr, inside: Expr) -> Expr:
        """Elements at a corner, [N, C, count], 0 outside."""
        wide = ops.broadcast_to(position, dims=(self.n, self.c, self.count))
        value = ops.take_along_axis(self.x, wide, axis=2)
        return ops.where(reshape(inside, (self.n, 1, self.count)), value, num(0, value))


def _product(parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = ops.mul(total, part)
    return total


def _forward(input: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Expr:
    dims = (*input.shape.dims[:2], *grid.shape.dims[1:-1])
    if math.prod(dims) == 0:
        return filled(0, dims, input.shape.dtype)
    s = _Sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    total: Expr | None = None
    for taps, position, inside in s.corners():
        weight = reshape(_product([ops.broadcast_to(t.weight, dims=(s.n, s.count)) for t in taps]), (s.n, 1, s.count))
        part = ops.mul(s.read(position, inside), weight)
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return cast(reshape(total, dims), input.shape.dtype)


def _backward(
    grad_output: Expr, input: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool, output_mask: Sequence[bool]
) -> tuple[Expr | None, Expr | None]:
    if grad_output.shape.size == 0 or input.shape.size == 0:
        zeros = filled(0, input.shape.dims, input.shape.dtype), filled(0, grid.shape.dims, grid.shape.dtype)
        return zeros[0] if output_mask[0] else None, zeros[1] if output_mask[1] else None
    s = _Sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    g = reshape(cast(grad_output, s.kind), (s.n, s.c, s.count))
    grad_input = filled(0, s.x.shape.dims, s.kind)
    slopes: list[Expr] = [filled(0, (s.n, s.count), s.kind) for _ in s.dims]
    for taps, position, inside in s.corners():
        weights = [ops.broadcast_to(t.weight, dims=(s.n, s.count)) for t in taps]
        if output_mask[0]:
            weight = ops.where(inside, _product(weights), num(0, weights[0]))
            update = ops.mul(g, reshape(weight, (s.n, 1, s.count)))
            grad_input = ops.scatter(grad_input, ops.broadcast_to(position, dims=update.shape.dims), update, axis=2, reduce="add")
        if output_mask[1]:
            value = ops.sum(ops.mul(g, s.read(position, inside)), axes=(1,), keepdims=False)
            for a, tap in enumerate(taps):
                others = [ops.broadcast_to(tap.slope, dims=(s.n, s.count)), *(w for k, w in enumerate(weights) if k != a)]
                slopes[a] = ops.add(slopes[a], ops.mul(value, _product(others)))
    grad_grid = None
    if output_mask[1]:
        parts = [ops.mul(slope, place.slope) for slope, place in zip(slopes, s.places, strict=True)]
        grad_grid = cast(reshape(ops.stack(*reversed(parts), axis=2), grid.shape.dims), grid.shape.dtype)
    return cast(reshape(grad_input, input.shape.dims), input.shape.dtype) if output_mask[0] else None, grad_grid


for _rank in (2, 3):
    aten(f"grid_sampler_{_rank}d")(_forward)
    aten(f"grid_sampler_{_rank}d_backward")(_backward)
