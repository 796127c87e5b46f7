"""What the extension and the core tell each other about traces: the tier in force, barriers, verdicts, native runs.

Owns: the registration of a source without values of its own (TensorFlow's tensors hold the core's values), and the native way to run what
was recorded: TensorFlow's own kernels on the operations as TensorFlow gave them, which the extension keeps until the barrier. May
import `guards`, `stepping`, `tensor` and the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazy_core import backend, deferred, sources, tiers, trace, values
from lazy_core.allowance import allowance
from lazy_core.barrier import Failed, flush
from lazy_core.config import watch
from lazy_core.cutting import Cutter
from lazy_core.ir import Expr

from . import guards
from .tensor import EXTENSION, live_handles


class TensorFlowSource:
    """See `lazy_core.trace.Source`: it is told of every barrier and every verdict."""

    name = "tf"

    def __init__(self) -> None:
        self.cutter = Cutter()
        trace.current().add_source(self)
        watch("tier", self._set_tier)

    def _set_tier(self) -> None:
        tier = tiers.in_force()
        EXTENSION.set_tier(("auto", "compiled", "native").index(tier))
        if tier != "compiled":
            EXTENSION.set_cut_at(self.cutter.cut_at)

    def live(self) -> list[Expr]:
        """None of its own."""
        return []

    def leaves(self) -> list[Any]:
        """None of its own."""
        return []

    def donatable(self) -> list[bool]:
        """None of its own."""
        return []

    def native(self, wanted: Sequence[Expr]) -> list[Any] | None:
        """None of its own."""
        return []

    def settled(self, native: bool) -> None:
        """See `trace.Source.settled`."""
        EXTENSION.settled(native)

    def reopened(self) -> None:
        """See `trace.Source.reopened`."""
        EXTENSION.reopened()

    def postponed(self) -> None:
        """See `trace.Source.postponed`."""
        EXTENSION.postponed()

    def try_natively(self, seconds: float) -> bool:
        """See `trace.Source.try_natively`: what is recorded runs natively from the record, where it is long also after a verdict."""
        return False

    def tried(self) -> float | None:
        """See `trace.Source.tried`."""
        return None

    def compiled(self) -> None:
        """See `trace.Source.compiled`."""
        EXTENSION.compiled()

    def scalars(self) -> tuple[list[float], list[int], list[complex]]:
        """None of its own."""
        return [], [], []

    def finish(self, arrays: list[Any], epoch: int) -> None:
        """See `trace.Source.finish`."""
        EXTENSION.boundary()
        if tiers.in_force() != "compiled":
            self.cutter.restart()
            EXTENSION.set_cut_at(self.cutter.cut_at)

    def abort(self) -> None:
        """Nothing was begun."""

    def counters(self) -> dict[str, int]:
        """See `trace.Source.counters`."""
        operations, traces = EXTENSION.counters()
        return {"recorded": operations, "native_runs": traces}

    def evict(self) -> None:
        """No expression is kept."""

    def cut_if_due(self) -> None:
        """Called when the log is long: end the trace if a boundary of the loop has been reached."""
        if self.cutter.due(EXTENSION.log(), live_handles()):
            run_pending("the end of a loop's body, found by its period", False)
        else:
            EXTENSION.set_cut_at(self.cutter.cut_at)


def run_pending(cause: str, native: bool) -> None:
    """A barrier.

    Raises:
        ExecutionError: something failed.
    """
    error = flush(cause, native=native)
    if error is not None:
        raise error


def end_trace(native: bool) -> None:
    """For the extension: run what was recorded; natively, if it is only the beginning of what was known."""
    run_pending("operations that earlier traces did not have" if native else "an operation that reads what was recorded", native)


def may_learn(seconds: float | None) -> bool:
    """For the extension: whether something may be recorded for the first time now; or that this took so many seconds."""
    if seconds is None:
        return allowance.permits_now()
    allowance.spend(seconds)
    return True


def leaf(expr: Expr) -> np.ndarray | None:
    """For the extension: the buffer that an expression names, on the host; None if it names none of the values'."""
    if not sources.is_held(expr):
        return None
    array = sources.buffer(expr)
    if isinstance(array, Failed):
        raise array.error
    return backend.to_host(array)


_interpret = values.source.native


def _native(wanted: Sequence[Expr]) -> list[Any] | None:
    """The values of expressions by TensorFlow's kernels, or else as the core's interpreter computes them."""
    found: list[Any] | None = EXTENSION.replay(list(wanted), guards.watch.passed())
    return _interpret(wanted) if found is None else found


_source: TensorFlowSource | None = None


def install() -> TensorFlowSource:
    """Register the source, once; only with the extension."""
    global _source
    if _source is None:
        deferred.load()  # what is recorded for the first time is timed, and must not wait for that
        # The source of TensorFlow's values runs what TensorFlow recorded as TensorFlow would.
        values.source.native = _native  # type: ignore[method-assign]
        _source = TensorFlowSource()
    return _source
