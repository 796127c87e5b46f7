"""Methods of lazy arrays and scalars.

Owns: NumPy's method signatures over the mapping's functions, and over NumPy's own.  May import the mapping, `attributes`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import attributes, convert, dtypes, fallback
from .components import BitsStorage
from .hosting import host_of, wrap_host, writable
from .immediate import PLAIN, READ_ONLY_VIEWS, bring, dual, run, take
from .mapping import elementwise, indexing, linalg, reductions, shapes, sorting, ufuncs
from .mapping.base import dims_of
from .recording import settings
from .tensor import ndarray, scalar, wrap, wrap_any


def _or_numpy(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method that is NumPy's on the host where its mapping has no lowering."""
    from lazy_core.errors import DtypeError, UnsupportedError

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except (fallback.NotLowered, UnsupportedError, DtypeError) as why:
            return fallback.run(lambda a, *r, **k: getattr(a, name)(*r, **k), (self, *args), kwargs, f"ndarray.{name}", str(why))

    method.__name__ = name
    method.__doc__ = f"`ndarray.{name}`."
    return method


def _reshape(self: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return shapes.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    alone = len(axes) == 1 and (axes[0] is None or np.ndim(axes[0]) > 0)
    chosen = axes[0] if alone else axes
    return shapes.transpose(self, None if chosen is None or len(chosen) == 0 else chosen)


def _astype(self: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    return elementwise.astype(self, dtype, casting, copy)


def _fill(self: Any, value: Any) -> None:
    self[...] = value


def _item(self: Any, *args: Any) -> Any:
    if not args and self._shape.size == 1:
        return convert.to_numpy(self).item()
    return convert.to_numpy(self).item(*args)


def _sort(self: Any, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    self._put(sorting.sort(self, axis, kind, order)._get())


def _partition(self: Any, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
    _sort(self, axis)


def _resize(self: Any, *new_shape: Any, refcheck: bool = True) -> None:
    dims = dims_of(new_shape[0] if len(new_shape) == 1 else new_shape)
    host = np.array(convert.to_numpy(self))
    host.resize(dims, refcheck=False)
    made = convert.from_numpy(host, owned=True)
    self._value, self._shape, self._np = made._value, made._shape, None


def _view(self: Any, dtype: Any = None, type: Any = None) -> Any:
    kinds = [t for t in (dtype, type) if isinstance(t, builtins_type) and issubclass(t, (ndarray, np.ndarray))]
    if any([t is not ndarray and t is not np.ndarray for t in kinds]):
        raise fallback.NotLowered("an array of a class of its own is NumPy's")
    if dtype is None or dtype in kinds:
        return shapes.as_view(self, self._get_layout())
    target = np.dtype(dtype)
    if target == self._shape.dtype:
        return shapes.as_view(self, self._get_layout())
    if target.itemsize != self._shape.dtype.itemsize or not dtypes.supports(target) or "b" in (target.kind, self._shape.dtype.kind):
        raise fallback.NotLowered(f"a view of {self._shape.dtype} as {target} is a copy")
    return BitsStorage.of(self, target)


builtins_type = type


_METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "astype": _astype,
    "clip": elementwise.clip,
    "compress": lambda self, condition, axis=None, out=None: indexing.compress(condition, self, axis, out),
    "conj": lambda self: ufuncs.call(np.conjugate, (self,)),
    "conjugate": lambda self, *out: ufuncs.call(np.conjugate, (self,)),
    "copy": lambda self, order="C": wrap_any(self._get()) if type(self) is scalar else wrap(self._get()),
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": shapes.diagonal,
    "dot": linalg.dot,
    "fill": _fill,
    "flatten": shapes.flatten,
    "item": _item,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": indexing.nonzero,
    "partition": _partition,
    "prod": reductions.prod,
    "put": indexing.put,
    "ravel": shapes.ravel,
    "repeat": shapes.repeat,
    "reshape": _reshape,
    "resize": _resize,
    "round": elementwise.round_,
    "searchsorted": sorting.searchsorted,
    "setflags": attributes.set_flags,
    "sort": _sort,
    "squeeze": shapes.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": shapes.swapaxes,
    "take": indexing.take,
    "tolist": lambda self: convert.to_numpy(self).tolist(),
    "trace": linalg.trace,
    "transpose": _transpose,
    "var": reductions.var,
    "view": _view,
}

# Bytes and text: NumPy writes them, and they are no fallbacks.
_HOST = ("tobytes", "tofile", "dump", "dumps")
_FALLBACK = ("byteswap", "choose", "getfield", "setfield")
# Those that the extension has a short way for: it hands NumPy's own method what the arrays show.
SHORT = tuple([name for name in _METHODS if name not in ("item", "tolist", "resize", "setflags", "view")])


def _natively(name: str) -> Callable[..., Any]:
    """A method of NumPy's array, called on what a lazy array shows."""
    method = getattr(np.ndarray, name)
    by_name = operator.methodcaller

    def native(self: Any, *args: Any, **kwargs: Any) -> Any:
        if method in READ_ONLY_VIEWS:
            return run(method, (self, *args), kwargs)
        if type(self) is not ndarray:
            return run(lambda x, *a, **k: by_name(name, *a, **k)(x), (self, *args), kwargs)
        for a in args:
            if type(a) not in PLAIN:
                return run(method, (self, *args), kwargs)
        for a in kwargs.values():
            if type(a) not in PLAIN:
                return run(method, (self, *args), kwargs)
        array = host_of(self)
        try:
            result = method(array, *args, **kwargs)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            return run(method, (self, *args), kwargs)
        return bring(result, [(self, array)]) if type(result) is np.ndarray else result

    return native


def _native_read(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(convert.to_numpy(self), name)(*args, **kwargs)


def _native_copy(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A copy is an array that the user makes, of whatever size."""
    made = take(self).copy(*args, **kwargs)
    return wrap_host(made) if made.size > settings.small else made


def _native_resize(self: ndarray, *new_shape: Any, refcheck: bool = True) -> None:
    host = np.array(writable(self))
    host.resize(*new_shape, refcheck=False)
    self._become(host)


def _native_setflags(self: ndarray, write: Any = None, align: Any = None, uic: Any = None) -> None:
    writable(self).setflags(write=write, align=align, uic=uic)


def _native_view(self: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple([np.ndarray if a is ndarray else a for a in args])
    return run(np.ndarray.view, (self, *args), {k: np.ndarray if v is ndarray else v for k, v in kwargs.items()})


_NATIVE: dict[str, Callable[..., Any]] = {
    "copy": _native_copy,
    "item": _native_read("item"),
    "tolist": _native_read("tolist"),
    "resize": _native_resize,
    "setflags": _native_setflags,
    "view": _native_view,
}


def _quiet(this: int, args: tuple[Any, ...], result: Any) -> None:
    """Tells nothing: a read ends a trace by itself, and flags are no calls."""


def install() -> None:
    """Attach the methods to both classes."""
    for cls in (ndarray, scalar):
        for name, function in _METHODS.items():
            if cls is scalar and name in ("sort", "fill", "put", "partition", "setflags", "resize"):
                continue
            quiet = _quiet if name in _NATIVE and name not in ("copy", "view") else None
            setattr(cls, name, dual(_or_numpy(function, name), _NATIVE.get(name) or _natively(name), quiet))
        for name in _HOST:
            setattr(cls, name, lambda self, *a, _name=name, **k: getattr(convert.to_numpy(self), _name)(*a, **k))
        for name in _FALLBACK:
            setattr(cls, name, dual(_or_numpy(_not_lowered, name), _natively(name)))


def _not_lowered(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise fallback.NotLowered("no lowering")
