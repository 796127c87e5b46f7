"""torch's operators, sampled (`judged.py` says which), the first part; and that what judges them can fail."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

judged = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("judged.py"))))
COMMON, OPINFO, MODULES = judged.COMMON, judged.OPINFO, judged.MODULES


@pytest.mark.parametrize("chunk", judged.FIRST)
def test_every_operator_in_single_precision_equals_the_cpu_without_falling_back(chunk: int) -> None:
    judged.judge_all(OPINFO, "opinfo", judged.CHUNKS[chunk], 1)


def test_the_two_files_judge_every_operator() -> None:
    cells = [str(cell) for chunk in (*judged.FIRST, *judged.SECOND) for cell in judged.CHUNKS[chunk]]
    assert sorted(cells) == sorted(str(cell) for cell in judged.ALL)


def test_whatever_the_turn_fewer_samples_are_some_of_those_judged_by_default() -> None:
    samples = list(range(30))
    whole = COMMON.spread(samples, COMMON.DEFAULT_SAMPLES, 0)
    for count in (1, 2, 3):
        chosen = [COMMON.spread(samples, count, turn) for turn in range(COMMON.DEFAULT_SAMPLES)]
        assert all(len(set(some)) == count for some in chosen)
        assert {sample for some in chosen for sample in some} == set(whole)


def test_a_failure_says_which_choice_it_is() -> None:
    cell = OPINFO.cells("^nonzero$", ["float32"])[0]
    judge = SimpleNamespace(judge=lambda *_: COMMON.Verdict(str(cell), cell.dtype, "wrong"))
    with pytest.raises(AssertionError, match=f"LAZY_JUDGE_TURN={judged.TURN}"):
        judged.judge_all(judge, "modules", [cell], 1)


def test_a_fallback_of_a_lowered_operation_fails_its_cell() -> None:
    cell = OPINFO.cells("^nonzero$", ["float32"])[0]
    verdict = OPINFO.judge(cell, 1)
    assert verdict.status == "fallback" and not verdict.fine and verdict.fallbacks == ["nonzero: no lowering"]


def test_a_wrong_value_fails_its_cell() -> None:
    torch = COMMON.torch
    with pytest.raises(AssertionError, match="result 0"):
        COMMON.compare([torch.ones(2, device="lazy")], [torch.tensor([1.0, 1.1])], False, lambda dtype: None)
    with pytest.raises(AssertionError, match="2 results where the CPU gives 1"):
        COMMON.compare([1, 2], [1], False, lambda dtype: None)


def test_declared_gaps_name_cells_that_exist() -> None:
    for name, judge in (("opinfo", OPINFO), ("forms", judged.FORMS), ("modules", MODULES)):
        known = {cell.name for cell in judge.cells()}
        for gap in COMMON.tomllib.loads(COMMON.GAPS.read_text()).get(name, []):
            assert set(gap["names"]) <= known, gap
