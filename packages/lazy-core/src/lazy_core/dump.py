"""Showing graphs and values without running anything.

Owns: `graph` (the pending graph of a value as text), `explain` (what is known about a value), and `inspected` (what a debugger is shown).
May import `ir`, `events`, `errors`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from . import events
from .errors import LazyError
from .ir import Expr, Node, post_order


def value_of(tensor: Any) -> Any:
    """The core value behind a frontend's tensor (its `__lazy_core_value__()`), or the argument itself if it is one.

    Raises:
        TypeError: the argument is no lazy tensor.
    """
    if getattr(type(tensor), "__lazy_value__", False):
        return tensor
    method = getattr(tensor, "__lazy_core_value__", None)
    if method is None:
        raise TypeError(f"{type(tensor).__name__} is not a lazy tensor or value")
    return method()


def value_or_none(x: Any) -> Any:
    """The core value behind a frontend's lazy tensor; None for everything else, such as a tensor of that class on another device."""
    if getattr(type(x), "__lazy_core_value__", None) is None:
        return None
    try:
        return value_of(x)
    except (TypeError, LazyError):
        return None


def graph(tensor: Any) -> str:
    """The pending operations that a value needs, one a line, inputs first; nothing is executed.

    Raises:
        TypeError: the argument is no lazy tensor.
    """
    value = value_of(tensor)
    if value.expr is None:
        return f"{value.shape} materialised"
    return graph_text((value.expr,))


def graph_text(outputs: tuple[Expr, ...]) -> str:
    """The operations below some expressions as text, numbered from zero."""
    number: dict[int, int] = {}
    lines = []
    for item in post_order(outputs):
        number[id(item)] = len(number)
        if isinstance(item, Node):
            shapes = ", ".join(str(e.shape) for e in item.outputs)
            args = ", ".join([_name(number, e) for e in item.inputs] + ([item.attrs.name] if item.attrs.kwargs else []))
            site = f"    # {item.site}" if item.site else ""
            lines.append(f"%{number[id(item)]} = {shapes} {item.op.name}({args}){site}")
        else:
            lines.append(f"%{number[id(item)]} = {item.shape} {item._describe()}")
    lines.append("return " + ", ".join(_name(number, e) for e in outputs))
    return "\n".join(lines)


_LINE = re.compile(r"^%(\d+) = (.*?)(?:    # (.*))?$")


def dot(text: str) -> str:
    """A graph's text (see `graph_text`) in Graphviz's language."""
    lines = ["digraph lazy {", "  rankdir=TB; node [shape=box, fontname=monospace, fontsize=10];"]
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        number, body, site = found.groups()
        label = body.replace("\\", "\\\\").replace('"', '\\"') + (f"\\n{site}" if site else "")
        lines.append(f'  n{number} [label="{label}"];')
        lines += [f"  n{operand} -> n{number};" for operand in dict.fromkeys(re.findall(r"%(\d+)", body))]
    return "\n".join([*lines, "}"])


def _name(number: dict[int, int], expr: Expr) -> str:
    key = expr if expr.node is None else expr.node
    suffix = f".{expr.index}" if expr.node is not None and len(expr.node.outputs) > 1 else ""
    return f"%{number[id(key)]}{suffix}"


def explain(tensor: Any) -> str:
    """Shape, dtype, state and origin of a lazy tensor in one line; nothing is executed.

    Raises:
        TypeError: the argument is no lazy tensor.
    """
    value = value_of(tensor)
    if value.array is not None:
        return f"{value.shape}, materialised"
    node = value.expr.node
    if node is None:
        return f"{value.shape}, pending: {value.expr!r}"
    operations = sum(isinstance(item, Node) for item in post_order((value.expr,)))
    return f"{value.shape}, pending: {operations} operations, last {node.op.name} first recorded at {node.site or 'an unknown line'}"


# Files and folders of debuggers, and of what they call to show a value.
_DEBUGGERS = frozenset({"pdb.py", "bdb.py", "_pydevd_bundle", "pydevd", "debugpy", "ipdb", "pudb", "wdb"})
_SHOWING = frozenset({"reprlib.py", "pprint.py"})


def inspected(tensor: Any) -> str | None:
    """What a frontend's `repr` returns in place of the contents, where a debugger asks for it and the value is pending; else None.

    A debugger that shows variables must not run what the program has not run.  A `print` that the user types there does.

    Raises:
        TypeError: the argument is no lazy tensor.
    """
    return f"<lazy {explain(tensor)}>" if _asked_by_debugger() and value_of(tensor).array is None else None


def _asked_by_debugger() -> bool:
    """Whether the innermost line that is no library's belongs to a debugger."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        parts = set(name.split(os.sep))
        if parts & _DEBUGGERS:
            return True
        if not events.is_hidden(name) and not parts & _SHOWING:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False
