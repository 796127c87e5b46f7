"""Lazy arrays handed to NumPy code, mixed with NumPy's arrays, and in `enabled()` blocks; laziness, reads, fallbacks and their names."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import lazy_core
import lazy_numpy
from lazy_numpy.proxy import module

LAZY = module()


@pytest.fixture
def compiled():
    """Every call is recorded, whatever tier the tests run in."""
    with lazy_core.options(tier="compiled"):
        yield


def counters():
    return lazy_core.report().counters


def test_nothing_runs_until_somebody_reads(compiled):
    x = LAZY.arange(1000.0)
    lazy_core.barrier()
    before = counters()["barriers"]
    y = np.sqrt(x * 2 + 1).reshape(10, 100)[:, ::2].sum(axis=1)
    s = y.mean()
    assert repr(y.shape) == "(10,)"
    assert s.dtype == np.float64
    assert counters()["barriers"] == before
    assert float(s) == pytest.approx(np.sqrt(np.arange(1000.0) * 2 + 1).reshape(10, 100)[:, ::2].sum(axis=1).mean())
    assert counters()["barriers"] == before + 1


def test_a_loop_of_scalar_results_stays_lazy_until_the_branch(compiled):
    x = LAZY.ones(8)
    lazy_core.barrier()
    before = counters()["barriers"]
    total = 0.0
    for _ in range(5):
        total = total + (x * x).sum() / 2
    assert counters()["barriers"] == before
    assert total == 20.0
    assert counters()["barriers"] == before + 1


def test_numpys_arrays_on_the_left_and_in_place(compiled):
    n, x = np.arange(4.0), LAZY.ones(4)
    assert isinstance(n + x, lazy_numpy.ndarray)
    assert isinstance(np.float64(2) * x, lazy_numpy.ndarray)
    assert isinstance(n @ x, lazy_numpy.scalar)
    kept = n
    n += x
    assert kept is n
    assert type(n) is np.ndarray
    np.testing.assert_array_equal(n, [1, 2, 3, 4])
    n[:2] = x[:2] * 7
    n[3] = x.sum()
    np.testing.assert_array_equal(n, [7, 7, 3, 4])


def test_a_captured_array_keeps_the_contents_it_had():
    n = np.zeros(64)
    x = lazy_numpy.asarray(n)
    y = x + n
    n[:] = 5
    np.testing.assert_array_equal(np.asarray(x), 0)
    np.testing.assert_array_equal(np.asarray(y), 0)


def test_what_is_handed_out_cannot_change_a_recorded_value(compiled):
    x = LAZY.zeros(3)
    a = np.asarray(x)
    a[:] = 1
    np.testing.assert_array_equal(np.asarray(x), 0)
    assert not hasattr(x, "__array_interface__")
    assert not hasattr(x, "__array_struct__")
    assert not hasattr(x.sum(), "__array_interface__")


def test_printing_twice_and_then_going_on():
    x = LAZY.arange(3.0)
    assert str(x) == str(x) == "[0. 1. 2.]"
    x += 1
    assert repr(x) == "array([1., 2., 3.])"


def test_copies_and_pickles():
    x = LAZY.arange(3.0)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        y += 1
        np.testing.assert_array_equal(np.asarray(x), [0, 1, 2])
        assert isinstance(y, lazy_numpy.ndarray)
    s = x.sum()
    assert type(pickle.loads(pickle.dumps(s))) is np.float64
    assert copy.deepcopy(s) == 3.0


def test_scalars_are_what_numpys_scalars_are():
    s = LAZY.arange(4.0).sum()
    assert isinstance(s, np.float64)
    assert isinstance(s, float)
    assert not isinstance(s, np.ndarray)
    assert not isinstance(s, LAZY.ndarray)
    assert np.isscalar(s)
    assert {s: 1}[6.0] == 1
    assert f"{s:8.3f}|{s}" == "   6.000|6.0"
    assert json.dumps(s.item()) == "6.0"
    assert round(s, 1) == 6.0
    assert s.is_integer()
    with pytest.raises(TypeError):
        s[0] = 1
    n = LAZY.arange(4).max()
    assert list(range(n)) == [0, 1, 2]
    assert "abcd"[n] == "d"
    assert (n + np.float32(1)).dtype == np.float64
    assert (LAZY.ones(2, "f4").sum() * 2.5).dtype == np.float32


def test_truth_of_several_elements_is_an_error():
    with pytest.raises(ValueError, match="truth value of an array with more than one element is ambiguous"):
        bool(LAZY.ones(2))


def test_a_fallback_is_counted_named_and_traced_to_the_users_line(compiled):
    x = LAZY.array([3.0, 1.0, 3.0])
    before = counters()["fallbacks"]
    y = np.unique(x)
    np.testing.assert_array_equal(np.asarray(y), [1, 3])
    assert counters()["fallbacks"] == before + 1
    event = [e for e in lazy_core.report().events if e.kind == "fallback"][-1]
    assert "numpy: unique" in event.cause
    assert event.site is not None
    assert event.site.rpartition(":")[0].endswith("test_protocols.py")


def test_strict_turns_a_fallback_into_an_error(compiled):
    with lazy_core.strict("fallback"), pytest.raises(lazy_core.errors.StrictError, match="unique"):
        np.unique(LAZY.ones(3))


def test_a_function_without_a_lowering_writes_its_output_back():
    x, out = LAZY.array([1.5, -2.25]), LAZY.zeros(2)
    exponent = LAZY.zeros(2, "i4")
    result = np.frexp(x, out, exponent)
    assert result[0] is out
    np.testing.assert_array_equal(np.asarray(out), [0.75, -0.5625])
    np.testing.assert_array_equal(np.asarray(exponent), [1, 2])
    a = LAZY.arange(4.0)
    np.place(a, np.asarray(a) > 1, [9.0, 8.0])
    np.testing.assert_array_equal(np.asarray(a), [0, 1, 9, 8])


def test_a_mask_is_written_without_a_read_and_read_with_a_host_read(compiled):
    x = LAZY.arange(6.0)
    lazy_core.barrier()
    before = counters()
    x[x > 3] = 0
    assert counters()["barriers"] == before["barriers"]
    y = x[x > 1]
    assert y.shape == (2,)
    assert counters()["fallbacks"] == before["fallbacks"]
    assert any(e.kind == "host_read" and "mask" in e.cause for e in lazy_core.report().events)


def test_a_selection_that_is_reduced_or_written_back_is_never_made(compiled):
    x = LAZY.arange(24.0).reshape(4, 6)
    native = np.arange(24.0).reshape(4, 6)
    lazy_core.barrier()
    before = counters()["barriers"]
    mask = x[:, 0] > 5
    x[mask] *= 2
    centre = x[mask].mean(axis=0)
    x[x > 3] += 1
    assert counters()["barriers"] == before
    rows = native[:, 0] > 5
    native[rows] *= 2
    np.testing.assert_array_equal(np.asarray(centre), native[rows].mean(axis=0))
    native[native > 3] += 1
    np.testing.assert_array_equal(np.asarray(x), native)


def test_indices_of_known_bounds_are_not_read(compiled):
    x, scores = LAZY.arange(12.0).reshape(3, 4), LAZY.ones((3, 4))
    lazy_core.barrier()
    before = counters()["barriers"]
    picked = x[LAZY.arange(3), scores.argmax(axis=1)] + x[0][np.argsort(-x[0])][:3]
    assert counters()["barriers"] == before
    np.testing.assert_array_equal(np.asarray(picked), [3, 6, 9])


def test_out_of_bounds_is_an_index_error_though_the_index_was_computed():
    x, i = LAZY.arange(3.0), LAZY.arange(3) + 1
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        x[i]
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        x[i] = 0
    np.testing.assert_array_equal(np.asarray(x), [0, 1, 2])


def test_the_trace_is_usable_after_errors():
    x = LAZY.ones(3)
    y = x + 1
    for bad in (
        lambda: x + LAZY.ones(4),
        lambda: x @ LAZY.ones((2, 2)),
        lambda: x.reshape(2, 2),
        lambda: x[5],
        lambda: x.astype("i4") + 1e400j,
    ):
        try:
            bad()
        except (ValueError, IndexError, OverflowError):
            continue
    np.testing.assert_array_equal(np.asarray(y), 2)


def outside():
    return np.zeros(2)


def test_enabled_rebinds_this_modules_numpy_and_puts_it_back():
    real = np
    with lazy_numpy.enabled():
        assert np is not real
        x = outside()
        assert isinstance(x, lazy_numpy.ndarray)
        assert isinstance(x, np.ndarray)
    assert np is real
    assert type(outside()) is np.ndarray


def test_dtypes_that_cannot_be_lazy_stay_numpys():
    for made in (
        LAZY.array(["a"]),
        LAZY.array([1, None]),
        LAZY.zeros(2, dtype="M8[D]"),
        LAZY.ones(2, np.longdouble),
        LAZY.zeros(2, dtype=[("x", float)]),
    ):
        assert type(made) is np.ndarray


def test_random_streams_are_numpys_own():
    np.testing.assert_array_equal(np.asarray(LAZY.random.default_rng(5).normal(size=4)), np.random.default_rng(5).normal(size=4))
    LAZY.random.seed(3)
    first = np.asarray(LAZY.random.rand(3))
    np.random.seed(3)
    np.testing.assert_array_equal(first, np.random.rand(3))
    a = LAZY.arange(5)
    LAZY.random.default_rng(1).shuffle(a)
    b = np.arange(5)
    np.random.default_rng(1).shuffle(b)
    np.testing.assert_array_equal(np.asarray(a), b)


def test_a_subclass_made_in_a_user_module_is_numpys():
    class Mine(LAZY.ndarray):
        pass

    made = np.zeros(2).view(Mine)
    assert isinstance(made, np.ndarray)
    assert isinstance(made, LAZY.ndarray)
    assert type(made + 1) is Mine


def test_steps_compile_once(compiled):
    def step(w, x, k):
        g = x.T @ (x @ w - 1.0)
        w -= 0.01 * (k + 1) * g
        return float(np.abs(g).max())

    x, w = LAZY.array(np.random.default_rng(0).normal(size=(20, 3))), LAZY.zeros(3)
    for k in range(3):
        step(w, x, k)
    before = counters()["compiles"]
    for k in range(3, 8):
        step(w, x, k)
    assert counters()["compiles"] == before


def test_a_loop_that_walks_through_an_array_compiles_once(compiled):
    x, w = LAZY.array(np.random.default_rng(0).normal(size=(90, 4))), LAZY.zeros(4)
    losses, weights = LAZY.zeros(9), LAZY.zeros((9, 4))

    def step(t):
        batch = x[t * 10 : (t + 1) * 10]
        gradient = batch.T @ (batch @ w - 1.0)
        w[:] -= 0.01 * gradient
        losses[t] = (gradient * gradient).sum()
        weights[t] = w
        return float(losses[t])

    seen = [step(t) for t in range(2)]
    before = counters()["compiles"]
    seen += [step(t) for t in range(2, 9)]
    assert counters()["compiles"] - before <= 1
    np.testing.assert_array_equal(np.asarray(losses), seen)
    np.testing.assert_array_equal(np.asarray(weights[8]), np.asarray(w))


@pytest.mark.parametrize("make", [lambda np_: np_.zeros(3, device="gpu"), lambda np_: np_.asarray([1.0], device="gpu")])
def test_a_device_that_numpy_has_not_is_an_error(make):
    for library in (np, LAZY):
        with pytest.raises(ValueError, match="gpu"):
            make(library)
    assert np.asarray(LAZY.zeros(2, device="cpu")).tolist() == [0, 0]


def test_dlpack_exports_a_copy():
    """Other libraries get the contents of that moment, to write to as they like."""
    a = lazy_numpy.asarray(np.arange(6.0).reshape(2, 3)) * 2
    taken = np.from_dlpack(a)
    assert type(taken) is np.ndarray
    assert taken.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert a.__dlpack_device__() == (1, 0)
    if type(a) is lazy_numpy.ndarray:  # small results stay NumPy's own where it runs them, and share as NumPy does
        a[0, 0] = 99
        assert taken[0, 0] == 0
        with pytest.raises(BufferError, match="copy"):
            a.__dlpack__(copy=False)


def test_strides_that_no_layout_can_say_and_axes_in_an_array(compiled):
    """Views with strides between elements, and beyond what is known of the memory, are NumPy's own."""
    for np_ in (np, LAZY):
        as_strided = np_.lib.stride_tricks.as_strided
        x = np_.array(np.arange(200, dtype=np.int16))
        within = as_strided(x, (50,), (4,))
        within[:] = 7
        assert x.tolist()[:4] == [7, 1, 7, 3]
        assert as_strided(x, (3,), (1,)).tolist() == [7, 256, 1]
        assert as_strided(x[10:], (2, 3), (2, 4)).tolist() == [[7, 7, 7], [11, 13, 15]]
        assert as_strided(np_.array([None] * 5), (2,), (16,)).dtype == object
        axes = np_.arange(2)
        assert x.reshape(10, 20).transpose(axes[::-1]).shape == np_.transpose(x.reshape(10, 20), axes[::-1]).shape == (20, 10)
