"""Why a program was compiled: the nearest program known from the same place, and the first difference from it.

Owns: a bounded memory of compiled graphs by the line that recorded their last operation, and the sentence that a report
shows.  Nothing here is touched while a cache hits.  May import `lowering`, `ir`.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from .ir import Const, Expr, Leaf, ScalarLeaf
from .lowering import Graph

_PLACES = 256
_PER_PLACE = 4
FED = "a number that is fed at run time"


class _Operation(NamedTuple):
    """What is kept of a recorded operation.

    Attributes:
        name: the operation's.
        site: the user's line.
        result: the shapes that it gives.
        attributes: its static attributes, as text.
        numbers: for each operand the constant that it is, `FED`, or nothing.
    """

    name: str
    site: str | None
    result: str
    attributes: str
    numbers: tuple[str, ...]


# Who reads a buffer first: an operation's name and line, and which of its operands the buffer is.
_Reader = tuple[str, str | None, int]


@dataclass(frozen=True)
class _Sketch:
    """What is kept of a compiled graph, in the user's terms; equal operations are counted, so that a long loop takes little.

    Attributes:
        buffers: the shapes of what it reads, by who reads it first.
        operations: how often each operation is recorded, in the order of the first of each.
        outputs: shape, operation and line of what it returns.
    """

    buffers: dict[_Reader, tuple[str, ...]]
    operations: Counter[_Operation]
    outputs: tuple[str, ...]

    def total(self) -> int:
        """How many operations it has."""
        return sum(self.operations.values())


_known: OrderedDict[str | None, list[_Sketch]] = OrderedDict()


def site(graph: Graph) -> str | None:
    """The user's line that recorded the last operation of a graph."""
    return graph.nodes[-1].site if graph.nodes else None


def _sketch(graph: Graph) -> _Sketch:
    buffers: dict[_Reader, list[str]] = {}
    operations: Counter[_Operation] = Counter()
    seen: set[int] = set()
    for node in graph.nodes:
        for k, operand in enumerate(node.inputs):
            if isinstance(operand, Leaf) and id(operand) not in seen:
                seen.add(id(operand))
                buffers.setdefault((node.op.name, node.site, k), []).append(str(operand.shape))
        if node.op.name == "convert" and isinstance(node.inputs[0], ScalarLeaf):
            continue  # part of feeding a number: see `_number`
        result = " and ".join([str(e.shape) for e in node.outputs])
        operations[_Operation(node.op.name, node.site, result, node.attrs.name, tuple([_number(e) for e in node.inputs]))] += 1
    return _Sketch({reader: tuple(shapes) for reader, shapes in buffers.items()}, operations, tuple([_output(e) for e in graph.outputs]))


def _number(operand: Expr) -> str:
    if isinstance(operand, Const):
        return str(operand.value)
    if operand.node is not None and operand.node.op.name == "convert":  # a number is fed in 64 bits, and converted
        operand = operand.node.inputs[0]
    return FED if isinstance(operand, ScalarLeaf) else ""


def _output(expr: Expr) -> str:
    return f"{expr.shape} of {expr.node.op.name}{_at(expr.node.site)}" if expr.node is not None else str(expr.shape)


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
        return f"the first program of {new.total()} operation{_s(new.total())} that ends at this line"
    nearest = max(reversed(sketches), key=lambda old: ((old.operations & new.operations).total(), _equal_sizes(old, new)))
    return (
        _another_buffer(nearest, new, sketches)
        or _other_operations(nearest, new)
        or _another_parameter(nearest, new)
        or _other_holders(nearest, new)
        or "the same operations are connected in another way, or keep other buffers alive"
    )


def _equal_sizes(old: _Sketch, new: _Sketch) -> int:
    """In how many dimensions the buffers of two sketches agree."""
    count = 0
    for reader, shapes in new.buffers.items():
        for then, now in zip(old.buffers.get(reader, ()), shapes, strict=False):
            count += sum(a == b for a, b in zip(_parts(then)[1], _parts(now)[1], strict=False))
    return count


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _at(place: str | None) -> str:
    return f" at {os.path.basename(place)}" if place else ""


# ------------------------------------------------------------------ buffers


def _another_buffer(old: _Sketch, new: _Sketch, history: Sequence[_Sketch]) -> str | None:
    """A buffer of another shape or dtype where there was one before."""
    changed = []
    for reader, shapes in new.buffers.items():
        then = old.buffers.get(reader, ())
        if len(then) == len(shapes):
            gone, come = (Counter(then) - Counter(shapes)).elements(), (Counter(shapes) - Counter(then)).elements()
            changed += [(reader, before, after) for before, after in zip(gone, come, strict=True)]
    if not changed:
        return None
    reader, before, after = changed[0]
    (name, place, operand), k = reader, new.buffers[reader].index(after)
    shown = [sketch.buffers[reader][k] for sketch in history if len(sketch.buffers.get(reader, ())) > k]
    others = f", and {len(changed) - 1} more buffer{_s(len(changed) - 1)}" if len(changed) > 1 else ""
    return f"operand {operand + 1} of {name}{_at(place)} changed from {before} to {after}{others}{_advice([*shown, after], before)}"


