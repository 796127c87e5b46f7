"""Sorting and selection along a dimension.

Owns: sort, argsort, topk, kthvalue, median, max/min with indices, argmax/argmin. Ties go to the first position, nan counts as the largest
value.
"""

from __future__ import annotations

import numpy as np

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import BOOL, I64, axis, cast, filled, iota, is_complex, is_float, num, reshape
from .shapes import cut

_U8 = np.dtype(np.uint8)


def _orderable(x: Expr) -> Expr:
    if is_complex(x.shape.dtype):
        raise RuntimeError(f"sorting is not defined for complex tensors: {x.shape}")
    return ops.convert(x, dtype=_U8) if x.shape.dtype == BOOL else x


def sorted_with_indices(x: Expr, a: int, descending: bool) -> tuple[Expr, Expr]:
    """Stable sort along axis a: values in the dtype of x, indices i64."""
    values, indices = ops.sort_with_indices(_orderable(x), axis=a, descending=descending, stable=True)
    return cast(values, x.shape.dtype), cast(indices, I64)


@aten("sort")
def sort(self: Expr, dim: int = -1, descending: bool = False) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        axis(dim, 0)
        return self, filled(0, (), I64)
    return sorted_with_indices(self, axis(dim, self.shape.ndim), descending)


@aten("sort.stable")
def sort_stable(self: Expr, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Expr, Expr]:
    return sort(self, dim, descending)


@aten("argsort")
def argsort(self: Expr, dim: int = -1, descending: bool = False) -> Expr:
    return sort(self, dim, descending)[1]


@aten("argsort.stable")
def argsort_stable(self: Expr, *, stable: bool, dim: int = -1, descending: bool = False) -> Expr:
    return sort(self, dim, descending)[1]


