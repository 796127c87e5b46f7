"""`np.fft` and convolution.

Owns: padding, scaling and axes of NumPy's transforms over core's one operation; `np.convolve` and `np.correlate` of short filters.
May import `base`, `shapes`, lazy_core's ops.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const

from ..fallback import NotLowered
from ..tensor import wrap, wrap_any
from . import shapes
from .base import array, axes_tuple, axis_index, lowers, recorded, store

_SHORT_FILTER = 64


@recorded("numpy.fft")
def _transform(x: Any, *, kind: str, axis: int, length: int, factor: float, dtype: np.dtype) -> Any:
    """One transform along one axis: cut or padded to what the length needs, scaled."""
    x = x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)
    ndim = len(x.shape.dims)
    order = [a for a in range(ndim) if a != axis] + [axis]
    if axis != ndim - 1:
        x = ops.transpose(x, perm=tuple(order))
    need = length // 2 + 1 if kind == "irfft" else length
    have = x.shape.dims[-1]
    if have > need:
        x = ops.slice_(x, starts=(0,) * ndim, limits=(*x.shape.dims[:-1], need), strides=(1,) * ndim)
    elif have < need:
        x = ops.pad(x, const(0, dtype), low=(0,) * ndim, high=(0,) * (ndim - 1) + (need - have,), interior=(0,) * ndim)
    x = ops.fft(x, kind=kind, lengths=(length,))
    if factor != 1.0:
        x = ops.mul(x, const(factor, x.shape.dtype))
    if axis != ndim - 1:
        back = [0] * ndim
        for i, a in enumerate(order):
            back[a] = i
        x = ops.transpose(x, perm=tuple(back))
    return x


def _factor(kind: str, length: int, norm: Any) -> float:
    """What NumPy's norm asks for, beyond core's own scale (inverse transforms divide by the length)."""
    inverse = kind in ("ifft", "irfft")
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    if norm == "ortho":
        return math.sqrt(length) if inverse else 1.0 / math.sqrt(length)
    if norm == "forward":
        return float(length) if inverse else 1.0 / length
    return 1.0


def _along(a: Any, kind: str, n: Any, axis: int, norm: Any) -> Any:
    a = array(a)
    index = axis_index(axis, a._shape.ndim)
    given = a._shape.dims[index]
    length = operator.index(n) if n is not None else 2 * (given - 1) if kind == "irfft" else given
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    single = a._shape.dtype in (np.float32, np.complex64)
    if a._shape.dtype == np.float16:
        raise NotLowered("half precision")
    if kind == "rfft":
        if a._shape.dtype.kind == "c":
            raise TypeError(
                "ufunc 'rfft_n_even' did not contain a loop with signature matching types <class 'numpy.dtypes.Complex128DType'> -> None"
            )
        dtype = np.dtype(np.float32 if single else np.float64)
    else:
        dtype = np.dtype(np.complex64 if single else np.complex128)
    return wrap(_transform(a._get(), kind=kind, axis=index, length=length, factor=_factor(kind, length, norm), dtype=dtype))


@lowers(np.fft.fft)
def fft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.fft`."""
    return store(_along(a, "fft", n, axis, norm), out)


@lowers(np.fft.ifft)
def ifft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.ifft`."""
    return store(_along(a, "ifft", n, axis, norm), out)


@lowers(np.fft.rfft)
def rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.rfft`."""
    return store(_along(a, "rfft", n, axis, norm), out)


@lowers(np.fft.irfft)
def irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.irfft`."""
    return store(_along(a, "irfft", n, axis, norm), out)


def _each(a: Any, kind: str, s: Any, axes: Any, norm: Any) -> Any:
    a = array(a)
    if axes is None:
        axes = tuple(range(-len(s), 0)) if s is not None else tuple(range(a._shape.ndim))
    if s is None:
        s = [None] * len(axes)
    if len(s) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    for n, axis in reversed(list(zip(s, axes, strict=True))):
        a = _along(a, kind, None if n == -1 else n, axis, norm)
    return a


