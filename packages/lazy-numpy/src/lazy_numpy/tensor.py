"""The lazy array and the lazy scalar.

Owns: `ndarray`, an array whose contents are a promise, with NumPy's views: an array is either whole (it holds its value
alone) or a layout on a storage that it shares with other views; and `scalar`, what reductions and indexing give, which
behaves as NumPy's scalars do without reading.  Operators and methods are attached by `operators` and `methods`; what an
operation means lives in `mapping`.  May import lazy_core and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lazy_core import dump, values
from lazy_core.shape import Shape
from lazy_core.storage import Layout, Storage
from lazy_core.values import Value

_new = object.__new__


# Other classes that are arrays to their users (see `selection`).
_ALSO_ARRAYS: set[type] = set()


class _ArrayType(type):
    """Makes `isinstance(x, np.ndarray)` hold for both kinds of array in user modules, and subclasses those of NumPy's own array."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if any(isinstance(b, _ArrayType) for b in bases):
            real = tuple([np.ndarray if isinstance(b, _ArrayType) else b for b in bases])
            return type(name, real, namespace)
        return super().__new__(mcls, name, bases, namespace)

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is cls or isinstance(instance, np.ndarray) or type(instance) in _ALSO_ARRAYS

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, np.ndarray)


class ndarray(metaclass=_ArrayType):
    """A lazy array: NumPy's `ndarray`, recorded instead of computed.

    Slicing, transposing and reshaping give views that alias, as in NumPy.  Reading the contents (printing, `float`,
    `np.asarray`, `tolist`) is a barrier. `ndarray(shape, dtype)` makes zeros.
    """

    __slots__ = ("__weakref__", "_layout", "_shape", "_storage", "_value", "_writeable")
    __array_priority__ = 1000.0

    _shape: Shape
    _value: Value | None  # whole and unshared; else None, and:
    _storage: Storage
    _layout: Layout
    _writeable: bool

    def __new__(cls, shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0, strides: Any = None, order: Any = None) -> Any:
        """Zeros of a shape, or a copy of a buffer's contents."""
        from .convert import from_numpy

        made = np.zeros(shape, dtype) if buffer is None else np.ndarray(shape, dtype, buffer, offset, strides, order)
        return from_numpy(made)

    # -------------------------------------------------------------- contents

    def _get(self) -> Value:
        """The current contents."""
        value = self._value
        return value if value is not None else self._storage.read(self._layout)

    def __lazy_core_value__(self) -> Value:
        """What `lazy_core.explain(x)` and `lazy_core.graph(x)` ask of an array."""
        return self._get()

    def _put(self, value: Value) -> None:
        """Replace the contents by a value of the same dims and dtype; every view of the storage sees it."""
        if self._value is not None:
            self._value = value
            return
        if not self._writeable:
            raise ValueError("assignment destination is read-only")
        self._storage.write(self._layout, value)

    def _share(self) -> tuple[Storage, Layout]:
        """The storage and layout, made now if this array has been whole so far."""
        value = self._value
        if value is not None:
            self._storage = Storage(value, contiguous(value.shape.dims))
            self._layout = self._storage.layout
            self._writeable = True
            self._value = None
        return self._storage, self._layout

    def _view(self, layout: Layout, writeable: bool = True) -> ndarray:
        """A view of the same storage."""
        storage, own = self._share()
        if own.moving:
            layout.moving = True
        made: ndarray = _new(ndarray)
        made._value = None
        made._storage = storage
        made._layout = layout
        made._writeable = writeable and self._writeable
        key = (layout, self._shape.dtype)
        made._shape = _VIEW_SHAPES.get(key) or shape_of(layout, key[1])
        return made

    def _get_layout(self) -> Layout:
        """How the elements lie; asking does not make the array shared."""
        return contiguous(self._shape.dims) if self._value is not None else self._layout

    # -------------------------------------------------------------- protocols

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _hooks["function"](function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        host = values.to_host(self._get())
        if dtype is not None and np.dtype(dtype) != host.dtype:
            if copy is False:
                raise ValueError(f"a lazy array of dtype {host.dtype} cannot become one of dtype {dtype} without a copy")
            return host.astype(dtype)
        return host if copy is False else host.copy()

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What NumPy's own functions give their results through: they come back lazy."""
        from .convert import from_numpy

        return from_numpy(array) if isinstance(array, np.ndarray) else array

    def __getitem__(self, key: Any) -> Any:
        return _hooks["getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _hooks["setitem"](self, key, value)

    def __len__(self) -> int:
        dims = self._shape.dims
        if not dims:
            raise TypeError("len() of unsized object")
        return dims[0]

    def __iter__(self) -> Iterator[Any]:
        dims = self._shape.dims
        if not dims:
            raise TypeError("iteration over a 0-d array")
        if len(dims) == 1:  # one read, then NumPy's scalars
            return iter(values.to_host(self._get()))
        return (self[i] for i in range(dims[0]))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'numpy.ndarray'")

    def __bool__(self) -> bool:
        return bool(values.to_host(self._get())) if self._shape.size <= 1 else bool(np.empty(self._shape.dims, np.bool_))

    def __int__(self) -> int:
        return int(self.__array__(copy=False))

    def __float__(self) -> float:
        return float(self.__array__(copy=False))

    def __complex__(self) -> complex:
        return complex(self.__array__(copy=False))

    def __index__(self) -> int:
        return self.__array__(copy=False).__index__()

    def __repr__(self) -> str:
        return dump.inspected(self) or repr(self.__array__(copy=False))

    def __str__(self) -> str:
        return str(self.__array__(copy=False))

    def __format__(self, spec: str) -> str:
        return format(self.__array__(copy=False), spec)

    def __copy__(self) -> ndarray:
        return wrap(self._get())

    def __deepcopy__(self, memo: Any) -> ndarray:
        return wrap(self._get())

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.__array__(),)


class scalar:
    """A lazy scalar: what NumPy's reductions and integer indexing return as `np.float64` and the like, not read yet.

    Arithmetic stays lazy and promotes as a NumPy scalar does.  `float`, `bool`, formatting, hashing, comparing for a
    branch read it (a barrier).  It calls itself an instance of its NumPy type (`isinstance(s, np.float64)`, and of
    float where that one is), and never of `np.ndarray`.  C code that looks at the real type (json's encoder, say) wants
    `s.item()`.
    """

    __slots__ = ("__weakref__", "_shape", "_value")
    __array_priority__ = 1000.0

    _shape: Shape
    _value: Value

    def _get(self) -> Value:
        return self._value

    def __lazy_core_value__(self) -> Value:
        """What `lazy_core.explain(x)` and `lazy_core.graph(x)` ask of a scalar."""
        return self._value

    def _host(self) -> Any:
        """The NumPy scalar."""
        return values.to_host(self._value)[()]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The type of the NumPy scalar that this stands for."""
        return self._shape.dtype.type

    __array_function__ = ndarray.__array_function__
    __array__ = ndarray.__array__

    def __getitem__(self, key: Any) -> Any:
        if key == ():
            return self
        if key is Ellipsis or key is None:
            return wrap(self._value)[key]
        raise IndexError("invalid index to scalar variable.")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"'numpy.{self._shape.dtype}' object is not iterable")

    def __hash__(self) -> int:
        return hash(self._host())

    def __bool__(self) -> bool:
        return bool(self._host())

    def __int__(self) -> int:
        return int(self._host())

    def __float__(self) -> float:
        return float(self._host())

    def __complex__(self) -> complex:
        return complex(self._host())

    def __index__(self) -> int:
        host: int = self._host().__index__()
        return host

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self._host(), ndigits) if ndigits is not None else round(self._host())

    def __trunc__(self) -> int:
        return int(self._host())

    def __floor__(self) -> int:
        return int(self._host().__floor__()) if hasattr(self._host(), "__floor__") else int(np.floor(self._host()))

    def __ceil__(self) -> int:
        return int(np.ceil(self._host()))

    def __repr__(self) -> str:
        return dump.inspected(self) or repr(self._host())

    def __str__(self) -> str:
        return str(self._host())

    def __format__(self, spec: str) -> str:
        return format(self._host(), spec)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._host().__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # __array_interface__, __array_struct__ and the like must not exist
            raise AttributeError(name)
        return getattr(self._host(), name)


def _unpickle(array: np.ndarray) -> Any:
    from .convert import from_numpy

    return from_numpy(array, owned=True)


# Filled by the mapping: what the protocols call.
_hooks: dict[str, Any] = {}

_CONTIGUOUS: dict[tuple[int, ...], Layout] = {}


def contiguous(dims: tuple[int, ...]) -> Layout:
    """The layout of a whole array."""
    found = _CONTIGUOUS.get(dims)
    if found is None:
        found = _CONTIGUOUS[dims] = Layout.contiguous(dims)
    return found


# Shapes live as long as somebody uses them; views come and go, so theirs are kept.
_VIEW_SHAPES: dict[tuple[Layout, np.dtype], Shape] = {}
_VIEW_SHAPES_LIMIT = 50_000


def shape_of(layout: Layout, dtype: np.dtype) -> Shape:
    """The shape of a view."""
    found = _VIEW_SHAPES.get((layout, dtype))
    if found is None:
        if len(_VIEW_SHAPES) > _VIEW_SHAPES_LIMIT:
            _VIEW_SHAPES.clear()
        found = _VIEW_SHAPES[layout, dtype] = Shape.of(layout.sizes, dtype)
    return found


def wrap(value: Value) -> ndarray:
    """A whole array for a value."""
    made: ndarray = _new(ndarray)
    made._value = value
    made._shape = value.shape
    return made


def wrap_scalar(value: Value) -> scalar:
    """A scalar for a 0-d value."""
    made: scalar = _new(scalar)
    made._value = value
    made._shape = value.shape
    return made


def wrap_any(value: Any) -> Any:
    """An array, or a scalar where NumPy would return one; tuples by their parts."""
    if type(value) is tuple:
        return tuple([wrap_any(v) for v in value])
    return wrap(value) if value.shape.dims else wrap_scalar(value)
