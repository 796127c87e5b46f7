"""Watching the calls that a library runs as they come: where a script that is known ends, and where a loop begins.

Owns: `Watching`, the log of calls and what is found in it.  It says what it found by calling `_script_ended` and `_loop_begins`, which a
subclass has.  May import `scripts`, `cutting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .cutting import find_period
from .scripts import Script, Scripts, Stack, loop_start, stack

_clock = time.perf_counter

# A trace that the library runs in less than this is not worth deferring: a barrier costs about as much.
SHORTEST_SECONDS = 100e-6
# Bodies of a loop are joined in one trace until it takes so long natively, or has so many calls: compilers take far more than proportional
# time for long programs.
TRACE_SECONDS = 1e-3
TRACE_CALLS = 64
# From so many calls on a loop is looked for.
SHORTEST_LOG = 32
# So many calls without a repetition, and watching pauses for as many, then for twice as many, and so on.
LONGEST_LOG = 4096
LONGEST_PAUSE = 1 << 22
# A loop is no longer looked for when its rounds have so often not been what was learned of them: they read other parts of an array each,
# or the host reads between them.  What comes between two reads may still repeat as a whole.
MOST_DOUBTS = 2
# A loop whose rounds have been followed is looked for whatever comes: it ends somewhere.
SURE = 1 << 30
_MOST_BODIES = 1000


class Watching:
    """The calls since the last trace.

    Attributes:
        on: whether calls must ask: the frontend is not simply following.
        immediate: whether the library runs each call as it comes.
        note: to be told of each call after it was made, with a number for the function and its result; or None.
        skip: what comes is not looked at until so many calls have been told of; a frontend may count down to one by itself instead.
    """

    # A frontend's extension reads these in place.
    __slots__ = ("__dict__", "immediate", "note", "on", "skip")

    on: bool
    immediate: bool
    note: Callable[[int, Any], None] | None
    skip: int

    def __init__(self) -> None:
        self.on = self.immediate = False
        self.note = None
        self.skip = 0
        self._scripts = Scripts()
        self._log: list[int] = []
        self._check_at = self._checked = SHORTEST_LOG // 2
        self._checked_at = self._since = _clock()
        self._position = 0  # in the script or cycle
        self._cycle: tuple[int, ...] = ()
        self._cycle_seconds = 0.0
        self._stacks: list[Stack] = []
        self._doubts: dict[tuple[int, ...], int] = {}  # how often a loop's body, sorted, turned out not to be what repeats
        self._pause = LONGEST_LOG

    def _script_ended(self, script: Script) -> None:
        """The latest calls are a script that has been learned."""
        raise NotImplementedError

    def _loop_begins(self) -> None:
        """The body of the loop whose calls are `_cycle` begins."""
        raise NotImplementedError

    def _unplace(self) -> None:
        """The log no longer begins where the trace did."""
        raise NotImplementedError

    def _watch(self) -> None:
        """Begin a log."""
        self._log = []
        self._position = self.skip = 0
        self._check_at = self._checked = SHORTEST_LOG // 2
        self._checked_at = self._since = _clock()
        self.note = self._note_new

    def _note_new(self, number: int, result: Any) -> None:
        """Immediate, and nothing is known of what comes."""
        log = self._log
        log.append(hash((number, getattr(result, "shape", None))))
        ended = self._scripts.ended(log)
        if ended is not None:
            self._script_ended(ended)
        elif len(log) >= self._check_at:
            self._search()

    def _note_cycle(self, number: int, result: Any) -> None:
        """Immediate, in a loop whose body is known: until it begins again."""
        if self._in_cycle(number, result) and self._position == len(self._cycle):
            self._loop_begins()

    def _note_observed(self, number: int, result: Any) -> None:
        """Immediate, in a loop: for one round, where in the user's program its calls are made."""
        if not self._in_cycle(number, result):
            return
        self._stacks.append(stack())
        cycle = self._cycle
        if self._position == len(cycle):
            first = loop_start(self._stacks)
            self._stacks = []
            self._cycle = cycle[first:] + cycle[:first]
            self._position = len(cycle) - first
            if first:
                self.note = self._note_cycle
            else:
                self._loop_begins()

    def _in_cycle(self, number: int, result: Any) -> bool:
        call = hash((number, getattr(result, "shape", None)))
        self._log.append(call)
        if self._cycle[self._position] == call:
            self._position += 1
            return True
        self._check_at = self._checked = len(self._log) + SHORTEST_LOG
        self._checked_at = _clock()
        self.note = self._note_new
        return False

    def _note_paused(self, number: int, result: Any) -> None:
        """Immediate, and nothing has repeated for long."""
        self.skip -= 1
        if self.skip <= 0:
            self._watch()

    def _pause_for(self, calls: int) -> None:
        self._log = []
        self._unplace()
        self.skip = calls
        self.note = self._note_paused

    def _doubt(self, body: tuple[int, ...] | None) -> None:
        """The rounds of a loop were not what was learned of them."""
        if body is not None:
            if len(self._doubts) > _MOST_BODIES:
                self._doubts.clear()
            self._doubts[body] = self._doubts.get(body, 0) + 1

    def _search(self) -> None:
        """Look for a loop in the log."""
        log = self._log
        size = len(log)
        earlier, since = self._checked, self._checked_at
        self._checked, self._checked_at = size, _clock()
        found = find_period(log) if size >= SHORTEST_LOG else None
        if found is not None and self._doubts.get(tuple(sorted(log[-found[0] :])), 0) >= MOST_DOUBTS:
            found = None
        if found is None:
            self._check_at = 2 * size
            if size >= LONGEST_LOG:
                self._pause_for(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return
        period = found[0]
        self._cycle = tuple(log[-period:])
        # The latest calls count, as the first ones were made with cold caches.
        self._cycle_seconds = (self._checked_at - since) / max(size - earlier, 1) * period
        if self._cycle_seconds * max(1, TRACE_CALLS // period) < SHORTEST_SECONDS:  # such a loop is never worth deferring
            self._pause_for(8 * LONGEST_LOG)
            return
        self._position = 0
        self._pause = LONGEST_LOG
        self.note = self._note_observed
