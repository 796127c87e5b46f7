"""Between lazy arrays, NumPy arrays and core values.

Owns: every conversion in and out, and the small constructors that the mappings use.  May import `tensor`, `dtypes`, lazy_core.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazy_core import dump, values
from lazy_core.errors import DtypeError
from lazy_core.ir import const
from lazy_core.values import Value

from . import dtypes
from .hosting import wrap_host
from .recording import from_host, mode, settings
from .selection import selection
from .tensor import _ArrayType, ndarray, scalar, wrap, wrap_any

__all__ = [
    "adopt",
    "from_lazy",
    "from_numpy",
    "is_array",
    "is_lazy",
    "operand",
    "shared",
    "to_lazy",
    "to_numpy",
    "to_value",
    "wrap",
    "wrap_any",
]


def is_lazy(x: Any) -> bool:
    """Whether x is a lazy array or a lazy scalar."""
    kind = type(x)
    return kind is ndarray or kind is scalar or kind is selection or type(kind) is _ArrayType


def is_array(x: Any) -> bool:
    """Whether x is a lazy array."""
    kind = type(x)
    return kind is ndarray or kind is selection or type(kind) is _ArrayType


def from_numpy(array: np.ndarray, owned: bool = False) -> Any:
    """A lazy array with an array's contents; arrays of dtypes that cannot be lazy, and of subclasses, come back as they are.

    Args:
        array: a NumPy array.
        owned: nobody else will ever write to it, so that it need not be copied.
    """
    if type(array) is not np.ndarray or not dtypes.supports(array.dtype):
        return array
    if mode.tier != "compiled":
        return wrap_host(array if owned else array.copy())
    value = from_host(array, copy=not owned)
    if array.dtype.kind in "iu" and 0 < array.size <= 1 << 20:
        from .mapping import ranges  # indices from the host are checked once, here

        ranges.note(value, int(array.min()), int(array.max()))
    return wrap(value)


def adopt(array: Any, owned: bool = True) -> Any:
    """What a user's module gets of an array that NumPy made: a lazy one, unless it is small or cannot be lazy."""
    if type(array) is not np.ndarray or (array.size <= settings.small and mode.tier != "compiled"):
        return array
    return from_numpy(array, owned)


def shared(x: Any) -> Value | None:
    """The core's value of another frontend's lazy tensor; None for everything else, such as a tensor on another device."""
    value: Value | None = None if is_lazy(x) else dump.value_or_none(x)
    return value if value is not None and dtypes.supports(value.shape.dtype) else None


def from_lazy(x: Any) -> Any:
    """A lazy array with the contents that another frontend's lazy tensor has now: nothing is copied or computed, the trace goes on.

    Later writes to the tensor do not change the array, nor writes to the array the tensor. Gradients end here.

    Args:
        x: whatever has `__lazy_core_value__`, a value of the core, or a NumPy array (which is copied); dtype[*dims].

    Raises:
        TypeError: it is neither.
        DtypeError: NumPy has no such dtype.
    """
    value = from_host(x) if isinstance(x, (np.ndarray, np.generic)) and not is_lazy(x) else values.shared(x)
    if not dtypes.supports(value.shape.dtype):
        raise DtypeError(f"NumPy has no dtype for a value of {value.shape}; cast it in the library that made it")
    return wrap(value)


def to_lazy(x: Any) -> Value:
    """The core's value that a lazy array stands for now; nothing is copied or computed.

    Raises:
        TypeError: the argument is no lazy array.
    """
    value: Value = dump.value_of(x)
    return value


def to_numpy(x: Any) -> np.ndarray:
    """A NumPy array with the current contents, not to be written to; a host read where they are pending."""
    kind = type(x)
    if kind is ndarray or type(kind) is _ArrayType:
        array: np.ndarray = x._contents()
        return array
    if kind is scalar:
        return values.to_host(x._get())
    if kind is selection:
        return to_numpy(x._array())
    return np.asarray(x)


def to_value(x: Any, dtype: np.dtype | None = None) -> Any:
    """A value (or constant) for anything array-like.

    Raises:
        TypeError: its dtype cannot be lazy.
    """
    if type(x) is ndarray or type(x) is scalar:
        return x._get()
    if isinstance(x, np.generic) or (dtype is not None and type(x) in (bool, int, float, complex)):
        kind: Any = x.dtype if isinstance(x, np.generic) else dtype
        if dtypes.supports(kind):
            return const(x.item() if isinstance(x, np.generic) else x, kind)
    return operand(x)[0]


def operand(x: Any) -> tuple[Any, Any]:
    """A value or constant, and the dtype (or Python type, for a weak scalar) that promotion sees.

    Raises:
        fallback.NotLowered: the dtype cannot be lazy.
    """
    kind = type(x)
    if kind is ndarray or kind is scalar:
        return x._get(), x._shape.dtype
    if kind in dtypes.WEAK:
        return x, kind
    if kind is selection:
        return operand(x._array())
    if kind is bool:
        return const(x, dtypes.BOOL), dtypes.BOOL
    from .fallback import NotLowered

    if isinstance(x, np.generic):
        if not dtypes.supports(x.dtype):
            raise NotLowered(f"an operand of dtype {x.dtype}")
        return const(x.item(), x.dtype), x.dtype
    if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
        raise NotLowered(f"an operand of type {kind.__name__}")
    foreign = shared(x)
    if foreign is not None:
        return foreign, foreign.shape.dtype
    array = np.asarray(x)
    if not dtypes.supports(array.dtype):
        raise NotLowered(f"an operand of dtype {array.dtype}")
    return from_numpy(array, owned=not isinstance(x, np.ndarray))._get(), array.dtype


def dims_of(value: Any) -> tuple[int, ...]:
    """The dims of a value, a constant or a Python scalar."""
    shape = getattr(value, "shape", None)
    return shape.dims if isinstance(value, Value) or hasattr(shape, "dims") else ()
