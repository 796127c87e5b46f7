"""The report: counters and events, for people and for programs.

Owns: `Report`, `report()` and `reset_report()`.  May import `events`, `trace`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import events, trace


@dataclass(frozen=True)
class Report:
    """What happened since the last `reset_report()`.

    Attributes:
        counters: recorded, barriers, compiles, cache_hits, canonical_hits, disk_hits, native_runs, fallbacks, transfers (counts) and
            compile_seconds.
        events: the latest events, oldest first; each has a cause and the user's line.
        fallbacks: how often each operation fell back, by "frontend:operation".
    """

    counters: dict[str, float]
    events: tuple[events.Event, ...]
    fallbacks: dict[str, int]

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(
            {
                "counters": self.counters,
                "fallbacks": self.fallbacks,
                "events": [event.as_dict() for event in self.events],
            }
        )

    def __str__(self) -> str:
        lines = ["lazy report", "  counters"]
        for name, value in self.counters.items():
            lines.append(f"    {name:<16} {value:.3f}" if isinstance(value, float) else f"    {name:<16} {value}")
        if self.fallbacks:
            lines.append("  fallbacks (operations that ran outside the lazy system)")
            lines += [f"    {count:>6} x {name}" for name, count in sorted(self.fallbacks.items(), key=lambda p: -p[1])]
        if self.events:
            lines.append(f"  events (the last {min(len(self.events), 20)} of {len(self.events)})")
            for event in self.events[-20:]:
                size = f" [{event.operations} operations, {event.seconds:.3f} s]" if event.kind == "compile" else ""
                lines.append(f"    {event.kind:<10} {event.cause}{size}  at {event.site or 'an unknown line'}")
        return "\n".join(lines)


def _recorded() -> int:
    return sum(source.counters().get("recorded", 0) for source in trace.current().sources)


_recorded_before = 0


def report() -> Report:
    """Counters and events since the last `reset_report()`."""
    counters: dict[str, Any] = dict(events.counters)
    counters["recorded"] = _recorded() - _recorded_before
    return Report(
        {k: (v if k == "compile_seconds" else int(v)) for k, v in counters.items()},
        tuple(events.log),
        dict(events.fallback_names),
    )


def reset_report() -> None:
    """Set all counters to zero and forget all events."""
    global _recorded_before
    events.reset()
    _recorded_before = _recorded()
