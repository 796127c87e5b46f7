"""Sliding blocks as columns, and back (F.unfold and F.fold).

Owns: im2col and col2im.  One strided slice, or one padded sum, for each place in the kernel: kernels are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import cast, filled, math_dtype, num, reshape
from .shapes import cut, pad_

Sizes = Sequence[int]


def _count(n: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _places(kernel: Sizes) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(kernel[0]) for j in range(kernel[1]))


@aten("im2col")
def im2col(self: Expr, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Expr:
    batched = self.shape.ndim == 4
    x = self if batched else reshape(self, (1, *self.shape.dims))
    n, c, h, w = x.shape.dims
    rows, cols = (_count(s, kernel_size[a], dilation[a], padding[a], stride[a]) for a, s in enumerate((h, w)))
    if rows < 1 or cols < 1:
        raise RuntimeError(f"im2col: {self.shape} is smaller than the kernel {tuple(kernel_size)} with dilation {tuple(dilation)}")
    wide = pad_(x, (0, 0, *padding), (0, 0, *padding))
    parts = []
    for i, j in _places(kernel_size):
        top, left = i * dilation[0], j * dilation[1]
        part = cut(wide, 2, top, top + (rows - 1) * stride[0] + 1, stride[0])
        parts.append(cut(part, 3, left, left + (cols - 1) * stride[1] + 1, stride[1]))
    blocks = reshape(ops.stack(*parts, axis=2), (n, c * len(parts), rows * cols))
    return blocks if batched else reshape(blocks, blocks.shape.dims[1:])


@aten("col2im")
def col2im(self: Expr, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Expr:
    batched = self.shape.ndim == 3
    x = cast(self if batched else reshape(self, (1, *self.shape.dims)), math_dtype(self.shape.dtype))
    count = kernel_size[0] * kernel_size[1]
    n, c = x.shape.dims[0], x.shape.dims[1] // count
    rows, cols = (_count(s, kernel_size[a], dilation[a], padding[a], stride[a]) for a, s in enumerate(output_size))
    if rows * cols != x.shape.dims[2]:
        raise RuntimeError(f"col2im: {self.shape} has {x.shape.dims[2]} blocks where output_size {tuple(output_size)} has {rows * cols}")
    blocks = reshape(x, (n, c, count, rows, cols))
    height, width = (output_size[a] + 2 * padding[a] for a in (0, 1))
    total = filled(0, (n, c, height, width), x.shape.dtype)
    for k, (i, j) in enumerate(_places(kernel_size)):
        part = ops.squeeze(cut(blocks, 2, k, k + 1), axes=(2,))
        top, left = i * dilation[0], j * dilation[1]
        spread = ops.pad(
            part,
            num(0, part),
            low=(0, 0, top, left),
            high=(0, 0, height - top - (rows - 1) * stride[0] - 1, width - left - (cols - 1) * stride[1] - 1),
            interior=(0, 0, stride[0] - 1, stride[1] - 1),
        )
        total = ops.add(total, spread)
    inner = cut(cut(total, 2, padding[0], padding[0] + output_size[0]), 3, padding[1], padding[1] + output_size[1])
    result = cast(inner, self.shape.dtype)
    return result if batched else reshape(result, result.shape.dims[1:])
