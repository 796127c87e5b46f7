"""Running a graph again: on inputs that were kept, natively and compiled, whole or an operation at a time.

Owns: `Inputs`, and programs that are compiled for finding faults: they are in no cache of the trace's, counted in no report, and take over
no buffer.  May import `lowering`, `native`, `backend`, `ir`.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from . import backend, lowering, native
from .ir import NOBODY, Const, Expr, Leaf, Node, ScalarLeaf
from .native.stepping import Run, Step, run_node

VECTOR_DTYPES = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.complex128))
_MOST_PROGRAMS = 1024
_programs: OrderedDict[Hashable, backend.Executable] = OrderedDict()


class Inputs:
    """What a graph reads.

    Args:
        graph: the graph.
        arrays: the contents of its leaves, on the host or the device.
        packed: for each kind of run-time scalar in use, their numbers.
    """

    def __init__(self, graph: lowering.Graph, arrays: Sequence[Any], packed: Sequence[np.ndarray] = ()) -> None:
        self.graph = graph
        self.arrays = dict(zip(graph.leaves, arrays, strict=True))
        self.numbers: dict[ScalarLeaf, Any] = {}
        for group, vector in zip([g for g in graph.scalars if g], packed, strict=True):
            self.numbers.update(zip(group, vector.tolist(), strict=True))

    def leaf(self, leaf: Leaf) -> np.ndarray:
        """The contents of a leaf on the host."""
        return backend.to_host(self.arrays[leaf])

    def scalar(self, scalar: ScalarLeaf) -> Any:
        """The number of a run-time scalar."""
        return self.numbers[scalar]

    def packed(self, graph: lowering.Graph) -> list[np.ndarray]:
        """The run-time scalars of a part of the graph."""
        return [
            np.array([self.numbers[s] for s in group], dtype) for group, dtype in zip(graph.scalars, VECTOR_DTYPES, strict=True) if group
        ]


def natively(outputs: Sequence[Expr], inputs: Inputs) -> list[np.ndarray]:
    """Compute expressions by native kernels."""
    return native.evaluate(outputs, inputs.leaf, inputs.scalar)


def stepwise(outputs: Sequence[Expr], inputs: Inputs, run: Run = run_node, kept: dict[Expr, np.ndarray] | None = None) -> Iterator[Step]:
    """Compute expressions by native kernels, one operation at a time (see `native.steps`)."""
    return native.steps(outputs, inputs.leaf, inputs.scalar, run, kept)


def compiled(graph: lowering.Graph, inputs: Inputs) -> list[np.ndarray]:
    """The outputs of a graph, or of a part of the one that the inputs belong to, as one program computes them."""
    found = _programs.get(graph.key)
    if found is None:
        found = _programs[graph.key] = backend.lower(lowering.function_of(graph), graph.argument_shapes, exact=graph.exact).compile()
        while len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    arrays = [inputs.arrays[leaf] for leaf in graph.leaves]
    held = [backend.from_host(a, copy=False) if isinstance(a, np.ndarray) else a for a in arrays]
    return [backend.to_host(r) for r in found(held, inputs.packed(graph))]


def compiled_alone(node: Node, operands: Sequence[np.ndarray], exact: bool) -> list[np.ndarray]:
    """The outputs of one recorded operation as XLA computes it, with its constants baked in and rounded as in the whole graph."""
    graph, read = _alone(node, exact)
    return compiled(graph, Inputs(graph, [operands[k] for k in read]))


@functools.lru_cache(maxsize=_MOST_PROGRAMS)
def _alone(node: Node, exact: bool) -> tuple[lowering.Graph, list[int]]:
    """A graph of one operation, and which of its operands its leaves are."""
    leaves: dict[Expr, Leaf] = {}
    operands: list[Expr] = [
        e if isinstance(e, Const) else leaves.setdefault(e, Leaf(e.shape, NOBODY, k)) for k, e in enumerate(node.inputs)
    ]
    copy = Node(node.op, tuple(operands), node.attrs, node.site)
    copy.outputs = tuple([Expr(e.shape, copy, e.index) for e in node.outputs])
    graph = lowering.linearise(copy.outputs, exact)
    return graph, [leaf.slot for leaf in graph.leaves]
