"""Where XLA differs from NumPy, NumPy's value is the right one: kind, dtype, sign of zero, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazy_core
from lazy_numpy.proxy import module

LAZY = module()
COMPILED = lazy_core.config.tier == "compiled"  # what NumPy runs has NumPy's value
INTEGERS = ("i1", "i4", "i8", "u1", "u4", "u8")
INF, NAN = np.inf, np.nan

TRAPS = {
    **{f"{d} floor divided by zero": (lambda x, y: x // y, [7, 0, 5], [0, 0, 0], d) for d in INTEGERS},
    **{f"{d} remainder of zero": (lambda x, y: x % y, [7, 0, 5], [0, 0, 0], d) for d in INTEGERS},
    **{f"{d} shifted past its width": (lambda x, y: (x << y, x >> y), [1, 100, 3], [64, 70, 33], d) for d in INTEGERS},
    "the least integer by minus one": (lambda x, y: (x // y, x % y), [-(2**31)], [-1], "i4"),
    "signs of quotients and remainders": (lambda x, y: (x // y, x % y), [-7, 7, -7], [2, -2, -2], "i8"),
    "float quotients with zeros and infinities": (lambda x, y: (x // y, x % y), [-7.0, 7, INF, 5, 0.0, -0.0], [2, -2, 2, INF, 0, 2], "f8"),
    "signs of zeros": (lambda x, y: (np.sign(x), x + y, x * y, -x), [-0.0, 0.0, NAN], [0.0, -0.0, 1.0], "f8"),
    "NaN in extremes": (lambda x, y: (np.maximum(x, y), np.fmax(x, y), x.max(), x.argmax()), [NAN, 1, 3], [0.0, NAN, 2], "f8"),
    "powers of zero and NaN": (lambda x, y: x**y, [0.0, 0.0, -0.0, 1, NAN], [0.0, -1, -1, NAN, 0], "f8"),
    "an integer power that overflows": (lambda x, y: x**y, [3], [40], "i4"),
    "the absolute value of the least": (lambda x, y: np.abs(x), [-128], [0], "i1"),
    "sorting NaNs and zeros": (lambda x, y: (np.sort(x), np.argsort(x, stable=True)), [NAN, -0.0, 0.0, -INF, 1], [0] * 5, "f8"),
    "hypot and logaddexp of infinities": (lambda x, y: (np.hypot(x, y), np.logaddexp(x, y)), [INF, -INF], [NAN, -INF], "f8"),
    "rounding half to even": (lambda x, y: (np.round(x), np.round(x, 1)), [0.5, 1.5, 2.5, -0.5, 2.675], [0] * 5, "f8"),
    "rounding integers to tens": (lambda x, y: np.round(x, -1), [15, 25, -15, 14], [0] * 4, "i8"),
    "division is exact": (lambda x, y: x / 3.0, [0.1, 0.7, 123.456], [0] * 3, "f8"),
    "sums of nothing": (lambda x, y: (x.sum(), x.prod(), x.mean(), x.any(), x.all()), [], [], "f8"),
    "clip with crossed bounds": (lambda x, y: (np.clip(x, 3, 2), np.clip(x, NAN, 2)), [1.0, 5.0], [0, 0], "f8"),
    "complex division by zero": (lambda x, y: x / y, [1 + 1j], [0j], "c16"),
    "large complex numbers": (lambda x, y: (x / y, np.abs(x)), [1e300 + 1e300j], [1e300 + 1e300j], "c16"),
    "complex order": (lambda x, y: (x < y, np.maximum(x, y), x.max(), np.sort(x)), [1 + 1j, 2, 1 - 1j], [1 + 2j, 1, 1], "c16"),
    "complex signs": (lambda x, y: np.sign(x), [3 + 4j, 0], [0, 0], "c16"),
    "half precision overflows": (lambda x, y: np.exp(x), [11.0, 12.0], [0, 0], "f2"),
    "sums of narrow integers are wide": (lambda x, y: (np.cumsum(x), x.sum(), x.prod(), np.cumprod(x)), [2**30, 2**30, 3], [0], "i4"),
    "functions of small integers": (lambda x, y: (np.sin(x), np.sqrt(x)), [1, 2, 100], [0], "i1"),
    "roots of truth": (lambda x, y: (np.sqrt(x), np.exp(x), x + x, x.sum()), [1, 0], [0], "?"),
    "scalars of NumPy's": (lambda x, y: (x + np.int64(1), x + np.float64(1), x + 1), [1.5], [0], "f4"),
    "integers with floats": (lambda x, y: (x + np.float32(1), x * np.ones(1, "f4")), [2**24 + 1], [0], "i4"),
    "the median of nothing": (lambda x, y: (np.median(x), np.mean(x), np.var(x)), [], [], "f8"),
    "complex exponentials at infinity": (lambda x, y: np.exp(x), [complex(-INF, INF), complex(-INF, NAN), complex(INF, 0)], [0j], "c16"),
    "half precision sums as it rounds": (lambda x, y: np.cumsum(np.tile(x, 3000))[-1], [1.0], [0], "f2"),
}
CASTS = {f"{source} to {target}": (source, target) for source in ("f8", "f4") for target in ("i1", "i4", "i8", "u1", "u2")}


def outcome(operation, library, *operands):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = operation(*[library.array(x) for x in operands])
    return result if isinstance(result, tuple) else (result,)


def assert_same(got, want):
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        if w.dtype.kind in "fc":
            np.testing.assert_allclose(g, w, rtol=4e-3 if w.dtype == np.float16 else 4e-16)
        else:
            np.testing.assert_array_equal(g, w)
        if w.dtype.kind == "f":
            zero = w == 0
            np.testing.assert_array_equal(np.signbit(g[zero]), np.signbit(w[zero]))


@pytest.mark.parametrize("name", TRAPS)
def test_values_are_numpys(name):
    operation, x, y, dtype = TRAPS[name]
    operands = [np.array(v).astype(dtype) for v in (x, y)]
    assert_same(outcome(operation, LAZY, *operands), outcome(operation, np, *operands))


@pytest.mark.parametrize("name", CASTS)
def test_casts_out_of_range_are_numpys(name):
    source, target = CASTS[name]
    x = np.array([1e30, -1e30, NAN, INF, -INF, -1.5, 300.7, 3e9, 0.0], source)
    assert_same(outcome(lambda v: v.astype(target), LAZY, x), outcome(lambda v: v.astype(target), np, x))


@pytest.mark.xfail(COMPILED, strict=True, reason="XLA on the CPU flushes subnormal numbers to zero")
@pytest.mark.parametrize(("dtype", "x"), [("f4", 1e-40), ("f8", 1e-310)])
def test_subnormal_numbers(dtype, x):
    x = np.array([x], dtype)
    assert_same(outcome(lambda v: v + v, LAZY, x), outcome(lambda v: v + v, np, x))


def test_adding_and_taking_away_a_large_number_rounds():
    x = np.array([0.1, 0.7, 1.0])
    lazy_core.trace.current().sites.clear()  # so that c is a constant, as in a program of its own
    assert_same(outcome(lambda v: (v + 1e16) - 1e16, LAZY, x), outcome(lambda v: (v + 1e16) - 1e16, np, x))


def test_the_cut_of_the_complex_square_root():
    x = np.array([complex(-1, 0.0), complex(-1, -0.0), complex(4, -0.0), complex(-INF, -1)])
    assert_same(outcome(lambda v: np.sqrt(v).imag, LAZY, x), outcome(lambda v: np.sqrt(v).imag, np, x))


def test_errors_are_numpys():
    for bad, error in (
        (lambda np: np.arange(3) ** np.array([1, -1, 2]), ValueError),
        (lambda np: np.arange(3) ** -1, ValueError),
        (lambda np: np.ones(3, "u1") + 300, OverflowError),
        (lambda np: np.ones(3, "u1") + -1, OverflowError),
        (lambda np: np.array([True]) - np.array([True]), TypeError),
        (lambda np: -np.array([True]), TypeError),
        (lambda np: np.linalg.inv(np.ones((2, 2))), np.linalg.LinAlgError),
        (lambda np: np.linalg.cholesky(-np.eye(2)), np.linalg.LinAlgError),
        (lambda np: np.zeros(0).max(), ValueError),
        (lambda np: np.zeros(0).argmax(), ValueError),
        (lambda np: np.floor(np.array([1j])), TypeError),
    ):
        words = []
        for library in (np, LAZY):
            with pytest.raises(error) as caught:
                bad(library)
            words.append(str(caught.value))
        assert words[0] == words[1]


ZEROS = {
    "divided by zero": lambda np, x: x / np.zeros(5000),
    "an integer divided by zero": lambda np, x: np.arange(5000) // np.zeros(5000, int),
    "the logarithm of zero": lambda np, x: np.log(x - 1.0),
    "the root of minus one": lambda np, x: np.sqrt(-x),
    "an overflow": lambda np, x: np.exp(x * 1000.0),
    "in place": lambda np, x: np.divide(x, 0.0, out=x),
    "an operator of its own": lambda np, x: x.__itruediv__(np.zeros(5000)),
    "a sum": lambda np, x: (x * 1e308).sum(),
}


@pytest.mark.parametrize("tier", ["compiled", "auto", "native"])
@pytest.mark.parametrize("what", ZEROS)
def test_errors_that_are_asked_for_are_raised_on_every_tier(what, tier):
    """In a block, by a decorator, and by `seterr`, with NumPy's words; also where a program for it has been compiled before."""
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as wanted:
        ZEROS[what](np, np.ones(5000))

    @LAZY.errstate(all="raise")
    def decorated():
        return ZEROS[what](LAZY, LAZY.ones(5000))

    def set_and_reset():
        before = LAZY.seterr(all="raise")
        try:
            return ZEROS[what](LAZY, LAZY.ones(5000))
        finally:
            LAZY.seterr(**before)

    with lazy_core.options(tier=tier), np.errstate(all="ignore"):
        first = np.asarray(ZEROS[what](LAZY, LAZY.ones(5000)))
        for told in (decorated, set_and_reset):
            with pytest.raises(FloatingPointError) as raised:
                told()
            assert str(raised.value) == str(wanted.value)
        with LAZY.errstate(all="raise"), LAZY.errstate(all="ignore"):
            np.testing.assert_array_equal(np.asarray(ZEROS[what](LAZY, LAZY.ones(5000))), first)
        before = lazy_core.report().counters["recorded"]
        np.testing.assert_array_equal(np.asarray(ZEROS[what](LAZY, LAZY.ones(5000))), first)
        if tier == "compiled":
            assert lazy_core.report().counters["recorded"] > before


