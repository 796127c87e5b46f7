"""Results in the memory of temporaries: what NumPy does in `a + b + c` with large arrays, done for lazy ones.

Owns: `is_temporary_call` and `TEMPORARY`, by which an operator tells that nobody but the expression being evaluated holds an operand; and
`fits`, whether the result is like it.  NumPy's own reason applies: the memory is in the cache, and fresh memory costs more to get than the
arithmetic.  May import `tensor`, NumPy.
"""

from __future__ import annotations

import dis
import sys
from sys import getrefcount
from typing import Any

import numpy as np

from .tensor import ndarray

# From so many bytes on; NumPy begins there too.
LEAST_BYTES = 1 << 18

_BINARY = frozenset([dis.opmap[name] for name in ("BINARY_OP", "BINARY_OP_INPLACE_ADD_UNICODE") if name in dis.opmap])
_codes: dict[int, tuple[Any, bytes]] = {}
_KEPT = frozenset((np.add, np.subtract, np.multiply))


class _Probe:
    """Counts the references to an operand as its operator sees them."""

    __slots__ = ()
    counts: list[int] = []  # noqa: RUF012

    def __add__(self, other: Any) -> Any:
        _Probe.counts.append(getrefcount(self))
        return self


def _references() -> int:
    """How many references an operator sees to an operand that only the expression holds; 0 where that cannot be told."""
    held = _Probe()
    _ = _Probe() + 1
    _ = held + 1
    temporary, variable = _Probe.counts
    return temporary if temporary < variable else 0


TEMPORARY = _references()


def called_by_expression(depth: int = 2) -> bool:
    """Whether a Python expression calls the operator, and not C code, which may go on to use what it holds alone."""
    frame = sys._getframe(depth)
    code = frame.f_code
    known = _codes.get(id(code))
    if known is None:
        if len(_codes) > 2000:
            _codes.clear()
        known = _codes[id(code)] = (code, code.co_code)
    return known[1][frame.f_lasti] in _BINARY


def fits(ufunc: np.ufunc, a: ndarray, x: np.ndarray, y: Any) -> bool:
    """Whether a result has the shape and dtype of an operand, whose memory nobody else shows.

    Args:
        ufunc: what computes it.
        a: the lazy operand.
        x: its memory.
        y: the other operand, as NumPy takes it.
    """
    if a._cell is not None or getrefcount(x) > _MEMORY or not x.flags.writeable or not x.flags.forc or a._has_value():
        return False
    kind = x.dtype.kind
    if not (ufunc in _KEPT and kind in "iufc") and not (ufunc is np.true_divide and kind in "fc"):
        return False
    if type(y) is np.ndarray:
        return y.dtype == x.dtype and y.shape == x.shape
    return (type(y) is float and kind in "fc") or (type(y) is int and kind != "u")


def _memory() -> int:
    """The references that `fits` sees to memory which only its array and its caller hold."""
    counts: list[int] = []

    def count(a: Any, x: Any) -> None:
        counts.append(getrefcount(x))

    def caller(a: Any) -> None:
        x = a[0]
        count(a, x)

    caller([np.empty(1)])
    return counts[0]


_MEMORY = _memory()
