"""Tiers: whether a trace runs natively, operation by operation, or as one compiled program.

Owns: what runs where, and when that is asked. A trace that is new runs natively at once. When it comes a second time it is compiled in a
background thread, and meanwhile goes on natively. Then both are timed on real runs (see `trials`), and the faster one stays. A trace that
takes less than handing a program to the device is never compiled. May import `execution`, `compiling`, `trials`, `plans`, `native`,
`cache`, `backend`, `trace`, `events`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import allocator, backend, compiling, events, native, plans
from .cache import Plan, cache
from .config import config
from .errors import ExecutionError, LazyError
from .execution import execute, wait_for_previous
from .ir import Expr, Leaf
from .trace import Source
from .trials import DISPATCH_SECONDS, Trial

# A first run may be slow because it is the first: a shorter one than this is run once more before the trace is planned.
_SURELY_LONG_SECONDS = 1e-3
# For each trace key that has run natively but is not planned yet: the shortest run in seconds, and how many there were.
_sighted: OrderedDict[plans.Live, tuple[float, int]] = OrderedDict()


_forgotten = 0
_expected: float | None = None
_latest: Plan | None = None
_runs = 0  # how many recorded traces have run


def expect(seconds: float) -> None:
    """Say that the trace that is about to run is known to repeat, and that its frontend's library takes so many seconds for it."""
    global _expected
    _expected = seconds


def latest_plan() -> Plan | None:
    """The plan of the trace that ran last, once; None if it has none."""
    global _latest
    found, _latest = _latest, None
    return found


def in_force() -> str:
    """The setting, with "auto" meaning "compiled" where the device is an accelerator."""
    tier = config.tier
    return "compiled" if tier == "auto" and backend.accelerated() else tier


def forget() -> None:
    """Forget every trace that was seen and every job that has not begun."""
    _sighted.clear()
    compiling.cancel()


def trials() -> list[Trial]:
    """What is known of each trace that came more than once, oldest first."""
    return [plan.trial for plan in cache.plans.entries() if plan.trial is not None]


def run(live: plans.Live, sources: list[Source], cause: str, host_read: bool, forced: bool) -> list[list[Any]]:
    """Run a trace on the tier that suits it (see the module's docstring); `forced` means natively.

    Raises:
        ExecutionError: running it failed.
    """
    global _expected, _latest, _runs
    events.count("barriers")
    only_native = forced or in_force() == "native"
    expected, _expected, _latest = _expected, None, None
    _runs += 1
    plan = cache.plans.get(live)
    if plan is None:
        before, runs = _sighted.pop(live, (expected, 2 if expected is not None else 0))
        known = before is not None and (runs > 1 or before < DISPATCH_SECONDS or before >= _SURELY_LONG_SECONDS)
        if only_native or before is None or not known or before < DISPATCH_SECONDS:
            results, seconds = _timed_native(live, sources, cause, None, host_read)
            if not only_native:
                _sight(live, seconds if before is None else min(before, seconds), runs + 1)
                if known:
                    _settle(sources, native=True)
            return results
        plan = _plan(live, sources, cause, before)
    _latest = None if only_native else plan
    trial = plan.trial
    if trial is None and plan.roots:  # planned when everything was compiled
        trial = plan.trial = Trial(plan.site, plan.operations, "compiled", "compiled at once, as the setting was then")
    if only_native:
        return _timed_native(live, sources, cause, trial, host_read)[0]
    if trial is not None and trial.due() and not compiling.busy():
        _look_again(plan, trial, sources, cause)
    if trial is not None and trial.tried:
        _end_trying(plan, trial, sources)
    if trial is not None and (plan.executable is None or trial.next_tier(compiling.busy()) == "native"):
        measured = plan.executable is not None and trial.verdict is None
        alone = measured and _alone(trial, sources)
        if measured and not trial.in_rounds(time.perf_counter(), alone):
            wait_for_previous()
        results, seconds = _timed_native(live, sources, cause, trial, host_read)
        if measured:
            _note(plan, trial, "native", seconds, alone)
        if trial.verdict == "native":
            _settle(sources, native=True)
        elif trial.verdict is None and (plan.executable is None or trial.waits()):
            _postpone(sources)
        return results
    return _run_program(plan, live, sources, cause, host_read)


def _run_program(plan: Plan, live: plans.Live, sources: list[Source], cause: str, host_read: bool) -> list[list[Any]]:
    trial = plan.trial
    executable = plan.executable
    if plan.donated and not plans.donation_is_free(plan, sources):
        if plan.undonated is None:
            compiling.submit_undonated(plan, f"{cause}, with buffers that are still held")
            return _timed_native(live, sources, cause, trial, host_read)[0]
        executable = plan.undonated
    measured = trial if trial is not None and trial.verdict is None else None
    alone = measured is not None and _alone(measured, sources)
    in_rounds = measured is not None and measured.in_rounds(time.perf_counter(), alone)
    if measured is not None:  # else what is still under way counts as its own
        wait_for_previous()
    begin = time.perf_counter()
    results, outputs = execute(plan, executable, sources)
    plan.runs += 1
    events.count("cache_hits")
    if trial is not None:
        trial.compiled_runs += 1
    if measured is None:
        _settle(sources, native=False)
    else:
        if not in_rounds:
            backend.wait(outputs)
        _note(plan, measured, "compiled", time.perf_counter() - begin, alone)
        _begin_trying(measured, live, sources)
    if host_read:
        events.host_read_at(cause, plan.read_site)
    events.executed(cause, plan.site, plan.operations, time.perf_counter() - begin)
    return results


