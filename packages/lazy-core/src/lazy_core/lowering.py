"""Lowering: from live expressions to one function of arrays that JAX can trace.

Owns: linearising a graph from its outputs, its structural key, running the operations' own functions in order, and where
writes put their results.
May import `ir`, `shape`, `errors`, `trace`, `config`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from . import trace
from .config import config
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


def function_of(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """A function from leaf arrays and packed scalar vectors to the outputs, to be traced by the backend."""
    in_place = _writes_in_place(graph)

    def lazy_trace(*arguments: Any) -> tuple[Any, ...]:
        env: dict[int, Any] = {id(leaf): a for leaf, a in zip(graph.leaves, arguments, strict=False)}
        packed = iter(arguments[len(graph.leaves) :])
        for group in graph.scalars:
            if group:
                vector = next(packed)
                env.update({id(s): vector[i] for i, s in enumerate(group)})
        written: dict[Hashable, Any] = {}  # by base and attributes, the latest write to the same places
        with trace.current().forbid_barrier("while a trace is being lowered"):
            for node in graph.nodes:
                operands = [_operand(env, e) for e in node.inputs]
                if id(node) in in_place:
                    place = node.attrs, node.inputs[0], *node.inputs[2:]
                    operands[0] = written.get(place, operands[0])
                    results = _apply(node, operands, node.op.in_place.write)
                    written[place] = results[0]
                    if node.inputs[1].node is not None and node.op.in_place.read is not None:
                        # Whoever reads the update later finds it in its place, rather than computing it again.
                        env[id(node.inputs[1])] = node.op.in_place.read(results[0], **node.attrs.kwargs)
                else:
                    results = _apply(node, operands, node.op.fn)
                for expr, result in zip(node.outputs, results, strict=True):
                    env[id(expr)] = result
        return tuple([_operand(env, e) for e in graph.outputs])

    return lazy_trace


def _operand(env: dict[int, Any], expr: Expr) -> Any:
    found = env.get(id(expr))
    if found is None and isinstance(expr, Const):
        return expr.value
    return found


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
    return result if isinstance(result, (tuple, list)) else (result,)
