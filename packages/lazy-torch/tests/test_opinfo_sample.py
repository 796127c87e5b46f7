"""torch's own databases, sampled: every operator in single precision with one sample, and some of all other cells, others every day.

The whole databases are judged by `nox -s opinfo` and `nox -s modules`; what is chosen here is part of that, whatever the day. A failure
says which choice it is: LAZY_JUDGE_TURN makes it again. A cell with a declared gap (judges/gaps.toml) is left out here: few samples do
not always meet what the gap is about.
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

TURN = int(os.environ.get("LAZY_JUDGE_TURN") or datetime.date.today().toordinal())
SHARES = 40  # one of so many cells of the other dtypes is judged each day


def _judge(name: str) -> ModuleType:
    folder = str(Path(__file__).parents[1] / "judges")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


pytest.importorskip("expecttest", reason="torch's own test modules need it")
COMMON, OPINFO, MODULES = _judge("common"), _judge("opinfo"), _judge("modules")
ALL = OPINFO.cells(dtypes=["float32"])
# Neighbours in the database are relatives: a hundred at a time are recorded, and compiled, by one test.
CHUNKS = [ALL[k::12] for k in range(12)]
OTHERS = OPINFO.cells(dtypes=["float64", "int64", "bool", "complex64"])[TURN % SHARES :: SHARES]
OF_MODULES = MODULES.cells(dtypes=["float32"])[TURN % 4 :: 4]


def _judge_all(judge: Any, name: str, cells: list[Any], samples: int) -> None:
    """Judge cells that have no declared gap.

    Raises:
        AssertionError: some do not pass; the message names them, and how they were chosen.
    """
    gap_of = COMMON.gaps(name)
    verdicts = [judge.judge(cell, samples, TURN) for cell in cells if gap_of(cell) is None]
    failed = [str(v) for v in verdicts if not v.fine]
    assert not failed, "\n".join([f"LAZY_JUDGE_TURN={TURN} chooses these again:", *failed])


@pytest.mark.parametrize("chunk", range(len(CHUNKS)))
def test_every_operator_in_single_precision_equals_the_cpu_without_falling_back(chunk: int) -> None:
    _judge_all(OPINFO, "opinfo", CHUNKS[chunk], 1)


def test_some_operators_in_other_dtypes_equal_the_cpu_without_falling_back() -> None:
    _judge_all(OPINFO, "opinfo", OTHERS, 2)


def test_some_modules_equal_the_cpu_without_falling_back() -> None:
    _judge_all(MODULES, "modules", OF_MODULES, 1)


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
    with pytest.raises(AssertionError, match=f"LAZY_JUDGE_TURN={TURN}"):
        _judge_all(judge, "modules", [cell], 1)


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
    for name, judge in (("opinfo", OPINFO), ("modules", MODULES)):
        known = {cell.name for cell in judge.cells()}
        for gap in COMMON.tomllib.loads(COMMON.GAPS.read_text()).get(name, []):
            assert set(gap["names"]) <= known, gap
