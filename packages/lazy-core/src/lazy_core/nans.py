"""Where a NaN came from.

Owns: `first_nan`.  May import `history`, `rerun`, `dump`, `values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import backend, dump, history, rerun, trace
from .errors import LazyError
from .execution import Failed
from .history import Kept
from .ir import Expr, Leaf, Node
from .tolerances import is_float


class Origin(NamedTuple):
    """Where the first NaN (or infinity) of a value was made.

    Attributes:
        op: the operation that made it from operands without any; "input" if it came in with a buffer, "number" with a number.
        site: the user's line that recorded it; of an input the line that first read it.
        operands: the shapes of its operands, or of the input.
        attributes: its static attributes as text.
        place: the index of the first NaN in its result.
        found: how many there are in the result.
        size: of how many elements.
        given: the operands' numbers that the first NaN was made of, where the operation works element by element, else their ranges.
    """

    op: str
    site: str | None
    operands: str
    attributes: str
    place: tuple[int, ...]
    found: int
    size: int
    given: str

    def __str__(self) -> str:
        at = f"at {self.site or 'an unknown line'}"
        which = f"{self.found} of {self.size} elements, first at {self.place}"
        if self.op in ("input", "number"):
            return f"it came in with the {self.op} {self.operands}, first read {at}: {which}"
        call = f"{self.op}({self.operands}{', ' + self.attributes if self.attributes else ''})"
        return f"{call} {at} made it of operands without: {which}, from {self.given}"


def first_nan(tensor: Any, infinities: bool = False) -> Origin | None:
    """The first operation on the way to a value that made a NaN from operands without one, with its line; None if the value has none.

    The operations are run again by native kernels.  For a pending value nothing else runs, and it stays pending.  For one that has been
    computed the inputs must still be there: set `lazy_core.options(keep_traces=1)` (`LAZY_KEEP_TRACES`) before.

    Args:
        tensor: a lazy tensor of any frontend.
        infinities: look for infinities too.

    Raises:
        TypeError: the argument is no lazy tensor.
        LazyError: it has a NaN, but what it was computed from has not been kept.
    """
    value = dump.value_of(tensor)
    if value.array is None:
        if value.expr.node is None:  # a pending name of what is there
            return _of_input(value.expr, infinities)
        return _search(history.pending([value.expr]), value.expr, infinities)
    if value.array.__class__ is Failed:
        raise value.array.error
    contents = backend.to_host(value.array)
    if not _has(contents, infinities):
        return None
    for found in history.kept():
        expr = found.expression_of(value.array) or _same(found, contents)
        if expr is not None:
            return _search(found, expr, infinities)
    raise LazyError(
        f"a value of shape {value.shape} has a NaN, but it is among no outputs of the {len(history.kept())} latest traces that were kept; "
        "run again with lazy_core.options(keep_traces=N) or LAZY_KEEP_TRACES=N"
    )


def _of_input(expr: Expr, infinities: bool) -> Origin | None:
    """A value that is a buffer or a number itself."""
    if not isinstance(expr, Leaf):
        return None
    array = backend.to_host(trace.current().sources[expr.source].leaves()[expr.slot])
    place, count = _first(array, infinities)
    return Origin("input", None, str(expr.shape), "", place, count, array.size, "") if count else None


def _same(found: Kept, contents: np.ndarray) -> Expr | None:
    """The output that has these contents: a frontend may hold its own form of an array."""
    for expr, array in zip(found.live, found.results or (), strict=False):
        if expr.node is not None and tuple(expr.shape.dims) == contents.shape and expr.shape.dtype == contents.dtype:
            try:
                held = backend.to_host(array)
            except (TypeError, RuntimeError):  # a library's tensor that NumPy cannot read, or a buffer that was taken over
                continue
            if held.shape == contents.shape and np.array_equal(held, contents, equal_nan=True):
                return expr
    return None


def _bad(array: np.ndarray, infinities: bool) -> np.ndarray:
    if not is_float(array.dtype):
        return np.zeros(array.shape, bool)
    return np.asarray(~np.isfinite(array) if infinities else np.isnan(array))


def _has(array: np.ndarray, infinities: bool) -> bool:
    return bool(_bad(array, infinities).any())


def _search(found: Kept, wanted: Expr, infinities: bool) -> Origin | None:
    """Run what a value needs, note where there are NaN, and walk back from it along those."""
    bad: set[Expr] = set()
    origins: dict[Node, Origin] = {}
    for step in rerun.stepwise([wanted], found.inputs):
        for expr, array in zip(step.node.inputs, step.operands, strict=True):
            if expr.node is None and expr not in bad and _has(array, infinities):
                bad.add(expr)
        for expr, array in zip(step.node.outputs, step.results, strict=True):
            if _has(array, infinities):
                bad.add(expr)
                if step.node not in origins:
                    origins[step.node] = _made(step.node, step.operands, array, infinities)
    if wanted not in bad:
        return None
    reached, stack = {wanted}, [wanted]
    sources: list[tuple[int, Expr, Node]] = []
    while stack:
        expr = stack.pop()
        node = expr.node
        assert node is not None
        below = [e for e in node.inputs if e in bad]
        for operand in below:
            if operand.node is None:
                sources.append((node.outputs[0].id, operand, node))
            elif operand not in reached:
                reached.add(operand)
                stack.append(operand)
        if not below:
            sources.append((node.outputs[0].id, expr, node))
    _, first, reader = min(sources, key=lambda s: s[0])
    return origins[reader] if first.node is not None else _came_in(found, first, reader, infinities)


def _made(node: Node, operands: Sequence[np.ndarray], result: np.ndarray, infinities: bool) -> Origin:
    place, count = _first(result, infinities)
    shapes = ", ".join([str(e.shape) for e in node.inputs])
    return Origin(
        node.op.name, node.site, shapes, node.attrs.name, place, count, result.size, _given(operands, result.shape, place, infinities)
    )


def _came_in(found: Kept, expr: Expr, node: Node, infinities: bool) -> Origin:
    number = not isinstance(expr, Leaf)
    array = found.inputs.leaf(expr) if isinstance(expr, Leaf) else np.full((), np.nan)
    place, count = _first(array, infinities)
    return Origin("number" if number else "input", node.site, str(expr.shape), "", place, count, array.size, "")


def _first(array: np.ndarray, infinities: bool) -> tuple[tuple[int, ...], int]:
    bad = _bad(array, infinities)
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else (), int(bad.sum())


def _given(operands: Sequence[np.ndarray], dims: tuple[int, ...], place: tuple[int, ...], infinities: bool) -> str:
    """What the first NaN was made of, if the operands broadcast to the result; else the range of each operand."""
    try:
        elementwise = np.broadcast_shapes(*[a.shape for a in operands]) == dims
    except ValueError:
        elementwise = False
    if elementwise and operands:
        return ", ".join([f"{np.broadcast_to(a, dims)[place]!s}" for a in operands])
    return ", ".join([_range(a) for a in operands])


def _range(array: np.ndarray) -> str:
    if not array.size or array.dtype.kind == "c":
        return f"{array.size} numbers"
    return f"numbers from {array.min()!s} to {array.max()!s}"
