"""Which calls of a Python frontend are recorded, and which its library runs as they come.

Owns: the policy of the tier "auto" for frontends that can run a call themselves, on host arrays.  Recording a call for the first time costs
tens of microseconds, and a program that does not repeat gains nothing from it.  So a frontend is always in one of three states:

* *following*: each call is found in the table of expressions and deferred.  Whatever is not found there raises `Miss`;
* *immediate*: the library runs each call as it comes, and the sequence of calls is watched for what repeats;
* *learning*: calls are recorded for the first time, for as long as they are those that have come several times before.

A trace ends at a barrier, at a host read, and where a loop's body ends; then the next one is followed as far as it is known.  A *script*
that came twice from one place to the end of a trace is learned the third time; while its program is being compiled, and for good if that
turns out slower, such a trace is run immediately.  May import `watching`, `scripts`, `values`, `tiers`, `allowance`, `barrier`, `config`,
`deferred`, `trace`, `ir`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from . import deferred, tiers, trace, values
from .allowance import allowance
from .barrier import flush
from .config import config, watch
from .ir import Attrs, Expr
from .scripts import LONGEST_SCRIPT, NEW, OFTEN_ENOUGH, OPEN, WAITING, Script, place_of
from .watching import MOST_DOUBTS, SHORTEST_SECONDS, SURE, TRACE_CALLS, TRACE_SECONDS, Watching

_trace = trace.current()
_lock = _trace.lock
_recording = values.recording
_clock = time.perf_counter

# So many other calls for each call of a script, while it is being learned, and it is taken for a different one.
OTHER_CALLS = 3
# What recording one call for the first time takes, roughly, and what compiling it takes a background thread, by half.
LEARN_SECONDS = 150e-6
COMPILE_SECONDS = 2e-3
# Importing jax may take so many times what learning may of the time, once, for nothing is learned before it is there.
IMPORT_SHARE = 5
# While a script is not to be deferred, its rounds go unwatched for so many seconds at a time: until its program may be there, or for long.
WAITING_SECONDS = 2e-3
CLOSED_SECONDS = 20e-3
# A script whose calls come so often after others of the same trace, and never by themselves, is not what repeats.
MOST_STRAYS = 8
# Trying to follow a trace that turns out to be unknown takes about so long, and may take this share of the time after a head start.
ATTEMPT_SECONDS = 50e-6
ATTEMPTS_SHARE = 0.02
ATTEMPTS_SECONDS = 2e-3

_DIVERTED = "a call that is not known to repeat; what came before it runs natively"


class Miss(BaseException):
    """Recording stopped at a call that is to be run natively; it reaches no user's code, and no `except Exception` may catch it."""

    def __init__(self, place: Hashable = None, closed: bool = False) -> None:
        self.place = place
        self.closed = closed


