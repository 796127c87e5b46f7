"""`_foreach_*`: the pointwise builders over lists, functional and in place.

Owns: what optimizers' multi-tensor paths call, and the two AMP operations on lists of gradients. Everything is derived from the pointwise
builders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten, compare, linalg, pointwise, reductions
from .promotion import DType, Scalar, cast, expand, filled, math_dtype, num, operand, reshape
from .shapes import cut

Tensors = Sequence[Expr]
Fn = Callable[..., Expr]

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip


def _settle(new: Expr, old: Expr) -> Expr:
    return expand(cast(new, old.shape.dtype), old.shape.dims)


def _register(name: str, overload: str, fn: Callable[..., list[Expr]], **options: Any) -> None:
    """Register `_foreach_name` and `_foreach_name_` of one overload."""
    dot = f".{overload}" if overload else ""
    aten(f"_foreach_{name}{dot}", **options)(fn)

    def in_place(self: Tensors, *args: Any, **kw: Any) -> list[Expr]:
        return [_settle(new, old) for new, old in zip(fn(self, *args, **kw), self, strict=True)]

    aten(f"_foreach_{name}_{dot}", **options)(in_place)


def _unary(name: str, builder: Fn) -> None:
    def over(self: Tensors) -> list[Expr]:
        return [builder(x) for x in self]

    _register(name, "", over)


def _binary(name: str, builder: Fn, overloads: Sequence[str]) -> None:
    def with_list(self: Tensors, other: Sequence[Scalar], **kw: Any) -> list[Expr]:
        return [builder(x, y, **kw) for x, y in zip(self, other, strict=True)]

    def with_one(self: Tensors, other: Scalar, **kw: Any) -> list[Expr]:
        return [builder(x, other, **kw) for x in self]

    for overload in overloads:
        _register(name, overload, with_list if overload.endswith("List") else with_one)


def _scalars(values: Any, count: int) -> list[Scalar]:
    """One scalar for each tensor: from a number, a list of numbers, or a 1-D tensor."""
    if isinstance(values, Expr) and values.shape.ndim == 1:
        return [reshape(cut(values, 0, i, i + 1), ()) for i in range(count)]
    return list(values) if isinstance(values, (tuple, list)) else [values] * count


def _ternary(name: str, builder: Fn) -> None:
    def over(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Any = 1) -> list[Expr]:
        lists = zip(self, tensor1, tensor2, _scalars(value, len(self)), strict=True)
        return [builder(x, a, b, value=v) for x, a, b, v in lists]

    for overload in ("Scalar", "ScalarList", "Tensor"):
        _register(name, overload, over)


def _load() -> None:
    from . import BUILDERS

    for name in UNARY:
        _unary(name, BUILDERS[name].fn)
    for name in ("add", "mul", "div"):
        _binary(name, BUILDERS[f"{name}.Tensor"].fn, ("List", "Scalar", "ScalarList", "Tensor"))
    _binary("sub", pointwise.sub, ("List", "Scalar", "ScalarList"))
    _binary("pow", pointwise.pow_, ("List", "Scalar", "ScalarList"))
    for name, builder in (("clamp_min", pointwise.clamp_min), ("clamp_max", pointwise.clamp_max)):
        _binary(name, builder, ("List", "Scalar", "ScalarList"))
    _binary("maximum", pointwise.clamp_min, ("List", "Scalar", "ScalarList"))
    _binary("minimum", pointwise.clamp_max, ("List", "Scalar", "ScalarList"))
    _ternary("addcmul", pointwise.addcmul)
    _ternary("addcdiv", pointwise.addcdiv)


_load()


@aten("_foreach_pow.ScalarAndTensor")
def foreach_pow(self: Scalar, exponent: Tensors) -> list[Expr]:
    return [pointwise.pow_(self, e) for e in exponent]


def _lerp(self: Tensors, tensors1: Tensors, weight: Any) -> list[Expr]:
    return [pointwise.lerp(x, y, w) for x, y, w in zip(self, tensors1, _scalars(weight, len(self)), strict=True)]


for _overload in ("List", "Scalar", "ScalarList"):
    _register("lerp", _overload, _lerp)


@aten("_foreach_zero", "_foreach_zero_")
def foreach_zero(self: Tensors) -> list[Expr]:
    return [filled(0, x.shape.dims, x.shape.dtype) for x in self]


@aten("_foreach_clone")
def foreach_clone(self: Tensors, *, memory_format: None = None) -> list[Expr]:
    return list(self)


@aten("_foreach_copy", "_foreach_copy_")
def foreach_copy(self: Tensors, src: Tensors, non_blocking: bool = False) -> list[Expr]:
    return [_settle(new, old) for new, old in zip(src, self, strict=True)]


@aten("_foreach_norm.Scalar", static=("ord",))
def foreach_norm(self: Tensors, ord: Scalar = 2, dtype: DType | None = None) -> list[Expr]:
    return [reductions.vector_norm(x, ord, dtype=dtype) for x in self]


@aten("_foreach_max")
def foreach_max(self: Tensors) -> list[Expr]:
    return [reductions.max_(x) for x in self]


@aten("_foreach_mm")
def foreach_mm(self: Tensors, mat2: Tensors) -> list[Expr]:
    return [linalg.mm(x, y) for x, y in zip(self, mat2, strict=True)]


# ------------------------------------------------------------------ AMP


def _unscale(self: Tensors, found_inf: Expr, inv_scale: Expr) -> tuple[list[Expr], Expr]:
    found = found_inf
    scaled = []
    for x in self:
        finite = ops.all(ops.isfinite(x), axes=tuple(range(x.shape.ndim)), keepdims=False) if x.shape.ndim else ops.isfinite(x)
        bad = cast(ops.logical_not(finite), found.shape.dtype)
        found = ops.maximum(found, reshape(bad, (1,) * found.shape.ndim))
        wide = math_dtype(x.shape.dtype)
        scaled.append(cast(ops.mul(cast(x, wide), reshape(cast(inv_scale, wide), ())), x.shape.dtype))
    return scaled, found


aten("_amp_foreach_non_finite_check_and_unscale", "_amp_foreach_non_finite_check_and_unscale_")(_unscale)


@aten("_amp_update_scale", "_amp_update_scale_")
def amp_update_scale(
    self: Expr, growth_tracker: Expr, found_inf: Expr, scale_growth_factor: float, scale_backoff_factor: float, growth_interval: int
) -> tuple[Expr, Expr]:
    bad = reshape(compare.truth(found_inf), (1,) * self.shape.ndim)
    tracked = ops.add(growth_tracker, num(1, growth_tracker))
    due = ops.eq(tracked, num(growth_interval, tracked))
    larger = ops.mul(self, num(scale_growth_factor, self))
    grown = ops.where(ops.logical_and(due, ops.isfinite(larger)), larger, self)
    zero = operand(0, tracked.shape.dtype)
    scale = ops.where(bad, ops.mul(self, num(scale_backoff_factor, self)), grown)
    return scale, ops.where(ops.logical_or(bad, due), zero, tracked)
