"""Trials: both tiers timed on real runs of one trace, until one is known to be faster.

Owns: `Trial`, the times that it rests on, and when they suffice; the clock and the runs are its caller's. May import `summary`.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass, field

from .summary import TraceRow

# Looking a program up, collecting its arguments and handing them to the device takes about this long, whatever the program does.
DISPATCH_SECONDS = 60e-6
# The tiers are timed in blocks: what a tier ran on, such as a pool of threads that still spins, disturbs the other one for some
# milliseconds. So the first runs of a block do not count, for so long.
_WARM_RUNS = 2
_WARM_SECONDS = 0.03
# Then a block lasts until so many runs in a row were no faster than the fastest (a program's first dozen runs have buffers to find), or
# until so many seconds have passed.
_STEADY_RUNS = 5
_FASTER = 0.97
_BLOCK_RUNS, _BLOCK_SECONDS = 2, 0.5
# A round is the mean of so many in a row, or of as many as take so many seconds. One alone says little: a thread that is kept from the
# processor after it has handed a program over ends one round late, and finds the program finished in the next, which is then too short.
_ROUNDS, _ROUNDS_SECONDS = 8, 0.02
# A block of compiled runs, then one of native runs; on and on until one tier is so many times faster, or so many blocks of each were timed.
# Shared machines change their speed by half from one second to the next: an LSTM's step in torch took 14.8 ms natively and 22.6 compiled in
# a block each, but 21.0 in eager torch and 19.5 compiled over some seconds in turns.
_CLEAR = 2.0
_MOST_BLOCKS = 3
# To record an operation first and then run it takes up to so much longer than to run it as it comes: a training step of an MLP in torch, of
# 81 operations, takes 4.0 ms and 2.1. So where a frontend may still be asked to do the latter, compiled must be faster without that.
_RECORDED_SECONDS = 25e-6
# The compiled tier is taken if it takes at most this share of the native time: with less to gain, the user's own library it stays.
_WORTH = 0.95
# A block of native rounds that the frontend runs as they come lasts for so many compiled ones, within these bounds in seconds.
_TRIED_ROUNDS = 25
_TRIED_SECONDS = (0.1, 0.5)
# While something else is being compiled measuring waits, but not longer than so many seconds.
_MOST_POSTPONED_SECONDS = 10.0
# A block in which no round was found, since other traces always came between, is timed anew after so many seconds: they may be about to be
# compiled, and begin like this one, which runs as it comes meanwhile. After so many such blocks runs are compared.
_PAUSE_SECONDS = 1.0
_MOST_PAUSES = 10
# A verdict may be wrong, and what it rests on may change: it is looked at again after so many seconds, or after so many times what finding
# it took if that is longer; then after at least twice as long each time. So looking again takes one per cent of the time, and soon less.
_AGAIN_SECONDS = 300.0
_AGAIN_TIMES = 100
# A program that lets this many times a run's own time pass between two runs does other things meanwhile.
_OTHERWISE_BUSY = 10


class Times:
    """What runs of one tier took, in seconds; infinite before the first.

    Attributes:
        run: the shortest run that was waited for.
        round: from the end of one run to the end of the next, whatever the program does between: recording, reading, its own work. In
            each block the median of its last ones, each the mean of some in a row; the shortest of the blocks. Within a block the shortest
            would flatter what scatters: two threads that meet after each small kernel are seldom as fast as they can be.
        counted: how many runs were timed.
    """

    __slots__ = ("_last", "_least", "counted", "round", "run")

    def __init__(self) -> None:
        self.run = self.round = self._least = float("inf")
        self.counted = 0
        self._last: deque[float] = deque(maxlen=_STEADY_RUNS + 1)  # rounds of the present block

    def add(self, run: float, whole: float | None, in_rounds: bool) -> bool:
        """Add a run, and the round that it ended if that is known; returns whether the kind that counts became much shorter."""
        if whole is not None:
            self._last.append(whole)
        latest, least = (whole, self._least) if in_rounds else (run, self.run if self.counted else float("inf"))
        self.run = min(self.run, run) if self.counted else run
        self._least = min(self._least, whole if whole is not None else float("inf"))
        self.counted += 1
        return latest is not None and latest < _FASTER * least

    def end_block(self) -> None:
        """The present block is complete."""
        if self._last:
            self.round = min(self.round, statistics.median(self._last))

    def begin_block(self) -> None:
        """What there was of the present block does not count."""
        self._last.clear()
        self._least = float("inf")

    @property
    def found_rounds(self) -> bool:
        """Whether the present block had one."""
        return bool(self._last)


@dataclass
class Trial:
    """What is known of how fast one trace runs.

    Recording the next trace goes on while a program runs, so runs that were waited for say too little for it: what counts is how long a
    round takes, with at most one program under way. Where the program does other things between two runs, runs are compared.

    Attributes:
        site: the user's line that recorded its last operation.
        operations: how many operations it has.
        verdict: "native" or "compiled", or None while that is being found out.
        reason: why, in a sentence.
        native_runs: how often it ran natively.
        compiled_runs: how often it ran compiled.
    """

    site: str | None
    operations: int
    verdict: str | None = None
    reason: str = "compiling in the background"
    native_runs: int = 0
    compiled_runs: int = 0
    native: Times = field(default_factory=Times)
    compiled: Times = field(default_factory=Times)
    elsewhere: bool = False  # the native time is what a frontend measured
    reopened: bool = False  # whether there was a verdict before
    latest: tuple[int, int] = (0, 0)  # how many traces had run, recorded and as they came, when this one's latest run was timed
    tried: bool | None = None  # whether a frontend is timing native rounds just now; None before it was asked to
    _tier: str = "compiled"  # of the present block
    _blocks: int = 0  # native ones that are complete
    _warm: int = 0  # runs of the present block so far that do not count
    _timed: int = 0  # runs of it that do
    _steady: int = 0  # of these the latest, which were no faster than those before
    _began: float = 0.0  # when the present block did
    _ended: float | None = None  # when the latest run of the present block did
    _ends: deque[float] = field(default_factory=deque)  # when the latest ones that count did, and the one before them
    _postponed: float | None = None  # since when measuring has waited
    _pause: float = 0.0  # until when nothing is timed, since no round was found
    _pauses: int = 0
    _in_rounds: bool | None = None
    _opened: float | None = None  # when the first run was timed
    _wait: float = 0.0  # for how long the latest verdict was to stand
    _again: float = float("inf")  # when the verdict is looked at again

    def row(self) -> TraceRow:
        """This trial as a report shows it."""
        times = [None if t == float("inf") else t for t in self._compared()]
        tier = self.verdict or "undecided"
        return TraceRow(self.site, self.operations, tier, self.reason, self.native_runs, self.compiled_runs, *times)

    def next_tier(self, disturbed: bool = False, now: float | None = None) -> str:
        """The tier of the run that begins, once the program is there; `disturbed` says that something is being compiled meanwhile."""
        if self.verdict is not None:
            return self.verdict
        now = time.perf_counter() if now is None else now
        if not disturbed:
            self._postponed = None
        elif self._postponed is None:
            self._postponed = now
        if self.waits(now):
            self._warm, self._ended = 0, None
            return "native"
        return self._tier

    def waits(self, now: float | None = None) -> bool:
        """Whether measuring waits until what disturbs it has ended."""
        now = time.perf_counter() if now is None else now
        return now < self._pause or (self._postponed is not None and now - self._postponed < _MOST_POSTPONED_SECONDS)

    def in_rounds(self, now: float, alone: bool = True) -> bool:
        """Whether the run that begins need not be waited for, since rounds are timed: the program does little else between two runs.

        Args:
            now: the present (`time.perf_counter`).
            alone: see `note`.
        """
        if self._in_rounds is None and alone and self._ended is not None and self.native.run < float("inf"):
            self._in_rounds = not self.elsewhere and now - self._ended <= _OTHERWISE_BUSY * max(self.native.run, DISPATCH_SECONDS)
        return bool(self._in_rounds)

    def note(self, tier: str, seconds: float, now: float | None = None, alone: bool = True) -> bool:
        """Add a run; returns whether that settled the matter.

        Args:
            tier: which one ran.
            seconds: how long that took.
            now: when it ended (`time.perf_counter`); the present by default.
            alone: whether no other trace has run since the run before; otherwise what lies between the two is no round.
        """
        now = time.perf_counter() if now is None else now
        if tier != self._tier or self.verdict is not None or self.waits(now):
            return False  # the first as when a program has no variant for these buffers yet
        self._opened = now if self._opened is None else self._opened
        before, self._ended = self._ended if alone else None, now
        if not self._warm:
            self._began = now
        if self._warm < _WARM_RUNS or now - self._began < _WARM_SECONDS:
            self._warm += 1
            return False
        times = self.native if tier == "native" else self.compiled
        whole = self._round(before, now)
        self._timed += 1
        self._steady += 1
        if times.add(seconds, whole, bool(self._in_rounds)) or (self._in_rounds and whole is None):
            self._steady = 0
        if self._steady < _STEADY_RUNS and (self._timed < _BLOCK_RUNS or now - self._began < _BLOCK_SECONDS):
            return False
        if self._in_rounds and not times.found_rounds and times.round == float("inf"):
            self._try_later(now)
            return False
        times.end_block()
        self._next_block()
        return self._judge(now)

    def _round(self, before: float | None, now: float) -> float | None:
        """The mean round up to now, or None as long as there are too few."""
        if before is None or not self._ends or self._ends[-1] != before:  # the first that counts, or others came between
            self._ends.clear()
            if before is None:
                return None
            self._ends.append(before)
        self._ends.append(now)
        while len(self._ends) > 2 and (len(self._ends) > _ROUNDS + 1 or now - self._ends[1] >= _ROUNDS_SECONDS):
            self._ends.popleft()
        rounds, seconds = len(self._ends) - 1, now - self._ends[0]
        return seconds / rounds if rounds == _ROUNDS or seconds >= _ROUNDS_SECONDS else None

    def try_natively(self) -> float | None:
        """For how many seconds native rounds are to be run as they come, now that a block of them begins; None if they are not.

        That is how they would run after a native verdict. Recorded first, as those of the first block, they take longer.
        """
        begins = self.verdict is None and self._tier == "native" and not self._warm and self._blocks > 0
        if not begins or not self._in_rounds or self.tried or self.compiled.round == float("inf"):
            return None
        return min(max(_TRIED_SECONDS[0], _TRIED_ROUNDS * self.compiled.round), _TRIED_SECONDS[1])

    def end_trying(self, seconds: float | None, now: float | None = None) -> bool:
        """Take what those rounds usually took as a block; without that the block is recorded. Returns whether that settled the matter."""
        self.tried = False
        if seconds is None or not self._in_rounds or self._tier != "native":
            return False
        self.native.round = min(self.native.round, seconds)
        self._next_block()
        return self._judge(now)

    def _next_block(self) -> None:
        self._blocks += self._tier == "native" or self.elsewhere
        self._tier = "compiled" if self._tier == "native" or self.elsewhere else "native"
        self._begin_block()

    def _begin_block(self) -> None:
        self._warm, self._timed, self._steady, self._ended = 0, 0, 0, None
        self.native.begin_block()
        self.compiled.begin_block()

    def _compared(self) -> tuple[float, float]:
        """The native time and the compiled one, of the same kind."""
        if self._in_rounds and self.native.round < float("inf") and self.compiled.round < float("inf"):
            return self.native.round, self.compiled.round
        return self.native.run, self.compiled.run

    def _judge(self, now: float | None) -> bool:
        if not self._blocks:
            return False
        native, compiled = self._charged()
        asked = not self._in_rounds or self.tried is not None
        as_it_comes = native if asked else native - _RECORDED_SECONDS * self.operations
        if self._blocks >= _MOST_BLOCKS or compiled > _CLEAR * native or as_it_comes > _CLEAR * compiled:
            self.decide_by_times(now)
        return self.verdict is not None

    def _try_later(self, now: float) -> None:
        """No round was found: begin this block again after a pause, or, if that was done before, all with runs that are waited for."""
        self._pauses += 1
        self._pause = now + _PAUSE_SECONDS
        if self._pauses > _MOST_PAUSES:
            self.native, self.compiled, self._in_rounds = Times(), Times(), False
            self._tier, self._blocks = "compiled", 0
        self._begin_block()

    def _charged(self) -> tuple[float, float]:
        """The times compared, the compiled one with what handing over costs, where rounds do not include that."""
        native, compiled = self._compared()
        return native, compiled if self._in_rounds else compiled + DISPATCH_SECONDS

    @property
    def measured(self) -> bool:
        """Whether the compiled tier was timed in this process."""
        return self._compared()[1] < float("inf")

    def decide_by_times(self, now: float | None = None) -> str:
        """Settle on the tier that took less, and return it."""
        native, compiled = self._charged()
        verdict = "compiled" if compiled <= _WORTH * native else "native"
        self.decide(verdict)
        self._stands(now)
        return verdict

    def decide_as_before(self, verdict: str, now: float | None = None) -> None:
        """Settle on the tier that was faster in an earlier process."""
        self.decide(verdict, "measured faster in an earlier process")
        self._stands(now)

    def _stands(self, now: float | None) -> None:
        now = time.perf_counter() if now is None else now
        took = now - self._opened if self._opened is not None else 0.0
        self._wait = max(_AGAIN_SECONDS, _AGAIN_TIMES * took, 2 * self._wait)
        self._again = now + self._wait

    def native_elsewhere(self, seconds: float) -> None:
        """A frontend's own library runs the same trace in so many seconds: there is no need to time the interpreter."""
        self.native.run = seconds
        self.elsewhere, self._in_rounds = True, False

    def due(self, now: float | None = None) -> bool:
        """Whether it is time to measure again: the verdict has stood for long, and a frontend does not see to that itself."""
        return not self.elsewhere and self._again <= (time.perf_counter() if now is None else now)

    def reopen(self) -> None:
        """Measure again."""
        kept = Trial(self.site, self.operations, None, "being measured again", self.native_runs, self.compiled_runs)
        kept.native.run = self.native.run
        kept.reopened, kept._wait = True, self._wait
        self.__dict__.update(kept.__dict__)

    def decide(self, verdict: str, reason: str = "") -> None:
        """Settle on a tier, for good."""
        native, compiled = self._compared()
        self.verdict, self._again = verdict, float("inf")
        what = " a round" if self._in_rounds else ""
        self.reason = reason or f"measured {native * 1e3:.3g} ms{what} natively, {compiled * 1e3:.3g} ms compiled"
