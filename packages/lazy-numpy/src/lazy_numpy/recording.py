"""The state that decides whether calls are recorded or run by NumPy as they come, and the recorder that asks it.

Owns: `ArrayValue`, `mode`, `record`, `from_array`, `from_host`, `settings`, `source`.  May import lazy_core.
"""

from __future__ import annotations

from typing import Any

from lazy_core import values
from lazy_core.repeats import Miss, Repeats
from lazy_core.values import Value, ValueSource

__all__ = ["ArrayValue", "Miss", "Settings", "from_array", "from_host", "mode", "record", "settings", "source"]


class Settings:
    """What may be changed for tests.

    Attributes:
        small: arrays of at most so many elements are NumPy's own where a user's module makes them.
        result: so are, immediately, results of at most so many: NumPy takes little longer for one of them than Python takes to wrap it.
        part: so are, immediately, views of a part of an array that has at most so many elements.
    """

    __slots__ = ("part", "result", "small")

    def __init__(self) -> None:
        self.small = 128
        self.result = 4096
        self.part = 4096


class ArrayValue(Value):
    """What arrays of NumPy hold: how NumPy rounds is a part of what it promises, so their source is exact."""

    __slots__ = ()


settings = Settings()
source = ValueSource(ArrayValue, exact=True)
mode = Repeats()
record = values.recorder(mode, ArrayValue)


def from_host(array: Any, copy: bool = True) -> Value:
    """See `values.from_host`."""
    return values.from_host(array, copy, ArrayValue)


def from_array(array: Any) -> Value:
    """See `values.from_array`."""
    return values.from_array(array, ArrayValue)
