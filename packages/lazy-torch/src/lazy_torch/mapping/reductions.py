"""Reductions and scans, with torch's result dtypes: sums of integers are i64, half floats are accumulated in f32.

Owns: sum, mean, prod, var/std, amax/amin, max/min without indices, any/all, hash_tensor, norms, logsumexp, cumsum and friends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .compare import truth
from .promotion import (
    BOOL,
    C128,
    F32,
    F64,
    I64,
    DType,
    Scalar,
    axes,
    axis,
    cast,
    filled,
    float_type,
    is_complex,
    is_float,
    is_static,
    math_dtype,
    num,
    operand,
    promote,
    real_of,
    reshape,
)

Dims = int | Sequence[int] | None
U64 = np.dtype(np.uint64)


def _sum_type(dtype: DType) -> DType:
    return dtype if is_float(dtype) or is_complex(dtype) else I64


def sum_(x: Expr, over: tuple[int, ...], keepdim: bool = False) -> Expr:
    """A sum in the dtype of x, accumulated in f32 for half floats."""
    if x.shape.ndim == 0:
        return x
    return cast(ops.sum(cast(x, math_dtype(x.shape.dtype)), axes=over, keepdims=keepdim), x.shape.dtype)


@aten("sum", "sum.dim_IntList")
def sum(self: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    kind = dtype or _sum_type(self.shape.dtype)
    return sum_(cast(self, kind), axes(dim, self.shape.ndim), keepdim)


@aten("nansum")
def nansum(self: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    x = ops.where(ops.isnan(self), num(0, self), self) if is_float(self.shape.dtype) else self
    return sum(x, dim, keepdim, dtype=dtype)


@aten("mean", "mean.dim")
def mean(self: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    kind = dtype or self.shape.dtype
    if not (is_float(kind) or is_complex(kind)):
        raise RuntimeError(
            f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {kind.name}"
        )
    over = axes(dim, self.shape.ndim)
    x = cast(cast(self, kind), math_dtype(kind))
    count = math.prod(self.shape.dims[a] for a in over)
    total = ops.sum(x, axes=over, keepdims=keepdim) if self.shape.ndim else x
    return cast(ops.div(total, num(count, total)), kind)


@aten("prod", "prod.dim_int")
def prod(self: Expr, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    kind = dtype or _sum_type(self.shape.dtype)
    x = cast(self, kind)
    if self.shape.ndim == 0:
        return x
    if kind == BOOL:
        return ops.all(x, axes=axes(dim, self.shape.ndim), keepdims=keepdim)
    return cast(ops.prod(cast(x, math_dtype(kind)), axes=axes(dim, self.shape.ndim), keepdims=keepdim), kind)


# ------------------------------------------------------------------ variance


def _variance(x: Expr, dim: Dims, correction: Scalar | None, keepdim: bool) -> tuple[Expr, Expr]:
    kind = x.shape.dtype
    wide = cast(x, math_dtype(kind))
    over = axes(dim, x.shape.ndim)
    count = math.prod(x.shape.dims[a] for a in over)
    kept = ops.sum(wide, axes=over, keepdims=True) if x.shape.ndim else wide
    middle = ops.div(kept, num(count, kept))
    gap = ops.sub(wide, middle)
    square = ops.mul(gap, gap) if not is_complex(kind) else ops.real(ops.mul(gap, ops.conj(gap)))
    total = ops.sum(square, axes=over, keepdims=keepdim) if x.shape.ndim else square
    fix = 1 if correction is None else correction
    if is_static(fix):
        ddof = num(max(count - fix, 0), total)  # type: ignore[operator,arg-type,type-var]
    else:
        ddof = ops.maximum(ops.sub(num(count, total), operand(fix, total.shape.dtype)), num(0, total))
    result = ops.div(total, ddof)
    average = middle if keepdim or not x.shape.ndim else reshape(middle, result.shape.dims)
    return cast(result, real_of(kind)), cast(average, kind)


@aten("var.correction", static=("correction",))
def var(self: Expr, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Expr:
    return _variance(self, dim, correction, keepdim)[0]


@aten("std.correction", static=("correction",))
def std(self: Expr, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Expr:
    return ops.sqrt(var(self, dim, correction=correction, keepdim=keepdim))


@aten("var_mean.correction", static=("correction",))
def var_mean(self: Expr, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> tuple[Expr, Expr]:
    return _variance(self, dim, correction, keepdim)


@aten("std_mean.correction", static=("correction",))
def std_mean(self: Expr, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> tuple[Expr, Expr]:
    spread, middle = _variance(self, dim, correction, keepdim)
    return ops.sqrt(spread), middle


# ------------------------------------------------------------------ extrema, any, all


def _check_nonempty(name: str, x: Expr, over: tuple[int, ...]) -> None:
    for a in over:
        if x.shape.dims[a] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {a} to have non-zero size.")


def _extreme(name: str, x: Expr, over: tuple[int, ...], keepdim: bool) -> Expr:
    if x.shape.ndim == 0:
        return x
    _check_nonempty(name, x, over)
    if x.shape.dtype == BOOL:
        return (ops.any if name.endswith("max") else ops.all)(x, axes=over, keepdims=keepdim)
    return (ops.max if name.endswith("max") else ops.min)(x, axes=over, keepdims=keepdim)


@aten("amax")
def amax(self: Expr, dim: Dims = (), keepdim: bool = False) -> Expr:
    return _extreme("amax", self, axes(dim, self.shape.ndim), keepdim)


@aten("amin")
def amin(self: Expr, dim: Dims = (), keepdim: bool = False) -> Expr:
    return _extreme("amin", self, axes(dim, self.shape.ndim), keepdim)


@aten("max")
def max_(self: Expr) -> Expr:
    if self.shape.size == 0:
        raise RuntimeError(
            "max(): Expected reduction dim to be specified for input.numel() == 0; the largest of no elements is not defined"
        )
    return amax(self)


@aten("min")
def min_(self: Expr) -> Expr:
    if self.shape.size == 0:
        raise RuntimeError(
            "min(): Expected reduction dim to be specified for input.numel() == 0; the smallest of no elements is not defined"
        )
    return amin(self)


@aten("aminmax")
def aminmax(self: Expr, *, dim: int | None = None, keepdim: bool = False) -> tuple[Expr, Expr]:
    return amin(self, dim, keepdim), amax(self, dim, keepdim)


@aten("any", "any.dim", "any.dims")
def any_(self: Expr, dim: Dims = None, keepdim: bool = False) -> Expr:
    return _truth_of(self, dim, keepdim, "any")


@aten("all", "all.dim", "all.dims")
def all_(self: Expr, dim: Dims = None, keepdim: bool = False) -> Expr:
    return _truth_of(self, dim, keepdim, "all")


def _truth_of(x: Expr, dim: Dims, keepdim: bool, core: str) -> Expr:
    flags = truth(x)
    if x.shape.ndim and (dim is None or isinstance(dim, int) or len(dim)):  # no dims at all: nothing is reduced
        flags = getattr(ops, core)(flags, axes=axes(dim, x.shape.ndim), keepdims=keepdim)
    return cast(flags, x.shape.dtype) if x.shape.dtype.name == "uint8" else flags  # torch keeps u8 for u8


@aten("_is_all_true")
def is_all_true(self: Expr) -> Expr:
    return all_(self)


@aten("_is_any_true")
def is_any_true(self: Expr) -> Expr:
    return any_(self)


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(self: Expr, dim: Dims = None) -> Expr:
    return sum(truth(self), dim)


@aten("hash_tensor")
def hash_tensor(self: Expr, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Expr:
    if is_complex(self.shape.dtype):
        raise UnsupportedError("hash_tensor of complex tensors")
    bits = ops.bitcast(cast(self, F64), dtype=U64) if is_float(self.shape.dtype) else cast(self, U64)
    return ops.reduce_xor(bits, axes=axes(dim, self.shape.ndim), keepdims=keepdim) if self.shape.ndim else bits


# ------------------------------------------------------------------ norms, logsumexp


def _logsumexp(x: Expr, over: tuple[int, ...], keepdim: bool) -> Expr:
    if not is_complex(x.shape.dtype):
        return ops.logsumexp(x, axes=over, keepdims=keepdim)
    real = ops.real(x)
    most = ops.max(real, axes=over, keepdims=True)
    shift = cast(ops.where(ops.isfinite(most), most, num(0, most)), x.shape.dtype)
    total = ops.log(ops.sum(ops.exp(ops.sub(x, shift)), axes=over, keepdims=True))
    found = ops.add(total, shift)
    return found if keepdim else ops.squeeze(found, axes=over)


@aten("logsumexp")
def logsumexp(self: Expr, dim: Dims, keepdim: bool = False) -> Expr:
    kind = float_type(self.shape.dtype)
    x = cast(cast(self, kind), math_dtype(kind))
    if self.shape.ndim == 0:
        return reshape(_logsumexp(reshape(x, (1,)), (0,), False), ()) if is_complex(kind) else cast(self, kind)
    if is_complex(kind) and self.shape.size == 0:
        raise UnsupportedError("logsumexp of no complex numbers")
    return cast(_logsumexp(x, axes(dim, self.shape.ndim), keepdim), kind)


@aten("linalg_vector_norm", static=("ord",))
def vector_norm(self: Expr, ord: Scalar = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    kind = dtype or float_type(self.shape.dtype)
    x = cast(self, kind)
    out = real_of(kind)
    size = cast(ops.abs(x), math_dtype(out))
    over = axes(dim, self.shape.ndim)
    if self.shape.ndim == 0:
        return cast(cast(ops.ne(size, num(0, size)), size.shape.dtype) if ord == 0 else size, out)
    if ord == math.inf:
        return cast(_extreme("amax", size, over, keepdim), out)
    if ord == -math.inf:
        return cast(_extreme("amin", size, over, keepdim), out)
    if ord == 0:
        return cast(ops.sum(cast(ops.ne(size, num(0, size)), size.shape.dtype), axes=over, keepdims=keepdim), out)
    if ord == 1:
        return cast(ops.sum(size, axes=over, keepdims=keepdim), out)
    if ord == 2:
        return cast(ops.sqrt(ops.sum(ops.mul(size, size), axes=over, keepdims=keepdim)), out)
    p = operand(ord, size.shape.dtype)
    return cast(ops.pow(ops.sum(ops.pow(size, p), axes=over, keepdims=keepdim), ops.reciprocal(p)), out)


@aten("norm.Scalar", "native_norm", static=("p",))
def norm_scalar(self: Expr, p: Scalar = 2) -> Expr:
    return vector_norm(self, p)


@aten("norm.ScalarOpt_dtype", static=("p",))
def norm_dtype(self: Expr, p: Scalar | None, *, dtype: DType) -> Expr:
    return vector_norm(self, 2 if p is None else p, dtype=dtype)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", static=("p",))
def norm_dim(self: Expr, p: Scalar | None, dim: Dims, keepdim: bool = False, *, dtype: DType | None = None) -> Expr:
    return vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


@aten("dist", static=("p",))
def dist(self: Expr, other: Expr, p: Scalar = 2) -> Expr:
    (x, y), _ = promote(self, other)
    return vector_norm(ops.sub(x, y), p)


# ------------------------------------------------------------------ scans


def _scan(x: Expr, dim: int, dtype: DType | None, core: str) -> Expr:
    kind = dtype or _sum_type(x.shape.dtype)
    y = cast(x, kind)
    along = axis(dim, x.shape.ndim)
    return cast(getattr(ops, core)(cast(y, math_dtype(kind)), axis=along), kind) if x.shape.ndim else y


@aten("cumsum")
def cumsum(self: Expr, dim: int, *, dtype: DType | None = None) -> Expr:
    return _scan(self, dim, dtype, "cumsum")


@aten("cumprod")
def cumprod(self: Expr, dim: int, *, dtype: DType | None = None) -> Expr:
    return _scan(self, dim, dtype, "cumprod")


@aten("cummax")
def cummax(self: Expr, dim: int) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        return self, filled(0, (), I64)
    values, indices = ops.cummax(self, axis=axis(dim, self.shape.ndim))
    return values, cast(indices, I64)


@aten("cummin")
def cummin(self: Expr, dim: int) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        return self, filled(0, (), I64)
    values, indices = ops.cummin(self, axis=axis(dim, self.shape.ndim))
    return values, cast(indices, I64)


@aten("logcumsumexp", "_logcumsumexp")
def logcumsumexp(self: Expr, dim: int) -> Expr:
    kind = float_type(self.shape.dtype)
    if self.shape.ndim == 0:
        return cast(self, kind)
    # in double precision as the CPU does: the gradient is a difference of such sums, and imaginary parts grow with every one
    x = cast(self, C128 if is_complex(kind) else F64 if kind == F32 else kind)
    return cast(ops.logcumsumexp(x, axis=axis(dim, self.shape.ndim)), kind)


@aten("trace")
def trace(self: Expr) -> Expr:
    return sum(ops.diagonal(self, offset=0, axis1=0, axis2=1))


@aten("renorm", static=("p",))
def renorm(self: Expr, p: float, dim: int, maxnorm: Scalar) -> Expr:
    a = axis(dim, self.shape.ndim)
    over = tuple(i for i in range(self.shape.ndim) if i != a)
    kind = real_of(math_dtype(self.shape.dtype))
    size = cast(ops.abs(self), kind)
    if p == math.inf:
        norm = ops.max(size, axes=over, keepdims=True)
    elif p == 0:
        norm = ops.sum(cast(ops.ne(size, num(0, size)), kind), axes=over, keepdims=True)
    else:
        norm = ops.pow(ops.sum(ops.pow(size, num(p, size)), axes=over, keepdims=True), num(1 / p, size))
    limit = operand(maxnorm, kind)
    factor = ops.where(ops.gt(norm, limit), ops.div(limit, ops.add(norm, num(1e-7, norm))), num(1, norm))
    return ops.mul(self, cast(factor, self.shape.dtype))
