"""The table from NumPy functions to implementations, and what happens when there is none.

Owns: `on_function` (the `__array_function__` protocol).  Importing it fills the table.  May import every family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core.errors import DtypeError, UnsupportedError

from .. import fallback
from ..convert import is_array, is_lazy
from ..fallback import NotLowered
from ..immediate import dual, run, take, tell_call
from ..recording import mode
from ..tensor import _hooks, ndarray
from . import creation, elementwise, fourier, indexing, items, linalg, reductions, rehost, shapes, sorting
from .base import FUNCTIONS

FAMILIES = (creation, elementwise, fourier, indexing, linalg, reductions, shapes, sorting)

# Of these NumPy is the only maker: text, files, and questions about memory.  They read, and are no fallbacks.
_HOST = frozenset(
    (
        np.array_repr,
        np.array_str,
        np.array2string,
        np.save,
        np.savez,
        np.savez_compressed,
        np.savetxt,
        np.may_share_memory,
        np.shares_memory,
    )
)


def on_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NumPy's `__array_function__` protocol: our implementation, or NumPy's on the host, counted."""
    found = FUNCTIONS.get(function)
    if function in _CALLING_BACK and mode.tier != "compiled":
        return run(function, args, kwargs)
    if found is None:
        if function in (np.may_share_memory, np.shares_memory):
            return _share(*args[:2])
        if function in (np.result_type, np.can_cast, np.min_scalar_type):
            return function(*[getattr(a, "dtype", a) if type(a).__module__.startswith("lazy_numpy") else a for a in args], **kwargs)
        if function is np.common_type:
            return function(*[np.empty(0, a.dtype) if is_lazy(a) else a for a in args])
        if function in _HOST:
            return fallback.on_host(function, args, kwargs)
        return fallback.run(function, args, kwargs, _name(function), "no lowering")
    if function in _WRITING and args and not is_array(args[0]):
        return fallback.run(function, args, kwargs, _name(function), "it writes into an array of NumPy's own")
    try:
        return found(*args, **kwargs)
    except (NotLowered, UnsupportedError, DtypeError) as why:
        return fallback.run(function, args, kwargs, _name(function), str(why))


# These call functions of the user's, which must not be called twice: NumPy runs them in every tier but "compiled".
_CALLING_BACK = frozenset((np.apply_along_axis, np.apply_over_axes, np.piecewise))


_WRITING = frozenset((np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask))


def _at_once(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run(function, args, kwargs)


def _tell(this: int, args: tuple[Any, ...], result: Any) -> None:
    tell_call((this, args[0]), result)


def _name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "") or ""
    short = module.removeprefix("numpy.") if module.startswith("numpy.") and not module.startswith(("numpy._", "numpy.lib")) else ""
    return f"{short}.{function.__name__}" if short else function.__name__


def _share(a: Any, b: Any, **_: Any) -> bool:
    """Whether two lazy arrays are views of one storage whose extents overlap."""
    if mode.tier != "compiled" and is_array(a) and is_array(b):
        return bool(np.may_share_memory(take(a), take(b)))
    storage_a, storage_b = getattr(a, "_storage", None), getattr(b, "_storage", None)
    if a is b:
        return True
    if getattr(a, "_value", 0) is not None or getattr(b, "_value", 0) is not None or storage_a is not storage_b:
        return False
    (low_a, high_a), (low_b, high_b) = a._layout.bounds(), b._layout.bounds()
    return bool(low_a < high_b and low_b < high_a)


def install() -> None:
    """Let the arrays' protocols find the mapping, and add NumPy's own code for what it lacks."""
    rehost.install()
    _hooks["function"] = dual(on_function, _at_once, _tell)
    ndarray.__getitem__ = items.getitem
    ndarray.__setitem__ = items.setitem
