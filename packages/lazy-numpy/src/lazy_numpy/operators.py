"""Python's operators on lazy arrays and scalars: the hot path.

Owns: one method a ufunc and side, each with a table from operand shapes to how the call is recorded, so that a repeated
operation costs two dictionary hits (here, and in core).  Everything unusual goes to `mapping.ufuncs`.  May import
`tensor`, `mapping.ufuncs`, lazy_core.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from lazy_core.ir import const

from . import dtypes
from .dtypes import supports
from .hosting import host_of, wrap_host, writable
from .immediate import PLAIN, again, bring, catching, dual, number, run, take, tell_call
from .mapping import ufuncs
from .recording import Miss, mode, record, settings
from .selection import selection
from .temporaries import LEAST_BYTES, TEMPORARY, called_by_expression, fits
from .tensor import _ArrayType, _new, ndarray, scalar

real_ndarray = np.ndarray

_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "divmod": np.divmod,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_NAMED = {**{n: u for n, u in _BINARY.items() if n != "divmod"}, **_COMPARE}
_MODULE = {"and": operator.and_, "or": operator.or_}
# Python's operators, which are NumPy's own short cuts too, by ufunc; and those in place.
OPERATORS: dict[np.ufunc, Callable[[Any, Any], Any]] = {u: _MODULE.get(n) or getattr(operator, n) for n, u in _NAMED.items()}
OPERATORS[np.divmod] = divmod
IN_PLACE: dict[np.ufunc, Callable[[Any, Any], Any]] = {u: getattr(operator, f"i{n}") for n, u in _BINARY.items() if n != "divmod"}
_UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}


def _defers(other: Any) -> bool:
    """Whether the other operand wants to handle the operator itself."""
    kind = type(other)
    if kind is np.ndarray or isinstance(other, np.generic):
        return False
    if kind is selection:
        return True
    if hasattr(kind, "__array_ufunc__"):
        return kind.__array_ufunc__ is None
    return getattr(kind, "__array_priority__", -1.0) > ndarray.__array_priority__


def _binary(ufunc: np.ufunc, swapped: bool, inner: bool = False) -> Callable[[Any, Any], Any]:
    """An operator; an inner one is part of another call, which catches `Miss`."""
    plans: dict[Any, ufuncs.Call] = {}
    operate = OPERATORS.get(ufunc, ufunc)
    this = number()

    def method(self: Any, other: Any) -> Any:
        if mode.on and not inner:
            if not mode.immediate:
                return _learn(method, (self, other), this)
            kind = type(other)
            if type(self) is ndarray:
                x = self._np
                if x is None or ((cell := self._cell) is not None and not cell.alive):
                    x = host_of(self)
            else:
                x = take(self)
            if kind is ndarray:
                y = other._np
                if y is None or ((cell := other._cell) is not None and not cell.alive):
                    y = host_of(other)
            elif kind is float or kind is int:
                y = other
            elif kind is scalar:
                y = other._host()
            elif kind is not selection and (type(kind) is _ArrayType or not _defers(other)):
                y = take(other)
            else:
                return NotImplemented
            if x.nbytes >= LEAST_BYTES:
                if getrefcount(self) <= TEMPORARY and called_by_expression() and fits(ufunc, self, x, y):
                    ufunc(y, x, out=x) if swapped else ufunc(x, y, out=x)
                    note = mode.note
                    if note is not None:
                        note(this, x)
                    return self
                if kind is ndarray and getrefcount(other) <= TEMPORARY and called_by_expression() and fits(ufunc, other, y, x):
                    ufunc(y, x, out=y) if swapped else ufunc(x, y, out=y)
                    note = mode.note
                    if note is not None:
                        note(this, y)
                    return other
            result = operate(y, x) if swapped else operate(x, y)
            if (
                type(result) is real_ndarray
                and result.size > settings.result
                and (kind is ndarray or kind is float or supports(result.dtype))
            ):
                made = _new(ndarray)
                made._np = result
                made._cell = None
                note = mode.note
                if note is not None:
                    note(this, result)
                return made
            return bring(result, []) if type(result) is tuple else result
        try:
            kind = type(other)
            if kind is ndarray or kind is scalar:
                found = plans.get((self._shape, other._shape))
                if found is not None:
                    x = self._value
                    if x is None:
                        x = self._storage.read(self._layout)
                    y = other._value
                    if y is None:
                        y = other._storage.read(other._layout)
                    return found.wrap(record(found.target, (y, x) if swapped else (x, y), found.attrs))
                key = (self._shape, other._shape)
            elif kind is float or kind is int:
                key = (self._shape, kind)
                found = plans.get(key)
                if found is not None:
                    dtype = found.loop[0 if swapped else 1]
                    if kind is int and dtype.kind in "iu" and not -128 <= other < 128:
                        try:
                            dtypes.check_python_int(other, dtype)
                        except OverflowError:
                            return ufuncs.call(ufunc, (other, self) if swapped else (self, other))
                    elif kind is int and other < 0 and dtype.kind == "u":
                        return ufuncs.call(ufunc, (other, self) if swapped else (self, other))
                    x = self._value
                    if x is None:
                        x = self._storage.read(self._layout)
                    y = const(other, dtype)
                    return found.wrap(record(found.target, (y, x) if swapped else (x, y), found.attrs))
            else:
                if _defers(other):
                    return NotImplemented
                return ufuncs.call(ufunc, (other, self) if swapped else (self, other))
            # The first time: plan through the general path, then remember.
            inputs = (other, self) if swapped else (self, other)
            result = ufuncs.call(ufunc, inputs)
            known = ufuncs.known(ufunc, inputs)
            if known is not None:
                plans[key] = known
            return result
        except Miss as miss:
            if inner:
                raise
            return again(miss, method, (self, other), {})

    return catching(method, this)


def _learn(method: Callable[..., Any], args: tuple[Any, ...], this: int) -> Any:
    try:
        result = mode.call(method, args, {})
    except Miss as miss:
        return again(miss, method, args, {})
    note = mode.note
    if note is not None and type(result) is ndarray and result.size > settings.result:
        note(this, result)
    return result


catching(_learn)


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    plans: dict[Any, ufuncs.Call] = {}
    this = number()

    def method(self: Any) -> Any:
        if mode.on:
            if not mode.immediate:
                return _learn(method, (self,), this)
            result = ufunc(take(self))
            if type(result) is not real_ndarray or result.size <= settings.result:
                return bring(result, [])
            note = mode.note
            if note is not None:
                note(this, result)
            return wrap_host(result)
        try:
            found = plans.get(self._shape)
            if found is None:
                result = ufuncs.call(ufunc, (self,))
                known = ufuncs.known(ufunc, (self,))
                if known is not None:
                    plans[self._shape] = known
                return result
            x = self._value
            return found.wrap(record(found.target, (x if x is not None else self._storage.read(self._layout),), found.attrs))
        except Miss as miss:
            return again(miss, method, (self,), {})

    return catching(method, this)


_calls: dict[np.ufunc, Callable[..., Any]] = {}
_swapped_calls: dict[np.ufunc, Callable[..., Any]] = {}


def protocol(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """`__array_ufunc__`: a plain call on lazy operands and numbers is the operator's; the rest goes to the mapping."""
    if not kwargs and method == "__call__":
        count = len(inputs)
        if count == 1 and ufunc.nin == 1:
            return _call(ufunc)(inputs[0])
        if count == 2 and ufunc.nin == 2:
            x, y = inputs
            kind, other = type(x), type(y)
            if (kind is ndarray or kind is scalar) and (other is ndarray or other is float or other is scalar) and ufunc is not np.power:
                return _call(ufunc)(x, y)
            if other is ndarray and mode.immediate and kind in PLAIN and ufunc is not np.power:
                return _swapped_call(ufunc)(y, x)
    return by_protocol(ufunc, method, inputs, kwargs)


