"""Scripts: what a trace's calls were, from a place to the trace's end, and where in a user's program a loop begins.

Owns: `Script`, the bounded table of them by place, and the choice of a loop's first call from where its calls are made.  May import
`cache`, `events`, `ir`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from . import events
from .cache import Plan
from .ir import Attrs, Expr

# A script is learned when it has come so often; after an attempt that failed, when it has come so many times more often.
OFTEN_ENOUGH = 2
_DISAPPOINTED = 8
# So many learnings may each record another trace; then they are attempts that failed.
_LEARNINGS = 2
# After so many attempts to follow it, or what comes after it, that failed in a row, so many rounds pass before the next one; then twice as
# many, and so on.
_MISLED = 2
_BARRED_ROUNDS = 50
# Once the program is there and before it is tried, rounds are timed natively: so many, and for so long or so many more.
_TIMED_ROUNDS = 2
_TIMED_SECONDS = 0.02
_MOST_TIMED_ROUNDS = 50
# A script that was found faster natively is tried again after so many rounds, then after ten times as many.
RETRY_ROUNDS = 200

# Longer scripts are not learned: compilers take far more than proportional time for long programs.  After so many rounds one is not even
# looked for, for as many more each time, up to these.
LONGEST_SCRIPT = 300
_LONG_OFTEN = 3
_MOST_UNSEEN = 64

_MOST_CALLS = 300_000  # in the table
_MOST_SCRIPTS = 4  # at a place

NEW, WAITING, OPEN, CLOSED = "new", "waiting", "open", "closed"


def place_of(target: Any, exprs: Sequence[Expr], attributes: Attrs) -> Hashable:
    """A place in the recorded sequence: an operation on certain expressions, whatever its scalars are."""
    return (target, attributes, *[e.skeleton for e in exprs])


class Attempts:
    """What became of trying something each round: after failures in a row it is left alone for a while."""

    __slots__ = ("_bar", "_failed", "left")

    def __init__(self) -> None:
        self.left = 0  # rounds until the next attempt
        self._failed = 0
        self._bar = _BARRED_ROUNDS

    def ended(self, well: bool) -> bool:
        """An attempt was made; returns whether it was one of several in a row that failed."""
        self._failed = 0 if well else self._failed + 1
        if self._failed >= _MISLED:
            self.left = self._bar
            self._bar *= 2
        return self._failed >= _MISLED

    def bar(self) -> bool:
        """A round comes: whether it is to pass without an attempt."""
        if not self.left:
            return False
        self.left -= 1
        return True


class Script:
    """The calls from a place to the end of a trace.

    Attributes:
        calls: their signatures.
        count: how often they came.
        seconds: the shortest time that the library took for them.
        status: NEW, WAITING for its program, OPEN (deferred), or CLOSED (run natively, because that was measured faster).
        plan: what core runs for the trace that it was learned as.
        needed: how often it must come before it is learned.
        loop: whether it ends where a loop's body does, rather than at a barrier or read.
        begun: whether only its beginning is known, so that it is to be learned as a whole or not at all.
        attempts: to follow it.
        attempts_after: to follow what comes after it.
        strays: how often its calls came last with others before them, since they came by themselves.
        body: the calls of the loop's body, sorted, if it was learned because that repeated.
    """

    __slots__ = (
        "_confirmed",
        "_learnings",
        "_recording",
        "_retry",
        "_rounds",
        "_timed",
        "_unseen",
        "attempts",
        "attempts_after",
        "begun",
        "body",
        "calls",
        "count",
        "loop",
        "needed",
        "plan",
        "seconds",
        "status",
        "strays",
    )

    def __init__(self, calls: tuple[int, ...], seconds: float, loop: bool = False, count: int = 1) -> None:
        self.calls = calls
        self.count = count
        self.needed = OFTEN_ENOUGH
        self.seconds = seconds
        self.status = NEW
        self.plan: Plan | None = None
        self.loop = loop
        self._recording: float | None = None  # seconds, while the verdict "compiled" is being confirmed
        self._confirmed = False
        self.begun = False
        self.strays = 0
        self.body: tuple[int, ...] | None = None
        self._rounds = self._timed = 0
        self._unseen = 1
        self._retry = RETRY_ROUNDS
        self._learnings = 0
        self.attempts, self.attempts_after = Attempts(), Attempts()

    def disappointed(self) -> None:
        """Learning it failed: other calls came."""
        self.count = 0
        self.needed *= _DISAPPOINTED

    def learned(self) -> None:
        """It was recorded."""
        self.begun = False
        self._learnings += 1
        if self._learnings > _LEARNINGS:
            self.disappointed()

    def learned_as(self, plan: Plan | None) -> None:
        """Core ran this plan for it."""
        if plan is not None and plan is not self.plan:
            self.plan = plan
            self._timed = 0
            self._confirmed = False
        self.judge()

    def judge(self) -> None:
        """Update the status from what is known of the plan."""
        plan = self.plan
        if plan is None:
            return
        trial = plan.trial
        verdict = trial.verdict if trial is not None else None
        timed = self._timed >= _TIMED_ROUNDS and (self._timed >= _MOST_TIMED_ROUNDS or self._timed * self.seconds >= _TIMED_SECONDS)
        if verdict is None:
            self._recording = None
        if verdict == "native":
            self.status = CLOSED
        elif verdict is None:
            self.status = OPEN if timed else WAITING
        elif trial is None or self._confirmed or not trial.measured:
            self.status = OPEN
        elif self._recording is None:  # the library's time is from before, when other things may have run: once more
            self._recording = max(self.seconds - trial.native.run, 0.0)
            self._timed = 0
            self.status = WAITING
        elif timed:
            trial.native_elsewhere(max(self.seconds - self._recording, 0.0))
            self._confirmed = True
            self.status = OPEN if trial.decide_by_times() == "compiled" else CLOSED

    def pays(self) -> bool:
        """Whether it is a loop's, and was found to be faster compiled."""
        trial = self.plan.trial if self.plan is not None else None
        return self.loop and self.status == OPEN and trial is not None and trial.verdict == "compiled"

    def took(self, seconds: float) -> None:
        """It came once more, and the library took so long for it; what counts are times while nothing is being compiled."""
        self.count += 1
        self.strays = 0
        if self.plan is not None and self.plan.executable is not None:
            self.seconds = min(self.seconds, seconds) if self._timed else seconds
            self._timed += 1
        elif not self._timed:
            self.seconds = min(self.seconds, seconds)

    def unseen(self) -> int:
        """How many of its calls are to pass without being looked at, because it is too long to be learned and holds no loop."""
        if len(self.calls) <= LONGEST_SCRIPT or self.count < _LONG_OFTEN:
            return 0
        rounds, self._unseen = self._unseen, min(2 * self._unseen, _MOST_UNSEEN)
        return rounds * len(self.calls)

    def pass_over(self, rounds: int) -> None:
        """So many rounds will come without being looked at."""
        self._rounds += rounds
        for tried in (self.attempts, self.attempts_after):
            tried.left = max(0, tried.left - rounds)

    def admits(self) -> bool:
        """Whether the trace is to be deferred this time."""
        if self.status == WAITING:
            self.judge()
        if self.attempts.bar() or self.attempts_after.bar():
            return False
        if self.status == CLOSED:
            self._rounds += 1
            if self._rounds >= self._retry and self.plan is not None and self.plan.trial is not None:
                self._retry *= 10
                self.plan.trial.reopen()
                self._confirmed = False
                self.status = OPEN
        elif self.status == NEW and (self.begun or (self.count < self.needed and self.needed > OFTEN_ENOUGH)):
            return False
        return self.status not in (WAITING, CLOSED)


