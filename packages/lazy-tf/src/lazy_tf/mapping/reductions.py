"""Reductions, arg-reductions, cumulative operations, sorting.

Source: `gen_math_ops`, `gen_nn_ops`.  May import `rules`, `arrays` and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ir, ops
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


@lower("EuclideanNorm")
def _euclidean_norm(x: Expr, *, reduction_indices: Any, keep_dims: bool) -> Expr:
    axes = _axes(x, reduction_indices, "EuclideanNorm")
    squares = ops.mul(x, ops.conj(x)) if x.shape.dtype.kind == "c" else ops.square(x)
    total = ops.sum(squares, axes=axes, keepdims=keep_dims) if axes else squares
    if x.shape.dtype.kind in "iu":  # the root is rounded towards zero
        return ops.convert(ops.sqrt(ops.convert(total, dtype=np.dtype(np.float64))), dtype=x.shape.dtype)
    return ops.sqrt(total)


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


@lower("CumulativeLogsumexp")
def _cumulative_logsumexp(x: Expr, *, axis: Any, exclusive: bool, reverse: bool) -> Expr:
    return _cumulative(x, axis, exclusive, reverse, ops.logcumsumexp, "CumulativeLogsumexp")


@lower("TopKV2")
def _top_k(x: Expr, *, k: int, index_type: np.dtype) -> tuple[Expr, Expr]:
    if x.shape.ndim == 0 or x.shape.dims[-1] < k:
        raise ShapeError(f"TopKV2: input must have at least k={k} columns, not {x.shape}")
    values, indices = ops.topk(x, k=k, axis=x.shape.ndim - 1, largest=True)
    return values, ops.convert(indices, dtype=index_type)


@lower("InTopKV2", "InTopK")
def _in_top_k(predictions: Expr, targets: Expr, *, k: int) -> Expr:
    if predictions.shape.ndim != 2 or targets.shape.dims != predictions.shape.dims[:1]:
        raise ShapeError(f"InTopKV2: predictions {predictions.shape} and targets {targets.shape}")
    rows, classes = predictions.shape.dims
    column = ops.reshape(targets, dims=(rows, 1))
    valid = ops.logical_and(ops.ge(targets, like(targets, 0)), ops.lt(targets, like(targets, classes)))
    inside = ops.clip(column, like(targets, 0), like(targets, classes - 1))
    mine = ops.take_along_axis(predictions, inside, axis=1)
    better = ops.convert(ops.gt(predictions, mine), dtype=np.dtype(np.int64))
    fewer = ops.lt(ops.sum(better, axes=(1,), keepdims=False), ir.const(k, np.dtype(np.int64)))
    finite = ops.all(ops.isfinite(predictions), axes=(1,), keepdims=False)
    return ops.logical_and(ops.logical_and(fewer, finite), valid)


@lower("HistogramFixedWidth")
def _histogram(values: Expr, value_range: Expr, *, nbins: int, dtype: np.dtype) -> Expr:
    if nbins < 1 or value_range.shape.dims != (2,):
        raise ShapeError(f"HistogramFixedWidth: {nbins} bins between the two numbers {value_range.shape}")
    wide = np.dtype(np.float64)
    low, high = (
        ops.convert(ops.reshape(ops.slice_(value_range, starts=(i,), limits=(i + 1,), strides=(1,)), dims=()), dtype=wide) for i in (0, 1)
    )
    flat = ops.convert(ops.reshape(values, dims=(values.shape.size,)), dtype=wide)
    step = ops.div(ops.sub(high, low), ir.const(nbins, wide))
    places = ops.floor(ops.div(ops.sub(ops.maximum(flat, low), low), step))
    bins = ops.convert(ops.minimum(places, ir.const(nbins - 1, wide)), dtype=np.dtype(np.int64))
    return ops.segment_sum(ops.full(ir.const(1, dtype), dims=(values.shape.size,)), bins, num=nbins)
