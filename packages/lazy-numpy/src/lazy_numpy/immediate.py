"""Calls that NumPy runs itself, as they come, on the memory of lazy arrays.

Owns: handing lazy arguments to NumPy as NumPy arrays, making lazy arrays of its results (views where they are views), and `dual`, which
gives every way into this package its two forms: recorded, or immediate.  Semantics, errors and warnings are NumPy's own.  May import
`hosting`, `recording`, `tensor`, `selection`, `dtypes`.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import events

from . import dtypes
from .hosting import host_of, make_read_only, view_of, wrap_host, writable
from .recording import Miss, mode, settings
from .selection import selection
from .tensor import _ArrayType, ndarray, scalar

# What NumPy takes as it is.
PLAIN = frozenset((int, float, complex, bool, str, type(None), type(Ellipsis), np.ndarray, np.dtype, type, *np.sctypeDict.values()))
_SCALARS = PLAIN - {np.ndarray}
_ndarray = np.ndarray
_numbers = itertools.count(1)


def number() -> int:
    """A number for a function, by which calls of it are told from others."""
    return next(_numbers)


# ------------------------------------------------------------------ arguments and results


def take(x: Any, taken: list[tuple[Any, np.ndarray]] | None = None) -> Any:
    """An argument as NumPy takes it: lazy arrays as what they show, lazy scalars as NumPy's; also in lists, tuples and dicts.

    Args:
        x: anything.
        taken: where to add each lazy array with the NumPy array that stands for it.
    """
    kind = type(x)
    if kind in PLAIN:
        return x
    if kind is ndarray or type(kind) is _ArrayType:
        array = host_of(x)
        if taken is not None:
            taken.append((x, array))
        return array
    if kind is scalar:
        return x._host()
    if kind is selection:
        return take(x._array(), taken)
    if kind is list or kind is tuple:
        if any([_holds_lazy(v) for v in (x if len(x) < 64 else x[:1])]):
            return kind([take(v, taken) for v in x])
        return x
    if kind is dict:
        return {k: take(v, taken) for k, v in x.items()}
    if kind is slice:
        return slice(take(x.start), take(x.stop), take(x.step))
    return x


def _holds_lazy(x: Any) -> bool:
    kind = type(x)
    return type(kind) is _ArrayType or kind is scalar or kind is selection or kind in (list, tuple, slice)


def bring(result: Any, taken: list[tuple[Any, np.ndarray]], plain: tuple[Any, ...] = ()) -> Any:
    """What NumPy returned, as lazy arrays; those that are arguments, or show their memory, are the arguments or views of them.

    Args:
        result: the result.
        taken: the lazy arguments, with the NumPy arrays that stood for them.
        plain: the arguments, if NumPy's arrays are among them: a result that shows their memory stays NumPy's.
    """
    kind = type(result)
    if kind is _ndarray:
        if not dtypes.supports(result.dtype):
            return result
        base = result.base
        if base is not None and any([s % result.itemsize for s in result.strides]):
            return result  # no layout says where its elements lie
        if base is None and not plain:
            for lazy, array in taken:
                if result is array:
                    return lazy
            return wrap_host(result) if result.size > settings.result else result
        for lazy, array in taken:
            if result is array:
                return lazy
            if base is not None and (base is array or base is array.base):
                return result if result.size <= settings.small and not lazy._shows_value() else view_of(lazy, result)
        if plain and any([result is p for p in plain]):
            return result
        if base is not None:
            for lazy, array in taken:
                if np.may_share_memory(result, array):
                    return view_of(lazy, result)
            if plain:
                return result
        return wrap_host(result) if result.size > settings.result else result
    if kind is list:
        return [bring(r, taken, plain) for r in result]
    if isinstance(result, tuple):
        parts = [bring(r, taken, plain) for r in result]
        return kind(parts) if kind is tuple else kind(*parts)
    return result


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let NumPy run a call on lazy arguments."""
    taken: list[tuple[Any, np.ndarray]] = []
    given = [a if type(a) in PLAIN else take(a, taken) for a in args]
    if kwargs:
        named = {k: take(v, taken) for k, v in kwargs.items()}
        out = named.get("out")
        if out is not None:
            named["out"] = out = _outputs(kwargs["out"], taken)
    else:
        named = kwargs
    try:
        result = function(*given, **named)
    except ValueError as error:
        if "read-only" not in str(error) or not taken:
            raise
        # It writes into an argument whose memory is the buffer of a value: once more, with memory that may be written to.
        for lazy, _ in taken:
            writable(lazy)
        taken.clear()
        given = [take(a, taken) for a in args]
        named = {k: take(v, taken) for k, v in kwargs.items()}
        result = function(*given, **named)
    if result is None or type(result) in _SCALARS:
        return result
    return bring_all(function, result, taken, args)


