"""Barriers: when pending work is handed to the device.

Owns: the one path from live expressions to materialised values.  A barrier materialises everything live on the device at once and does not wait.
Its cost in the steady state does not depend on how many operations are pending: the live expressions are the key of the program.
May import `cache`, `lowering`, `backend`, `trace`, `events`.

Source: LazyTensor (Suhan et al., arXiv 2102.13267), section 3.3 (LazyTensorBarrier).
"""

from __future__ import annotations

import collections
import time
from typing import Any

import numpy as np

from . import backend, events, lowering, trace
from .cache import Plan, cache
from .disk import disk
from .errors import ExecutionError, LazyError
from .ir import Expr, Leaf

_trace = trace.current()
# One small output of each of the latest programs, to wait for: all outputs of a program become ready together.
_latest: collections.deque[Any] = collections.deque(maxlen=32)


def barrier(wait: bool = False) -> None:
    """Materialise every live value; with `wait=True` also wait until the device has computed them.

    Raises:
        BarrierError: called inside a lowering, a composite or a callback.
        ExecutionError: compiling or running failed; everything stays pending.
    """
    flush("barrier()")
    if wait:
        with _trace.lock:
            backend.wait(_latest)


def flush(cause: str, host_read: bool = False) -> None:
    """Run the pending trace for a reason (see `barrier`)."""
    _trace.check_barrier_allowed()
    with _trace.lock:
        sources = list(_trace.sources)
        begun = []
        try:
            live = []
            for source in sources:
                begun.append(source)
                live.append(tuple(source.live()))
            if host_read and any(live):
                events.host_read(cause)
            results = _run(tuple(live), sources, cause) if any(live) else [()] * len(sources)
        except BaseException:
            for source in begun:
                source.abort()
            raise
        epoch = _trace.next_epoch()
        for source, arrays in zip(sources, results, strict=True):
            source.finish(list(arrays), epoch)
        _trace.rotate_if_full()


def _run(live: tuple[tuple[Expr, ...], ...], sources: list[trace.Source], cause: str) -> list[list[Any]]:
    plan = cache.plans.get(live)
    if plan is None:
        plan = _make_plan(live, cause)
        cache.plans.put(live, plan)
    else:
        events.count("cache_hits")
    events.count("barriers")
    leaves = [source.leaves() for source in sources]
    outputs: Any = ()
    if plan.executable is not None:
        arguments = [leaves[s][slot] for s, slot in plan.arguments]
        packed: list[np.ndarray] = []
        if plan.scalars:
            scalars = [source.scalars() for source in sources]
            packed = [np.array([scalars[s][kind][slot] for s, slot in slots], _VECTOR[kind]) for kind, slots in plan.scalars]
        try:
            outputs = plan.executable(arguments, packed)
        except Exception as error:
            raise ExecutionError(f"running a program of {plan.operations} operations failed: {error}") from error
        _latest.append(outputs[plan.smallest])
    return [[outputs[o] if o.__class__ is int else leaves[o[0]][o[1]] for o in places] for places in plan.outputs]


_VECTOR = (np.float64, np.int64, np.complex128)


def _make_plan(live: tuple[tuple[Expr, ...], ...], cause: str) -> Plan:
    number: dict[int, int] = {}
    roots: list[Expr] = []
    places: list[tuple[Any, ...]] = []
    for exprs in live:
        row: list[Any] = []
        for expr in exprs:
            if isinstance(expr, Leaf):
                row.append((expr.source, expr.slot))
                continue
            if id(expr) not in number:
                number[id(expr)] = len(roots)
                roots.append(expr)
            row.append(number[id(expr)])
        places.append(tuple(row))
    if not roots:
        return Plan(None, (), (), tuple(places), 0, 0)
    graph = lowering.linearise(roots)
    return Plan(
        _find_executable(graph, cause),
        tuple([(leaf.source, leaf.slot) for leaf in graph.leaves]),
        tuple([(k, tuple([(s.source, s.slot) for s in group])) for k, group in enumerate(graph.scalars) if group]),
        tuple(places),
        len(graph.nodes),
        min(range(len(roots)), key=lambda i: roots[i].shape.nbytes),
    )


def _find_executable(graph: lowering.Graph, cause: str) -> backend.Executable:
    """The program of a graph: from memory by structure or by StableHLO text, from disk by either, or compiled."""
    executable = cache.structures.get(graph.key)
    if executable is not None:
        events.count("canonical_hits")
        return executable
    try:
        structure = lowering.text_of(graph)
        executable = _load(structure) if structure is not None else None
        if executable is None:
            executable = _lower_and_find(graph, structure, cause)
    except LazyError:
        raise
    except Exception as error:
        raise ExecutionError(
            f"compiling a trace of {len(graph.nodes)} operations (last recorded at {_site(graph)}) failed: {error}"
        ) from error
    cache.structures.put(graph.key, executable)
    return executable


def _load(structure: str) -> backend.Executable | None:
    text = disk.get("index", structure)
    payload = disk.get("program", text.decode()) if text is not None else None
    executable = backend.deserialise(payload) if payload is not None else None
    if executable is not None:
        events.count("disk_hits")
    return executable


def _lower_and_find(graph: lowering.Graph, structure: str | None, cause: str) -> backend.Executable:
    begin = time.perf_counter()
    program = backend.lower(lowering.function_of(graph), graph.argument_shapes)
    executable = cache.programs.get(program.text)
    if executable is not None:
        events.count("canonical_hits")
        return executable
    payload = disk.get("program", program.text)
    executable = backend.deserialise(payload) if payload is not None else None
    if executable is not None:
        events.count("disk_hits")
    else:
        events.emit("compile", f"a new graph at {cause}", site=_site(graph), operations=len(graph.nodes))
        executable = program.compile()
        seconds = time.perf_counter() - begin
        events.count("compiles")
        events.count("compile_seconds", seconds)
        events.amend_last(seconds=seconds)
        if disk.folder() is not None:
            payload = executable.serialise()
            if payload is not None:
                disk.put("program", program.text, payload)
    if structure is not None and payload is not None:
        disk.put("index", structure, program.text.encode())
    cache.programs.put(program.text, executable)
    return executable


def _site(graph: lowering.Graph) -> str | None:
    return graph.nodes[-1].site if graph.nodes else None
