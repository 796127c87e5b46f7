"""Lowering: from live expressions to one function of arrays that JAX can trace.

Owns: linearising a graph from its outputs, its structural key, running the operations' own functions in order, and where
writes put their results.
May import `ir`, `shape`, `errors`, `trace`, `config`, `deferred`, `pacing`, `rolling`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import pacing, rolling, trace
from .config import config
from .deferred import jnp, lax
from .errors import ExecutionError, LazyError
from .ir import Const, Expr, Leaf, Node, ScalarLeaf, post_order
from .ops import registry
from .shape import Shape

KINDS = "fic"


@dataclass(frozen=True)
class Graph:
    """A pending graph, renumbered from its outputs.

    Attributes:
        leaves: the buffers that it reads, in order of first use.
        scalars: for each kind (f, i, c) the run-time scalars that it reads, in order of first use.
        nodes: the operations, inputs first.
        outputs: the expressions that it returns, each once.
        exact: whether every division, sum and product is to be computed as it stands.
        key: the structure without names, and that: equal keys mean equal programs, whoever recorded them.
    """

    leaves: tuple[Leaf, ...]
    scalars: tuple[tuple[ScalarLeaf, ...], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Expr, ...]
    exact: bool
    key: Hashable

    @property
    def argument_shapes(self) -> list[Shape]:
        """The leaves' shapes, then one packed vector for each kind of scalar in use."""
        packed = [Shape.of((len(s),), s[0].shape.dtype) for s in self.scalars if s]
        return [leaf.shape for leaf in self.leaves] + packed


def text_of(graph: Graph) -> str | None:
    """The structural key as text, the same in every process; None if an operation is not a registered one, whose name says what it does."""
    lines = []
    number: dict[int, str] = {}
    for k, leaf in enumerate(graph.leaves):
        number[id(leaf)] = f"leaf{k}"
        lines.append(f"leaf{k} {leaf.shape}")
    for group in graph.scalars:
        number.update({id(s): f"{s.kind}{k}" for k, s in enumerate(group)})
    lines.append(" ".join(f"{kind}*{len(group)}" for kind, group in zip(KINDS, graph.scalars, strict=True)))

    def name(expr: Expr) -> str:
        if isinstance(expr, Const):
            return f"const:{expr.shape}:{expr.bits.hex()}"
        return number[id(expr)] if expr.node is None else f"{number[id(expr.node)]}.{expr.index}"

    for k, node in enumerate(graph.nodes):
        if registry.REGISTRY.get(node.op.name) is not node.op:
            return None
        number[id(node)] = str(k)
        lines.append(f"{k} {node.op.name}({', '.join([name(e) for e in node.inputs])}) {node.attrs.key!r}")
    lines.append("return " + ", ".join([name(e) for e in graph.outputs]))
    if graph.exact:
        lines.append("exact")
    return "\n".join(lines)


def linearise(outputs: Sequence[Expr], exact: bool = False) -> Graph:
    """The graph that computes these expressions (leaves and duplicates among them must have been taken out).

    Args:
        outputs: the expressions.
        exact: whether one of them is for a source that asks for exact rounding; so it is in any case where a leaf is of such a source.
    """
    scalars: dict[str, list[ScalarLeaf]] = {k: [] for k in KINDS}
    nodes: list[Node] = []
    number: dict[int, Hashable] = {}
    key: list[Hashable] = []
    items = list(post_order(outputs))
    leaves = _paired([item for item in items if isinstance(item, Leaf)], outputs)
    number.update({id(leaf): ("leaf", k, leaf.shape) for k, leaf in enumerate(leaves)})
    for item in items:
        if isinstance(item, Node):
            inputs = tuple([_reference(number, e) for e in item.inputs])
            key.append((item.op, item.attrs, inputs))
            number[id(item)] = len(nodes)
            nodes.append(item)
        elif isinstance(item, ScalarLeaf):
            number[id(item)] = (item.kind, len(scalars[item.kind]))
            scalars[item.kind].append(item)
        elif isinstance(item, Const):
            number[id(item)] = ("const", item.shape, item.bits)
    roots = tuple([_reference(number, e) for e in outputs])
    groups = tuple([tuple(scalars[k]) for k in KINDS])
    exact = not config.fast and (exact or _reads_exact(leaves, groups))
    return Graph(tuple(leaves), groups, tuple(nodes), tuple(outputs), exact, (tuple(key), roots, exact))


def _paired(leaves: list[Leaf], outputs: Sequence[Expr]) -> list[Leaf]:
    """The leaves in an order in which an array that is written to comes where the result does among the outputs of its shape.

    The memory of the first argument of a shape goes to the first output of that shape, and so on: a write then finds its base's memory.
    """
    wanted = [_written(e) for e in outputs]
    if not any(wanted):
        return leaves
    written = set(wanted)
    left = dict.fromkeys([leaf for leaf in leaves if leaf not in written])
    order: dict[Leaf, None] = {}
    for output, leaf in zip(outputs, wanted, strict=True):
        if leaf is None or leaf in order:
            leaf = next((other for other in left if other.shape is output.shape), None)
        if leaf is not None:
            left.pop(leaf, None)
            order[leaf] = None
    return [*order, *left]