def test_what_is_pending_when_errors_begin_to_be_raised_is_computed_under_the_rule_it_was_recorded_by():
    with lazy_core.options(tier="compiled"):
        x = LAZY.ones(5000) / LAZY.zeros(5000)
        with LAZY.errstate(all="raise"):
            assert x[0] == np.inf
            called = []
            with LAZY.errstate(all="call", call=lambda kind, flag: called.append(kind)):
                assert np.isnan(LAZY.asarray(x - x)[0])
    assert called == ["invalid value"]


UFUNCS = [
    getattr(np, name)
    for name in "add subtract multiply divide floor_divide remainder power maximum minimum arctan2 hypot logaddexp copysign less "
    "equal logical_and bitwise_and left_shift negative absolute sign sqrt exp sin floor isnan invert square reciprocal".split()
]
OPERANDS = [
    *[np.ones(2, d) for d in "?bBhHiIlLefdFD"],
    2,
    2.5,
    1j,
    True,
    np.float32(2),
    np.int64(2),
    np.float64(2),
    np.uint8(2),
    np.complex64(1),
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(UFUNCS), st.sampled_from(range(14)), st.sampled_from(range(len(OPERANDS))), st.booleans())
def test_dtypes_are_numpys_for_every_ufunc_and_pair_of_operands(ufunc, i, j, swap):
    first, second = OPERANDS[i], OPERANDS[j]
    lazy = LAZY.array(first)
    lazy_second = LAZY.array(second) if isinstance(second, np.ndarray) else second

    def call(x, y):
        return ufunc(*([x] if ufunc.nin == 1 else [y, x] if swap else [x, y]))

    with np.errstate(all="ignore"):
        try:
            want = call(first, second)
        except (TypeError, OverflowError, ValueError) as error:
            with pytest.raises(type(error)):
                call(lazy, lazy_second)
            return
        got = call(lazy, lazy_second)
    assert got.dtype == want.dtype
    assert got.shape == want.shape


