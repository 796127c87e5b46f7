"""The source of live values behind torch's tensors (`lazy_core.trace.Source`), over the native extension.

Owns: the registration with the trace, and where long traces are cut.  May import `lazy_core.trace`, `barrier`, `cutting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazy_core import trace
from lazy_core.barrier import flush
from lazy_core.cutting import Cutter
from lazy_core.ir import Expr

from . import build

_native = build.native()


class TensorSource:
    """Torch's storages: the extension keeps the list of live buffers, leaf slots and run-time scalars."""

    name = "torch"

    def __init__(self) -> None:
        self.cutter = Cutter()
        self.index = trace.current().add_source(self)
        _native.set_cut_at(self.cutter.cut_at)

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
        return None

    def settled(self, native: bool) -> None:
        """See `trace.Source.settled`."""

    def scalars(self) -> tuple[list[float], list[int], list[complex]]:
        """See `trace.Source.scalars`."""
        return _native.scalars()

    def finish(self, arrays: list[Any], epoch: int) -> None:
        """See `trace.Source.finish`."""
        _native.finish(arrays, epoch)
        self.cutter.restart()
        _native.set_cut_at(self.cutter.cut_at)

    def abort(self) -> None:
        """See `trace.Source.abort`."""
        _native.abort()

    def counters(self) -> dict[str, int]:
        """See `trace.Source.counters`."""
        return {"recorded": _native.counters()["recorded"]}

    def evict(self) -> None:
        """See `trace.Source.evict`."""
        _native.evict()

    def cut_if_due(self) -> None:
        """Called when the log has reached the cutter's length: cut the trace if a boundary of the loop has been reached."""
        with trace.current().lock:
            if self.cutter.due(_native.log(), _native.counters()["live"]):
                flush("the end of a loop's body, found by its period")
            else:
                _native.set_cut_at(self.cutter.cut_at)


SOURCE = TensorSource()
