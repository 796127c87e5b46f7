"""Finding which operation of a graph is computed wrongly.

Owns: `guilty`, which holds each operation, given equal operands, against its native kernel; `rounding`, what differences rounding alone
makes; and `prefix`, for what goes wrong only where operations are compiled together.  It knows nothing of traces: a graph and its inputs
are enough.  May import `rerun`, `tolerances`, `lowering`, `native`, `ir`.

Source: rounding is simulated as in Parker's Monte Carlo arithmetic (1997): each result is moved at random within what its operation may
be off by, and what that does to the outputs says what a difference there means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import lowering, native, rerun
from .ir import Expr, Node
from .native.interpreter import in_order
from .ops.registry import REGISTRY
from .rerun import Inputs
from .tolerances import Difference, Tolerance, difference, is_float, tolerance

# Families whose operations add terms up: their rounding errors grow with the number of terms.
_SUMS = frozenset("reductions cumulative linalg matrices convolution fourier nn pooling ctc indexing".split())
# Families whose operations only move or choose numbers.
_MOVES = frozenset("shapes strided sorting creation compare".split())
# They jump: moving an operand in its last place says nothing about them.
_STEPS = frozenset("floor ceil trunc round sign max min all any argmax argmin cummax cummin".split())
# Decompositions whose vectors have free signs; what depends on them differs with the library.
FREE_SIGNS = frozenset({"svd", "eigh", "eig", "qr"})
_TRIALS = 3
# What rounding moves by this share of its size has hardly a digit that is more than rounding.
NO_DIGIT = 0.01
_EXACT = Tolerance(0, 0, "")


class Fault(NamedTuple):
    """An operation whose result is outside of its tolerance.

    Attributes:
        op: its name.
        site: the user's line that recorded it.
        operands: the shapes of its operands.
        attributes: its static attributes as text.
        difference: how the compiled result differs from the native one.
        allowed: what it may differ by.
        where: for a fault that shows only where operations are compiled together, how many; else 1.
    """

    op: str
    site: str | None
    operands: str
    attributes: str
    difference: Difference
    allowed: Tolerance
    where: int = 1

    def __str__(self) -> str:
        call = f"{self.op}({self.operands}{', ' + self.attributes if self.attributes else ''})"
        off = self.difference
        alone = "given equal operands" if self.where == 1 else f"compiled together with the {self.where - 1} operations before it"
        return (
            f"{call} {alone}: compiled {off.got!s} where native gives {off.expected!s} at {off.place}; {off.wrong} of {off.size} elements "
            f"are out of tolerance, the largest difference is {off.absolute:.3g}, {off.ulps:.3g} units in the last place "
            f"({self.allowed.ulps:g} + {self.allowed.scaled:g} are allowed)"
        )


def fault_of(node: Node, found: Difference, together: int = 1) -> Fault:
    """A fault at a node."""
    operands = ", ".join([str(e.shape) for e in node.inputs])
    return Fault(node.op.name, node.site, operands, node.attrs.name, found, allowed_of(node), together)


# ------------------------------------------------------------------ what a result may be off by


def allowed_of(node: Node) -> Tolerance:
    """The declared tolerance of a node's operation, wider where it adds up more terms than the operations were measured with.

    An operation that no registry knows is a frontend's own: XLA runs it on both tiers, and it is exact.
    """
    if REGISTRY.get(node.op.name) is not node.op:
        return _EXACT
    declared = tolerance(node.op.name)
    more = math.sqrt(_terms(node)) / 8 if REGISTRY[node.op.name].family in _SUMS else 1.0
    return Tolerance(declared.ulps * more, declared.scaled * more, declared.reason) if more > 1 else declared


def _terms(node: Node) -> float:
    """About how many terms go into one element of the result."""
    sizes = sorted([e.shape.size for e in node.inputs], reverse=True)[:2]
    result = max(1, max(e.shape.size for e in node.outputs))
    products = math.sqrt(math.prod(sizes) / result) if len(sizes) == 2 else 0.0
    longest = max([d for e in node.inputs for d in e.shape.dims], default=1)
    return max(sizes[0] / result if sizes else 1.0, products, longest)


def _moved(array: np.ndarray, ulps: float, rng: np.random.Generator) -> np.ndarray:
    """An array with each number moved by so many units in the last place, up or down."""
    if not is_float(array.dtype) or not array.size:
        return array
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    signs = rng.choice((-1.0, 1.0), array.shape)
    with np.errstate(all="ignore"):
        return np.asarray((wide * (1 + ulps * float(ml_dtypes.finfo(array.dtype).eps) * signs)).astype(array.dtype))


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Element by element; infinite where only one is finite, zero where both are NaN or the same infinity."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return np.where(np.isnan(off), np.inf, off)


def _conditioned(node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[Any]:
    """For each result what it moves by when the operands move in their last place: no algorithm is closer than that.

    Infinite for one that moves by `NO_DIGIT` of its size.
    """
    rng = np.random.default_rng(0)
    spread = [np.zeros(r.shape) for r in results]
    for _ in range(_TRIALS):
        moved = native.run_node(node, [_moved(a, 1.0, rng) for a in operands])
        spread = [np.maximum(s, _distance(m, r)) for s, m, r in zip(spread, moved, results, strict=True)]
    found = []
    for s, result in zip(spread, results, strict=True):
        finite = s[np.isfinite(s)]
        typical = math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0
        if is_float(result.dtype) and typical > NO_DIGIT * scale_of(result):
            typical = math.inf
        found.append(4 * max(1.0, math.sqrt(_terms(node)) / 8) * np.maximum(s, typical))
    return found


def scale_of(array: np.ndarray) -> float:
    """The largest finite magnitude in an array; 0 if there is none."""
    size = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(size[np.isfinite(size)].max(initial=0.0))


def _flushed(array: np.ndarray) -> np.ndarray:
    """An array with zeros for subnormal numbers."""
    if not is_float(array.dtype) or array.dtype.kind == "c" or not array.size:
        return array
    return np.where(np.abs(array) < ml_dtypes.finfo(array.dtype).tiny, array.dtype.type(0), array)


# ------------------------------------------------------------------ one operation at a time


def compare(
    node: Node, operands: Sequence[np.ndarray], got: Sequence[np.ndarray], expected: Sequence[np.ndarray], scale: float = 1.0
) -> Difference | None:
    """How one operation's results differ from the native ones on the same operands; None if they agree within its tolerance.

    Args:
        node: the operation.
        operands: the contents of its inputs.
        got: the results in question.
        expected: the native ones.
        scale: how many times the declared tolerance is allowed.
    """
    found = _compare(node, operands, got, expected, scale)
    if found is not None:
        small = [_flushed(a) for a in operands]  # XLA takes subnormal numbers for zeros, when it sorts for example
        if any(not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in zip(small, operands, strict=True)):
            return _compare(node, small, got, native.run_node(node, small), scale)
    return found


def _compare(
    node: Node, operands: Sequence[np.ndarray], got: Sequence[np.ndarray], expected: Sequence[np.ndarray], scale: float
) -> Difference | None:
    got, expected = _comparable(node, got), _comparable(node, expected)
    base = allowed_of(node)
    allowed = Tolerance(base.ulps * scale, base.scaled * scale, base.reason)
    found = [difference(a, b, allowed) for a, b in zip(got, expected, strict=True)]
    if any(found) and (base.ulps or base.scaled) and node.op.name not in _STEPS | FREE_SIGNS:
        slack = _conditioned(node, operands, expected)
        found = [f and difference(a, b, allowed, s * scale) for f, a, b, s in zip(found, got, expected, slack, strict=True)]
    return next((f for f in found if f is not None), None)


def _comparable(node: Node, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A decomposition as what it is made of: the signs of its vectors are anybody's."""
    name, results = node.op.name, list(results)
    if name not in FREE_SIGNS or len(results) < 2:
        return results
    if name == "svd":
        u, s, vh = results
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :].astype(u.dtype)) @ vh[..., :k, :]]
    if name == "qr":
        return [results[0] @ results[1]]
    w, v = results
    if name == "eigh":
        return [w, (v * w[..., None, :].astype(v.dtype)) @ np.conj(np.swapaxes(v, -1, -2))]
    return [np.sort_complex(w)]


