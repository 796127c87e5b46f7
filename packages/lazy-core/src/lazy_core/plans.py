"""Plans: from a trace key to what runs for it.

Owns: how live expressions map to a program's arguments and outputs, the rule that a program which returns more serves a
smaller live set, and the choice of what is donated.  Nothing here runs in the steady state.  May import `programs`,
`cache`, `lowering`, `causes`, `events`, `trace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import causes, events, lowering, programs
from .cache import Plan, cache
from .ir import Expr, Leaf
from .shape import Shape
from .trace import Source

# The live expressions of each source: the trace key.
Live = tuple[tuple[Expr, ...], ...]


def make(live: Live, sources: Sequence[Source], cause: str, exact: bool = False, later: bool = False) -> Plan:
    """The plan of a trace key that is not known yet.

    Args:
        live: the trace key.
        sources: who holds the live values.
        cause: why it is needed, for the report.
        exact: compute what is live only, and donate nothing.
        later: compile nothing now; the plan has a program only if one is in memory.

    Raises:
        ExecutionError: lowering or compiling failed.
    """
    number: dict[int, int] = {}
    roots: list[Expr] = []
    places: list[tuple[Any, ...]] = []
    kept: set[tuple[int, int]] = set()  # leaves that are live values themselves
    for exprs in live:
        row: list[Any] = []
        for expr in exprs:
            if isinstance(expr, Leaf):
                row.append((expr.source, expr.slot))
                kept.add((expr.source, expr.slot))
                continue
            if id(expr) not in number:
                number[id(expr)] = len(roots)
                roots.append(expr)
            row.append(number[id(expr)])
        places.append(tuple(row))
    if not roots:
        return Plan(None, (), (), tuple(places), (), 0)
    available = Available(sources)
    graph = lowering.linearise(roots, lowering.gives_exact(live, sources))
    larger = None if exact else _returns_more(graph, available)
    if larger is not None:
        events.count("cache_hits")
        graph = larger
        position = {expr: k for k, expr in enumerate(graph.outputs)}
        places = [tuple([position[roots[o]] if o.__class__ is int else o for o in row]) for row in places]
    elif not exact:
        graph = _with_former_outputs(graph, available)
    plan = Plan(
        None,
        tuple([(leaf.source, leaf.slot) for leaf in graph.leaves]),
        tuple([(k, tuple([(s.source, s.slot) for s in group])) for k, group in enumerate(graph.scalars) if group]),
        tuple(places),
        graph.outputs,
        len(graph.nodes),
        graph,
        frozenset(kept),
    )
    plan.site = causes.site(graph)
    if exact:
        plan.executable = programs.find(graph, (), cause)[0]
    else:
        choose_program(plan, available, cause, later)
    return plan


def choose_program(plan: Plan, available: Available, cause: str, later: bool = False) -> None:
    """Find the plan's program, donating whatever is free now; `later`: only if that needs no compiling."""
    assert plan.graph is not None
    plan.free = tuple([k for k, place in enumerate(plan.arguments) if place not in plan.kept and available.free(*place)])
    found = programs.known(plan.graph, plan.free) if later else programs.find(plan.graph, plan.free, cause)
    if found is not None:
        plan.executable, donated = found
        plan.donated = tuple([plan.arguments[k] for k in donated])


def donation_is_free(plan: Plan, sources: Sequence[Source]) -> bool:
    """Whether nobody but the trace holds the buffers that the plan's program takes over."""
    free = [source.donatable() for source in sources]
    return all(free[s][slot] for s, slot in plan.donated)


# A program that computes this many times the operations needed is not run for the sake of avoiding a compile.
_MOST_WASTE = 2
# From this many programs on that differ only in what they return, one is compiled that returns what any of them did.
_VARIANTS = 3


class Available:
    """What the current trace has: which leaf and scalar slots are filled, and with buffers of which shape."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._free = [source.donatable() for source in sources]  # before the lists below hold the buffers too
        self._leaves = [source.leaves() for source in sources]
        self._scalars = [source.scalars() for source in sources]

    def free(self, source: int, slot: int) -> bool:
        """Whether nobody but the trace holds the buffer of a slot."""
        return self._free[source][slot]

    def has(self, graph: lowering.Graph) -> bool:
        """Whether a graph made in some earlier trace can be computed from this one's slots."""
        for leaf in graph.leaves:
            leaves = self._leaves[leaf.source]
            if leaf.slot >= len(leaves) or not hasattr(leaves[leaf.slot], "dtype"):  # missing, or computing it failed
                return False
            if Shape.of(leaves[leaf.slot].shape, leaves[leaf.slot].dtype) is not leaf.shape:
                return False
        return all(s.slot < len(self._scalars[s.source][kind]) for kind, group in enumerate(graph.scalars) for s in group)


def _returns_more(graph: lowering.Graph, available: Available) -> lowering.Graph | None:
    """The graph of a plan of the same trace that returns everything wanted and more: spurious live values must not cost a compile."""
    wanted = set(graph.outputs)
    candidates = min([cache.plans_with(root) for root in graph.outputs], key=len)
    for plan in reversed(candidates):
        if (
            plan.graph is not None
            and plan.graph.exact == graph.exact
            and wanted <= set(plan.roots)
            and plan.operations <= _MOST_WASTE * len(graph.nodes)
            and available.has(plan.graph)
        ):
            return plan.graph
    return None


def _with_former_outputs(graph: lowering.Graph, available: Available) -> lowering.Graph:
    """The graph, or, where live sets keep varying, one that also returns what its variants returned."""
    wanted = set(graph.outputs)
    related = {id(plan): plan for root in graph.outputs for plan in cache.plans_with(root)}
    variants = [
        plan
        for plan in related.values()
        if 2 * len(wanted.intersection(plan.roots)) >= len(wanted) and plan.operations <= _MOST_WASTE * len(graph.nodes)
    ]
    if len(variants) < _VARIANTS - 1:
        return graph
    more = {root for plan in variants for root in plan.roots} - wanted
    if not more:
        return graph
    joined = lowering.linearise([*graph.outputs, *sorted(more, key=lambda e: e.id)], graph.exact)
    fits = joined.exact == graph.exact and len(joined.nodes) <= _MOST_WASTE * len(graph.nodes) and available.has(joined)
    return joined if fits else graph
