"""Graphs as plain data, and back.

Owns: how a capsule spells attributes, constants and operations; `cut`, which leaves out what only a frontend has; `build`, which checks
what it reads.  May import `backend`, `lowering`, `rerun`, `ir`, `shape`, `ops`, `errors`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy knows its dtypes by name once it is imported
import numpy as np

from . import backend, lowering, rerun
from .errors import LazyError
from .ir import NOBODY, Const, Expr, Leaf, Node, ScalarLeaf, attrs, post_order
from .ops.registry import REGISTRY
from .rerun import Inputs
from .shape import Shape

_INPUT = re.compile(r"traces/\d{1,9}/inputs/\d{1,9}\.npy")


class CapsuleError(LazyError, ValueError):
    """A file that is no capsule, is damaged, was written by a newer version, or asks for too much; or a graph that none can hold."""


def is_input_name(name: str) -> bool:
    """Whether a member of the archive may be an input."""
    return _INPUT.fullmatch(name) is not None


def mapping(data: Any, key: str | None = None) -> dict[str, Any]:
    """A JSON object, or the one under a key of it."""
    found = data if key is None else mapping(data).get(key)
    if not isinstance(found, dict):
        raise CapsuleError(f"{key or 'a part of it'} is no object")
    return found


def sequence(data: Any, key: str) -> list[Any]:
    """The JSON array under a key."""
    found = mapping(data).get(key)
    if not isinstance(found, list):
        raise CapsuleError(f"{key} is no array")
    return found


def refuse_constant(name: str) -> Any:
    """NaN and infinities are no JSON."""
    raise CapsuleError(f"its text has the number {name}")


def shape(text: Any) -> Shape:
    """A shape that is spelt like `f32[2,3]`, of a dtype that the device has."""
    found = Shape.parse(text) if isinstance(text, str) else None
    if found is None or not backend.supports(found.dtype):
        raise CapsuleError(f"{text!r} is no shape")
    return found


# ------------------------------------------------------------------ attributes and numbers


def dtype_name(dtype: np.dtype) -> str:
    """The name that gives the dtype back.

    Raises:
        CapsuleError: there is none.
    """
    try:
        if np.dtype(dtype.name) == dtype:
            return dtype.name
    except TypeError:
        pass
    raise CapsuleError(f"the dtype {dtype!r} has no name that a capsule could hold")


def dtype_of(name: Any) -> np.dtype:
    """The dtype of a name."""
    try:
        if isinstance(name, str) and name.isidentifier():
            found = np.dtype(name)
            if not found.hasobject and found.names is None:
                return found
    except TypeError:
        pass
    raise CapsuleError(f"{name!r} is no dtype")


def _float(value: float) -> Any:
    return {"float": value.hex()} if value == value else {"float": "nan", "bits": struct.pack("<d", value).hex()}


def encode(value: Any) -> Any:
    """A static attribute as JSON data that says its type: 1, 1.0 and True differ, and so do NaN of different bits.

    Raises:
        CapsuleError: it is of a kind that no capsule can hold.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return _float(value)
    if kind is complex:
        return {"complex": [_float(value.real), _float(value.imag)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple:
        return [encode(v) for v in value]
    if isinstance(value, np.dtype):
        return {"dtype": dtype_name(value)}
    if kind is Shape:
        return {"shape": str(value)}
    if kind is slice:
        return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, np.generic):
        return {"number": value.tobytes().hex(), "dtype": dtype_name(value.dtype), "value": str(value)}
    raise CapsuleError(f"{value!r} of type {kind.__name__} cannot be in a capsule")


def _read_float(data: Any) -> float:
    if data["float"] == "nan":
        return float(struct.unpack("<d", bytes.fromhex(data["bits"]))[0])
    return float.fromhex(data["float"])


def _read_number(data: Any) -> np.generic:
    dtype, raw = dtype_of(data["dtype"]), bytes.fromhex(data["number"])
    if len(raw) != dtype.itemsize:
        raise CapsuleError(f"a number of {dtype} has {len(raw)} bytes")
    return np.frombuffer(raw, dtype)[0]  # type: ignore[no-any-return]


def _read_slice(data: Any) -> slice:
    start, stop, step = [decode(part) for part in data["slice"]]
    return slice(start, stop, step)


_TAGS: dict[str, Callable[[Any], Any]] = {
    "float": _read_float,
    "complex": lambda data: complex(*[_read_float(part) for part in data["complex"]]),
    "bytes": lambda data: bytes.fromhex(data["bytes"]),
    "number": _read_number,
    "dtype": lambda data: dtype_of(data["dtype"]),
    "shape": lambda data: shape(data["shape"]),
    "slice": _read_slice,
}


def decode(data: Any) -> Any:
    """The attribute that `encode` spelt so.

    Raises:
        CapsuleError: no attribute is.
    """
    if data is None or type(data) in (bool, int, str):
        return data
    if isinstance(data, list):
        return tuple([decode(v) for v in data])
    tag = next((t for t in _TAGS if isinstance(data, dict) and t in data), None)
    try:
        if tag is not None:
            return _TAGS[tag](data)
    except (KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise CapsuleError(f"{str(data)[:200]} is no attribute: {error}") from error
    raise CapsuleError(f"{str(data)[:200]} is no attribute")


# ------------------------------------------------------------------ writing graphs


@dataclass
class Part:
    """What a capsule holds of a graph.

    Attributes:
        shapes: of each input.
        arrays: the contents of each input.
        names: for an input that is the result of an operation of a frontend's own, that operation's name; else None.
        outputs: the expressions that are returned.
        text: numbers, operations, outputs and whether they are computed as they stand, as plain data.
    """

    shapes: list[Shape]
    arrays: list[np.ndarray]
    names: list[str | None]
    outputs: list[Expr]
    text: dict[str, Any]


def _known(node: Node) -> bool:
    return REGISTRY.get(node.op.name) is node.op


def cut(inputs: Inputs) -> Part:
    """A graph as plain data; operations that only a frontend has are run, and their results stand among the inputs."""
    graph = inputs.graph
    foreign = [e for node in graph.nodes if not _known(node) for e in node.outputs]
    computed = dict(zip(foreign, rerun.natively(foreign, inputs), strict=True)) if foreign else {}
    stand_ins = {e: Leaf(e.shape, NOBODY, k) for k, e in enumerate(foreign)}
    outputs = [e for e in graph.outputs if e not in computed]
    part = Part([], [], [], outputs, {})
    place: dict[Any, Any] = {}
    numbers: dict[str, list[Any]] = {k: [] for k in lowering.KINDS}
    operations: list[dict[str, Any]] = []

    def operand(expr: Expr) -> Any:
        if isinstance(expr, Const):
            return {"const": encode(expr.value)}
        if expr in stand_ins and expr not in place:
            assert expr.node is not None
            add(expr, computed[expr], expr.node.op.name)
        return place[expr] if expr in place else [*place[expr.node], expr.index]

    def add(expr: Expr, array: np.ndarray, name: str | None) -> None:
        place[expr] = ["input", len(part.shapes)]
        part.shapes.append(expr.shape)
        part.arrays.append(array)
        part.names.append(name)

    for item in _walk(outputs, stand_ins):
        if isinstance(item, Node):
            operands = [operand(e) for e in item.inputs]
            place[item] = ["operation", len(operations)]
            operations.append(
                {
                    "op": item.op.name,
                    "operands": operands,
                    "attributes": {k: encode(v) for k, v in item.attrs.kwargs.items()},
                    "results": [str(e.shape) for e in item.outputs],
                    "site": item.site,
                }
            )
        elif isinstance(item, Leaf):
            add(item, inputs.leaf(item), None)
        elif isinstance(item, ScalarLeaf):
            place[item] = ["number", item.kind, len(numbers[item.kind])]
            numbers[item.kind].append(encode(inputs.scalar(item)))
    part.text = {"numbers": numbers, "operations": operations, "outputs": [operand(e) for e in outputs], "exact": graph.exact}
    return part


def _walk(outputs: Sequence[Expr], stand_ins: dict[Expr, Leaf]) -> Any:
    """Leaves, numbers and nodes below the outputs, inputs first, without what lies below a stand-in."""
    if not stand_ins:
        yield from post_order(outputs)
        return
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(e if e.node is None else e.node, False) for e in reversed(outputs)]
    while stack:
        item, expanded = stack.pop()
        if expanded:
            yield item
        elif item not in seen:
            seen.add(item)
            if not isinstance(item, Node):
                yield item
                continue
            stack.append((item, True))
            stack += [(e if e.node is None else e.node, False) for e in reversed(item.inputs) if e not in stand_ins]


# ------------------------------------------------------------------ reading graphs


def build(
    described: Any, shapes: Sequence[Shape], spend: Callable[[int, str], None], made_by: str
) -> tuple[lowering.Graph, list[list[Any]]]:
    """The graph of plain data, and the run-time scalars of each kind; every result is inferred again and must have the shape it says.

    Args:
        described: the trace.
        shapes: of its inputs.
        spend: told of the bytes of each result; raises when there are too many.
        made_by: the version that wrote it, for errors.

    Raises:
        CapsuleError: it is no graph, or one of operations that are not there.
    """
    leaves = [Leaf(s, NOBODY, k) for k, s in enumerate(shapes)]
    given = mapping(described, "numbers")
    numbers = [[_number(decode(n), kind) for n in sequence(given, kind)] for kind in lowering.KINDS]
    scalars = {kind: [ScalarLeaf(NOBODY, kind, k) for k in range(len(group))] for kind, group in zip(lowering.KINDS, numbers, strict=True)}
    nodes: list[Node] = []

    def operand(data: Any) -> Expr:
        match data:
            case {"const": number}:
                value = decode(number)
                if isinstance(value, np.generic):
                    return Const(value)
            case ["input", int(k)] if 0 <= k < len(leaves):
                return leaves[k]
            case ["number", str(kind), int(k)] if kind in scalars and 0 <= k < len(scalars[kind]):
                return scalars[kind][k]
            case ["operation", int(k), int(i)] if 0 <= k < len(nodes) and 0 <= i < len(nodes[k].outputs):
                return nodes[k].outputs[i]
        raise CapsuleError(f"operand {str(data)[:100]} of operation {len(nodes)} is none")

    for k, data in enumerate(sequence(described, "operations")):
        node = _node(data, [operand(o) for o in sequence(data, "operands")], f"operation {k}", made_by)
        for expr in node.outputs:
            spend(expr.shape.nbytes, f"the result {expr.shape} of operation {k}, {node.op.name},")
        nodes.append(node)
    outputs = [operand(o) for o in sequence(described, "outputs")]
    if not outputs or any(e.node is None for e in outputs) or len(set(outputs)) != len(outputs):
        raise CapsuleError("its outputs are not results of operations, each once")
    return lowering.linearise(outputs, described.get("exact") is True), numbers


def _number(value: Any, kind: str) -> Any:
    wanted: Any = {"f": float, "i": int, "c": complex}[kind]
    if type(value) is not wanted or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
        raise CapsuleError(f"{value!r} is no number of kind {kind}")
    return value


def _node(data: Any, operands: list[Expr], where: str, made_by: str) -> Node:
    name = mapping(data).get("op")
    op = REGISTRY.get(name) if isinstance(name, str) else None
    if op is None:
        raise CapsuleError(f"{where} is {name!r}, which this version of lazytensor-core does not have (the capsule was made by {made_by})")
    site = data.get("site")
    where = f"{where}, {name}({', '.join([str(e.shape) for e in operands])}),"
    try:
        attributes = attrs(**{str(k): decode(v) for k, v in mapping(data, "attributes").items()})
        found, _ = op.infer(tuple([e.shape for e in operands]), attributes)
    except Exception as error:  # whatever a lowering makes of what a stranger wrote
        raise CapsuleError(f"{where} cannot be: {type(error).__name__}: {str(error)[:300]}") from error
    declared = sequence(data, "results")
    if [str(s) for s in found] != declared:
        raise CapsuleError(f"{where} gives {', '.join(map(str, found))} here, and the capsule says {str(declared)[:200]}")
    node = Node(op, tuple(operands), attributes, None if site is None else str(site))
    node.outputs = tuple([Expr(s, node, i) for i, s in enumerate(found)])
    return node
