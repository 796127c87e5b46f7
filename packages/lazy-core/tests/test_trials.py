"""Which tier a trial finds faster, from runs whose times are given."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
import textwrap
import threading
from typing import ClassVar

import pytest

from lazy_core import background, compiling, tiers
from lazy_core.trials import DISPATCH_SECONDS, Trial


class Clock:
    """Runs a trial's next tier again and again; a run of each tier and what the program does between two runs take given seconds."""

    def __init__(self, trial: Trial, native: float, compiled: float, between: float = 0.0, overlapped: float = 0.0) -> None:
        self.trial, self.now = trial, 100.0
        self.seconds = {"native": native, "compiled": compiled}
        self.between, self.overlapped = between, overlapped
        self.alone, self.refuses = True, True
        self.ran: list[str] = []

    def run(self, runs: int = 1, disturbed: bool = False) -> None:
        for _ in range(runs):
            self.now += self.between
            tier = self.trial.next_tier(disturbed, self.now)
            seconds = self.seconds[tier]
            if self.trial.in_rounds(self.now, self.alone) and tier == "compiled":
                seconds -= self.overlapped  # of the previous program, while the program recorded
            self.now += seconds
            self.ran.append(tier)
            self.trial.note(tier, seconds, self.now, self.alone)
            if self.refuses and self.trial.try_natively() is not None:  # as a frontend that runs recorded rounds as fast as any
                self.trial.tried = False

    def decided(self, most: int = 2000) -> str | None:
        while self.trial.verdict is None and len(self.ran) < most:
            self.run()
        return self.trial.verdict


def trial(native: float = 1e-3) -> Trial:
    made = Trial("here.py:1", 100)
    made.native.run = native
    return made


@pytest.mark.parametrize(("native", "compiled", "verdict"), [(4e-3, 1e-3, "compiled"), (1e-3, 4e-3, "native"), (1e-3, 0.99e-3, "native")])
def test_the_faster_tier_stays(native: float, compiled: float, verdict: str) -> None:
    clock = Clock(trial(native), native, compiled)
    assert clock.decided() == verdict
    assert {"native", "compiled"} <= set(clock.ran)
    assert clock.trial.next_tier() == verdict
    assert "measured" in clock.trial.reason


def test_first_runs_of_a_block_do_not_count() -> None:
    """For some milliseconds each tier is disturbed by what the other one left behind."""
    clock = Clock(trial(3e-3), 3e-3, 30e-3)
    clock.run(3)  # slow at first
    clock.seconds["compiled"] = 1e-3
    assert clock.decided() == "compiled"
    assert clock.trial.row().compiled_seconds == pytest.approx(1e-3)


def test_what_a_program_records_meanwhile_counts_for_the_compiled_tier() -> None:
    """A run that is waited for takes longer than the native one; a round, in which it overlaps with recording, does not."""
    clock = Clock(trial(2e-3), 2.0e-3, 2.2e-3, between=1e-3, overlapped=1e-3)
    assert clock.decided() == "compiled"
    assert "a round" in clock.trial.reason


def test_runs_are_compared_where_the_program_does_other_things() -> None:
    clock = Clock(trial(2e-3), 2e-3, 1e-3, between=5.0)
    assert clock.decided() == "compiled"
    assert "a round" not in clock.trial.reason


def test_handing_over_counts_where_runs_are_compared() -> None:
    clock = Clock(trial(1e-4), 1e-4, 1e-4 - DISPATCH_SECONDS / 2, between=5.0)
    assert clock.decided() == "native"


def test_measuring_waits_while_something_is_compiled_but_not_for_ever() -> None:
    clock = Clock(trial(), 1e-3, 1e-4)
    clock.run(150, disturbed=True)
    assert set(clock.ran) == {"native"}
    assert clock.trial.verdict is None
    clock.now += 10.0
    clock.run(2000, disturbed=True)
    assert clock.trial.verdict == "compiled"


def test_a_block_goes_on_while_its_runs_become_faster() -> None:
    """The first dozen runs of a program have buffers to find."""
    clock = Clock(trial(3e-3), 3e-3, 30e-3)
    for k in range(20):
        clock.seconds["compiled"] = 30e-3 * 0.8**k
        clock.run()
        assert clock.ran[-1] == "compiled"
    assert clock.decided() == "compiled"