def _parts(shape: str) -> tuple[str, list[int]]:
    dtype, _, dims = shape.rstrip("]").partition("[")
    return dtype, [int(d) for d in dims.split(",") if d]


def _advice(shown: Sequence[str], before: str) -> str:
    """What to do about a buffer that had these shapes, the latest last, and differs from `before`."""
    (was, old), (dtype, new) = _parts(before), _parts(shown[-1])
    if was != dtype:
        return f": another dtype; convert it to {was} where it comes from" if old == new else ": another dtype and shape"
    if len(old) != len(new):
        return ": another number of dimensions"
    differing = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(differing) > 1:
        return f": sizes {' and '.join(map(str, differing))} differ, counted from 0; bring it to few shapes, by padding for example"
    d = differing[0]
    sizes = [dims[d] for kind, dims in map(_parts, shown) if kind == dtype and len(dims) > d]
    steps = {b - a for a, b in pairwise(sizes)}
    if len(sizes) > 2 and len(steps) == 1:
        return (
            f": size {d}, counted from 0, grows by {steps.pop()} each time, as a sequence does; write into a buffer of the final length, "
            "or pad to few lengths"
        )
    if len(set(sizes)) > 2:
        return f": size {d}, counted from 0, keeps changing ({', '.join(map(str, sizes))}); pad it to few sizes"
    if d == 0:
        return ": only the first size differs; if it is the last batch of a data set, drop it or pad it"
    return f": only size {d} differs, counted from 0; pad it if it changes often"


# ------------------------------------------------------------------ operations


def _other_operations(old: _Sketch, new: _Sketch) -> str | None:
    """Operations that are recorded at other lines, or another number of times."""
    before, after = _by_line(old), _by_line(new)
    more, fewer = after - before, before - after
    if not more and not fewer:
        return None
    gained, lost = (f"{name}{_at(place)}" for name, place in (next(iter(some), ("", None)) for some in (more, fewer)))
    if more and fewer:
        return f"{gained} is recorded now, and {lost} is not: the program took another way"
    key = next(iter(more or fewer))
    if before[key] and after[key]:
        return (
            f"{gained or lost} was recorded {after[key]} time{_s(after[key])} instead of {before[key]}: "
            "a loop ran another number of rounds, or the trace began or ended elsewhere"
        )
    count = abs(new.total() - old.total())
    if more:
        return f"{count} more operation{_s(count)}, first {gained}: this part of the program did not run before, or in another trace"
    return f"{count} operation{_s(count)} fewer, first {lost}: this part of the program does not run now, or in another trace"


def _by_line(sketch: _Sketch) -> Counter[tuple[str, str | None]]:
    found: Counter[tuple[str, str | None]] = Counter()
    for operation, count in sketch.operations.items():
        found[operation.name, operation.site] += count
    return found


def _another_parameter(old: _Sketch, new: _Sketch) -> str | None:
    """An operation that has another number, attribute or result than the one at the same line had."""
    for now in new.operations - old.operations:
        was = next((o for o in old.operations - new.operations if (o.name, o.site) == (now.name, now.site)), None)
        if was is None:
            continue
        where = f"{now.name}{_at(now.site)}"
        for a, b in zip(was.numbers, now.numbers, strict=False):
            if a == b:
                continue
            if b == FED and a:
                return f"the number {a} of {where} changed, and is fed at run time from now on: it will not be a reason again"
            if a and b:
                return (
                    f"the number {a} of {where} is {b} now, and part of the program: if it changes again, it will be fed at run time"
                    if a != FED
                    else f"the number of {where} is {b} now, and part of the program"
                )
        if was.result != now.result:
            advice = _advice([was.result, now.result], was.result) if " " not in was.result + now.result else ""
            return f"{where} now gives {now.result} instead of {was.result}{advice}"
        if was.attributes != now.attributes:
            return (
                f"{where} now has {now.attributes} instead of {was.attributes}: a Python value that is part of the program; "
                "use a tensor if it changes often"
            )
    return None


# ------------------------------------------------------------------ what is alive


def _other_holders(old: _Sketch, new: _Sketch) -> str | None:
    """Other values are alive at the end, or other buffers are read at the beginning."""
    before, after = Counter(old.outputs), Counter(new.outputs)
    difference = len(new.outputs) - len(old.outputs)
    word, changed = ("more", after - before) if difference > 0 else ("fewer", before - after)
    if changed and not difference:
        return f"{next(iter(after - before))} is alive instead of {next(iter(changed))}: another tensor is kept"
    if changed:
        count = abs(difference)
        are = f"{count} {word} value{_s(count)} {'is' if count == 1 else 'are'} alive ({len(new.outputs)} instead of {len(old.outputs)})"
        return f"{are}, first {next(iter(changed))}: a tensor that {'is kept from step to step' if difference > 0 else 'is no longer kept'}"
    reads, read = (sum(map(len, sketch.buffers.values())) for sketch in (new, old))
    if reads != read:
        return f"it reads {reads} buffers instead of {read}: which of them are the same buffer, or were computed before, changed"
    return None
