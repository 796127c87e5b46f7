"""Shape: the dimensions and dtype of a tensor value.

Owns: interned shapes and their short printed form (`f32[8,128]`, after XLA's HLO text).  Imports nothing of the package.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

_SHORT_NAMES = {
    "bool": "pred",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
}


_LONG_NAMES = {short: long for long, short in _SHORT_NAMES.items()}


def short_dtype(dtype: DTypeLike) -> str:
    """The HLO name of a dtype: `f32`, `s64`, `pred`, `bf16`; other dtypes keep NumPy's name."""
    name = np.dtype(dtype).name
    return _SHORT_NAMES.get(name, name)


class Shape:
    """Dimensions and dtype of a value; interned, so that equal shapes are the same object."""

    __slots__ = ("__weakref__", "dims", "dtype", "name")

    dims: tuple[int, ...]
    dtype: np.dtype
    name: str

    def __init__(self) -> None:
        raise TypeError("shapes are interned: use Shape.of(dims, dtype)")

    @staticmethod
    def of(dims: Iterable[int], dtype: DTypeLike) -> Shape:
        """The interned shape with these dimensions (in elements) and dtype.

        Raises:
            ValueError: a dimension is negative.
        """
        key = (tuple(dims), dtype)
        try:
            found = _TABLE.get(key)  # type: ignore[arg-type]
        except TypeError:  # a dtype given in an unhashable form, such as a list of fields
            found = None
        if found is not None:
            return found
        exact = (tuple(map(int, key[0])), np.dtype(dtype))
        if any(d < 0 for d in exact[0]):
            raise ValueError(f"a shape has a negative dimension: {exact[0]}")
        with _LOCK:  # looking up and adding must be one step: two objects for one shape would be two shapes
            shape = _TABLE.get(exact)
            if shape is not None:
                return shape
            shape = object.__new__(Shape)
            object.__setattr__(shape, "dims", exact[0])
            object.__setattr__(shape, "dtype", exact[1])
            object.__setattr__(shape, "name", f"{short_dtype(exact[1])}[{','.join(map(str, exact[0]))}]")
            _TABLE[exact] = shape
            return shape

    @staticmethod
    def parse(text: str) -> Shape:
        """The shape that is printed as this text, such as `f32[8,128]`.

        Raises:
            ValueError: no shape is printed so.
        """
        name, bracket, rest = text.partition("[")
        try:
            if not bracket or not rest.endswith("]"):
                raise ValueError("no dimensions in brackets")
            return Shape.of([int(d) for d in rest[:-1].split(",") if d], np.dtype(_LONG_NAMES.get(name, name)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{text!r} is not a shape: {error}") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Shape is immutable; cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return Shape.of, (self.dims, self.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """The size in bytes of a dense buffer of this shape."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return self.name


# Weak: a shape is forgotten with the last expression or value that has it, so that shapes that never repeat cost no memory.
_LOCK = threading.Lock()
_TABLE: weakref.WeakValueDictionary[tuple[tuple[int, ...], np.dtype], Shape] = weakref.WeakValueDictionary()
