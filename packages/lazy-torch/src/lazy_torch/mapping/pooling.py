"""Pooling and resampling: windows, adaptive windows, nearest and interpolated sizes, with gradients.

Owns: max_pool*, avg_pool*, adaptive pools, upsample_*. Adaptive averages and interpolation are products with small weight matrices, one a
dimension, made from index arithmetic inside the graph; their gradients are products with the transposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import F32, I64, DType, cast, expand, filled, iota, is_float, math_dtype, num, reshape

Sizes = Sequence[int]
Pads = tuple[tuple[int, int], ...]


def _wide(v: Sizes, rank: int) -> tuple[int, ...]:
    return tuple(v) if len(v) == rank else tuple(v) * rank


def _window(
    name: str, x: Expr, rank: int, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[tuple[int, ...], tuple[int, ...], Pads, tuple[int, ...]]:
    """Window, strides, asymmetric padding and dilation over the trailing dims."""
    k, p, d = _wide(kernel, rank), _wide(padding, rank), _wide(dilation, rank)
    s = _wide(stride, rank) if len(stride) else k
    pads = []
    for i, n in enumerate(x.shape.dims[-rank:]):
        if 2 * p[i] > k[i]:
            raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, but got pad={p[i]}, kernel_size={k[i]}")
        span = n + 2 * p[i] - d[i] * (k[i] - 1) - 1
        count = (-(-span // s[i]) if ceil_mode else span // s[i]) + 1
        if ceil_mode and (count - 1) * s[i] >= n + p[i]:
            count -= 1
        if count < 1:
            raise RuntimeError(f"{name}: Given input {x.shape} and kernel {k}, the calculated output size is too small")
        pads.append((p[i], max((count - 1) * s[i] + d[i] * (k[i] - 1) + 1 - n - p[i], 0)))
    return k, s, tuple(pads), d


# ------------------------------------------------------------------ max pooling


def _max_pool(rank: int) -> None:
    @aten(f"max_pool{rank}d_with_indices")
    def forward(
        self: Expr, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,), ceil_mode: bool = False
    ) -> tuple[Expr, Expr]:
        k, s, p, d = _window(f"max_pool{rank}d", self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        values, indices = ops.max_pool_with_indices(self, window=k, strides=s, padding=p, dilation=d)
        return values, cast(indices, I64)

    @aten(f"max_pool{rank}d_with_indices_backward")
    def backward(
        grad_output: Expr, self: Expr, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool, indices: Expr
    ) -> Expr:
        if grad_output.shape.size == 0:
            return filled(0, self.shape.dims, grad_output.shape.dtype)
        k, s, p, d = _window(f"max_pool{rank}d", self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return ops.max_pool_with_indices_grad(
            grad_output, cast(indices, I64), input_dims=self.shape.dims, window=k, strides=s, padding=p, dilation=d
        )


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


_max_pool(2)
_max_pool(3)


def _adaptive_max(rank: int) -> None:
    @aten(f"adaptive_max_pool{rank}d")
    def forward(self: Expr, output_size: Sizes) -> tuple[Expr, Expr]:
        dims = self.shape.dims[-rank:]
        if any(n % m for n, m in zip(dims, output_size, strict=True)):
            raise UnsupportedError(f"adaptive_max_pool{rank}d from {dims} to {tuple(output_size)}: windows of unequal sizes")
        k = tuple(n // m for n, m in zip(dims, output_size, strict=True))
        values, indices = ops.max_pool_with_indices(self, window=k, strides=k, padding=((0, 0),) * rank, dilation=(1,) * rank)
        return values, cast(indices, I64)

    @aten(f"adaptive_max_pool{rank}d_backward")
    def backward(grad_output: Expr, self: Expr, indices: Expr) -> Expr:
        return _unpool(grad_output, indices, self, rank)


_adaptive_max(2)
_adaptive_max(3)


@aten("max_unpool2d")
def max_unpool2d(self: Expr, indices: Expr, output_size: Sizes) -> Expr:
    lead, m, n = math.prod(self.shape.dims[:-2]), math.prod(self.shape.dims[-2:]), math.prod(output_size)
    flat = ops.scatter(
        filled(0, (lead, n), self.shape.dtype), reshape(cast(indices, I64), (lead, m)), reshape(self, (lead, m)), axis=1, reduce="set"
    )
    return reshape(flat, (*self.shape.dims[:-2], *output_size))


# ------------------------------------------------------------------ average pooling


def _averaging(
    rank: int, x: Expr, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> tuple[tuple[int, ...], tuple[int, ...], Pads, list[list[int]] | int]:
    """The window, and either one divisor or for each dim the number of elements that count."""
    k, s, p, _ = _window(f"avg_pool{rank}d", x, rank, kernel, stride, padding, (1,) * rank, ceil_mode)
    if divisor is not None:
        if divisor == 0:
            raise RuntimeError("divisor must be not zero")
        return k, s, p, divisor
    counts = []
    for i, n in enumerate(x.shape.dims[-rank:]):
        lo, hi = p[i]
        row = []
        for start in range(-lo, n + hi - k[i] + 1, s[i]):
            end = min(start + k[i], n + lo)  # what ceil_mode adds beyond the padding never counts
            row.append(end - start if include else min(end, n) - max(start, 0))
        counts.append(row)
    if all(v == k[i] for i, row in enumerate(counts) for v in row):
        return k, s, p, math.prod(k)
    return k, s, p, counts


def _divide(x: Expr, counts: list[list[int]] | int) -> Expr:
    if isinstance(counts, int):
        return ops.div(x, num(counts, x))
    for i, row in enumerate(counts):
        dims = [1] * x.shape.ndim
        dims[x.shape.ndim - len(counts) + i] = len(row)
        x = ops.div(x, reshape(_vector(row, x.shape.dtype), dims))
    return x


def _vector(values: Sequence[float], kind: DType) -> Expr:
    """A small constant vector, as runs of equal values."""
    runs: list[tuple[float, int]] = []
    for v in values:
        runs[-1:] = [(v, runs[-1][1] + 1)] if runs and runs[-1][0] == v else [*runs[-1:], (v, 1)]
    parts = [filled(v, (n,), kind) for v, n in runs]
    return parts[0] if len(parts) == 1 else ops.concatenate(*parts, axis=0)


def _window_sum(x: Expr, k: tuple[int, ...], s: tuple[int, ...], p: Pads) -> Expr:
    """Sums over windows of the trailing dims: a depthwise product, one matrix a dim."""
    for i, size in enumerate(k):
        a = x.shape.ndim - len(k) + i
        x = _apply(x, a, _window_matrix(x.shape.dims[a], size, s[i], p[i], x.shape.dtype))
    return x


def _window_matrix(n: int, size: int, stride: int, pads: tuple[int, int], kind: DType) -> Expr:
    count = (n + pads[0] + pads[1] - size) // stride + 1
    row, col = iota((count, n), 0), iota((count, n), 1)
    start = ops.sub(ops.mul(row, num(stride, row)), num(pads[0], row))
    inside = ops.logical_and(ops.ge(col, start), ops.lt(col, ops.add(start, num(size, start))))
    return ops.convert(inside, dtype=kind)


def _apply(x: Expr, a: int, matrix: Expr) -> Expr:
    """Multiply one dimension of x by a matrix [out, in]."""
    perm = (*(i for i in range(x.shape.ndim) if i != a), a)
    moved = x if a == x.shape.ndim - 1 else ops.transpose(x, perm=perm)
    lead = moved.shape.dims[:-1]
    flat = ops.matmul(reshape(moved, (math.prod(lead), moved.shape.dims[-1])), ops.transpose(matrix, perm=(1, 0)))
    y = reshape(flat, (*lead, matrix.shape.dims[0]))
    if a == x.shape.ndim - 1:
        return y
    back = list(range(x.shape.ndim - 1))
    back.insert(a, x.shape.ndim - 1)
    return ops.transpose(y, perm=tuple(back))


def _transposed(matrix: Expr) -> Expr:
    return ops.transpose(matrix, perm=(1, 0))


def _plain(
    x: Expr, rank: int, k: tuple[int, ...], s: tuple[int, ...], p: Pads, padding: Sizes, divisor: int | None, include: bool
) -> dict[str, Any] | None:
    """Attributes of core's avg_pool where it means the same: no divisor of its own, no padding added by ceil_mode."""
    if divisor is not None or any(hi > given for (_, hi), given in zip(p, _wide(padding, rank), strict=True)) or x.shape.size == 0:
        return None
    lead = x.shape.ndim - rank
    return {
        "window": (1,) * lead + k,
        "strides": (1,) * lead + s,
        "padding": ((0, 0),) * lead + p,
        "count_include_pad": include,
    }


