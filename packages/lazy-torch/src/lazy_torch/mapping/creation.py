"""Tensors made from sizes and numbers: full and its relatives, arange, linspace, eye, index triangles.

Owns: factories. Sizes follow from the numbers, so the Scalars of arange and linspace must be static. Uninitialised factories (`empty*`)
are the device's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr, const

from . import aten
from .promotion import (
    F64,
    I64,
    DType,
    Scalar,
    cast,
    default_float,
    dtype_of,
    expand,
    filled,
    iota,
    is_complex,
    is_float,
    is_int,
    is_static,
    num,
    operand,
)


def _filler(value: int) -> Any:
    def factory(size: Sequence[int], *, dtype: DType | None = None, **_: Any) -> Expr:
        return filled(value, size, dtype or default_float())

    def like(self: Expr, *, dtype: DType | None = None, **_: Any) -> Expr:
        return filled(value, self.shape.dims, dtype or self.shape.dtype)

    def new(self: Expr, size: Sequence[int], *, dtype: DType | None = None, **_: Any) -> Expr:
        return filled(value, size, dtype or self.shape.dtype)

    return factory, like, new


for _name, _value in (("zeros", 0), ("ones", 1)):
    _factory, _like, _new = _filler(_value)
    aten(_name)(_factory)
    aten(f"{_name}_like")(_like)
    aten(f"new_{_name}")(_new)


@aten("_efficientzerotensor")
def efficient_zeros(size: Sequence[int], *, dtype: DType | None = None, **_: Any) -> Expr:
    return filled(0, size, dtype or default_float())


@aten("full")
def full(size: Sequence[int], fill_value: Scalar, *, dtype: DType | None = None, **_: Any) -> Expr:
    return filled(fill_value, size, dtype or dtype_of(fill_value))


@aten("full_like")
def full_like(self: Expr, fill_value: Scalar, *, dtype: DType | None = None, **_: Any) -> Expr:
    return filled(fill_value, self.shape.dims, dtype or self.shape.dtype)


@aten("new_full")
def new_full(self: Expr, size: Sequence[int], fill_value: Scalar, *, dtype: DType | None = None, **_: Any) -> Expr:
    return filled(fill_value, size, dtype or self.shape.dtype)


@aten("scalar_tensor")
def scalar_tensor(s: Scalar, *, dtype: DType | None = None, **_: Any) -> Expr:
    return operand(s, dtype or default_float())


@aten("fill.Scalar", "fill.Tensor")
def fill(self: Expr, value: Scalar) -> Expr:
    return expand(operand(value, self.shape.dtype), self.shape.dims)


@aten("zero")
def zero(self: Expr) -> Expr:
    return filled(0, self.shape.dims, self.shape.dtype)


@aten("eye", "eye.m")
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, **_: Any) -> Expr:
    return ops.eye(n=n, m=n if m is None else m, k=0, dtype=dtype or default_float())


def _static(name: str, *values: Scalar) -> None:
    if not all(is_static(v) for v in values):
        raise UnsupportedError(f"{name}: the bounds decide the size, so they cannot be run-time values")


@aten("arange", "arange.start", "arange.start_step", static=("start", "end", "step"))
def arange(*bounds: Any, dtype: DType | None = None, **_: Any) -> Expr:
    _static("arange", *bounds)
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) > 2 else 1
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    kind = dtype or (I64 if all(isinstance(v, (int, bool)) for v in bounds) else default_float())
    if all(isinstance(v, (int, bool)) for v in (start, end, step)):
        count = -((start - end) // step)
        index = iota((count,), 0)
        if step != 1:
            index = ops.mul(index, num(step, index))
        return cast(ops.add(index, num(start, index)) if start else index, kind)
    if is_int(kind):
        start, end, step = int(start), int(end), int(step)
        return arange(start, end, step, dtype=kind)
    return _range(start, step, math.ceil((end - start) / step), kind)


def _range(start: float, step: float, count: int, kind: DType) -> Expr:
    wide = ops.add(ops.mul(iota((count,), 0, F64), const(step, F64)), const(start, F64))
    return cast(wide, kind)


@aten("range", "range.step", static=("start", "end", "step"))
def range_(start: Any, end: Any, step: Any = 1, *, dtype: DType | None = None, **_: Any) -> Expr:
    _static("range", start, end, step)
    kind = dtype or default_float()
    if is_int(kind):
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    return _range(start, step, int((end - start) / step) + 1, kind)


def _steps(start: Scalar, end: Scalar, steps: int, wide: DType, whole: bool = False) -> Expr:
    """Evenly spaced numbers, to be cut to integers if `whole`: start and end are integers then."""
    a, b = operand(start, wide), operand(end, wide)
    if steps <= 1:
        return expand(ops.reshape(a, dims=(1,)), (steps,)) if steps else filled(0, (0,), wide)
    index = cast(iota((steps,), 0), wide)
    gap, divisor = ops.sub(b, a), const(steps - 1, wide)
    if whole:  # XLA would multiply by the reciprocal of a constant, and steps of 1 would be cut to 0: it cannot know that no gap is 0.5
        divisor = ops.where(ops.eq(gap, const(0.5, wide)), const(1, wide), divisor)
    step = ops.div(gap, divisor)
    up = ops.add(a, ops.mul(step, index))
    down = ops.sub(b, ops.mul(step, ops.sub(const(steps - 1, wide), index)))
    return ops.where(ops.lt(iota((steps,), 0), const(steps // 2, I64)), up, down)


@aten("linspace", "linspace.Scalar_Tensor", "linspace.Tensor_Scalar", "linspace.Tensor_Tensor")
def linspace(start: Scalar, end: Scalar, steps: int, *, dtype: DType | None = None, **_: Any) -> Expr:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    kinds = [dtype_of(v) for v in (start, end)]
    kind = dtype or next((k for k in kinds if is_complex(k)), default_float())
    wide = kind if is_complex(kind) or (kind.itemsize > 2 and is_float(kind)) else F64
    start, end = (_bound(v, kind) for v in (start, end))
    return cast(_steps(start, end, steps, wide, is_int(kind)), kind)


def _bound(value: Scalar, kind: DType) -> Scalar:
    """Torch brings the bounds of integer sequences to integers first."""
    return operand(value, kind) if is_int(kind) else value


@aten("logspace", "logspace.Scalar_Tensor", "logspace.Tensor_Scalar", "logspace.Tensor_Tensor")
def logspace(start: Scalar, end: Scalar, steps: int, base: float = 10.0, *, dtype: DType | None = None, **_: Any) -> Expr:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    kind = dtype or default_float()
    wide = kind if is_complex(kind) else F64
    start, end = (_bound(v, kind) for v in (start, end))
    base = int(base) if is_int(kind) else base
    return cast(ops.pow(const(base, wide), _steps(start, end, steps, wide, is_int(kind))), kind)


def _triangle_indices(row: int, col: int, offset: int, lower: bool, dtype: DType | None) -> Expr:
    counts = [min(max(r + offset + 1, 0), col) if lower else col - min(max(r + offset, 0), col) for r in range(row)]
    total = sum(counts)
    if total == 0:
        return filled(0, (2, 0), dtype or I64)
    r = iota((row, col), 0)
    c = iota((row, col), 1)
    edge = ops.add(r, num(offset, r))
    inside = ops.le(c, edge) if lower else ops.ge(c, edge)
    outside = ops.convert(ops.reshape(ops.logical_not(inside), dims=(row * col,)), dtype=I64)
    order = ops.argsort(outside, axis=0, descending=False, stable=True, dtype=I64)
    flat = ops.slice_(order, starts=(0,), limits=(total,), strides=(1,))
    width = num(col, flat)
    return cast(ops.stack(ops.floor_div(flat, width), ops.remainder(flat, width), axis=0), dtype or I64)


@aten("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, **_: Any) -> Expr:
    return _triangle_indices(row, col, offset, True, dtype)


@aten("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, **_: Any) -> Expr:
    return _triangle_indices(row, col, offset, False, dtype)
