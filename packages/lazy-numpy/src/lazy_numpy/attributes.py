"""Attributes of lazy arrays and scalars.

Owns: what is known of an array without its contents, its flags, its flat form, its parts, and the attributes that are views.  May import
the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazy_core.shape import Shape

from . import convert, dtypes
from .cells import frozen
from .components import ComponentStorage
from .hosting import host_of, native, view_of, writable
from .immediate import dual, on_numpy, run, take
from .mapping import elementwise, shapes
from .recording import mode
from .tensor import contiguous, ndarray, scalar, wrap_any


class Flat:
    """`ndarray.flat`: iteration and indexing in C order."""

    __slots__ = ("_array",)

    def __init__(self, array: ndarray) -> None:
        self._array = array

    def __iter__(self) -> Iterator[Any]:
        return iter(convert.to_numpy(self._array).flat)

    def __len__(self) -> int:
        return int(self._array._shape.size)

    def __getitem__(self, key: Any) -> Any:
        return _flat_get(self._array, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _flat_set(self._array, key, value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(convert.to_numpy(self._array).ravel(), dtype=dtype)

    def copy(self) -> ndarray:
        """A flat copy."""
        return self._array.flatten()


def set_flags(self: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """`ndarray.setflags`."""
    if write is not None:
        self._share()
        self._writeable = bool(write)


class Flags:
    """`ndarray.flags`: of the layout that NumPy would have."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def writeable(self) -> bool:
        """Whether it may be written to."""
        return type(self._array) is ndarray and (self._array._value is not None or self._array._writeable)

    @writeable.setter
    def writeable(self, value: bool) -> None:
        set_flags(self._array, write=value)

    @property
    def c_contiguous(self) -> bool:
        """Whether its elements lie in C order without gaps."""
        return type(self._array) is scalar or self._array._get_layout().is_contiguous

    @property
    def f_contiguous(self) -> bool:
        """Whether its elements lie in Fortran's order without gaps."""
        if type(self._array) is scalar:
            return True
        layout = self._array._get_layout()
        return bool(layout.transpose(range(len(layout.sizes) - 1, -1, -1)).is_contiguous)

    @property
    def owndata(self) -> bool:
        """Whether it is no view."""
        return self._array.base is None

    contiguous = c_contiguous
    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)
    forc = property(lambda self: self.f_contiguous or self.c_contiguous)
    aligned = property(lambda self: True)
    behaved = property(lambda self: self.writeable)
    carray = property(lambda self: self.c_contiguous and self.writeable)
    farray = property(lambda self: self.f_contiguous and self.writeable)
    writebackifcopy = property(lambda self: False)

    def __getitem__(self, name: str) -> bool:
        short = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "O": "owndata", "A": "aligned", "X": "writebackifcopy"}
        return bool(getattr(self, short.get(name, name.lower())))

    def __setitem__(self, name: str, value: bool) -> None:
        if name.lower() not in ("w", "writeable"):
            raise ValueError("Setting flags is limited to WRITEABLE")
        self.writeable = value

    def __repr__(self) -> str:
        names = ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY")
        return "\n".join(f"  {n} : {self[n]}" for n in names) + "\n"


def _set_shape(self: ndarray, shape: Any) -> None:
    dims = shapes._resolve(self, shape)
    layout = self._get_layout().reshape(dims)
    if layout is None:
        raise AttributeError("Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape.")
    if self._value is not None:
        self._value = shapes._reshape_op(self._value, dims=dims)
        self._np = None
    else:
        self._layout = layout
    self._shape = Shape.of(dims, self._shape.dtype)


