"""The interpreter, one operation at a time: whoever runs a graph looks at the operands and results of each.

Owns: `steps`.  It is for finding faults, and slower than `interpreter.evaluate`: no buffer is used twice.  May import `interpreter`,
`registry` and `ir`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir import Const, Expr, Leaf, Node, ScalarLeaf
from .interpreter import in_order
from .registry import resolve

Run = Callable[[Node, Sequence[np.ndarray]], list[np.ndarray]]


class Step(NamedTuple):
    """One operation of a graph as it was run.

    Attributes:
        node: the operation.
        operands: its inputs' contents.
        results: its outputs' contents.
    """

    node: Node
    operands: list[np.ndarray]
    results: list[np.ndarray]


def run_node(node: Node, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of one recorded operation on host arrays, by its native kernel."""
    call = node.kernel or resolve(node)
    with np.errstate(all="ignore"):
        results = call.function(*operands)
    return [np.asarray(r) for r in (results if call.several else (results,))]


def steps(
    outputs: Sequence[Expr],
    leaf: Callable[[Leaf], np.ndarray],
    scalar: Callable[[ScalarLeaf], Any],
    run: Run = run_node,
    kept: dict[Expr, np.ndarray] | None = None,
) -> Iterator[Step]:
    """Run the operations below some expressions in the order in which they were first recorded.

    Args:
        outputs: what to compute.
        leaf: the buffer of a leaf.
        scalar: the number that a run-time scalar has.
        run: computes one operation.
        kept: a table that the outputs are put into.
    """
    nodes = in_order(outputs)
    uses = Counter([e for node in nodes for e in dict.fromkeys(node.inputs)])
    wanted = frozenset(outputs)
    held: dict[Expr, np.ndarray] = {}

    def read(expr: Expr) -> np.ndarray:
        if expr not in held:
            if isinstance(expr, Leaf):
                held[expr] = leaf(expr)
            elif isinstance(expr, ScalarLeaf):
                held[expr] = np.asarray(scalar(expr), expr.shape.dtype)
            else:
                assert isinstance(expr, Const)
                held[expr] = np.asarray(expr.value)
        return held[expr]

    for node in nodes:
        operands = [read(e) for e in node.inputs]
        results = run(node, operands)
        held.update(zip(node.outputs, results, strict=True))
        yield Step(node, operands, results)
        for expr in dict.fromkeys(node.inputs):
            uses[expr] -= 1
        for expr in (*node.inputs, *node.outputs):
            if not uses[expr] and expr not in wanted:
                held.pop(expr, None)
    if kept is not None:
        kept.update({e: read(e) for e in outputs})
