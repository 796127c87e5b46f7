"""Kernels of reductions, scans and normalised exponentials: the families `reductions`, `cumulative` and `nn`.

Owns: accumulation in a dtype wide enough, which for narrow floats is f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Node
from .binary import logaddexp_complex
from .compare import truth
from .registry import F32, INT64, Array, Function, builder, extension, kernel, narrow, wide

Axes = Sequence[int]


_sum: Any = np.add.reduce
_max: Any = np.maximum.reduce


def _all_or(axes: Axes, ndim: int) -> Any:
    """Axes as NumPy likes them best: None for all of them."""
    found = tuple(axes)
    return None if len(found) == ndim else found


def _fold(name: str, function: Any) -> None:
    """A reduction in the operand's own dtype, which NumPy would widen."""

    @builder(name)
    def build(node: Node) -> Function:
        shape, attributes = node.inputs[0].shape, node.attrs.kwargs
        axes, keepdims, dtype = _all_or(attributes["axes"], shape.ndim), attributes["keepdims"], shape.dtype
        reduce = function.reduce
        if narrow(dtype):
            return lambda x: reduce(x.astype(F32), axes, F32, None, keepdims).astype(dtype)
        return lambda x: reduce(x, axes, dtype, None, keepdims)


_fold("sum", np.add)
_fold("prod", np.multiply)
_fold("reduce_xor", np.bitwise_xor)


def _extreme(name: str, function: Any) -> None:
    @builder(name)
    def build(node: Node) -> Function:
        shape, attributes = node.inputs[0].shape, node.attrs.kwargs
        axes, keepdims, dtype = _all_or(attributes["axes"], shape.ndim), attributes["keepdims"], shape.dtype
        reduce = function.reduce
        if extension(dtype):
            return lambda x: reduce(x.astype(F32), axes, None, None, keepdims).astype(dtype)
        return lambda x: reduce(x, axes, None, None, keepdims)


_extreme("max", np.maximum)
_extreme("min", np.minimum)


def _truth(name: str, function: Any) -> None:
    @builder(name)
    def build(node: Node) -> Function:
        axes, keepdims = _all_or(node.attrs.kwargs["axes"], node.inputs[0].shape.ndim), node.attrs.kwargs["keepdims"]
        reduce = function.reduce
        return lambda x: reduce(truth(x), axes, None, None, keepdims)


_truth("all", np.logical_and)
_truth("any", np.logical_or)


def _count(dims: Sequence[int], axes: Axes) -> int:
    return math.prod([dims[a] for a in axes])


@builder("mean")
def mean(node: Node) -> Function:
    """The sum over the count; NaN of none."""
    shape, attributes = node.inputs[0].shape, node.attrs.kwargs
    axes, keepdims, dtype = _all_or(attributes["axes"], shape.ndim), attributes["keepdims"], shape.dtype
    computed = F32 if narrow(dtype) else dtype
    count = computed.type(_count(shape.dims, attributes["axes"]))

    def run(x: Array) -> Any:
        return np.true_divide(_sum(x, axes, computed, None, keepdims), count)

    if narrow(dtype):
        return lambda x: run(x.astype(F32)).astype(dtype)
    return run


@kernel("var")
def var(x: Array, *, axes: Axes, keepdims: bool, correction: float) -> Array:
    """In two passes; of complex numbers the mean squared distance."""
    values, found = wide(x), tuple(axes)
    count = _count(x.shape, found)
    center = _sum(values, found, None, None, True) / values.dtype.type(count)
    apart = np.asarray(values - center)
    if x.dtype.kind == "c":
        squares = np.square(apart.real)
        squares += np.square(apart.imag)
    else:
        squares = np.square(apart, out=apart)
    total = np.asarray(_sum(squares, found, None, None, keepdims))
    result: Array = total / total.dtype.type(max(count - correction, 0.0))
    return result.astype(x.dtype) if narrow(x.dtype) else result


@kernel("logsumexp")
def logsumexp(x: Array, *, axes: Axes, keepdims: bool) -> Array:
    """Shifted by the largest where that is finite."""
    values, found = wide(x), tuple(axes)
    top = np.asarray(_max(values, found, None, None, True))
    top = np.where(np.isfinite(top), top, top.dtype.type(0))
    shifted = np.asarray(values - top)
    total = _sum(np.exp(shifted, out=shifted), found, None, None, keepdims)
    result: Array = np.log(total) + (top if keepdims else np.squeeze(top, found))
    return result.astype(x.dtype)


def _position(name: str, function: Any) -> None:
    @kernel(name)
    def position(x: Array, *, axis: int, keepdims: bool, dtype: np.dtype) -> Array:
        values = x.astype(F32) if extension(x.dtype) else x
        found: Array = np.asarray(function(values, axis, keepdims=keepdims)).astype(dtype, copy=False)
        return found


_position("argmax", np.argmax)
_position("argmin", np.argmin)


# ------------------------------------------------------------------ scans


def _scan(name: str, function: Any) -> None:
    @kernel(name)
    def scan(x: Array, *, axis: int) -> Array:
        if narrow(x.dtype):
            found: Array = function.accumulate(x.astype(F32), axis).astype(x.dtype)
            return found
        result: Array = function.accumulate(x, axis, x.dtype)
        return result


_scan("cumsum", np.add)
_scan("cumprod", np.multiply)


@kernel("logcumsumexp")
def logcumsumexp(x: Array, *, axis: int) -> Array:
    """One after the other; NumPy has none of complex numbers."""
    if x.dtype.kind != "c":
        found: Array = np.logaddexp.accumulate(wide(x), axis).astype(x.dtype, copy=False)
        return found
    result = np.empty_like(x)
    rows, totals = np.moveaxis(x, axis, 0), np.moveaxis(result, axis, 0)
    total: Any = np.full(rows.shape[1:], -np.inf, x.dtype)
    for place, row in enumerate(rows):
        total = totals[place] = logaddexp_complex(row, total)
    return result


def _best(name: str, function: Any) -> None:
    @kernel(name)
    def best(x: Array, *, axis: int) -> tuple[Array, Array]:
        values = x.astype(F32) if extension(x.dtype) else x
        top = function.accumulate(values, axis)
        hit = np.equal(values, top)
        if values.dtype.kind == "f":
            hit |= np.isnan(values)
        dims = [1] * x.ndim
        dims[axis] = x.shape[axis]
        places = np.where(hit, np.arange(x.shape[axis], dtype=INT64).reshape(dims), 0)
        return top.astype(x.dtype, copy=False), np.maximum.accumulate(places, axis)


_best("cummax", np.maximum)
_best("cummin", np.minimum)


# ------------------------------------------------------------------ normalised exponentials


@kernel("softmax")
def softmax(x: Array, *, axis: int) -> Array:
    """In one buffer."""
    if x.shape[axis] == 0:
        return x
    values = wide(x)
    weights: Array = values - _max(values, axis, None, None, True)
    np.exp(weights, out=weights)
    weights /= _sum(weights, axis, None, None, True)
    return weights.astype(x.dtype, copy=False)


@kernel("log_softmax")
def log_softmax(x: Array, *, axis: int) -> Array:
    """In one buffer, and one for the exponentials."""
    if x.shape[axis] == 0:
        return x
    values = wide(x)
    shifted: Array = values - _max(values, axis, None, None, True)
    shifted -= np.log(_sum(np.exp(shifted), axis, None, None, True))
    return shifted.astype(x.dtype, copy=False)
