"""The state that decides whether calls are recorded or run by NumPy as they come, and the recorder that asks it.

Owns: `mode`, `record`, `settings`.  May import lazy_core.
"""

from __future__ import annotations

from lazy_core import values
from lazy_core.repeats import Miss, Repeats

__all__ = ["Miss", "Settings", "mode", "record", "settings"]


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


settings = Settings()
values.source.exact = True  # how NumPy rounds is a part of what it promises

mode = Repeats()
record = values.recorder(mode)
