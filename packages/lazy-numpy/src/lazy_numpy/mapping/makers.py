"""The functions that make arrays, as a user's module sees them: recorded or immediate, and NumPy's own where the array is tiny.

Owns: `MAKERS`.  May import `creation`, `immediate`, `convert`, `short_ways`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import convert, short_ways
from ..immediate import bring_all, dual, run, tell_result
from ..recording import mode, settings
from . import creation

# These record what they make, so that it need not be moved, and their size is known from their arguments.
_SIZES: dict[str, Callable[..., int]] = {}


def _sized(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def register(size: Callable[..., int]) -> Callable[..., int]:
        for name in names:
            _SIZES[name] = size
        return size

    return register


@_sized("zeros", "empty", "ones", "full")
def _of_shape(shape: Any, *rest: Any, **named: Any) -> int:
    return shape if type(shape) is int else math.prod(shape) if type(shape) is tuple else int(np.prod(shape))


@_sized("eye", "identity", "tri")
def _of_square(n: Any, m: Any = None, *rest: Any, **named: Any) -> int:
    return operator.index(n) * (operator.index(m) if type(m) is int else operator.index(n))


@_sized("arange")
def _of_range(*args: Any, **named: Any) -> int:
    return len(range(*args)) if args and all([type(a) is int for a in args]) else 0


def _maker(name: str, recorded: Callable[..., Any]) -> Callable[..., Any]:
    real: Callable[..., Any] = getattr(np, name)
    size_of = _SIZES.get(name)

    def natively(*args: Any, **kwargs: Any) -> Any:
        return _captured(run(real, args, kwargs))

    both = dual(recorded, natively)

    def make(*args: Any, **kwargs: Any) -> Any:
        if mode.tier == "compiled":
            return recorded(*args, **kwargs)
        if mode.immediate:
            return both(*args, **kwargs)
        if size_of is None:
            return both(*args, **kwargs) if any([_has_lazy(a) for a in args]) else natively(*args, **kwargs)
        try:
            small = size_of(*args, **kwargs) <= settings.small
        except Exception:  # whatever is wrong with the arguments, NumPy says it
            small = True
        return natively(*args, **kwargs) if small else both(*args, **kwargs)

    functools.update_wrapper(make, recorded)
    make.number = both.number  # type: ignore[attr-defined]
    return short_ways.function(make, real, _complete)


def _captured(result: Any) -> Any:
    """One of NumPy's arrays that was there before: its contents are captured."""
    return convert.adopt(result, owned=False) if type(result) is np.ndarray else result


def _complete(function: Any, number: int, result: Any, taken: list[tuple[Any, np.ndarray]], args: tuple[Any, ...]) -> Any:
    made = _captured(bring_all(function, result, taken, args))
    tell_result(number, made)
    return made


def _has_lazy(x: Any) -> bool:
    if type(x) in (list, tuple):
        return any([_has_lazy(v) for v in (x if len(x) < 64 else x[:1])])
    return convert.is_lazy(x) or convert.shared(x) is not None


# Functions of the user's are called with lazy arrays, files are read, foreign memory is shared: these are what they are in every tier.
_AS_THEY_ARE = ("fromfunction", "from_dlpack")
MAKERS: dict[str, Any] = {name: recorded if name in _AS_THEY_ARE else _maker(name, recorded) for name, recorded in creation.MAKERS.items()}


def _always_lazy(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return convert.from_numpy(run(real, args, kwargs))

    return call


# As the package's own functions.
PUBLIC: dict[str, Any] = {
    name: dual(creation.MAKERS[name], _always_lazy(getattr(np, name)))
    for name in ("arange", "array", "asarray", "empty", "eye", "full", "identity", "linspace", "ones", "zeros")
}