def guilty(graph: lowering.Graph, inputs: Inputs, scale: float = 1.0, most: int = 3) -> list[Fault]:
    """The first operations, in the order of the program, whose compiled results leave their tolerance given equal operands.

    Each operation is compiled by itself and run on what the native kernels computed before it.  Those without a kernel of their own are
    XLA's on both sides, and cannot be told.

    Args:
        graph: what was computed.
        inputs: from what.
        scale: how many times the declared tolerance is allowed.
        most: stop after so many.
    """
    kernels = frozenset(native.kernels())
    found: list[Fault] = []
    for node, operands, results in rerun.stepwise(graph.outputs, inputs):
        if node.op.name in kernels and REGISTRY.get(node.op.name) is node.op:
            off = compare(node, operands, rerun.compiled_alone(node, operands, graph.exact), results, scale)
            if off is not None:
                found.append(fault_of(node, off))
                if len(found) == most:
                    break
    return found


# ------------------------------------------------------------------ what rounding does, and what compiling together does


def rounding(outputs: Sequence[Expr], inputs: Inputs, expected: Sequence[np.ndarray]) -> list[float]:
    """For each output the largest difference that moving results within their operations' tolerances makes.

    Operands move too, in their last place, for what is right to an operation that rounds is what is right for operands as near as that.
    """
    rng = np.random.default_rng(0)
    spread = [0.0] * len(outputs)

    def run(node: Node, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        known = REGISTRY.get(node.op.name)
        if known is None or known.family in _MOVES:
            return native.run_node(node, operands)
        allowed = allowed_of(node)
        if (allowed.ulps or allowed.scaled) and node.op.name not in _STEPS:
            operands = [_moved(a, 1.0, rng) for a in operands]
        return [_moved(r, max(1.0, allowed.ulps), rng) for r in native.run_node(node, operands)]

    for _ in range(_TRIALS):
        kept: dict[Expr, np.ndarray] = {}
        for _step in rerun.stepwise(outputs, inputs, run, kept):
            pass
        spread = [max(s, largest(kept[e], b)) for s, e, b in zip(spread, outputs, expected, strict=True)]
    return [math.inf if is_float(b.dtype) and s > NO_DIGIT * scale_of(b) else s for s, b in zip(spread, expected, strict=True)]


def largest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance between elements of two arrays."""
    return float(_distance(a, b).max(initial=0.0))


def agree(graph: lowering.Graph, got: Sequence[np.ndarray], expected: Sequence[np.ndarray], scale: float = 1.0) -> list[bool]:
    """For each output of a graph whether it is within the tolerance of the operation that made it."""
    found = []
    for expr, a, b in zip(graph.outputs, got, expected, strict=True):
        assert expr.node is not None
        base = allowed_of(expr.node)
        found.append(difference(a, b, Tolerance(base.ulps * scale, base.scaled * scale, base.reason)) is None)
    return found


# A difference of so many times what rounding made in the trials is not taken for rounding.
BEYOND_ROUNDING = 8.0


def explained(outputs: Sequence[Expr], inputs: Inputs, got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[bool]:
    """For each output whether rounding alone may have made its difference, or a decomposition whose signs are free."""
    spread = rounding(outputs, inputs, expected)
    free = [any(n.op.name in FREE_SIGNS for n in in_order([e])) for e in outputs]
    return [f or largest(a, b) <= BEYOND_ROUNDING * s for f, a, b, s in zip(free, got, expected, spread, strict=True)]


def prefix(graph: lowering.Graph, inputs: Inputs) -> Fault | None:
    """The operation at which the program of all operations up to it first gives what rounding does not explain, by bisection.

    For a difference that no operation makes by itself: something that is wrong only where operations are compiled together.  None if a
    program compiled anew agrees with the native kernels.
    """
    nodes = in_order(graph.outputs)
    low, high = 0, len(nodes)
    fault = _differs(nodes, high, graph, inputs)
    if fault is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = _differs(nodes, middle, graph, inputs)
        if found is None:
            low = middle
        else:
            high, fault = middle, found
    return fault


def _differs(nodes: Sequence[Node], count: int, graph: lowering.Graph, inputs: Inputs) -> Fault | None:
    """A fault of the program of the first so many nodes, in what the others, or the outputs, need of it."""
    inside = set(nodes[:count])
    later = [e for node in nodes[count:] for e in node.inputs]
    frontier = [e for e in dict.fromkeys([*later, *graph.outputs]) if e.node in inside]
    got = rerun.compiled(lowering.linearise(frontier, graph.exact), inputs)
    expected = rerun.natively(frontier, inputs)
    fine = explained(frontier, inputs, got, expected)
    for expr, a, b, ok in zip(frontier, got, expected, fine, strict=True):
        found = None if ok else difference(a, b, _EXACT)
        if found is not None:
            assert expr.node is not None
            return fault_of(nodes[count - 1], found, max(2, count))
    return None
