"""The clock: what other processes use meanwhile, binding to cores, warm-up, blocks of steps, peak memory.

Owns timing.  Imports numpy only.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

CALM = 0.15
"""Other processes use so many cores at most while the machine counts as calm."""
TURN_SECONDS = 0.3
"""How long a peer measures before it is the next one's turn."""


_count: Callable[[], float] = time.perf_counter


def now() -> float:
    """Seconds on the clock that everything is timed with: the wall's, or this process's processor time."""
    return _count()


def count_processor_time() -> None:
    """Time with the processor time of this process, all its threads together, which other processes disturb less than the wall clock."""
    global _count
    _count = time.process_time


def bind(cores: Sequence[int]) -> None:
    """Bind this process to cores; before the library is imported, so that its threads follow."""
    if cores:
        os.sched_setaffinity(0, cores)
        os.environ["OMP_NUM_THREADS"] = str(len(cores))


def _machine_seconds() -> float | None:
    """Busy seconds of all cores since boot; None where /proc does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return None
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    return sum(os.times()[:4])


class Others:
    """How many cores other processes keep busy during a `with` block.

    Attributes:
        cores: the mean number of cores; None where /proc does not tell.
    """

    cores: float | None = None

    def __enter__(self) -> Others:
        self._begin = (time.perf_counter(), _machine_seconds(), _own_seconds())
        return self

    def __exit__(self, *exc: object) -> None:
        begin, machine, own = self._begin
        now = _machine_seconds()
        if machine is not None and now is not None:
            spent = max(time.perf_counter() - begin, 1e-9)
            self.cores = max(0.0, ((now - machine) - (_own_seconds() - own)) / spent)


class Clock:
    """Runs what is to be timed when the machine is calm, and says how calm it was.

    Args:
        patience: seconds to wait for calm before a measurement, in all.
        turn: returns when it is this process's turn again, after the other peers' had theirs.
    """

    def __init__(self, patience: float, turn: Callable[[], None] = lambda: None) -> None:
        self.patience = patience
        self.turn = turn
        self.others: list[float] = []
        """Cores that other processes used during each measurement that counts."""

    def wait_for_calm(self) -> None:
        """Sleep until other processes leave the machine alone, or patience ends."""
        while self.patience > 0:
            begin = time.perf_counter()
            with Others() as others:
                time.sleep(0.3)
            if others.cores is None or others.cores <= CALM:
                return
            self.patience -= time.perf_counter() - begin

    def once(self, section: Callable[[], Any]) -> Any:
        """Run a section that cannot be repeated, when calm."""
        self.wait_for_calm()
        gc.collect()
        with Others() as others:
            result = section()
        self.others.append(others.cores or 0.0)
        return result

    def in_turns(self, section: Callable[[float], list[float]], seconds: float) -> list[float]:
        """What a section finds, again and again, in turn with the other peers, so that a drift of the machine meets all alike.

        Args:
            section: measures for about so many seconds.
            seconds: how long in all; once at least.

        Returns:
            The samples of all turns, but for those that other processes disturbed, as long as these are the fewer.
        """
        self.wait_for_calm()
        turns: list[tuple[float, list[float]]] = []
        spent = 0.0
        while not turns or spent < seconds:
            self.turn()
            gc.collect()
            begin = time.perf_counter()
            with Others() as others:
                found = section(TURN_SECONDS)
            spent += time.perf_counter() - begin
            turns.append((others.cores or 0.0, found))
        calm = [turn for turn in turns if turn[0] <= CALM]
        kept = calm if 2 * len(calm) >= len(turns) else turns
        self.others.append(max(cores for cores, _ in kept))
        return [sample for _, found in kept for sample in found]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest of samples, and how many there were."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "samples": len(seconds)}


def longest(seconds: Sequence[float]) -> float:
    """The longest step but for the first one, which is a first result and measured as such."""
    return max(seconds[1:])


def warm_up(run: Callable[[], Any], progress: Callable[[], Hashable], seconds: float, limit: float = 300.0) -> None:
    """Call `run` for at least `seconds`, and on until `seconds` have passed without progress; at most `limit` seconds.

    Args:
        run: what is to be warm.
        progress: something that changes when what runs next has changed; None while that is being worked on.
        seconds: how long nothing must have changed.
        limit: when to give up waiting.
    """
    begin = changed = looked = now()
    known, calls_made = progress(), 0
    while calls_made < 3 or now() < min(changed + seconds, begin + limit):
        run()
        calls_made += 1
        if now() - looked < seconds / 50:
            continue
        found, looked = progress(), now()
        if found is None or found != known:
            known, changed = found, now()


def timed(run: Callable[[], Any]) -> float:
    """Seconds that one call takes."""
    begin = now()
    run()
    return now() - begin


def block_of(step: Callable[[], Any], read: Callable[[Any], Any], block_seconds: float = 0.1) -> Callable[[], float]:
    """A function that runs a block of steps that ends with a read of the last one's result, and gives the seconds a step.

    A block lasts about `block_seconds`.
    """

    def block(steps: int) -> float:
        begin = now()
        for _ in range(steps):
            result = step()
        read(result)
        return (now() - begin) / steps

    block(1)
    length = max(1, min(1000, round(block_seconds / block(3))))
    return lambda: block(length)


def repeated(measure: Callable[[], float], seconds: float) -> list[float]:
    """What `measure` gives, for `seconds` seconds and at least once.

    Once more before that does not count, since the other peers had their turn.
    """
    measure()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        found.append(measure())
    return found


def peak_mebibytes() -> float:
    """The most resident memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
