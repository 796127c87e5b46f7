"""What is not lowered: NumPy itself runs it on the host, and it is counted, named and traced to the user's line.

Owns: taking lazy arguments to the host, writing back what NumPy changed in place, and bringing results back.  Results
of numeric dtypes come back lazy; others stay NumPy's.  May import `convert` and lazy_core's events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import events

from . import convert


class NotLowered(Exception):
    """Raised by a mapping that has no lowering for these arguments; NumPy runs the call instead."""


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str, reason: str) -> Any:
    """Call NumPy on the host with the arguments' current contents.

    Raises:
        StrictError: fallbacks are forbidden.
        Exception: whatever NumPy raises, unchanged.
    """
    events.fallback("numpy", name, reason)
    return on_host(function, args, kwargs)


def made_on_host(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`on_host` for functions that make a user's module arrays."""
    return on_host(function, args, kwargs, convert.adopt)


def on_host(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], adopt: Callable[[Any], Any] | None = None) -> Any:
    """`run` without the count: for host reads, and for functions of which NumPy is the only maker (printing, files)."""
    outputs: dict[int, Any] = {}
    kwargs = dict(kwargs)
    if "out" in kwargs:
        kwargs["out"] = _writable(kwargs["out"], outputs)
    try:
        result = function(*[_take(a) for a in args], **{k: v if k == "out" else _take(v) for k, v in kwargs.items()})
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        # It writes into an argument: hand out copies that may be written to, and write them back.
        args = tuple([_writable(a, outputs) for a in args])
        result = function(*args, **{k: v if k == "out" else _writable(v, outputs) for k, v in kwargs.items()})
    back = {}
    for lazy, host in outputs.values():
        lazy[...] = host
        back[id(host)] = lazy
    return _bring(result, back, adopt or (lambda array: convert.from_numpy(array)))


def _take(x: Any) -> Any:
    """A lazy argument, or lazy arrays inside lists, tuples and dicts, as NumPy arrays that share no writable memory with anything."""
    if convert.is_lazy(x):
        return convert.to_numpy(x)
    kind = type(x)
    if kind is list or kind is tuple:
        return kind([_take(v) for v in x])
    if kind is dict:
        return {k: _take(v) for k, v in x.items()}
    return x


def _writable(x: Any, outputs: dict[int, Any]) -> Any:
    if convert.is_array(x):
        found = outputs.get(id(x))
        if found is None:
            found = outputs[id(x)] = (x, np.array(convert.to_numpy(x)))
        return found[1]
    if convert.is_lazy(x):
        return convert.to_numpy(x)
    kind = type(x)
    if kind is list or kind is tuple:
        return kind([_writable(v, outputs) for v in x])
    return x


def _bring(result: Any, back: dict[int, Any], adopt: Callable[[Any], Any]) -> Any:
    if isinstance(result, np.ndarray):
        known = back.get(id(result))
        return known if known is not None else adopt(result)
    kind = type(result)
    if kind is list:
        return [_bring(r, back, adopt) for r in result]
    if isinstance(result, tuple):
        parts = [_bring(r, back, adopt) for r in result]
        return kind(parts) if kind is tuple else kind(*parts)
    return result
