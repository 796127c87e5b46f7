"""A sample of NumPy's own tests with the lazy NumPy in its place; the whole judge is `nox -s numpy-suite`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "judges"))

import numpy_suite as judge


@pytest.mark.parametrize("name", ["_core/test_item_selection", "lib/test_twodim_base"])
def test_numpys_own_tests_pass_but_for_those_that_are_listed(name, monkeypatch):
    monkeypatch.setenv("LAZY_TIER", "auto")
    outcomes = judge.judge(name, judge.paths()[name], "auto", [], 250.0)
    assert len(outcomes) > 30
    known = judge.gaps().get(name, {})
    assert {t: o for t, o in outcomes.items() if o.startswith("failed") and judge.reason_of(t, known) is None} == {}


def test_every_listed_module_is_judged_and_every_reason_is_a_sentence():
    paths = judge.paths()
    for name, known in judge.gaps().items():
        assert paths[name].exists()
        assert all(len(why) > 10 for why in known.values())
