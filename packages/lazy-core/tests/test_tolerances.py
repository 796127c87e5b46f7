"""What counts as a difference, and how large it is said to be."""

import ml_dtypes
import numpy as np
import pytest

from lazy_core.tolerances import Tolerance, assert_close, difference

NONE = Tolerance(0, 0, "a test")


def test_equal_arrays_do_not_differ():
    """NaN is NaN, infinities are themselves, zeros of both signs are equal, and so is what is empty."""
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        x = np.array([np.nan, np.inf, -np.inf, 0.0, 1.5], dtype)
        assert difference(x, x.copy(), NONE) is None
    assert difference(np.array([0.0]), np.array([-0.0]), NONE) is None
    assert difference(np.empty((0, 3)), np.empty((0, 3)), NONE) is None


def test_a_difference_is_measured_in_both_ways():
    """Absolute, and in units in the last place of what was expected; the place is the first one."""
    expected = np.array([1.0, 2.0, 1024.0], np.float32)
    got = expected + np.array([0, 2, 8], np.float32) * np.float32(np.finfo(np.float32).eps) * np.array([1, 2, 1024], np.float32)
    found = difference(got, expected, NONE)
    assert (found.wrong, found.size, found.place) == (2, 3, (1,))
    assert found.ulps == pytest.approx(8)
    assert found.absolute == pytest.approx(8 * 2**-23 * 1024)
    assert difference(got, expected, Tolerance(8, 0, "a test")) is None
    assert difference(got, expected, NONE, extra=np.array([0.0, 1e-3, 1e-2])) is None


def test_a_missing_nan_is_an_infinite_difference():
    """In either direction; the same for infinities."""
    for got, expected in ((1.0, np.nan), (np.nan, 1.0), (np.inf, 1.0), (1.0, -np.inf)):
        found = difference(np.array([got]), np.array([expected]), Tolerance(1e6, 1e6, "a test"))
        assert found.absolute == found.ulps == np.inf


def test_integers_and_bools_are_equal_or_not():
    """No tolerance is for them."""
    loose = Tolerance(1e6, 1e6, "a test")
    assert difference(np.array([1, 5]), np.array([1, 2]), loose).absolute == 3
    assert difference(np.array([True]), np.array([False]), loose).wrong == 1
    with pytest.raises(AssertionError, match=r"there: 1 of 2 elements differ, first at \(1,\)"):
        assert_close(np.array([1, 5]), np.array([1, 2]), loose, "there")
