"""The standard's functions: which core operations they are.

Owns: `NAMESPACE`, and what happens to functions without a rule.  One call of the library is one `values.record`, in the steady state one
dictionary lookup: where it takes several core operations, or casts, they are a composite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_strict as library
import numpy as np

from lazy_core import events, ir, ops, values
from lazy_core.ops import REGISTRY, composite

from . import dtypes
from .array import Array

NAMESPACE: dict[str, Any] = {"Array": Array, "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None}
_NUMBERS = (bool, int, float, complex)


def _function(fn: Callable[..., Any]) -> Callable[..., Any]:
    NAMESPACE[fn.__name__] = fn
    return fn


# ------------------------------------------------------------------ recording


@composite("mylib.cast")
def _cast(*exprs: Any, op: str, dtype: np.dtype, attributes: tuple[tuple[str, Any], ...]) -> Any:
    """A core operation on operands that are cast to one dtype first: one entry of the table however many casts it takes."""
    cast = [e if e.shape.dtype == dtype else ops.convert(e, dtype=dtype) for e in exprs]
    return REGISTRY[op](*cast, **dict(attributes))


def record(op: str, *operands: Any, dtype: np.dtype, **attributes: Any) -> Array:
    """Record a core operation on arrays and Python numbers, computed in a dtype."""
    inputs = tuple([x._value if isinstance(x, Array) else ir.const(x, dtype) for x in operands])
    if all(i.shape.dtype == dtype for i in inputs):
        return Array(values.record(REGISTRY[op], inputs, ir.attrs(**{**REGISTRY[op].defaults, **attributes})))
    return Array(values.record(_cast, inputs, ir.attrs(op=op, dtype=dtype, attributes=tuple(sorted(attributes.items())))))


def _arrays(name: str, *operands: Any) -> None:
    for x in operands:
        if not isinstance(x, Array) and type(x) not in _NUMBERS:
            raise TypeError(f"{name} takes arrays of this namespace and Python numbers, not {type(x).__name__}: use asarray")
    if not any(isinstance(x, Array) for x in operands):
        raise TypeError(f"{name} takes at least one array")


def _elementwise(name: str, op: str, kinds: str) -> None:
    def function(*operands: Any) -> Array:
        _arrays(name, *operands)
        arrays = [x._value.shape.dtype for x in operands if isinstance(x, Array)]
        dtype = dtypes.common(name, arrays, [x for x in operands if not isinstance(x, Array)], kinds)
        return record(op, *operands, dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The standard's {name}, recorded as the core operation {op}."
    _function(function)


_SAME_NAMES = {
    dtypes.NUMERIC: "square pow conj real",
    dtypes.REAL: "floor ceil trunc maximum minimum remainder signbit",
    dtypes.FLOATING: "exp expm1 log log2 log10 log1p sqrt reciprocal sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh",
    dtypes.REAL_FLOATING: "atan2 hypot copysign logaddexp nextafter",
    dtypes.NUMERIC + "b": "isnan isinf isfinite",
    dtypes.BOOLEAN: "logical_not logical_and logical_or logical_xor",
    dtypes.INTEGER + "b": "bitwise_and bitwise_or bitwise_xor",
    "c": "imag",
}
_OTHER_NAMES = {
    "add": ("add", dtypes.NUMERIC), "subtract": ("sub", dtypes.NUMERIC), "multiply": ("mul", dtypes.NUMERIC),
    "abs": ("abs", dtypes.NUMERIC), "negative": ("neg", dtypes.NUMERIC), "positive": ("identity", dtypes.NUMERIC),
    "divide": ("div", dtypes.FLOATING), "floor_divide": ("floor_div", dtypes.REAL),
    "bitwise_invert": ("bitwise_not", dtypes.INTEGER + "b"), "equal": ("eq", dtypes.ANY), "not_equal": ("ne", dtypes.ANY),
    "less": ("lt", dtypes.REAL), "less_equal": ("le", dtypes.REAL), "greater": ("gt", dtypes.REAL), "greater_equal": ("ge", dtypes.REAL),
}  # fmt: skip
for _kinds, _names in _SAME_NAMES.items():
    for _name in _names.split():
        _elementwise(_name, _name, _kinds)
for _name, (_op, _kinds) in _OTHER_NAMES.items():
    _elementwise(_name, _op, _kinds)


@_function
def where(condition: Array, x: Any, y: Any) -> Array:
    """Elements of x where the condition holds, of y elsewhere."""
    _arrays("where", x, y)
    found = [v._value.shape.dtype for v in (x, y) if isinstance(v, Array)]
    dtype = dtypes.common("where", found, [v for v in (x, y) if not isinstance(v, Array)], dtypes.ANY)
    return Array(ops.where(condition._value, *[_in_dtype(v, dtype) for v in (x, y)]))


def _in_dtype(x: Any, dtype: np.dtype) -> Any:
    if not isinstance(x, Array):
        return ir.const(x, dtype).value
    return x._value if x._value.shape.dtype == dtype else ops.convert(x._value, dtype=dtype)


# ------------------------------------------------------------------ reductions


def _axes(x: Array, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if isinstance(axis, tuple) else (axis,)


def _reduction(name: str, kinds: str, widens: bool = False) -> None:
    def function(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        kind = x._value.shape.dtype
        if kind.kind not in kinds:
            raise TypeError(f"{name}({kind.name}): the standard has no {name} of {kind.name}")
        if dtype is not None and not widens:
            raise TypeError(f"{name} takes no dtype")
        wide = np.dtype("uint64" if kind.kind == "u" else "int64") if widens and kind.kind in "iu" else kind
        wanted = wide if dtype is None else dtypes.to_numpy(dtype)
        return record(name, x, dtype=wanted, axes=_axes(x, axis), keepdims=keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The standard's {name}, recorded as the core operation {name}."
    _function(function)


for _name, _kinds, _widens in (
    ("sum", dtypes.NUMERIC, True), ("prod", dtypes.NUMERIC, True), ("mean", dtypes.FLOATING, False), ("max", dtypes.REAL, False),
    ("min", dtypes.REAL, False), ("any", dtypes.ANY, False), ("all", dtypes.ANY, False),
):  # fmt: skip
    _reduction(_name, _kinds, _widens)


# ------------------------------------------------------------------ shapes and products


@_function
def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The elements in other dimensions; one of them may be -1."""
    known = math.prod(d for d in shape if d != -1)
    dims = tuple(x.size // max(known, 1) if d == -1 else d for d in shape)
    return Array(ops.reshape(x._value, dims=dims))


@_function
def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The dimensions in another order."""
    return Array(ops.transpose(x._value, perm=tuple(axes)))


@_function
def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """A dimension of size 1 more."""
    return Array(ops.expand_dims(x._value, axes=(axis,)))


@_function
def squeeze(x: Array, /, axis: Any) -> Array:
    """Dimensions of size 1 less."""
    return Array(ops.squeeze(x._value, axes=_axes(x, axis)))


@_function
def flip(x: Array, /, *, axis: Any = None) -> Array:
    """The elements in the opposite order."""
    return Array(ops.reverse(x._value, axes=_axes(x, axis)))


@_function
def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """The array repeated along new dimensions and those of size 1."""
    return Array(ops.broadcast_to(x._value, dims=tuple(shape)))


def _joined(name: str, arrays: Any, axis: int) -> Array:
    dtype = dtypes.common(name, [x._value.shape.dtype for x in arrays], [], dtypes.ANY)
    return record(name, *arrays, dtype=dtype, axis=axis)


@_function
def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other."""
    if axis is None:
        return _joined("concatenate", [reshape(x, (-1,)) for x in arrays], 0)
    return _joined("concatenate", list(arrays), axis)


@_function
def stack(arrays: Any, /, *, axis: int = 0) -> Array:
    """Arrays along a new dimension."""
    return _joined("stack", list(arrays), axis)


@_function
def matmul(x1: Array, x2: Array, /) -> Array:
    """Products of matrices."""
    dtype = dtypes.common("matmul", [x1._value.shape.dtype, x2._value.shape.dtype], [], dtypes.NUMERIC)
    return record("matmul", x1, x2, dtype=dtype)


@_function
def astype(x: Array, dtype: Any, /, *, copy: bool = True) -> Array:
    """The elements in another dtype."""
    return Array(ops.convert(x._value, dtype=dtypes.to_numpy(dtype)))


# ------------------------------------------------------------------ making arrays


@_function
def asarray(obj: Any, /, *, dtype: Any = None, copy: bool | None = None) -> Array:
    """A lazy array with a copy of the data; Python floats become float64, as the library has them."""
    if isinstance(obj, Array):
        return obj if dtype is None else astype(obj, dtype)
    host = np.from_dlpack(obj) if isinstance(obj, type(library.asarray(0))) else np.asarray(obj)
    host = host if dtype is None else host.astype(dtypes.to_numpy(dtype))
    dtypes.from_numpy(host.dtype)
    return Array(values.from_host(host))


@_function
def full(shape: Any, fill_value: Any, *, dtype: Any = None) -> Array:
    """An array of one number."""
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = np.asarray(fill_value).dtype if dtype is None else dtypes.to_numpy(dtype)
    return Array(ops.broadcast_to(values.from_host(np.asarray(fill_value, kind)), dims=dims))


@_function
def zeros(shape: Any, *, dtype: Any = None) -> Array:
    """An array of zeros, of float64 by default."""
    return full(shape, 0.0, dtype=library.float64 if dtype is None else dtype)


@_function
def ones(shape: Any, *, dtype: Any = None) -> Array:
    """An array of ones, of float64 by default."""
    return full(shape, 1.0, dtype=library.float64 if dtype is None else dtype)


# ------------------------------------------------------------------ what we have no rule for


def without_a_rule(name: str) -> Any:
    """A function of the library that runs on the host, counted and named; other names of the library as they are.

    Raises:
        AttributeError: the library has no such name.
    """
    if name.startswith("_") or not hasattr(library, name):
        raise AttributeError(f"the array API standard has no {name}")
    found = getattr(library, name)
    if not callable(found) or isinstance(found, type):
        return found

    def function(*args: Any, **kwargs: Any) -> Any:
        events.fallback("mylib", name, "no rule for it yet")
        return _to_lazy(found(*[_to_library(a) for a in args], **{k: _to_library(v) for k, v in kwargs.items()}))

    function.__name__ = name
    return function


def _to_library(x: Any) -> Any:
    if isinstance(x, Array):
        return library.asarray(x.numpy())
    return type(x)([_to_library(v) for v in x]) if type(x) in (list, tuple) else x


def _to_lazy(x: Any) -> Any:
    if hasattr(x, "__array_namespace__"):
        return asarray(x)
    if isinstance(x, tuple):
        parts = [_to_lazy(v) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return [_to_lazy(v) for v in x] if isinstance(x, list) else x