def test_a_frontends_own_time_takes_the_place_of_native_runs() -> None:
    clock = Clock(trial(), 1e-3, 1e-4)
    clock.trial.native_elsewhere(2e-3)
    assert clock.decided() == "compiled"
    assert set(clock.ran) == {"compiled"}
    assert clock.trial.row().native_seconds == 2e-3


def test_a_verdict_can_be_looked_at_again() -> None:
    clock = Clock(trial(), 4e-3, 1e-3)
    assert clock.decided() == "compiled"
    clock.trial.reopen()
    assert clock.trial.verdict is None
    assert clock.trial.row().tier == "undecided"
    clock.seconds["compiled"] = 9e-3
    assert clock.decided() == "native"


def test_looking_again_takes_one_per_cent_of_the_time_and_then_less() -> None:
    clock = Clock(trial(), 4e-3, 1e-3)
    began, waits = clock.now, []
    for _ in range(3):
        assert clock.decided() == "compiled"
        settled = clock.now
        assert not clock.trial.due(settled)
        waits.append(next(wait for wait in range(100_000) if clock.trial.due(settled + wait)))
        clock.trial.reopen()
    assert waits == [300, 600, 1200]
    long = Clock(trial(2.5), 2.5, 1.0)  # the first look takes some seconds
    assert long.decided() == "compiled"
    took = long.now - began
    assert not long.trial.due(long.now + 300)
    assert not long.trial.due(long.now + 80 * took)
    assert long.trial.due(long.now + 100 * took)


def test_what_was_not_measured_or_is_measured_elsewhere_is_not_looked_at_again() -> None:
    failed, asked, before = trial(), trial(), trial()
    failed.decide("native", "compiling it failed: so it did")
    asked.native_elsewhere(2e-3)
    assert Clock(asked, 1e-3, 1e-4).decided() == "compiled"
    before.decide_as_before("native", 100.0)
    assert [t.due(1e9) for t in (failed, asked, before)] == [False, False, True]
    assert before.reason == "measured faster in an earlier process"
    before.decide("native", "compiling a variant failed: so it did")
    assert not before.due(1e9)


def test_a_long_trace_is_measured_in_a_few_runs() -> None:
    clock = Clock(trial(2.5), 2.5, 1.0)
    assert clock.decided() == "compiled"
    assert len(clock.ran) <= 8


def test_a_round_that_ends_late_does_not_make_the_next_one_short() -> None:
    """Kept from the processor in every other round, a program is found finished in the next: what counts is how long they take together."""
    compiled_ends = [3.0e-3 if k % 2 else 0.7e-3 for k in range(1000)]
    clock = Clock(trial(1.5e-3), 1.5e-3, 0.0)
    for seconds in compiled_ends:
        clock.seconds["compiled"] = seconds
        clock.run()
    assert clock.trial.verdict == "native"
    assert clock.trial.compiled.round == pytest.approx(1.85e-3, rel=0.01)


def test_what_scatters_is_not_judged_by_its_best_rounds() -> None:
    """Two threads that meet after each small kernel are sometimes as fast as they can be, and seldom otherwise."""
    clock = Clock(trial(15e-3), 15e-3, 18e-3)
    while clock.trial.verdict is None:
        clock.seconds["native"] = 21e-3 if len(clock.ran) % 6 else 12e-3
        clock.run()
    assert clock.trial.verdict == "compiled"
    assert clock.trial.row().native_seconds == pytest.approx(21e-3)


def test_the_better_block_counts_where_a_machine_is_slow_for_a_while() -> None:
    """Shared machines are: neither tier is to be judged by such a block."""
    clock = Clock(trial(3e-3), 3e-3, 2e-3)
    slow, blocks = ("compiled", 0), 0
    while clock.trial.verdict is None:
        before = clock.trial._tier
        for tier, seconds in (("native", 3e-3), ("compiled", 2e-3)):
            clock.seconds[tier] = seconds * (1.6 if slow == (tier, blocks) else 1.0)
        clock.run()
        blocks += before == "native" and clock.trial._tier == "compiled"
    assert clock.trial.verdict == "compiled"
    assert clock.trial.row().compiled_seconds == pytest.approx(2e-3, rel=0.01)


