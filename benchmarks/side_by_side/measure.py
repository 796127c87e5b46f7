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
        tries: how often a measurement that was disturbed is made; the calmest counts.
    """

    def __init__(self, patience: float, tries: int) -> None:
        self.patience = patience
        self.tries = tries
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

    def calmest(self, section: Callable[[], Any]) -> Any:
        """Run a section up to `tries` times until nothing disturbs it; the result of the calmest run."""
        runs = []
        for _ in range(self.tries):
            self.wait_for_calm()
            gc.collect()
            with Others() as others:
                result = section()
            runs.append((others.cores or 0.0, result))
            if runs[-1][0] <= CALM:
                break
        cores, result = min(runs, key=lambda run: run[0])
        self.others.append(cores)
        return result


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest of samples, and how many there were."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "samples": len(seconds)}


def longest(seconds: Sequence[float]) -> float:
    """The longest step but for the first one, which is a first result and measured as such."""
    return max(seconds[1:])


def warm_up(run: Callable[[], Any], progress: Callable[[], Hashable], seconds: float, limit: float = 60.0) -> None:
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


def blocks(step: Callable[[], Any], read: Callable[[Any], Any], seconds: float, block_seconds: float = 0.15) -> list[float]:
    """Seconds a step, measured over blocks of steps that end with a read of the last one's result.

    A block lasts about `block_seconds`; there are at least five of them, and as many as fit into `seconds`.
    """

    def block(steps: int) -> float:
        begin = now()
        for _ in range(steps):
            result = step()
        read(result)
        return (now() - begin) / steps

    block(1)
    length = max(1, min(1000, round(block_seconds / block(3))))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        found.append(block(length))
    return found


def calls(run: Callable[[], Any], seconds: float, least: int = 10) -> list[float]:
    """Seconds of each call, for `seconds` seconds and at least `least` calls."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < least or time.perf_counter() < end:
        found.append(timed(run))
    return found


def peak_mebibytes() -> float:
    """The most resident memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
