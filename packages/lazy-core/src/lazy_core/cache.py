"""The executable cache, exact at every level.

Owns: three keys for one program.  The *trace key* is the tuple of live output expressions (identity; one lookup in the steady state).  On a miss the
graph is renumbered from its outputs: the *structural key* joins equal graphs that were recorded in another order, in another slot or by another
frontend, without lowering them.  Last, the *canonical key* is the StableHLO text without locations.  No hash decides which program runs.
May import `lowering`, `backend`, `config`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .backend import Executable
from .config import config

T = TypeVar("T")


class Lru(Generic[T]):
    """A table that forgets what was used least recently, once it holds more than `config.max_executables` entries."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """The entry of this key, now the most recently used, or None."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Hashable, entry: T) -> None:
        """Add an entry; the least recently used one goes if there are too many."""
        self._entries[key] = entry
        while len(self._entries) > config.max_executables:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class Plan:
    """How a trace key runs: which buffers go in, what runs, and where each output goes.

    Attributes:
        executable: the compiled program, or None when every live value is a leaf.
        arguments: (source, slot) of each array argument.
        scalars: for each packed vector the kind's number and the (source, slot) of each element.
        outputs: for each source, for each live value: an output's number, or the (source, slot) of the leaf that it is.
        operations: how many operations the program has.
        smallest: the number of the smallest output.
    """

    executable: Executable | None
    arguments: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    outputs: tuple[tuple[Any, ...], ...]
    operations: int
    smallest: int


class Cache:
    """Plans by trace key, executables by structural key and by StableHLO text."""

    def __init__(self) -> None:
        self.plans: Lru[Plan] = Lru()
        self.structures: Lru[Executable] = Lru()
        self.programs: Lru[Executable] = Lru()

    def clear(self) -> None:
        """Forget every plan and executable: what follows is compiled anew."""
        self.plans.clear()
        self.structures.clear()
        self.programs.clear()


cache = Cache()
