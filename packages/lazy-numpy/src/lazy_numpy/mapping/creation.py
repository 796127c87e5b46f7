"""Creation: arrays from nothing, from shapes, and from other arrays.

Owns: what the proxy's `np.zeros`, `np.arange`, `np.array` and the like make.  Whatever NumPy computes on the host here
is exact and remembered, as values never change. May import `base`, `convert`, lazy_core's ops.
"""

from __future__ import annotations

import functools
import operator
from functools import lru_cache
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const
from lazy_core.values import Value

from .. import convert, dtypes
from ..tensor import ndarray, scalar, wrap
from . import ranges, shapes
from .base import dims_of, lowers, op, recorded

_full = op(ops.full)
_REMEMBERED_BYTES = 1 << 16


@lru_cache(maxsize=512)
def _remembered(maker: Any, args: tuple[Any, ...], kinds: tuple[type, ...], dtype: Any) -> Value | None:
    made = maker(*args) if dtype is None else maker(*args, dtype=dtype)
    lazy = convert.from_numpy(made, owned=True)
    return lazy._get() if type(lazy) is ndarray and made.nbytes <= _REMEMBERED_BYTES else None


def host_made(maker: Any, args: tuple[Any, ...], dtype: Any = None, **rest: Any) -> Any:
    """An array that NumPy makes from numbers."""
    plain = tuple([a.item() if type(a) is scalar else a for a in args])
    if not rest and all(type(a) in (int, float, bool) for a in plain):
        value = _remembered(maker, plain, tuple([type(a) for a in plain]), None if dtype is None else np.dtype(dtype))
        if value is not None:
            return wrap(value)
    made = maker(*[convert.to_numpy(a) if type(a) is ndarray else a for a in plain], **({} if dtype is None else {"dtype": dtype}), **rest)
    if isinstance(made, tuple):
        return (convert.from_numpy(made[0], owned=True), *made[1:])
    return convert.from_numpy(made, owned=True)


def filled(shape: Any, value: Any, dtype: Any) -> Any:
    """An array of one number; where its dtype cannot be lazy, NumPy's."""
    kind = np.dtype(dtype)
    dims = dims_of(shape)
    if any(n < 0 for n in dims):
        raise ValueError("negative dimensions are not allowed")
    return wrap(_full(const(value, kind), dims=dims))


def _on_cpu(f: Any) -> Any:
    """A creation function that takes NumPy's `device` argument, which names the only device of NumPy's that there is.

    Raises (when called):
        ValueError: another device, as NumPy says it.
    """

    @functools.wraps(f)
    def checked(*args: Any, **named: Any) -> Any:
        if named.get("device") not in (None, "cpu"):
            raise ValueError(f'Device not understood. Only "cpu" is allowed, but received: {named["device"]}')
        return f(*args, **named)

    return checked


@_on_cpu
def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """`np.zeros`."""
    return filled(shape, 0, dtype) if dtypes.supports(np.dtype(dtype)) else np.zeros(shape, dtype)


empty = zeros


@_on_cpu
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """`np.ones`."""
    dtype = float if dtype is None else dtype
    return filled(shape, 1, dtype) if dtypes.supports(np.dtype(dtype)) else np.ones(shape, dtype)


@_on_cpu
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """`np.full`."""
    lazy = convert.is_lazy(fill_value)
    kind = np.dtype(dtype) if dtype is not None else fill_value.dtype if lazy else np.asarray(fill_value).dtype
    if not dtypes.supports(kind):
        return np.full(shape, convert.to_numpy(fill_value) if lazy else fill_value, dtype)
    if not lazy and np.ndim(fill_value) == 0:
        return filled(shape, fill_value, kind)
    made = filled(shape, 0, kind)
    made[...] = fill_value
    return made


@lowers(np.zeros_like, np.empty_like)
@_on_cpu
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None) -> Any:
    """`np.zeros_like`."""
    return zeros(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)


@lowers(np.ones_like)
@_on_cpu
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None) -> Any:
    """`np.ones_like`."""
    return ones(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)


@lowers(np.full_like)
@_on_cpu
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """`np.full_like`."""
    return full(a.shape if shape is None else shape, fill_value, a.dtype if dtype is None else dtype)


