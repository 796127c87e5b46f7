"""Elementwise functions that are not ufuncs, and small compositions of ufuncs.

Owns: clip, round, real and imag, nan_to_num, closeness, differences, interpolation, counting.  May import `base`,
`ufuncs`, lazy_core's ops.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const

from .. import convert, dtypes
from ..fallback import NotLowered
from ..tensor import ndarray, wrap, wrap_any
from . import reductions, shapes, ufuncs
from .base import NO_VALUE, array, axis_index, lowers, op, recorded, store


def _cast(x: Any, dtype: np.dtype) -> Any:
    return x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)


_convert = op(ops.convert)


def astype(a: Any, dtype: Any, casting: Any = "unsafe", copy: bool = True) -> Any:
    """`ndarray.astype`."""
    target = np.dtype(dtype)
    given = a._shape.dtype
    if not np.can_cast(given, target, casting):
        raise TypeError(f"Cannot cast array data from {given!r} to {target!r} according to the rule {casting!r}")
    if not dtypes.supports(target):
        return convert.to_numpy(a).astype(target)
    value = a._get()
    if target == given:
        if not copy:
            return a
    else:
        value = _convert(value, dtype=target)
    return wrap(value) if type(a) is ndarray else wrap_any(value)


@lowers(np.clip)
def clip(
    a: Any, a_min: Any = NO_VALUE, a_max: Any = NO_VALUE, out: Any = None, *, min: Any = NO_VALUE, max: Any = NO_VALUE, **kwargs: Any
) -> Any:
    """`np.clip`."""
    low = a_min if a_min is not NO_VALUE else min if min is not NO_VALUE else None
    high = a_max if a_max is not NO_VALUE else max if max is not NO_VALUE else None
    a = a if convert.is_lazy(a) else array(a)
    low, high = (_in_bounds(v, a._shape.dtype) for v in (low, high))
    result = a
    if low is not None:
        result = ufuncs.call_with(np.maximum, (result, low), **kwargs)
    if high is not None:
        result = ufuncs.call_with(np.minimum, (result, high), **kwargs)
    if result is a:
        result = wrap_any(a._get())
    return store(result, out)


def _in_bounds(bound: Any, dtype: np.dtype) -> Any:
    """A Python int past the range of the dtype is that range's end."""
    if type(bound) is int and dtype.kind in "iu":
        low, high = dtypes.integer_bounds(dtype)
        return low if bound < low else high if bound > high else bound
    return bound


@recorded("numpy.round")
def _round(x: Any, *, decimals: int) -> Any:
    dtype = x.shape.dtype
    if dtype.kind == "c":
        return ops.complex(_round.composite.fn(ops.real(x), decimals=decimals), _round.composite.fn(ops.imag(x), decimals=decimals))
    if dtype.kind in "iu":
        power = const(10**-decimals, dtype)
        scaled = ops.floor_div(x, power)
        rest = ops.sub(x, ops.mul(scaled, power))
        twice = ops.sub(rest, ops.sub(power, rest))
        odd = ops.ne(ops.remainder(scaled, const(2, dtype)), const(0, dtype))
        zero = const(0, dtype)
        up = ops.logical_or(ops.gt(twice, zero), ops.logical_and(ops.eq(twice, zero), odd))
        return ops.mul(ops.add(scaled, _cast(up, dtype)), power)
    if decimals == 0:
        return ops.round(x)
    power = const(10.0 ** abs(decimals), dtype)
    if decimals > 0:
        return ops.div(ops.round(ops.mul(x, power)), power)
    return ops.mul(ops.round(ops.div(x, power)), power)