def _call(ufunc: np.ufunc) -> Callable[..., Any]:
    found = _calls.get(ufunc)
    if found is None:
        found = _calls[ufunc] = _unary(ufunc) if ufunc.nin == 1 else _binary(ufunc, swapped=False)
    return found


def _swapped_call(ufunc: np.ufunc) -> Callable[..., Any]:
    found = _swapped_calls.get(ufunc)
    if found is None:
        found = _swapped_calls[ufunc] = _binary(ufunc, swapped=True)
    return found


def numbers_of_ufuncs() -> dict[np.ufunc, tuple[int, ...]]:
    """By which calls of a ufunc through the protocol are known: those of one operand, or of two, in order and swapped."""
    found: dict[np.ufunc, tuple[int, ...]] = {}
    for ufunc in {u for u in vars(np).values() if isinstance(u, np.ufunc) and u.nout == 1 and u is not np.power}:
        if ufunc.nin == 1:
            found[ufunc] = (_call(ufunc).number,)  # type: ignore[attr-defined]
        elif ufunc.nin == 2:
            found[ufunc] = (_call(ufunc).number, _swapped_call(ufunc).number)  # type: ignore[attr-defined]
    return found


def _at_once(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if ufuncs.is_for_others(inputs, kwargs):
        return NotImplemented
    if method == "at":
        writable(inputs[0]) if type(inputs[0]) is ndarray else None
    return run(getattr(ufunc, method), inputs, kwargs)


by_protocol = dual(ufuncs.on_ufunc, _at_once, lambda this, args, result: tell_call((this, args[0], args[1]), result))


def _in_place(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    forward = _binary(ufunc, swapped=False, inner=True)
    operate = IN_PLACE[ufunc]
    this = number()

    def method(self: Any, other: Any) -> Any:
        if mode.on:
            if not mode.immediate:
                return _learn(method, (self, other), this)
            kind = type(other)
            if kind is not ndarray and (kind is selection or (type(kind) is not _ArrayType and _defers(other))):
                return NotImplemented
            y = take(other)
            x = writable(self)
            result = operate(x, y)
            note = mode.note
            if note is not None and x.size > settings.result:
                note(this, x)
            return self if result is x else result
        try:
            result = forward(self, other)
            if result is NotImplemented:
                return result
            if type(result) in (ndarray, scalar) and result._shape is self._shape:
                if self._value is not None:
                    self._value = result._get()
                    self._np = None
                else:
                    self._put(result._get())
                return self
            return ufuncs.finish_in_place(ufunc, self, result, other)
        except Miss as miss:
            return again(miss, method, (self, other), {})

    return catching(method, this)


def _power(swapped: bool = False, inner: bool = False) -> Callable[..., Any]:
    base = _binary(np.power, swapped=False, inner=True)
    this = number()

    def method(self: Any, exponent: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return NotImplemented
        if mode.on and not inner:
            if not mode.immediate:
                return _learn(method, (self, exponent), this)
            kind = type(exponent)
            if kind is selection or (type(kind) is not _ArrayType and kind is not scalar and _defers(exponent)):
                return NotImplemented
            x, y = take(self), take(exponent)
            if (
                y.__class__ is int
                and y == 2
                and x.__class__ is real_ndarray
                and x.nbytes >= LEAST_BYTES
                and getrefcount(self) <= TEMPORARY
                and called_by_expression()
                and fits(np.multiply, self, x, y)
            ):
                result = np.square(x, out=x)
            else:
                result = y**x if swapped else x**y
            note = mode.note
            if note is not None and type(result) is real_ndarray and result.size > settings.result:
                note(this, result)
            return bring(result, [(self, x)])
        try:
            if swapped:
                return ufuncs.call(np.power, (exponent, self))
            kind = type(exponent)
            if kind is int or kind is float:  # NumPy's own short cuts
                floating = self._shape.dtype.kind in "fc"
                if exponent == 2 and (floating or kind is int):
                    return ufuncs.call(np.square, (self,))
                if floating and exponent == 0.5:
                    return ufuncs.call(np.sqrt, (self,))
                if floating and exponent == -1:
                    return ufuncs.call(np.reciprocal, (self,))
                if kind is int and exponent < 0 and self._shape.dtype.kind in "iu":
                    raise ValueError("Integers to negative integer powers are not allowed.")
            elif self._shape.dtype.kind in "iu":
                return ufuncs.call(np.power, (self, exponent))
            return base(self, exponent)
        except Miss as miss:
            if inner:
                raise
            return again(miss, method, (self, exponent), {})

    return catching(method, this)


def _in_place_power() -> Callable[[Any, Any], Any]:
    forward = _power(inner=True)
    this = number()

    def method(self: Any, exponent: Any) -> Any:
        if mode.on:
            if not mode.immediate:
                return _learn(method, (self, exponent), this)
            x = writable(self)
            result = operator.ipow(x, take(exponent))
            note = mode.note
            if note is not None and x.size > settings.result:
                note(this, x)
            return self if result is x else result
        try:
            return ufuncs.finish_in_place(np.power, self, forward(self, exponent), exponent)
        except Miss as miss:
            return again(miss, method, (self, exponent), {})

    return catching(method, this)


def install() -> None:
    """Attach the operators to both classes."""
    for cls in (ndarray, scalar):
        cls.__array_ufunc__ = protocol
        for name, ufunc in _BINARY.items():
            setattr(cls, f"__{name}__", _power() if name == "pow" else _binary(ufunc, swapped=False))
            setattr(cls, f"__r{name}__", _power(swapped=True) if name == "pow" else _binary(ufunc, swapped=True))
        for name, ufunc in _COMPARE.items():
            setattr(cls, f"__{name}__", _binary(ufunc, swapped=False))
        for name, ufunc in _UNARY.items():
            setattr(cls, f"__{name}__", _unary(ufunc))
    for name, ufunc in _BINARY.items():
        if name not in ("divmod", "pow"):
            setattr(ndarray, f"__i{name}__", _in_place(ufunc))
    ndarray.__ipow__ = _in_place_power()
