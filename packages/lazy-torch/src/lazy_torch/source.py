"""The source of live values behind torch's tensors (`lazy_core.trace.Source`), over the native extension.

Owns: the registration with the trace, and where long traces are cut.  May import `lazy_core.trace`, `barrier`, `cutting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazy_core import deferred, events, tiers, trace
from lazy_core.allowance import USUAL_PERCENT, allowance
from lazy_core.barrier import flush
from lazy_core.config import config, watch
from lazy_core.cutting import Cutter
from lazy_core.ir import Expr

from . import build
from .convert_host import numpy_to_cpu

_native = build.native()

# A trace is recorded once it has taken so long natively, for each operation of torch's: about what recording and compiling it takes. So
# trying never costs more than the program has taken without it. It holds for the usual `learn_percent`, and in proportion for others.
LEARN_SECONDS = 5e-3


class TensorSource:
    """Torch's storages: the extension keeps the list of live buffers, leaf slots and run-time scalars."""

    name = "torch"

    def __init__(self) -> None:
        self.cutter = Cutter()
        self._ours = False  # whether what finish() is about to get was computed by the extension
        self._learned = 0.0
        deferred.load()  # what is recorded for the first time is timed, and must not wait for that
        self.index = trace.current().add_source(self)
        _native.set_cut_at(self.cutter.cut_at)
        watch("learn_percent", self._set_learn_seconds)
        watch("tier", lambda: _native.set_tier(("auto", "compiled", "native").index(tiers.in_force())))

    def _set_learn_seconds(self) -> None:
        percent = config.learn_percent
        _native.set_learn_seconds(LEARN_SECONDS * USUAL_PERCENT / percent if percent else math.inf)

    def may_learn(self) -> bool:
        """Whether something may be recorded for the first time now."""
        spent = _native.counters()["learning_seconds"]
        allowance.spend(spent - self._learned)
        self._learned = spent
        return allowance.permits_now()

    def live(self) -> list[Expr]:
        """See `trace.Source.live`."""
        return _native.live()

    def leaves(self) -> list[Any]:
        """See `trace.Source.leaves`."""
        return _native.leaves()

    def donatable(self) -> list[bool]:
        """See `trace.Source.donatable`."""
        return _native.donatable()

    def native(self, wanted: Sequence[Expr]) -> list[Any] | None:
        """See `trace.Source.native`."""
        found: list[Any] | None = _native.native()
        self._ours = found is not None
        return found

    def settled(self, native: bool) -> None:
        """See `trace.Source.settled`."""
        _native.settled(native)

    def reopened(self) -> None:
        """See `trace.Source.reopened`."""
        _native.reopened()

    def postponed(self) -> None:
        """See `trace.Source.postponed`."""
        _native.postponed()

    def try_natively(self, seconds: float) -> bool:
        """See `trace.Source.try_natively`."""
        return _native.try_natively(seconds)

    def tried(self) -> float | None:
        """See `trace.Source.tried`."""
        return _native.tried()

    def compiled(self) -> None:
        """See `trace.Source.compiled`."""
        _native.compiled()

    def scalars(self) -> tuple[list[float], list[int], list[complex]]:
        """See `trace.Source.scalars`."""
        return _native.scalars()

    def finish(self, arrays: list[Any], epoch: int) -> None:
        """See `trace.Source.finish`."""
        if not self._ours:
            arrays = [numpy_to_cpu(a) if a.__class__ is np.ndarray else a for a in arrays]
        ended = _native.finish(arrays, self._ours)
        self._ours = False
        if ended:
            self.cutter.restart()
            _native.set_cut_at(self.cutter.cut_at)

    def abort(self) -> None:
        """See `trace.Source.abort`."""
        self._ours = False
        _native.abort()

    def counters(self) -> dict[str, int]:
        """See `trace.Source.counters`; whoever counts is about to show, so that ranges named by the program are handed over."""
        events.add_ranges(_native.take_ranges())
        counts = _native.counters()
        return {"recorded": counts["recorded"], "native_runs": counts["immediate_traces"]}

    def evict(self) -> None:
        """See `trace.Source.evict`."""
        _native.evict()

    def cut_if_due(self) -> None:
        """Called when the log has reached the cutter's length: cut the trace if a boundary of the loop has been reached."""
        with trace.current().lock:
            counts = _native.counters()
            if self.cutter.due(_native.log(), counts["live"] + counts["fresh"]):
                flush("the end of a loop's body, found by its period")
            else:
                _native.set_cut_at(self.cutter.cut_at)


SOURCE = TensorSource()