def _written(expr: Expr) -> Leaf | None:
    """The leaf that an expression is, with parts of it written to."""
    below: Expr = expr
    while below.node is not None and below.node.op.in_place is not None:
        below = below.node.inputs[0]
    return below if isinstance(below, Leaf) and below is not expr else None


def _reference(number: dict[int, Hashable], expr: Expr) -> Hashable:
    return number[id(expr)] if expr.node is None else (number[id(expr.node)], expr.index)


# So many operations are looked at to find out what an update is computed from.
_MOST_ABOVE = 64


def _writes_in_place(graph: Graph) -> set[int]:
    """The writes that take the memory of their base, by the identity of their nodes: those after which nobody reads the base.

    Any other write is one pass over everything, which selects between the update and the base.  XLA computes such a pass again in each
    of its readers, and a chain of them would take time that grows exponentially: of such a chain only the first is selected.
    """
    writes = [node for node in graph.nodes if node.op.in_place is not None]
    if not writes:
        return set()
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for expr in set(node.inputs):
            readers.setdefault(id(expr), []).append(node)
    returned = {id(e) for e in graph.outputs}
    found: set[int] = set()
    for write in writes:
        base = write.inputs[0]
        above = _above(write)
        if write.op.in_place.read is None or any([node.op.in_place is not None and id(node) not in found for node in above.values()]):
            found.add(id(write))
        elif (base.node is None or id(base.node) in found) and id(base) not in returned:
            later = [node for node in readers[id(base)] if node is not write and id(node) not in above]
            if all([node.op is write.op and node.attrs is write.attrs and node.inputs[0] is base for node in later]):
                found.add(id(write))
    return found


def _above(write: Node) -> dict[int, Node]:
    """The operations that a write is computed from, the nearest ones if there are many, by identity."""
    above: dict[int, Node] = {}
    pending = [e.node for e in write.inputs if e.node is not None]
    for node in pending:
        if id(node) not in above and len(above) < _MOST_ABOVE:
            above[id(node)] = node
            pending.extend([e.node for e in node.inputs if e.node is not None])
    return above


def _reads_exact(leaves: Sequence[Leaf], groups: Sequence[Sequence[ScalarLeaf]]) -> bool:
    asking = {k for k, source in enumerate(trace.current().sources) if trace.asks_exactness(source)}
    return any([leaf.source in asking for leaf in leaves]) or any([s.source in asking for group in groups for s in group])


def gives_exact(live: Sequence[Sequence[Expr]], sources: Sequence[trace.Source]) -> bool:
    """Whether anything live (for each source its expressions) is of a source that asks for exact rounding."""
    return any([bool(exprs) and trace.asks_exactness(source) for exprs, source in zip(live, sources, strict=True)])


def function_of(graph: Graph, rolled: bool = True) -> Callable[..., tuple[Any, ...]]:
    """A function from leaf arrays and packed scalar vectors to the outputs, to be traced by the backend.

    Args:
        graph: what to compute.
        rolled: whether the loops in it are run as loops (see `rolling`).
    """
    in_place = _writes_in_place(graph)
    steps = rolling.roll(graph.nodes, graph.outputs) if rolled else graph.nodes

    def lazy_trace(*arguments: Any) -> tuple[Any, ...]:
        env = _Arrays({id(leaf): a for leaf, a in zip(graph.leaves, arguments, strict=False)})
        packed = iter(arguments[len(graph.leaves) :])
        for group in graph.scalars:
            if group:
                vector = next(packed)
                for i, s in enumerate(group):
                    env[s] = vector[i]
        written: dict[Hashable, Any] = {}  # by base and attributes, the latest write to the same places
        with trace.current().forbid_barrier("while a trace is being lowered"):
            for step in steps:
                if isinstance(step, rolling.Loop):
                    _run(step, env)
                    continue
                operands = [env[e] for e in step.inputs]
                if id(step) in in_place:
                    place = step.attrs, step.inputs[0], *step.inputs[2:]
                    operands[0] = written.get(place, operands[0])
                    results = _apply(step, operands, step.op.in_place.write)
                    written[place] = results[0]
                    if step.inputs[1].node is not None and step.op.in_place.read is not None:
                        # Whoever reads the update later finds it in its place, rather than computing it again.
                        env[step.inputs[1]] = step.op.in_place.read(results[0], **step.attrs.kwargs)
                else:
                    results = _apply(step, operands, step.op.fn)
                for expr, result in zip(step.outputs, results, strict=True):
                    env[expr] = result
        return tuple([env[e] for e in graph.outputs])

    return lazy_trace


