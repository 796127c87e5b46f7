"""The `numpy` that user modules see, and the import hook that hands it to them.

Owns: the proxy module (NumPy's own attributes, with the functions that make arrays replaced), the hook on `import`, and
the rule for what is a user module: a file below a given folder that is in no site-packages and not in the standard
library.  Libraries keep the real NumPy.  May import the mapping, `errors` and `random_proxy`.
"""

from __future__ import annotations

import builtins
import functools
import operator
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from . import errors, fallback
from .convert import from_numpy, is_lazy
from .immediate import dual, on_numpy, take
from .mapping import creation, makers, shapes
from .mapping.base import array as lazy_array
from .recording import mode
from .tensor import ndarray

_proxies: dict[str, types.ModuleType] = {}


def _stand_in(real: types.ModuleType, replaced: dict[str, Any]) -> types.ModuleType:
    """A stand-in for one of NumPy's modules: what it does not replace is NumPy's."""
    # A module of no class of its own: Python reads the attributes of such modules many times faster.
    made = types.ModuleType(real.__name__, real.__doc__)
    space = made.__dict__
    space.update(vars(real))
    space.update(replaced)
    space["__real__"] = real
    space["__spec__"] = ModuleSpec(real.__name__, None, origin=f"lazy, from {getattr(real, '__file__', None)!r}")
    space.pop("testing", None)  # made when somebody asks for it: importing it takes long

    def missing(name: str) -> Any:
        value = getattr(real, name)
        return module(value.__name__) if isinstance(value, types.ModuleType) else value

    space["__getattr__"] = missing
    space["__dir__"] = lambda: dir(real)
    return made


