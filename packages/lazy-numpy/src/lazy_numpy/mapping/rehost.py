"""NumPy's own Python functions, run over lazy arrays.

Owns: a second life for functions that NumPy writes in Python (gradients, quantiles, covariances, polynomials): the same
code, with globals in which `asarray`, `zeros` and the like keep arrays lazy, so that what it does is NumPy's by
construction and each step is recorded.  Where such a function needs more than lazy arrays can do, NumPy runs it on the
host instead, counted as a fallback.  May import `base`, `creation`, `proxy`.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core.errors import DtypeError, UnsupportedError

from ..fallback import NotLowered
from ..tensor import ndarray
from . import creation
from .base import FUNCTIONS

# NumPy module: its functions that run as they are.
_HOSTED = {
    "numpy.lib._function_base_impl": (
        "gradient corrcoef cov trapezoid unwrap select piecewise delete insert sort_complex digitize trim_zeros place".split()
    ),
    "numpy.lib._nanfunctions_impl": "nanvar nanstd nanmedian nanpercentile nanquantile nanargmax nanargmin nancumsum nancumprod".split(),
    "numpy.lib._shape_base_impl": "apply_along_axis apply_over_axes put_along_axis".split(),
    "numpy.lib._polynomial_impl": "polyfit polyval polyadd polysub polymul polyder polyint".split(),
    "numpy.lib._arraysetops_impl": "isin".split(),
    "numpy.lib._twodim_base_impl": "vander".split(),
    "numpy.linalg._linalg": "cond tensorinv tensorsolve matrix_rank pinv vector_norm matrix_norm cross vecdot diagonal".split(),
    "numpy.fft._helper": "fftshift ifftshift".split(),
    "numpy._core.numeric": "argwhere".split(),
}
_KEPT = frozenset((np.argwhere, np.linalg.cross))

_spaces: dict[str, dict[str, Any]] = {}


def _space(name: str) -> dict[str, Any]:
    """A copy of a NumPy module's globals in which functions that make arrays are ours."""
    found = _spaces.get(name)
    if found is not None:
        return found
    real = importlib.import_module(name)
    space: dict[str, Any] = {}
    _spaces[name] = space
    swaps = {id(getattr(np, n)): f for n, f in creation.MAKERS.items()}
    swaps[id(np.ndarray)] = ndarray
    for key, value in vars(real).items():
        if isinstance(value, types.FunctionType) and value.__module__ == name and not hasattr(value, "_implementation"):
            space[key] = _clone(value, space)
        elif isinstance(value, types.ModuleType) and value.__name__ in ("numpy", "numpy._core.numeric", "numpy._core.multiarray"):
            space[key] = _Module(value, swaps)
        else:
            space[key] = swaps.get(id(value), value)
    return space


class _Module:
    """A module seen through the same replacements."""

    def __init__(self, real: types.ModuleType, swaps: dict[int, Any]) -> None:
        self._real = real
        self._swaps = swaps

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        value = self._swaps.get(id(value), value)
        self.__dict__[name] = value
        return value


def _clone(function: types.FunctionType, space: dict[str, Any]) -> types.FunctionType:
    made = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _hosted(public: Any, space_name: str) -> Callable[..., Any]:
    made: types.FunctionType | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = _clone(public._implementation, _space(space_name))
        try:
            return made(*args, **kwargs)
        except (NotLowered, UnsupportedError, DtypeError):
            raise
        except (AttributeError, TypeError, NotImplementedError, ValueError) as why:
            if type(why) is ValueError and "read-only" not in str(why):
                raise
            raise NotLowered(f"NumPy's own code for it needs more than a lazy array: {why}") from why

    return call


def install() -> None:
    """Add the hosted functions to the table, where nothing better is in it."""
    for module, names in _HOSTED.items():
        place = importlib.import_module(module)
        for name in names:
            public = getattr(place, name, None)
            if public is not None and hasattr(public, "_implementation") and public not in FUNCTIONS and public not in _KEPT:
                FUNCTIONS[public] = _hosted(public, module)
