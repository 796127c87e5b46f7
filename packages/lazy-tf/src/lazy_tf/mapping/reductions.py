"""Reductions, arg-reductions, cumulative operations, sorting.

Source: `gen_math_ops`, `gen_nn_ops`.  May import `rules`, `arrays` and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr

from .arrays import axis_of
from .rules import like, lower


def _axes(x: Expr, indices: Any, name: str) -> tuple[int, ...]:
    given = indices if isinstance(indices, tuple) else (indices,)
    axes = [axis_of(a, x.shape.ndim, name) for a in given]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axes {given} name one dimension of {x.shape} twice")
    return tuple(sorted(axes))


def _reduction(name: str, target: Callable[..., Expr]) -> None:
    @lower(name)
    def reduce(x: Expr, *, reduction_indices: Any, keep_dims: bool) -> Expr:
        axes = _axes(x, reduction_indices, name)
        return target(x, axes=axes, keepdims=keep_dims) if axes else x


_reduction("Sum", ops.sum)
_reduction("Prod", ops.prod)
_reduction("Max", ops.max)
_reduction("Min", ops.min)
_reduction("All", ops.all)
_reduction("Any", ops.any)


@lower("Mean")
def _mean(x: Expr, *, reduction_indices: Any, keep_dims: bool) -> Expr:
    axes = _axes(x, reduction_indices, "Mean")
    if x.shape.dtype.kind in "iu":
        raise UnsupportedError("Mean of integers")
    if x.shape.dtype.kind == "c" and not x.shape.size:  # the CPU kernel gives 0 here, and NaN for real numbers
        return ops.sum(x, axes=axes, keepdims=keep_dims)
    return ops.mean(x, axes=axes, keepdims=keep_dims) if axes else x


def _without_nan(x: Expr, filler: float) -> Expr:
    """The CPU kernel never picks a NaN."""
    if x.shape.dtype.kind in "iub":
        return x
    return ops.where(ops.isnan(x), like(x, filler), x)


@lower("ArgMax")
def _arg_max(x: Expr, *, dimension: Any, output_type: np.dtype) -> Expr:
    return ops.argmax(_without_nan(x, -np.inf), axis=axis_of(dimension, x.shape.ndim, "ArgMax"), keepdims=False, dtype=output_type)


@lower("ArgMin")
def _arg_min(x: Expr, *, dimension: Any, output_type: np.dtype) -> Expr:
    return ops.argmin(_without_nan(x, np.inf), axis=axis_of(dimension, x.shape.ndim, "ArgMin"), keepdims=False, dtype=output_type)


def _cumulative(x: Expr, axis: Any, exclusive: bool, reverse: bool, target: Callable[..., Expr], name: str) -> Expr:
    if exclusive:
        raise UnsupportedError(f"{name}: exclusive")
    where = axis_of(axis, x.shape.ndim, name)
    if not reverse:
        return target(x, axis=where)
    return ops.reverse(target(ops.reverse(x, axes=(where,)), axis=where), axes=(where,))


@lower("Cumsum")
def _cumsum(x: Expr, *, axis: Any, exclusive: bool, reverse: bool) -> Expr:
    return _cumulative(x, axis, exclusive, reverse, ops.cumsum, "Cumsum")


@lower("Cumprod")
def _cumprod(x: Expr, *, axis: Any, exclusive: bool, reverse: bool) -> Expr:
    return _cumulative(x, axis, exclusive, reverse, ops.cumprod, "Cumprod")


@lower("TopKV2")
def _top_k(x: Expr, *, k: int, index_type: np.dtype) -> tuple[Expr, Expr]:
    if x.shape.ndim == 0 or x.shape.dims[-1] < k:
        raise ShapeError(f"TopKV2: input must have at least k={k} columns, not {x.shape}")
    values, indices = ops.topk(x, k=k, axis=x.shape.ndim - 1, largest=True)
    return values, ops.convert(indices, dtype=index_type)