def _avg_pool(rank: int) -> None:
    @aten(f"avg_pool{rank}d")
    def forward(
        self: Expr,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        k, s, p, counts = _averaging(rank, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        kind = self.shape.dtype
        if not is_float(kind):
            raise UnsupportedError("average pooling of integers")
        plain = _plain(self, rank, k, s, p, padding, divisor_override, count_include_pad)
        if plain is not None:
            return ops.avg_pool(self, **plain)
        x = cast(self, math_dtype(kind))
        return cast(_divide(_window_sum(x, k, s, p), counts), kind)

    @aten(f"avg_pool{rank}d_backward")
    def backward(
        grad_output: Expr,
        self: Expr,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Expr:
        k, s, p, counts = _averaging(rank, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        kind = grad_output.shape.dtype
        plain = _plain(self, rank, k, s, p, padding, divisor_override, count_include_pad)
        if plain is not None:
            return ops.avg_pool_grad(grad_output, input_dims=self.shape.dims, **plain)
        g = _divide(cast(grad_output, math_dtype(kind)), counts)
        for i, size in enumerate(k):
            a = g.shape.ndim - rank + i
            g = _apply(g, a, _transposed(_window_matrix(self.shape.dims[a], size, s[i], p[i], g.shape.dtype)))
        return cast(g, kind)


_avg_pool(2)
_avg_pool(3)


# ------------------------------------------------------------------ adaptive averages


def _adaptive_matrix(n: int, m: int, kind: DType) -> Expr:
    row, col = iota((m, n), 0), iota((m, n), 1)
    start = ops.floor_div(ops.mul(row, num(n, row)), num(m, row))
    end = ops.floor_div(ops.add(ops.mul(ops.add(row, num(1, row)), num(n, row)), num(m - 1, row)), num(m, row))
    inside = ops.logical_and(ops.ge(col, start), ops.lt(col, end))
    share = ops.div(filled(1, (m, n), kind), ops.convert(ops.sub(end, start), dtype=kind))
    return ops.where(inside, share, num(0, share))


def _adaptive_avg(rank: int) -> None:
    @aten(f"_adaptive_avg_pool{rank}d")
    def forward(self: Expr, output_size: Sizes) -> Expr:
        kind = self.shape.dtype
        x = cast(self, math_dtype(kind))
        if all(m == 1 for m in output_size):
            over = tuple(range(x.shape.ndim - rank, x.shape.ndim))
            total = ops.sum(x, axes=over, keepdims=True)
            return cast(ops.div(total, num(math.prod(x.shape.dims[-rank:]), total)), kind)
        for i, m in enumerate(output_size):
            a = x.shape.ndim - rank + i
            x = _apply(x, a, _adaptive_matrix(x.shape.dims[a], m, x.shape.dtype))
        return cast(x, kind)

    @aten(f"_adaptive_avg_pool{rank}d_backward")
    def backward(grad_output: Expr, self: Expr) -> Expr:
        kind = grad_output.shape.dtype
        g = cast(grad_output, math_dtype(kind))
        space = self.shape.dims[-rank:]
        if all(m == 1 for m in g.shape.dims[-rank:]):
            return cast(expand(ops.div(g, num(math.prod(space), g)), self.shape.dims), kind)
        for i, n in enumerate(space):
            a = g.shape.ndim - rank + i
            g = _apply(g, a, _transposed(_adaptive_matrix(n, g.shape.dims[a], g.shape.dtype)))
        return cast(g, kind)


_adaptive_avg(2)
_adaptive_avg(3)


# ------------------------------------------------------------------ resampling

Matrix = Callable[[int, int, float | None, DType], Expr]


def _ratio(n: int, m: int, scale: float | None, align: bool) -> float:
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / scale if scale is not None and scale > 0 else n / m


def _positions(n: int, m: int, scale: float | None, align: bool, kind: DType) -> Expr:
    """Source coordinates of m outputs, not clamped."""
    i = cast(iota((m, 1), 0), kind)
    ratio = num(_ratio(n, m, scale, align), i)
    if align:
        return ops.mul(i, ratio)
    return ops.sub(ops.mul(ops.add(i, num(0.5, i)), ratio), num(0.5, i))


def _linear_matrix(align: bool) -> Matrix:
    def build(n: int, m: int, scale: float | None, kind: DType) -> Expr:
        at = _positions(n, m, scale, align, kind)
        at = ops.minimum(ops.maximum(at, num(0, at)), num(n - 1, at))
        far = ops.abs(ops.sub(expand(at, (m, n)), cast(iota((m, n), 1), kind)))
        return ops.maximum(ops.sub(num(1, far), far), num(0, far))

    return build


def _cubic_matrix(align: bool) -> Matrix:
    a = -0.75

    def build(n: int, m: int, scale: float | None, kind: DType) -> Expr:
        at = _positions(n, m, scale, align, kind)
        whole = ops.floor(at)
        t = ops.sub(at, whole)
        col = iota((m, n), 1)
        total: Expr | None = None
        for tap in (-1, 0, 1, 2):
            d = ops.abs(ops.sub(num(tap, t), t))
            weight = _cubic_outer(d, a) if tap in (-1, 2) else _cubic_inner(d, a)
            index = cast(ops.minimum(ops.maximum(ops.add(whole, num(tap, t)), num(0, t)), num(n - 1, t)), I64)
            part = ops.where(ops.eq(col, index), expand(weight, (m, n)), num(0, weight))
            total = part if total is None else ops.add(total, part)
        assert total is not None
        return total

    return build


def _cubic_inner(d: Expr, a: float) -> Expr:
    square = ops.mul(d, d)
    return ops.add(ops.mul(ops.sub(ops.mul(num(a + 2, d), d), num(a + 3, d)), square), num(1, d))


def _cubic_outer(d: Expr, a: float) -> Expr:
    square = ops.mul(d, d)
    cube = ops.mul(ops.mul(num(a, d), square), d)
    return ops.sub(ops.add(ops.sub(cube, ops.mul(num(5 * a, d), square)), ops.mul(num(8 * a, d), d)), num(4 * a, d))


def _nearest_index(n: int, m: int, scale: float | None, exact: bool) -> Expr:
    i = cast(iota((m,), 0), F32)
    at = ops.floor(ops.mul(ops.add(i, num(0.5, i)) if exact else i, num(_ratio(n, m, scale, False), i)))
    return cast(ops.minimum(at, num(n - 1, at)), I64)


def _nearest_matrix(exact: bool) -> Matrix:
    def build(n: int, m: int, scale: float | None, kind: DType) -> Expr:
        index = reshape(_nearest_index(n, m, scale, exact), (m, 1))
        return ops.convert(ops.eq(iota((m, n), 1), index), dtype=kind)

    return build


def _resample(x: Expr, sizes: Sizes, scales: Sequence[float | None], matrix: Matrix) -> Expr:
    kind = x.shape.dtype
    if not is_float(kind):
        raise UnsupportedError("interpolation of integers")
    y = cast(x, math_dtype(kind))
    for i, m in enumerate(sizes):
        a = 2 + i
        if y.shape.dims[a] != m or scales[i] is not None:
            y = _apply(y, a, matrix(y.shape.dims[a], m, scales[i], y.shape.dtype))
    return cast(y, kind)


def _resample_backward(g: Expr, input_size: Sizes, scales: Sequence[float | None], matrix: Matrix) -> Expr:
    kind = g.shape.dtype
    y = cast(g, math_dtype(kind))
    for i, n in enumerate(input_size[2:]):
        a = 2 + i
        if y.shape.dims[a] != n or scales[i] is not None:
            y = _apply(y, a, _transposed(matrix(n, y.shape.dims[a], scales[i], y.shape.dtype)))
    return cast(y, kind)


def _interpolated(name: str, make: Callable[[bool], Matrix], rank: int) -> None:
    @aten(name)
    def forward(self: Expr, output_size: Sizes, align_corners: bool, *scales: float | None) -> Expr:
        return _resample(self, output_size, _pad_scales(scales, rank), make(align_corners))

    @aten(f"{name}_backward")
    def backward(grad_output: Expr, output_size: Sizes, input_size: Sizes, align_corners: bool, *scales: float | None) -> Expr:
        return _resample_backward(grad_output, input_size, _pad_scales(scales, rank), make(align_corners))


def _pad_scales(scales: Sequence[float | None], rank: int) -> list[float | None]:
    return [*scales, *(None for _ in range(rank - len(scales)))]


_interpolated("upsample_linear1d", _linear_matrix, 1)
_interpolated("upsample_bilinear2d", _linear_matrix, 2)
_interpolated("upsample_trilinear3d", _linear_matrix, 3)
_interpolated("upsample_bicubic2d", _cubic_matrix, 2)


def _nearest(name: str, exact: bool, rank: int) -> None:
    @aten(name)
    def forward(self: Expr, output_size: Sizes, *scales: float | None) -> Expr:
        y = self
        for i, (m, scale) in enumerate(zip(output_size, _pad_scales(scales, rank), strict=True)):
            n = y.shape.dims[2 + i]
            if m != n or scale is not None:
                y = ops.take(y, _nearest_index(n, m, scale, exact), axis=2 + i, mode="clip")
        return y

    @aten(f"{name}_backward")
    def backward(grad_output: Expr, output_size: Sizes, input_size: Sizes, *scales: float | None) -> Expr:
        return _resample_backward(grad_output, input_size, _pad_scales(scales, rank), _nearest_matrix(exact))


for _rank in (1, 2, 3):
    _nearest(f"upsample_nearest{_rank}d", False, _rank)
    _nearest(f"_upsample_nearest_exact{_rank}d", True, _rank)