@lowers(np.fft.fftn)
def fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.fftn`."""
    return store(_each(a, "fft", s, axes, norm), out)


@lowers(np.fft.ifftn)
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.ifftn`."""
    return store(_each(a, "ifft", s, axes, norm), out)


@lowers(np.fft.fft2)
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """`np.fft.fft2`."""
    return store(_each(a, "fft", s, axes, norm), out)


@lowers(np.fft.ifft2)
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """`np.fft.ifft2`."""
    return store(_each(a, "ifft", s, axes, norm), out)


@lowers(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.rfftn`."""
    a = array(a)
    axes = tuple(axes) if axes is not None else axes_tuple(None, a._shape.ndim) if s is None else tuple(range(-len(s), 0))
    sizes = [None] * len(axes) if s is None else list(s)
    first = _along(a, "rfft", sizes[-1], axes[-1], norm)
    return store(_each(first, "fft", sizes[:-1], axes[:-1], norm) if len(axes) > 1 else first, out)


@lowers(np.fft.rfft2)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """`np.fft.rfft2`."""
    return rfftn(a, s, axes, norm, out)


@lowers(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """`np.fft.irfftn`."""
    a = array(a)
    axes = tuple(axes) if axes is not None else axes_tuple(None, a._shape.ndim) if s is None else tuple(range(-len(s), 0))
    sizes = [None] * len(axes) if s is None else list(s)
    first = _each(a, "ifft", sizes[:-1], axes[:-1], norm) if len(axes) > 1 else a
    return store(_along(first, "irfft", sizes[-1], axes[-1], norm), out)


@lowers(np.fft.irfft2)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """`np.fft.irfft2`."""
    return irfftn(a, s, axes, norm, out)


# ------------------------------------------------------------------ convolution


@recorded("numpy.convolve")
def _slide(x: Any, taps: Any, *, low: int, count: int, dtype: np.dtype) -> Any:
    """The sums over k of x[i + k - low] * taps[k], for i of 0..count, zero outside of x."""
    x = x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)
    taps = taps if taps.shape.dtype == dtype else ops.convert(taps, dtype=dtype)
    n, m = x.shape.dims[0], taps.shape.dims[0]
    wide = ops.pad(x, const(0, dtype), low=(low,), high=(max(count + m - 1 - low - n, 0),), interior=(0,))
    total = None
    for i in range(m):
        part = ops.slice_(wide, starts=(i,), limits=(i + count,), strides=(1,))
        tap = ops.slice_(taps, starts=(i,), limits=(i + 1,), strides=(1,))
        term = ops.mul(part, tap)
        total = term if total is None else ops.add(total, term)
    return total


@lowers(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """`np.convolve` with a short filter."""
    x, y = shapes.atleast_1d(a), shapes.atleast_1d(v)
    if x._shape.ndim > 1 or y._shape.ndim > 1:
        raise ValueError("object too deep for desired array")
    if y._shape.size > x._shape.size:
        x, y = y, x
    if y._shape.size == 0:
        raise ValueError("v cannot be empty")
    return _correlate(x, shapes.flip(y), mode)


@lowers(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """`np.correlate` with a short filter."""
    x, y = shapes.atleast_1d(a), shapes.atleast_1d(v)
    if y._shape.size > x._shape.size or y._shape.size == 0:
        raise NotLowered("a filter longer than the array")
    return _correlate(x, y.conj(), mode)


def _correlate(x: Any, taps: Any, mode: Any) -> Any:
    n, m = x._shape.size, taps._shape.size
    mode = {0: "valid", 1: "same", 2: "full", "v": "valid", "s": "same", "f": "full"}.get(mode, mode)
    dtype = np.result_type(x._shape.dtype, taps._shape.dtype)
    if m > _SHORT_FILTER or mode not in ("full", "same", "valid") or dtype.kind == "b":
        raise NotLowered("a long filter, bools, or another mode")
    low, count = {"full": (m - 1, n + m - 1), "same": (m - 1 - (m - 1) // 2, n), "valid": (0, n - m + 1)}[mode]
    return wrap_any(_slide(x._get(), taps._get(), low=low, count=count, dtype=dtype))
