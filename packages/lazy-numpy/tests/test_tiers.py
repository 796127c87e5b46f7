"""NumPy runs what is new as it comes; what repeats is recorded, compiled, and kept where that is faster.  Values never depend on it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import resource
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lazy_core
import lazy_numpy
from lazy_core import allowance, compiling, scripts, tiers, trials, watching
from lazy_numpy import elements
from lazy_numpy.proxy import module
from lazy_numpy.recording import mode

LAZY = module()


@pytest.fixture
def auto(monkeypatch):
    """The tier "auto", with nothing learned, and learning as dear as it may be; measuring takes a few runs of each tier."""
    monkeypatch.setattr(trials, "_WARM_SECONDS", 0.0)
    mode._scripts = scripts.Scripts()
    mode._known_sites.clear()
    mode._doubts.clear()
    mode._pause = watching.LONGEST_LOG
    tiers.forget()
    allowance.allowance.restart()
    allowance.allowance.spend(-1000.0)
    with lazy_core.options(tier="native"):
        pass  # what was spent on attempts is forgotten where the tier changes
    with lazy_core.options(tier="auto"):
        yield
    compiling.wait()
    lazy_core.barrier()


def counters():
    return lazy_core.report().counters


def on_both(program):
    want = program(np)
    got = program(LAZY)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------ what is learned


def heat(np_, rounds=40, n=400):
    u = np_.zeros((n, n))
    u[n // 2, n // 2] = 1.0
    for _ in range(rounds):
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])
    return u


def test_a_loop_is_run_by_numpy_then_recorded_and_compiled(auto):
    before = counters()
    for _ in range(3):
        on_both(heat)
        compiling.wait()
    after = counters()
    assert after["recorded"] > before["recorded"]
    assert 1 <= after["compiles"] - before["compiles"] <= 4


def test_a_program_that_does_not_repeat_is_neither_recorded_nor_compiled(auto):
    before = counters()
    x = LAZY.arange(40_000.0)
    for k, f in enumerate((np.sin, np.sqrt, np.exp, np.negative, np.cos)):
        x = f(x * 0.001 + k)
    assert float(x.sum()) == pytest.approx(float(np.sum(np.asarray(x))))
    after = counters()
    assert (after["recorded"], after["compiles"]) == (before["recorded"], before["compiles"])


def test_shapes_that_never_repeat_are_never_compiled(auto):
    before = counters()

    def program(np_):
        total = 0.0
        for n in range(1000, 1400):
            x = np_.arange(float(n))
            total += float((np_.sqrt(x * 2.0) + 1.0).sum())
        return np.array(total)

    on_both(program)
    assert counters()["compiles"] == before["compiles"]


def test_a_call_that_is_read_each_time_is_learned_too(auto):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 400))
    lazy = LAZY.asarray(x)

    def softmax(np_, a):
        e = np_.exp(a - a.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    before = counters()
    for _ in range(8):
        np.testing.assert_allclose(np.asarray(softmax(LAZY, lazy)), softmax(np, x), rtol=1e-12)
        compiling.wait()
    assert counters()["compiles"] > before["compiles"]


def test_a_loop_that_reads_a_scalar_each_round_is_learned(auto):
    def program(np_):
        a = np_.zeros((300, 300))
        a[0, :] = 1.0
        rounds = 0
        for _ in range(60):
            old = a.copy()
            a[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
            rounds += 1
            if np_.abs(a - old).max() < 4e-3:
                break
        return a + rounds

    before = counters()
    for _ in range(3):
        on_both(program)
        compiling.wait()
    assert 1 <= counters()["compiles"] - before["compiles"] <= 6


def test_a_loop_that_reads_another_part_each_round_is_learned_as_a_whole(auto):
    """Its calls repeat and its expressions do not: what repeats is the sequence up to the read."""
    image = np.random.default_rng(3).standard_normal((400, 400))

    def program(np_):
        a, out = np_.asarray(image), np_.zeros((396, 396))
        for i in range(5):
            for j in range(5):
                out += (i - 0.3 * j) * a[i : i + 396, j : j + 396]
        return np_.maximum(out, 0.0)

    known = tiers.trials()

    def whole():  # as one program, or as two if a part of it was first taken for the body of a loop
        return sum([t.operations for t in tiers.trials() if t not in known and t.compiled_runs]) > 50

    for _ in range(400):
        on_both(program)
        compiling.wait()
        if whole():
            break
    assert whole()


def test_how_a_loop_of_few_rounds_is_entered_is_learned_too(auto, monkeypatch):
    """Otherwise NumPy would run one of three long rounds each time."""
    rng = np.random.default_rng(5)
    points, centres = rng.standard_normal((20_000, 16)), rng.standard_normal((8, 16))

    def k_means(np_, points):
        c = centres
        for _ in range(3):
            nearest = ((points[:, None, :] - c[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
            one_hot = (nearest[:, None] == np_.arange(8)[None, :]).astype(np_.float64)
            c = (one_hot.T @ points) / one_hot.sum(axis=0)[:, None]
        return c

    ran, original = [], mode._run_immediately
    monkeypatch.setattr(mode, "_run_immediately", lambda expected: (ran.append(expected), original(expected)))
    want, lazy = k_means(np, points), LAZY.asarray(points)
    for _ in range(300):
        ran.clear()
        np.testing.assert_allclose(np.asarray(k_means(LAZY, lazy)), want, rtol=1e-9)
        compiling.wait()
        if not ran:
            return
    pytest.fail("NumPy goes on running a part of each")


def test_a_verdict_for_compiling_is_confirmed_against_times_taken_afterwards(auto, monkeypatch):
    """The library's times before the program came may be from when the machine was busy."""
    monkeypatch.setattr(scripts, "_TIMED_SECONDS", 0.0)
    claimed = scripts.Script.took
    slow = True
    monkeypatch.setattr(scripts.Script, "took", lambda self, seconds: claimed(self, seconds + slow))
    known = tiers.trials()
    rounds = 0
    while not (new := [t for t in tiers.trials() if t not in known and t.verdict == "compiled"]):
        on_both(lambda np_: heat(np_, 3, 300) + 1.0)
        compiling.wait()
        rounds += 1
        assert rounds < 100
    slow = False
    for t in new:
        t.compiled.run = 1.0
    for _ in range(6):
        on_both(lambda np_: heat(np_, 3, 300) + 1.0)
    assert all(t.verdict == "native" for t in new)


