"""Barriers: when pending work is handed to the device.

Owns: the one path from live expressions to materialised values.  A barrier materialises everything live on the device at
once and does not wait. Its cost in the steady state does not depend on how many operations are pending: the live
expressions are the key of the program. May import `plans`, `programs`, `cache`, `backend`, `trace`, `events`.

Source: LazyTensor (Suhan et al., arXiv 2102.13267), section 3.3 (LazyTensorBarrier).
"""

from __future__ import annotations

import collections
import time
import weakref
from typing import Any

import numpy as np

from . import backend, events, plans, programs, trace
from .cache import Plan, cache
from .config import config
from .errors import ExecutionError
from .ir import Expr
from .trace import Source

_trace = trace.current()
# A small output of each of the latest programs, to wait for: all outputs of a program become ready together.  Held weakly: a buffer that
# nobody else holds may be donated.
_latest: collections.deque[tuple[weakref.ref[Any], Plan]] = collections.deque(maxlen=32)


class Failed:
    """Stands where a value's buffer would be, if computing it failed.

    Attributes:
        error: what to raise when the value is read or used.
    """

    __slots__ = ("error",)

    def __init__(self, error: ExecutionError) -> None:
        self.error = error


def barrier(wait: bool = False) -> None:
    """Materialise every live value; with `wait=True` also wait until the device has computed them.

    Raises:
        BarrierError: called inside a lowering, a composite or a callback.
        ExecutionError: compiling or running something failed.  Values that do not depend on it are materialised; reading one that does
        raises again.
    """
    error = flush("barrier()")
    if error is not None:
        raise error
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


def flush(cause: str, host_read: bool = False) -> ExecutionError | None:
    """Run the pending trace for a reason (see `barrier`); returns what failed, after materialising the rest."""
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
            failure = None
            results: Any = [()] * len(sources)
            if any(live):
                try:
                    results = _run(tuple(live), sources, cause, host_read)
                except ExecutionError as error:
                    failure = error
                    results = _run_separately(tuple(live), sources)
        except BaseException:
            for source in begun:
                source.abort()
            raise
        epoch = _trace.next_epoch()
        for source, arrays in zip(sources, results, strict=True):
            source.finish(list(arrays), epoch)
        _trace.rotate_if_full()
    return failure


def _run_separately(live: plans.Live, sources: list[Source]) -> list[list[Any]]:
    """After a failure: each live value by a program of its own, so that only those that depend on what failed are lost."""
    found: dict[Expr, Any] = {}
    for position, exprs in enumerate(live):
        for expr in exprs:
            if expr not in found:
                alone = tuple([(expr,) if k == position else () for k in range(len(live))])
                try:
                    found[expr] = _run(alone, sources, "finding out which value failed", False, exact=True)[position][0]
                except ExecutionError as error:
                    found[expr] = Failed(error)
    return [[found[expr] for expr in exprs] for exprs in live]


def _run(live: plans.Live, sources: list[Source], cause: str, host_read: bool, exact: bool = False) -> list[list[Any]]:
    plan = cache.plans.get(live) if not exact else plans.make(live, sources, cause, exact=True)
    if plan is None:
        plan = plans.make(live, sources, cause)
        cache.add_plan(live, plan)
        plan.read_site = events.user_site() if host_read else None
    elif not exact:
        events.count("cache_hits")
    events.count("barriers")
    executable = _executable_now(plan, sources, cause)  # before the lists below hold the buffers too
    begin = time.perf_counter()
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
            for argument in arguments:
                if argument.__class__ is Failed:  # the first failure says what happened, and where
                    raise argument.error from None
            raise ExecutionError(f"running a program of {plan.operations} operations failed: {error}") from error
        _latest.append((weakref.ref(outputs[plan.smallest]), plan))
    if host_read:
        events.host_read_at(cause, plan.read_site)
    events.executed(cause, plan.site, plan.operations, time.perf_counter() - begin)
    return [[outputs[o] if o.__class__ is int else leaves[o[0]][o[1]] for o in places] for places in plan.outputs]


def _executable_now(plan: Plan, sources: list[Source], cause: str) -> backend.Executable | None:
    """The plan's program, or its variant without donation if somebody holds a buffer that it would take."""
    plan.runs += 1
    if plan.runs == 2 and plan.graph is not None:  # the first time, buffers are often held by what made them
        plans.choose_program(plan, plans.Available(sources), f"{cause}, with buffers that are free to be reused by now")
    if plan.donated:
        free = [source.donatable() for source in sources]
        if not all(free[s][slot] for s, slot in plan.donated):
            if plan.undonated is None:
                assert plan.graph is not None
                plan.undonated = programs.find(plan.graph, (), cause)[0]
            return plan.undonated
    return plan.executable


_VECTOR = (np.float64, np.int64, np.complex128)