@recorded("numpy.arange")
def _iota(start: Any, step: Any, *, count: int, dtype: np.dtype) -> Any:
    return ops.add(ops.mul(ops.iota(dims=(count,), axis=0, dtype=dtype), step), start)


@_on_cpu
def arange(*args: Any, dtype: Any = None, device: Any = None, like: Any = None, **named: Any) -> Any:
    """`np.arange`: of integers, computed on the device."""
    args = (*args, *([named.pop("stop")] if "stop" in named and len(args) == 1 and "start" not in named else ()))
    if not named and dtype in (None, int, np.int64) and 0 < len(args) <= 3 and all(type(a) is int for a in args):
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
        if step:
            count = len(range(start, stop, step))
            value = _iota(const(start, dtypes.INTP), const(step, dtypes.INTP), count=count, dtype=dtypes.INTP)
            if count:
                ends = (start, start + (count - 1) * step)
                ranges.note(value, min(ends), max(ends))
            return wrap(value)
    return host_made(np.arange, args, dtype, **named)


@_on_cpu
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`np.linspace`, computed on the host: exact."""
    if type(num) is int and endpoint is True and retstep is False and axis == 0:
        return host_made(np.linspace, (start, stop, num), dtype)
    return host_made(np.linspace, (start, stop), dtype, num=operator.index(num), endpoint=endpoint, retstep=retstep, axis=axis)


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0) -> Any:
    """`np.logspace`."""
    return host_made(np.logspace, (start, stop), dtype, num=num, endpoint=endpoint, base=base, axis=axis)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """`np.geomspace`."""
    return host_made(np.geomspace, (start, stop), dtype, num=num, endpoint=endpoint, axis=axis)


@recorded("numpy.eye")
def _eye(*, n: int, m: int, k: int, dtype: np.dtype) -> Any:
    return ops.eye(n=n, m=m, k=k, dtype=dtype)


@_on_cpu
def eye(N: Any, M: Any = None, k: int = 0, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """`np.eye`."""
    kind = np.dtype(dtype)
    if not dtypes.supports(kind):
        return np.eye(N, M, k, dtype)
    return wrap(_eye(n=operator.index(N), m=operator.index(N if M is None else M), k=operator.index(k), dtype=kind))


def identity(n: int, dtype: Any = None, *, like: Any = None) -> Any:
    """`np.identity`."""
    return eye(n, dtype=float if dtype is None else dtype)


def tri(N: int, M: Any = None, k: int = 0, dtype: Any = float, *, like: Any = None) -> Any:
    """`np.tri`."""
    made = ones((N, N if M is None else M), dtype)
    return shapes.tril(made, k) if type(made) is ndarray else np.tri(N, M, k, dtype)


# ------------------------------------------------------------------ from other arrays


def _stacked(x: Any, dtype: Any) -> Any:
    """A list of lazy scalars or arrays as one lazy array, without reading them; None where it is not that."""
    if not isinstance(x, (list, tuple)) or not x:
        return None
    found = False
    for item in x:
        if convert.is_lazy(item):
            found = True
        elif isinstance(item, (list, tuple)):
            found = found or _stacked(item, dtype) is not None
        elif not isinstance(item, (int, float, complex, np.generic, np.ndarray)):
            return None
    if not found:
        return None
    parts = [_stacked(i, dtype) if isinstance(i, (list, tuple)) and _stacked(i, dtype) is not None else i for i in x]
    shape = {tuple(np.shape(p)) for p in parts}
    if len(shape) != 1:
        return None
    return shapes.stack([p if convert.is_lazy(p) else np.asarray(p) for p in parts])


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
) -> Any:
    """`np.array`: a lazy array where its dtype can be lazy, else NumPy's."""
    return _make(object, dtype, copy, ndmin, np.array, {"order": order, "subok": subok, "ndmin": ndmin})


@_on_cpu
def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None) -> Any:
    """`np.asarray`: the same array if it is lazy already; else its contents are captured."""
    return _make(a, dtype, copy, 0, np.asarray, {})


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """`np.from_dlpack`: another frontend's lazy tensor is shared; else the array on foreign memory that NumPy makes."""
    foreign = convert.shared(x)
    if foreign is None and not convert.is_lazy(x):
        return np.from_dlpack(x, device=device, copy=copy)
    return asarray(x, device=device, copy=copy)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """`np.ascontiguousarray` (and `np.asfortranarray`: order in memory is the compiler's business)."""
    return _make(a, dtype, None, 1, np.ascontiguousarray, {})


