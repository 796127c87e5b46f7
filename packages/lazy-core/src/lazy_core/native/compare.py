"""Kernels of comparisons, logic, selection and conversion: the family `compare`.

Owns: casts with the rules that `convert` declares, on processors whose own rules differ too.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from ..ir import Node
from .registry import BOOL, F32, Array, Function, builder, extension, in_pieces, kind, ufuncs, widening

ufuncs(
    (0, 1),
    eq=np.equal,
    ne=np.not_equal,
    lt=np.less,
    le=np.less_equal,
    gt=np.greater,
    ge=np.greater_equal,
)


def _logic(name: str, function: Any) -> None:
    @builder(name, reuse=(0, 1))
    def build(node: Node) -> Function:
        if not any(extension(e.shape.dtype) for e in node.inputs):
            found: Function = function
            return found
        return lambda x, y, out=None: function(truth(x), truth(y), out=out)


def truth(x: Array) -> Array:
    """Elementwise x != 0; NaN is true."""
    return x if x.dtype == BOOL else np.not_equal(x, x.dtype.type(0))


_logic("logical_and", np.logical_and)
_logic("logical_or", np.logical_or)
_logic("logical_xor", np.logical_xor)


# From so many elements on, selecting by bits wins over NumPy's branches.
_MANY = 1 << 12


@builder("where")
def where(node: Node) -> Function:
    """NumPy's, which broadcasts all three; of many elements by their bits, whose cost does not depend on how the mask alternates."""
    pred, _, y = (e.shape for e in node.inputs)
    after = node.outputs[0].shape
    if pred.dims != after.dims or y is not after or after.size < _MANY or after.dtype.itemsize > 8:
        return np.where
    bits = np.dtype(f"i{after.dtype.itemsize}")

    def piece(out: Array, mask: Array, first: Array, second: Array) -> None:
        chosen = np.negative(mask.view(np.int8)).astype(bits)
        np.bitwise_and(np.bitwise_xor(first, second, out=out), chosen, out=out)
        np.bitwise_xor(out, second, out=out)

    run = in_pieces(piece, bits)

    def select(pred: Array, x: Array, y: Array) -> Array:
        if not (pred.flags.c_contiguous and y.flags.c_contiguous and (x.ndim == 0 or x.flags.c_contiguous) and x.shape in ((), y.shape)):
            return np.where(pred, x, y)
        result: Array = run(pred, x.view(bits), y.view(bits))
        return result.view(y.dtype)

    return select


@builder("clip", reuse=(0,))
def clip(node: Node) -> Function:
    """min(max(x, lo), hi), the second in place."""
    dtype = node.inputs[0].shape.dtype
    in_place = node.inputs[0].shape is node.outputs[0].shape

    def run(x: Array, lo: Array, hi: Array, out: Any = None) -> Any:
        low = np.maximum(x, lo, out=out)
        return np.minimum(low, hi, out=low if in_place and low.__class__ is np.ndarray else None)

    return widening(run, dtype) if extension(dtype) else run


# ------------------------------------------------------------------ conversion

# x86 converts what does not fit to the smallest integer, as `convert` declares; other processors saturate.
_SMALLEST: dict[Any, int] = {np.dtype(np.int32): -(1 << 31), np.dtype(np.int64): -(1 << 63)}
_AS_DECLARED = platform.machine().lower() in ("x86_64", "amd64")


@builder("convert")
def convert(node: Node) -> Function:
    """A cast; see the operation for what becomes of numbers that do not fit."""
    before, after = node.inputs[0].shape.dtype, node.outputs[0].shape.dtype
    return cast(before, after)


def cast(before: np.dtype, after: np.dtype) -> Function:
    """The function that casts arrays of one dtype to another."""
    if before == after:
        return lambda x: x
    if after.kind == "b":
        return truth
    if before.kind == "c" and after.kind != "c":
        part = np.dtype(np.float32 if before.itemsize == 8 else np.float64)
        inner = cast(part, after)
        return lambda x: inner(x.real)
    if kind(before) == "f" and after.kind in "iu":
        return _to_integer(before, after)
    if extension(before) or extension(after):
        return lambda x: x.astype(F32).astype(after)
    return lambda x: x.astype(after)


def _to_integer(before: np.dtype, after: np.dtype) -> Function:
    through = np.dtype(np.int64 if after.itemsize == 8 or after == np.uint32 else np.int32)
    limit = 2.0 ** (8 * through.itemsize - 1)
    is_narrow = before.itemsize <= 2

    def whole(x: Array) -> Array:
        found = x.astype(through)
        if not _AS_DECLARED:
            found = np.where(np.less(x, x.dtype.type(limit)), found, _SMALLEST[through])
        return found

    def run(x: Array) -> Array:
        return whole(x.astype(F32) if is_narrow else x).astype(after, copy=False)

    def unsigned(x: Array) -> Array:  # the upper half goes through the lower one
        x = x.astype(F32) if is_narrow else x
        big = np.greater_equal(x, x.dtype.type(limit))
        low = whole(np.where(big, x - x.dtype.type(limit), x)).astype(after)
        return np.where(big, low ^ after.type(1 << 63), low)

    return unsigned if after == np.uint64 else run


@builder("bitcast")
def bitcast(node: Node) -> Function:
    """A view where the width stays; a last dim appears or goes where it does not."""
    before, after = node.inputs[0].shape.dtype, node.outputs[0].shape
    dtype, dims = after.dtype, after.dims
    if before.itemsize == dtype.itemsize:
        return lambda x: x.view(dtype)
    if before.itemsize > dtype.itemsize:
        return lambda x: np.ascontiguousarray(x).reshape(-1).view(dtype).reshape(dims)
    return lambda x: np.ascontiguousarray(x).reshape(-1).view(dtype).reshape(dims)