def test_a_number_that_changes_each_round_does_not_compile_each_round(auto):
    def program(np_):
        x = np_.arange(60_000.0)
        for k in range(60):
            x = np_.sin(x * (1.0 + 0.01 * k)) + 0.5
        return x

    before = counters()
    for _ in range(3):
        on_both(program)
        compiling.wait()
    assert counters()["compiles"] - before["compiles"] <= 4


def test_a_branch_that_is_taken_now_and_then_keeps_values_right(auto):
    def program(np_):
        x = np_.arange(50_000.0) * 1e-4
        for k in range(90):
            x = np_.cos(x) * 0.9
            x = x + 0.1
            if k % 7 == 6:
                x[::2] = x[::2] * 0.5
        return x

    for _ in range(3):
        on_both(program)
        compiling.wait()


def test_a_slower_program_is_not_used(auto, monkeypatch):
    """A trace whose program measures slower goes back to NumPy, and is hardly ever recorded from then on: to be measured again."""
    note = tiers.Trial.note
    monkeypatch.setattr(
        tiers.Trial, "note", lambda self, tier, seconds, **more: note(self, tier, seconds * (1000 if tier == "compiled" else 1), **more)
    )
    known = tiers.trials()
    for _ in range(4):
        on_both(lambda np_: heat(np_, 60, 500))
        compiling.wait()
    new = [t for t in tiers.trials() if t not in known and t.compiled.counted]
    assert new
    assert all(t.verdict == "native" for t in new)
    before = counters()["recorded"]
    rounds = 3 * scripts.RETRY_ROUNDS  # it is measured again once in these
    on_both(lambda np_: heat(np_, rounds, 500))
    assert counters()["recorded"] - before < 0.05 * rounds * max(t.operations for t in new)


