"""What the `lazy` command says of a capsule.

Owns: the text of `lazy run FILE.lzt` and `lazy graph FILE.lzt`.  May import `capsule`, `capture`, `dump`, `page`, `statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import backend, capsule, dump, faults, lowering, page, statistics, summary
from .capsule import Capsule, Trace
from .capture import Replayed, replay

SUFFIX = ".lzt"
# How many inputs, and how many outputs, are listed.
_MOST_ROWS = 20


def run(path: str) -> int:
    """Replay a capsule and print what comes out; returns 0 if both tiers agree, 1 if one failed, 3 if they differ.

    Raises:
        CapsuleError: the file is no capsule.
        OSError: it cannot be read.
    """
    read = capsule.load(path)
    print(_head(path, read))
    status = 0
    for number, captured in enumerate(read.traces, 1):
        again = replay(captured)
        for line in _trace(number, captured, again, read):
            print(line)
        failed = again.native is None or again.compiled is None
        status = max(status, 1 if failed else 0 if again.agrees else 3)
    return status


def graph(path: str, number: int | None, form: str) -> int:
    """Print a graph of a capsule, counted from 1, the latest by default.

    Raises:
        CapsuleError: the file is no capsule.
        ValueError: it has no such trace.
        OSError: it cannot be read.
    """
    traces = capsule.load(path).traces
    chosen = len(traces) if number is None else number
    if not 1 <= chosen <= len(traces):
        raise ValueError(f"there is no trace {chosen}; there are {len(traces)}")
    found = traces[chosen - 1].graph
    text = dump.graph_text(found.outputs)
    if form == "text":
        print(text)
    elif form == "dot":
        print(dump.dot(text))
    else:
        stablehlo = backend.lower(lowering.function_of(found), found.argument_shapes).text
        print(stablehlo if form == "stablehlo" else page.render_graph(chosen, text, stablehlo))
    return 0


def _head(path: str, read: Capsule) -> str:
    here = capsule.versions()
    other = [f"{name} {version} (here {here.get(name, 'none')})" for name, version in read.versions.items() if here.get(name) != version]
    same = [f"{name} {version}" for name, version in read.versions.items() if here.get(name) == version]
    count = len(read.traces)
    lines = [f"{path}: {count} trace{'s' if count != 1 else ''}, made with {', '.join(same) or 'other versions'}"]
    return "\n".join(lines + ([f"  other versions: {', '.join(other)}"] if other else []))


def _trace(number: int, captured: Trace, again: Replayed, read: Capsule) -> Iterator[str]:
    graph = captured.graph
    yield f"trace {number}: {len(graph.nodes)} operations, ended by {captured.cause}"
    if captured.error is not None:
        yield f"  failed where it was captured: {captured.error}"
    yield from _inputs(captured)
    for tier, error in (("natively", again.native_error), ("compiled", again.compiled_error)):
        if error is not None:
            yield f"  failed {tier}: {error}"
    yield from _outputs(captured, again)
    if again.native is None or again.compiled is None:
        return
    for fault in again.faults:
        yield f"  {fault}  at {fault.site or 'an unknown line'}"
        if fault.site in read.lines:
            yield f"      {read.lines[fault.site]}"
    if not again.faults:
        yield "  native and compiled results agree"


def _some(rows: Sequence[Any]) -> tuple[Sequence[Any], list[str]]:
    return rows[:_MOST_ROWS], [f"    and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else []


def _inputs(captured: Trace) -> Iterator[str]:
    if not captured.graph.leaves:
        return
    yield "  inputs"
    rows, more = _some(captured.graph.leaves)
    for k, leaf in enumerate(rows):
        notes = ["made up from statistics"] if k in captured.generated else []
        notes += [f"result of {captured.computed[k]}"] if k in captured.computed else []
        told = statistics.text(statistics.describe(captured.inputs.leaf(leaf)))
        yield f"    {leaf.shape!s:<16} {told}{' (' + ', '.join(notes) + ')' if notes else ''}"
    yield from more


def _outputs(captured: Trace, again: Replayed) -> Iterator[str]:
    yield "  outputs"
    rows, more = _some(captured.graph.outputs)
    for k, expr in enumerate(rows):
        assert expr.node is not None
        yield f"    {expr.shape!s:<16} of {expr.node.op.name} at {summary.short(expr.node.site)}"
        before = captured.results[k] if k < len(captured.results) else None
        told = {"when captured": before, **{n: statistics.describe(r[k]) for n, r in _runs(again)}}
        for name, found in told.items():
            if found is not None:
                yield f"      {name:<14} {statistics.text(found)}"
        if again.native is not None and again.compiled is not None:
            yield f"      largest difference between the two {faults.largest(again.compiled[k], again.native[k]):.3g}"
    yield from more


def _runs(again: Replayed) -> Iterator[tuple[str, list[Any]]]:
    for name, results in (("native", again.native), ("compiled", again.compiled)):
        if results is not None:
            yield name, results
