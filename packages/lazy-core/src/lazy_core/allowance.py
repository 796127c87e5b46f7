"""What learning may cost: a share of the time that the program has been running.

Owns: `allowance`, which every frontend asks before it records something for the first time and tells how long that took. So programs
that never repeat pay little for the attempt, and long ones soon compile whatever repeats. May import `config` only.
"""

from __future__ import annotations

import time

from .config import Config, config

# What may be spent at once, in seconds, with the usual share; in proportion with another one.
HEAD_START_SECONDS = 0.05
USUAL_PERCENT = Config.learn_percent


class Allowance:
    """Seconds spent on learning, held against seconds since the first question.

    Attributes:
        spent: seconds spent so far.
    """

    _saved: float
    _looked: float
    _began: float | None

    def __init__(self) -> None:
        self.restart()

    def permits_now(self) -> bool:
        """Whether something may be recorded while the program waits: what has been saved up is spent in small portions."""
        if not self.permits():
            return False
        now, share = time.perf_counter(), config.learn_percent
        most = HEAD_START_SECONDS * max(1.0, share / USUAL_PERCENT)
        self._saved = min(most, self._saved + (now - self._looked) * share / 100)
        self._looked = now
        return self._saved > 0

    def permits(self, seconds: float = 0.0) -> bool:
        """Whether something new that takes so long may be recorded now: at most `learn_percent` of the time so far, and a head start."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        return self.spent + seconds <= HEAD_START_SECONDS + (now - self._began) * config.learn_percent / 100

    def spend(self, seconds: float) -> None:
        """Add to what has been spent."""
        self.spent += seconds
        self._saved -= seconds

    def restart(self) -> None:
        """Forget what was spent and when that began."""
        self.spent = 0.0
        self._began = None
        self._saved, self._looked = HEAD_START_SECONDS, 0.0


allowance = Allowance()
