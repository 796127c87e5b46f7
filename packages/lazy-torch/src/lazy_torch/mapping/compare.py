"""Comparisons, logic, bits and selection.

Owns: eq..ge, logical_*, bitwise_* and shifts, maximum/minimum, isnan and friends, where, equal, isin. Imports `promotion` and core's ops.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten, is_number
from .promotion import BOOL, Scalar, broadcast_dims, dims_of, expand, filled, is_complex, is_float, num, operand, promote, result_type


def _comparison(name: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def build(self: Scalar, other: Scalar) -> Expr:
        (x, y), _ = promote(self, other)
        return getattr(ops, name)(x, y)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name)


def _logical(name: str) -> None:
    @aten(name)
    def build(self: Expr, other: Scalar) -> Expr:
        return getattr(ops, name)(truth(self), truth(other))


def truth(x: Scalar) -> Expr:
    """x != 0 as a bool tensor."""
    if not isinstance(x, Expr):
        return operand(bool(x), BOOL)
    return x if x.shape.dtype == BOOL else ops.ne(x, num(0, x))


for _name in ("logical_and", "logical_or", "logical_xor"):
    _logical(_name)


@aten("logical_not")
def logical_not(self: Expr) -> Expr:
    return ops.logical_not(truth(self))


def _bitwise(name: str) -> None:
    logical = name.replace("bitwise", "logical")

    @aten(f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor")
    def build(self: Scalar, other: Scalar) -> Expr:
        (x, y), dtype = promote(self, other)
        if is_float(dtype) or is_complex(dtype):
            raise RuntimeError(f"{name} is not defined for {dtype.name} operands; it takes integers and bools")
        return getattr(ops, logical if dtype == BOOL else name)(x, y)


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _bitwise(_name)


@aten("bitwise_not")
def bitwise_not(self: Expr) -> Expr:
    return ops.logical_not(self) if self.shape.dtype == BOOL else ops.bitwise_not(self)


def _shift(name: str, core: str, *aliases: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Tensor_Scalar", f"{name}.Scalar_Tensor", *aliases)
    def build(self: Scalar, other: Scalar) -> Expr:
        (x, y), dtype = promote(self, other)
        bits = dtype.itemsize * 8
        outside = ops.ge(y, num(bits, y))
        if dtype.kind == "i":
            outside = ops.logical_or(outside, ops.lt(y, num(0, y)))
        safe = ops.where(outside, num(bits - 1 if core == "shift_right" and dtype.kind == "i" else 0, y), y)
        moved = getattr(ops, core)(x, safe)
        # out of range: a left shift gives 0; a right shift gives what is left of the sign
        if core == "shift_right" and dtype.kind == "i":
            return moved
        return ops.where(outside, num(0, moved), moved)


_shift("bitwise_left_shift", "shift_left", "__lshift__.Tensor", "__lshift__.Scalar")
_shift("bitwise_right_shift", "shift_right", "__rshift__.Tensor", "__rshift__.Scalar")


def _extremum(name: str) -> None:
    @aten(name)
    def build(self: Expr, other: Expr) -> Expr:
        (x, y), dtype = promote(self, other)
        if dtype == BOOL:
            return (ops.logical_or if name in ("maximum", "fmax") else ops.logical_and)(x, y)
        if name in ("fmax", "fmin") and not is_float(dtype):
            return getattr(ops, "maximum" if name == "fmax" else "minimum")(x, y)
        return getattr(ops, name)(x, y)


for _name in ("maximum", "minimum", "fmax", "fmin"):
    _extremum(_name)


@aten("isnan")
def isnan(self: Expr) -> Expr:
    if is_complex(self.shape.dtype):
        return ops.logical_or(ops.isnan(ops.real(self)), ops.isnan(ops.imag(self)))
    return ops.isnan(self) if is_float(self.shape.dtype) else filled(False, dims_of(self), BOOL)


@aten("isinf")
def isinf(self: Expr) -> Expr:
    if is_complex(self.shape.dtype):
        return ops.logical_or(ops.isinf(ops.real(self)), ops.isinf(ops.imag(self)))
    return ops.isinf(self) if is_float(self.shape.dtype) else filled(False, dims_of(self), BOOL)


@aten("isposinf")
def isposinf(self: Expr) -> Expr:
    return ops.eq(self, num(math.inf, self)) if is_float(self.shape.dtype) else filled(False, dims_of(self), BOOL)


@aten("isneginf")
def isneginf(self: Expr) -> Expr:
    return ops.eq(self, num(-math.inf, self)) if is_float(self.shape.dtype) else filled(False, dims_of(self), BOOL)


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(condition: Expr, self: Scalar, other: Scalar) -> Expr:
    dtype = result_type(self, other)
    x, y = operand(self, dtype), operand(other, dtype)
    dims = broadcast_dims(condition.shape.dims, x.shape.dims, y.shape.dims)
    return expand(ops.where(truth(condition), x, y), dims)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Expr, mask: Expr, value: Scalar) -> Expr:
    if isinstance(value, Expr) and not is_number(value) and value.shape.ndim > 0:
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got {value.shape}")
    fill = operand(value, self.shape.dtype)
    dims = broadcast_dims(self.shape.dims, mask.shape.dims)
    return expand(ops.where(truth(mask), fill, self), dims)


@aten("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(elements: Scalar, test_elements: Scalar, *, assume_unique: bool = False, invert: bool = False) -> Expr:
    (x, y), _ = promote(elements, test_elements)
    dims = x.shape.dims
    many = ops.reshape(y, dims=(y.shape.size,))
    hit = ops.any(ops.eq(ops.reshape(x, dims=(*dims, 1)), many), axes=(len(dims),), keepdims=False)
    return ops.logical_not(hit) if invert else hit