def _alone(trial: Trial, sources: Sequence[Source]) -> bool:
    """Whether no other trace has run since this one did, as far as it was timed; asked once before each such run."""
    as_they_came = sum([source.counters().get("native_runs", 0) for source in sources])
    alone, trial.latest = trial.latest == (_runs - 1, as_they_came), (_runs, as_they_came)
    return alone


def _note(plan: Plan, trial: Trial, tier: str, seconds: float, alone: bool) -> None:
    if trial.note(tier, seconds, alone=alone):
        _remember(plan, trial)


_trying: Trial | None = None  # whose native rounds a frontend times, or timed last: those of one trial at a time


def _begin_trying(trial: Trial, live: plans.Live, sources: Sequence[Source]) -> None:
    """Have the frontend run native rounds as they come, if it is time for them and the trace is one frontend's."""
    global _trying
    wanted = trial.try_natively()
    concerned = [source for source, exprs in zip(sources, live, strict=True) if exprs]
    if wanted is not None and len(concerned) == 1 and not compiling.busy():
        if _trying is not None:
            _trying.tried = False  # what is found from here on is not its own
        _trying = trial
        trial.tried = concerned[0].try_natively(wanted)


def _end_trying(plan: Plan, trial: Trial, sources: Sequence[Source]) -> None:
    """The trace is recorded again: what did its native rounds take? What was compiled meanwhile has disturbed them."""
    found = [shortest for source in sources if (shortest := source.tried()) is not None]
    if trial.end_trying(found[0] if found and not compiling.busy() else None):
        _remember(plan, trial)


def _look_again(plan: Plan, trial: Trial, sources: Sequence[Source], cause: str) -> None:
    """Measure again what was settled long ago."""
    if plan.executable is None and "compile" in config.strict:
        return
    trial.reopen()
    if plan.executable is None:  # an earlier process had found it faster natively
        compiling.submit(plan, f"{cause}; looked at again")
    for source in sources:
        source.reopened()


def _remember(plan: Plan, trial: Trial) -> None:
    if plan.graph is not None and trial.verdict is not None:
        compiling.remember_verdict(plan.graph, trial.verdict)


def _plan(live: plans.Live, sources: list[Source], cause: str, seconds: float) -> Plan:
    """Plan a trace that came again, and start compiling it."""
    backend.start_client()
    plan = plans.make(live, sources, cause, later=True)
    cache.add_plan(live, plan)
    if plan.graph is not None:
        plan.trial = Trial(plan.site, plan.operations, native_runs=1)
        plan.trial.native.run = seconds
        if plan.executable is None:
            compiling.submit(plan, f"{cause}; it came again")
    return plan


def _sight(live: plans.Live, seconds: float, runs: int) -> None:
    global _forgotten
    _sighted[live] = seconds, runs
    while len(_sighted) > config.max_executables:
        _sighted.popitem(last=False)
        _forgotten += 1
    if _forgotten >= config.max_executables:  # what never repeats leaves the allocator's memory full of holes
        _forgotten = 0
        allocator.give_back()


def _settle(sources: Sequence[Source], native: bool) -> None:
    for source in sources:
        source.settled(native)


def _postpone(sources: Sequence[Source]) -> None:
    for source in sources:
        source.postponed()


# ------------------------------------------------------------------ native runs


def _timed_native(
    live: plans.Live, sources: Sequence[Source], cause: str, trial: Trial | None, host_read: bool
) -> tuple[list[list[Any]], float]:
    begin = time.perf_counter()
    results = run_native(live, sources)
    seconds = time.perf_counter() - begin
    events.count("native_runs")
    if trial is not None:
        trial.native_runs += 1
    if host_read:
        events.host_read_at(cause, trial.site if trial is not None else None)
    events.ran_natively(cause, trial.site if trial is not None else None, trial.operations if trial is not None else 0, seconds)
    return results, seconds


def run_native(live: plans.Live, sources: Sequence[Source]) -> list[list[Any]]:
    """The live values of each source, computed natively: by the source itself where it can, else by NumPy kernels.

    Raises:
        ExecutionError: a kernel raised.
    """
    try:
        results = []
        for source, exprs in zip(sources, live, strict=True):
            found = source.native(exprs) if exprs else []
            if found is None:
                return _interpret(live, sources)
            results.append(found)
        return results
    except LazyError:
        raise
    except Exception as error:
        raise ExecutionError(f"running pending operations natively failed: {type(error).__name__}: {error}") from error


def _interpret(live: plans.Live, sources: Sequence[Source]) -> list[list[Any]]:
    """Everything live through the interpreter, across sources."""
    leaves = [source.leaves() for source in sources]
    scalars = [source.scalars() for source in sources]
    distinct = list(dict.fromkeys([expr for exprs in live for expr in exprs if not isinstance(expr, Leaf)]))
    arrays = native.evaluate(
        distinct,
        lambda leaf: _host(leaves[leaf.source][leaf.slot]),
        lambda scalar: scalars[scalar.source]["fic".index(scalar.kind)][scalar.slot],
    )
    found: dict[Expr, Any] = dict(zip(distinct, arrays, strict=True))
    return [[leaves[e.source][e.slot] if isinstance(e, Leaf) else found[e] for e in exprs] for exprs in live]


def _host(array: Any) -> np.ndarray:
    error = getattr(array, "error", None)
    if error is not None:
        raise error
    return backend.to_host(array)