class _Arrays:
    """The arrays of expressions while a graph is lowered: by themselves, or as rows of what a loop has stacked."""

    def __init__(self, found: dict[int, Any]) -> None:
        self._found = found
        self._rows: dict[int, tuple[Any, int]] = {}

    def __getitem__(self, expr: Expr) -> Any:
        found = self._found.get(id(expr))
        if found is not None:
            return found
        if isinstance(expr, Const):
            return expr.value
        stack, k = self._rows[id(expr)]
        found = self._found[id(expr)] = lax.index_in_dim(stack, k, keepdims=False)
        return found

    def __setitem__(self, expr: Expr, array: Any) -> None:
        self._found[id(expr)] = array

    def set_rows(self, exprs: Sequence[Expr], stack: Any) -> None:
        """These expressions are the rows of an array."""
        self._rows.update({id(expr): (stack, k) for k, expr in enumerate(exprs)})

    def stack(self, exprs: Sequence[Expr]) -> Any:
        """An array with these expressions' as its rows; rows of another one are taken from it in few pieces."""
        if all([isinstance(e, Const) for e in exprs]):
            return np.stack([e.value for e in exprs if isinstance(e, Const)])
        pieces, k = [], 0
        while k < len(exprs):
            stack, row = self._rows.get(id(exprs[k]), (None, 0))
            if stack is None:
                pieces.append(jnp.expand_dims(_exactly(self[exprs[k]], exprs[k]), 0))
                k += 1
                continue
            following = [self._rows.get(id(e), (None, 0)) for e in exprs[k:]]
            up = _run_of(following, stack, row, 1)
            down = _run_of(following, stack, row, -1)
            low = row if up >= down else row - down + 1
            piece = lax.slice_in_dim(stack, low, low + max(up, down))
            pieces.append(piece if up >= down else lax.rev(piece, (0,)))
            k += max(up, down)
        return pieces[0] if len(pieces) == 1 else lax.concatenate(pieces, 0)


def _run_of(rows: Sequence[tuple[Any, int]], stack: Any, first: int, step: int) -> int:
    """How many rows of a stack follow one another in steps of one, up or down."""
    return next((k for k, (of, row) in enumerate(rows) if of is not stack or row != first + k * step), len(rows))


def _exactly(array: Any, expr: Expr) -> Any:
    """The array with its expression's dtype, and no weaker one, as a loop wants what it carries."""
    return lax.convert_element_type(array, expr.shape.dtype)


def _run(loop: rolling.Loop, env: _Arrays) -> None:
    """Run a loop: the operations of its first round, once for each round."""
    body = loop.rounds[0]
    starts = [_exactly(env[c.start], c.start) for c in loop.carries]
    starts += [jnp.zeros(s.dims, s.dtype) for s in [body[by].outputs[index].shape for by, index in loop.last]]

    def one_round(carried: Sequence[Any], varying: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        made: list[Sequence[Any]] = []

        def array(operand: rolling.Operand) -> Any:
            match operand:
                case rolling.Made(by, index):
                    return made[by][index]
                case rolling.Carried(position):
                    return carried[position]
                case rolling.Varying(position):
                    return varying[position]
                case rolling.Fixed(expr):
                    return env[expr]

        def result(by: int, index: int) -> Any:
            return _exactly(made[by][index], body[by].outputs[index])

        for node, operands in zip(body, loop.operands, strict=True):
            made.append(_apply(node, [array(o) for o in operands], node.op.fn))
        following = [carried[c.behind] if c.made_by is None else result(*c.made_by) for c in loop.carries]
        return following + [result(*made_by) for made_by in loop.last], [result(*made_by) for made_by in loop.stacked]

    varying = [env.stack(exprs) for exprs in loop.varying]
    # What a round looks back on several rounds for would be copied from place to place; after so many rounds it is in its place again.
    ends, stacks = lax.scan(one_round, starts, varying, length=len(loop.rounds), unroll=loop.deepest)
    for (by, index), end in zip(loop.last, ends[len(loop.carries) :], strict=True):
        env[loop.rounds[-1][by].outputs[index]] = end
    for (by, index), stack in zip(loop.stacked, stacks, strict=True):
        env.set_rows([one[by].outputs[index] for one in loop.rounds], stack)


def _apply(node: Node, operands: list[Any], function: Callable[..., Any]) -> Sequence[Any]:
    try:
        result = function(*operands, **node.attrs.kwargs)
    except LazyError:
        raise
    except Exception as error:
        shapes = ", ".join(str(e.shape) for e in node.inputs)
        raise ExecutionError(
            f"lowering {node.op.name}({shapes}) {node.attrs} failed: {type(error).__name__}: {error}; recorded at {node.site}"
        ) from error
    return pacing.pause(result if isinstance(result, (tuple, list)) else (result,))
