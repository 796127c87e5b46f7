"""The report as one self-contained HTML page.

Owns: the page's markup.  Its style and script are `page.css` and `page.js`, and become part of it: nothing is fetched from anywhere.
May import `drawing`, `summary`, and `events` for its types only.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from . import drawing, summary
from .summary import Report

if TYPE_CHECKING:
    from .events import Event


_STYLE, _SCRIPT = (resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
_LANES = {
    "range": "ranges that the program names",
    "record": "recording, the program's own Python, and waiting for results",
    "compile": "making programs",
    "native": "running operations natively",
    "execute": "handing programs to the device",
    "host_read": "values asked for by the host",
    "fallback": "operations outside the lazy system",
}
_LANE_HEIGHT = 26


def _document(title: str, body: str, script: str = "") -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head><body>
{body}
{f"<script>{script}</script>" if script else ""}
</body></html>
"""


def render(report: Report) -> str:
    """The page of a report."""
    sections = [
        ("Timeline", _timeline(report.events)),
        ("Which tier runs what", _traces(report)),
        ("Why programs were compiled", _causes(report.events)),
        ("Where traces ended", _lines(report.events)),
        ("Fallbacks", _fallbacks(report)),
        ("Shadow runs", _shadow(report)),
        ("Compiled graphs", _graphs(report)),
    ]
    body = "".join(f"<section><h2>{name}</h2>{content}</section>\n" for name, content in sections)
    head = f'<h1>Lazy report</h1><p class="lead">{html.escape(summary.headline(report.counters))}</p>'
    return _document("Lazy report", f"{head}\n<div class='counters'>{_counters(report.counters)}</div>\n{body}", _SCRIPT)


def render_graph(number: int, text: str, stablehlo: str) -> str:
    """A page of one graph: its picture, its operations with the user's lines, linked from operand to definition, and its StableHLO."""
    picture = _picture(text)
    body = f"""<h1>Graph {number}</h1>
{f"<section><h2>Picture</h2>{picture}</section>" if picture else ""}
<section><h2>Operations</h2><pre style="max-height: none">{_linked(text, "v")}</pre></section>
<section><details><summary>StableHLO</summary><pre>{html.escape(stablehlo)}</pre></details></section>"""
    return _document(f"Lazy graph {number}", body)


def _counters(counters: dict[str, float]) -> str:
    boxes = []
    for name, value in counters.items():
        kind = "zero" if not value else "bad" if name == "fallbacks" else ""
        shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
        boxes.append(f'<div class="{kind}"><b>{shown}</b>{name.replace("_", " ")}</div>')
    return "".join(boxes)


def _timeline(events: Sequence[Event]) -> str:
    shown = [(e.kind, e.when - e.seconds, e.when, _title(e)) for e in events if e.kind in _LANES and e.when]
    if not shown:
        return '<p class="empty">Nothing happened yet.</p>'
    shown += [("record", g.begin, g.end, f"{g.operations} operations recorded, up to {g.site}") for g in summary.recording(events)]
    shown.sort(key=lambda bar: bar[1] - bar[2])  # what lies within another bar is drawn over it
    lanes = [lane for lane in _LANES if any(kind == lane for kind, *_ in shown)]
    begin = min(start for _, start, _, _ in shown)
    span = max(max(end for _, _, end, _ in shown) - begin, 1e-6)
    bars = []
    for kind, start, end, title in shown:
        left, width = 1000 * (start - begin) / span, max(1000 * (end - start) / span, 1.2)
        top = 4 + _LANE_HEIGHT * lanes.index(kind)
        box = f'x="{left:.4f}" y="{top}" width="{width:.4f}" height="{_LANE_HEIGHT - 8}" fill="var(--{kind})"'
        bars.append(f"<rect {box}><title>{html.escape(title)}</title></rect>")
    names = "".join(f'<div title="{html.escape(_LANES[lane])}">{lane.replace("_", " ")}</div>' for lane in lanes)
    height = _LANE_HEIGHT * len(lanes)
    return (
        f'<div class="lanes"><div class="names">{names}</div><div class="chart" data-span="{span:.9f}">'
        f'<svg viewBox="0 0 1000 {height}" preserveAspectRatio="none" height="{height}" role="img" aria-label="timeline">'
        f'{"".join(bars)}</svg><div class="ticks"></div></div></div>'
        f'<p class="note">{span:.3f} s, the latest {len(events):,} events. The lane <b>record</b> reaches from the end of one barrier to '
        "the beginning of the next: recording, the program's own Python, and waiting for results. The wheel zooms, dragging moves, "
        "a double click shows everything.</p>"
    )


