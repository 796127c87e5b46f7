"""What of torch's own databases the tests judge: every operator in single precision with one sample, and of all else some, others each day.

The whole databases are judged by `nox -s opinfo forms modules`; what is chosen here is part of that, whatever the day. A failure
says which choice it is: LAZY_JUDGE_TURN makes it again. A cell with a declared gap (judges/gaps.toml) is left out here: few samples do
not always meet what the gap is about. Two files of tests share the operators, so that two processes can run them side by side.
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
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
COMMON, OPINFO, FORMS, MODULES = _judge("common"), _judge("opinfo"), _judge("forms"), _judge("modules")
ALL = OPINFO.cells(dtypes=["float32"])
# Neighbours in the database are relatives: a hundred at a time are recorded, and compiled, by one test.
CHUNKS = [ALL[k::12] for k in range(12)]
# By file: the second judges the other dtypes and the modules too, which take as long as two chunks.
FIRST, SECOND = range(7), range(7, 12)
OTHERS = OPINFO.cells(dtypes=["float64", "int64", "bool", "complex64"])[TURN % SHARES :: SHARES]
OF_FORMS = FORMS.cells(dtypes=["float32", "int64", "complex64"])[TURN % (2 * SHARES) :: 2 * SHARES]
OF_MODULES = MODULES.cells(dtypes=["float32"])[TURN % 4 :: 4]


def judge_all(judge: Any, name: str, cells: list[Any], samples: int) -> None:
    """Judge cells that have no declared gap.

    Raises:
        AssertionError: some do not pass; the message names them, and how they were chosen.
    """
    gap_of = COMMON.gaps(name)
    verdicts = [judge.judge(cell, samples, TURN) for cell in cells if gap_of(cell) is None]
    failed = [str(v) for v in verdicts if not v.fine]
    assert not failed, "\n".join([f"LAZY_JUDGE_TURN={TURN} chooses these again:", *failed])
