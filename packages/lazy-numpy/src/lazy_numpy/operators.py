"""Python's operators on lazy arrays and scalars: the hot path.

Owns: one method a ufunc and side, each with a table from operand shapes to how the call is recorded, so that a repeated
operation costs two dictionary hits (here, and in core).  Everything unusual goes to `mapping.ufuncs`.  May import
`tensor`, `mapping.ufuncs`, lazy_core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import values
from lazy_core.ir import const

from . import dtypes
from .mapping import ufuncs
from .selection import selection
from .tensor import ndarray, scalar

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


def _binary(ufunc: np.ufunc, swapped: bool) -> Callable[[Any, Any], Any]:
    record = values.record
    plans: dict[Any, ufuncs.Call] = {}

    def method(self: Any, other: Any) -> Any:
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

    return method


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    record = values.record
    plans: dict[Any, ufuncs.Call] = {}

    def method(self: Any) -> Any:
        found = plans.get(self._shape)
        if found is None:
            result = ufuncs.call(ufunc, (self,))
            known = ufuncs.known(ufunc, (self,))
            if known is not None:
                plans[self._shape] = known
            return result
        x = self._value
        return found.wrap(record(found.target, (x if x is not None else self._storage.read(self._layout),), found.attrs))

    return method


_calls: dict[np.ufunc, Callable[..., Any]] = {}


def _protocol(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """`__array_ufunc__`: a plain call on lazy operands and numbers is the operator's; the rest goes to the mapping."""
    if not kwargs and method == "__call__":
        count = len(inputs)
        if count == 1 and ufunc.nin == 1:
            found = _calls.get(ufunc)
            if found is None:
                found = _calls[ufunc] = _unary(ufunc)
            return found(inputs[0])
        if count == 2 and ufunc.nin == 2:
            x, y = inputs
            kind, other = type(x), type(y)
            if (kind is ndarray or kind is scalar) and (other is ndarray or other is float or other is scalar) and ufunc is not np.power:
                found = _calls.get(ufunc)
                if found is None:
                    found = _calls[ufunc] = _binary(ufunc, swapped=False)
                return found(x, y)
    return ufuncs.on_ufunc(ufunc, method, inputs, kwargs)


def _in_place(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    forward = _binary(ufunc, swapped=False)

    def method(self: Any, other: Any) -> Any:
        result = forward(self, other)
        if result is NotImplemented:
            return result
        if type(result) in (ndarray, scalar) and result._shape is self._shape:
            if self._value is not None:
                self._value = result._get()
            else:
                self._put(result._get())
            return self
        return ufuncs.finish_in_place(ufunc, self, result, other)

    return method


def _power(base: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: Any, exponent: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return NotImplemented
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

    return method


def _in_place_power(self: Any, exponent: Any) -> Any:
    return ufuncs.finish_in_place(np.power, self, self**exponent, exponent)


def install() -> None:
    """Attach the operators to both classes."""
    for cls in (ndarray, scalar):
        cls.__array_ufunc__ = _protocol
        for name, ufunc in _BINARY.items():
            forward = _binary(ufunc, swapped=False)
            setattr(cls, f"__{name}__", _power(forward) if name == "pow" else forward)
            setattr(
                cls,
                f"__r{name}__",
                _binary(ufunc, swapped=True) if name != "pow" else lambda self, base, mod=None: ufuncs.call(np.power, (base, self)),
            )
        for name, ufunc in _COMPARE.items():
            setattr(cls, f"__{name}__", _binary(ufunc, swapped=False))
        for name, ufunc in _UNARY.items():
            setattr(cls, f"__{name}__", _unary(ufunc))
    for name, ufunc in _BINARY.items():
        if name not in ("divmod", "pow"):
            setattr(ndarray, f"__i{name}__", _in_place(ufunc))
    ndarray.__ipow__ = _in_place_power
