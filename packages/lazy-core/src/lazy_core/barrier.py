"""Barriers: when pending work is handed to the device.

Owns: the one path from live expressions to materialised values.  A barrier materialises everything live on the device at once and does not wait.
Its cost in the steady state does not depend on how many operations are pending: the live expressions are the key of the program.
May import `programs`, `cache`, `lowering`, `backend`, `trace`, `events`.

Source: LazyTensor (Suhan et al., arXiv 2102.13267), section 3.3 (LazyTensorBarrier).
"""

from __future__ import annotations

import collections
import time
import weakref
from typing import Any

import numpy as np

from . import backend, causes, events, lowering, programs, trace
from .cache import Plan, cache
from .config import config
from .errors import ExecutionError, LazyError
from .ir import Expr, Leaf
from .shape import Shape

_trace = trace.current()
# A small output of each of the latest programs, to wait for: all outputs of a program become ready together.  Held weakly: a buffer that
# nobody else holds may be donated.
_latest: collections.deque[tuple[weakref.ref[Any], Plan]] = collections.deque(maxlen=32)


def barrier(wait: bool = False) -> None:
    """Materialise every live value; with `wait=True` also wait until the device has computed them.

    Raises:
        BarrierError: called inside a lowering, a composite or a callback.
        ExecutionError: compiling or running failed; everything stays pending.
    """
    flush("barrier()")
    if wait:
        with _trace.lock:
            backend.wait([array for ref, _ in _latest if (array := ref()) is not None])


def failed_programs() -> list[str]:
    """The lines that recorded the last operation of each recent program whose execution failed, newest first."""
    lines = []
    for ref, plan in reversed(_latest):
        array = ref()
        try:
            if array is not None:
                backend.wait([array])
        except Exception:  # whatever the device raises: the caller reports its own failure and wants the origin
            lines.append(f"{plan.operations} operations, the last recorded at {plan.site or 'an unknown line'}")
    return lines


def flush(cause: str, host_read: bool = False) -> None:
    """Run the pending trace for a reason (see `barrier`)."""
    _trace.check_barrier_allowed()
    backend.check_process()
    with _trace.lock:
        sources = list(_trace.sources)
        begun = []
        try:
            live = []
            for source in sources:
                begun.append(source)
                live.append(tuple(source.live()))
            if host_read and "host_read" in config.strict and any(live):
                events.host_read(cause)
            results = _run(tuple(live), sources, cause, host_read) if any(live) else [()] * len(sources)
        except BaseException:
            for source in begun:
                source.abort()
            raise
        epoch = _trace.next_epoch()
        for source, arrays in zip(sources, results, strict=True):
            source.finish(list(arrays), epoch)
        _trace.rotate_if_full()


def _run(live: tuple[tuple[Expr, ...], ...], sources: list[trace.Source], cause: str, host_read: bool) -> list[list[Any]]:
    begin = time.perf_counter()
    plan = cache.plans.get(live)
    if plan is None:
        plan = _make_plan(live, sources, cause)
        cache.add_plan(live, plan)
        plan.site = causes.site(plan.graph) if plan.graph is not None else None
        plan.read_site = events.user_site() if host_read else None
    else:
        events.count("cache_hits")
    events.count("barriers")
    executable = _executable_now(plan, sources, cause)  # before the lists below hold the buffers too
    leaves = [source.leaves() for source in sources]
    outputs: Any = ()
    if executable is not None:
        arguments = [leaves[s][slot] for s, slot in plan.arguments]
        packed: list[np.ndarray] = []
        if plan.scalars:
            scalars = [source.scalars() for source in sources]
            packed = [np.array([scalars[s][kind][slot] for s, slot in slots], _VECTOR[kind]) for kind, slots in plan.scalars]
        try:
            outputs = executable(arguments, packed)
        except Exception as error:
            raise ExecutionError(f"running a program of {plan.operations} operations failed: {error}") from error
        _latest.append((weakref.ref(outputs[plan.smallest]), plan))
    if host_read:
        events.host_read_at(cause, plan.read_site)
    events.executed(cause, plan.site, plan.operations, time.perf_counter() - begin)
    return [[outputs[o] if o.__class__ is int else leaves[o[0]][o[1]] for o in places] for places in plan.outputs]


