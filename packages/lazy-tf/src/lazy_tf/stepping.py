"""Barriers after a training step.

Owns: noticing that a step has ended and choosing where to cut.  Optimisers of Keras 3, of tf_keras and of most custom loops count steps
in an integer scalar variable; when it is reassigned, a barrier falls due.  It is not cut there, where gradients and the tape still hold
every intermediate value, which would all become outputs, but at the later operation that finds most of the step's handles freed, or
that asks `tf.data` for the next batch.  How many are freed is learned from the step before, so a loop is cut at the same place every
time.  May import `tensor` and the core.
"""

from __future__ import annotations

from lazy_core import barrier, trace

from .tensor import EXTENSION, live_handles

SHORTEST = 16
"""A step of fewer operations than this is not worth a program of its own."""


class Stepper:
    """Where the current step stands.

    Attributes:
        due: whether a step has ended and its barrier is still to come.
    """

    def __init__(self) -> None:
        self.due = False
        self._trace = trace.current()
        self._epoch = -1
        self._base = 0  # handles when this trace began
        self._peak = 0  # handles when the step ended
        self._freed = 0  # the most that were freed since
        self._expected: int | None = None  # the most that were freed after the step before
        self._operations = 0

    def count(self) -> None:
        """Called for every operation that TensorFlow places on the device, where there is no extension that counts."""
        if self._epoch != self._trace.epoch:
            self._epoch = self._trace.epoch
            self._operations = 0
            self.restart()
        self._operations += 1
        if self.due:
            self.watch()

    def restart(self) -> None:
        """Called before the first operation of a trace."""
        self._base = live_handles()
        self._set_due(False)

    def watch(self) -> None:
        """Called before each operation while a barrier is due: make it if enough of the step's handles are gone."""
        freed = self._peak - live_handles()
        self._freed = max(self._freed, freed)
        # What a garbage collector frees late must not delay the cut, so three quarters are enough.
        wanted = (self._peak - self._base) // 2 if self._expected is None else 3 * self._expected // 4
        if freed >= wanted:
            self.cut()

    def step_ended(self) -> None:
        """A step counter has been advanced."""
        if (self._operations if EXTENSION is None else EXTENSION.operations()) < SHORTEST:
            return
        if self.due:
            self._expected = self._freed  # the last step was never cut: take what it freed at most
        self._set_due(True)
        self._peak = live_handles()
        self._freed = 0

    def cut(self) -> None:
        """Make the barrier that is due."""
        self._set_due(False)
        barrier()

    def _set_due(self, due: bool) -> None:
        self.due = due
        if EXTENSION is not None:
            EXTENSION.set_watching(due)


stepper = Stepper()