class Repeats(Watching):
    """The state of one frontend.

    Attributes:
        leaving: called when the immediate state ends.
        catches: whether somebody among the callers makes a call again whose recording stops; elsewhere everything is recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaving: Callable[[], None] = lambda: None
        self.catches: Callable[[], bool] = lambda: True
        self._tier = ""
        self._each = False  # whether every call is run as it comes, whatever the tier
        self._known_sites: set[Hashable] = set()
        self._learning: Script | None = None
        self._due = False  # the script that is being learned has ended
        self._others = 0  # calls made meanwhile that are not in it
        self._following: Script | None = None  # what is expected of the trace that is being followed
        self._next: Script | None = None  # what is known to come in the trace that begins
        self._place: Hashable = None  # where the immediate trace began
        self._expected: Script | None = None  # what is expected of it
        self._trusted: Script | None = None  # after which the present trace is followed
        self._whole = True  # and whether from its beginning
        self._began = self._since
        self._attempts = 0.0
        _recording.followers.append(self)
        watch("tier", self._choose)

    def _choose(self) -> None:
        """The tier was set."""
        tier = "native" if self._each else tiers.in_force()
        if tier == self._tier:
            return
        with _lock:
            self._tier = tier
            self._next = self._following = None
            self._began, self._attempts = _clock(), 0.0
            if tier == "native":
                self._run_immediately(None)
                self.note = None
            else:
                self._follow()

    def run_each_call(self, wanted: bool) -> None:
        """Run every call as it comes from now on, whatever the tier, or no longer: somebody wants to be told of what happens in each."""
        self._each = wanted
        self._choose()

    @property
    def tier(self) -> str:
        """The tier in force."""
        return self._tier

    # -------------------------------------------------------------- asked by the recorder

    def first(self, target: Any, exprs: Sequence[Expr], attributes: Attrs) -> None:
        """See `values.Gate.first`."""
        self._since = _clock()
        self._following = None
        if self._tier != "auto" or self.immediate:
            return
        place = place_of(target, exprs, attributes)
        if self._learning is not None:
            self._scripts.add(place, self._learning)
            return
        script = self._scripts.latest(place)
        if script is not None and self.catches():
            if script.begun and self._worth_learning(script):
                raise Miss(place)
            if not script.admits():
                raise Miss(place, closed=True)
        self._following = script

    def unknown(self, call: Hashable) -> None:
        """A call of a kind that has never been recorded is about to be looked into; raises Miss if it should run natively instead."""
        if self._tier == "auto" and self._learning is None and not self.immediate and self.catches():
            raise Miss(("unknown", call))

    def miss(self, target: Any, exprs: tuple[Expr, ...], attributes: Attrs) -> Any:
        """See `values.Gate.miss`."""
        if self._tier == "compiled":
            return values.record_miss(target, exprs, attributes)
        place = place_of(target, exprs, attributes)
        learning = self._learning is not None
        # What differs in scalars only is recorded at once, whatever has been spent: they are fed at run time from now on.
        known = learning or self.immediate or place in self._known_sites
        if not known and self.catches():
            raise Miss(place)
        deferred.load()
        begin = _clock()
        found = values.record_miss(target, exprs, attributes)
        if not learning:
            allowance.spend(_clock() - begin)
        if len(self._known_sites) > 100_000:
            self._known_sites.clear()
        self._known_sites.add(place)
        return found

    # -------------------------------------------------------------- asked by the frontend

    def missed(self, miss: Miss) -> None:
        """Recording stopped, and the frontend has unwound the call: decide whether to learn, or to run natively from here on."""
        with _lock:
            if miss.place is None or self.on or self._tier == "compiled":
                return
            script, followed = self._next, self._following
            self._next = self._following = None  # what was followed ends here: not as it was known to
            if followed is not None and followed.status != NEW and not miss.closed:
                followed.attempts.ended(well=False)
            if miss.closed and script is not None:  # a loop was found whose rounds are not to be deferred
                self._doubt(script.body)
            script = self._scripts.latest(miss.place) if miss.closed or script is None else self._scripts.add(miss.place, script)
            if not miss.closed and script is not None and self._worth_learning(script):
                if _recording.log:  # what was followed so far is a trace of its own: else each attempt would learn a longer one
                    flush(_DIVERTED, native=True)
                deferred.load()
                self._learning = script
                self._position = self._others = 0
                self._due = False
                self.on, self.immediate = True, False
                self.note = self._note_learned
                return
            begin = _clock()
            if self._trusted is not None:
                if self._trusted.attempts_after.ended(well=False) and self._trusted.loop:
                    self._drop(self._trusted)
                self._trusted = None
            if _recording.log:
                flush(_DIVERTED, native=True)
            else:
                _recording.forget_leaves()
            self._attempts += _clock() - begin + ATTEMPT_SECONDS
            self._place = miss.place
            self._run_immediately(script)
            if followed is not None and followed.status == NEW:
                followed.begun = True
            if script is None and followed is not None:  # most of it may still come
                self._expected, self._whole = followed, False
                self.note = self._note_expected

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """While learning: run a function that records; what it calls in turn only records.

        Raises:
            Miss: the trace that was being learned has ended before this call, which is to be made again in the new state.
        """
        script = self._learning
        if script is not None and (self._due or self._others > OTHER_CALLS * (len(script.calls) + 4)):
            with _lock:
                if not self._due:
                    self._give_up(script)
                elif self._learning is not None:
                    if script.loop:
                        _recording.cutter.learn(_recording.log)
                    flush("the end of a trace that repeats")
            raise Miss
        self._others += 1
        begin = _clock()
        self.on = False
        try:
            return function(*args, **kwargs)
        finally:
            self.on = self._learning is not None or self.immediate
            allowance.spend(_clock() - begin)

    def read(self) -> None:
        """The host reads an array that was computed immediately: a trace ends."""
        if self._log and self.immediate and self._tier == "auto":
            with _lock:
                self._end_immediate()

    # -------------------------------------------------------------- states

    def _worth_learning(self, script: Script) -> bool:
        return (
            script.status in (NEW, OPEN)
            and script.count >= script.needed
            and script.seconds >= SHORTEST_SECONDS
            and len(script.calls) <= LONGEST_SCRIPT
            and allowance.permits((LEARN_SECONDS + COMPILE_SECONDS) * len(script.calls))
            and deferred.begin(IMPORT_SHARE * config.learn_percent)  # until jax is there everything goes on natively
        )

    def _follow(self) -> None:
        if self.immediate:
            self.leaving()
        self._learning = None
        self._due = False
        self.on = self.immediate = False
        self.note = None
        self.skip = 0
        self._since = _clock()

    def _run_immediately(self, expected: Script | None) -> None:
        self._learning = None
        self._due = False
        self._expected, self._whole = expected, True
        self._watch()
        if expected is not None:
            self.skip = expected.unseen()
            self.note = self._note_skipped if self.skip else self._note_expected
        self.on = self.immediate = True

    def _end_immediate(self, loop: bool = False, ended: Script | None = None) -> None:
        """A trace ends that was run immediately: follow again, unless what came is not to be deferred, or trying has cost too much in vain.

        Args:
            loop: a loop's body ended.
            ended: the script that has just ended, if it is known; otherwise all calls since the last trace are one.
        """
        now = _clock()
        expected = self._expected
        if ended is None and expected is not None and self._whole and not expected.loop and tuple(self._log) == expected.calls:
            ended = expected
        if ended is None and self._place is not None:
            ended = self._scripts.add(self._place, Script(tuple(self._log), now - self._since, loop))
        self._place = None
        if ended is not None and (ended.status != NEW or ended.attempts.left):
            if ended.admits():
                self._follow()
                self._trusted = ended
            else:
                self._run_immediately(ended)
                pause = WAITING_SECONDS if ended.status == WAITING else CLOSED_SECONDS
                rounds = int(pause / max(ended.seconds, 1e-6))
                if rounds > 1 and ended.loop:
                    ended.pass_over(rounds)
                    self.skip = rounds * len(ended.calls)
                    self.note = self._note_skipped
        elif self._attempts > ATTEMPTS_SECONDS + ATTEMPTS_SHARE * (now - self._began):
            self._run_immediately(None)
        else:
            self._follow()

    # -------------------------------------------------------------- notes of calls

    def _note_expected(self, number: int, result: Any) -> None:
        """Immediate, and a script is expected."""
        call = hash((number, getattr(result, "shape", None)))
        self._log.append(call)
        script = self._expected
        if script is not None and not self._position and not self._whole and call in script.calls:
            self._position = script.calls.index(call)
        if script is None or script.calls[self._position] != call:
            self.note = self._note_new
            return
        self._position += 1
        if self._position == len(script.calls):
            with _lock:
                if not self._whole:
                    self._end_immediate(script.loop)
                    return
                script.took(_clock() - self._since)
                if script.loop:
                    self._end_immediate(ended=script)
                else:  # it ends at a read: if other calls come first this is another script
                    self.note = self._note_new

    def _script_ended(self, script: Script) -> None:
        script.strays += 1
        if script.strays > MOST_STRAYS and self._drop(script):
            return
        with _lock:
            if self._place is not None and script.pays():  # how the loop is entered here may repeat as well
                entry = self._scripts.add(self._place, Script(tuple(self._log), _clock() - self._since, True))
                entry.body = script.body
            self._end_immediate(ended=script)

    def _drop(self, script: Script) -> bool:
        """A script is not what repeats, unless it has been followed; returns whether it was dropped."""
        if self._doubts.get(script.body or (), 0) < 0:
            return False
        if script.body is not None:
            self._doubts[script.body] = MOST_DOUBTS
        self._scripts.forget_tail(script)
        return True

    def _unplace(self) -> None:
        self._place = None

    def _loop_begins(self) -> None:
        """It is known what the loop does: learn as many rounds of it as make a trace."""
        rounds = max(1, min(int(TRACE_SECONDS / max(self._cycle_seconds, 1e-9)), TRACE_CALLS // len(self._cycle)))
        with _lock:
            self._place = None
            self._follow()
            self._next = Script(self._cycle * rounds, self._cycle_seconds * rounds, True, OFTEN_ENOUGH)
            self._next.body = tuple(sorted(self._cycle))

    def _note_skipped(self, number: int, result: Any) -> None:
        """Immediate, in a loop that is not to be deferred."""
        self.skip -= 1
        if self.skip <= 0:
            self._since = _clock()
            self.note = self._note_expected

    def _note_learned(self, number: int, result: Any) -> None:
        """Learning: the calls of the script must come, in their order; others are those that are not told of when run immediately."""
        script = self._learning
        assert script is not None
        call = hash((number, getattr(result, "shape", None)))
        if not self._position and call in script.calls:  # calls before it may have been followed, as they record nothing
            self._position = script.calls.index(call)
        if self._position < len(script.calls) and script.calls[self._position] == call:
            self._position += 1
            self._due = self._position == len(script.calls)
            self._others -= 1

    def _give_up(self, script: Script) -> None:
        """Too many calls came that are not in the script, such as those on single elements, which nobody is told of otherwise."""
        self._learning = None
        script.disappointed()
        flush(_DIVERTED, native=True)
        self._place = None
        self._run_immediately(None)

    # -------------------------------------------------------------- told by core

    def flushing(self) -> None:
        """See `values.Follower.flushing`."""
        if self._learning is not None:
            tiers.expect(self._learning.seconds)
            return
        script = self._following
        trial = script.plan.trial if script is not None and script.plan is not None else None
        if script is not None and trial is not None and trial.verdict is None:
            # What the library took is to be held against recording and the program together.
            trial.native_elsewhere(max(script.seconds - (_clock() - self._since), 0.0))

    def finished(self) -> None:
        """See `values.Follower.finished`."""
        plan = tiers.latest_plan()
        if self._tier != "auto":
            return
        script = self._learning
        if script is not None:
            if self._position:
                self._end_learning(script)
                script.learned_as(plan)
                if self._following is not None and self._following is not script:
                    self._following.learned_as(plan)
            self._follow()
        elif self.immediate:
            if self._log:
                self._end_immediate()
        else:
            followed = self._following
            # Else the loop was left, or read from: what had come of it may be faster as it comes.
            if followed is not None and (_recording.cutting or not followed.loop):
                followed.learned_as(plan)
                followed.attempts.ended(well=True)
                if followed.loop and followed.body is not None:
                    self._doubts[followed.body] = -SURE
            elif followed is not None and plan is not None and plan.trial is not None and plan.trial.verdict == "native":
                followed.attempts.ended(well=False)
            if self._trusted is not None:
                self._trusted.attempts_after.ended(well=True)
            self._following = self._next = self._trusted = None
        self._since = _clock()

    def _end_learning(self, script: Script) -> None:
        """The trace that was being learned has ended, here or at a read before its script did."""
        done, rest = script.calls[: self._position], script.calls[self._position :]
        if rest:
            self._next = Script(rest + done if script.loop else rest, script.seconds, script.loop, OFTEN_ENOUGH)
            script.calls = done
            if script.loop:
                self._doubt(script.body)
                script.loop = False
            self._next.body = script.body
        self._scripts.learned(script)
        script.learned()
        allowance.spend(COMPILE_SECONDS * len(script.calls))

    def evicted(self) -> None:
        """See `values.Follower.evicted`."""
        self._scripts.clear()
        self._known_sites.clear()
