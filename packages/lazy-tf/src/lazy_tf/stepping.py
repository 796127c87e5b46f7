"""Barriers after a training step.

Owns: noticing that a step has ended and choosing where to cut.  Optimisers of Keras 3, of tf_keras and of most custom loops count steps
in an integer scalar variable; when it is reassigned from a pending value, a barrier falls due.  It is not cut there, where gradients and
the tape still hold every intermediate value, which would all become outputs, but at the first later operation that finds most of the
step's handles freed, or that asks `tf.data` for the next batch.  If that never happens nothing is cut here, and the core's own periods
decide.  May import `tensor` and the core.
"""

from __future__ import annotations

from lazy_core import barrier, trace

from .tensor import TABLE

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
        self._operations = 0

    def begin(self) -> None:
        """Called for every operation of a trace that this has not seen yet."""
        self._epoch = self._trace.epoch
        self._base = len(TABLE)
        self._operations = 0
        self.due = False

    def count(self) -> None:
        """Called for every operation that TensorFlow places on the device."""
        if self._epoch != self._trace.epoch:
            self.begin()
        self._operations += 1
        if self.due and len(TABLE) - self._base <= (self._peak - self._base) // 2:
            self.cut()

    def step_ended(self) -> None:
        """A step counter has been advanced."""
        if self._operations >= SHORTEST and not self.due:
            self.due = True
            self._peak = len(TABLE)

    def cut(self) -> None:
        """Make the barrier that is due."""
        self.due = False
        barrier()


stepper = Stepper()