def _title(event: Event) -> str:
    if event.kind == "range":
        return f"{event.cause}, {event.seconds * 1e3:.3f} ms"
    return f"{event.kind.replace('_', ' ')}: {event.cause} at {event.site or 'an unknown line'}, {event.seconds * 1e3:.3f} ms"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    """A table whose last columns, so many of them, are numbers; cells are HTML."""
    first = len(heads) - numbers
    head = "".join(f"<th{' class=n' if k >= first else ''}>{name}</th>" for k, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if k >= first else ''}>{cell}</td>" for k, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _site(site: str | None) -> str:
    return (
        f'<code class="line" title="{html.escape(site)}">{html.escape(summary.short(site))}</code>'
        if site
        else '<span class="empty">unknown</span>'
    )


def _traces(report: Report) -> str:
    if not report.traces:
        return '<p class="empty">No trace came more than once, or everything is compiled at once.</p>'
    rows = [[_site(row.site), *[html.escape(cell) for cell in row.cells()[1:]]] for row in report.traces]
    return _table(summary.TRACE_HEADS, rows, 5)


def _causes(events: Sequence[Event]) -> str:
    rows = []
    for e in events:
        if e.kind in ("compile", "cache"):
            link = f' <a href="#graph{e.graph}">graph {e.graph}</a>' if e.graph is not None else ""
            tag = f'<span class="tag" style="background: var(--{"compile" if e.kind == "compile" else "record"})">{e.kind}</span>'
            rows.append((tag, html.escape(e.cause) + link, _site(e.site), f"{e.operations:,}", f"{e.seconds:.3f}"))
    if not rows:
        return '<p class="empty">Nothing was compiled.</p>'
    return _table(("event", "cause", "line", "operations", "seconds"), rows, 2)


def _lines(events: Sequence[Event]) -> str:
    found = summary.runs_by_line(events)
    if not found:
        return '<p class="empty">Nothing ran yet.</p>'
    rows = [
        (_site(r.site), html.escape(r.cause), f"{r.native:,}", f"{r.compiled:,}", f"{r.operations:,}", f"{r.seconds:.3f}")
        for r in found[:30]
    ]
    note = f'<p class="note">The first 30 of {len(found)} lines.</p>' if len(found) > 30 else ""
    return _table(("line of the last operation", "ended by", "native runs", "compiled runs", "operations a run", "seconds"), rows, 4) + note


def _fallbacks(report: Report) -> str:
    if not report.fallbacks:
        return '<p class="empty">None: every operation was recorded.</p>'
    latest = {e.cause.split(": ")[1]: e for e in report.events if e.kind == "fallback" and e.cause.count(": ") >= 2}
    rows = []
    for name, count in sorted(report.fallbacks.items(), key=lambda p: -p[1]):
        event = latest.get(name.partition(":")[2])
        reason = event.cause.split(": ", 2)[2] if event else ""
        rows.append((f"<code>{html.escape(name)}</code>", html.escape(reason), _site(event.site) if event else "", f"{count:,}"))
    return _table(("operation", "reason", "latest line", "times"), rows, 1)


def _shadow(report: Report) -> str:
    runs = int(report.counters.get("shadow_runs", 0))
    if not runs:
        return '<p class="empty">None: nothing that was compiled was computed natively too (lazy run --shadow).</p>'
    rows = [(html.escape(e.cause), _site(e.site)) for e in report.events if e.kind == "shadow"]
    if not rows:
        return f'<p class="empty">{runs:,} runs of compiled programs were computed natively too, and nothing differed.</p>'
    return _table(("what is wrong", "line"), rows, 0)


def _picture(text: str) -> str:
    picture = drawing.draw(text)
    return f'<div class="picture">{picture}</div>' if picture else ""


def _linked(text: str, prefix: str) -> str:
    """A graph's text, each operand a link to its definition."""
    name = re.compile(r"%(\d+)")
    lines = []
    for line in text.splitlines():
        escaped = html.escape(line)
        head, equals, rest = escaped.partition(" = ")
        defined = name.fullmatch(head) if equals else None
        linked = name.sub(rf'<a href="#{prefix}\1">%\1</a>', rest if defined else escaped)
        lines.append(f'<span id="{prefix}{defined[1]}">{head}</span> = {linked}' if defined else linked)
    return "\n".join(lines)


def _graphs(report: Report) -> str:
    if not report.graphs:
        return '<p class="empty">None were compiled.</p>'
    seconds = {e.graph: e for e in report.events if e.graph is not None}
    parts = []
    for number, (text, stablehlo) in report.graphs.items():
        event = seconds.get(number)
        about = f", {summary.short(event.site)}, compiled in {event.seconds:.3f} s" if event and event.site else ""
        operations = f"{event.operations} operations" if event else f"{text.count(chr(10))} lines"
        parts.append(
            f'<details id="graph{number}"><summary>graph {number}: {operations}{html.escape(about)}</summary>{_picture(text)}'
            f"<pre>{_linked(text, f'g{number}v')}</pre>"
            f"<details><summary>StableHLO</summary><pre>{html.escape(stablehlo)}</pre></details></details>"
        )
    return "".join(parts)
