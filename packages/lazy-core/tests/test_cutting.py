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
    values.source.cutter.period = None
    values.source.cutter.restart()
    values.source.cut_at = values.source.cutter.cut_at
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
    values.source.cutter.period = None
    values.source.cutter.restart()
    values.source.cut_at = values.source.cutter.cut_at
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