def ready(native: float, compiled: float) -> Clock:
    """A clock whose trial has timed a block of each tier and would have the frontend run the next native rounds."""
    clock = Clock(trial(native), native, compiled)
    clock.refuses = False
    while clock.trial.try_natively() is None:
        assert clock.trial.verdict is None
        clock.run()
    return clock


def test_native_rounds_are_timed_by_the_frontend_where_it_can() -> None:
    """After a block that is recorded it runs them as they come for a while; what it tells of these stands for a block."""
    clock = ready(2.8e-3, 2e-3)
    assert set(clock.ran) == {"native", "compiled"}
    assert 0.1 <= clock.trial.try_natively() <= 0.5  # type: ignore[operator]
    clock.trial.tried = True
    assert clock.trial.try_natively() is None  # it is being done
    clock.trial.end_trying(1.9e-3)
    assert clock.trial.row().native_seconds == 1.9e-3
    assert clock.decided() == "native"


def test_recorded_native_rounds_do_not_make_a_program_faster_than_the_library() -> None:
    """Twice as fast as what is recorded first and then run natively is no more than what the library takes by itself."""
    clock = ready(4.0e-3, 1.9e-3)
    clock.trial.tried = True
    clock.trial.end_trying(1.8e-3)
    assert clock.decided() == "native"


def test_rounds_in_which_others_ran_do_not_count_where_there_are_some_without() -> None:
    """A step whose loss is read once in twenty ends another trace there, which takes much longer in these rounds."""
    clock = Clock(trial(3e-3), 3e-3, 2e-3)
    while clock.trial.verdict is None and len(clock.ran) < 2000:
        clock.alone = len(clock.ran) % 20 != 0
        clock.between = 0.0 if clock.alone else 50e-3
        clock.run()
    assert clock.trial.verdict == "compiled"
    row = clock.trial.row()
    assert (row.native_seconds, row.compiled_seconds) == (pytest.approx(3e-3, rel=0.01), pytest.approx(2e-3, rel=0.01))


def test_rounds_are_looked_for_again_where_others_came_between_for_a_while() -> None:
    """As when a trace that begins alike is to be compiled too: till then this one runs natively, as it comes for the most part."""
    clock = Clock(trial(3e-3), 3e-3, 2e-3)
    clock.run(20)
    assert clock.trial.in_rounds(clock.now)
    clock.alone, clock.between = False, 50e-3
    for _ in range(100):
        clock.run()
    assert clock.ran.count("native") > 50
    clock.alone, clock.between = True, 0.0
    assert clock.decided(5000) == "compiled"
    assert clock.trial.row().native_seconds == pytest.approx(3e-3, rel=0.01)
    assert "a round" in clock.trial.reason


def test_where_others_always_come_between_runs_are_compared_and_no_frontend_times_any() -> None:
    clock = Clock(trial(9.5e-3), 9.5e-3, 7e-3, between=3e-3)
    clock.alone = clock.refuses = False
    while clock.trial.verdict is None:
        assert clock.trial.try_natively() is None
        clock.run()
    assert clock.trial.verdict == "compiled"
    assert "a round" not in clock.trial.reason
    row = clock.trial.row()
    assert (row.native_seconds, row.compiled_seconds) == (pytest.approx(9.5e-3, rel=0.01), pytest.approx(7e-3, rel=0.01))


def test_native_rounds_are_recorded_where_the_frontend_found_none() -> None:
    clock = ready(2.8e-3, 2e-3)
    clock.trial.tried = True
    assert not clock.trial.end_trying(None)
    assert clock.decided() == "compiled"
    assert "native" in clock.ran


def test_of_two_traces_only_the_latest_takes_the_rounds_that_a_frontend_times() -> None:
    """Else one would be judged by what the other's rounds took."""

    class Frontend:
        asked: ClassVar[list[float]] = []

        def try_natively(self, seconds: float) -> bool:
            self.asked.append(seconds)
            return True

    clocks = [ready(1.4e-3, 1e-3) for _ in range(2)]
    assert compiling.wait(60)  # what another test has left: nothing is timed meanwhile
    for clock in clocks:
        tiers._begin_trying(clock.trial, [[object()]], [Frontend()])  # type: ignore[list-item]
    first, second = (clock.trial for clock in clocks)
    assert len(Frontend.asked) == 2
    assert not first.tried
    assert second.tried


