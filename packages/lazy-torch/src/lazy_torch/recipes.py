"""Which builder serves an ATen overload, and how its results are spread over returns and written arguments.

Owns: the derivation of in-place and `out=` variants from functional builders (see `mapping`).  May import `mapping` and torch's schemas.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from lazy_core import ops
from lazy_core.errors import LazyError
from lazy_core.ir import Expr, ScalarLeaf

from . import mapping
from .mapping import Builder

# In-place operations whose functional variant has another name.
_FUNCTIONAL = {
    "normal_": "normal_functional",
    "bernoulli_.float": "bernoulli.p",
    "index_put_": "index_put",
}
# What describes a new tensor.
_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})


@dataclass(frozen=True)
class Recipe:
    """How one overload is recorded.

    Attributes:
        name: "add_.Tensor".
        builder: the builder, perhaps of the functional variant.
        positional: how many arguments are given by position.
        keywords: the names of the others.
        passed: positions of the arguments that the builder is given.
        writes: positions of the arguments that are written to.
        returns: how many returns do not alias an argument.
        derived: the builder is that of the functional variant: its results are the new values.
        out: this is an `out=` variant.
        typed: position of the written argument whose dtype the builder is told: a factory's `out=` has no `dtype`. None elsewhere.
        static, lift, hidden: argument positions (see `tensor.classify`).
    """

    name: str
    builder: Builder
    positional: int
    keywords: tuple[str, ...]
    passed: tuple[int, ...]
    writes: tuple[int, ...]
    returns: int
    derived: bool
    out: bool
    typed: int | None
    static: tuple[int, ...]
    lift: tuple[int, ...]
    hidden: tuple[int, ...]

    @property
    def random(self) -> bool:
        """Whether the builder draws random numbers."""
        return self.builder.random

    def call(self, args: tuple[Any, ...], state: Expr | None) -> list[Any]:
        """Run the builder; its results as a list."""
        given = [args[i] for i in self.passed]
        keywords = dict(zip(self.keywords, given[self.positional :], strict=True))
        if self.typed is not None:
            keywords["dtype"] = args[self.typed].shape.dtype
        first = (state,) if self.random else ()
        result = self.builder.fn(*first, *given[: self.positional], **keywords)
        # A tuple is several results; a list is one result of type Tensor[].
        return [_as_tensor(r) for r in (result if isinstance(result, tuple) else (result,))]

    def split(self, results: list[Any], args: tuple[Any, ...]) -> tuple[list[Any], list[Expr | None]]:
        """(returned, new values of the written tensors, flattened)."""
        if self.derived:
            return [], _flat(results)
        expected = self.returns + len(self.writes)
        if len(results) == 1 and expected == 0 and results[0] is None:
            results = []
        if len(results) != expected:
            raise LazyError(
                f"the lowering of aten::{self.name} gives {len(results)} results; "
                f"{self.returns} returns and {len(self.writes)} written arguments were expected"
            )
        returned = [list(r) if isinstance(r, (tuple, list)) else r for r in results[: self.returns]]
        updates: list[Expr | None] = []
        for position, update in zip(self.writes, results[self.returns :], strict=True):
            argument = args[position]
            if isinstance(argument, tuple):
                updates.extend([None] * len(argument) if update is None else update)
            elif argument is not None:
                updates.append(update)
        return returned, updates


def _as_tensor(result: Any) -> Any:
    """A result that is a number fed at run time becomes a tensor: it must not take part in promotion as a number."""
    return ops.identity(result) if isinstance(result, ScalarLeaf) else result


def _flat(results: list[Any]) -> list[Expr | None]:
    return [e for r in results for e in (r if isinstance(r, (list, tuple)) else (r,))]


@functools.cache
def recipe_of(name: str) -> Recipe | None:
    """The recipe of an overload such as "add.Tensor", or None where no builder serves it."""
    schema = _schema(name)
    builders = mapping.load()
    base, _, overload = name.partition(".")
    arguments = schema.arguments
    written = tuple([i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write])
    out = bool(written) and all(arguments[i].kwarg_only for i in written)
    builder, derived = builders.get(name), False
    functional = name
    if builder is None and written:
        functional = _functional_of(name, base, overload, schema, out)
        builder, derived = builders.get(functional), True
    if builder is None:
        return None
    passed = tuple([i for i in range(len(arguments)) if not (derived and out and i in written)])
    source = list(arguments) if not derived else _schema(functional).arguments
    typed = None
    if derived and out and _is_factory(_schema(functional)):
        source, typed = [a for a in source if a.name not in _OPTIONS], written[0]
    if derived and len(source) != len(passed):
        return None
    at = {arguments[i].name: i for i in passed}
    if at.keys() == {a.name for a in source}:  # some order them otherwise: polygamma(n, self), but self.polygamma_(n)
        passed = tuple([at[a.name] for a in source])
    keywords = tuple([a.name for a in source if a.kwarg_only])
    place = {a.name: passed[k] for k, a in enumerate(source)}
    hidden = () if derived else tuple([place[n] for n in mapping.HIDDEN_WRITES.get(name, ())])
    return Recipe(
        name=name,
        builder=builder,
        positional=len(source) - len(keywords),
        keywords=keywords,
        passed=passed,
        writes=tuple(sorted({*written, *hidden})),
        returns=sum(1 for r in schema.returns if r.alias_info is None and "Tensor" in str(r.type)),
        derived=derived,
        out=out,
        typed=typed,
        static=tuple([place[n] for n in builder.static if n in place]),
        lift=tuple([place[n] for n in builder.lift if n in place]),
        hidden=hidden,
    )


def _schema(name: str) -> Any:
    base, _, overload = name.partition(".")
    return torch._C._get_schema(f"aten::{base}", overload)


@functools.cache
def _overloads(base: str) -> dict[str, Any]:
    found = {}
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{base}"):
        found[base + ("." + schema.overload_name if schema.overload_name else "")] = schema
    return found


def _is_factory(schema: Any) -> bool:
    """Whether it takes all that describes a new tensor, which `out=` stands for."""
    return {a.name for a in schema.arguments} >= _OPTIONS


def _signature(schema: Any) -> list[str]:
    left_out = _OPTIONS if _is_factory(schema) else ()
    kept = (a for a in schema.arguments if a.name not in left_out)
    return [str(a.type) for a in kept if not (a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)]


def _functional_of(name: str, base: str, overload: str, schema: Any, out: bool) -> str:
    """The name of the functional overload that an in-place or `out=` overload is derived from, or ""."""
    if name in _FUNCTIONAL:
        return _FUNCTIONAL[name]
    if base in _FUNCTIONAL:
        return _FUNCTIONAL[base]
    if out:
        wanted = _signature(schema)
        for candidate, other in _overloads(base).items():
            if candidate != name and candidate in mapping.BUILDERS and _signature(other) == wanted:
                return candidate
        return ""
    plain = f"__{base[3:]}" if base.startswith("__i") and base.endswith("__") else base[:-1] if base.endswith("_") else ""
    direct = plain + ("." + overload if overload else "")
    if not plain or direct in mapping.BUILDERS:
        return direct if plain else ""
    wanted = _signature(schema)  # some are overloaded under other names: pow_.Tensor is pow.Tensor_Tensor in place
    return next((name for name, other in _overloads(plain).items() if name in mapping.BUILDERS and _signature(other) == wanted), "")
