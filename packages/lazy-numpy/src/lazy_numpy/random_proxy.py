"""`np.random` for user modules: NumPy draws, so that streams are NumPy's own bit for bit, and the arrays become lazy.

Owns: the replaced module functions and generator classes.  May import `convert`, `fallback`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .convert import adopt, is_array, is_lazy, to_numpy

_IN_PLACE = ("shuffle",)
_PLAIN = ("bit_generator", "spawn", "seed", "get_state", "set_state")


def _moved(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A drawing function whose arguments may be lazy and whose arrays are."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            args = tuple([_host(a) for a in args])
            kwargs = {k: _host(v) for k, v in kwargs.items()}
        result = draw(*args, **kwargs)
        return adopt(result)

    call.__name__ = getattr(draw, "__name__", "draw")
    call.__doc__ = draw.__doc__
    return call


def _host(x: Any) -> Any:
    if is_lazy(x):
        host = to_numpy(x)
        return host if host.ndim else host[()]
    return x


def _shuffled(shuffle: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> None:
        first = next((i for i, a in enumerate(args) if is_array(a)), None)
        if first is None:
            shuffle(*args, **kwargs)
            return
        host = np.array(to_numpy(args[first]))
        shuffle(*args[:first], host, *args[first + 1 :], **kwargs)
        args[first][...] = host

    return call


def _methods(real: type) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in dir(real):
        if name.startswith("_") or name in _PLAIN:
            continue
        method = getattr(real, name)
        if callable(method):
            made[name] = _shuffled(method) if name in _IN_PLACE else _moved(method)
    return made


class Generator(np.random.Generator):
    """`np.random.Generator`; its arrays are lazy."""

    vars().update(_methods(np.random.Generator))


class RandomState(np.random.RandomState):
    """`np.random.RandomState`; its arrays are lazy."""

    vars().update(_methods(np.random.RandomState))


def default_rng(seed: Any = None) -> Any:
    """`np.random.default_rng`."""
    if isinstance(seed, Generator):
        return seed
    return Generator(np.random.default_rng(_host(seed)).bit_generator)


def make(proxy: Callable[[types.ModuleType, dict[str, Any]], types.ModuleType]) -> types.ModuleType:
    """The proxy of `numpy.random`."""
    replaced: dict[str, Any] = {"Generator": Generator, "RandomState": RandomState, "default_rng": default_rng}
    for name in np.random.__all__:
        value = getattr(np.random, name)
        if name in replaced or name in _PLAIN or isinstance(value, (type, types.ModuleType)) or not callable(value):
            continue
        replaced[name] = _shuffled(value) if name in _IN_PLACE else _moved(value)
    return proxy(np.random, replaced)
