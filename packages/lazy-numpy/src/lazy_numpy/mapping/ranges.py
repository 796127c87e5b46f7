"""What is known of the integers in a value, so that an index need not be read to be checked.

Owns: a weak table from values to (least, greatest): of arrays that came from the host, and of operations whose results
are bounded by nature (argmin, argsort, arange). May import lazy_core only.
"""

from __future__ import annotations

import weakref

from lazy_core.values import Value

_KNOWN: weakref.WeakKeyDictionary[Value, tuple[int, int]] = weakref.WeakKeyDictionary()


def note(value: Value, low: int, high: int) -> None:
    """Say that every element of a value lies between two numbers."""
    _KNOWN[value] = (low, high)


def copy(source: Value, target: Value) -> None:
    """Say that a value's elements are among those of another."""
    found = _KNOWN.get(source)
    if found is not None:
        _KNOWN[target] = found


def known(value: Value) -> tuple[int, int] | None:
    """The bounds of a value's elements, if known."""
    return _KNOWN.get(value)
