"""Where a trace that nobody reads is cut: barriers that place themselves.

Owns: finding the period of the recorded sequence and choosing a boundary.  A loop without reads would otherwise grow one
trace without bound, and cutting it at a fixed length would cut at another phase each time and compile another program each
time.  Pure logic: it sees the sequence of recorded targets and how many values are live, and says when to cut.  The same
program is cut at the same places on every run.  Imports `config` only.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .config import config

# A body shorter than this is repeated within one program, so that a barrier's fixed cost (some 20 us) is small beside recording.
SHORTEST_PROGRAM = 200
# How many whole traces are known by what they record, at most.
_MOST_WHOLE = 256
# How many operations to wait, at least, before looking whether an interrupted loop has resumed.
_PATIENCE = 16


def find_period(log: Sequence[Hashable]) -> tuple[int, int] | None:
    """The smallest period of the end of a sequence, if the end repeats at least three times and is at least half of it.

    Returns:
        (period, start): from index `start` on, each element equals the one `period` later; or None.
    """
    size = len(log)
    backwards = list(reversed(log))
    matches = [0] * size  # matches[p]: how far backwards[p:] agrees with backwards (the Z function)
    left = right = 0
    for p in range(1, size // 3 + 1):
        agree = min(right - p, matches[p - left]) if p < right else 0
        while p + agree < size and backwards[agree] == backwards[p + agree]:
            agree += 1
        if p + agree > right:
            left, right = p, p + agree
        matches[p] = agree
        if agree + p >= max(3 * p, size // 2):
            return p, size - agree - p
    return None


class Cutter:
    """Decides, for one source of values, when a growing trace is cut.

    The owner calls `due` whenever its log has reached `cut_at` entries, and `restart` after every barrier.

    Attributes:
        cut_at: the length of the log at which to ask again.
        period: the length of the loop body in operations, once one is known.
    """

    def __init__(self) -> None:
        self.period: int | None = None
        self._pattern: list[Hashable] = []
        self._live: list[int] = []  # live counts of one period, while a boundary is being chosen
        self._observed_from = 0
        self._cut_here = False
        self._whole: dict[int, set[tuple[Hashable, ...]]] = {}  # by length
        self.cut_at = config.cut_after

    def restart(self) -> None:
        """A barrier took place: the log is empty again."""
        self._live = []
        self._cut_here = False
        self.cut_at = self._program_length() if self.period else min(config.cut_after, config.max_trace)
        if self._whole:
            self.cut_at = min(self.cut_at, *self._whole)

    def learn(self, log: Sequence[Hashable]) -> None:
        """A whole trace, known to be one round of a loop: from now on such a trace is cut where it ends."""
        if sum(map(len, self._whole.values())) >= _MOST_WHOLE:
            self._whole.clear()
        self._whole.setdefault(len(log), set()).add(tuple(log))

    def due(self, log: Sequence[Hashable], live: int) -> bool:
        """Whether to cut now, given the log and how many values are live; if not, `cut_at` says when to ask again."""
        size = len(log)
        if self._cut_here or size >= config.max_trace:
            return True
        if self._live:
            return self._observe(size, live)
        if self._whole:
            if size in self._whole and tuple(log) in self._whole[size]:
                return True
            longer = [n for n in self._whole if n > size]
            otherwise = self._program_length() if self.period else min(config.cut_after, config.max_trace)
            if longer and min(longer) < otherwise:
                self.cut_at = min(longer)
                return False
            if size < otherwise:
                self.cut_at = otherwise
                return False
        if self.period:
            if size < self._program_length():
                self.cut_at = self._program_length()
                return False
            boundary = self._boundary(log)
            if boundary is not None:
                self.cut_at = min(boundary, max(size, config.max_trace))
                return boundary <= size
            self.period = None
        found = find_period(log)
        if found is None:
            self.cut_at = min(max(2 * size, config.cut_after), config.max_trace)
            return False
        self.period = found[0]
        self._pattern = list(log[size - self.period :])
        self._observed_from = size
        self._live = [live]
        self.cut_at = size + 1
        return size + 1 > config.max_trace

    def _observe(self, size: int, live: int) -> bool:
        """Count live values for one period, then cut where they are fewest: between two rounds of the loop."""
        assert self.period is not None
        self._live.append(live)
        if len(self._live) < self.period:
            self.cut_at = size + 1
            return False
        best = min(range(self.period), key=lambda k: (self._live[k], k))
        self.cut_at = self._observed_from + best + self.period
        self._pattern = self._pattern[best:] + self._pattern[:best]
        self._live = []
        self._cut_here = True
        return self.cut_at <= size

    def _program_length(self) -> int:
        assert self.period is not None
        return self.period * max(1, -(-SHORTEST_PROGRAM // self.period))

    def _boundary(self, log: Sequence[Hashable]) -> int | None:
        """The length at which to cut a log that ends in the known loop, or to look again; None if the loop is over.

        A loop that was interrupted (by what surrounds an inner loop, a logging line) is cut at a fixed distance from where it
        resumed. Were the cut as far from the last one as always, it would fall at another round each time, and each straddling
        program would be a new one.
        """
        period, size = self.period, len(log)
        assert period is not None
        run = 0
        while run < size - period and log[size - 1 - run] == log[size - 1 - run - period]:
            run += 1
        run += period
        ahead = self._to_boundary(log[size - period :]) if run >= 2 * period or run == size else None
        if ahead is None:
            return size + max(period, _PATIENCE) if size < max(config.cut_after, 2 * self._program_length()) else None
        if run == size:
            return size + ahead
        resumed = size - run + period
        first = resumed + (size + ahead - resumed) % period
        length = self._program_length()
        return first + max(0, -(-(size - first) // length)) * length

    def _to_boundary(self, latest: Sequence[Hashable]) -> int | None:
        """How many operations after these, one period of them, the loop's body ends; None if they are not the known loop."""
        period, latest = len(self._pattern), list(latest)
        for done in range(period):  # operations since the last boundary
            if self._pattern[:done] == latest[period - done :] and self._pattern[done:] == latest[: period - done]:
                return (period - done) % period
        return None
