"""Scripts: when what a trace's calls were is tried again, and when it is left alone."""

from __future__ import annotations

import itertools

from lazy_core.scripts import LONGEST_SCRIPT, Attempts, Script


def rounds_until_tried(attempts: Attempts) -> int:
    passed = 0
    while attempts.bar():
        passed += 1
    return passed


def test_attempts_that_fail_in_a_row_become_rarer():
    attempts, waits = Attempts(), []
    for _ in range(8):
        attempts.ended(well=False)
        waits.append(rounds_until_tried(attempts))
    assert waits[0] == 0
    assert all(b > 1.5 * a for a, b in itertools.pairwise(waits[1:]))


def test_one_failure_between_successes_costs_nothing():
    attempts = Attempts()
    for k in range(100):
        assert not attempts.ended(well=k % 2 == 0)
        assert rounds_until_tried(attempts) == 0


def test_a_script_that_was_followed_in_vain_admits_nothing_for_a_while():
    script = Script((1, 2, 3), 1e-3)
    assert script.admits()
    for _ in range(2):
        script.attempts.ended(well=False)
    left = script.attempts.left
    assert not script.admits()
    script.pass_over(left)  # rounds that nobody looks at count
    assert script.admits()


def test_a_script_too_long_to_be_learned_is_looked_at_more_and_more_rarely():
    script = Script(tuple(range(LONGEST_SCRIPT + 1)), 1e-3)
    assert script.unseen() == 0  # it may have come once only
    script.count = 3
    assert [script.unseen() / len(script.calls) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    short = Script(tuple(range(LONGEST_SCRIPT)), 1e-3, count=100)
    assert short.unseen() == 0