def bring_all(function: Callable[..., Any], result: Any, taken: list[tuple[Any, np.ndarray]], args: tuple[Any, ...]) -> Any:
    """`bring` of what a function returned, given all its arguments."""
    made = bring(result, taken, args if any([a.__class__ is _ndarray for a in args]) else ())
    return _read_only(made) if function in READ_ONLY_VIEWS else made


# NumPy's views that are read-only whatever they show.
READ_ONLY_VIEWS = frozenset(
    (np.broadcast_to, np.broadcast_arrays, np.diagonal, np.ndarray.diagonal, np.lib.stride_tricks.sliding_window_view, np.linalg.diagonal)
)


def _read_only(result: Any) -> Any:
    for a in result if type(result) in (tuple, list) else (result,):
        if type(a) is ndarray:
            make_read_only(a)
    return result


def _outputs(out: Any, taken: list[tuple[Any, np.ndarray]]) -> Any:
    if type(out) is tuple:
        return tuple([_outputs(o, taken) for o in out])
    if type(type(out)) is _ArrayType:
        array = writable(out)
        taken.append((out, array))
        return array
    return out


# ------------------------------------------------------------------ two forms of every entry

# Code that makes a call again, in the form that is due, when its recording stops: of functions that call others, and of those that do not.
_outer: set[Any] = set()
_inner: set[Any] = set()


def _among_callers(codes: Any) -> bool:
    """Whether such code is among the callers, up to the user's own."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        code = frame.f_code
        if code in codes:
            return True
        if not events.is_hidden(code.co_filename):
            return False
        frame = frame.f_back
    return False


def _caught() -> bool:
    return _among_callers(_outer | _inner)


mode.catches = _caught


def catching(function: Any, this: int = 0) -> Any:
    """Say that a function catches `Miss`, and calls no other that does; `mode` knows its calls by a number."""
    _inner.add(function.__code__)
    function.number = this
    return function


def again(miss: Miss, entry: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call whose recording has stopped once more, in the form that is due now.

    Args:
        miss: what stopped it.
        entry: makes the call in either form.
        args: its arguments.
        kwargs: its keywords.

    Raises:
        Miss: it is part of another such call, which is to be made again as a whole.
    """
    if _among_callers(_outer):
        raise miss
    while True:
        mode.missed(miss)
        try:
            return entry(*args, **kwargs)
        except Miss as another:
            miss = another


def dual(recorded: Callable[..., Any], native: Callable[..., Any], tell: Callable[[int, tuple[Any, ...], Any], None] | None = None) -> Any:
    """A function in two forms, called as `recorded` is.

    Args:
        recorded: records the call.
        native: makes it immediately.
        tell: tells `mode` of a call, given its number, arguments and result; by default of every call by its result.
    """
    this = number()

    def told(args: tuple[Any, ...], result: Any) -> Any:
        if tell is None:
            tell_result(this, result)
        elif mode.note is not None:
            tell(this, args, result)
        return result

    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            if not mode.on:
                return recorded(*args, **kwargs)
            return told(args, native(*args, **kwargs) if mode.immediate else mode.call(recorded, args, kwargs))
        except Miss as miss:
            return again(miss, entry, args, kwargs)

    _outer.add(entry.__code__)
    functools.update_wrapper(entry, recorded)
    entry.number = this  # type: ignore[attr-defined]
    return entry


def is_told(result: Any) -> bool:
    """Whether `mode` is told of a call by its result: views are no operations, and small arrays and scalars are not worth it."""
    if type(result) is not ndarray:
        return type(result) in (tuple, list)
    array = result._np
    if array is not None:
        return result._cell is None and array.size > settings.result
    return result._value is not None and result._shape.size > settings.result


def tell_result(this: int, result: Any) -> None:
    """Tell `mode` of a call by its number and result, if it is to be told."""
    note = mode.note
    if note is not None and is_told(result):
        note(this, result)


def tell_call(call: Any, result: Any) -> None:
    """Tell `mode` of a call that several functions share an entry for."""
    if mode.note is not None:
        tell_result(hash(call), result)


def on_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function on lazy arguments, immediately."""
    return lambda *args, **kwargs: run(function, args, kwargs)


__all__ = ["again", "bring", "catching", "dual", "is_told", "number", "on_numpy", "run", "take", "tell_call", "tell_result"]
