"""Pooling over windows, and adaptive averages, with gradients.

Owns: max_pool*, avg_pool*, _adaptive_avg_pool*. Adaptive averages are products with small weight matrices, one a dimension, made from index
arithmetic inside the graph; their gradients are products with the transposes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, DType, cast, expand, filled, iota, is_float, math_dtype, num, reshape

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


_max_pool(2)
_max_pool(3)


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


def _whole_averages(x: Expr, k: tuple[int, ...], s: tuple[int, ...], p: Pads, counts: list[list[int]] | int) -> Expr:
    """Averages of integers, rounded towards zero once."""
    total = _window_sum(x, k, s, p)
    if isinstance(counts, int):
        return ops.trunc_div(total, num(counts, total))
    share: Expr | None = None
    for i, row in enumerate(counts):
        dims = [1] * x.shape.ndim
        dims[x.shape.ndim - len(counts) + i] = len(row)
        part = reshape(_vector(row, I64), dims)
        share = part if share is None else ops.mul(share, part)
    assert share is not None
    return ops.trunc_div(total, share)


def _window_sum(x: Expr, k: tuple[int, ...], s: tuple[int, ...], p: Pads) -> Expr:
    """Sums over windows of the trailing dims: a depthwise product, one matrix a dim."""
    for i, size in enumerate(k):
        a = x.shape.ndim - len(k) + i
        x = along(x, a, _window_matrix(x.shape.dims[a], size, s[i], p[i], x.shape.dtype))
    return x


def _window_matrix(n: int, size: int, stride: int, pads: tuple[int, int], kind: DType) -> Expr:
    count = (n + pads[0] + pads[1] - size) // stride + 1
    row, col = iota((count, n), 0), iota((count, n), 1)
    start = ops.sub(ops.mul(row, num(stride, row)), num(pads[0], row))
    inside = ops.logical_and(ops.ge(col, start), ops.lt(col, ops.add(start, num(size, start))))
    return ops.convert(inside, dtype=kind)


def along(x: Expr, a: int, matrix: Expr) -> Expr:
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


def transposed(matrix: Expr) -> Expr:
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
            return cast(_whole_averages(cast(self, I64), k, s, p, counts), kind)
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
            g = along(g, a, transposed(_window_matrix(self.shape.dims[a], size, s[i], p[i], g.shape.dtype)))
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
            x = along(x, a, _adaptive_matrix(x.shape.dims[a], m, x.shape.dtype))
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
            g = along(g, a, transposed(_adaptive_matrix(n, g.shape.dims[a], g.shape.dtype)))
        return cast(g, kind)


_adaptive_avg(2)
_adaptive_avg(3)