def relax(np_, rounds):
    """Rounds that the host reads a number of: NumPy's own reduction is no read that anybody is told of."""
    a = np_.zeros((120, 120))
    a[0] = 1.0
    for _ in range(rounds):
        old = a.copy()
        a[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
        if np_.abs(a - old).max() < 1e-12:
            break
    return a


def test_what_does_not_pay_between_reads_is_soon_left_to_numpy(auto, monkeypatch):
    """Rounds that are followed in vain, or whose program is slower, are not begun again and again."""
    note = tiers.Trial.note
    monkeypatch.setattr(
        tiers.Trial, "note", lambda self, tier, seconds, **more: note(self, tier, seconds * (1000 if tier == "compiled" else 1), **more)
    )
    for _ in range(12):
        on_both(lambda np_: relax(np_, 60))
        compiling.wait()
    before, rounds = counters()["recorded"], 1200
    on_both(lambda np_: relax(np_, rounds))
    assert counters()["recorded"] - before < rounds  # of 11 operations each


def test_the_setting_compiled_records_everything_and_native_nothing(in_form):
    with lazy_core.options(tier="compiled"):
        before = counters()
        x = LAZY.arange(1000.0)
        y = x * 2.0
        assert counters()["recorded"] > before["recorded"]
    with lazy_core.options(tier="native"):
        before = counters()
        z = np.sqrt(y + 1.0)
        assert counters()["recorded"] == before["recorded"]
    np.testing.assert_allclose(np.asarray(z), np.sqrt(np.arange(1000.0) * 2.0 + 1.0))


def test_memory_of_the_policy_is_bounded(auto, monkeypatch):
    monkeypatch.setattr(scripts, "_MOST_CALLS", 2000)
    table = scripts.Scripts()
    for place in range(500):
        table.add(place, scripts.Script(tuple(range(place, place + 10)), 1e-3))
    assert sum(len(s.calls) for found in table._places.values() for s in found) <= 2010
    x = LAZY.arange(3000.0)
    for k in range(scripts.OFTEN_ENOUGH * 3000):
        x = x + 1.0 if k * k % 7 else x * 1.0001
    assert len(mode._log) <= 4096


def test_a_long_unmarked_loop_in_bounded_memory(auto):
    u = LAZY.zeros(1000)
    u[400:600] = 1.0
    before = counters()["compiles"]
    for k in range(40_000):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        if k == 20_000:
            gc.collect()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert counters()["compiles"] - before <= 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + 100_000
    assert np.isfinite(np.asarray(u)).all()


# ------------------------------------------------------------------ memory that is shared


def test_a_copy_made_while_recording_is_not_changed_by_a_write_that_numpy_makes(in_form):
    with in_form("recorded"):
        a = LAZY.zeros(50) + 1.0
        b = a.copy()
        lazy_core.barrier()
    with in_form("immediate"):
        a[0] = 5.0
    assert (float(b[0]), float(a[0])) == (1.0, 5.0)


def test_views_made_in_one_form_see_writes_made_in_the_other(in_form):
    with in_form("immediate"):
        a = LAZY.arange(24.0).reshape(4, 6)
        rows, flipped = a[1:3], a[::-1, ::2]
    with in_form("recorded"):
        rows += 100.0
        columns = a.T[2:]
    with in_form("immediate"):
        columns[0] = -1.0
        flipped[0, 0] = 7.0
    want = np.arange(24.0).reshape(4, 6)
    want[1:3] += 100.0
    want.T[2:][0] = -1.0
    want[::-1, ::2][0, 0] = 7.0
    for got, expected in ((a, want), (rows, want[1:3]), (flipped, want[::-1, ::2]), (columns, want.T[2:])):
        np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_write_to_memory_laid_out_as_a_transposed_view_is_seen_by_all_views(in_form, order):
    """A recorded write through a view makes its order that of the storage, of which the memory is a copy."""

    def program(np_, form):
        a = np_.array(np.arange(4.0).reshape(1, 2, 2))
        with form("recorded"):
            v = a.transpose(order)
            v[[0]] = 7.0
        with form("immediate"):
            a[[0]] = 1.0
        return [np.asarray(x).tolist() for x in (a, v)]

    assert program(LAZY, in_form) == program(np, lambda name: contextlib.nullcontext())


@pytest.mark.parametrize("forms", list(itertools.product(["recorded", "immediate"], repeat=3)))
def test_parts_of_complex_arrays_and_other_dtypes_alias_whatever_the_form(forms, in_form):
    with in_form(forms[0]):
        z = LAZY.zeros((3, 4), complex)
        real, bits = z.real, LAZY.arange(4.0).view(np.int64)
    with in_form(forms[1]):
        real[1] = 2.0
        z.imag[:, 1:3] = 1.0
        bits[0] = 1
    with in_form(forms[2]):
        got = z * 2
        imag = z.imag + 0.0
    want = np.zeros((3, 4), complex)
    want.real[1] = 2.0
    want.imag[:, 1:3] = 1.0
    np.testing.assert_array_equal(np.asarray(got), want * 2)
    np.testing.assert_array_equal(np.asarray(imag), want.imag)
    np.testing.assert_array_equal(np.asarray(real), want.real)
    assert int(bits[0]) == 1


def test_a_view_as_elements_of_another_size_stays_numpys_memory(in_form):
    with in_form("immediate"):
        a = LAZY.arange(6.0)
        halves = a.view(np.float32)
    with in_form("recorded"):
        a[1] = 5.0
        doubled = halves * 2
        part = halves[2:4]
    with in_form("immediate"):
        halves[0] = 1.0
    want = np.arange(6.0)
    want[1] = 5.0
    np.testing.assert_array_equal(np.asarray(doubled), want.view(np.float32) * 2)
    np.testing.assert_array_equal(np.asarray(part), want.view(np.float32)[2:4])
    want.view(np.float32)[0] = 1.0
    np.testing.assert_array_equal(np.asarray(a), want)


def test_numpys_own_views_of_an_array_go_on_aliasing(native):
    """Small parts come as NumPy arrays; what is recorded later neither loses their writes nor hides its own."""
    a = lazy_numpy.arange(5000.0)
    part = a[10:20]
    assert type(part) is np.ndarray
    with lazy_core.options(tier="compiled"):
        b = a + 1.0
        a[11] = -5.0
        assert part[1] == -5.0
        part[2] = 1234.0
        c = a * 1.0
        np.testing.assert_array_equal(np.asarray(b)[10:14], [11.0, 12.0, 13.0, 14.0])
        np.testing.assert_array_equal(np.asarray(c)[10:14], [10.0, -5.0, 1234.0, 13.0])
        del part
        a += 1.0
        np.testing.assert_array_equal(np.asarray(a)[10:14], [11.0, -4.0, 1235.0, 14.0])


def test_read_only_arrays_stay_read_only(in_form):
    with in_form("immediate"):
        a = LAZY.arange(5.0)
        a.flags.writeable = False
        wide = np.broadcast_to(a, (3, 5))
    for form in ("immediate", "recorded"):
        with in_form(form):
            for x in (a, wide):
                assert not x.flags.writeable
                with pytest.raises(ValueError, match="read-only"):
                    x[...] = 1.0


def test_views_that_numpy_makes_read_only_are_so_over_values_too(in_form):
    with in_form("recorded"):
        a = LAZY.arange(9.0).reshape(3, 3) + 1.0
        lazy_core.barrier()
    with in_form("immediate"):
        wide, diagonal, row = np.broadcast_to(a, (2, 3, 3)), a.diagonal(), a[1]
    for form in ("recorded", "immediate"):
        with in_form(form):
            assert not wide.flags.writeable
            assert not diagonal.flags.writeable
            assert row.flags.writeable
            row += 1.0
    np.testing.assert_array_equal(np.asarray(diagonal), [1.0, 7.0, 9.0])


def test_elements_are_read_and_written_at_once_and_seen_by_everybody(native, longer):
    a = lazy_numpy.zeros((40, 40))
    view = a[::2]
    for i in range(40):
        for j in range(40):
            a[i, j] = i + a[i - 1, j]
    want = np.zeros((40, 40))
    for i in range(40):
        for j in range(40):
            want[i, j] = i + want[i - 1, j]
    assert type(a) is not lazy_numpy.ndarray  # it has a class of its own by now
    assert isinstance(a, lazy_numpy.ndarray)
    assert type(a) == lazy_numpy.ndarray  # noqa: E721  what users write
    np.testing.assert_array_equal(np.asarray(view), want[::2])
    with lazy_core.options(tier="compiled"):
        assert type(a) is lazy_numpy.ndarray
        b = a + 1.0
        a[0, 0] = -1.0
        assert float(view[0, 0]) == -1.0
        np.testing.assert_array_equal(np.asarray(b), want + 1.0)


def test_the_class_of_an_array_goes_with_it(native, longer):
    a = lazy_numpy.zeros(300)
    for i in range(300):
        a[i] = a[i - 1] + 1.0
    assert elements._fast
    kind = type(a)
    del a
    assert not elements._fast
    assert "__getitem__" not in kind.__dict__


def test_slices_of_an_array_with_its_own_class_are_views(native):
    a = lazy_numpy.zeros(3000)
    for i in range(300):
        a[i] = float(i)
    rest = a[2:]
    rest[0] = 77.0
    assert a[2] == 77.0
    with lazy_core.options(tier="compiled"):
        doubled = a * 2.0
        rest[1] = 5.0
        assert float(a[3]) == 5.0
        assert float(doubled[2]) == 154.0


def columns(np_, n=150):
    """Few large parts among many elements and small ones."""
    a = np_.array([[float(i * j % 7) for j in range(n)] for i in range(n)]) + 50.0 * n * np_.eye(n)
    for j in range(n):
        a[j, j] = np_.sqrt(a[j, j] - a[j, :j] @ a[j, :j])
        a[j + 1 :, j] = (a[j + 1 :, j] - a[j + 1 :, :j] @ a[j, :j]) / a[j, j]
    return a


def test_small_parts_among_few_large_ones_are_numpys(native, longer):
    a = columns(LAZY)
    np.testing.assert_array_equal(np.asarray(a), columns(np))
    assert type(a) is not lazy_numpy.ndarray
    assert type(a[2:]) is np.ndarray
    rest = a[2:]
    with lazy_core.options(tier="compiled"):
        a += 1.0
        np.testing.assert_array_equal(np.asarray(rest), columns(np)[2:] + 1.0)


def test_an_array_whose_large_parts_are_used_goes_on_being_lazy(native):
    a = lazy_numpy.zeros((100, 100))
    for i in range(300):
        a[0, i % 100] = 1.0
        a[1:] = a[:-1] * 0.5
    assert type(a) is lazy_numpy.ndarray
    assert type(a[1:]) is lazy_numpy.ndarray


def test_a_lazy_view_that_is_held_goes_on_aliasing(native):
    a = lazy_numpy.zeros((100, 100))
    held = a[1:]
    for i in range(300):
        a[1, i % 100] += 1.0
    assert type(held) is lazy_numpy.ndarray
    assert float(held[0].sum()) == 300.0
    held[0, 0] = 7.0
    assert float(a[1, 0]) == 7.0


# ------------------------------------------------------------------ memory of temporaries


def test_only_temporaries_are_written_over(native):
    n = 100_000
    x, y = lazy_numpy.arange(float(n)), lazy_numpy.ones(n)
    kept = x + y
    total = kept + y + (x + kept) * 2.0 - (y - x)
    alias = kept
    kept = kept * 3.0
    a, b = np.arange(float(n)), np.ones(n)
    first = a + b
    np.testing.assert_array_equal(np.asarray(alias), first)
    np.testing.assert_array_equal(np.asarray(kept), first * 3.0)
    np.testing.assert_array_equal(np.asarray(total), first + b + (a + first) * 2.0 - (b - a))
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(y), b)


