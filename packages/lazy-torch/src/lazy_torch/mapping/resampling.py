"""Resampling to another size: nearest elements, linear and cubic interpolation, antialiased filters, with gradients.

Owns: upsample_* and _upsample_*. Except for the nearest element, a result is a product with a small weight matrix, one a dim, made from
index arithmetic inside the graph; the gradient is a product with the transposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .pooling import Sizes, along, transposed
from .promotion import F32, F64, I64, DType, cast, expand, iota, is_float, math_dtype, num, reshape

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
            weight = cubic_outer(d, a) if tap in (-1, 2) else cubic_inner(d, a)
            index = cast(ops.minimum(ops.maximum(ops.add(whole, num(tap, t)), num(0, t)), num(n - 1, t)), I64)
            part = ops.where(ops.eq(col, index), expand(weight, (m, n)), num(0, weight))
            total = part if total is None else ops.add(total, part)
        assert total is not None
        return total

    return build


def cubic_inner(d: Expr, a: float) -> Expr:
    """The weight of a cubic's element at a distance up to 1."""
    square = ops.mul(d, d)
    return ops.add(ops.mul(ops.sub(ops.mul(num(a + 2, d), d), num(a + 3, d)), square), num(1, d))


def cubic_outer(d: Expr, a: float) -> Expr:
    """The weight of a cubic's element at a distance from 1 to 2."""
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
            y = along(y, a, matrix(y.shape.dims[a], m, scales[i], y.shape.dtype))
    return cast(y, kind)


def _resample_backward(g: Expr, input_size: Sizes, scales: Sequence[float | None], matrix: Matrix) -> Expr:
    kind = g.shape.dtype
    y = cast(g, math_dtype(kind))
    for i, n in enumerate(input_size[2:]):
        a = 2 + i
        if y.shape.dims[a] != n or scales[i] is not None:
            y = along(y, a, transposed(matrix(n, y.shape.dims[a], scales[i], y.shape.dtype)))
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


# ------------------------------------------------------------------ antialiased


def _triangle(d: Expr) -> Expr:
    return ops.maximum(ops.sub(num(1, d), ops.abs(d)), num(0, d))


def _keys(d: Expr) -> Expr:
    """The cubic filter with a = -0.5, as in Pillow."""
    size = ops.abs(d)
    outer = ops.where(ops.lt(size, num(2, d)), cubic_outer(size, -0.5), num(0, d))
    return ops.where(ops.lt(size, num(1, d)), cubic_inner(size, -0.5), outer)


def _lanczos(d: Expr) -> Expr:
    def sinc(x: Expr) -> Expr:
        angle = ops.mul(x, num(math.pi, x))
        zero = ops.eq(angle, num(0, x))
        return ops.where(zero, num(1, x), ops.div(ops.sin(angle), ops.where(zero, num(1, x), angle)))

    inside = ops.logical_and(ops.ge(d, num(-3, d)), ops.lt(d, num(3, d)))
    return ops.where(inside, ops.mul(sinc(d), sinc(ops.div(d, num(3, d)))), num(0, d))


def _filter_matrix(filter_: Callable[[Expr], Expr], width: int) -> Callable[[bool], Matrix]:
    """Weights of a filter that is as wide as `width` elements of the larger of both sizes, each row adding up to 1."""

    def make(align: bool) -> Matrix:
        def build(n: int, m: int, scale: float | None, kind: DType) -> Expr:
            ratio = _ratio(n, m, scale, align)
            reach = width / 2 * max(ratio, 1.0)
            i = cast(iota((m, 1), 0), F64)
            center = ops.mul(ops.add(i, num(0.5, i)), num(ratio, i))
            begin = ops.maximum(ops.trunc(ops.add(ops.sub(center, num(reach, i)), num(0.5, i))), num(0, i))
            end = ops.minimum(ops.trunc(ops.add(ops.add(center, num(reach, i)), num(0.5, i))), num(n, i))
            j = cast(iota((m, n), 1), F64)
            used = ops.logical_and(ops.ge(j, begin), ops.lt(j, end))
            distance = ops.mul(ops.add(ops.sub(j, center), num(0.5, j)), num(1 / max(ratio, 1.0), j))
            weight = ops.where(used, filter_(distance), num(0, j))
            total = ops.sum(weight, axes=(1,), keepdims=True)
            return cast(ops.div(weight, ops.where(ops.eq(total, num(0, total)), num(1, total), total)), kind)

        return build

    return make


_interpolated("_upsample_bilinear2d_aa", _filter_matrix(_triangle, 2), 2)
_interpolated("_upsample_bicubic2d_aa", _filter_matrix(_keys, 4), 2)
_interpolated("_upsample_lanczos2d_aa", _filter_matrix(_lanczos, 6), 2)
