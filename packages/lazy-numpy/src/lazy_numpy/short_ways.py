"""The extension's forms of what lazy arrays do, put in the places of the Python functions that they shorten.

Owns: `install`, and what the extension asks of Python.  Each form makes the common calls of the immediate state by itself and hands every
other one to the Python function beside it, so that nothing but time depends on the extension.  May import everything but `proxy`.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import attributes, cells, dtypes, extension, immediate, methods, operators, temporaries
from .hosting import view_of
from .mapping import items
from .recording import mode, settings
from .tensor import _hooks, ndarray

_OPERATORS = (
    *("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()),
    *("radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift".split()),
    *("iadd isub imul itruediv ifloordiv imod imatmul iand ior ixor ilshift irshift".split()),
    *("neg pos abs invert lt le eq ne gt ge".split()),
)


def _complete(function: Any, number: int, result: Any, taken: list[tuple[Any, np.ndarray]], args: tuple[Any, ...]) -> Any:
    """What a call returned that is no new array, as lazy arrays, and told of."""
    made = immediate.bring_all(function, result, taken, args)
    immediate.tell_result(number, made)
    return made


def _like(made: Any, function: Callable[..., Any]) -> Any:
    return functools.update_wrapper(made, function)


def function(python: Callable[..., Any], native: Callable[..., Any], complete: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes arrays, with its short way if there is one.

    Args:
        python: serves every call; `python.number` is what the policy knows its calls by.
        native: NumPy's.
        complete: what is to be done with a result that is no new array.
    """
    module = extension.loaded()
    if module is None:
        return python
    made: Callable[..., Any] = _like(module.Function(python, native, python.number, complete, small=True), python)  # type: ignore[attr-defined]
    return made


def _asks_for_huge_pages() -> bool:
    """Whether NumPy asks the system for huge pages: as its variable says, and on Linux if that says nothing."""
    return os.environ.get("NUMPY_MADVISE_HUGEPAGE", "1") not in ("0", "")


def install() -> bool:
    """Put the short ways in place; returns whether there are any."""
    module = extension.loaded()
    if module is None:
        return False
    module.configure(
        {
            "array": ndarray,
            "cell": cells.Cell,
            "mode": mode,
            "settings": settings,
            "plain": immediate.PLAIN,
            "supports": dtypes.supports,
            "view_of": view_of,
            "add": cells.Cell.add,
            "temporary_bytes": temporaries.LEAST_BYTES if temporaries.TEMPORARY else sys.maxsize,
        }
    )
    for name in methods.SHORT:
        python = vars(ndarray)[name]
        native = getattr(np.ndarray, name)
        views = native not in immediate.READ_ONLY_VIEWS
        setattr(ndarray, name, _like(module.Method(python, native, python.number, _complete, small=name == "copy", views=views), python))
    for name in attributes.KNOWN:
        setattr(ndarray, name, module.Attribute(vars(ndarray)[name], name, False))
    for name in attributes.VIEWS:
        setattr(ndarray, name, module.Attribute(vars(ndarray)[name], name, True))
    entry = _hooks["function"]
    ndarray.__array_function__ = _like(  # type: ignore[method-assign]
        module.ArrayFunction(ndarray.__array_function__, entry, entry.number, _complete), ndarray.__array_function__
    )
    ndarray.__array_ufunc__ = _like(
        module.ArrayUfunc(operators.protocol, operators.numbers_of_ufuncs(), operators.by_protocol.number, _complete), operators.protocol
    )
    functions = {name: vars(ndarray)[f"__{name}__"] for name in _OPERATORS}
    module.install_items(items.getitem, items.setitem, items.GET, items.SET)
    module.align_memory(_asks_for_huge_pages())
    module.install_operators({name: (function, function.number) for name, function in functions.items()})
    return True
