"""Shapes: views where NumPy gives views (they alias), joins, splits and repeats.

Owns: reshape to atleast_nd; concatenate to pad.  May import `base`, lazy_core's ops and storage.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import const

from .. import dtypes
from ..fallback import NotLowered
from ..tensor import ndarray, wrap
from . import ranges, ufuncs
from .base import array, axes_tuple, axis_index, dims_of, lowers, op, recorded, store

_reshape_op = op(ops.reshape)
_transpose_op = op(ops.transpose)


def as_view(a: ndarray, layout: Any) -> ndarray:
    """A view of an array."""
    made = a._view(layout)
    if a._shape.dtype.kind in "iu":
        value = a._storage.value
        known = ranges.known(value)
        if known is not None:
            made_value = made._get()
            ranges.note(made_value, *known)
    return made


def _resolve(a: ndarray, dims: Any) -> tuple[int, ...]:
    wanted = dims_of(dims)
    size = a._shape.size
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        if rest > 0 and size % rest == 0:
            return tuple([size // rest if n == -1 else n for n in wanted])
    if any(n < 0 for n in wanted) or math.prod(wanted) != size:
        np.empty(a._shape.dims, np.bool_).reshape(wanted)  # raises NumPy's error
        raise ValueError(f"cannot reshape array of size {size} into shape {wanted}")
    return wanted


def _order(order: Any) -> str:
    """The letter that NumPy takes an `order` for: C, F, A or K; its error if it is none."""
    if order is None:
        return "C"
    letter = order.decode() if isinstance(order, bytes) else order
    if isinstance(letter, str) and letter.upper() in ("C", "F", "A", "K"):
        return letter.upper()
    np.empty(0).ravel(order)  # raises
    raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")


def _is_in_fortran_order(a: ndarray) -> bool:
    """Whether the elements lie in Fortran's order, and in C's not also."""
    layout = a._get_layout()
    return not layout.is_contiguous and bool(layout.transpose(range(len(layout.sizes) - 1, -1, -1)).is_contiguous)


def _as_read(a: ndarray, order: Any) -> ndarray:
    """A view whose elements in C order are those of the array in a given one; in K the dims with the largest strides come first."""
    kind = _order(order)
    if kind == "F" or (kind == "A" and _is_in_fortran_order(a)):
        return transpose(a)
    if kind == "K":
        strides = a._get_layout().strides
        return transpose(a, tuple(sorted(range(a._shape.ndim), key=lambda k: -abs(strides[k]))))
    return a


@lowers(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    """`np.reshape`: a view where strides can say so, else a copy."""
    a = array(a)
    dims = _resolve(a, shape)
    kind = _order(order)
    if kind == "K":
        raise ValueError("order 'K' is not permitted for reshaping")
    if kind == "F" or (kind == "A" and _is_in_fortran_order(a)):
        return transpose(reshape(transpose(a), tuple(reversed(dims)), copy=copy))
    if copy:
        return wrap(_reshape_op(a._get(), dims=dims))
    layout = a._get_layout()
    found = layout.derive(("reshape", dims), lambda: layout.reshape(dims))
    if found is not None:
        return as_view(a, found)
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return wrap(_reshape_op(a._get(), dims=dims))


@lowers(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """`np.ravel`."""
    a = array(a)
    return reshape(_as_read(a, order), (a._shape.size,))


def flatten(a: ndarray, order: str = "C") -> ndarray:
    """`ndarray.flatten`: always a copy."""
    return wrap(_reshape_op(_as_read(a, order)._get(), dims=(a._shape.size,)))


@lowers(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Any:
    """`np.transpose`: a view."""
    a = array(a)
    ndim = a._shape.ndim
    if axes is None:
        perm = tuple(range(ndim - 1, -1, -1))
    else:
        perm = axes_tuple(axes, ndim)
        if len(perm) != ndim:
            raise ValueError("axes don't match array")
    layout = a._get_layout()
    return as_view(a, layout.derive(("transpose", perm), lambda: layout.transpose(perm)))


@lowers(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> Any:
    """`np.matrix_transpose`."""
    x = array(x)
    if x._shape.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x._shape.ndim}")
    return swapaxes(x, -1, -2)


@lowers(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """`np.swapaxes`."""
    a = array(a)
    order = list(range(a._shape.ndim))
    i, j = axis_index(axis1, len(order)), axis_index(axis2, len(order))
    order[i], order[j] = order[j], order[i]
    return transpose(a, tuple(order))


@lowers(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """`np.moveaxis`."""
    a = array(a)
    ndim = a._shape.ndim
    from_, to = axes_tuple(source, ndim), axes_tuple(destination, ndim)
    if len(from_) != len(to):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [n for n in range(ndim) if n not in from_]
    for dest, src in sorted(zip(to, from_, strict=True)):
        order.insert(dest, src)
    return transpose(a, tuple(order))


@lowers(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """`np.rollaxis`."""
    a = array(a)
    axis = axis_index(axis, a._shape.ndim)
    start = start + a._shape.ndim if start < 0 else start
    return moveaxis(a, axis, start - 1 if axis < start else start)


@lowers(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    """`np.squeeze`: a view."""
    a = array(a)
    dims = a._shape.dims
    axes = tuple([i for i, n in enumerate(dims) if n == 1]) if axis is None else axes_tuple(axis, len(dims))
    if any(dims[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    layout = a._get_layout()
    kept = [i for i in range(len(dims)) if i not in axes]
    return as_view(a, layout.derive(("squeeze", axes), lambda: layout.transpose(kept)))


@lowers(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    """`np.expand_dims`: a view."""
    a = array(a)
    axes = axes_tuple(axis, a._shape.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1))
    layout = a._get_layout()
    for i in sorted(axes):
        layout = layout.insert(i)
    return as_view(a, layout)


@lowers(np.broadcast_to)
def broadcast_to(array_: Any, shape: Any, subok: bool = False) -> Any:
    """`np.broadcast_to`: a view that may not be written to."""
    a = array(array_)
    dims = dims_of(shape)
    layout = a._get_layout()
    try:
        return a._view(layout.broadcast(dims), writeable=False)
    except ValueError:
        np.broadcast_to(np.broadcast_to(np.bool_(), a._shape.dims), dims)  # raises NumPy's error
        raise


@lowers(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """`np.broadcast_arrays`."""
    arrays = [array(a) for a in args]
    dims = ufuncs._check_shapes(tuple([a._shape.dims for a in arrays]))
    return tuple([a if a._shape.dims == dims else broadcast_to(a, dims) for a in arrays])


@lowers(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`np.diagonal`: a view that may not be written to."""
    a = array(a)
    ndim = a._shape.ndim
    if ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = axis_index(axis1, ndim), axis_index(axis2, ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    layout = a._get_layout()
    key = ("diagonal", offset, i, j)
    return a._view(layout.derive(key, lambda: layout.diagonal(operator.index(offset), i, j)), writeable=False)


@lowers(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """`np.flip`: a view; of an array without dims a scalar, as NumPy's indexing with () gives."""
    m = array(m)
    if axis is None and not m._shape.dims:
        return m[()]
    layout = m._get_layout()
    for i in axes_tuple(axis, m._shape.ndim):
        layout = layout.slice(i, max(layout.sizes[i] - 1, 0), layout.sizes[i], -1)
    return as_view(m, layout)


@lowers(np.fliplr)
def fliplr(m: Any) -> Any:
    """`np.fliplr`."""
    if np.ndim(m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@lowers(np.flipud)
def flipud(m: Any) -> Any:
    """`np.flipud`."""
    if np.ndim(m) < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


@lowers(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """`np.rot90`: a view."""
    m = array(m)
    i, j = axes_tuple(tuple(axes), m._shape.ndim)
    k %= 4
    if k == 0:
        return as_view(m, m._get_layout())
    if k == 2:
        return flip(m, (i, j))
    return swapaxes(flip(m, j), i, j) if k == 1 else flip(swapaxes(m, i, j), j)


def _atleast(ndim: int, arrays: tuple[Any, ...]) -> Any:
    results = []
    for a in arrays:
        a = array(a)
        n = a._shape.ndim
        if n < ndim:
            before = {1: (0,), 2: (0,) if n == 1 else (0, 1), 3: {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(n, ())}[ndim]
            a = expand_dims(a, before)
        results.append(a)
    return results[0] if len(results) == 1 else tuple(results)


@lowers(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """`np.atleast_1d`."""
    return _atleast(1, arys)


@lowers(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """`np.atleast_2d`."""
    return _atleast(2, arys)


@lowers(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """`np.atleast_3d`."""
    return _atleast(3, arys)


# ------------------------------------------------------------------ joins


@recorded("numpy.concatenate")
def _concatenate(*xs: Any, axis: int, dtype: np.dtype, kind: str) -> Any:
    xs_ = [x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype) for x in xs]
    return (ops.concatenate if kind == "concatenate" else ops.stack)(*xs_, axis=axis)


@lowers(np.concatenate, np.concat)
def concatenate(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """`np.concatenate`."""
    parts = [array(a) for a in arrays]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        parts, axis = [ravel(a) for a in parts], 0
    first = parts[0]._shape
    if any(p._shape.ndim == 0 for p in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    index = axis_index(axis, first.ndim)
    for i, p in enumerate(parts):
        dims = p._shape.dims
        if len(dims) != first.ndim or dims[:index] + dims[index + 1 :] != first.dims[:index] + first.dims[index + 1 :]:
            np.concatenate([np.empty(first.dims, np.bool_), np.empty(dims, np.bool_)], axis=axis)  # raises NumPy's error
            raise ValueError(f"arrays 0 and {i} of shapes {first.dims} and {dims} cannot be joined along axis {axis}")
    target = _joined_dtype(parts, dtype, casting)
    return store(wrap(_concatenate(*[p._get() for p in parts], axis=index, dtype=target, kind="concatenate")), out)


def _joined_dtype(parts: list[ndarray], dtype: Any, casting: Any) -> np.dtype:
    if dtype is None:
        return np.result_type(*[p._shape.dtype for p in parts])
    target = np.dtype(dtype)
    if not dtypes.supports(target):
        raise NotLowered(f"dtype {target}")
    for p in parts:
        if not np.can_cast(p._shape.dtype, target, casting):
            raise TypeError(f"Cannot cast array data from {p._shape.dtype!r} to {target!r} according to the rule {casting!r}")
    return target


@lowers(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """`np.stack`."""
    parts = [array(a) for a in arrays]
    if not parts:
        raise ValueError("need at least one array to stack")
    if len({p._shape.dims for p in parts}) != 1:
        raise ValueError("all input arrays must have the same shape")
    index = axis_index(axis, parts[0]._shape.ndim + 1)
    target = _joined_dtype(parts, dtype, casting)
    return store(wrap(_concatenate(*[p._get() for p in parts], axis=index, dtype=target, kind="stack")), out)


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x] if not isinstance(x, (ndarray, Sequence)) else list(x)


@lowers(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """`np.vstack`."""
    return concatenate([atleast_2d(a) for a in _listed(tup)], 0, dtype=dtype, casting=casting)


@lowers(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """`np.hstack`."""
    parts = [atleast_1d(a) for a in _listed(tup)]
    return concatenate(parts, 0 if parts and parts[0]._shape.ndim == 1 else 1, dtype=dtype, casting=casting)


@lowers(np.dstack)
def dstack(tup: Any) -> Any:
    """`np.dstack`."""
    return concatenate([atleast_3d(a) for a in _listed(tup)], 2)


@lowers(np.column_stack)
def column_stack(tup: Any) -> Any:
    """`np.column_stack`."""
    parts = [array(a) for a in _listed(tup)]
    return concatenate([transpose(atleast_2d(a)) if a._shape.ndim < 2 else a for a in parts], 1)


@lowers(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """`np.append`."""
    if axis is None:
        return concatenate((ravel(arr), ravel(values)), 0)
    return concatenate((arr, values), axis)


# ------------------------------------------------------------------ splits


@lowers(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`np.array_split`: views."""
    ary = array(ary)
    index = axis_index(axis, ary._shape.ndim)
    length = ary._shape.dims[index]
    try:
        cuts = [0, *[operator.index(i) for i in indices_or_sections], length]
    except TypeError:
        sections = operator.index(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.") from None
        each, extra = divmod(length, sections)
        cuts = [i * each + min(i, extra) for i in range(sections + 1)]
    lead = (slice(None),) * index
    return [ary[(*lead, slice(a, b))] for a, b in itertools.pairwise(cuts)]


@lowers(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`np.split`."""
    ary = array(ary)
    if not isinstance(indices_or_sections, (list, tuple, np.ndarray, ndarray)):
        sections = operator.index(indices_or_sections)
        if ary._shape.dims[axis_index(axis, ary._shape.ndim)] % sections:
            raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@lowers(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`np.hsplit`."""
    return split(ary, indices_or_sections, 1 if np.ndim(ary) > 1 else 0)


@lowers(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`np.vsplit`."""
    if np.ndim(ary) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@lowers(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`np.dsplit`."""
    if np.ndim(ary) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@lowers(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """`np.unstack`."""
    x = moveaxis(x, axis, 0)
    return tuple([x[i] for i in range(x._shape.dims[0])])


# ------------------------------------------------------------------ repeats, rolls and pads


@lowers(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """`np.tile`."""
    a = array(A)
    reps = dims_of(reps)
    ndim = max(a._shape.ndim, len(reps))
    dims = (1,) * (ndim - a._shape.ndim) + a._shape.dims
    return wrap(_tile(a._get(), dims=dims, reps=(1,) * (ndim - len(reps)) + reps))


@recorded("numpy.tile")
def _tile(x: Any, *, dims: tuple[int, ...], reps: tuple[int, ...]) -> Any:
    return ops.tile(ops.reshape(x, dims=dims), reps=reps)


@lowers(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """`np.repeat` by one number; different numbers for different elements are NumPy's."""
    a = array(a)
    if np.ndim(repeats) != 0 and np.size(repeats) != 1:
        raise NotLowered("a count for each element")
    count = int(np.asarray(repeats).reshape(-1)[0]) if np.ndim(repeats) else operator.index(repeats)
    if count < 0:
        raise ValueError("repeats may not contain negative values.")
    if axis is None:
        a, axis = ravel(a), 0
    return wrap(_repeat(a._get(), count=count, axis=axis_index(axis, a._shape.ndim)))


@recorded("numpy.repeat")
def _repeat(x: Any, *, count: int, axis: int) -> Any:
    dims = x.shape.dims
    wide = ops.broadcast_to(ops.expand_dims(x, axes=(axis + 1,)), dims=(*dims[: axis + 1], count, *dims[axis + 1 :]))
    return ops.reshape(wide, dims=(*dims[:axis], dims[axis] * count, *dims[axis + 1 :]))


@lowers(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """`np.roll`."""
    a = array(a)
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a._shape.dims)
    axes = (axis,) if np.ndim(axis) == 0 else tuple(axis)
    shifts = (shift,) if np.ndim(shift) == 0 else tuple(shift)
    pairs = list(np.broadcast(shifts, axes)) if len(shifts) != len(axes) else list(zip(shifts, axes, strict=True))
    total: dict[int, int] = {}
    for s, x in pairs:
        index = axis_index(x, a._shape.ndim)
        total[index] = total.get(index, 0) + operator.index(s)
    return wrap(_roll_op(a._get(), shifts=tuple(total.values()), axes=tuple(total)))


_roll_op = op(ops.roll)


@recorded("numpy.pad")
def _pad(x: Any, fill: Any, *, edges: tuple[tuple[int, int], ...]) -> Any:
    fill = fill if fill.shape.dtype == x.shape.dtype else ops.convert(fill, dtype=x.shape.dtype)
    return ops.pad(x, fill, low=tuple([e[0] for e in edges]), high=tuple([e[1] for e in edges]), interior=(0,) * len(edges))


@lowers(np.pad)
def pad(array_: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """`np.pad` with a constant, or with the array's own elements (edge, wrap, reflect, symmetric)."""
    a = array(array_)
    if isinstance(pad_width, dict):
        raise NotLowered("pads given by a dict")
    edges = np.broadcast_to(np.asarray(pad_width), (a._shape.ndim, 2))
    if edges.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if (edges < 0).any():
        raise ValueError("index can't contain negative values")
    if mode == "constant":
        fill = kwargs.pop("constant_values", 0)
        if kwargs:
            raise NotLowered(f"the keywords {', '.join(kwargs)}")
        if np.ndim(fill) == 0:
            value = (
                array(fill)._get()
                if not isinstance(fill, (int, float, complex, np.generic))
                else const(np.asarray(fill)[()], a._shape.dtype)
            )
            return wrap(_pad(a._get(), value, edges=tuple([(int(lo), int(hi)) for lo, hi in edges])))
        raise NotLowered("a constant for each edge")
    if mode in ("edge", "wrap", "reflect", "symmetric") and not kwargs and all(a._shape.dims):
        for axis, (lo, hi) in enumerate(edges.tolist()):
            if lo or hi:
                a = a[(slice(None),) * axis + (np.pad(np.arange(a._shape.dims[axis]), (lo, hi), mode=mode),)]
        return a if a is not array_ else a.copy()
    raise NotLowered(f"mode {mode!r}")


@recorded("numpy.triangle")
def _triangle(x: Any, *, upper: bool, k: int) -> Any:
    return (ops.triu if upper else ops.tril)(x, k=k)


@lowers(np.tril)
def tril(m: Any, k: int = 0) -> Any:
    """`np.tril`."""
    return _tri(m, k, upper=False)


@lowers(np.triu)
def triu(m: Any, k: int = 0) -> Any:
    """`np.triu`."""
    return _tri(m, k, upper=True)


def _tri(m: Any, k: int, upper: bool) -> Any:
    m = array(m)
    if m._shape.ndim < 2:
        m = broadcast_to(m, (m._shape.size, m._shape.size))
    return wrap(_triangle(m._get(), upper=upper, k=operator.index(k)))


@lowers(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    """`np.diag`: a copied diagonal's view, or a matrix with this diagonal."""
    v = array(v)
    if v._shape.ndim == 2:
        return diagonal(v, k)
    if v._shape.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v._shape.size + abs(k)
    made = wrap(_zeros(const(0, v._shape.dtype), dims=(n, n)))
    layout = made._get_layout()
    made._view(layout.diagonal(operator.index(k), 0, 1))._put(v._get())
    return made


_zeros = op(ops.full)


@lowers(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    """`np.diagflat`."""
    return diag(ravel(v), k)


@lowers(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """`np.copy`."""
    return wrap(array(a)._get())


@lowers(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    """`np.resize`."""
    a, dims = ravel(a), dims_of(new_shape)
    size = math.prod(dims)
    if any(n < 0 for n in dims):
        raise ValueError("all elements of `new_shape` must be non-negative")
    if a._shape.size == 0:
        raise NotLowered("resizing an empty array")
    return reshape(tile(a, -(-size // a._shape.size) or 1)[:size], dims)


@lowers(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    """`np.shape`."""
    dims: tuple[int, ...] = a._shape.dims
    return dims


@lowers(np.ndim)
def ndim(a: Any) -> int:
    """`np.ndim`."""
    return len(a._shape.dims)


@lowers(np.size)
def size(a: Any, axis: Any = None) -> int:
    """`np.size`."""
    total: int = a._shape.size if axis is None else math.prod(a._shape.dims[i] for i in axes_tuple(axis, a._shape.ndim))
    return total
