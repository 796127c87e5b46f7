"""Sums, extrema, means and the other reductions, and cumulative ones.

Owns: NumPy's rules for their dtypes, axes, `where=`, `initial=` and empty operands.  May import `base`, `dtypes`, lazy_core's ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const

from .. import dtypes
from ..fallback import NotLowered
from ..tensor import ndarray, wrap_any
from . import ranges
from .base import NO_VALUE, array, axes_tuple, axis_index, lowers, recorded, store

_FLOAT32 = np.dtype(np.float32)


def _cast(x: Any, dtype: np.dtype) -> Any:
    return x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)


def _count(dims: tuple[int, ...], axes: tuple[int, ...]) -> int:
    total = 1
    for a in axes:
        total *= dims[a]
    return total


def _complex_extreme(x: Any, kind: str, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The extreme of complex numbers: they are sorted by real part, then imaginary; NaNs come last, and win."""
    dims = x.shape.dims
    rest = [a for a in range(len(dims)) if a not in axes]
    count = _count(dims, axes)
    rows = ops.transpose(x, perm=(*rest, *axes)) if axes != tuple(range(len(rest), len(dims))) else x
    rows = ops.sort(ops.reshape(rows, dims=(*[dims[a] for a in rest], count)), axis=len(rest), descending=False, stable=True)
    at = [
        ops.slice_(rows, starts=(0,) * len(rest) + (i,), limits=(*rows.shape.dims[:-1], i + 1), strides=(1,) * (len(rest) + 1))
        for i in (0, count - 1)
    ]
    result = at[1] if kind == "max" else ops.where(ops.isnan(at[1]), at[1], at[0])
    return ops.reshape(result, dims=tuple([1 if a in axes else n for a, n in enumerate(dims) if keepdims or a not in axes]))


_REDUCE: dict[str, Any] = {
    "sum": ops.sum,
    "prod": ops.prod,
    "max": ops.max,
    "min": ops.min,
    "any": ops.any,
    "all": ops.all,
    "xor": ops.reduce_xor,
}


@recorded("numpy.reduce")
def _reduce(x: Any, *, kind: str, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype) -> Any:
    op = _REDUCE[kind]
    if kind in ("max", "min") and dtype.kind == "c":
        return _complex_extreme(x, kind, axes, keepdims)
    if kind in ("max", "min") and dtype.kind == "b":
        op = ops.any if kind == "max" else ops.all
    return _cast(op(_cast(x, dtype) if kind not in ("any", "all") else x, axes=axes, keepdims=keepdims), dtype)


@recorded("numpy.reduce_where")
def _reduce_where(x: Any, mask: Any, *, kind: str, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype, neutral: Any) -> Any:
    x = ops.where(mask, _cast(x, dtype), const(neutral, dtype))
    return _reduce.composite.fn(x, kind=kind, axes=axes, keepdims=keepdims, dtype=dtype)


_NEUTRAL = {"sum": 0, "prod": 1, "any": False, "all": True, "xor": 0}
COMBINE: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
    "xor": np.bitwise_xor,
}
_fast: dict[Any, tuple[tuple[int, ...], np.dtype]] = {}


def reduce(
    kind: str,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """One of NumPy's reductions by ufunc: kind is sum, prod, max, min, any, all or xor."""
    if type(a) is not ndarray:
        a = array(a)
    shape = a._shape
    keepdims = bool(keepdims) if keepdims is not NO_VALUE else False
    try:
        found = _fast.get((kind, shape, axis, dtype))
    except TypeError:
        found = None
    if found is None:
        found = axes_tuple(axis, shape.ndim), _dtype(kind, shape.dtype, dtype)
        if type(axis) in (int, type(None)) or (type(axis) is tuple and {type(i) for i in axis} <= {int}):
            _fast[(kind, shape, axis, dtype)] = found
    axes, target = found
    if where is True or where is NO_VALUE:
        if kind in ("max", "min") and initial is NO_VALUE and _count(shape.dims, axes) == 0:
            getattr(np, kind)(np.empty(shape.dims), axis=axis)  # raises, or the result is empty too
        value = _reduce(a._get(), kind=kind, axes=axes, keepdims=keepdims, dtype=target)
    else:
        if kind not in _NEUTRAL:
            if initial is NO_VALUE:
                raise ValueError(
                    f"reduction operation '{COMBINE[kind].__name__}' does not have an identity, "
                    "so to use a where mask one has to specify 'initial'"
                )
            neutral = initial
        else:
            neutral = _NEUTRAL[kind]
        mask = array(where)
        value = _reduce_where(
            a._get(), mask._get(), kind=kind, axes=axes, keepdims=keepdims, dtype=target, neutral=np.asarray(neutral).astype(target).item()
        )
    result = wrap_any(value)
    if initial is not NO_VALUE and initial is not None:
        result = COMBINE[kind](result, target.type(initial))
    return store(result, out)


def _dtype(kind: str, given: np.dtype, dtype: Any) -> np.dtype:
    if kind in ("any", "all"):
        return dtypes.BOOL
    if dtype is not None:
        target = np.dtype(dtype)
        if not dtypes.supports(target):
            raise NotLowered(f"dtype {target}")
        return target
    return dtypes.sum_dtype(given) if kind in ("sum", "prod") else given


@lowers(np.sum)
def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True
) -> Any:
    """`np.sum`."""
    return reduce("sum", a, axis, dtype, out, keepdims, initial, where)


