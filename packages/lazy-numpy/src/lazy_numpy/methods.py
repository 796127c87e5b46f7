"""Methods and attributes of lazy arrays and scalars.

Owns: NumPy's method signatures over the mapping's functions, and the attributes.  May import the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazy_core import ops, values
from lazy_core.shape import Shape

from . import convert, dtypes, fallback
from .mapping import elementwise, indexing, linalg, reductions, shapes, sorting, ufuncs
from .mapping.base import dims_of
from .mapping.base import op as core_op
from .tensor import contiguous, ndarray, scalar, wrap, wrap_any


def _or_numpy(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method that is NumPy's on the host where its mapping has no lowering."""
    from lazy_core.errors import DtypeError, UnsupportedError

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except (fallback.NotLowered, UnsupportedError, DtypeError) as why:
            return fallback.run(lambda a, *r, **k: getattr(a, name)(*r, **k), (self, *args), kwargs, f"ndarray.{name}", str(why))

    method.__name__ = name
    method.__doc__ = f"`ndarray.{name}`."
    return method


def _reshape(self: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return shapes.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    alone = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
    chosen = axes[0] if alone else axes
    return shapes.transpose(self, chosen if chosen else None)


def _astype(self: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    return elementwise.astype(self, dtype, casting, copy)


def _fill(self: Any, value: Any) -> None:
    self[...] = value


def _item(self: Any, *args: Any) -> Any:
    if not args and self._shape.size == 1:
        return convert.to_numpy(self).item()
    return convert.to_numpy(self).item(*args)


def _sort(self: Any, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    self._put(sorting.sort(self, axis, kind, order)._get())


def _partition(self: Any, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
    _sort(self, axis)


def _resize(self: Any, *new_shape: Any, refcheck: bool = True) -> None:
    dims = dims_of(new_shape[0] if len(new_shape) == 1 else new_shape)
    host = np.array(convert.to_numpy(self))
    host.resize(dims, refcheck=False)
    made = convert.from_numpy(host, owned=True)
    self._value, self._shape = made._value, made._shape


def _setflags(self: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
    if write is not None:
        self._share()
        self._writeable = bool(write)


def _view(self: Any, dtype: Any = None, type: Any = None) -> Any:
    if dtype is None or (isinstance(dtype, builtins_type) and issubclass(dtype, (ndarray, np.ndarray))):
        return shapes.as_view(self, self._get_layout())
    target = np.dtype(dtype)
    if target == self._shape.dtype:
        return shapes.as_view(self, self._get_layout())
    if target.itemsize != self._shape.dtype.itemsize or not dtypes.supports(target) or "b" in (target.kind, self._shape.dtype.kind):
        raise fallback.NotLowered(f"a view of {self._shape.dtype} as {target} is a copy")
    return _BitsStorage.of(self, target)


builtins_type = type


_METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "astype": _astype,
    "clip": elementwise.clip,
    "compress": lambda self, condition, axis=None, out=None: indexing.compress(condition, self, axis, out),
    "conj": lambda self: ufuncs.call(np.conjugate, (self,)),
    "conjugate": lambda self, *out: ufuncs.call(np.conjugate, (self,)),
    "copy": lambda self, order="C": wrap_any(self._get()) if type(self) is scalar else wrap(self._get()),
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": shapes.diagonal,
    "dot": linalg.dot,
    "fill": _fill,
    "flatten": shapes.flatten,
    "item": _item,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": indexing.nonzero,
    "partition": _partition,
    "prod": reductions.prod,
    "put": indexing.put,
    "ravel": shapes.ravel,
    "repeat": shapes.repeat,
    "reshape": _reshape,
    "resize": _resize,
    "round": elementwise.round_,
    "searchsorted": sorting.searchsorted,
    "setflags": _setflags,
    "sort": _sort,
    "squeeze": shapes.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": shapes.swapaxes,
    "take": indexing.take,
    "tolist": lambda self: convert.to_numpy(self).tolist(),
    "trace": linalg.trace,
    "transpose": _transpose,
    "var": reductions.var,
    "view": _view,
}

# Bytes and text: NumPy writes them, and they are no fallbacks.
_HOST = ("tobytes", "tofile", "dump", "dumps")
_FALLBACK = ("byteswap", "choose", "getfield")


_bits = core_op(ops.bitcast)


class Flat:
    """`ndarray.flat`: iteration and indexing in C order."""

    __slots__ = ("_array",)

    def __init__(self, array: ndarray) -> None:
        self._array = array

    def __iter__(self) -> Iterator[Any]:
        return iter(convert.to_numpy(self._array).ravel())

    def __len__(self) -> int:
        return int(self._array._shape.size)

    def __getitem__(self, key: Any) -> Any:
        result = shapes.flatten(self._array)[key]
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        flat = shapes.flatten(self._array)
        if key is Ellipsis or key == slice(None):
            value = shapes.resize(value, flat._shape.dims) if np.ndim(value) else value
        flat[key] = value
        self._array._put(shapes.reshape(flat, self._array._shape.dims)._get())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(convert.to_numpy(self._array).ravel(), dtype=dtype)

    def copy(self) -> ndarray:
        """A flat copy."""
        return shapes.flatten(self._array)


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
        _setflags(self._array, write=value)

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
        return _ComponentStorage.of(self, name)

    def write(self: Any, value: Any) -> None:
        if self._shape.dtype.kind != "c":
            if name == "imag":
                raise TypeError("array does not have imaginary part to set")
            self[...] = value
            return
        part = _ComponentStorage.of(self, name)
        if not (
            type(value) is ndarray
            and value._value is None
            and value._storage.__class__ is _ComponentStorage
            and value._storage.parent is part._storage.parent
            and value._storage.name == name
            and value._layout is part._layout
        ):
            part[...] = value

    return property(read, write, doc=f"The {name} part: a view.")


class _ComponentStorage:
    """The real or imaginary parts of a complex storage, seen as a storage: so that `z.real[...] = x` aliases."""

    __slots__ = ("name", "parent")

    def __init__(self, parent: Any, name: str) -> None:
        self.parent = parent
        self.name = name

    @staticmethod
    def of(array: ndarray, name: str) -> ndarray:
        parent, layout = array._share()
        made: ndarray = object.__new__(ndarray)
        made._value = None
        made._storage = _ComponentStorage(parent, name)  # type: ignore[assignment]
        made._layout = layout
        made._writeable = array._writeable
        real = np.dtype(f"f{array._shape.dtype.itemsize // 2}")
        made._shape = Shape.of(array._shape.dims, real)
        return made

    @property
    def layout(self) -> Any:
        return self.parent.layout

    @property
    def value(self) -> Any:
        return self._part(self.parent.value)

    def _part(self, value: Any) -> Any:
        return (elementwise._real if self.name == "real" else elementwise._imag)(value)

    def read(self, view: Any) -> Any:
        return self._part(self.parent.read(view))

    def write(self, view: Any, value: Any) -> None:
        old = self.parent.read(view)
        other = (elementwise._imag if self.name == "real" else elementwise._real)(old)
        self.parent.write(view, _complex(value, other) if self.name == "real" else _complex(other, value))


class _BitsStorage:
    """A storage whose bits are read as another dtype of the same size: `x.view(np.int64)` aliases."""

    __slots__ = ("dtype", "parent")

    def __init__(self, parent: Any, dtype: np.dtype) -> None:
        self.parent = parent
        self.dtype = dtype

    @staticmethod
    def of(array: ndarray, dtype: np.dtype) -> ndarray:
        parent, layout = array._share()
        made: ndarray = object.__new__(ndarray)
        made._value = None
        made._storage = _BitsStorage(parent, dtype)  # type: ignore[assignment]
        made._layout = layout
        made._writeable = array._writeable
        made._shape = Shape.of(array._shape.dims, dtype)
        return made

    @property
    def layout(self) -> Any:
        return self.parent.layout

    @property
    def value(self) -> Any:
        return _bits(self.parent.value, dtype=self.dtype)

    def read(self, view: Any) -> Any:
        return _bits(self.parent.read(view), dtype=self.dtype)

    def write(self, view: Any, value: Any) -> None:
        self.parent.write(view, _bits(value, dtype=self.parent.value.shape.dtype))


def _complex(re: Any, im: Any) -> Any:
    return values.record(ops.complex, (re, im))


def _strides(self: Any) -> tuple[int, ...]:
    return tuple([s * self._shape.dtype.itemsize for s in self._get_layout().strides])


def _base(self: Any) -> Any:
    """None for an array of its own; for a view, an array of the whole storage."""
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


def _flat_set(self: ndarray, value: Any) -> None:
    Flat(self)[...] = value


def install() -> None:
    """Attach methods and attributes to both classes."""
    for cls in (ndarray, scalar):
        for name, function in _METHODS.items():
            if cls is scalar and name in ("sort", "fill", "put", "partition", "setflags", "resize"):
                continue
            setattr(cls, name, _or_numpy(function, name))
        for name in _HOST:
            setattr(cls, name, lambda self, *a, _name=name, **k: getattr(convert.to_numpy(self), _name)(*a, **k))
        for name in _FALLBACK:
            setattr(cls, name, _or_numpy(_not_lowered, name))
        cls.dtype = property(lambda self: self._shape.dtype, doc="The data type.")
        cls.ndim = property(lambda self: len(self._shape.dims), doc="The number of dimensions.")
        cls.size = property(lambda self: self._shape.size, doc="The number of elements.")
        cls.itemsize = property(lambda self: self._shape.dtype.itemsize, doc="The bytes of one element.")
        cls.nbytes = property(lambda self: self._shape.nbytes, doc="The bytes of all elements.")
        cls.flags = property(Flags, doc="Memory layout, as NumPy would have it.")
        cls.base = property(_base)
        cls.device = property(lambda self: "cpu", doc="What the array API calls the device.")
        cls.real = _component("real")
        cls.imag = _component("imag")
        cls.to_device = lambda self, device, /, *, stream=None: self
        cls.__array_namespace__ = lambda self, api_version=None: _namespace()
    ndarray.shape = property(lambda self: self._shape.dims, _set_shape, doc="The dimensions.")
    scalar.shape = property(lambda self: (), doc="The dimensions: none.")
    ndarray.strides = property(_strides, doc="Bytes between neighbours along each dimension.")
    scalar.strides = property(lambda self: ())
    ndarray.T = property(shapes.transpose, doc="The transposed view.")
    scalar.T = property(lambda self: self)
    ndarray.mT = property(shapes.matrix_transpose, doc="The view with the last two dimensions exchanged.")
    ndarray.flat = property(Flat, _flat_set, doc="The elements in C order.")
    ndarray.data = property(lambda self: convert.to_numpy(self).data, doc="A read-only buffer of the current contents.")
    ndarray.ctypes = property(lambda self: convert.to_numpy(self).ctypes, doc="For reading from C.")


def _not_lowered(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise fallback.NotLowered("no lowering")


def _namespace() -> Any:
    from .proxy import module

    return module()
