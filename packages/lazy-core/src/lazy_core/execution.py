"""Execution: handing a compiled program to the device, and finding out later what failed there.

Owns: collecting a plan's arguments, calling its executable, and the memory of the latest programs. May import `cache`, `shadow`,
`backend`, `interrupts`, `events`, `trace`, `errors`.
"""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import backend, interrupts, shadow
from .cache import Plan
from .config import config
from .errors import ExecutionError
from .trace import Source

# The outputs of each of the latest programs, one of which is waited for, since they become ready together.  All of them, since any may be
# dropped: a step's loss is, once the next one's is there.  Held weakly: a buffer that nobody else holds may be donated.
_latest: collections.deque[tuple[list[weakref.ref[Any]], Plan]] = collections.deque(maxlen=32)

_VECTOR = (np.float64, np.int64, np.complex128)


class Failed:
    """Stands where a value's buffer would be, if computing it failed.

    Attributes:
        error: what to raise when the value is read or used.
    """

    __slots__ = ("error",)

    def __init__(self, error: ExecutionError) -> None:
        self.error = error


def execute(plan: Plan, executable: backend.Executable | None, sources: Sequence[Source]) -> tuple[list[list[Any]], Sequence[Any]]:
    """Run a plan's program on the current trace's buffers, without waiting.

    Returns:
        For each source the arrays of its live values in order; and the program's outputs, to wait for.

    Raises:
        ExecutionError: running failed, or a buffer that goes in is what an earlier failure left.
    """
    backend.check_process()
    leaves = [source.leaves() for source in sources]
    outputs: Sequence[Any] = ()
    if executable is not None:
        arguments = [leaves[s][slot] for s, slot in plan.arguments]
        packed: list[np.ndarray] = []
        if plan.scalars:
            scalars = [source.scalars() for source in sources]
            packed = [np.array([scalars[s][kind][slot] for s, slot in slots], _VECTOR[kind]) for kind, slots in plan.scalars]
        try:
            inputs = shadow.hold(plan, arguments, packed, executable is plan.executable) if config.shadow else None
            interrupts.hold()  # what goes in may be gone, and what comes out is nobody's yet: whoever called releases when it is
            outputs = executable(arguments, packed)
        except Exception as error:
            for argument in arguments:
                if argument.__class__ is Failed:  # the first failure says what happened, and where
                    raise argument.error from None
            last = f"the last recorded at {plan.site or 'an unknown line'}"
            raise ExecutionError(f"running a program of {plan.operations} operations, {last}, failed: {error}") from error
        if inputs is not None:
            shadow.ran(inputs, outputs)
        _latest.append(([weakref.ref(array) for array in outputs], plan))
    placed = [[outputs[o] if o.__class__ is int else leaves[o[0]][o[1]] for o in places] for places in plan.outputs]
    return placed, outputs


def _left(refs: list[weakref.ref[Any]]) -> list[Any]:
    """An output that somebody still holds; none if all were dropped or donated."""
    found = next((array for ref in refs if (array := ref()) is not None and not array.is_deleted()), None)
    return [found] if found is not None else []


def wait_for_latest() -> None:
    """Wait until the latest programs have run; raises what the device raises."""
    backend.wait([array for refs, _ in _latest for array in _left(refs)])


def wait_for_previous() -> None:
    """Wait until the latest program has run, unless it has failed: whoever reads what it left is told of that."""
    if _latest:
        with contextlib.suppress(Exception):  # whatever the device raises
            backend.wait(_left(_latest[-1][0]))


def failed_programs() -> list[str]:
    """The lines that recorded the last operation of each recent program whose execution failed, newest first."""
    lines = []
    for refs, plan in reversed(_latest):
        try:
            backend.wait(_left(refs))
        except Exception:  # whatever the device raises: the caller reports its own failure and wants the origin
            lines.append(f"{plan.operations} operations, the last recorded at {plan.site or 'an unknown line'}")
    return lines
