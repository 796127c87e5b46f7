"""The report on a terminal, through rich.

Owns: tables and colours.  Imported only when a report is shown on a terminal, or handed to rich.  May import `summary`.
"""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from . import summary
from .summary import Report

_MOST_ROWS = 15


def show(report: Report, stream: TextIO) -> None:
    """Write a report to a terminal, in colour unless `NO_COLOR` or the terminal's kind forbids it."""
    Console(file=stream).print(renderable(report))


def renderable(report: Report) -> RenderableType:
    """A report as something that rich can print."""
    parts: list[RenderableType] = [Text(summary.headline(report.counters), style="bold"), _counters(report)]
    for table in (_traces(report), _compiles(report), _runs(report), _fallbacks(report), _shadow(report), _rest(report)):
        if table is not None:
            parts += ["", table]
    return Panel(Group(*parts), title="lazy report", title_align="left", border_style="blue", padding=(1, 2))


def _counters(report: Report) -> RenderableType:
    cells = []
    for name, value in report.counters.items():
        shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
        style = "dim" if not value else "bold red" if name == "fallbacks" else "bold yellow" if name.startswith("compile") else "bold green"
        cells.append(Text.assemble((f"{shown:>9}", style), " ", (name.replace("_", " "), "" if value else "dim")))
    return Columns(cells, equal=True, padding=(0, 2))


def _table(title: str, *columns: str) -> Table:
    """A table; a column whose name starts with `#` holds numbers."""
    table = Table(
        title=title, title_style="bold", title_justify="left", box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="dim"
    )
    for name in columns:
        if name.startswith("#"):
            table.add_column(name[1:], justify="right", no_wrap=True)
        else:
            table.add_column(name, ratio=3 if name == "cause" else 2, overflow="fold")
    return table


def _traces(report: Report) -> Table | None:
    if not report.traces:
        return None
    place, tier, why, *numbers = summary.TRACE_HEADS
    table = _table(_title("traces that came more than once", len(report.traces)), place, tier, why, *[f"#{n}" for n in numbers])
    for row in report.traces[-_MOST_ROWS:]:
        line, chosen, reason, *figures = row.cells()
        style = {"native": "green", "compiled": "magenta"}.get(chosen, "dim")
        table.add_row(Text(line, "cyan"), Text(chosen, style), Text(reason), *figures)
    return table


def _compiles(report: Report) -> Table | None:
    events = [e for e in report.events if e.kind == "compile"]
    if not events:
        return None
    table = _table(_title("why programs were compiled", len(events)), "cause", "line", "#operations", "#seconds")
    for e in events[-_MOST_ROWS:]:
        style = "red" if e.seconds >= 1 else "yellow" if e.seconds >= 0.1 else ""
        table.add_row(Text(e.cause), Text(summary.short(e.site), "cyan"), f"{e.operations:,}", Text(f"{e.seconds:.3f}", style))
    return table


def _runs(report: Report) -> Table | None:
    found = summary.runs_by_line(report.events)
    if not found:
        return None
    table = _table("where traces ended", "line of the last operation", "ended by", "#native", "#compiled", "#operations", "#seconds")
    for r in found[:_MOST_ROWS]:
        line = Text(summary.short(r.site), "cyan")
        table.add_row(line, Text(r.cause), f"{r.native:,}", f"{r.compiled:,}", f"{r.operations:,}", f"{r.seconds:.3f}")
    return table


def _fallbacks(report: Report) -> Table | None:
    if not report.fallbacks:
        return None
    latest = {e.cause.partition(": ")[2].partition(": ")[0]: e for e in report.events if e.kind == "fallback"}
    table = _table("fallbacks: operations that ran outside the lazy system", "operation", "reason", "line", "#times")
    for name, count in sorted(report.fallbacks.items(), key=lambda p: -p[1])[:_MOST_ROWS]:
        event = latest.get(name.partition(":")[2])
        reason, site = (event.cause.split(": ", 2)[-1], summary.short(event.site)) if event else ("", "")
        table.add_row(Text(name, "red"), Text(reason), Text(site, "cyan"), f"{count:,}")
    return table


def _shadow(report: Report) -> Table | None:
    events = [e for e in report.events if e.kind == "shadow"]
    if not events:
        return None
    table = _table(_title("shadow runs: what compiled programs compute wrongly", len(events)), "cause", "line")
    for e in events[-_MOST_ROWS:]:
        table.add_row(Text(e.cause, "red"), Text(summary.short(e.site), "cyan"))
    return table


def _rest(report: Report) -> Table | None:
    events = [e for e in report.events if e.kind == "cache"]
    if not events:
        return None
    table = _table(_title("the disk cache", len(events)), "cause")
    for e in events[-_MOST_ROWS:]:
        table.add_row(Text(e.cause))
    return table


def _title(what: str, count: int) -> str:
    return what if count <= _MOST_ROWS else f"{what} (the latest {_MOST_ROWS} of {count})"
