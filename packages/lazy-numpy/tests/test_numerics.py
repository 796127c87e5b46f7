"""Compiled ufuncs are within the declared bounds of NumPy's values, and never differ in kind."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hynp

import lazy_core
from lazy_numpy.proxy import module

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "judges"))

import numerics

LAZY = module()


@pytest.mark.parametrize("key", list(numerics.DTYPES))
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_every_floating_ufunc_is_within_its_bound(key, seed):
    """On special values, numbers of all magnitudes and numbers near one; one program, compiled once."""
    dtype = numerics.DTYPES[key]
    found = numerics.evaluate(dtype, list(numerics.UFUNCS), numerics.samples(dtype, seed))
    over = {name: w for name, outcome in found.items() if (w := numerics.worst(name, *outcome))[0] > numerics.bound(name, key)}
    assert over == {}


def test_the_page_is_up_to_date():
    """Otherwise run packages/lazy-numpy/judges/numerics.py."""
    assert numerics.PAGE.read_text(encoding="utf-8") == numerics.page()


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "sqrt", "sin", "maximum", "floor_divide", "spacing", "frexp"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_calls_that_numpy_runs_keep_every_bit(name, data):
    """Subnormal numbers, NaN and infinities included."""
    ufunc = getattr(np, name)
    given = [data.draw(hynp.arrays(np.float64, 5, elements=st.floats(allow_subnormal=True))) for _ in range(ufunc.nin)]
    with lazy_core.options(tier="native"), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want, got = ufunc(*given), ufunc(*[LAZY.array(g) for g in given])
    for w, g in zip(np.atleast_2d(want), np.atleast_2d(np.asarray(got)), strict=True):
        assert w.tobytes() == np.asarray(g).tobytes()


def test_compiled_programs_flush_subnormal_numbers_and_the_native_tier_keeps_them():
    """As documented; neither changes by itself."""
    tiny = np.full(3, 1e-310)
    for tier, kept in (("compiled", False), ("native", True)):
        with lazy_core.options(tier=tier):
            assert bool((np.asarray(LAZY.array(tiny) + LAZY.array(2 * tiny)) != 0).all()) is kept
