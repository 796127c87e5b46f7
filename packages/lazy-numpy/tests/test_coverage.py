"""Every public callable of NumPy, every method of an array, every ufunc in all its ways: NumPy's value, and a counted fallback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import lazy_core
from lazy_numpy.proxy import module

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "judges"))

import coverage as audit

LAZY = module()


@pytest.fixture(scope="module")
def tables():
    return audit.tables()


def test_every_value_dtype_and_exception_is_numpys(tables):
    assert audit.differences(*tables) == []


def test_every_public_name_is_audited():
    assert audit.unaudited() == []


def test_the_page_is_up_to_date(tables):
    """Otherwise run packages/lazy-numpy/judges/coverage.py."""
    assert audit.PAGE.read_text(encoding="utf-8") == audit.page(*tables)


@pytest.mark.parametrize("call", [lambda x: np.histogram(x, bins=3), lambda x: np.add.reduceat(x, [0, 2]), lambda x: x.byteswap()])
def test_what_is_left_to_numpy_is_counted_and_names_its_line(call):
    with audit.recording():
        x = LAZY.arange(6.0)
        call(x)
        event = [e for e in lazy_core.report().events if e.kind == "fallback"][-1]
    assert event.site is not None
    assert event.site.rpartition(":")[0].endswith("test_coverage.py")
