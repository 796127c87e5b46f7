"""Parts of a storage's elements as storages of their own: real and imaginary parts, and bits read as another dtype.

Owns: `ComponentStorage`, `BitsStorage`.  May import `tensor`, `recording`, `mapping.elementwise`, lazy_core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.shape import Shape

from .mapping import elementwise
from .mapping.base import op as core_op
from .recording import record
from .tensor import ndarray

_bits = core_op(ops.bitcast)


class ComponentStorage:
    """The real or imaginary parts of a complex storage, seen as a storage: so that `z.real[...] = x` aliases."""

    __slots__ = ("name", "parent")

    def __init__(self, parent: Any, name: str) -> None:
        self.parent = parent
        self.name = name

    @staticmethod
    def of(array: ndarray, name: str) -> ndarray:
        """A view of one part of a complex array."""
        real = np.dtype(f"f{array._shape.dtype.itemsize // 2}")
        return _seen_through(array, lambda parent: ComponentStorage(parent, name), real)

    @property
    def layout(self) -> Any:
        """The layout of the whole."""
        return self.parent.layout

    @property
    def value(self) -> Any:
        """What the whole shows."""
        return self._part(self.parent.value)

    def _part(self, value: Any) -> Any:
        return (elementwise._real if self.name == "real" else elementwise._imag)(value)

    def read(self, view: Any) -> Any:
        """What a view shows."""
        return self._part(self.parent.read(view))

    def write(self, view: Any, value: Any) -> None:
        """Replace what a view shows."""
        old = self.parent.read(view)
        other = (elementwise._imag if self.name == "real" else elementwise._real)(old)
        self.parent.write(view, _complex(value, other) if self.name == "real" else _complex(other, value))

    def host(self, view: Any, writable: bool) -> tuple[np.ndarray, Any]:
        """The memory that a view shows, and its cell."""
        whole, cell = self.parent.host(view, writable)
        return getattr(whole, self.name), cell


class BitsStorage:
    """A storage whose bits are read as another dtype of the same size: `x.view(np.int64)` aliases."""

    __slots__ = ("dtype", "parent")

    def __init__(self, parent: Any, dtype: np.dtype) -> None:
        self.parent = parent
        self.dtype = dtype

    @staticmethod
    def of(array: ndarray, dtype: np.dtype) -> ndarray:
        """A view of an array as another dtype of the same size."""
        return _seen_through(array, lambda parent: BitsStorage(parent, dtype), dtype)

    @property
    def layout(self) -> Any:
        """The layout of the whole."""
        return self.parent.layout

    @property
    def value(self) -> Any:
        """What the whole shows."""
        return _bits(self.parent.value, dtype=self.dtype)

    def read(self, view: Any) -> Any:
        """What a view shows."""
        return _bits(self.parent.read(view), dtype=self.dtype)

    def write(self, view: Any, value: Any) -> None:
        """Replace what a view shows."""
        self.parent.write(view, _bits(value, dtype=self.parent.value.shape.dtype))

    def host(self, view: Any, writable: bool) -> tuple[np.ndarray, Any]:
        """The memory that a view shows, and its cell."""
        whole, cell = self.parent.host(view, writable)
        return whole.view(self.dtype), cell


def _seen_through(array: ndarray, storage: Callable[[Any], Any], dtype: np.dtype) -> ndarray:
    """A view of an array whose elements a storage makes out of those of the array's own, as a dtype."""
    parent, layout = array._share()
    made: ndarray = object.__new__(ndarray)
    made._value = None
    made._storage = storage(parent)
    made._layout = layout
    made._writeable = array._writeable
    made._shape = Shape.of(array._shape.dims, dtype)
    return made


def _complex(re: Any, im: Any) -> Any:
    return record(ops.complex, (re, im))