def test_bounds_of_slices_may_be_numpys_integers_or_lazy_ones():
    """In reads and in writes."""
    for np_ in (np, LAZY):
        v = np_.arange(6.0)
        one, three = np_.array([1, 3])
        assert v[np.int64(2) :].tolist() == [2.0, 3.0, 4.0, 5.0]
        assert v[one:three].tolist() == [1.0, 2.0]
        assert v[: v.argmax()].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        v[np.uint8(4) :] = 0.0
        assert v.reshape(2, 3)[:, np.int32(1) :].tolist() == [[1.0, 2.0], [0.0, 0.0]]
        with pytest.raises(TypeError, match="slice indices must be integers"):
            v[1.5:]


def test_functions_that_write_take_arrays_of_numpys_own():
    """Strings and long doubles among them, with lazy masks and values."""
    for own in (np.array(["a", "b"]), np.ones(2, np.longdouble), np.zeros(2)):
        mask = LAZY.array([True, False])
        wanted = own.copy()
        np.putmask(wanted, np.array([True, False]), wanted[1:])
        np.putmask(own, mask, own[1:].copy())
        assert own.tolist() == wanted.tolist()
    with pytest.raises(ValueError, match="cannot delete array elements"):
        del LAZY.zeros(3)[0]
    with pytest.raises(ValueError, match="clipmode must be one of"):
        np.take(LAZY.arange(5.0), LAZY.array([1]), mode="sideways")


