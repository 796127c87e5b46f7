"""The report as one self-contained HTML page.

Owns: the page's markup, style and its few lines of script; nothing is fetched from anywhere.  May import `events` for its types only.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .events import Event


class Report(Protocol):
    """What the page shows of a report (see `report.Report`)."""

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
    def graphs(self) -> dict[int, tuple[str, str]]:
        """Compiled graphs by number."""
        ...


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --compile: #d9822b; --execute: #2d6cdf; --read: #6b8e4e; --fall: #c23b3b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow: auto; max-height: 30rem; border: 1px solid var(--line); padding: .6rem; }
.counters { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .5rem; }
.counters div { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .7rem; }
.counters b { display: block; font-size: 1.3rem; }
svg { width: 100%; border: 1px solid var(--line); border-radius: .4rem; }
.key span { margin-right: 1.2rem; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; }
.empty { opacity: .7; }
"""
_COLOURS = {"compile": "--compile", "execute": "--execute", "host_read": "--read", "fallback": "--fall"}
_LANES = ("compile", "execute", "host_read", "fallback")


def render(report: Report) -> str:
    """The page of a report."""
    counters = "".join(
        f"<div><b>{value:.3f}</b>{name}</div>" if isinstance(value, float) else f"<div><b>{value:,}</b>{name}</div>"
        for name, value in report.counters.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lazy report</title><style>{_STYLE}</style></head><body>
<h1>Lazy report</h1>
<div class="counters">{counters}</div>
<h2>Timeline</h2>{_timeline(report.events)}
<h2>Causes</h2>{_causes(report.events)}
<h2>Fallbacks</h2>{_fallbacks(report.fallbacks)}
<h2>Compiled graphs</h2>{_graphs(report)}
</body></html>
"""


def render_graph(number: int, text: str, stablehlo: str) -> str:
    """A page of one graph: its operations with the user's lines, linked from operand to definition, and its StableHLO."""
    name = re.compile(r"%(\d+)")
    lines = []
    for line in text.splitlines():
        escaped = html.escape(line)
        head, equals, rest = escaped.partition(" = ")
        defined = name.fullmatch(head) if equals else None
        linked = name.sub(r'<a href="#v\1">%\1</a>', rest if defined else escaped)
        lines.append(f'<span id="v{defined[1]}">{head}</span> = {linked}' if defined else linked)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lazy graph {number}</title><style>{_STYLE} :target {{ font-weight: bold; }} pre {{ max-height: none; }}</style></head><body>
<h1>Graph {number}</h1>
<pre>{chr(10).join(lines)}</pre>
<details><summary>StableHLO</summary><pre>{html.escape(stablehlo)}</pre></details>
</body></html>
"""


def _timeline(events: tuple[Event, ...]) -> str:
    shown = [e for e in events if e.kind in _LANES and e.when]
    if not shown:
        return '<p class="empty">Nothing happened yet.</p>'
    begin = min(e.when - e.seconds for e in shown)
    span = max(max(e.when for e in shown) - begin, 1e-6)
    bars = []
    for event in shown:
        left = 1000 * (event.when - event.seconds - begin) / span
        width = max(1000 * event.seconds / span, 1.5)
        top = 8 + 24 * _LANES.index(event.kind)
        title = html.escape(f"{event.kind}: {event.cause} at {event.site or 'an unknown line'}, {event.seconds * 1e3:.3f} ms")
        box = f'x="{left:.2f}" y="{top}" width="{width:.2f}" height="18" fill="var({_COLOURS[event.kind]})"'
        bars.append(f"<rect {box}><title>{title}</title></rect>")
    key = "".join(f'<span><i style="background:var({_COLOURS[k]})"></i>{k}</span>' for k in _LANES)
    return (
        f'<p class="key">{key} {span:.3f} s in all</p>'
        f'<svg viewBox="0 0 1000 {16 + 24 * len(_LANES)}" preserveAspectRatio="none" height="{16 + 24 * len(_LANES)}" role="img" '
        f'aria-label="timeline">{"".join(bars)}</svg>'
    )


def _causes(events: tuple[Event, ...]) -> str:
    rows = "".join(
        f"<tr><td>{e.kind}</td><td>{html.escape(e.cause)}"
        + (f' (<a href="#graph{e.graph}">graph {e.graph}</a>)' if e.graph is not None else "")
        + f'</td><td><code>{html.escape(e.site or "")}</code></td><td class="n">{e.operations}</td><td class="n">{e.seconds:.3f}</td></tr>'
        for e in events
        if e.kind in ("compile", "fallback", "cache")
    )
    if not rows:
        return '<p class="empty">Nothing was compiled and nothing fell back.</p>'
    return (
        '<table><tr><th>event</th><th>cause</th><th>line</th><th class="n">operations</th><th class="n">seconds</th></tr>'
        + rows
        + "</table>"
    )


def _fallbacks(fallbacks: dict[str, int]) -> str:
    if not fallbacks:
        return '<p class="empty">None: every operation was recorded.</p>'
    rows = "".join(
        f'<tr><td>{html.escape(name)}</td><td class="n">{count}</td></tr>' for name, count in sorted(fallbacks.items(), key=lambda p: -p[1])
    )
    return f'<table><tr><th>operation</th><th class="n">times</th></tr>{rows}</table>'


def _graphs(report: Report) -> str:
    if not report.graphs:
        return '<p class="empty">None were compiled.</p>'
    return "".join(
        f'<details id="graph{number}"><summary>graph {number}: {text.count(chr(10))} lines</summary><pre>{html.escape(text)}</pre>'
        f"<details><summary>StableHLO</summary><pre>{html.escape(stablehlo)}</pre></details></details>"
        for number, (text, stablehlo) in report.graphs.items()
    )