def test_runs_that_are_waited_for_are_not_tried_as_rounds() -> None:
    clock = Clock(trial(2e-3), 2e-3, 1e-3, between=5.0)
    clock.refuses = False
    while clock.trial.verdict is None:
        assert clock.trial.try_natively() is None
        clock.run()


def test_who_may_cost_less_steps_further_back() -> None:
    """At a nice value of 15 a thread gets 3 to 4 % of a core that another one wants, at 7 a sixth (`man 7 sched`: a step is a fifth)."""
    assert [background.nicer(percent) for percent in (0, 1, 10, 50, 100, 150, 10_000)] == [19, 19, 15, 7, 3, 0, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_a_thread_that_steps_back_keeps_its_policy_and_takes_short_turns() -> None:
    found = []

    def work() -> None:
        before = _scheduling()
        background.step_back(threading.get_native_id(), 15)
        found.append((before, _scheduling()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((policy, nice, turn), after) = found[0]
    assert after[:2] == (policy, min(19, nice + 15))
    assert after[2] in (turn, background.SLICE_SECONDS)  # Linux before 6.12 takes no notice
    assert _scheduling()[1] == nice  # of this thread


def _scheduling() -> tuple[int, int, float]:
    """The calling thread's policy, nice value, and turn in seconds where the system tells (0 elsewhere)."""
    turn = 0.0
    number = {"x86_64": 315, "aarch64": 275}.get(platform.machine())  # sched_getattr
    if number is not None:
        told = ctypes.create_string_buffer(56)
        if ctypes.CDLL(None).syscall(number, 0, told, 56, 0) == 0:
            turn = struct.unpack_from("=IIQiIQ", told)[5] / 1e9
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), turn


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_threads_that_compile_step_back_and_threads_that_run_programs_do_not() -> None:
    script = """
        import os, threading
        from lazy_core import backend, background
        backend.start_client()
        lowered = backend.compile_in_back()
        assert lowered >= 2, lowered
        names = {t: background.name(t) for t in background.threads()}
        runs = {t for t, name in names.items() if name == backend._RUNS}
        assert runs and not runs & set(backend._back), names
        import jax, jax.numpy as jnp
        def nice():
            return {t: os.getpriority(os.PRIO_PROCESS, t) for t in background.threads()}
        def worked(f):
            before = background.threads(); f(); after = background.threads()
            return {t: after[t] - before.get(t, 0) for t in after}
        x = jnp.ones((1200, 1200))
        f = jax.jit(lambda x: sum([jnp.tanh(x @ (x + k)) * jnp.cumsum(x) [None, :1200] for k in range(12)]))
        low = f.lower(x)
        made = []
        python = {t.native_id for t in threading.enumerate()}
        compile_work = {t: w for t, w in worked(lambda: made.append(low.compile())).items() if t not in python}
        made[0](x).block_until_ready()  # what compiling left to tidy up may go on meanwhile
        run_work = {t: w for t, w in worked(lambda: [made[0](x).block_until_ready() for _ in range(10)]).items() if t not in python}
        niceness = nice()
        back = sum(w for t, w in compile_work.items() if niceness.get(t, 0) > 0)
        assert back > 0.5 * sum(compile_work.values()), (compile_work, niceness)
        back = sum(w for t, w in run_work.items() if niceness.get(t, 0) > 0)
        assert back < 0.2 * sum(run_work.values()), (run_work, niceness)
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=environment)


def test_compiling_on_idle_cores_costs_a_program_nothing() -> None:
    """XLA's threads are of low priority: what they were made to wait is what the program had use for."""
    assert compiling.cost(wall=2.0, xlas=2.0) == 0.0
    assert compiling.cost(wall=2.0, xlas=3.0) == 0.0
    assert compiling.cost(wall=10.0, xlas=2.0) == pytest.approx(1.6)
    assert compiling.cost(wall=0.0, xlas=0.0) == 0.0