@lowers(np.prod)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True
) -> Any:
    """`np.prod`."""
    return reduce("prod", a, axis, dtype, out, keepdims, initial, where)


@lowers(np.max, np.amax)
def max(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True) -> Any:
    """`np.max`."""
    return reduce("max", a, axis, None, out, keepdims, initial, where)


@lowers(np.min, np.amin)
def min(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True) -> Any:
    """`np.min`."""
    return reduce("min", a, axis, None, out, keepdims, initial, where)


@lowers(np.any)
def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """`np.any`."""
    return reduce("any", a, axis, None, out, keepdims, NO_VALUE, where)


@lowers(np.all)
def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """`np.all`."""
    return reduce("all", a, axis, None, out, keepdims, NO_VALUE, where)


@lowers(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """`np.ptp`."""
    return store(max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims), out)


# ------------------------------------------------------------------ means


def _mean_of(x: Any, mask: Any, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype) -> tuple[Any, Any]:
    """The mean in an accumulating dtype, and how many elements it is of."""
    wide = _FLOAT32 if dtype == np.float16 else dtype
    real = dtypes.real_dtype(wide)
    x = _cast(x, wide)
    if mask is None:
        count: Any = const(_count(x.shape.dims, axes), real)
    else:
        mask = ops.broadcast_to(mask, dims=x.shape.dims)
        x = ops.where(mask, x, const(0, wide))
        count = ops.sum(_cast(mask, real), axes=axes, keepdims=keepdims)
    total = ops.sum(x, axes=axes, keepdims=keepdims)
    return ops.div(total, _cast(count, wide) if mask is not None else const(count.value, wide)), count


@recorded("numpy.mean")
def _mean(x: Any, *, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype) -> Any:
    return _cast(_mean_of(x, None, axes, keepdims, dtype)[0], dtype)


@recorded("numpy.mean_where")
def _mean_where(x: Any, mask: Any, *, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype) -> Any:
    return _cast(_mean_of(x, mask, axes, keepdims, dtype)[0], dtype)


@recorded("numpy.var")
def _var(x: Any, *masks: Any, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype, ddof: float, root: bool) -> Any:
    wide = _FLOAT32 if dtype == np.float16 else dtype
    real = dtypes.real_dtype(wide)
    x = _cast(x, wide)
    mask = ops.broadcast_to(masks[0], dims=x.shape.dims) if masks else None
    mean, count = _mean_of(x, mask, axes, True, wide)
    off = ops.sub(x, mean)
    square = ops.add(ops.square(ops.real(off)), ops.square(ops.imag(off))) if wide.kind == "c" else ops.square(off)
    if mask is not None:
        square = ops.where(mask, square, const(0, real))
        count = ops.sum(_cast(mask, real), axes=axes, keepdims=keepdims)
        divisor = ops.maximum(ops.sub(count, const(ddof, real)), const(0, real))
    else:
        left = _count(x.shape.dims, axes) - ddof
        divisor = const(left if left > 0 else 0, real)
    result = ops.div(ops.sum(square, axes=axes, keepdims=keepdims), divisor)
    return _cast(ops.sqrt(result) if root else result, dtypes.real_dtype(dtype))