@lowers(np.round, np.around)
def round_(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    """`np.round`, half to even."""
    x = a if convert.is_lazy(a) else array(a)
    decimals = operator.index(decimals)
    kind = x._shape.dtype
    if kind.kind == "b":
        raise NotLowered("rounding bools")
    if kind.kind == "u" or (kind.kind == "i" and decimals < 0):
        if decimals < 0 and (10**-decimals > dtypes.integer_bounds(kind)[1] or kind.kind == "u"):
            raise NotLowered("rounding past the range of the dtype")
        if decimals >= 0:
            return store(wrap_any(x._get()), out)
    elif kind.kind == "i":
        return store(wrap_any(x._get()), out)
    return store(wrap_any(_round(x._get(), decimals=decimals)), out)


@lowers(np.fix)
def fix(x: Any, out: Any = None) -> Any:
    """`np.fix`."""
    return store(np.trunc(x), out)


_real = op(ops.real)
_imag = op(ops.imag)


@lowers(np.real)
def real(val: Any) -> Any:
    """`np.real`."""
    return val.real


@lowers(np.imag)
def imag(val: Any) -> Any:
    """`np.imag`."""
    return val.imag


@lowers(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """`np.angle`."""
    z = array(z)
    if z._shape.dtype.kind == "c":
        result = np.arctan2(wrap(_imag(z._get())), wrap(_real(z._get())))
    else:
        result = np.arctan2(np.float64(0.0) if z._shape.dtype.kind != "f" else z._shape.dtype.type(0), z)
    return result * (180 / np.pi) if deg else result


@lowers(np.isreal)
def isreal(x: Any) -> Any:
    """`np.isreal`."""
    return x.imag == 0 if x.dtype.kind == "c" else wrap(shapes._zeros(const(True, dtypes.BOOL), dims=x.shape))


@lowers(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    """`np.iscomplexobj`."""
    return bool(x.dtype.kind == "c")


@lowers(np.isrealobj)
def isrealobj(x: Any) -> bool:
    """`np.isrealobj`."""
    return bool(x.dtype.kind != "c")


@recorded("numpy.nan_to_num")
def _nan_to_num(x: Any, *, nan: float, posinf: float, neginf: float) -> Any:
    dtype = x.shape.dtype
    x = ops.where(ops.isnan(x), const(nan, dtype), x)
    x = ops.where(ops.eq(x, const(float("inf"), dtype)), const(posinf, dtype), x)
    return ops.where(ops.eq(x, const(float("-inf"), dtype)), const(neginf, dtype), x)


@lowers(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """`np.nan_to_num`."""
    a = array(x)
    kind = a._shape.dtype
    if kind.kind == "c" or any(np.ndim(v) for v in (nan, posinf, neginf) if v is not None):
        raise NotLowered("complex numbers, or a number for each element")
    if kind.kind != "f":
        return wrap_any(a._get())
    info = np.finfo(kind)
    value = _nan_to_num(
        a._get(), nan=float(nan), posinf=float(info.max if posinf is None else posinf), neginf=float(info.min if neginf is None else neginf)
    )
    if not copy:
        a._put(value)
        return x
    return wrap_any(value)


@lowers(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> Any:
    """`np.isclose`."""
    y = array(b)
    if y._shape.dtype.kind in "biu":
        y = y.astype(np.result_type(y._shape.dtype, 1.0))
    x = array(a)
    result = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y) | (x == y)
    if equal_nan:
        result = result | (np.isnan(x) & np.isnan(y))
    return result


@lowers(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> bool:
    """`np.allclose`: a bool, so it reads."""
    return bool(reductions.all(isclose(a, b, rtol, atol, equal_nan)))


@lowers(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """`np.array_equal`: a bool, so it reads."""
    x, y = array(a1), array(a2)
    if x._shape.dims != y._shape.dims:
        return False
    same: Any = x == y
    if equal_nan and x._shape.dtype.kind in "fc" and y._shape.dtype.kind in "fc":
        same = same | (np.isnan(x) & np.isnan(y))
    return bool(reductions.all(same))


@lowers(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> bool:
    """`np.array_equiv`: a bool, so it reads."""
    try:
        return bool(reductions.all(array(a1) == array(a2)))
    except ValueError:
        return False


@lowers(np.sinc)
def sinc(x: Any) -> Any:
    """`np.sinc`."""
    x = array(x)
    if x._shape.dtype.kind in "biu":
        x = x.astype(float)
    y = np.pi * np.where(x == 0, x._shape.dtype.type(np.finfo(x._shape.dtype).eps), x)
    return np.sin(y) / y


@lowers(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE) -> Any:
    """`np.diff`."""
    a = array(a)
    if n < 0:
        raise ValueError("order must be non-negative but got " + repr(n))
    if a._shape.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    index = axis_index(axis, a._shape.ndim)
    parts = []
    for extra in (prepend, a, append):
        if extra is NO_VALUE:
            continue
        extra = array(extra)
        if extra._shape.ndim == 0:
            extra = shapes.broadcast_to(extra, tuple([1 if i == index else d for i, d in enumerate(a._shape.dims)]))
        parts.append(extra)
    if len(parts) > 1:
        a = shapes.concatenate(parts, index)
    lead = (slice(None),) * index
    for _ in range(n):
        later, earlier = a[(*lead, slice(1, None))], a[(*lead, slice(None, -1))]
        a = later != earlier if a._shape.dtype.kind == "b" else later - earlier
    return a


@lowers(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """`np.ediff1d`."""
    middle = diff(shapes.ravel(ary))
    parts = [p for p in (to_begin, middle, to_end) if p is not None]
    return middle if len(parts) == 1 else shapes.concatenate([shapes.ravel(p) for p in parts])


@lowers(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """`np.average` with weights of the array's shape, or none."""
    a = array(a)
    if weights is None:
        mean = reductions.mean(a, axis, keepdims=keepdims is True)
        if returned:
            count = a._shape.size / max(mean.size, 1)
            return mean, np.full_like(mean, count) if type(mean) is ndarray else mean.dtype.type(count)
        return mean
    w = array(weights)
    if w._shape.dims != a._shape.dims:
        if axis is None or isinstance(axis, (tuple, list)) or w._shape.ndim != 1:
            raise NotLowered("weights of another shape")
        index = axis_index(axis, a._shape.ndim)
        if w._shape.size != a._shape.dims[index]:
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        w = shapes.reshape(w, tuple([-1 if i == index else 1 for i in range(a._shape.ndim)]))
        w = shapes.broadcast_to(w, a._shape.dims)
    target = np.result_type(a._shape.dtype, w._shape.dtype, *([np.float64] if a._shape.dtype.kind in "biu" else []))
    total = reductions.sum(w, axis, target, None, keepdims is True)
    result = reductions.sum(a * w.astype(target), axis, target, None, keepdims is True) / total
    return (result, total) if returned else result


@recorded("numpy.interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    n = xp.shape.dims[0]
    position = ops.searchsorted(xp, x, side="right")
    at = ops.clip(position, const(1, position.shape.dtype), const(max(n - 1, 1), position.shape.dtype))
    before = ops.sub(at, const(1, at.shape.dtype))
    x0, x1 = ops.take(xp, before, axis=0, mode="clip"), ops.take(xp, at, axis=0, mode="clip")
    y0, y1 = ops.take(fp, before, axis=0, mode="clip"), ops.take(fp, at, axis=0, mode="clip")
    inside = ops.add(ops.mul(ops.div(ops.sub(y1, y0), ops.sub(x1, x0)), ops.sub(x, x0)), y0)
    first = ops.take(xp, const(0, at.shape.dtype), axis=0, mode="clip")
    last = ops.take(xp, const(n - 1, at.shape.dtype), axis=0, mode="clip")
    end = ops.take(fp, const(n - 1, at.shape.dtype), axis=0, mode="clip")
    result = ops.where(ops.lt(x, first), left, ops.where(ops.gt(x, last), right, ops.where(ops.eq(x, last), end, inside)))
    return ops.where(ops.isnan(x), x, result)


@lowers(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """`np.interp` of real numbers without a period."""
    y = array(fp)
    if period is not None or y._shape.dtype.kind == "c":
        raise NotLowered("a period, or complex numbers")
    points, y = array(xp).astype(float), y.astype(float)
    if points._shape.ndim != 1 or points._shape.dims != y._shape.dims:
        raise ValueError("fp and xp are not of the same length.")
    if points._shape.size == 0:
        raise ValueError("array of sample points is empty")
    if points._shape.size == 1:
        raise NotLowered("one sample point")
    x = array(x).astype(float)
    low = array(y[0] if left is None else left).astype(float)
    high = array(y[-1] if right is None else right).astype(float)
    return wrap_any(_interp(x._get(), points._get(), y._get(), low._get(), high._get()))


@recorded("numpy.bincount")
def _bincount(x: Any, *weights: Any, length: int) -> Any:
    one = weights[0] if weights else ops.full(const(1, np.int64), dims=x.shape.dims)
    return ops.segment_sum(one, x, num=length)


@lowers(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """`np.bincount`: as long as the greatest element, which is read unless it is known."""
    from . import ranges
    from .indexing import _read

    a = array(x)
    if a._shape.ndim != 1 or a._shape.dtype.kind not in "biu" or a._shape.size == 0:
        raise NotLowered("an empty array, or one that is not a vector of integers")
    value = a._get()
    host = _read(a, "the length of a bincount") if value.shape.size else None
    if host is not None:
        low, high = int(host.min()), int(host.max())
        ranges.note(value, low, high)
        if low < 0:
            raise ValueError("'list' argument must have no negative elements")
    length = max(high + 1, operator.index(minlength))
    extra = () if weights is None else (array(weights).astype(float)._get(),)
    if extra and extra[0].shape.dims != value.shape.dims:
        raise ValueError("The weights and list don't have the same length.")
    return wrap(_bincount(a.astype(np.intp)._get(), *extra, length=length))


@lowers(np.nansum)
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True
) -> Any:
    """`np.nansum`."""
    return reductions.sum(_without_nan(a, 0), axis, dtype, out, keepdims, initial, where)


@lowers(np.nanprod)
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True
) -> Any:
    """`np.nanprod`."""
    return reductions.prod(_without_nan(a, 1), axis, dtype, out, keepdims, initial, where)


def _without_nan(a: Any, neutral: int) -> ndarray:
    a = array(a)
    return np.where(np.isnan(a), a._shape.dtype.type(neutral), a) if a._shape.dtype.kind in "fc" else a


@lowers(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """`np.nanmean`."""
    a = array(a)
    if a._shape.dtype.kind not in "fc" or (where is not True and where is not NO_VALUE):
        return reductions.mean(a, axis, dtype, out, keepdims, where=where)
    return reductions.mean(a, axis, dtype, out, keepdims, where=~np.isnan(a))


@lowers(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True) -> Any:
    """`np.nanmax`."""
    return _nan_extreme(np.fmax, np.nanmax, a, axis, out, keepdims, initial, where)


@lowers(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True) -> Any:
    """`np.nanmin`."""
    return _nan_extreme(np.fmin, np.nanmin, a, axis, out, keepdims, initial, where)


def _nan_extreme(ufunc: np.ufunc, function: Any, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    a = array(a)
    if a._shape.dtype.kind != "f" or initial is not NO_VALUE or (where is not NO_VALUE and where is not True):
        raise NotLowered("an initial value, a mask, or a dtype that is not floating")
    highest = ufunc is np.fmax
    blank = np.where(np.isnan(a), a._shape.dtype.type(-np.inf if highest else np.inf), a)
    pick = reductions.max if highest else reductions.min
    result = pick(blank, axis, None, keepdims)
    return store(np.where(reductions.all(np.isnan(a), axis, None, keepdims), a._shape.dtype.type(np.nan), result)[()], out)
