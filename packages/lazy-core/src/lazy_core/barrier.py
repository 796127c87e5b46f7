"""Barriers: when pending work is handed to the device.

Owns: the one path from live expressions to materialised values.  A barrier materialises everything live on the device at
once and does not wait. Its cost in the steady state does not depend on how many operations are pending: the live
expressions are the key of the program. May import `tiers`, `execution`, `plans`, `programs`, `cache`, `history`,
`shadow`, `backend`, `allocator`, `interrupts`, `trace`, `events`.

Source: LazyTensor (Suhan et al., arXiv 2102.13267), section 3.3 (LazyTensorBarrier).
"""

from __future__ import annotations

import os
import time
from typing import Any

from . import allocator, backend, events, history, interrupts, plans, programs, shadow, tiers, trace
from .cache import Plan, cache
from .config import config
from .errors import BarrierError, ExecutionError
from .execution import Failed, execute, failed_programs, wait_for_latest
from .ir import Expr
from .trace import Source

__all__ = ["Failed", "barrier", "failed_programs", "flush"]

_trace = trace.current()

_running = False  # whether the thread that holds the trace's lock runs a barrier


def barrier(wait: bool = False) -> None:
    """Materialise every live value; with `wait=True` also wait until the device has computed them.

    Raises:
        BarrierError: called inside a lowering, a composite, a callback, or another barrier.
        ExecutionError: compiling or running something failed.  Values that do not depend on it are materialised; reading one that does
        raises again.
    """
    error = flush("barrier()")
    if error is not None:
        raise error
    if wait:
        with _trace.lock:
            wait_for_latest()


def flush(cause: str, host_read: bool = False, native: bool = False) -> ExecutionError | None:
    """Run the pending trace for a reason (see `barrier`); returns what failed, after materialising the rest.

    Args:
        cause: why, for the report.
        host_read: the host is about to read one of the values.
        native: nothing is to be compiled, whatever the setting: the trace is not known to repeat.
    """
    global _running
    _trace.check_barrier_allowed()
    with _trace.lock:
        if _running:
            raise BarrierError(
                "a barrier (or a read of a pending value) cannot run inside another one, in a destructor or in a signal's handler; "
                "read the value before, or after"
            )
        _running = True
        try:
            return _flush(cause, host_read, native)
        finally:
            _running = False
            interrupts.release()


def _flush(cause: str, host_read: bool, native: bool) -> ExecutionError | None:
    sources = list(_trace.sources)
    begun = []
    try:
        live = []
        for source in sources:
            begun.append(source)
            live.append(tuple(source.live()))
        if host_read and "host_read" in config.strict and any(live):
            events.host_read(cause)
        failure = None
        results: Any = [()] * len(sources)
        if any(live):
            kept = history.begin(live, sources, cause) if config.keep_traces or history.watchers else None
            try:
                results = _run(tuple(live), sources, cause, host_read, native)
            except ExecutionError as error:
                interrupts.release()
                failure = error
                results = _run_separately(tuple(live), sources)
            interrupts.hold()  # till everything has its holder
            if kept is not None:
                history.end(kept, results, failure)
    except BaseException:
        try:
            interrupts.hold()
        finally:
            shadow.drop()
            for source in begun:
                source.abort()
        raise
    epoch = _trace.next_epoch()
    for source, arrays in zip(sources, results, strict=True):
        source.finish(list(arrays), epoch)
    if _trace.rotate_if_full():
        allocator.give_back()
    if shadow.held:
        shadow.tell()
    return failure


def _after_fork_in_child() -> None:
    global _running
    _running = False  # what another thread of the parent was about does not go on here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _run_separately(live: plans.Live, sources: list[Source]) -> list[list[Any]]:
    """After a failure: each live value by a program of its own, so that only those that depend on what failed are lost."""
    cause = "finding out which value failed"
    found: dict[Expr, Any] = {}
    for position, exprs in enumerate(live):
        for expr in exprs:
            if expr not in found:
                alone = tuple([(expr,) if k == position else () for k in range(len(live))])
                try:
                    if tiers.in_force() == "compiled":
                        found[expr] = _run_compiled(alone, sources, cause, exact=True)[position][0]
                    else:
                        found[expr] = tiers.run_native(alone, sources)[position][0]
                except ExecutionError as error:
                    found[expr] = Failed(error)
    return [[found[expr] for expr in exprs] for exprs in live]


def _run(live: plans.Live, sources: list[Source], cause: str, host_read: bool, native: bool) -> list[list[Any]]:
    if native or tiers.in_force() != "compiled":
        return tiers.run(live, sources, cause, host_read, native)
    return _run_compiled(live, sources, cause, host_read)


def _run_compiled(live: plans.Live, sources: list[Source], cause: str, host_read: bool = False, exact: bool = False) -> list[list[Any]]:
    """Run the trace as one program, compiling it first if it is new."""
    backend.check_process()
    plan = cache.plans.get(live) if not exact else plans.make(live, sources, cause, exact=True)
    if plan is None or (plan.executable is None and plan.roots):  # new, or so far planned for another tier only
        plan = plans.make(live, sources, cause)
        cache.add_plan(live, plan)
        plan.read_site = events.user_site() if host_read else None
    elif not exact:
        events.count("cache_hits")
    events.count("barriers")
    executable = _executable_now(plan, sources, cause)  # before the buffers are held by lists too
    begin = time.perf_counter()
    results, _ = execute(plan, executable, sources)
    if host_read:
        events.host_read_at(cause, plan.read_site)
    events.executed(cause, plan.site, plan.operations, time.perf_counter() - begin)
    return results


def _executable_now(plan: Plan, sources: list[Source], cause: str) -> backend.Executable | None:
    """The plan's program, or its variant without donation if somebody holds a buffer that it would take."""
    plan.runs += 1
    if plan.runs == 2 and plan.graph is not None:  # the first time, buffers are often held by what made them
        plans.choose_program(plan, plans.Available(sources), f"{cause}, with buffers that are free to be reused by now")
    if plan.donated and not plans.donation_is_free(plan, sources):
        if plan.undonated is None:
            assert plan.graph is not None
            plan.undonated = programs.find(plan.graph, (), cause)[0]
        return plan.undonated
    return plan.executable
