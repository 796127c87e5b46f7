"""How a raw TensorFlow operation is declared to be lowered.

Owns: the registry `RULES` and the two ways to fill it.  `lower` takes a function over core expressions, written with `lazy_core.ops`:

* its positional parameters are the operation's inputs in order, without those that are named among its keywords;
* its keyword-only parameters are static: an attribute of that name, or an input of that name whose contents the host must know (axes,
  shapes).  One with a default may be missing in an operation.

`direct` maps to one core operation whose operands and meaning are the same.  Names are the OpDef's.  May import the core only.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lazy_core import ir
from lazy_core.ir import Const, Expr
from lazy_core.ops.registry import composite

Lift = Callable[[tuple[int, ...], Mapping[str, Any]], "tuple[Any, tuple[int, ...], dict[str, Any]] | None"]


@dataclass(frozen=True)
class Rule:
    """A lowering.

    Attributes:
        target: the composite or core operation that is recorded.
        keywords: the static keywords that it takes.
        optional: those of them that an operation may lack.
        aliases: their TensorFlow names where those differ.
        lift: given the dimensions of the first operand and the static keywords, another target, whole numbers that are to be
            operands of it after the others (so that a changing one becomes a run-time scalar), and its static keywords; or None.
    """

    target: Any
    keywords: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    lift: Lift | None = None
    optional: frozenset[str] = frozenset()


RULES: dict[str, Rule] = {}


def _add(name: str, rule: Rule) -> None:
    if name in RULES:
        raise ValueError(f"two lowerings for TensorFlow's operation {name}")
    RULES[name] = rule


def lower(*names: str, lift: Lift | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function over expressions as the lowering of these operations."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        keywords = tuple([p.name for p in parameters if p.kind is p.KEYWORD_ONLY])
        optional = frozenset([p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty])
        aliases = {k: k[:-1] for k in keywords if k.endswith("_") and keyword.iskeyword(k[:-1])}
        for name in names:
            _add(name, Rule(composite(f"tf.{name}")(function), keywords, aliases, lift, optional))
        return function

    return declare


def direct(target: Any, *names: str) -> None:
    """Declare that these operations are exactly one core operation without static attributes."""
    for name in names:
        _add(name, Rule(target))


def like(x: Expr, number: float | bool | complex) -> Const:
    """A constant of the dtype of an expression."""
    return ir.const(number, x.shape.dtype)