def _make(x: Any, dtype: Any, copy: Any, ndmin: int, maker: Any, keywords: dict[str, Any]) -> Any:
    if not convert.is_lazy(x):
        foreign = convert.shared(x)
        if foreign is not None:  # of another frontend
            x = wrap(foreign)
    if not convert.is_lazy(x):
        stacked = _stacked(x, dtype)
        if stacked is None:
            made = maker(x, dtype, **keywords)
            result = convert.from_numpy(made, owned=maker is np.array or (made is not x and not isinstance(x, np.ndarray)))
            return result
        x, copy = stacked, None
    if type(x) is scalar:
        x = wrap(x._value)
    target = x._shape.dtype if dtype is None else np.dtype(dtype)
    if not dtypes.supports(target):
        return convert.to_numpy(x).astype(target)
    if target != x._shape.dtype:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        x = x.astype(target)
    elif copy:
        x = wrap(x._get())
    if x._shape.ndim < ndmin:
        x = shapes.reshape(x, (1,) * (ndmin - x._shape.ndim) + x._shape.dims)
    return x


@lowers(np.astype)
@_on_cpu
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """`np.astype`."""
    return x.astype(dtype, copy=copy)


@lowers(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """`np.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    ndim = len(xi)
    parts = []
    for i, x in enumerate(xi):
        place = i if indexing == "ij" or i > 1 or ndim < 2 else 1 - i
        parts.append(asarray(x).reshape((1,) * place + (-1,) + (1,) * (ndim - place - 1)))
    if not sparse:
        parts = list(shapes.broadcast_arrays(*parts)) if parts else []
    return tuple([wrap(p._get()) for p in parts] if copy else parts)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """`np.indices`."""
    dims = dims_of(dimensions)
    grids = meshgrid(*[arange(n, dtype=dtype) for n in dims], indexing="ij", sparse=sparse)
    return grids if sparse else shapes.stack(grids) if grids else np.indices(dims, dtype)


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, like: Any = None, **kwargs: Any) -> Any:
    """`np.fromfunction`."""
    return function(*indices(shape, dtype=dtype), **kwargs)


def captured(maker: Any) -> Any:
    """A function of NumPy's whose arrays are made on the host and captured, such as `np.loadtxt`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from ..fallback import made_on_host

        return made_on_host(maker, args, kwargs)

    call.__name__ = getattr(maker, "__name__", "call")
    call.__doc__ = getattr(maker, "__doc__", None)
    return call


# What the proxy replaces: these do not dispatch on their arguments, or make arrays from none.
MAKERS: dict[str, Any] = {
    "array": array,
    "asarray": asarray,
    "asanyarray": asarray,
    "from_dlpack": from_dlpack,
    "ascontiguousarray": ascontiguousarray,
    "asfortranarray": ascontiguousarray,
    "zeros": zeros,
    "empty": zeros,
    "ones": ones,
    "full": full,
    "arange": arange,
    "linspace": linspace,
    "logspace": logspace,
    "geomspace": geomspace,
    "eye": eye,
    "identity": identity,
    "tri": tri,
    "indices": indices,
    "fromfunction": fromfunction,
    "meshgrid": meshgrid,
    "fromiter": captured(np.fromiter),
    "fromstring": captured(np.fromstring),
    "frombuffer": captured(np.frombuffer),
    "fromfile": captured(np.fromfile),
    "loadtxt": captured(np.loadtxt),
    "genfromtxt": captured(np.genfromtxt),
    "hanning": captured(np.hanning),
    "hamming": captured(np.hamming),
    "blackman": captured(np.blackman),
    "bartlett": captured(np.bartlett),
    "kaiser": captured(np.kaiser),
    "vander": captured(np.vander),
    "tril_indices": captured(np.tril_indices),
    "triu_indices": captured(np.triu_indices),
    "diag_indices": captured(np.diag_indices),
}
