"""Barriers that place themselves in loops without reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazy_core
from lazy_core import ir, ops, values
from lazy_core.cache import cache
from lazy_core.cutting import find_period


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with nothing pending and empty caches."""
    lazy_core.barrier()
    values.recording.cutter.period = None
    values.recording.cutter.restart()
    values.recording.cut_at = values.recording.cutter.cut_at
    cache.clear()
    lazy_core.reset_report()


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(3, 20))
def test_period_is_the_smallest_one(prefix, body, times):
    """Against a brute-force search."""
    log = prefix + body * times
    size = len(log)

    def start_of(p):
        k = size
        while k - 1 - p >= 0 and log[k - 1 - p] == log[k - 1]:
            k -= 1
        return k - p

    candidates = [p for p in range(1, size // 3 + 1) if size - start_of(p) >= max(3 * p, size // 2)]
    found = find_period(log)
    assert found == ((candidates[0], start_of(candidates[0])) if candidates else None)


def test_no_period_in_a_sequence_without_one():
    """Nothing is made up."""
    assert find_period(list(range(100))) is None
    assert find_period([]) is None


def run_loop(rounds, extra=None):
    """An unmarked loop with temporaries, and the value that it must have."""
    x = values.from_host(np.float64([1.0, 2.0, 3.0]))
    half = ir.const(0.5, np.float64)
    expected = np.float64([1.0, 2.0, 3.0])

    def body(x):
        y = values.record(ops.mul, (x, half))
        z = values.record(ops.add, (y, y))
        return values.record(ops.add, (values.record(ops.sin, (z,)), half))

    for k in range(rounds):
        x = body(x)
        expected = np.sin(expected * 0.5 + expected * 0.5) + 0.5
        if extra:
            extra(k, x)
    return x, expected


@pytest.mark.parametrize("rounds", [1000, 25_000])
def test_unmarked_loop_compiles_its_body_a_bounded_number_of_times(rounds):
    """100,000 operations without a read: at most four programs, and the same values."""
    x, expected = run_loop(rounds)
    np.testing.assert_allclose(values.to_host(x), expected, rtol=1e-12)
    assert lazy_core.report().counters["compiles"] <= 4
    assert lazy_core.report().counters["barriers"] > 5 * (rounds > 1000)


def test_cuts_fall_where_the_fewest_values_are_live():
    """In the steady state the program returns the loop's value and nothing else."""
    run_loop(2000)
    steady = max(cache.plans._entries.values(), key=lambda plan: (plan.operations == 200, plan.operations))
    assert steady.operations == 200
    assert [len(row) for row in steady.outputs if row] == [1]


def test_cuts_fall_at_the_same_places_on_every_run():
    """A second run of the same loop compiles nothing."""
    run_loop(3000)
    lazy_core.barrier()
    values.recording.cutter.period = None
    values.recording.cutter.restart()
    values.recording.cut_at = values.recording.cutter.cut_at
    before = lazy_core.report().counters["compiles"]
    run_loop(3000)
    lazy_core.barrier()
    assert lazy_core.report().counters["compiles"] == before


def test_reads_now_and_then_do_not_recompile_again_and_again():
    """A logging line every hundredth round."""

    def log(k, x):
        if k % 100 == 99:
            values.to_host(x)

    x, expected = run_loop(5000, log)
    np.testing.assert_allclose(values.to_host(x), expected, rtol=1e-12)
    assert lazy_core.report().counters["compiles"] <= 6


def fresh_cutter():
    """Forget the loop that was known."""
    lazy_core.barrier()
    values.recording.cutter.period = None
    values.recording.cutter.restart()
    values.recording.cut_at = values.recording.cutter.cut_at


def nested_loop(rounds, inner, between, log_every=None):
    """A loop with a loop in it; returns the value and how many programs were compiled after each outer round."""
    x = values.from_host(np.float64([0.1, 0.2]))
    compiled = []
    for k in range(rounds):
        for _ in range(inner):
            x = ops.neg(ops.cos(ops.sin(x)))
        for _ in range(between):
            x = ops.tanh(ops.add(x, x))
        if log_every and k % log_every == log_every - 1:
            values.to_host(ops.sum(x, axes=(0,), keepdims=False))
        compiled.append(lazy_core.report().counters["compiles"])
    return values.to_host(x), compiled


@pytest.mark.parametrize(("inner", "between", "log_every"), [(500, 1, None), (467, 20, 10), (40, 30, 10)])
def test_what_interrupts_an_inner_loop_does_not_recompile_it_each_time(inner, between, log_every):
    """Cuts resume at a fixed distance from the interruption: were they a fixed length apart, each outer round would cut another way."""
    result, compiled = nested_loop(30, inner, between, log_every)
    assert compiled[-1] == compiled[20] <= 8, compiled
    expected = np.float64([0.1, 0.2])
    for _ in range(30):
        for _ in range(inner):
            expected = -np.cos(np.sin(expected))
        for _ in range(between):
            expected = np.tanh(expected + expected)
    np.testing.assert_allclose(result, expected, rtol=1e-9)


@pytest.mark.parametrize("body", [40, 130])
def test_a_logging_line_every_tenth_round_recompiles_nothing_once_seen(body):
    """Whether ten rounds are longer than a program or shorter: a bounded number of programs, soon."""
    rng = np.random.default_rng(body)
    chosen = [[ops.sin, ops.cos, ops.tanh, ops.neg][i] for i in rng.integers(0, 4, body)]
    x = values.from_host(np.float64([0.1, 0.2]))
    compiled = []
    for k in range(100):
        for op in chosen:
            x = op(x)
        if k % 10 == 9:
            values.to_host(ops.sum(x, axes=(0,), keepdims=False))
            compiled.append(lazy_core.report().counters["compiles"])
    assert compiled[-1] == compiled[3] <= 5, compiled


def test_an_unmarked_loop_gives_what_one_with_barriers_gives_in_bounded_memory():
    """The same values to the bit, and never more pending operations than the first search allows."""

    def run(mark):
        x = values.from_host(np.float64([1.0, 2.0, 3.0]))
        half = ir.const(0.5, np.float64)
        longest = 0
        for _ in range(3000):
            x = values.record(ops.add, (ops.sin(values.record(ops.mul, (x, half))), half))
            longest = max(longest, len(values.recording.log))
            if mark:
                lazy_core.barrier()
        return values.to_host(x), longest

    unmarked, longest = run(False)
    fresh_cutter()
    marked, _ = run(True)
    assert longest <= 1100
    np.testing.assert_array_equal(unmarked, marked)


def test_trace_without_period_is_cut_at_its_limit():
    """Bounded even where no loop is found."""
    rng = np.random.default_rng(0)
    x = values.from_host(np.float64(1))
    with lazy_core.options(max_trace=64, cut_after=16):
        lazy_core.barrier()
        for _ in range(200):
            x = values.record([ops.sin, ops.cos, ops.neg][rng.integers(3)], (x,))
        assert lazy_core.report().counters["barriers"] >= 3
    values.to_host(x)
