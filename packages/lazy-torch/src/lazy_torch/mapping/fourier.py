"""Discrete Fourier transforms.

Owns: the three ATen primitives that torch.fft is built on. A normalization is 0 (none), 1 (by the root of the number of elements) or 2
(by that number).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import axis, cast, complex_of, is_half, num


def _scaled(x: Expr, count: int, normalization: int, inverse: bool) -> Expr:
    """Core's inverse transforms divide by the number of elements; torch's primitives only as the normalization says."""
    factor = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization] * (count if inverse else 1)
    return x if factor == 1.0 else ops.mul(x, num(factor, x))


def _over(x: Expr, dims: Sequence[int], kind: str, lengths: Sequence[int]) -> Expr:
    """A transform over some dims, at most three at a time, moved to the end and back."""
    for start in range(0, len(dims), 3):
        some, sizes = tuple(dims[start : start + 3]), tuple(lengths[start : start + 3])
        rest = tuple(i for i in range(x.shape.ndim) if i not in some)
        perm = rest + some
        y = ops.fft(ops.transpose(x, perm=perm), kind=kind, lengths=sizes)
        x = ops.transpose(y, perm=tuple(perm.index(i) for i in range(len(perm))))
    return x


def _prepare(x: Expr, dim: Sequence[int]) -> list[int]:
    if is_half(x.shape.dtype):
        raise UnsupportedError("transforms of half floats")
    return [axis(d, x.shape.ndim) for d in dim]


@aten("_fft_c2c")
def c2c(self: Expr, dim: Sequence[int], normalization: int, forward: bool) -> Expr:
    dims = _prepare(self, dim)
    lengths = [self.shape.dims[d] for d in dims]
    if not dims:
        return self
    y = _over(self, dims, "fft" if forward else "ifft", lengths)
    return _scaled(y, math.prod(lengths), normalization, not forward)


@aten("_fft_r2c")
def r2c(self: Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Expr:
    dims = _prepare(self, dim)
    lengths = [self.shape.dims[d] for d in dims]
    if not onesided:
        y = _over(cast(self, complex_of(self.shape.dtype)), dims, "fft", lengths)
    else:
        y = _over(self, dims[-1:], "rfft", lengths[-1:])
        y = _over(y, dims[:-1], "fft", lengths[:-1])
    return _scaled(y, math.prod(lengths), normalization, False)


@aten("_fft_c2r")
def c2r(self: Expr, dim: Sequence[int], normalization: int, last_dim_size: int) -> Expr:
    dims = _prepare(self, dim)
    lengths = [self.shape.dims[d] for d in dims[:-1]]
    y = _over(self, dims[:-1], "ifft", lengths)
    y = _over(y, dims[-1:], "irfft", [last_dim_size])
    return _scaled(y, math.prod(lengths) * last_dim_size, normalization, True)
