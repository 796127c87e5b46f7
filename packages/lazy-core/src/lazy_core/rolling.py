"""Loops in a graph: rounds that were recorded one after another, found again so that they are compiled once.

Owns: finding them, and what each round takes from where. A loop of the host's language leaves its body in the graph once for every round,
and XLA's CPU compiler makes the same kernels anew for each: a step that runs an LSTM over 32 elements took it 17 s of processor time, and
takes it 3 s as loops (and 18 ms to run instead of 24). Pure logic: it sees operations and where their operands come from; `lowering` runs
what it finds. May import `ir`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .ir import Const, Expr, Node

# A loop has at least so many rounds, ...
FEWEST_ROUNDS = 8
# ... leaves out at least so many operations (one of a large program takes XLA some milliseconds), ...
FEWEST_SAVED = 32
# ... has at most so many in its body, ...
_LONGEST_BODY = 1_000
# ... and a round may use what so many rounds before it made, at most: a step in time looks back one or two.
_DEEPEST = 4
# Where a round begins is chosen among so many places, ...
_PHASES = 4
# ... and so many repetitions are looked into before a part of a graph is left as it is.
_MOST_TRIED = 8
# What leaves so little of a graph is not searched in another order.
_ENOUGH = 8
# Bringing together what differs from round to round may move so many bytes for each that the rounds make: a layer's weights would be copied
# at every step. And so many in all: they take memory besides.
_MOST_MOVED = 0.5
_MOST_MOVED_BYTES = 32 << 20
# What is read after the loop is kept of all rounds: of so many times as many as are read, at most, unless that is little.
_MOST_KEPT = 2
_LITTLE_BYTES = 1 << 20
# Operations that XLA fuses over many rounds, whose values then never leave the registers: 60 rounds of z * z + c on 100,000 elements take
# 2.8 ms unrolled and 6.3 ms in a loop. A body of nothing else stays unrolled; it is compiled quickly besides.
_FUSED_FAMILIES = frozenset(("arithmetic", "binary", "compare", "elementwise_unary"))
_FUSED = frozenset(
    ("reshape", "transpose", "broadcast_to", "expand_dims", "squeeze", "slice", "full", "iota", "strided_read", "strided_read_at")
)


@dataclass(frozen=True)
class Carry:
    """What goes from one round to the next.

    Attributes:
        start: what the first round finds.
        made_by: the operation of the body and the output whose value the next round finds; None for what `behind` was in this round.
        behind: the position of another carry.
    """

    start: Expr
    made_by: tuple[int, int] | None
    behind: int = -1


@dataclass(frozen=True)
class Made:
    """An operand that the round makes itself: an operation of the body and its output."""

    by: int
    index: int


@dataclass(frozen=True)
class Carried:
    """An operand that an earlier round made: a position among the loop's carries."""

    position: int


@dataclass(frozen=True)
class Fixed:
    """An operand that is the same in all rounds."""

    expr: Expr


@dataclass(frozen=True)
class Varying:
    """An operand of which each round has its own, from outside of the loop: a position in `Loop.varying`."""

    position: int


Operand = Made | Carried | Fixed | Varying


@dataclass(frozen=True)
class Loop:
    """Rounds of the same operations.

    Attributes:
        rounds: the operations of each round; those of the first stand for all.
        operands: for each operation of the body, where its operands come from.
        carries: what goes from round to round.
        varying: for each operand that differs, its expressions, one a round.
        stacked: operations of the body and their outputs of which several rounds' values are read after the loop.
        last: those of which only the last round's value is.
        deepest: how many rounds back a round looks at most; 1 where it looks at none.
    """

    rounds: tuple[tuple[Node, ...], ...]
    operands: tuple[tuple[Operand, ...], ...]
    carries: tuple[Carry, ...]
    varying: tuple[tuple[Expr, ...], ...]
    stacked: tuple[tuple[int, int], ...]
    last: tuple[tuple[int, int], ...]
    deepest: int


def roll(nodes: Sequence[Node], outputs: Sequence[Expr]) -> list[Node | Loop]:
    """The operations of a graph, inputs first, with the loops among them as such.

    Two orders are searched, whichever shows more: the one given, and that in which the operations were first recorded, where a round's
    are together although nothing else connects them.

    Args:
        nodes: the operations.
        outputs: what the graph returns.
    """
    if len(nodes) < FEWEST_SAVED:
        return list(nodes)
    found = _search(nodes, outputs)
    ordered = any([node.op.in_place is not None for node in nodes])  # the order of writes is `lowering`'s
    if len(found) > len(nodes) // _ENOUGH and not ordered:
        recorded = sorted(nodes, key=lambda node: node.outputs[0].id)
        other = _search(recorded, outputs)
        if len(other) < len(found):
            return other
    return found