def _component(name: str) -> property:
    def read(self: Any) -> Any:
        if self._shape.dtype.kind != "c":
            if name == "real":
                return self
            made = wrap_any(shapes._zeros(convert.to_value(self._shape.dtype.type(0)), dims=self._shape.dims))
            return made
        part = elementwise._real if name == "real" else elementwise._imag
        if type(self) is scalar:
            return wrap_any(part(self._get()))
        return ComponentStorage.of(self, name)

    def write(self: Any, value: Any) -> None:
        if self._shape.dtype.kind != "c":
            if name == "imag":
                raise TypeError("array does not have imaginary part to set")
            self[...] = value
            return
        part = ComponentStorage.of(self, name)
        if not (
            type(value) is ndarray
            and value._value is None
            and value._storage.__class__ is ComponentStorage
            and value._storage.parent is part._storage.parent
            and value._storage.name == name
            and value._layout is part._layout
        ):
            part[...] = value

    def native_read(self: Any) -> Any:
        return run(lambda array: getattr(array, name), (self,), {})

    def native_write(self: Any, value: Any) -> None:
        setattr(writable(self), name, take(value))

    return property(dual(read, native_read), dual(write, native_write), doc=f"The {name} part: a view.")


def _strides(self: Any) -> tuple[int, ...]:
    return tuple([s * self._shape.dtype.itemsize for s in self._get_layout().strides])


def _base(self: Any) -> Any:
    """None for an array of its own; for a view, an array of the whole storage."""
    if type(self) is not scalar and (array := native(self)) is not None and not self._has_value():
        cell = self._cell
        return None if cell is None or cell.root is array or array.base is None else view_of(self, cell.root)
    if (
        type(self) is scalar
        or self._value is not None
        or (self._layout is contiguous(self._shape.dims) and self._layout.size == self._storage.value.shape.size)
    ):
        return None
    made: ndarray = object.__new__(ndarray)
    made._value = None
    made._storage = self._storage
    made._layout = self._storage.layout
    made._writeable = True
    made._shape = Shape.of(made._layout.sizes, self._shape.dtype)
    return made


def _flat_recorded(array: ndarray, key: Any) -> Any:
    return shapes.flatten(array)[key]


def _flat_set_recorded(array: ndarray, key: Any, value: Any) -> None:
    flat = shapes.flatten(array)
    if key is Ellipsis or key == slice(None):
        value = shapes.resize(value, flat._shape.dims) if np.ndim(value) else value
    flat[key] = value
    array._put(shapes.reshape(flat, array._shape.dims)._get())


def _flat_native(array: np.ndarray, key: Any) -> Any:
    return array.flat[key]


def _flat_set_native(array: np.ndarray, key: Any, value: Any) -> None:
    if not array.flags.writeable:
        raise ValueError("assignment destination is read-only")
    array.flat[key] = value


_flat_get = dual(_flat_recorded, on_numpy(_flat_native))
_flat_set = dual(_flat_set_recorded, on_numpy(_flat_set_native))


def _set_flat(self: ndarray, value: Any) -> None:
    _flat_set(self, Ellipsis, value)


def _attribute(name: str, recorded: Callable[[Any], Any]) -> property:
    """What is known of an array without its contents."""

    def read(self: ndarray) -> Any:
        if mode.immediate:
            array = self._np
            if array is not None:
                return getattr(array, name)
        return recorded(self)

    return property(read, doc=f"`ndarray.{name}`.")


def _view_property(name: str, recorded: Callable[[Any], Any]) -> property:
    def native(self: Any) -> Any:
        return run(lambda array: getattr(array, name), (self,), {})

    return property(dual(recorded, native), doc=f"`ndarray.{name}`: a view.")


def _flags(self: Any) -> Any:
    if type(self) is not scalar:
        array = native(self)
        if array is not None and not self._shows_value():
            return array.flags
    return Flags(self)


def _native_set_shape(self: ndarray, shape: Any) -> None:
    array = host_of(self)
    try:
        made = array.reshape(shape, copy=False)
    except ValueError as error:
        if "copy" not in str(error):
            raise
        raise AttributeError(
            "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
        ) from None
    if self._has_value():
        if self._value is None:
            _set_shape(self, shape)
        else:
            self._value, self._np, self._shape = frozen(made), None, Shape.of(made.shape, made.dtype)
        return
    self._np = made
    self._shape = Shape.of(made.shape, made.dtype)


