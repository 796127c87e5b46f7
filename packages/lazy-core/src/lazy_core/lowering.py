"""Lowering: from live expressions to one function of arrays that JAX can trace.

Owns: linearising a graph from its outputs, its structural key, and running the operations' own functions in order.
May import `ir`, `shape`, `errors`, `trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from . import trace
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
        key: the structure without names: equal keys mean equal programs, whoever recorded them.
    """

    leaves: tuple[Leaf, ...]
    scalars: tuple[tuple[ScalarLeaf, ...], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Expr, ...]
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
    return "\n".join(lines)


def linearise(outputs: Sequence[Expr]) -> Graph:
    """The graph that computes these expressions (leaves and duplicates among them must have been taken out)."""
    leaves: list[Leaf] = []
    scalars: dict[str, list[ScalarLeaf]] = {k: [] for k in KINDS}
    nodes: list[Node] = []
    number: dict[int, Hashable] = {}
    key: list[Hashable] = []
    for item in post_order(outputs):
        if isinstance(item, Node):
            inputs = tuple([_reference(number, e) for e in item.inputs])
            key.append((item.op, item.attrs, inputs))
            number[id(item)] = len(nodes)
            nodes.append(item)
        elif isinstance(item, Leaf):
            number[id(item)] = ("leaf", len(leaves), item.shape)
            leaves.append(item)
        elif isinstance(item, ScalarLeaf):
            number[id(item)] = (item.kind, len(scalars[item.kind]))
            scalars[item.kind].append(item)
        elif isinstance(item, Const):
            number[id(item)] = ("const", item.shape, item.bits)
    roots = tuple([_reference(number, e) for e in outputs])
    return Graph(tuple(leaves), tuple([tuple(scalars[k]) for k in KINDS]), tuple(nodes), tuple(outputs), (tuple(key), roots))


def _reference(number: dict[int, Hashable], expr: Expr) -> Hashable:
    return number[id(expr)] if expr.node is None else (number[id(expr.node)], expr.index)


def function_of(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """A function from leaf arrays and packed scalar vectors to the outputs, to be traced by the backend."""

    def lazy_trace(*arguments: Any) -> tuple[Any, ...]:
        env: dict[int, Any] = {id(leaf): a for leaf, a in zip(graph.leaves, arguments, strict=False)}
        packed = iter(arguments[len(graph.leaves) :])
        for group in graph.scalars:
            if group:
                vector = next(packed)
                env.update({id(s): vector[i] for i, s in enumerate(group)})
        with trace.current().forbid_barrier("while a trace is being lowered"):
            for node in graph.nodes:
                results = _apply(node, [_operand(env, e) for e in node.inputs])
                for expr, result in zip(node.outputs, results, strict=True):
                    env[id(expr)] = result
        return tuple([_operand(env, e) for e in graph.outputs])

    return lazy_trace


def _operand(env: dict[int, Any], expr: Expr) -> Any:
    found = env.get(id(expr))
    if found is None and isinstance(expr, Const):
        return expr.value
    return found


def _apply(node: Node, operands: list[Any]) -> Sequence[Any]:
    try:
        result = node.op.fn(*operands, **node.attrs.kwargs)
    except LazyError:
        raise
    except Exception as error:
        shapes = ", ".join(str(e.shape) for e in node.inputs)
        raise ExecutionError(
            f"lowering {node.op.name}({shapes}) {node.attrs} failed: {type(error).__name__}: {error}; recorded at {node.site}"
        ) from error
    return result if isinstance(result, (tuple, list)) else (result,)
