"""The methods of ufuncs on lazy operands: reduce, accumulate, outer, at, reduceat.

Owns: which of them are lowered.  May import `reductions`, `ufuncs`, `base`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..fallback import NotLowered
from ..tensor import ndarray
from . import reductions, ufuncs
from .base import NO_VALUE, array

_KIND = {ufunc: kind for kind, ufunc in reductions.COMBINE.items()} | {np.logaddexp: "logaddexp"}
_REDUCED_ONLY = frozenset({"any", "all", "xor"})
_ACCUMULATED_ONLY = frozenset({"logaddexp"})


def _check_out(ufunc: np.ufunc, a: Any, dtype: Any, out: Any) -> None:
    out = out[0] if type(out) is tuple else out
    default = dtypes.sum_dtype(a.dtype) if ufunc in (np.add, np.multiply) else a.dtype
    if out is not None and out.dtype != np.dtype(default if dtype is None else dtype):
        raise NotLowered("an output of another dtype, which has a say in how results are computed")


def reduce(
    ufunc: np.ufunc,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """`ufunc.reduce`."""
    kind = _KIND.get(ufunc)
    a = array(a)
    _check_out(ufunc, a, dtype, out)
    if kind is None or kind in _ACCUMULATED_ONLY:
        raise NotLowered("only the reductions of sums, products, extrema, logic and exclusive or are lowered")
    if kind == "xor" and np.dtype(dtype or a._shape.dtype).kind not in "biu":
        raise NotLowered("bits of numbers that are no integers")
    if kind in ("any", "all") and dtype not in (None, bool, np.bool_):
        raise NotLowered("a logical reduction with a dtype")
    if ufunc is np.add and a._shape.dtype.kind == "b" and dtype in (bool, np.bool_):
        raise NotLowered("a sum of bools in bool")
    return reductions.reduce(kind, a, axis, dtype, out, keepdims, initial, where)


def accumulate(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """`ufunc.accumulate`."""
    kind = _KIND.get(ufunc)
    _check_out(ufunc, a, dtype, out)
    if kind is None or kind in _REDUCED_ONLY:
        raise NotLowered("only running sums, products, extrema and sums of exponentials are lowered")
    return reductions.cumulate(kind, a, axis, dtype, out)


def outer(ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    """`ufunc.outer`."""
    a, b = array(a), array(b)
    left = a.reshape(a._shape.dims + (1,) * b._shape.ndim)
    return ufuncs.call_with(ufunc, (left, b), **kwargs)


def at(ufunc: np.ufunc, a: Any, indices: Any, *operands: Any) -> None:
    """`ufunc.at`: unbuffered, so that repeated indices count each time."""
    from . import indexing

    names: dict[Any, str] = {np.add: "add", np.subtract: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min"}
    reduce_as = names.get(ufunc)
    if reduce_as is None or type(a) is not ndarray or a._shape.dtype.kind not in ("iufc" if reduce_as in ("add", "mul") else "iuf"):
        raise NotLowered("only add, subtract, multiply, maximum and minimum have an `at` here, and of numbers")
    values = array(operands[0])
    if not np.can_cast(np.result_type(a._shape.dtype, values._shape.dtype), a._shape.dtype, "same_kind"):
        raise NotLowered("a cast that is not of the same kind")
    indexing.accumulate(a, indices, -values if ufunc is np.subtract else values, reduce_as)


def reduceat(ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
    """`ufunc.reduceat`."""
    raise NotLowered("reduceat")


METHODS = {"reduce": reduce, "accumulate": accumulate, "outer": outer, "at": at, "reduceat": reduceat}
