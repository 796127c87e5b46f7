"""The tensor: a promise of a value, with the standard's operators.

Owns: `Array`.  It holds a core `Value`, whose shape and dtype are known without running anything; when the last reference to it dies, it is
no output of the next program.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from lazy_core import notebook, ops, values

from . import dtypes

_namespace = ""


def set_namespace(name: str) -> None:
    """Say which module `__array_namespace__` returns."""
    global _namespace
    _namespace = name


def _functions() -> Any:
    return sys.modules[_namespace]


class Array:
    """A lazy array of the array API standard. It cannot be changed in place."""

    __slots__ = ("_value",)

    def __init__(self, value: values.Value) -> None:
        self._value = value

    # -------------------------------------------------------------- known without running

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._value.shape.dims

    @property
    def dtype(self) -> Any:
        """The library's dtype."""
        return dtypes.from_numpy(self._value.shape.dtype)

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return self._value.shape.size

    @property
    def device(self) -> str:
        """Always "lazy"."""
        return "lazy"

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ValueError(f"T is for matrices; this array has the shape {self.shape}: use permute_dims")
        return _functions().permute_dims(self, (1, 0))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return _functions()

    def __lazy_core_value__(self) -> values.Value:
        """What `lazy_core.explain`, `graph`, `first_nan` and `capture` ask of a tensor."""
        return self._value

    def __repr__(self) -> str:
        """A debugger asks for this: it must not compute anything."""
        if self._value.pending:
            return f"Array({self._value.shape}, pending)"
        return f"Array({self.numpy()!s}, dtype={self._value.shape.dtype.name})"

    # -------------------------------------------------------------- reads: everything pending runs

    def numpy(self) -> np.ndarray:
        """The contents, as a NumPy array of their own."""
        return values.to_host(self._value).copy()

    def _item(self) -> Any:
        if self.size != 1:
            raise TypeError(f"only an array of one element is a number; this one has the shape {self.shape}")
        return values.to_host(self._value).reshape(())[()]

    def __bool__(self) -> bool:
        return bool(self._item())

    def __int__(self) -> int:
        return int(self._item())

    def __float__(self) -> float:
        return float(self._item())

    def __complex__(self) -> complex:
        return complex(self._item())

    def __index__(self) -> int:
        return self._item().__index__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    # -------------------------------------------------------------- parts

    def __getitem__(self, key: Any) -> Array:
        """Numbers, slices, `...` and None; other keys are the standard's `take`."""
        keys = _whole(key if isinstance(key, tuple) else (key,), self.ndim)
        starts, limits, strides, reverse, dims = [], [], [], [], []
        axis = 0
        for k in keys:
            if k is None:
                dims.append(1)
                continue
            start, stop, step, keep = _range(k, self.shape[axis], axis)
            count = len(range(start, stop, step))
            if step < 0:  # the same elements from the other end
                reverse.append(axis)
                start, stop, step = start + (count - 1) * step, start + 1, -step
            starts.append(start if count else 0)
            limits.append(stop if count else 0)
            strides.append(step)
            dims += [count] if keep else []
            axis += 1
        part = ops.slice(self._value, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides)) if axis else self._value
        if reverse:
            part = ops.reverse(part, axes=tuple(reverse))
        return Array(ops.reshape(part, dims=tuple(dims)))


def _whole(keys: tuple[Any, ...], ndim: int) -> list[Any]:
    """Keys with one for each dimension."""
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > ndim or keys.count(Ellipsis) > 1:
        raise IndexError(f"{keys} has {used} keys for an array of {ndim} dimensions")
    place = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    return [*keys[:place], *[slice(None)] * (ndim - used), *keys[place + 1 :]]


def _range(key: Any, size: int, axis: int) -> tuple[int, int, int, bool]:
    """Start, stop and step of a key, and whether the dimension stays."""
    if isinstance(key, slice):
        return *key.indices(size), True
    if isinstance(key, bool) or not hasattr(key, "__index__"):
        raise IndexError(f"{key!r} is no key here: use a number, a slice, ..., None; or take() for arrays of indices")
    number = key.__index__()
    if not -size <= number < size:
        raise IndexError(f"{number} is out of bounds for dimension {axis} of size {size}")
    return number % size, number % size + 1, 1, False


def _operator(name: str, swapped: bool) -> Any:
    def method(self: Array, other: Any) -> Any:
        if not isinstance(other, (Array, bool, int, float, complex)):
            return NotImplemented
        function = getattr(_functions(), name)
        return function(other, self) if swapped else function(self, other)

    return method


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "pow", "floordiv": "floor_divide", "mod": "remainder",
    "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
for _name, _function in _BINARY.items():
    setattr(Array, f"__{_name}__", _operator(_function, swapped=False))
    setattr(Array, f"__r{_name}__", _operator(_function, swapped=True))
for _name, _function in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}.items():
    setattr(Array, f"__{_name}__", _operator(_function, swapped=False))
for _name, _function in {"neg": "negative", "abs": "abs", "invert": "bitwise_invert", "pos": "positive"}.items():
    setattr(Array, f"__{_name}__", lambda self, _function=_function: getattr(_functions(), _function)(self))
Array.__hash__ = None  # type: ignore[assignment]  # equal is elementwise
notebook.attach(Array)
