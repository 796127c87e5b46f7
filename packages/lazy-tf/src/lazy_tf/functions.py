"""Bodies of `tf.function`, and control flow, interpreted node by node on the device.

A function's graph becomes a list of steps over numbered slots, made once; running it records its operations into the trace like any
others, so a function costs no compile of its own.  `If`, `Case` and `While` read their predicate, which is a barrier when it is pending.
May import `capi`, `attributes`, `tensor`; `dispatch` hands in how one operation is applied.  Source: `FunctionDef` in `function.proto`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lazy_core.errors import UnsupportedError

from . import capi
from .attributes import OpInfo, Signature, op_info
from .tensor import Entry, Foreign, Tensor


@dataclass(frozen=True)
class Step:
    """One node: what runs, the slots that it reads, its first output slot, and the slots that nobody reads after it."""

    info: OpInfo
    signature: Signature
    inputs: tuple[int, ...]
    first: int
    spent: tuple[int, ...]


@dataclass(frozen=True)
class Body:
    """A function's graph: slots 0 to n-1 are its arguments."""

    name: str
    arguments: int
    slots: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]


_bodies: dict[str, Body] = {}
apply: Callable[[OpInfo, Signature, list[Any]], list[Entry]] | None = None
"""How one operation is run; `dispatch` sets it."""


def body_of(name: str) -> Body:
    """The steps of a function that TensorFlow's context knows.

    Raises:
        UnsupportedError: there is no such function.
    """
    found = _bodies.get(name)
    if found is None:
        definition = capi.function_def(name)
        if definition is None:
            raise UnsupportedError(f"{name} is neither a registered operation nor a function of this context")
        found = _bodies[name] = _plan(name, definition)
    return found


def _ordered(nodes: list[Any]) -> list[Any]:
    """The nodes with everything that they depend on, control inputs too, before them."""
    by_name = {n.name: n for n in nodes}
    order: list[Any] = []
    seen: set[str] = set()
    for root in nodes:
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
                continue
            if node.name in seen:
                continue
            seen.add(node.name)
            stack.append((node, True))
            for source in reversed(node.input):
                name = source.lstrip("^").split(":")[0]
                if name in by_name and name not in seen:
                    stack.append((by_name[name], False))
    return order


def _output_spans(info: OpInfo, signature: Signature) -> dict[str, tuple[int, int]]:
    definition = info.op_def if info.op_def is not None else capi.function_def(info.name).signature
    spans: dict[str, tuple[int, int]] = {}
    position = 0
    for out in definition.output_arg:
        if out.type_list_attr:
            count = len(signature.values[out.type_list_attr])
        else:
            count = int(signature.values[out.number_attr]) if out.number_attr else 1
        spans[out.name] = (position, count)
        position += count
    return spans


def _plan(name: str, definition: Any) -> Body:
    arguments = len(definition.signature.input_arg)
    places: dict[str, int] = {a.name: i for i, a in enumerate(definition.signature.input_arg)}
    spans: dict[str, dict[str, tuple[int, int]]] = {}
    firsts: dict[str, int] = {}

    def slot(reference: str) -> int:
        parts = reference.split(":")
        if parts[0] in places:
            return places[parts[0]]
        if len(parts) == 3:
            return firsts[parts[0]] + spans[parts[0]][parts[1]][0] + int(parts[2])
        return firsts[parts[0]]

    steps: list[Step] = []
    following = arguments
    for node in _ordered(list(definition.node_def)):
        info = op_info(node.op)
        signature = info.by_protos(dict(node.attr))
        spans[node.name] = _output_spans(info, signature)
        firsts[node.name] = following
        inputs = tuple([slot(i) for i in node.input if not i.startswith("^")])
        steps.append(Step(info, signature, inputs, following, ()))
        following += sum(count for _, count in spans[node.name].values())
    results = tuple([slot(definition.ret[o.name]) for o in definition.signature.output_arg])
    return Body(name, arguments, following, _with_last_uses(steps, set(results)), results)


def _with_last_uses(steps: list[Step], kept: set[int]) -> tuple[Step, ...]:
    seen = set(kept)
    done: list[Step] = []
    for step in reversed(steps):
        spent = tuple([i for i in dict.fromkeys(step.inputs) if i not in seen])
        seen.update(spent)
        done.append(Step(step.info, step.signature, step.inputs, step.first, spent))
    return tuple(reversed(done))


def run(name: str, arguments: list[Any]) -> list[Entry]:
    """Run a function's body on entries."""
    assert apply is not None
    body = body_of(name)
    slots: list[Any] = [None] * body.slots
    slots[: body.arguments] = arguments
    for step in body.steps:
        outputs = apply(step.info, step.signature, [slots[i] for i in step.inputs])
        slots[step.first : step.first + len(outputs)] = outputs
        for i in step.spent:
            slots[i] = None
    return [slots[i] for i in body.results]


def call_by_name(signature: Signature, inputs: list[Any]) -> list[Entry]:
    """An operation whose name is a function's."""
    return run(signature.info.name, inputs)


def _call(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return run(signature.values["f"], inputs)


def _number(entry: Any) -> Any:
    if isinstance(entry, Foreign):
        return capi.handle_array(entry.handle).reshape(-1)[0]
    assert isinstance(entry, Tensor)
    return entry.numpy().reshape(-1)[0]


def _if(signature: Signature, inputs: list[Any]) -> list[Entry]:
    branch = "then_branch" if _number(inputs[0]) else "else_branch"
    return run(signature.values[branch], inputs[1:])


def _case(signature: Signature, inputs: list[Any]) -> list[Entry]:
    branches = [f.name for f in signature.protos["branches"].list.func]
    chosen = int(_number(inputs[0]))
    return run(branches[chosen if 0 <= chosen < len(branches) else -1], inputs[1:])


def _while(signature: Signature, inputs: list[Any]) -> list[Entry]:
    state: list[Entry] = list(inputs)
    while _number(run(signature.values["cond"], state)[0]):
        state = run(signature.values["body"], state)
    return state


CONTROL: dict[str, Callable[[Signature, list[Any]], list[Entry]]] = {
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
    "While": _while,
    "StatelessWhile": _while,
}