class Scripts:
    """A bounded table of scripts: by the place where they begin, and by their last call."""

    def __init__(self) -> None:
        self._places: OrderedDict[Hashable, list[Script]] = OrderedDict()
        self._tails: dict[int, list[Script]] = {}
        self._calls = 0

    def latest(self, place: Hashable) -> Script | None:
        """The script that came last at a place."""
        scripts = self._places.get(place)
        return scripts[-1] if scripts else None

    def add(self, place: Hashable, script: Script) -> Script:
        """Add a script to a place, or count it there; returns the one in the table, now the place's latest."""
        scripts = self._places.setdefault(place, [])
        self._places.move_to_end(place)
        for k, known in enumerate(scripts):
            if known is script or known.calls == script.calls:
                if known is not script:
                    known.count += script.count
                    known.seconds = min(known.seconds, script.seconds)
                scripts.append(scripts.pop(k))
                return known
        scripts.append(script)
        self._calls += len(script.calls)
        for old in scripts[:-_MOST_SCRIPTS]:
            self._calls -= len(old.calls)
        del scripts[:-_MOST_SCRIPTS]
        while self._calls > _MOST_CALLS and len(self._places) > 1:
            self._calls -= sum([len(s.calls) for s in self._places.popitem(last=False)[1]])
        return script

    def learned(self, script: Script) -> None:
        """A script has been learned: calls that end as it does end where it ends."""
        if len(self._tails) > 1000:
            self._tails.clear()
        tails = self._tails.setdefault(script.calls[-1], [])
        if script not in tails:
            tails.append(script)
            del tails[:-_MOST_SCRIPTS]

    def ended(self, log: list[int]) -> Script | None:
        """The script that the latest calls are, if it has been learned; one that ended at a read must be all of them."""
        for script in self._tails.get(log[-1], ()):
            size = len(script.calls)
            if (len(log) == size or (script.loop and len(log) > size)) and tuple(log[-size:]) == script.calls:
                return script
        return None

    def forget_tail(self, script: Script) -> None:
        """Calls that end as it does end nothing."""
        tails = self._tails.get(script.calls[-1], [])
        if script in tails:
            tails.remove(script)

    def clear(self) -> None:
        """Forget every place; what has been learned is still known by its calls."""
        self._places.clear()
        self._calls = 0


Stack = tuple[tuple[int, int], ...]


def stack() -> Stack:
    """Where in the user's program a call is made: code and position of each frame, outermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not events.is_hidden(code.co_filename):
            found.append((id(code), frame.f_lasti))
        frame = frame.f_back
    found.reverse()
    return tuple(found)


def loop_start(stacks: Sequence[Stack]) -> int:
    """Which of a loop's calls is the first of its body, given where they are made: the one after the jump back."""
    depth = 0
    shortest = min(map(len, stacks))
    while depth < shortest and all(s[depth] == stacks[0][depth] for s in stacks):
        depth += 1
    if depth >= shortest:
        return 0
    at = [s[depth][1] for s in stacks]
    back = [k for k in range(len(at)) if at[k] < at[k - 1]]
    return min(back, key=lambda k: at[k], default=0)