@aten("topk")
def topk(self: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        if k != 1:
            raise RuntimeError(f"selected index k out of range: k={k} of a 0-d tensor")
        return self, filled(0, (), I64)
    a = axis(dim, self.shape.ndim)
    if not 0 <= k <= self.shape.dims[a]:
        raise RuntimeError(f"selected index k out of range: k={k} of {self.shape.dims[a]} in {self.shape}")
    values, indices = ops.topk(_orderable(self), k=k, axis=a, largest=largest)
    return cast(values, self.shape.dtype), cast(indices, I64)


def _take_position(values: Expr, indices: Expr, a: int, at: int, keepdim: bool) -> tuple[Expr, Expr]:
    picked = cut(values, a, at, at + 1), cut(indices, a, at, at + 1)
    return picked if keepdim else (ops.squeeze(picked[0], axes=(a,)), ops.squeeze(picked[1], axes=(a,)))


@aten("kthvalue")
def kthvalue(self: Expr, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        return self, filled(0, (), I64)
    a = axis(dim, self.shape.ndim)
    if not 1 <= k <= self.shape.dims[a]:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}: k={k} of {self.shape}")
    values, indices = sorted_with_indices(self, a, False)
    return _take_position(values, indices, a, k - 1, keepdim)


@aten("median.dim")
def median_dim(self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        return self, filled(0, (), I64)
    a = axis(dim, self.shape.ndim)
    n = self.shape.dims[a]
    if n == 0:
        raise IndexError(f"median(): Expected reduction dim {dim} to have non-zero size.")
    values, indices = sorted_with_indices(self, a, False)
    middle = _take_position(values, indices, a, (n - 1) // 2, True)
    if is_float(self.shape.dtype):  # one nan makes the median nan: it is the last of the row
        last = _take_position(values, indices, a, n - 1, True)
        first_nan = _first(ops.isnan(self), a)
        bad = ops.isnan(last[0])
        middle = (ops.where(bad, last[0], middle[0]), ops.where(bad, first_nan, middle[1]))
    return middle if keepdim else (ops.squeeze(middle[0], axes=(a,)), ops.squeeze(middle[1], axes=(a,)))


def _first(flags: Expr, a: int) -> Expr:
    return ops.argmax(ops.convert(flags, dtype=_U8), axis=a, keepdims=True, dtype=I64)


@aten("median")
def median(self: Expr) -> Expr:
    if self.shape.size == 0:
        raise UnsupportedError("the median of an empty tensor")
    return median_dim(reshape(self, (self.shape.size,)), 0)[0]


def _nanmedian(x: Expr, a: int, keepdim: bool) -> tuple[Expr, Expr]:
    values, indices = sorted_with_indices(x, a, False)
    good = ops.sum(ops.convert(ops.logical_not(ops.isnan(x)), dtype=I64), axes=(a,), keepdims=True)
    at = ops.maximum(ops.floor_div(ops.sub(good, num(1, good)), num(2, good)), num(0, good))
    picked = ops.take_along_axis(values, at, axis=a), ops.take_along_axis(indices, at, axis=a)
    return picked if keepdim else (ops.squeeze(picked[0], axes=(a,)), ops.squeeze(picked[1], axes=(a,)))


@aten("nanmedian.dim")
def nanmedian_dim(self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not is_float(self.shape.dtype) or self.shape.ndim == 0:
        return median_dim(self, dim, keepdim)
    return _nanmedian(self, axis(dim, self.shape.ndim), keepdim)


@aten("nanmedian")
def nanmedian(self: Expr) -> Expr:
    if self.shape.size == 0:
        raise UnsupportedError("the median of an empty tensor")
    return nanmedian_dim(reshape(self, (self.shape.size,)), 0)[0]


@aten("mode")
def mode(self: Expr, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    if self.shape.ndim == 0:
        axis(dim, 0)
        return self, filled(0, (), I64)
    a = axis(dim, self.shape.ndim)
    n = self.shape.dims[a]
    if n == 0:
        raise IndexError(f"mode(): Expected reduction dim {dim} to have non-zero size.")
    values, indices = sorted_with_indices(self, a, False)
    place = iota(values.shape.dims, a)
    before, after = cut(values, a, 0, n - 1), cut(values, a, 1, n)
    fresh = ops.concatenate(filled(True, cut(values, a, 0, 1).shape.dims, BOOL), ops.ne(before, after), axis=a)
    begin, _ = ops.cummax(ops.where(fresh, place, num(0, place)), axis=a)  # where the run of equal values began
    at = ops.argmax(ops.sub(place, begin), axis=a, keepdims=True, dtype=I64)  # the end of the first of the longest runs
    picked = ops.take_along_axis(values, at, axis=a), ops.take_along_axis(indices, at, axis=a)
    return picked if keepdim else (ops.squeeze(picked[0], axes=(a,)), ops.squeeze(picked[1], axes=(a,)))


# ------------------------------------------------------------------ extrema with positions


def _arg(name: str, x: Expr, a: int, keepdim: bool) -> Expr:
    if x.shape.dims[a] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {a} to have non-zero size.")
    return (ops.argmax if "max" in name else ops.argmin)(_orderable(x), axis=a, keepdims=keepdim, dtype=I64)


def _extreme_dim(name: str, x: Expr, dim: int, keepdim: bool) -> tuple[Expr, Expr]:
    if x.shape.ndim == 0:
        axis(dim, 0)
        return x, filled(0, (), I64)
    a = axis(dim, x.shape.ndim)
    at = _arg(name, x, a, True)
    y = _orderable(x)
    best = cast((ops.max if name == "max" else ops.min)(y, axes=(a,), keepdims=keepdim), x.shape.dtype)
    return best, at if keepdim else ops.squeeze(at, axes=(a,))


@aten("max.dim")
def max_dim(self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    return _extreme_dim("max", self, dim, keepdim)


@aten("min.dim")
def min_dim(self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    return _extreme_dim("min", self, dim, keepdim)


def _arg_extreme(name: str, x: Expr, dim: int | None, keepdim: bool) -> Expr:
    if x.shape.ndim == 0:
        return filled(0, (), I64)
    if dim is None:
        if x.shape.size == 0:
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0; of no elements none is the largest")
        flat = _arg(name, reshape(x, (x.shape.size,)), 0, False)
        return reshape(flat, (1,) * x.shape.ndim) if keepdim else flat
    return _arg(name, x, axis(dim, x.shape.ndim), keepdim)


@aten("argmax")
def argmax(self: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    return _arg_extreme("argmax", self, dim, keepdim)


@aten("argmin")
def argmin(self: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    return _arg_extreme("argmin", self, dim, keepdim)
