"""The executable cache, exact at every level.

Owns: three keys for one program.  The *trace key* is the tuple of live output expressions (identity; one lookup in the
steady state).  On a miss the graph is renumbered from its outputs: the *structural key* joins equal graphs that were
recorded in another order, in another slot or by another frontend, without lowering them.  Last, the *canonical key* is the
StableHLO text without locations.  No hash decides which program runs. May import `lowering`, `backend`, `config`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .backend import Executable
from .config import config
from .ir import Expr
from .lowering import Graph

T = TypeVar("T")


_PLANS_PER_ROOT = 8


class Lru(Generic[T]):
    """A table of at most `config.max_executables` entries, which forgets what was used least recently."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()  # programs are also compiled in the background

    def get(self, key: Hashable) -> T | None:
        """The entry of this key, now the most recently used, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Hashable, entry: T) -> list[T]:
        """Add an entry; returns those that went: the one that had its key, and the least recently used if there are too many."""
        with self._lock:
            gone = [self._entries.pop(key)] if key in self._entries else []
            self._entries[key] = entry
            while len(self._entries) > config.max_executables:
                gone.append(self._entries.popitem(last=False)[1])
            return gone

    def entries(self) -> list[T]:
        """Every entry, least recently used first."""
        with self._lock:
            return list(self._entries.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


@dataclass
class Plan:
    """How a trace key runs: which buffers go in, what runs, and where each output goes.

    Attributes:
        executable: the compiled program, or None when every live value is a leaf.
        arguments: (source, slot) of each array argument.
        scalars: for each packed vector the kind's number and the (source, slot) of each element.
        outputs: for each source, for each live value: an output's number, or the (source, slot) of the leaf that it is.
        roots: the expression that each of the program's outputs is.
        operations: how many operations the program has.
        graph: what the program computes.
        kept: (source, slot) of leaves that are live values themselves.
        donated: (source, slot) of the arguments whose memory the program takes; it may run only while nobody else holds them.
        undonated: a variant without donation, once one was needed.
        runs: how often it ran.
        site: the user's line that recorded its last operation.
        read_site: the line whose host read first needed it.
        trial: how fast it runs on each tier, where that matters.
        free: positions of the arguments that nobody else held when the plan was made.
        wants_undonated: whether the variant without donation is being compiled in the background.
        turns: how often it ran while runs were shadowed.
    """

    executable: Executable | None
    arguments: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    outputs: tuple[tuple[Any, ...], ...]
    roots: tuple[Expr, ...]
    operations: int
    graph: Graph | None = None
    kept: frozenset[tuple[int, int]] = frozenset()
    donated: tuple[tuple[int, int], ...] = ()
    undonated: Executable | None = None
    runs: int = 0
    site: str | None = None
    read_site: str | None = None
    trial: Any = None
    free: tuple[int, ...] = ()
    wants_undonated: bool = False
    turns: int = 0


class Cache:
    """Plans by trace key, executables by structural key and by StableHLO text."""

    def __init__(self) -> None:
        self.plans: Lru[Plan] = Lru()
        self._by_root: dict[Expr, list[Plan]] = {}  # of the plans above only
        self.structures: Lru[dict[tuple[int, ...], Executable]] = Lru()  # by the positions of donated arguments
        self.programs: Lru[Executable] = Lru()

    def add_plan(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan under its trace key, and under each expression that it returns."""
        for gone in self.plans.put(key, plan):
            for root in gone.roots:
                others = [other for other in self._by_root.get(root, ()) if other is not gone]
                if others:
                    self._by_root[root] = others
                else:
                    self._by_root.pop(root, None)
        for root in plan.roots:
            self._by_root[root] = [*self._by_root.get(root, ())[1 - _PLANS_PER_ROOT :], plan]

    def plans_with(self, root: Expr) -> list[Plan]:
        """The latest plans that return an expression, oldest first."""
        return list(self._by_root.get(root, ()))

    def forget_plans(self) -> None:
        """Forget every plan: programs are looked for anew."""
        self.plans.clear()
        self._by_root.clear()

    def clear(self) -> None:
        """Forget every plan and executable: what follows is compiled anew."""
        self.forget_plans()
        self.structures.clear()
        self.programs.clear()


cache = Cache()
