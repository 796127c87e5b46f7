"""What a notebook shows of a tensor and of a report, without running anything.

Owns: the HTML, and `attach`, the one line with which a frontend's tensor class gets it.  May import `dump`, `drawing`, `summary`.
"""

from __future__ import annotations

import html
from typing import Any

from . import drawing, dump, summary
from .ir import Node, post_order

_STYLE = """<style>
.lazy-box { font: 13px/1.5 system-ui, sans-serif; border: 1px solid #8884; border-radius: 6px; padding: .5em .8em; max-width: 60em; }
.lazy-box code, .lazy-box pre { font: 12px/1.5 ui-monospace, monospace; background: none; }
.lazy-box table { border-collapse: collapse; margin: .3em 0; } .lazy-box td, .lazy-box th { padding: .1em .8em .1em 0; text-align: left; }
.lazy-box td.n { text-align: right; } .lazy-box summary { cursor: pointer; } .lazy-box .soft { opacity: .65; }
.lazy-box .drawing { max-width: none; display: block; } .lazy-box .picture { overflow: auto; max-height: 30em; }
.lazy-box .drawing text { font: 11px ui-monospace, monospace; text-anchor: middle; fill: currentColor; }
.lazy-box .drawing .shape { font-size: 10px; opacity: .65; } .lazy-box .drawing rect { fill: none; stroke: #3b6fe0; }
.lazy-box .drawing .leaf rect { stroke: #8888; } .lazy-box .drawing .edges path { fill: none; stroke: #8888; }
</style>"""
# A graph of more operations is shown by its last ones.
_MOST_LINES = 60


def _box(content: str) -> str:
    return f'<div class="lazy-box">{_STYLE}{content}</div>'


def describe(tensor: Any) -> str:
    """A lazy tensor as HTML: shape, state, the line that made it, and while it is pending its graph; nothing is executed.

    Args:
        tensor: a lazy tensor of any frontend, or a core value.

    Raises:
        TypeError: it is no lazy tensor.
    """
    value = dump.value_of(tensor)
    shape, state = html.escape(str(value.shape)), "pending" if value.array is None else "computed"
    name = type(tensor).__name__
    head = f"<b>{html.escape(name)}</b> <code>{shape}</code> <span class='soft'>{state}</span>"
    if value.array is not None or value.expr.node is None:
        return _box(head)
    node = value.expr.node
    operations = sum(isinstance(item, Node) for item in post_order((value.expr,)))
    text = dump.graph_text((value.expr,))
    lines = text.splitlines()
    left_out = [f"... {len(lines) - _MOST_LINES} lines before"] if len(lines) > _MOST_LINES else []
    picture = drawing.draw(text)
    line = f"<code>{html.escape(node.op.name)}</code> at <code>{html.escape(summary.short(node.site))}</code>"
    return _box(
        f"{head}<br>{operations} operation{'s' if operations != 1 else ''} recorded, the last {line}"
        f"<details><summary>graph</summary>{f'<div class=picture>{picture}</div>' if picture else ''}"
        f"<pre>{html.escape(chr(10).join([*left_out, *lines[-_MOST_LINES:]]))}</pre></details>"
    )


def pending_html(tensor: Any) -> str | None:
    """What `describe` says of a tensor that is pending; None for any other object, which a notebook shows as it always does."""
    try:
        return describe(tensor) if dump.value_of(tensor).array is None else None
    except TypeError:
        return None


def bundle(tensor: Any, include: Any = None, exclude: Any = None) -> dict[str, str] | None:
    """A pending tensor for notebooks: as HTML, and as text, so that they do not call its `repr`, which would compute it; else None.

    Args:
        tensor: any object.
        include: kinds of content to give; all by default.
        exclude: kinds to leave out.
    """
    found = pending_html(tensor)
    if found is None:
        return None
    made = {"text/html": found, "text/plain": f"<lazy {dump.explain(tensor)}>"}
    return {k: v for k, v in made.items() if (not include or k in include) and k not in (exclude or ())}


def attach(cls: type) -> None:
    """Let notebooks show pending tensors of a class without running them; all others as before."""
    cls._repr_html_ = pending_html  # type: ignore[attr-defined]
    cls._repr_mimebundle_ = bundle  # type: ignore[attr-defined]


def report(shown: summary.Report) -> str:
    """A report as HTML for a cell of a notebook: counters, which tier runs what, the latest events."""
    counters = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td class=n>{value:,.3f}</td></tr>"
        if isinstance(value, float)
        else f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td class=n>{value:,}</td></tr>"
        for name, value in shown.counters.items()
        if value
    )
    rows = "".join(
        f"<tr><td>{e.kind}</td><td>{html.escape(e.cause)}</td><td><code>{html.escape(summary.short(e.site))}</code></td></tr>"
        for e in [e for e in shown.events if e.kind not in ("execute", "native", "range")][-20:]
    )
    traces = "".join(f"<tr>{''.join([f'<td>{html.escape(cell)}</td>' for cell in row.cells()])}</tr>" for row in shown.traces[-20:])
    heads = "".join([f"<th>{html.escape(name)}</th>" for name in summary.TRACE_HEADS])
    fallbacks = "".join([f"<tr><td>{html.escape(name)}</td><td class=n>{count:,}</td></tr>" for name, count in shown.fallbacks.items()])
    parts = [
        ("counters", f"<table>{counters}</table>" if counters else ""),
        ("which tier runs what", f"<table><tr>{heads}</tr>{traces}</table>" if traces else ""),
        ("fallbacks", f"<table>{fallbacks}</table>" if fallbacks else ""),
        ("latest events", f"<table>{rows}</table>" if rows else ""),
    ]
    body = "".join(
        f"<details{' open' if name == 'counters' else ''}><summary>{name}</summary>{content}</details>"
        for name, content in parts
        if content
    )
    return _box(f"<b>Lazy report</b>: {html.escape(summary.headline(shown.counters))}{body}")