class _Grid:
    """`np.mgrid` and `np.ogrid`."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getitem__(self, key: Any) -> Any:
        return fallback.made_on_host(self._real.__getitem__, (key,), {})


class _Joined:
    """`np.r_` and `np.c_`: lazy parts are joined without a read."""

    def __init__(self, real: Any, columns: bool) -> None:
        self._real = real
        self._columns = columns

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if mode.immediate or not any(is_lazy(p) for p in parts) or any(isinstance(p, str) for p in parts):
            return fallback.made_on_host(self._real.__getitem__, (key,), {})
        arrays = [from_numpy(np.r_[p], owned=True) if isinstance(p, slice) else shapes.atleast_1d(lazy_array(p)) for p in parts]
        return shapes.column_stack(arrays) if self._columns else shapes.concatenate(arrays, 0)


_strided_by_numpy = on_numpy(np.lib.stride_tricks.as_strided)


def _as_strided(x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True) -> Any:
    """`np.lib.stride_tricks.as_strided`: a view; NumPy's own of what no layout can say."""
    from lazy_core.storage import Layout

    try:
        whole = lazy_array(x)
    except fallback.NotLowered:
        return _strided_by_numpy(x, shape, strides, subok, writeable)
    size = whole._shape.dtype.itemsize
    dims = whole._shape.dims if shape is None else tuple([operator.index(n) for n in shape])
    steps = tuple(whole.strides) if strides is None else tuple([operator.index(s) for s in strides])
    own = whole._get_layout()
    ends = [(n - 1) * s // size for n, s in zip(dims, steps, strict=True)]
    first, last = own.offset + sum([min(e, 0) for e in ends]), own.offset + sum([max(e, 0) for e in ends])
    total = own.size if whole._value is not None else whole._storage.layout.size
    if any([s % size for s in steps]) or (0 not in dims and (first < 0 or last >= total)):
        return _strided_by_numpy(x, shape, strides, subok, writeable)
    return whole._view(Layout.of(dims, [s // size for s in steps], own.offset), writeable)


def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Any:
    """`np.lib.stride_tricks.sliding_window_view`: a view."""
    x = lazy_array(x)
    window = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    template = np.lib.stride_tricks.sliding_window_view(
        np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), x._shape.dims, (0,) * x._shape.ndim), window, axis
    )
    from .mapping.base import axes_tuple

    axes = axes_tuple(axis, x._shape.ndim) if axis is not None else tuple(range(x._shape.ndim))
    steps = x.strides
    return _as_strided(x, template.shape, steps + tuple([steps[a] for a in axes]), writeable=writeable)


_strided = dual(_as_strided, _strided_by_numpy)


# What of `numpy.testing` looks at the type of what it is given.
_COMPARING = (
    "assert_ assert_allclose assert_almost_equal assert_approx_equal assert_array_almost_equal assert_array_almost_equal_nulp "
    "assert_array_compare assert_array_equal assert_array_less assert_array_max_ulp assert_equal assert_string_equal"
).split()


def _compares(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return function(*[take(a) for a in args], **{k: take(v) for k, v in kwargs.items()})

    return call


def module(name: str = "numpy") -> types.ModuleType:
    """The proxy of `numpy` or of one of its modules; the real module where there is nothing to replace."""
    if not _proxies:
        _build()
    if name == "numpy.testing" and name not in _proxies:
        real = sys.modules[name]
        compared = {n: _compares(f) for n in _COMPARING if (f := getattr(real, n, None)) is not None}
        _proxies[name] = _stand_in(real, compared)
    return _proxies.get(name) or sys.modules[name]


def _build() -> None:
    from . import random_proxy
    from .mapping.base import FUNCTIONS

    FUNCTIONS[np.lib.stride_tricks.sliding_window_view] = _sliding_window_view
    random = random_proxy.make(_stand_in)
    _proxies["numpy.random"] = random
    tricks = _stand_in(np.lib.stride_tricks, {"as_strided": _strided, "sliding_window_view": np.lib.stride_tricks.sliding_window_view})
    _proxies["numpy.lib.stride_tricks"] = tricks
    _proxies["numpy.lib"] = _stand_in(np.lib, {"stride_tricks": tricks})
    _proxies["numpy.fft"] = _stand_in(np.fft, {n: creation.captured(getattr(np.fft, n)) for n in ("fftfreq", "rfftfreq")})
    replaced = {
        **makers.MAKERS,
        "ndarray": ndarray,
        "random": random,
        "lib": _proxies["numpy.lib"],
        "fft": _proxies["numpy.fft"],
        "mgrid": _Grid(np.mgrid),
        "ogrid": _Grid(np.ogrid),
        "r_": _Joined(np.r_, columns=False),
        "c_": _Joined(np.c_, columns=True),
        "load": creation.captured(np.load),
        "where": _where,
        **errors.REPLACED,
    }
    _proxies["numpy"] = _stand_in(np, replaced)


def _where(condition: Any, *choices: Any) -> Any:
    """`np.where`, also of lazy scalars only."""
    if any(is_lazy(v) for v in (condition, *choices)):
        return np.where(condition, *choices)
    return fallback.made_on_host(np.where, (condition, *choices), {})


# ------------------------------------------------------------------ the hook

_STANDARD = tuple({os.path.realpath(sysconfig.get_path(k)) + os.sep for k in ("stdlib", "platstdlib")})
_OWN = tuple(os.path.dirname(os.path.realpath(m.__file__ or "")) + os.sep for m in (sys.modules["lazy_core"], sys.modules["lazy_numpy"]))
_roots: list[str] = []
_decided: dict[str, bool] = {}
_real_import: Callable[..., Any] = builtins.__import__
_depth = 0


def is_user_file(path: str) -> bool:
    """Whether a file is the user's: below a folder given, in no site-packages, and neither Python's nor this package's."""
    found = _decided.get(path)
    if found is None:
        real = os.path.realpath(path)
        inside = any(real.startswith(root) for root in _roots)
        library = f"{os.sep}site-packages{os.sep}" in real or f"{os.sep}dist-packages{os.sep}" in real or real.startswith(_STANDARD + _OWN)
        found = _decided[path] = inside and not library
    return found


def _is_user(namespace: dict[str, Any] | None) -> bool:
    if not namespace:
        return False
    if namespace.get("__name__") == "__main__":
        return True
    path = namespace.get("__file__")
    return isinstance(path, str) and is_user_file(path)


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    found = _real_import(name, globals, locals, fromlist, level)
    if level == 0 and (name == "numpy" or name.startswith("numpy.")) and _is_user(globals):
        return module("numpy") if not fromlist else module(name)
    return found


def know(root: str | None) -> None:
    """Files below this folder are the user's."""
    if root is not None:
        _roots.append(os.path.join(os.path.realpath(root), ""))
        _decided.clear()


def install(root: str | None) -> None:
    """From now on modules below this folder, and `__main__`, get the proxy when they import NumPy."""
    global _depth
    module()
    _depth += 1
    know(root)
    builtins.__import__ = _import


def uninstall(root: str | None) -> None:
    """Undo one `install`."""
    global _depth
    _depth -= 1
    if root is not None:
        _roots.remove(os.path.join(os.path.realpath(root), ""))
        _decided.clear()
    if _depth == 0:
        builtins.__import__ = _real_import


class enabled:
    """In this block the calling module, and the modules in its folder, see the lazy NumPy.

    Names that are bound to NumPy or to functions that make arrays (`np`, `from numpy import zeros`) are rebound in
    them, and put back afterwards; modules imported meanwhile get the proxy.
    """

    def __init__(self) -> None:
        self._changed: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._root: str | None = None

    def __enter__(self) -> enabled:
        namespace = sys._getframe(1).f_globals
        path = namespace.get("__file__")
        self._root = os.path.dirname(os.path.realpath(path)) if isinstance(path, str) else None
        install(self._root)
        spaces = [namespace]
        for found in list(sys.modules.values()):
            space = getattr(found, "__dict__", None)
            if space is not None and space is not namespace and isinstance(space.get("__file__"), str) and is_user_file(space["__file__"]):
                spaces.append(space)
        top = module()
        swaps = {id(p.__real__): p for p in _proxies.values()}
        for name in (*makers.MAKERS, *errors.REPLACED, "ndarray", "r_", "c_", "mgrid", "ogrid"):
            swaps[id(getattr(np, name))] = getattr(top, name)
        for space in spaces:
            for name, value in list(space.items()):
                new = swaps.get(id(value))
                if new is not None and not name.startswith("__"):
                    self._changed.append((space, name, value, new))
                    space[name] = new
        return self

    def __exit__(self, *exc: object) -> None:
        for space, name, old, new in self._changed:
            if space.get(name) is new:
                space[name] = old
        self._changed.clear()
        uninstall(self._root)
