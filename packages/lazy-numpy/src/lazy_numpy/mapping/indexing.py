"""Indexing: views by basic keys, advanced keys by integers and masks, and the functions that index.

Owns: NumPy's rules for keys, and its IndexErrors: an index is checked on the host where it comes from there, by what is
known of its bounds where it is computed, and else by reading it.  A mask is written by a select; reading through one
has a shape that depends on data, so it is a barrier. May import `base`, `ufuncs`, `ranges`, lazy_core.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from lazy_core import events, ops, storage, values
from lazy_core.barrier import flush
from lazy_core.shape import Shape
from lazy_core.storage import Layout

from .. import convert, dtypes, selection
from ..fallback import NotLowered
from ..recording import record
from ..tensor import ndarray, scalar, shape_of, wrap, wrap_any, wrap_scalar
from . import ranges, shapes, ufuncs
from .base import array, axis_index, lowers, recorded, store

_record = record


def token(key: Any) -> Any:
    """A basic key as something hashable, or None if it is not basic (or unusual enough to be taken apart slowly)."""
    kind = type(key)
    if kind is int or key is None or key is Ellipsis:
        return (key,)
    if kind is slice:
        start, stop, step = key.start, key.stop, key.step
        if (start is None or type(start) is int) and (stop is None or type(stop) is int) and (step is None or type(step) is int):
            return ((start, stop, step),)
        return None
    if kind is tuple:
        parts: list[Any] = []
        for k in key:
            kk = type(k)
            if kk is slice:
                start, stop, step = k.start, k.stop, k.step
                if (start is None or type(start) is int) and (stop is None or type(stop) is int) and (step is None or type(step) is int):
                    parts.append((start, stop, step))
                else:
                    return None
            elif kk is int or k is None or k is Ellipsis:
                parts.append(k)
            else:
                return None
        return tuple(parts)
    return None


class Element(Layout):
    """Marks, in a cache, that a key gives one element: a scalar rather than a view."""

    __slots__ = ("layout",)

    def __init__(self, layout: Layout) -> None:
        self.layout = layout


def basic(layout: Layout, key: tuple[Any, ...]) -> Layout:
    """The view that a key of integers, slices, None and Ellipsis shows.

    Raises:
        IndexError: NumPy's own.
    """
    used = sum(1 for k in key if k is not None and k is not Ellipsis)
    ndim = len(layout.sizes)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    if sum(1 for k in key if k is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    axis = source = 0
    for k in key:
        if k is Ellipsis:
            axis += ndim - used
            source += ndim - used
        elif k is None:
            layout = layout.insert(axis)
            axis += 1
        elif isinstance(k, (slice, tuple)):
            start, stop, step = (k if isinstance(k, slice) else slice(*k)).indices(layout.sizes[axis])
            layout = layout.slice(axis, start, len(range(start, stop, step)), step)
            axis += 1
            source += 1
        else:
            n = layout.sizes[axis]
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for axis {source} with size {n}")
            layout = layout.select(axis, k + n if k < 0 else k)
            source += 1
    return layout


def _derive(layout: Layout, found: tuple[Any, ...]) -> Layout:
    made = basic(layout, found)
    if _walks(found):
        made.moves()
    if not made.sizes and Ellipsis not in found:
        return Element(made)
    return made


def _walks(key: tuple[Any, ...]) -> bool:
    """Whether a key is of the kind that loops go through: with an integer, or a run of rows `a[i : i + n]`."""
    if any(type(k) is int for k in key):
        return True
    first = key[0] if key else None
    return (
        type(first) is tuple
        and type(first[0]) is int
        and type(first[1]) is int
        and all(k == (None, None, None) or k is Ellipsis for k in key[1:])
    )


def getitem(a: ndarray, key: Any) -> Any:
    """`a[key]`."""
    found = token(key)
    if found is None:
        return _get_slow(a, key)
    layout = a._get_layout()
    made: Any = layout._derived.get(found)
    if made is None:
        made = layout.derive(found, lambda: _derive(layout, found))
    if made.__class__ is Element:
        value = a._value
        if value is not None:
            return wrap_scalar(storage.read(value, layout, made.layout, _record))
        return wrap_scalar(a._storage.read(made.layout))
    if a._shape.dtype.kind in "iu":
        return shapes.as_view(a, made)
    return a._view(made)


def setitem(a: ndarray, key: Any, value: Any) -> None:
    """`a[key] = value`."""
    found = token(key)
    if found is None:
        _set_slow(a, key, value)
        return
    layout = a._get_layout()
    made: Any = layout._derived.get(found)
    if made is None:
        made = layout.derive(found, lambda: _derive(layout, found))
    if made.__class__ is Element:
        made = made.layout
    if type(value) is selection.selection:
        value = value._array()
    if type(value) is ndarray and value._value is None and a._value is None and value._storage is a._storage and value._layout is made:
        return  # what `a[key] op= x` ends with: already written
    write(a, made, value)


def write(a: ndarray, layout: Layout, value: Any) -> None:
    """Write a value, cast and broadcast, through a view of an array."""
    whole = a._value
    if whole is None and not a._writeable:
        raise ValueError("assignment destination is read-only")
    shape = shape_of(layout, a._shape.dtype)
    if type(value) is ndarray and value._shape is shape:
        fitted = value._value
        if fitted is None:
            fitted = value._storage.read(value._layout)
    else:
        fitted = ufuncs.fit(_incoming(value, shape.dtype), shape)
    own = a._get_layout()
    if layout is own:
        a._put(fitted)
    elif whole is not None and layout.size < a._shape.size:  # nobody else sees this storage: no need to make one
        a._value = storage.write(whole, own, layout, fitted, _record)
        a._np = None
    else:
        a._share()[0].write(layout, fitted)


def _incoming(value: Any, dtype: np.dtype) -> Any:
    """What is assigned, as a value or constant; NumPy arrays are cast by NumPy, so that odd dtypes and bad strings behave."""
    kind = type(value)
    if kind is ndarray or kind is scalar:
        got = value._get()
        if got.shape.dtype.kind == "c" and dtype.kind != "c" and kind is scalar:
            raise TypeError(f"float() argument must be a string or a real number, not '{value.dtype.type.__name__}'")
        return got
    if kind is int:
        dtypes.check_python_int(value, dtype)
    if kind is complex and dtype.kind != "c":
        raise TypeError("float() argument must be a string or a real number, not 'complex'")
    if kind in (bool, int, float, complex):
        return convert.to_value(value, dtype)
    host = np.asarray(value)
    if not dtypes.supports(host.dtype):
        host = host.astype(dtype)
    if host.ndim == 0:
        return convert.to_value(host[()])
    return convert.from_numpy(host, owned=host is not value)._get()


# ------------------------------------------------------------------ advanced keys


class Advanced:
    """An advanced key taken apart: a basic view, then integer arrays along some of its axes."""

    __slots__ = ("axes", "indices", "mask", "view")

    def __init__(self, view: ndarray, axes: tuple[int, ...], indices: list[Any], mask: Any) -> None:
        self.view = view
        self.axes = axes
        self.indices = indices
        self.mask = mask


def _is_mask(k: Any) -> bool:
    return getattr(k, "dtype", None) == np.bool_ or isinstance(k, bool)


def _parse(a: ndarray, key: Any) -> Any:
    """A basic key as a tuple, or `Advanced`."""
    parts = [selection.plain(k) for k in key] if type(key) is tuple else [selection.plain(key)]
    for i, k in enumerate(parts):
        if isinstance(k, slice):
            parts[i] = _plain_slice(k)
            continue
        if k is None or k is Ellipsis or type(k) is ndarray:
            continue
        if isinstance(k, (list, tuple, range)) or (
            not isinstance(k, np.ndarray) and hasattr(k, "__array__") and type(k) is not scalar and not isinstance(k, np.generic)
        ):
            k = parts[i] = np.asarray(k)
            if k.size == 0 and k.dtype == np.float64:
                k = parts[i] = k.astype(np.intp)
        if isinstance(k, np.ndarray):
            if k.dtype.kind not in "biu":
                raise IndexError("arrays used as indices must be of integer (or boolean) type")
            continue
        if isinstance(k, (bool, np.bool_)):
            parts[i] = np.asarray(bool(k))
            continue
        if type(k) is scalar:
            if k._shape.dtype.kind == "b":
                parts[i] = np.asarray(bool(k))
            elif k._shape.dtype.kind in "iu" and ranges.known(k._value) is not None and len(parts) == a._shape.ndim:
                parts[i] = wrap(k._value)
            else:
                parts[i] = _index_of(k)
            continue
        parts[i] = _index_of(k)
    if not any(isinstance(k, np.ndarray) or type(k) is ndarray for k in parts):
        return tuple(parts)
    return _advanced(a, parts)


def _plain_slice(k: slice) -> slice:
    """A slice whose bounds are Python's integers: NumPy's, and lazy ones, are read."""
    bounds = k.start, k.stop, k.step
    try:
        return slice(*[b if b is None else operator.index(b) for b in bounds])
    except TypeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def _index_of(k: Any) -> int:
    try:
        return operator.index(k)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
        ) from None


def _advanced(a: ndarray, parts: list[Any]) -> Advanced:
    ndim = a._shape.ndim
    used = sum(k.ndim if _is_mask(k) else 0 if k is None or k is Ellipsis else 1 for k in parts)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    if not any(k is Ellipsis for k in parts):
        parts.append(Ellipsis)
    masks = [k for k in parts if _is_mask(k)]
    if len(masks) == 1 and masks[0].ndim and all(k is masks[0] or k is Ellipsis for k in parts) and parts[0] is masks[0]:
        _check_mask(masks[0], a._shape.dims, 0)
        return Advanced(a, (), [], masks[0])
    key: list[Any] = []
    axes: list[int] = []
    indices: list[Any] = []
    source = axis = 0
    for k in parts:
        if k is Ellipsis:
            key.append(Ellipsis)
            axis += ndim - used
            source += ndim - used
        elif k is None or isinstance(k, slice):
            key.append(k)
            axis += 1
            source += k is not None
        elif _is_mask(k):
            _check_mask(k, a._shape.dims, source)
            if k.ndim == 0:  # a[True], a[False]: a new axis of one or no element
                key.append(None)
                axes.append(axis)
                indices.append(np.zeros(int(bool(k)), np.intp))
                axis += 1
                continue
            for found in np.nonzero(_read(k, "a boolean mask in an index")):
                key.append(slice(None))
                axes.append(axis)
                indices.append(found)
                axis += 1
                source += 1
        else:
            key.append(slice(None))
            axes.append(axis)
            indices.append(_checked(k, a._shape.dims[source], source))
            axis += 1
            source += 1
    view = a if all(k is Ellipsis or k == slice(None) for k in key) else getitem(a, tuple(key))
    dims = [tuple(np.shape(i)) if not isinstance(i, values.Value) else i.shape.dims for i in indices]
    try:
        np.broadcast_shapes(*dims)
    except ValueError:
        text = " ".join(str(d).replace(" ", "") for d in dims)
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together with shapes {text} ") from None
    return Advanced(view, tuple(axes), [_index_value(i) for i in indices], None)


def _index_value(i: Any) -> Any:
    return i if isinstance(i, values.Value) else convert.from_numpy(np.ascontiguousarray(i).reshape(np.shape(i)), owned=False)._get()


def _check_mask(mask: Any, dims: tuple[int, ...], start: int) -> None:
    for i, n in enumerate(mask.shape):
        if dims[start + i] != n:
            raise IndexError(
                f"boolean index did not match indexed array along axis {start + i}; size of axis is {dims[start + i]} "
                f"but size of corresponding boolean axis is {n}"
            )


def _read(x: Any, why: str) -> np.ndarray:
    if type(x) is ndarray:
        value = x._get()
        if value.array is None:
            flush(f"numpy: {why}: its effect depends on data", host_read=True)
        else:
            events.host_read(f"numpy: {why}: its effect depends on data")
        return values.to_host(value)
    return np.asarray(x)


def _checked(k: Any, n: int, axis: int) -> Any:
    """An index array whose elements are known to be in bounds.

    Raises:
        IndexError: they are not.
    """
    if type(k) is ndarray:
        if k._shape.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        value = k._get()
        found = ranges.known(value)
        if found is None and k._shape.size:
            host = _read(k, "the bounds of an index array")
            found = (int(host.min()), int(host.max()))
            ranges.note(value, *found)
        result: Any = value
    elif isinstance(k, np.ndarray):
        found = (int(k.min()), int(k.max())) if k.size else None
        result = k
    else:
        found, result = (k, k), np.asarray(k, np.intp)
    if found is not None and (found[0] < -n or found[1] >= n):
        host = np.asarray(values.to_host(result) if isinstance(result, values.Value) else result).ravel()
        bad = host[(host < -n) | (host >= n)]
        if bad.size:
            raise IndexError(f"index {bad[0]} is out of bounds for axis {axis} with size {n}")
    return result


@recorded("numpy.index")
def _index(x: Any, *indices: Any, axes: tuple[int, ...]) -> Any:
    return ops.index(x, *indices, axes=axes, mode="clip")


@recorded("numpy.index_put")
def _index_put(x: Any, update: Any, *indices: Any, axes: tuple[int, ...], accumulate: bool) -> Any:
    return ops.index_put(x, update, *indices, axes=axes, accumulate=accumulate)


def _result_dims(found: Advanced) -> tuple[int, ...]:
    joint = np.broadcast_shapes(*[i.shape.dims for i in found.indices])
    dims = found.view._shape.dims
    axes = found.axes
    if all(b == a + 1 for a, b in itertools.pairwise(axes)):
        return dims[: axes[0]] + joint + dims[axes[-1] + 1 :]
    return joint + tuple([n for i, n in enumerate(dims) if i not in axes])


def _get_slow(a: ndarray, key: Any) -> Any:
    found = _parse(a, key)
    if type(found) is tuple:
        return getitem(a, found)
    if found.mask is not None:
        if type(found.mask) is ndarray:
            return selection.make(a._get(), found.mask._get())
        positions = [_index_value(p) for p in np.nonzero(found.mask)]
        found = Advanced(a, tuple(range(found.mask.ndim)), positions, None)
    result = _index(found.view._get(), *found.indices, axes=found.axes)
    source = ranges.known(found.view._get()) if a._shape.dtype.kind in "iu" else None
    if source is not None:
        ranges.note(result, *source)
    every = len(found.axes) == found.view._shape.ndim and all(not i.shape.dims for i in found.indices)
    return wrap_scalar(result) if every and not result.shape.dims and _all_scalars(key) else wrap(result)


def _all_scalars(key: Any) -> bool:
    return all(not isinstance(k, (list, np.ndarray)) and type(k) is not ndarray for k in (key if type(key) is tuple else (key,)))


def _set_slow(a: ndarray, key: Any, value: Any) -> None:
    found = _parse(a, key)
    if type(found) is tuple:
        setitem(a, found, value)
        return
    if a._value is None and not a._writeable:
        raise ValueError("assignment destination is read-only")
    if type(value) is selection.selection and value._made is None:
        mask = found.mask._get() if type(found.mask) is ndarray else None
        if mask is value._mask and value._full.shape.dims == a._shape.dims:  # `a[mask] op= x` ends with this
            wide = shapes.reshape(found.mask, mask.shape.dims + (1,) * (a._shape.ndim - len(mask.shape.dims)))
            a._put(_record(ufuncs.where_assign, (wide._get(), value._full, a._get())))
            return
    value = selection.plain(value)
    incoming = _incoming(value, a._shape.dtype)
    if found.mask is not None:
        _set_mask(a, found.mask, incoming)
        return
    _put(found, incoming, accumulate=False)


def _set_mask(a: ndarray, mask: Any, incoming: Any) -> None:
    trailing = a._shape.dims[mask.ndim :]
    dims = incoming.shape.dims
    static = len(dims) <= len(trailing) and all(n in (1, m) for n, m in zip(reversed(dims), reversed(trailing), strict=False))
    if static:
        wide = array(mask)
        if trailing:
            wide = shapes.reshape(wide, wide._shape.dims + (1,) * len(trailing))
        a._put(_record(ufuncs.where_assign, (wide._get(), incoming, a._get())))
        return
    positions = np.nonzero(_read(mask, "an assignment of as many elements as a boolean mask selects"))
    count = len(positions[0])
    if len(dims) == len(trailing) + 1 and dims[0] not in (1, count):
        raise ValueError(
            f"NumPy boolean array indexing assignment cannot assign {dims[0]} input values "
            f"to the {count} output values where the mask is true"
        )
    _put(Advanced(a, tuple(range(mask.ndim)), [_index_value(p) for p in positions], None), incoming, accumulate=False)


def _put(found: Advanced, incoming: Any, accumulate: bool) -> None:
    view = found.view
    dims = _result_dims(found)
    try:
        fitted = ufuncs.fit(incoming, Shape.of(dims, view._shape.dtype))
    except ValueError:
        given = str(incoming.shape.dims).replace(" ", "")
        raise ValueError(
            f"shape mismatch: value array of shape {given} could not be broadcast to indexing result of shape {str(dims).replace(' ', '')}"
        ) from None
    view._put(_index_put(view._get(), fitted, *found.indices, axes=found.axes, accumulate=accumulate))


def accumulate(a: ndarray, key: Any, update: ndarray, reduce: str = "add") -> None:
    """`np.add.at(a, key, update)`, or mul, max, min."""
    if reduce != "add":
        _accumulate_flat(a, key, update, reduce)
        return
    found = _parse(a, key)
    if type(found) is tuple:
        a[found] += update
        return
    if found.mask is not None:
        positions = np.nonzero(_read(found.mask, "a boolean mask in add.at"))
        found = Advanced(a, tuple(range(found.mask.ndim)), [_index_value(p) for p in positions], None)
    _put(found, update._get(), accumulate=True)


@recorded("numpy.scatter")
def _scatter(x: Any, positions: Any, update: Any, *, reduce: str) -> Any:
    flat = ops.reshape(x, dims=(x.shape.size,))
    count = positions.shape.size
    update = ufuncs.assign.fn(update, dims=positions.shape.dims, dtype=x.shape.dtype)
    result = ops.scatter(flat, ops.reshape(positions, dims=(count,)), ops.reshape(update, dims=(count,)), axis=0, reduce=reduce)
    return ops.reshape(result, dims=x.shape.dims)


def _accumulate_flat(a: ndarray, key: Any, update: ndarray, reduce: str) -> None:
    """By the positions that the key picks out of the flat array."""
    positions = wrap(_positions(dims=a._shape.dims))[key]
    ufuncs._check_shapes((positions.shape, update._shape.dims))
    a._put(_scatter(a._get(), positions._get(), update._get(), reduce=reduce))


@recorded("numpy.positions")
def _positions(*, dims: tuple[int, ...]) -> Any:
    size = 1
    for n in dims:
        size *= n
    return ops.reshape(ops.iota(dims=(size,), axis=0, dtype=dtypes.INTP), dims=dims)


# ------------------------------------------------------------------ functions


@recorded("numpy.take")
def _take(x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    return ops.take(x, indices, axis=axis, mode=mode)


@lowers(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """`np.take`."""
    a = array(a)
    if axis is None:
        a, axis = shapes.ravel(a), 0
    index = axis_index(axis, a._shape.ndim)
    picks = indices if type(indices) is ndarray else array(np.asarray(indices) if np.size(indices) else np.asarray(indices, np.intp))
    if picks._shape.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {picks._shape.dtype!r} to dtype('int64') according to the rule 'safe'")
    n = a._shape.dims[index]
    if mode == "raise":
        if picks._shape.dtype.kind == "b":
            picks = picks.astype(np.intp)
        _checked(picks, n, index)
        result = _index(a._get(), picks._get(), axes=(index,))
    elif mode == "clip":
        result = _take(a._get(), picks.astype(np.intp).clip(0, n - 1)._get(), axis=index, mode="clip")
    elif mode != "wrap":
        raise NotLowered(f"the mode {mode!r}")
    else:
        result = _take(a._get(), (picks.astype(np.intp) % n)._get(), axis=index, mode="clip")
    return store(wrap_any(result), out)


@recorded("numpy.take_along_axis")
def _take_along(x: Any, indices: Any, *, axis: int) -> Any:
    return ops.take_along_axis(x, indices, axis=axis)


@lowers(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """`np.take_along_axis`."""
    a, picks = array(arr), array(indices)
    if axis is None:
        a, axis = shapes.ravel(a), 0
    index = axis_index(axis, a._shape.ndim)
    if picks._shape.ndim != a._shape.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    _checked(picks, a._shape.dims[index], index)
    if a._shape.dims[:index] + a._shape.dims[index + 1 :] != picks._shape.dims[:index] + picks._shape.dims[index + 1 :]:
        raise NotLowered("indices that are broadcast against the array")
    return wrap(_take_along(a._get(), picks._get(), axis=index))


@recorded("numpy.where")
def _where(mask: Any, x: Any, y: Any, *, dtype: np.dtype) -> Any:
    mask = mask if mask.shape.dtype.kind == "b" else ops.logical_not(ops.logical_not(mask))
    x = x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)
    y = y if y.shape.dtype == dtype else ops.convert(y, dtype=dtype)
    return ops.where(mask, x, y)


@lowers(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """`np.where`; with one argument its shape depends on data, so it is a barrier."""
    if x is None and y is None:
        return nonzero(condition)
    operands = [convert.operand(v) for v in (condition, x, y)]
    kinds = [k for _, k in operands[1:]]
    target = np.result_type(*[k(0) if isinstance(k, type) else k for k in kinds])
    given = []
    for value, kind in operands:
        if value.__class__ is kind:
            if kind is int and target.kind in "iu":
                dtypes.check_python_int(value, target)
            value = convert.to_value(value, target)
        given.append(value)
    ufuncs._check_shapes(tuple([v.shape.dims for v in given]))
    return wrap(_where(*given, dtype=target))


@lowers(np.nonzero)
def nonzero(a: Any) -> Any:
    """`np.nonzero`: its shape depends on data, so it is a barrier."""
    return tuple([convert.from_numpy(p, owned=True) for p in np.nonzero(_read(array(a), "nonzero"))])


@lowers(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    """`np.flatnonzero`: a barrier."""
    return convert.from_numpy(np.flatnonzero(_read(array(a), "flatnonzero")), owned=True)


@lowers(np.argwhere)
def argwhere(a: Any) -> Any:
    """`np.argwhere`: a barrier."""
    return convert.from_numpy(np.argwhere(_read(array(a), "argwhere")), owned=False)


@lowers(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """`np.compress`: the condition is read."""
    a = array(a)
    if axis is None:
        a, axis = shapes.ravel(a), 0
    return take(a, np.flatnonzero(_read(condition, "compress")), axis, out)


@lowers(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """`np.extract`."""
    return compress(shapes.ravel(array(condition) != 0), shapes.ravel(arr))


@lowers(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """`np.copyto`."""
    if type(dst) is not ndarray:
        np.copyto(dst, convert.to_numpy(src), casting=casting, where=convert.to_numpy(where))
        return
    value, kind = convert.operand(src)
    if not isinstance(kind, type) and not np.can_cast(kind, dst._shape.dtype, casting):
        raise TypeError(f"Cannot cast array data from {kind!r} to {dst._shape.dtype!r} according to the rule {casting!r}")
    if value.__class__ is kind:
        value = _incoming(value, dst._shape.dtype)
    if where is True:
        dst._put(ufuncs.fit(value, dst._shape))
    else:
        dst._put(_record(ufuncs.where_assign, (array(where)._get(), value, dst._get())))


@lowers(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """`np.putmask`, where the values fit the array."""
    incoming = _incoming(values, a._shape.dtype)
    if incoming.shape.size != 1 and incoming.shape.dims != a._shape.dims:
        raise NotLowered("values that repeat")
    a._put(_record(ufuncs.where_assign, (array(mask)._get(), incoming, a._get())))


@lowers(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """`np.put`."""
    if mode != "raise" or np.size(v) not in (1, np.size(ind)):
        raise NotLowered("a mode, or values that repeat")
    flat = shapes.ravel(a)
    index = np.ravel(ind) if type(ind) is not ndarray else shapes.ravel(ind)
    target = flat if flat._value is None and a._value is None and flat._storage is a._storage else shapes.flatten(a)
    target[index] = np.ravel(v) if type(v) is not ndarray else shapes.ravel(v)
    if target is not flat:
        a[...] = shapes.reshape(target, a._shape.dims)


@lowers(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """`np.fill_diagonal` of a matrix."""
    if a._shape.ndim != 2 or wrap or np.ndim(val) != 0:
        raise NotLowered("more than two dimensions, wrapping, or several values")
    write(a, a._get_layout().diagonal(0, 0, 1), val)