def _search(nodes: Sequence[Node], outputs: Sequence[Expr]) -> list[Node | Loop]:
    """The operations in this order with the loops among them, but for those whose operands would take too much memory."""
    steps: list[Node | Loop] = []
    rows: set[int] = set()  # what loops before have stacked need not be brought together
    for step in _Search(nodes, outputs).steps():
        if isinstance(step, Loop):
            if sum([e.shape.nbytes for e in _brought(step) if id(e) not in rows]) > _MOST_MOVED_BYTES:
                steps.extend([node for one in step.rounds for node in one])
                continue
            rows.update([id(one[by].outputs[index]) for one in step.rounds for by, index in step.stacked])
        steps.append(step)
    return steps


def _brought(loop: Loop) -> list[Expr]:
    """What differs from round to round but for constants, which are part of the program."""
    return [e for exprs in loop.varying for e in exprs if not isinstance(e, Const)]


# How an operand is related to the round that has it: "in" the round, "back" in an earlier one, or "out"side of all; then how many rounds
# back, which operation of the body and which output.
_Relation = tuple[str, int, int, int]
_OUTSIDE: _Relation = ("out", 0, 0, 0)


class _Search:
    """The search for loops in one sequence of operations."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Expr]) -> None:
        self._nodes = nodes
        self._last_read = {id(expr): k for k, node in enumerate(nodes) for expr in node.inputs}
        self._last_read.update({id(expr): len(nodes) for expr in outputs})
        self._position = {id(node): k for k, node in enumerate(nodes)}
        unfused = [node.op.family not in _FUSED_FAMILIES and node.op.name not in _FUSED for node in nodes]
        self._unfused = np.concatenate([[0], np.cumsum(unfused)])  # how many there are before each place
        kinds: dict[object, int] = {}
        self._kinds = np.array([kinds.setdefault(self._kind(k, node), len(kinds)) for k, node in enumerate(nodes)])

    @staticmethod
    def _kind(k: int, node: Node) -> object:
        if node.op.in_place is not None:
            return k  # where a write goes depends on who reads what it writes to: no two are alike
        return id(node.op), id(node.attrs), tuple([e.shape for e in node.inputs])

    def steps(self) -> Iterator[Node | Loop]:
        """The operations in order, and loops instead of those that are in one."""
        pending: list[Loop | tuple[int, int]] = [(0, len(self._nodes))]
        while pending:
            part = pending.pop()
            if isinstance(part, Loop):
                yield part
                continue
            begin, end = part
            found = self._best(begin, end)
            if found is None:
                yield from self._nodes[begin:end]
            else:
                first, loop = found
                pending += [(first + len(loop.rounds) * len(loop.rounds[0]), end), loop, (begin, first)]

    def _best(self, begin: int, end: int) -> tuple[int, Loop] | None:
        """The best loop in a part of the sequence, and where it begins."""
        tried: list[tuple[int, int, int]] = []
        for _, start, period, size in self._repeats(begin, end):
            # What does not hold for a body does not for twice that body either, mostly.
            if any([period % p == 0 and first <= start and start + size <= first + length for first, p, length in tried]):
                continue
            found = self._loop(start, period, size)
            tried.append((start, period, size))
            if found is not None or len(tried) == _MOST_TRIED:
                return found
        return None

    def _repeats(self, begin: int, end: int) -> list[tuple[int, int, int, int]]:
        """Where a part of the sequence repeats itself, the best first: (operations saved, start, period, length)."""
        kinds, found = self._kinds[begin:end], []
        for period in range(1, min(len(kinds) // FEWEST_ROUNDS, _LONGEST_BODY) + 1):
            equal = kinds[period:] == kinds[:-period]
            if np.count_nonzero(equal) < (FEWEST_ROUNDS - 1) * period:
                continue
            edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
            for start, stop in zip((edges[::2] + begin).tolist(), (edges[1::2] + begin).tolist(), strict=True):
                size = stop - start + period
                saved = (size // period - 1) * period
                fused = self._unfused[start + period] == self._unfused[start]
                if size >= FEWEST_ROUNDS * period and saved >= FEWEST_SAVED and not fused:
                    found.append((saved, start, period, size))
        return sorted(found, key=lambda f: (-f[0], f[2], f[1]))

    def _loop(self, start: int, period: int, size: int) -> tuple[int, Loop] | None:
        """The loop in a stretch that repeats itself, and where it begins, or None if its rounds are not connected alike."""
        best: tuple[tuple[int, int], int, Loop] | None = None
        for first in range(start, start + min(size % period + 1, period, _PHASES)):
            count = (start + size - first) // period
            relations = [self._relations(first, period, k) for k in range(count)]
            low, high = _alike(relations)
            if high - low < FEWEST_ROUNDS or (high - low - 1) * period < FEWEST_SAVED:
                continue
            loop = self._build(first + low * period, period, relations[low:high])
            cost = low - high, len(loop.carries)
            if self._worthwhile(loop) and (best is None or cost < best[0]):
                best = cost, first + low * period, loop
        return None if best is None else best[1:]

    def _relations(self, first: int, period: int, k: int) -> list[_Relation]:
        """How each operand of a round is related to it, where the first round begins at `first`."""
        found = []
        for node in self._nodes[first + k * period : first + (k + 1) * period]:
            for expr in node.inputs:
                position = -1 if expr.node is None else self._position[id(expr.node)] - first
                if position < 0:
                    found.append(_OUTSIDE)
                else:
                    j, by = divmod(position, period)
                    found.append(("in" if j == k else "back", k - j, by, expr.index))
        return found

    def _build(self, first: int, period: int, relations: list[list[_Relation]]) -> Loop:
        count, regular = len(relations), relations[-1]
        rounds = tuple([tuple(self._nodes[first + k * period : first + (k + 1) * period]) for k in range(count)])
        carries: list[Carry] = []
        varying: dict[tuple[Expr, ...], int] = {}  # and the position of each
        found = iter(regular)

        def carry(made_by: tuple[int, int], starts: list[Expr]) -> int:
            """The position of what was made as many rounds ago as there are starts: the earliest round's is the first."""
            new = Carry(starts[0], made_by) if len(starts) == 1 else Carry(starts[0], None, carry(made_by, starts[1:]))
            if new not in carries:
                carries.append(new)
            return carries.index(new)

        def operand(of: int, slot: int) -> Operand:
            how, back, by, index = next(found)
            if how == "in":
                return Made(by, index)
            exprs = tuple([one[of].inputs[slot] for one in rounds])
            if how == "back":
                return Carried(carry((by, index), list(exprs[:back])))
            if all([e is exprs[0] for e in exprs]):
                return Fixed(exprs[0])
            return Varying(varying.setdefault(exprs, len(varying)))

        operands = tuple([tuple([operand(of, slot) for slot in range(len(node.inputs))]) for of, node in enumerate(rounds[0])])
        stacked, last = self._read_later(rounds, first + count * period)
        return Loop(rounds, operands, tuple(carries), tuple(varying), stacked, last, _deepest(regular))

    def _worthwhile(self, loop: Loop) -> bool:
        """Whether bringing together what differs moves little compared with what the rounds make, and little is kept unread."""
        made = sum([e.shape.nbytes for one in loop.rounds for node in one for e in node.outputs])
        if sum([e.shape.nbytes for e in _brought(loop)]) > _MOST_MOVED * made:
            return False
        end = self._position[id(loop.rounds[-1][-1])] + 1
        kept = [one[by].outputs[index] for one in loop.rounds for by, index in loop.stacked]
        read = sum([e.shape.nbytes for e in kept if self._last_read.get(id(e), -1) >= end])
        return sum([e.shape.nbytes for e in kept]) <= max(_LITTLE_BYTES, _MOST_KEPT * read)

    def _read_later(self, rounds: Sequence[Sequence[Node]], end: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """What is read from `end` on: of several rounds, and of the last one only."""
        stacked: list[tuple[int, int]] = []
        last: list[tuple[int, int]] = []
        for by, node in enumerate(rounds[0]):
            for index in range(len(node.outputs)):
                read = [k for k, one in enumerate(rounds) if self._last_read.get(id(one[by].outputs[index]), -1) >= end]
                if read:
                    (last if read == [len(rounds) - 1] else stacked).append((by, index))
        return tuple(stacked), tuple(last)


def _deepest(relations: list[_Relation]) -> int:
    """How many rounds back a round looks at most."""
    return max([back for how, back, _, _ in relations if how == "back"], default=1)


def _alike(relations: list[list[_Relation]]) -> tuple[int, int]:
    """The longest stretch of rounds that are connected alike, as a half-open range; the first may find what no round made."""
    best = (0, 0)
    low = 0
    while low < len(relations):
        regular, high = relations[low], low + 1
        while high < len(relations) and relations[high] == regular:
            high += 1
        if _deepest(regular) <= _DEEPEST:
            begin = low
            while begin > 0 and _begins(relations, regular, begin - 1, low):
                begin -= 1
            if high - begin > best[1] - best[0]:
                best = (begin, high)
        low = high
    return best


def _begins(relations: list[list[_Relation]], regular: list[_Relation], begin: int, low: int) -> bool:
    """Whether the rounds from `begin` to `low` can come before the regular ones: where they differ, they find what no round made."""
    for k in range(begin, low):
        for relation, wanted in zip(relations[k], regular, strict=True):
            if relation != wanted:
                how, back, _, _ = relation
                early = wanted[0] == "back" and k - wanted[1] < begin
                if not early or how == "in" or (how == "back" and k - back >= begin):
                    return False
    return True