def _executable_now(plan: Plan, sources: list[trace.Source], cause: str) -> backend.Executable | None:
    """The plan's program, or its variant without donation if somebody holds a buffer that it would take."""
    plan.runs += 1
    if plan.runs == 2 and plan.graph is not None:  # the first time, buffers are often held by what made them
        _choose_program(plan, _Available(sources), f"{cause}, with buffers that are free to be reused by now")
    if plan.donated:
        free = [source.donatable() for source in sources]
        if not all(free[s][slot] for s, slot in plan.donated):
            if plan.undonated is None:
                assert plan.graph is not None
                plan.undonated = programs.find(plan.graph, (), cause)[0]
            return plan.undonated
    return plan.executable


_VECTOR = (np.float64, np.int64, np.complex128)


def _make_plan(live: tuple[tuple[Expr, ...], ...], sources: list[trace.Source], cause: str) -> Plan:
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
    available = _Available(sources)
    graph = lowering.linearise(roots)
    larger = _returns_more(graph, available)
    if larger is not None:
        events.count("cache_hits")
        graph = larger
        position = {expr: k for k, expr in enumerate(graph.outputs)}
        places = [tuple([position[roots[o]] if o.__class__ is int else o for o in row]) for row in places]
    else:
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
    _choose_program(plan, available, cause)
    return plan


def _choose_program(plan: Plan, available: _Available, cause: str) -> None:
    """Find the plan's program, donating whatever is free now."""
    assert plan.graph is not None
    free = [k for k, (s, slot) in enumerate(plan.arguments) if (s, slot) not in plan.kept and available.free(s, slot)]
    plan.executable, donated = programs.find(plan.graph, free, cause)
    plan.donated = tuple([plan.arguments[k] for k in donated])


# A program that computes this many times the operations needed is not run for the sake of avoiding a compile.
_MOST_WASTE = 2
# From this many programs on that differ only in what they return, one is compiled that returns what any of them did.
_VARIANTS = 3


class _Available:
    """What the current trace has: which leaf and scalar slots are filled, and with buffers of which shape."""

    def __init__(self, sources: list[trace.Source]) -> None:
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
            if leaf.slot >= len(leaves) or Shape.of(leaves[leaf.slot].shape, leaves[leaf.slot].dtype) is not leaf.shape:
                return False
        return all(
            s.slot < len(self._scalars[s.source][kind]) for kind, group in enumerate(graph.scalars) for s in group
        )


def _returns_more(graph: lowering.Graph, available: _Available) -> lowering.Graph | None:
    """The graph of a plan of the same trace that returns everything wanted and more: spurious live values must not cost a compile."""
    wanted = set(graph.outputs)
    candidates = min([cache.by_root.get(root) or [] for root in graph.outputs], key=len)
    for plan in reversed(candidates):
        if (
            plan.graph is not None
            and wanted <= set(plan.roots)
            and plan.operations <= _MOST_WASTE * len(graph.nodes)
            and available.has(plan.graph)
        ):
            return plan.graph
    return None


def _with_former_outputs(graph: lowering.Graph, available: _Available) -> lowering.Graph:
    """The graph, or, where live sets keep varying, one that also returns what its variants returned."""
    wanted = set(graph.outputs)
    related = {id(plan): plan for root in graph.outputs for plan in cache.by_root.get(root) or []}
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
    joined = lowering.linearise([*graph.outputs, *sorted(more, key=lambda e: e.id)])
    fits = len(joined.nodes) <= _MOST_WASTE * len(graph.nodes) and available.has(joined)
    return joined if fits else graph
