"""torch's operators, sampled (`judged.py` says which), the second part; some in other dtypes, and some of torch's modules."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

judged = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("judged.py"))))


@pytest.mark.parametrize("chunk", judged.SECOND)
def test_every_operator_in_single_precision_equals_the_cpu_without_falling_back(chunk: int) -> None:
    judged.judge_all(judged.OPINFO, "opinfo", judged.CHUNKS[chunk], 1)


def test_some_operators_in_other_dtypes_equal_the_cpu_without_falling_back() -> None:
    judged.judge_all(judged.OPINFO, "opinfo", judged.OTHERS, 2)


def test_some_operators_in_other_forms_equal_the_cpu_without_falling_back() -> None:
    """In place, with `out=`, and on views."""
    judged.judge_all(judged.FORMS, "forms", judged.OF_FORMS, 1)


def test_some_modules_equal_the_cpu_without_falling_back() -> None:
    judged.judge_all(judged.MODULES, "modules", judged.OF_MODULES, 1)