@lowers(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """`np.mean`."""
    a = array(a)
    target = dtypes.mean_dtype(a._shape.dtype) if dtype is None else np.dtype(dtype)
    if not dtypes.supports(target) or target.kind not in "fc":
        raise NotLowered(f"a mean of dtype {target}")
    static = {"axes": axes_tuple(axis, a._shape.ndim), "keepdims": keepdims is True, "dtype": target}
    if where is True or where is NO_VALUE:
        return store(wrap_any(_mean(a._get(), **static)), out)
    return store(wrap_any(_mean_where(a._get(), array(where)._get(), **static)), out)


def _spread(a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: Any, where: Any, mean: Any, correction: Any, root: bool) -> Any:
    a = array(a)
    target = dtypes.mean_dtype(a._shape.dtype) if dtype is None else np.dtype(dtype)
    if mean is not NO_VALUE or not dtypes.supports(target) or target.kind not in "fc":
        raise NotLowered("a given mean, or a dtype that is not floating")
    if correction is not NO_VALUE:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    masks = () if where is True or where is NO_VALUE else (array(where)._get(),)
    static = {"axes": axes_tuple(axis, a._shape.ndim), "keepdims": keepdims is True, "dtype": target, "ddof": float(ddof), "root": root}
    return store(wrap_any(_var(a._get(), *masks, **static)), out)


@lowers(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Any:
    """`np.var`."""
    return _spread(a, axis, dtype, out, ddof, keepdims, where, mean, correction, root=False)


@lowers(np.std)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Any:
    """`np.std`."""
    return _spread(a, axis, dtype, out, ddof, keepdims, where, mean, correction, root=True)


# ------------------------------------------------------------------ positions and counts


@recorded("numpy.arg")
def _arg(x: Any, *, largest: bool, axis: int, flat: bool, keepdims: bool) -> Any:
    ndim = len(x.shape.dims)
    if x.shape.dtype.kind == "b":
        x = _cast(x, np.dtype(np.int8))
    if flat:
        x = ops.reshape(x, dims=(x.shape.size,))
    result = (ops.argmax if largest else ops.argmin)(x, axis=axis, keepdims=keepdims and not flat, dtype=dtypes.INTP)
    return ops.reshape(result, dims=(1,) * ndim) if flat and keepdims else result


def _position(largest: bool, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    a = array(a)
    if a._shape.dtype.kind == "c":
        raise NotLowered("an ordering of complex numbers")
    dims = a._shape.dims
    flat = axis is None
    index = 0 if flat else axis_index(axis, len(dims))
    length = a._shape.size if flat else dims[index]
    if length == 0:
        (np.argmax if largest else np.argmin)(np.empty(dims), axis=axis)  # raises, or the result is empty too
    value = _arg(a._get(), largest=largest, axis=index, flat=flat, keepdims=keepdims is True)
    ranges.note(value, 0, length - 1)
    return store(wrap_any(value), out)


@lowers(np.argmax)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """`np.argmax`."""
    return _position(True, a, axis, out, keepdims)


@lowers(np.argmin)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """`np.argmin`."""
    return _position(False, a, axis, out, keepdims)


@lowers(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """`np.count_nonzero`; an int where NumPy gives one would be a read, so the count stays a lazy scalar."""
    a = array(a)
    return reduce("sum", a if a._shape.dtype.kind == "b" else a != a._shape.dtype.type(0), axis, np.intp, None, keepdims)


# ------------------------------------------------------------------ cumulative


@recorded("numpy.cumulate")
def _cumulate(x: Any, *, kind: str, axis: int, flat: bool, dtype: np.dtype) -> Any:
    if flat:
        x = ops.reshape(x, dims=(x.shape.size,))
    x = _cast(x, dtype)
    if kind in ("max", "min"):
        byte = np.dtype(np.int8)
        result = (ops.cummax if kind == "max" else ops.cummin)(_cast(x, byte) if dtype.kind == "b" else x, axis=axis)[0]
        return _cast(result, dtype)
    return {"sum": ops.cumsum, "prod": ops.cumprod, "logaddexp": ops.logcumsumexp}[kind](x, axis=axis)


def cumulate(kind: str, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    """A running sum, prod, max, min or logaddexp along an axis (None: flattened)."""
    a = array(a)
    target = _dtype(kind, a._shape.dtype, dtype)
    if kind == "logaddexp" and target.kind != "f":
        raise NotLowered(f"a running {kind} in {target}")
    if target == np.float16 or (target.kind == "c" and kind in ("max", "min")):
        raise NotLowered(f"a running {kind} in {target}, which NumPy rounds at every step")
    flat = axis is None
    if flat and a._shape.ndim == 1:
        axis, flat = 0, False
    index = 0 if flat else axis_index(axis, a._shape.ndim)
    return store(wrap_any(_cumulate(a._get(), kind=kind, axis=index, flat=flat, dtype=target)), out)


@lowers(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """`np.cumsum`."""
    return cumulate("sum", a, axis, dtype, out)


@lowers(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """`np.cumprod`."""
    return cumulate("prod", a, axis, dtype, out)
