"""What a report says in few words: a headline, runs by line, when the program recorded.

Owns: what the terminal and the page both draw from events.  Imports nothing of the package but the type of an event.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .events import Event

_RUNS = ("execute", "native")


class TraceRow(NamedTuple):
    """How one trace that came more than once runs.

    Attributes:
        site: the user's line that recorded its last operation.
        operations: how many operations it has.
        tier: "native" or "compiled", or "undecided".
        reason: why, in a sentence.
        native_runs: how often it ran natively.
        compiled_runs: how often it ran compiled.
        native_seconds: what it takes natively, as the reason says: the shortest run, or a usual round; None if unknown.
        compiled_seconds: what it takes compiled, likewise.
    """

    site: str | None
    operations: int
    tier: str
    reason: str
    native_runs: int
    compiled_runs: int
    native_seconds: float | None
    compiled_seconds: float | None

    def cells(self) -> tuple[str, ...]:
        """What a table shows: line, tier, reason, operations, runs and milliseconds on each tier."""
        times = ["" if t is None else f"{t * 1e3:.3f}" for t in (self.native_seconds, self.compiled_seconds)]
        return (
            short(self.site), self.tier, self.reason, f"{self.operations:,}", f"{self.native_runs:,}", times[0],
            f"{self.compiled_runs:,}", times[1],
        )  # fmt: skip


TRACE_HEADS = ("line of the last operation", "tier", "why", "operations", "native runs", "ms", "compiled runs", "ms")


class Report(Protocol):
    """What is shown of a report (see `report.Report`)."""

    @property
    def counters(self) -> dict[str, float]:
        """Counts by name."""
        ...

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest events, oldest first."""
        ...

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often each operation fell back."""
        ...

    @property
    def traces(self) -> tuple[TraceRow, ...]:
        """How each trace that came more than once runs."""
        ...

    @property
    def graphs(self) -> dict[int, tuple[str, str]]:
        """Compiled graphs by number."""
        ...


class Recording(NamedTuple):
    """The time between two barriers.

    Attributes:
        begin: when the earlier barrier was done, in seconds since the epoch.
        end: when the later one began.
        operations: how many operations the later one handed over.
        site: the line that recorded the last of them.
    """

    begin: float
    end: float
    operations: int
    site: str


class Runs(NamedTuple):
    """The traces whose last operation was recorded at one line.

    Attributes:
        site: that line.
        cause: why the latest of them ended.
        native: how many ran natively.
        compiled: how many ran as a program.
        operations: how many operations the latest had.
        seconds: how long running them natively, or handing them to the device, took in all.
    """

    site: str | None
    cause: str
    native: int
    compiled: int
    operations: int
    seconds: float


def short(site: str | None) -> str:
    """A `file:line` as short as it is clear: relative to the working folder where it lies below it."""
    if not site:
        return "an unknown line"
    name, colon, line = site.rpartition(":")
    here = os.getcwd() + os.sep
    return site[len(here) :] if site.startswith(here) else os.path.join(*name.split(os.sep)[-2:]) + colon + line


def headline(counters: dict[str, float]) -> str:
    """One sentence: what was recorded, how it ran, what was compiled, what fell back."""
    native, barriers = int(counters.get("native_runs", 0)), int(counters.get("barriers", 0))
    parts = [f"{int(counters.get('recorded', 0)):,} operations recorded, {barriers:,} barrier{'s' if barriers != 1 else ''}"]
    if native:
        parts.append(f"{native:,} run natively")
    compiles = int(counters.get("compiles", 0))
    seconds = f" in {counters.get('compile_seconds', 0):.2f} s" if compiles else ""
    parts.append(f"{compiles:,} program{'s' if compiles != 1 else ''} compiled{seconds}")
    fallbacks = int(counters.get("fallbacks", 0))
    parts.append(f"{fallbacks:,} fallback{'s' if fallbacks != 1 else ''}" if fallbacks else "no fallback")
    return ", ".join(parts)


def runs_by_line(events: Sequence[Event]) -> list[Runs]:
    """The runs among these events by line, those that took longest first."""
    found: dict[str | None, Runs] = {}
    for e in events:
        if e.kind in _RUNS:
            old = found.get(e.site, Runs(e.site, "", 0, 0, 0, 0.0))
            natively = e.kind == "native"
            found[e.site] = Runs(
                e.site, e.cause, old.native + natively, old.compiled + (not natively), e.operations, old.seconds + e.seconds
            )
    return sorted(found.values(), key=lambda r: -r.seconds)


def recording(events: Sequence[Event]) -> list[Recording]:
    """When the program recorded: from the end of each barrier to the beginning of the next, less what that one compiled.

    So it contains the program's own Python, and its waiting for results too: recording alone takes no time stamps.
    """
    compiles = [(e.when - e.seconds, e.when) for e in events if e.kind == "compile"]
    found: list[Recording] = []
    before: float | None = None
    for e in events:
        if e.kind not in _RUNS:
            continue
        end = e.when - e.seconds
        if before is not None:
            for begun, done in reversed(compiles):  # compiled for this barrier: right before it ran, and after the last one
                if before <= begun and done <= end and end - done <= _BESIDES + 0.05 * (done - begun):
                    end = begun
            if end > before:
                found.append(Recording(before, end, e.operations, short(e.site)))
        before = e.when
    return found


# Planning a program, and what else a barrier does besides compiling and running it, takes no longer (seconds).
_BESIDES = 0.02
