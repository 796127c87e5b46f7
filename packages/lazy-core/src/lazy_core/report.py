"""The report: counters and events, for people and for programs.

Owns: `Report`, `report()` and `reset_report()`, and its plain text.  May import `frontend`, `tiers`, `events`, `trace`, and what shows it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, TextIO

from . import events, frontend, notebook, summary, tiers, trace


@dataclass(frozen=True, repr=False)
class Report:
    """What happened since the last `reset_report()`.

    `print(report)` writes plain text, `report.show()` tables in colour where it writes to a terminal.

    Attributes:
        counters: recorded, barriers, compiles, cache_hits, canonical_hits, disk_hits, native_runs, fallbacks, transfers (counts) and
            compile_seconds.
        events: the latest events, oldest first; each has a cause and the user's line.
        fallbacks: how often each operation fell back, by "frontend:operation".
        graphs: the latest compiled graphs by number: (operations with the user's lines, StableHLO).
        traces: for each trace that came more than once which tier runs it, why, and how long it takes on each.
    """

    counters: dict[str, float]
    events: tuple[events.Event, ...]
    fallbacks: dict[str, int]
    graphs: dict[int, tuple[str, str]]
    traces: tuple[summary.TraceRow, ...] = ()

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(
            {
                "counters": self.counters,
                "fallbacks": self.fallbacks,
                "events": [event.as_dict() for event in self.events],
                "traces": [row._asdict() for row in self.traces],
                "graphs": {str(k): {"graph": g, "stablehlo": h} for k, (g, h) in self.graphs.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that `to_json` wrote.

        Raises:
            ValueError: the text is not such a report.
        """
        try:
            data = json.loads(text)
            return cls(
                data["counters"],
                tuple([events.Event(**e) for e in data["events"]]),
                data["fallbacks"],
                {int(k): (v["graph"], v["stablehlo"]) for k, v in data["graphs"].items()},
                tuple([summary.TraceRow(**row) for row in data.get("traces", ())]),
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not a report written by lazy_core: {error!r}") from error

    def to_html(self) -> str:
        """The report as one self-contained HTML page: counters, timeline, causes, graphs."""
        from .page import render

        return render(self)

    def show(self, file: TextIO | None = None) -> None:
        """Write the report: tables in colour on a terminal, plain text anywhere else.

        Args:
            file: where to; standard output by default.
        """
        stream = sys.stdout if file is None else file
        if stream.isatty():
            from . import terminal

            terminal.show(self, stream)
        else:
            print(self, file=stream)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return notebook.report(self)

    def __rich__(self) -> Any:
        from . import terminal

        return terminal.renderable(self)

    def __repr__(self) -> str:
        return f"<lazy report: {summary.headline(self.counters)}>"

    def __str__(self) -> str:
        lines = [f"lazy report: {summary.headline(self.counters)}", "  counters"]
        for name, value in self.counters.items():
            lines.append(f"    {name:<16} {value:.3f}" if isinstance(value, float) else f"    {name:<16} {value}")
        if self.fallbacks:
            lines.append("  fallbacks (operations that ran outside the lazy system)")
            lines += [f"    {count:>6} x {name}" for name, count in sorted(self.fallbacks.items(), key=lambda p: -p[1])]
        if self.traces:
            lines.append("  traces that came more than once")
            for row in self.traces[-20:]:
                place, tier, why, operations, *runs = row.cells()
                lines.append(
                    f"    {tier:<10} {why}  [{operations} operations; {runs[0]} native runs, {runs[2]} compiled]  at {row.site or place}"
                )
        if self.events:
            shown = [e for e in self.events if e.kind not in ("execute", "native", "range")][-20:]
            lines.append(f"  events (the last {len(shown)}; {len(self.events)} are kept, runs included)")
            for event in shown:
                size = f" [{event.operations} operations, {event.seconds:.3f} s]" if event.kind == "compile" else ""
                lines.append(f"    {event.kind:<10} {event.cause}{size}  at {event.site or 'an unknown line'}")
        return "\n".join(lines)


def _counted() -> Counter[str]:
    """What sources count themselves, since the start."""
    total: Counter[str] = Counter()
    for source in trace.current().sources:
        total.update({k: v for k, v in source.counters().items() if k in ("recorded", "native_runs")})
    return total


_counted_before: Counter[str] = Counter()


def report() -> Report:
    """Counters and events since the last `reset_report()`."""
    frontend.finish_imports()
    counters: dict[str, Any] = dict(events.counters)
    for name, value in _counted().items():
        counters[name] += value - _counted_before[name]
    return Report(
        {k: (v if k == "compile_seconds" else int(v)) for k, v in counters.items()},
        tuple(events.log),
        dict(events.fallback_names),
        dict(events.graphs),
        tuple([trial.row() for trial in tiers.trials()]),
    )


def write(path: str) -> None:
    """Write the report to a file: an HTML page if its name ends in .html, else JSON."""
    current = report()
    with open(path, "w", encoding="utf-8") as file:
        file.write(current.to_html() if path.endswith((".html", ".htm")) else current.to_json())


if os.environ.get("LAZY_REPORT"):
    atexit.register(write, os.environ["LAZY_REPORT"])


def reset_report() -> None:
    """Set all counters to zero and forget all events."""
    global _counted_before
    events.reset()
    _counted_before = _counted()
