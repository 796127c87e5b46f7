"""Why a program was compiled: the nearest program known from the same place, and the first difference from it.

Owns: a bounded memory of compiled graphs by the line that recorded their last operation, and the sentence that a report
shows.  Nothing here is touched while a cache hits.  May import `lowering`, `ir`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import zip_longest

from .lowering import Graph

_PLACES = 256
_PER_PLACE = 4


@dataclass(frozen=True)
class _Sketch:
    """What is kept of a compiled graph: one line an input and an operation, in the user's terms."""

    inputs: tuple[str, ...]
    operations: tuple[tuple[str, str, str | None, str], ...]  # name, result, line, attributes
    outputs: tuple[str, ...]


_known: OrderedDict[str | None, list[_Sketch]] = OrderedDict()


def site(graph: Graph) -> str | None:
    """The user's line that recorded the last operation of a graph."""
    return graph.nodes[-1].site if graph.nodes else None


def _sketch(graph: Graph) -> _Sketch:
    return _Sketch(
        tuple([str(leaf.shape) for leaf in graph.leaves]),
        tuple([(n.op.name, str(n.outputs[0].shape), n.site, n.attrs.name) for n in graph.nodes]),
        tuple([str(e.shape) for e in graph.outputs]),
    )


def remember(graph: Graph) -> None:
    """Keep a graph as what later ones from the same place are compared with."""
    place = site(graph)
    sketches = _known.setdefault(place, [])
    sketches.append(_sketch(graph))
    del sketches[:-_PER_PLACE]
    _known.move_to_end(place)
    while len(_known) > _PLACES:
        _known.popitem(last=False)


def forget() -> None:
    """Forget every graph."""
    _known.clear()


def explain(graph: Graph) -> str:
    """Why this graph is not one of those known, in one sentence with a suggestion where there is one."""
    sketches = _known.get(site(graph))
    new = _sketch(graph)
    if not sketches:
        return f"the first program of {len(new.operations)} operations that ends at this line"
    nearest = max(sketches, key=lambda old: (_agree(old.operations, new.operations), old.inputs == new.inputs))
    return _difference(nearest, new)


def _agree(left: tuple[object, ...], right: tuple[object, ...]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _difference(old: _Sketch, new: _Sketch) -> str:
    for k, (before, after) in enumerate(zip_longest(old.inputs, new.inputs)):
        if before is not None and after is not None and before != after:
            return f"input {k} changed from {before} to {after}{_advice(before, after)}"
    for k, (was, now) in enumerate(zip_longest(old.operations, new.operations)):
        if was is None:
            return f"{len(new.operations) - k} more operations follow, first {now[0]} at {now[2]}"
        if now is None:
            return f"the last {len(old.operations) - k} operations are missing, first {was[0]} at {was[2]}"
        if was[0] != now[0]:
            return f"operation {k} is {now[0]} at {now[2]} where {was[0]} at {was[2]} was: the program took another way"
        if was[1] != now[1]:
            return f"operation {k}, {now[0]} at {now[2]}, now gives {now[1]} instead of {was[1]}{_advice(was[1], now[1])}"
        if was[3] != now[3]:
            return f"operation {k}, {now[0]} at {now[2]}, now has {now[3]} instead of {was[3]}: a Python value that is part of the program"
    if len(old.inputs) != len(new.inputs):
        return (
            f"it reads {len(new.inputs)} buffers instead of {len(old.inputs)}: "
            "which of them are the same buffer, or were computed before, changed"
        )
    if old.outputs != new.outputs:
        more = len(new.outputs) - len(old.outputs)
        return (
            f"{abs(more)} {'more' if more > 0 else 'fewer'} values are alive ({len(new.outputs)} instead of {len(old.outputs)}): "
            "a tensor that is kept from step to step, or no longer"
        )
    return "the same operations are connected in another way, hold other constants, or keep other buffers alive"


def _advice(before: str, after: str) -> str:
    left, right = before.partition("[")[2], after.partition("[")[2]
    if before.partition("[")[0] == after.partition("[")[0] and left.count(",") == right.count(","):
        a, b = left.rstrip("]").split(","), right.rstrip("]").split(",")
        if a[1:] == b[1:] and a[0] != b[0] and a[0] and b[0]:
            return " (only the first size differs: if it is the last batch of a data set, drop it or pad it)"
    return ""