def test_numpys_own_assertions_compare_lazy_arrays():
    x = LAZY.arange(4.0)
    LAZY.testing.assert_equal(x, np.arange(4.0))
    LAZY.testing.assert_equal([x[0], {"a": x}], [0.0, {"a": np.arange(4.0)}])
    with pytest.raises(AssertionError, match="Mismatched elements"):
        LAZY.testing.assert_array_equal(x, x + 1)


VIEWS = {
    "whole": lambda a: a,
    "transposed": lambda a: a.T,
    "swapped": lambda a: a.swapaxes(0, 1),
    "rolled": lambda a: np.moveaxis(a, 0, 2),
    "part": lambda a: a[1:, ::2],
    "reversed": lambda a: a[::-1].T,
    "matrix": lambda a: a[0].T,
    "row": lambda a: a[0, 1],
    "wide": lambda a: np.broadcast_to(a[0, :, :1], (3, 2)),
}
FLAT = {
    "ravel": lambda a, order: a.ravel(order),
    "np.ravel": lambda a, order: np.ravel(a, order=order),
    "flatten": lambda a, order: a.flatten(order),
    "reshape": lambda a, order: a.reshape(-1, order=order),
    "np.reshape": lambda a, order: np.reshape(a, (a.size, 1), order=order),
}


@pytest.mark.parametrize("order", ["C", "F", "A", "K", "c", "f", "a", "k", None, b"F", "X", "Fortran", 1], ids=repr)
@pytest.mark.parametrize("flat", FLAT)
@pytest.mark.parametrize("view", VIEWS)
def test_orders_are_numpys(view, flat, order):
    base = np.arange(24.0).reshape(2, 3, 4)
    outcomes = []
    for a in (base, LAZY.array(base) + 0.0):
        try:
            outcomes.append(np.asarray(FLAT[flat](VIEWS[view](a), order)).tolist())
        except (ValueError, TypeError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
