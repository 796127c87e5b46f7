"""What the mapping's families share: the table of NumPy functions, recorded functions, and argument handling.

Owns: `FUNCTIONS`, `lowers`, `recorded`.  May import `tensor`, `convert`, `fallback`, lazy_core.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from lazy_core import values
from lazy_core.ir import Attrs, attrs
from lazy_core.ops.registry import Composite

from .. import convert
from ..recording import from_host, record
from ..selection import selection
from ..tensor import ndarray, scalar, wrap

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
NO_VALUE = np._NoValue  # type: ignore[attr-defined]


def lowers(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an implementation, with NumPy's own signature, of these NumPy functions."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for f in functions:
            FUNCTIONS[f] = implementation
        return implementation

    return register


class Recorded:
    """A composite called with values by position and static attributes by keyword; the attributes are interned once."""

    __slots__ = ("_attrs", "composite")

    def __init__(self, composite: Composite) -> None:
        self.composite = composite
        self._attrs: dict[Any, Attrs] = {}

    def __call__(self, *inputs: Any, **static: Any) -> Any:
        """Record; the result is a value, or a tuple of them."""
        key = tuple(static.items())
        found = self._attrs.get(key)
        if found is None:
            found = self._attrs[key] = attrs(**static)
        return record(self.composite, inputs, found)


def recorded(name: str) -> Callable[[Callable[..., Any]], Recorded]:
    """Make a function of expressions one recorded call."""
    return lambda fn: Recorded(Composite(name, fn))


def op(core_op: Any) -> Recorded:
    """A core operation called in the same way."""
    return Recorded(core_op)


def array(x: Any) -> ndarray:
    """x as a lazy array: itself, or a capture of its contents.

    Raises:
        NotLowered: its dtype cannot be lazy.
    """
    if type(x) is ndarray:
        return x
    if type(x) is scalar:
        return wrap(x._value)
    if type(x) is selection:
        made: ndarray = x._array()
        return made
    if type(x) in (int, float, complex):
        x = np.asarray(x)
    value = convert.operand(x)[0]
    return wrap(value if isinstance(value, values.Value) else from_host(np.asarray(x)))


def axis_index(axis: Any, ndim: int) -> int:
    """An axis counted from the front; AxisError if there is none."""
    return int(normalize_axis_index(operator.index(axis), ndim))


def axes_tuple(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(int(a) for a in normalize_axis_tuple(axis, ndim))


def dims_of(shape: Any) -> tuple[int, ...]:
    """A shape argument as a tuple."""
    if isinstance(shape, Iterable):
        return tuple([operator.index(n) for n in shape])
    return (operator.index(shape),)


def store(result: Any, out: Any) -> Any:
    """Write a result into `out` where one is given."""
    if out is None or out is NO_VALUE:
        return result
    if isinstance(out, tuple):
        out = out[0]
    if tuple(out.shape) != tuple(np.shape(result)):
        raise ValueError(f"output parameter has shape {tuple(out.shape)}, not {tuple(np.shape(result))} as the result")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(f"Cannot cast array data from {result.dtype!r} to {out.dtype!r} according to the rule 'same_kind'")
    out[...] = result
    return out