def test_what_c_code_holds_is_no_temporary(native):
    import functools
    import operator

    n = 100_000
    parts = [lazy_numpy.arange(float(n)) + k for k in range(4)]
    sums = list(itertools.accumulate(parts, operator.add))
    products = list(map(operator.mul, parts, reversed(parts)))
    reduced = functools.reduce(operator.add, parts)
    want = [np.arange(float(n)) + k for k in range(4)]
    for got, expected in zip(sums, itertools.accumulate(want), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    for got, expected in zip(products, map(operator.mul, want, reversed(want)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    np.testing.assert_array_equal(np.asarray(reduced), sum(want[1:], want[0]))
    for got, expected in zip(parts, want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_expressions_of_large_arrays(data, native):
    n = 40_000
    real = [np.linspace(0.5, 1.5, n), np.linspace(2.0, 1.0, n), np.arange(n) % 5 + 1]
    lazy = [lazy_numpy.asarray(x) for x in real]

    def build(depth):
        if depth == 0 or data.draw(st.integers(0, 4)) == 0:
            k = data.draw(st.integers(0, 3))
            return f"x[{k}]" if k < 3 else data.draw(st.sampled_from(["2", "0.5", "x[0][:]"]))
        return f"({build(depth - 1)} {data.draw(st.sampled_from(['+', '-', '*', '/']))} {build(depth - 1)})"

    text = build(data.draw(st.integers(1, 4)))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            want = eval(text, {"x": real})
        except ZeroDivisionError:
            return
        np.testing.assert_allclose(np.asarray(eval(text, {"x": lazy})), want, rtol=1e-12)
    for a, b in zip(lazy, real, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


# ------------------------------------------------------------------ what is NumPy's own


def test_small_arrays_of_a_users_module_are_numpys(native):
    assert type(LAZY.zeros(3)) is np.ndarray
    assert type(LAZY.array([1.0, 2.0])) is np.ndarray
    assert type(LAZY.random.default_rng(0).normal(size=4)) is np.ndarray
    assert type(LAZY.zeros(1000)) is lazy_numpy.ndarray  # what is broadcast from it may be large
    assert type(lazy_numpy.zeros(3)) is lazy_numpy.ndarray
    x, w = LAZY.ones((200, 3)), LAZY.arange(3.0)
    np.testing.assert_array_equal(np.asarray(x @ w), np.full(200, 3.0))
    w[0] = x.sum()
    assert w[0] == 600.0


def test_scalars_are_numpys(native):
    x = lazy_numpy.arange(1000.0)
    assert type(x.sum()) is np.float64
    assert type(x[3]) is np.float64
    assert type(x.argmax()) is np.int64
    assert type(x.mean() * 2) is np.float64


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda x: x + lazy_numpy.ones(999), ValueError),
        (lambda x: x[5000], IndexError),
        (lambda x: x @ lazy_numpy.ones(3), ValueError),
        (lambda x: x.reshape(7, 7), ValueError),
        (lambda x: x.astype(np.int64) ** -lazy_numpy.ones(1000, np.int64), ValueError),
        (lambda x: np.linalg.inv(lazy_numpy.zeros((20, 20))), np.linalg.LinAlgError),
        (lambda x: np.concatenate([x, lazy_numpy.ones((3, 3))]), ValueError),
        (lambda x: x.sum(axis=3), np.exceptions.AxisError),
    ],
)
def test_errors_are_numpys(wrong, kind, native):
    with pytest.raises(kind) as found:
        wrong(lazy_numpy.arange(1000.0))
    assert found.type is kind


def test_warnings_and_errstate_are_numpys(native):
    x = lazy_numpy.zeros(1000)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        1.0 / x
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        1.0 / x


def test_an_exception_in_the_middle_of_learning_leaves_values_right(auto):
    def program(np_):
        x = np_.arange(50_000.0)
        for k in range(60):
            x = np_.sqrt(x + 1.0)
            try:
                if k % 20 == 19:
                    x + np_.ones(7)
            except ValueError:
                x = x * 2.0
        return x

    for _ in range(3):
        on_both(program)
        compiling.wait()


def test_changing_the_tier_in_the_middle_of_a_loop(auto):
    def program(np_):
        u = np_.zeros((200, 300))
        u[100] = 1.0
        for k in range(60):
            with lazy_core.options(tier=("auto", "native", "compiled")[k // 5 % 3]):
                u[1:-1] = 0.5 * u[1:-1] + 0.25 * (u[2:] + u[:-2])
        return u

    on_both(program)


def test_small_parts_of_a_computed_array_may_be_written_to_and_alias(native):
    """Though its memory is the buffer of a value."""
    with lazy_core.options(tier="compiled"):
        a = lazy_numpy.arange(12_000.0).reshape(300, 40) + 0.0
        lazy_core.barrier()
    row, turned = a[3], a.T[2, :50]
    row[0] = -1.0
    a[3, 1] = -2.0
    turned[0] = -3.0
    np.add(row[5:6], 1.0, out=row[5:6])
    assert np.asarray(row)[:6].tolist() == [-1.0, -2.0, 122.0, 123.0, 124.0, 126.0]
    assert np.asarray(a)[3, :6].tolist() == [-1.0, -2.0, 122.0, 123.0, 124.0, 126.0]
    assert float(a[0, 2]) == -3.0
