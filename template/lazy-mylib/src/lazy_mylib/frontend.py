"""What the core must know of the frontend (see `lazy_core.frontend.Frontend`).

Owns: `FRONTEND`, found through the entry point in pyproject.toml.  Its conformance table says how the library's users call each core
operation; the functions are written with the public API only, and run on the library's arrays and on ours.
"""

from __future__ import annotations

from typing import Any

import array_api_strict as library
import numpy as np

from . import dtypes, functions, programs
from .array import Array


def _call(name: str) -> Any:
    """A function of the standard, by the namespace of its first operand."""
    return lambda *arrays, **attributes: getattr(arrays[0].__array_namespace__(), name)(*arrays, **attributes)


def _of(x: Any) -> Any:
    return x.__array_namespace__()


_SAME_NAMES = """
    abs exp expm1 log log2 log10 log1p sqrt square reciprocal sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh floor ceil trunc
    isnan isinf isfinite signbit logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor conj real imag pow atan2
    hypot copysign logaddexp nextafter remainder maximum minimum where matmul
""".split()
CONFORMANCE: dict[str, Any] = {
    **{name: _call(name) for name in _SAME_NAMES},
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "floor_div": lambda x, y: x // y,
    "neg": lambda x: -x,
    "bitwise_not": lambda x: ~x,
    "identity": lambda x: +x,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "convert": lambda x, dtype: _of(x).astype(x, dtypes.from_numpy(dtype)),
    "sum": lambda x, axes, keepdims: _of(x).sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    "prod": lambda x, axes, keepdims: _of(x).prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    **{n: lambda x, axes, keepdims, n=n: getattr(_of(x), n)(x, axis=axes, keepdims=keepdims) for n in ("mean", "max", "min", "any", "all")},
    "reshape": lambda x, dims: _of(x).reshape(x, dims),
    "transpose": lambda x, perm: _of(x).permute_dims(x, perm),
    "broadcast_to": lambda x, dims: _of(x).broadcast_to(x, dims),
    "squeeze": lambda x, axes: _of(x).squeeze(x, axis=axes),
    "reverse": lambda x, axes: _of(x).flip(x, axis=axes),
    "concatenate": lambda *xs, axis: _of(xs[0]).concat(xs, axis=axis),
    "stack": lambda *xs, axis: _of(xs[0]).stack(xs, axis=axis),
    "slice": lambda x, starts, limits, strides: x[tuple(map(slice, starts, limits, strides))],
}


class MyLibFrontend:
    """The array API standard on the lazy core."""

    name = "mylib"
    library = "array_api_strict"
    conformance = CONFORMANCE
    programs = programs.PROGRAMS
    dtypes = tuple(np.dtype(name) for name in dtypes.NAMES)

    def from_numpy(self, array: np.ndarray) -> Array:
        """A lazy array with these contents."""
        return functions.asarray(array)

    def native(self, array: np.ndarray) -> Any:
        """The library's own array with these contents."""
        return library.asarray(np.array(array))

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """The contents of either kind of array."""
        return np.from_dlpack(tensor)

    def is_lazy(self, tensor: Any) -> bool:
        """Whether an array is recorded by this frontend."""
        return isinstance(tensor, Array)


FRONTEND = MyLibFrontend()
