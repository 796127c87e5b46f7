"""Tiers: whether a trace runs natively, operation by operation, or as one compiled program.

Owns: the decision, and what it rests on. A trace that is new runs natively at once. When it comes a second time it is compiled in a
background thread, and meanwhile goes on natively. Then both are timed on real runs, and the faster one stays. A trace that takes less
than handing a program to the device is never compiled. May import `execution`, `compiling`, `plans`, `native`, `cache`, `backend`,
`trace`, `events`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import backend, compiling, events, native, plans
from .cache import Plan, cache
from .config import config
from .errors import ExecutionError, LazyError
from .execution import execute
from .ir import Expr, Leaf
from .summary import TraceRow
from .trace import Source

# Looking a program up, collecting its arguments and handing them to the device takes about this long, whatever the program does.
DISPATCH_SECONDS = 60e-6
# How many timed runs of each tier decide.
_TIMED_RUNS = 3
# The tiers are timed in blocks, each after so many runs that do not count: what a tier ran on, such as a pool of threads that still
# spins, may disturb the other one for some milliseconds, and a first run has buffers to find.
_WARM_RUNS = 2
# A best run this many times shorter than the other tier's decides at once.
_CLEAR = 1.5


@dataclass
class Trial:
    """What is known of how fast one trace runs.

    Attributes:
        site: the user's line that recorded its last operation.
        operations: how many operations it has.
        verdict: "native" or "compiled", or None while that is being found out.
        reason: why, in a sentence.
        native_runs: how often it ran natively.
        compiled_runs: how often it ran compiled.
        native_seconds: the shortest native run; infinite before the first.
        compiled_seconds: the shortest compiled run that was waited for.
    """

    site: str | None
    operations: int
    verdict: str | None = None
    reason: str = "compiling in the background"
    native_runs: int = 0
    compiled_runs: int = 0
    native_seconds: float = float("inf")
    compiled_seconds: float = float("inf")
    timed_native: int = 0
    timed_compiled: int = 0
    warm: int = 0  # runs of the present block so far that do not count

    def row(self) -> TraceRow:
        """This trial as a report shows it."""
        times = [None if t == float("inf") else t for t in (self.native_seconds, self.compiled_seconds)]
        tier = self.verdict or "undecided"
        return TraceRow(self.site, self.operations, tier, self.reason, self.native_runs, self.compiled_runs, *times)

    def next_tier(self) -> str:
        """The tier of the next run, once the program is there: a block of compiled runs, then one of native ones, until the verdict."""
        if self.verdict is not None:
            return self.verdict
        return "compiled" if self.timed_compiled < _TIMED_RUNS else "native"

    def note(self, tier: str, seconds: float) -> bool:
        """Add a run that was waited for; returns whether that settled the matter."""
        if self.warm < _WARM_RUNS:
            self.warm += 1
            return False
        if tier == "native":
            self.timed_native += 1
            self.native_seconds = min(self.native_seconds, seconds)
        else:
            self.timed_compiled += 1
            self.compiled_seconds = min(self.compiled_seconds, seconds)
            if self.timed_compiled == _TIMED_RUNS:
                self.warm = 0
        if self.timed_compiled < _TIMED_RUNS:
            return False
        mine, other = self.compiled_seconds + DISPATCH_SECONDS, self.native_seconds
        # What is clearly faster or slower than the native runs so far is believed; else those are timed once more, under the same load.
        if max(mine, other) > _CLEAR * min(mine, other) or self.timed_native >= _TIMED_RUNS:
            self.decide("compiled" if mine <= other else "native")
        return self.verdict is not None

    def native_elsewhere(self, seconds: float) -> None:
        """A frontend's own library runs the same trace in so many seconds: there is no need to time the interpreter."""
        self.native_seconds = seconds
        self.timed_native = max(self.timed_native, _TIMED_RUNS)

    def reopen(self) -> None:
        """Measure again."""
        self.verdict = None
        self.reason = "being measured again"
        self.timed_native = self.timed_compiled = self.warm = 0
        self.compiled_seconds = float("inf")

    def decide(self, verdict: str, reason: str = "") -> None:
        """Settle on a tier."""
        self.verdict = verdict
        self.reason = reason or (f"measured {self.native_seconds * 1e3:.3g} ms natively, {self.compiled_seconds * 1e3:.3g} ms compiled")


# A first run may be slow because it is the first: a shorter one than this is run once more before the trace is planned.
_SURELY_LONG_SECONDS = 1e-3
# For each trace key that has run natively but is not planned yet: the shortest run in seconds, and how many there were.
_sighted: OrderedDict[plans.Live, tuple[float, int]] = OrderedDict()


_forgotten = 0
_expected: float | None = None
_latest: Plan | None = None


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
    global _expected, _latest
    events.count("barriers")
    only_native = forced or in_force() == "native"
    expected, _expected, _latest = _expected, None, None
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
    if only_native or (trial is not None and (plan.executable is None or trial.next_tier() == "native")):
        results, seconds = _timed_native(live, sources, cause, trial, host_read)
        if trial is not None and plan.executable is not None and trial.verdict is None and not only_native:
            _note(plan, trial, "native", seconds)
        if trial is not None and trial.verdict == "native":
            _settle(sources, native=True)
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
    begin = time.perf_counter()
    results, outputs = execute(plan, executable, sources)
    plan.runs += 1
    events.count("cache_hits")
    if trial is not None:
        trial.compiled_runs += 1
        if trial.verdict is None:
            backend.wait(outputs)
            _note(plan, trial, "compiled", time.perf_counter() - begin)
    if host_read:
        events.host_read_at(cause, plan.read_site)
    events.executed(cause, plan.site, plan.operations, time.perf_counter() - begin)
    return results


def _note(plan: Plan, trial: Trial, tier: str, seconds: float) -> None:
    if trial.note(tier, seconds) and plan.graph is not None and trial.verdict is not None:
        compiling.remember_verdict(plan.graph, trial.verdict)


def _plan(live: plans.Live, sources: list[Source], cause: str, seconds: float) -> Plan:
    """Plan a trace that came again, and start compiling it."""
    plan = plans.make(live, sources, cause, later=True)
    cache.add_plan(live, plan)
    if plan.graph is not None:
        plan.trial = Trial(plan.site, plan.operations, native_runs=1, native_seconds=seconds)
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
        backend.give_back_memory()


def _settle(sources: Sequence[Source], native: bool) -> None:
    for source in sources:
        source.settled(native)


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