def _set_dtype(self: ndarray, dtype: Any) -> None:
    """Read the same bits as another dtype, in place; views that exist already keep theirs."""
    made = self.view(dtype)
    if type(made) is not ndarray or (self._value is None and made._shape.dims != self._shape.dims):
        raise AttributeError(f"the dtype of an array that other views share cannot become {np.dtype(dtype)} in place: use `.view()`")
    if self._value is None and made._value is None:
        self._storage, self._layout = made._storage, made._layout
    else:
        self._value = made._get()
    self._shape, self._np = made._shape, None


def _native_set_dtype(self: ndarray, dtype: Any) -> None:
    if self._has_value():
        _set_dtype(self, dtype)
        return
    made = host_of(self).view(dtype)
    if not dtypes.supports(made.dtype):
        raise AttributeError(f"a lazy array cannot become one of {made.dtype} in place: use `.view()`")
    self._np, self._shape = made, Shape.of(made.shape, made.dtype)


# Those that NumPy's array is asked for, and those that are views; the extension has short ways for them.
KNOWN = ("dtype", "ndim", "size", "itemsize", "nbytes", "shape", "strides")
VIEWS = ("T", "mT")


def quiet(this: int, args: tuple[Any, ...], result: Any) -> None:
    """Tells nothing: what is set here is no call."""


def _dlpack(self: Any, *, copy: bool | None = None, **keywords: Any) -> Any:
    """A DLPack capsule of a copy: whoever takes it may write to it, and must not be shown later writes to this array."""
    if copy is False:
        raise BufferError("a lazy array is exported by DLPack as a copy only; leave `copy` out, or say copy=True")
    return np.array(convert.to_numpy(self), order="C").__dlpack__(**keywords)


def install() -> None:
    """Attach the attributes to both classes."""
    for cls in (ndarray, scalar):
        known: dict[str, Callable[[Any], Any]] = {
            "dtype": lambda self: self._shape.dtype,
            "ndim": lambda self: len(self._shape.dims),
            "size": lambda self: self._shape.size,
            "itemsize": lambda self: self._shape.dtype.itemsize,
            "nbytes": lambda self: self._shape.nbytes,
        }
        for name, recorded in known.items():
            setattr(cls, name, _attribute(name, recorded) if cls is ndarray else property(recorded))
        cls.flags = property(_flags, doc="Memory layout, as NumPy would have it.")
        cls.base = property(_base)
        cls.device = property(lambda self: "cpu", doc="What the array API calls the device.")
        cls.real = _component("real")
        cls.imag = _component("imag")
        cls.to_device = lambda self, device, /, *, stream=None: self
        cls.__array_namespace__ = _namespace
        cls.__dlpack__ = _dlpack
        cls.__dlpack_device__ = lambda self: (1, 0)  # the CPU
    shape = _attribute("shape", lambda self: self._shape.dims)
    ndarray.shape = shape.setter(dual(_set_shape, _native_set_shape, quiet))
    ndarray.dtype = ndarray.dtype.setter(dual(_set_dtype, _native_set_dtype, quiet))
    scalar.shape = property(lambda self: (), doc="The dimensions: none.")
    ndarray.strides = _attribute("strides", _strides)
    scalar.strides = property(lambda self: ())
    ndarray.T = _view_property("T", shapes.transpose)
    scalar.T = property(lambda self: self)
    ndarray.mT = _view_property("mT", shapes.matrix_transpose)
    ndarray.flat = property(Flat, _set_flat, doc="The elements in C order.")
    ndarray.data = property(lambda self: self.__array__(copy=False).data, doc="A read-only buffer of the current contents.")
    ndarray.ctypes = property(lambda self: self.__array__(copy=False).ctypes, doc="For reading from C.")


def _namespace(self: Any, /, *, api_version: str | None = None) -> Any:
    """The lazy NumPy as a namespace of the array API standard.

    Raises:
        ValueError: NumPy does not have that version of the standard.
    """
    from .proxy import module

    np.ndarray.__array_namespace__(_ANY, api_version=api_version)  # type: ignore[arg-type]
    return module()


_ANY = np.empty(0)
