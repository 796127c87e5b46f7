"""Capturing traces into a capsule, and running a capsule again.

Owns: `capture` and `replay`.  May import `capsule`, `history`, `faults`, `rerun`, `barrier`, `dump`.
"""

from __future__ import annotations

import collections
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import capsule, dump, faults, frontend, history, rerun, tiers, trace
from .barrier import barrier
from .capsule import Trace
from .config import config
from .errors import LazyError
from .faults import Fault
from .history import Kept


class capture:
    """Write traces into one self-contained file that `lazy run` replays: what was recorded, from which inputs, at which lines.

    `with lazy_core.capture("bug.lzt"): ...` writes what runs in the block, a failure too; a barrier ends the block.  In it everything is
    recorded, and compiled at once, unless the setting is that nothing is compiled.  `lazy_core.capture("bug.lzt", x, y)` writes what
    pending tensors still need, and runs nothing.

    Args:
        path: the file, with the suffix `.lzt`.
        *tensors: pending lazy tensors of any frontend.
        values: whether the contents of inputs are written; else their statistics are, and replaying makes numbers up.
        traces: of a block so many of the latest traces are written.

    Attributes:
        path: the file.

    Raises:
        TypeError: an argument is no lazy tensor.
        LazyError: none of the tensors is pending, or nothing ran in the block.
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *tensors: Any, values: bool = True, traces: int = 10) -> None:
        self.path = os.fspath(path)
        self._values = values
        self._kept: collections.deque[Kept] = collections.deque(maxlen=traces)
        self._tier = ""
        if tensors:
            self._write_pending(tensors)

    def _write_pending(self, tensors: tuple[Any, ...]) -> None:
        with trace.current().lock:
            found = [value.expr for t in tensors if (value := dump.value_of(t)).array is None]
            if not any(e.node is not None for e in found):
                raise LazyError("none of these tensors is pending; to capture what runs, use `with lazy_core.capture(path): ...`")
            capsule.write(self.path, [history.pending(found)], self._values)

    def __enter__(self) -> capture:
        frontend.finish_imports()  # so that one that runs natively so far hears of the tier
        self._tier = config.tier
        if tiers.in_force() == "auto":
            config.set("tier", "compiled")
        history.watchers.append(self._kept.append)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failure: LazyError | None = None
        try:
            barrier()
        except LazyError as error:
            failure = error
        finally:
            history.watchers.remove(self._kept.append)
            config.set("tier", self._tier)
        if self._kept:
            capsule.write(self.path, list(self._kept), self._values)
        elif kind is None and failure is None:
            raise LazyError("nothing was recorded in the block, so there is nothing to capture")
        if failure is not None and kind is None:
            raise failure


@dataclass(frozen=True)
class Replayed:
    """What running a trace of a capsule gave.

    Attributes:
        native: the outputs by native kernels, or None if they failed.
        compiled: the outputs of one program, or None if it failed.
        native_error: why, or None.
        compiled_error: why, or None.
        faults: the operations whose compiled results leave their tolerance, given equal operands.
    """

    native: list[np.ndarray] | None
    compiled: list[np.ndarray] | None
    native_error: str | None
    compiled_error: str | None
    faults: tuple[Fault, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether both ran, and nothing differs by more than rounding makes."""
        return self.native is not None and self.compiled is not None and not self.faults


def replay(captured: Trace) -> Replayed:
    """Run a captured trace natively and compiled, and find what makes them differ; needs no frontend."""
    native, native_error = _attempt(lambda: rerun.natively(captured.graph.outputs, captured.inputs))
    compiled, compiled_error = _attempt(lambda: rerun.compiled(captured.graph, captured.inputs))
    found: tuple[Fault, ...] = ()
    if native is not None and compiled is not None and not all(faults.agree(captured.graph, compiled, native)):
        found = tuple(faults.guilty(captured.graph, captured.inputs))
        if not found and not all(faults.explained(captured.graph.outputs, captured.inputs, compiled, native)):
            together = faults.prefix(captured.graph, captured.inputs)
            found = (together,) if together is not None else ()
    return Replayed(native, compiled, native_error, compiled_error, found)


def _attempt(run: Any) -> tuple[list[np.ndarray] | None, str | None]:
    try:
        return run(), None
    except Exception as error:  # what was captured may be a failure: replaying it says which
        return None, f"{type(error).__name__}: {error}"
