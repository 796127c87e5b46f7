"""What reading through a boolean mask gives: an array whose length nobody has asked for yet.

Owns: `selection`.  Its shape depends on data, so making the array is a barrier; but a program that goes on to reduce
it, to apply functions elementwise, or to write it back through the same mask needs no shape: these stay static, as
`where`.  Whatever else is asked of it reads the mask first, which is reported as a host read, and then it is an
ordinary array.  May import `tensor`, `convert`, the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazy_core import values
from lazy_core.values import Value

from .tensor import _ALSO_ARRAYS, _new, ndarray, scalar, wrap

_REDUCTIONS = ("sum", "mean", "prod", "any", "all", "var", "std")
_BY_FUNCTION = {getattr(np, name): name for name in _REDUCTIONS}


class selection:
    """`x[mask]`, not made yet."""

    __slots__ = ("__weakref__", "_full", "_made", "_mask")
    __array_priority__ = 1001.0

    _full: Value  # the array that is selected from, as it was; later with functions applied
    _mask: Value  # of its leading dims
    _made: ndarray | None

    # -------------------------------------------------------------- making it

    def _array(self) -> Any:
        """The array: reads the mask, once."""
        if self._made is None:
            from .convert import from_numpy
            from .mapping.indexing import _read

            mask = _read(wrap(self._mask), "a selection by a boolean mask")
            self._made = from_numpy(values.to_host(self._full)[mask], owned=True)
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._array(), name)

    @property
    def dtype(self) -> np.dtype:
        """The dtype, which is known."""
        return self._full.shape.dtype if self._made is None else self._made._shape.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions, which is known."""
        return len(self._full.shape.dims) - len(self._mask.shape.dims) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions: a read."""
        return tuple(self._array().shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made: np.ndarray = self._array().__array__(dtype, copy)
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter(self._array())

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array()[key] = value

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'numpy.ndarray'")

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return self._array().__reduce__()

    def copy(self, order: str = "C") -> Any:
        """A copy; not made yet either."""
        return make(self._full, self._mask) if self._made is None else self._made.copy()

    # -------------------------------------------------------------- what needs no shape

    def _reduce(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis", args[0] if args else None)
        if self._made is not None or len(args) > 1 or set(kwargs) - {"axis", "ddof", "dtype"} or axis not in (None, 0, -self.ndim):
            return getattr(self._array(), name)(*args, **kwargs)
        lead = len(self._mask.shape.dims)
        full, mask = wrap(self._full), wrap(self._mask)
        wide = mask.reshape(mask.shape + (1,) * (full.ndim - lead))
        rest = {k: v for k, v in kwargs.items() if k != "axis"}
        return getattr(full, name)(axis=None if axis is None else tuple(range(lead)), where=wide, **rest)

    def _apply(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """An elementwise function of selections by one mask and of numbers, on all elements; None if it is more than that."""
        whole = []
        for x in inputs:
            if type(x) is selection:
                if x._made is not None or x._mask is not self._mask or x._full.shape.dims != self._full.shape.dims:
                    return None
                whole.append(wrap(x._full))
            elif type(x) in (int, float, complex, bool, scalar) or isinstance(x, np.generic):
                whole.append(x)
            else:
                return None
        result = ufunc(*whole)
        return make(result._get(), self._mask) if type(result) is ndarray and result._shape.dims == self._full.shape.dims else None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and ufunc.nout == 1 and ufunc.signature is None:
            found = self._apply(ufunc, inputs)
            if found is not None:
                return found
        return getattr(ufunc, method)(*[plain(x) for x in inputs], **{k: plain(v) for k, v in kwargs.items()})

    def __array_function__(self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = _BY_FUNCTION.get(function)
        if name is not None and args and type(args[0]) is selection:
            return args[0]._reduce(name, args[1:], kwargs)
        return function(*[plain(x) for x in args], **{k: plain(v) for k, v in kwargs.items()})


def make(full: Value, mask: Value) -> selection:
    """The elements of a value where a mask of its leading dims holds."""
    made: selection = _new(selection)
    made._full = full
    made._mask = mask
    made._made = None
    return made


def plain(x: Any) -> Any:
    """Selections, also in lists and tuples, as the arrays that they are."""
    if type(x) is selection:
        return x._array()
    if type(x) in (list, tuple):
        return type(x)([plain(v) for v in x])
    return x


def _operator(name: str, ufunc: np.ufunc, swapped: bool) -> Callable[..., Any]:
    def method(self: selection, other: Any) -> Any:
        if self._made is None:
            found = self._apply(ufunc, (other, self) if swapped else (self, other))
            if found is not None:
                return found
        return getattr(self._array(), name)(plain(other))

    return method


def _in_place(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: selection, other: Any) -> Any:
        if self._made is None:
            found = self._apply(ufunc, (self, other))
            if found is not None and found._full.shape.dtype == self._full.shape.dtype:
                self._full = found._full
                return self
        array = self._array()
        getattr(array, name)(plain(other))
        return self

    return method


def install() -> None:
    """Give the class the operators and the other special methods of arrays."""
    from . import operators

    _ALSO_ARRAYS.add(selection)
    for name in _REDUCTIONS:
        setattr(selection, name, lambda self, *a, _name=name, **k: self._reduce(_name, a, k))
    for name, ufunc in {**operators._BINARY, **operators._COMPARE}.items():
        setattr(selection, f"__{name}__", _operator(f"__{name}__", ufunc, swapped=False))
        if name in operators._BINARY:
            setattr(selection, f"__r{name}__", _operator(f"__r{name}__", ufunc, swapped=True))
            if name != "divmod":
                setattr(selection, f"__i{name}__", _in_place(f"__i{name}__", ufunc))
    for name, ufunc in operators._UNARY.items():
        setattr(selection, f"__{name}__", lambda self, _u=ufunc: self.__array_ufunc__(_u, "__call__", self))
    for name in ("getitem", "len", "bool", "int", "float", "complex", "index", "repr", "str", "format", "contains"):
        special = f"__{name}__"
        setattr(selection, special, lambda self, *a, _name=special: getattr(self._array(), _name)(*a))
