"""The lazy array and the lazy scalar.

Owns: `ndarray`, an array whose contents are a promise, with NumPy's views: an array is either whole (it holds its value
alone) or a layout on a storage that it shares with other views; and `scalar`, what reductions and indexing give, which
behaves as NumPy's scalars do without reading.  Operators and methods are attached by `operators` and `methods`; what an
operation means lives in `mapping`.  May import lazy_core and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lazy_core import dump, values
from lazy_core.shape import Shape
from lazy_core.storage import Layout
from lazy_core.values import Value

from . import dtypes
from .cells import Cell, Storage
from .recording import mode

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
        kind = type(instance)
        return kind is cls or isinstance(instance, np.ndarray) or kind in _ALSO_ARRAYS or type(kind) is _ArrayType

    def __eq__(cls, other: object) -> bool:
        """The classes of single arrays (see `elements`) are to their users what they derive from."""
        return cls is other or (type(other) is _ArrayType and cls.__name__ == other.__name__)

    def __hash__(cls) -> int:
        return hash(cls.__name__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, np.ndarray)


class ndarray(metaclass=_ArrayType):
    """A lazy array: NumPy's `ndarray`, recorded instead of computed.

    Slicing, transposing and reshaping give views that alias, as in NumPy.  Reading the contents (printing, `float`,
    `np.asarray`, `tolist`) is a barrier. `ndarray(shape, dtype)` makes zeros.
    """

    __slots__ = ("__weakref__", "_cell", "_layout", "_np", "_reads", "_shape", "_storage", "_value", "_writeable")
    __array_priority__ = 1000.0

    # Deferred: a value, or a view of a storage.

    _shape: Shape
    _value: Value | None  # whole and unshared; else None, and:
    _storage: Storage
    _layout: Layout
    _writeable: bool
    # Native (see `hosting`): NumPy's memory, shared through a cell or not; None otherwise.
    _np: np.ndarray | None
    _cell: Cell | None
    _reads: int

    def __new__(cls, shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0, strides: Any = None, order: Any = None) -> Any:
        """Zeros of a shape, or a copy of a buffer's contents; NumPy's own of dtypes that cannot be lazy."""
        from .convert import from_numpy

        if not dtypes.supports(np.dtype(dtype)):
            return np.ndarray(shape, dtype, buffer, offset, strides, order)
        made = np.zeros(shape, dtype) if buffer is None else np.ndarray(shape, dtype, buffer, offset, strides, order)
        return from_numpy(made)

    def __getattr__(self, name: str) -> Any:
        """An attribute that this state lacks: leave the native state where recording needs it."""
        if name == "_np" or name == "_cell":
            return None
        if name == "_reads":
            return 0
        if name in _DEFERRED and self._np is not None:
            if name == "_shape":
                array = self._np
                shape = self._shape = Shape.of(array.shape, array.dtype)
                return shape
            _hooks["settle"](self)
            return getattr(self, name)
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")

    def _has_value(self) -> bool:
        """Whether the attributes that recording uses are set, whatever `_np` is."""
        try:
            _get_value_slot(self)
        except AttributeError:
            return False
        return True

    def _shows_value(self) -> bool:
        """Whether what `_np` shows is the buffer of a value, and so read-only for us but not for the user."""
        cell = self._cell
        return self._has_value() if cell is None else not cell.writable

    def _stays_read_only(self) -> bool:
        """Whether the array is read-only to its user, and not only because its memory is the buffer of a value."""
        return not self._shows_value()

    def _become(self, array: np.ndarray) -> None:
        """Be another array, of its own memory."""
        if self._has_value():
            del self._value
        self._np, self._cell, self._shape = array, None, Shape.of(array.shape, array.dtype)

    # -------------------------------------------------------------- contents

    def _get(self) -> Value:
        """The current contents."""
        value = self._value
        return value if value is not None else self._storage.read(self._layout)

    def _contents(self) -> np.ndarray:
        """The contents on the host, for whoever reads them now: a barrier if they are pending.  The array may be NumPy's own memory."""
        array = self._np
        if array is not None:
            cell = self._cell
            if cell is None or cell.alive:
                mode.read()
                return array
        return values.to_host(self._get())

    def __lazy_core_value__(self) -> Value:
        """What `lazy_core.explain(x)` and `lazy_core.graph(x)` ask of an array."""
        return self._get()

    def _put(self, value: Value) -> None:
        """Replace the contents by a value of the same dims and dtype; every view of the storage sees it."""
        if self._value is not None:
            self._value = value
            self._np = None
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
            self._np = None
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
        host = self._contents()
        if dtype is not None and np.dtype(dtype) != host.dtype:
            if copy is False:
                raise ValueError(f"a lazy array of dtype {host.dtype} cannot become one of dtype {dtype} without a copy")
            return host.astype(dtype)
        if copy is not False:
            return host.copy()
        if host.flags.writeable:
            host = host.view()
            host.flags.writeable = False
        return host

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What NumPy's own functions give their results through: they come back lazy."""
        from .convert import from_numpy

        return from_numpy(array) if isinstance(array, np.ndarray) else array

    # Attached by `mapping.dispatch`.
    __getitem__: Any
    __setitem__: Any

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

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
            return iter(self._contents())
        return (self[i] for i in range(dims[0]))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'numpy.ndarray'")

    def __bool__(self) -> bool:
        return bool(self._contents()) if self._shape.size <= 1 else bool(np.empty(self._shape.dims, np.bool_))

    def __int__(self) -> int:
        return int(self._contents())

    def __float__(self) -> float:
        return float(self._contents())

    def __complex__(self) -> complex:
        return complex(self._contents())

    def __index__(self) -> int:
        return self._contents().__index__()

    def __bytes__(self) -> bytes:
        return self._contents().tobytes()

    def __repr__(self) -> str:
        return (self._np is None and dump.inspected(self)) or repr(self._contents())

    def __str__(self) -> str:
        return str(self._contents())

    def __format__(self, spec: str) -> str:
        return format(self._contents(), spec)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    if TYPE_CHECKING:
        copy: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.__array__(),)


_DEFERRED = frozenset(("_layout", "_shape", "_storage", "_value", "_writeable"))
_get_value_slot = ndarray.__dict__["_value"].__get__


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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made: np.ndarray = wrap(self._value).__array__(dtype, copy)
        return made

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
