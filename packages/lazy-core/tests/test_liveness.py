"""Liveness and donation: spurious values, and buffers that are reused."""

import gc
import itertools
import weakref

import numpy as np
import pytest

import lazy_core
from lazy_core import causes, ops, values
from lazy_core.cache import cache
from lazy_core.programs import SMALLEST_DONATION_BYTES, WORTH_COMPILING_BYTES


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with nothing pending and empty caches."""
    gc.collect()
    lazy_core.barrier()
    cache.clear()
    causes.forget()
    lazy_core.reset_report()


def leaf(array):
    """A materialised value."""
    return values.from_host(np.asarray(array))


def compiles():
    """How many programs were compiled."""
    return lazy_core.report().counters["compiles"]


def test_fewer_live_values_run_the_program_that_returns_more():
    """The subset rule: what was alive once by accident costs no second program."""
    w = leaf(np.float32([1, 0.5]))
    expected = np.float32([1, 0.5])
    kept = None
    for _ in range(4):
        expected = expected * expected + expected
        y = ops.mul(w, w)
        z = ops.add(y, w)
        kept = y if kept is None else kept  # alive in the first round only
        del y
        w = z
        lazy_core.barrier()
    assert compiles() == 1
    assert values.to_host(kept).tolist() == [1, 0.25]
    np.testing.assert_allclose(values.to_host(w), expected, rtol=1e-6)


def test_values_through_the_subset_rule_are_the_right_ones():
    """Outputs are matched by what they are, not by where they stand."""
    x = leaf(np.float32([1, 2, 3]))
    everything = [ops.add(x, x), ops.mul(x, x), ops.sub(x, x)]
    lazy_core.barrier()
    del everything
    for keep in range(3):
        some = [ops.add(x, x), ops.mul(x, x), ops.sub(x, x)]
        chosen = some[keep]
        expected = [[2, 4, 6], [1, 4, 9], [0, 0, 0]][keep]
        del some
        assert values.to_host(chosen).tolist() == expected
    # the one that needs a third of the operations only is compiled for itself
    assert compiles() <= 4


def test_varying_spurious_values_compile_a_bounded_number_of_programs():
    """All 32 subsets of five spurious values that may be alive: a handful of programs, not 32."""
    x = leaf(np.float32([0.5, 0.25]))
    for alive in itertools.product([False, True], repeat=5):
        chain = [ops.sin(x)]
        for _ in range(4):
            chain.append(ops.sin(chain[-1]))
        result = ops.add(chain[-1], x)
        extra = [c for c, a in zip(chain, alive, strict=True) if a]
        del chain
        lazy_core.barrier()
        expected = np.float32([0.5, 0.25])
        for _ in range(5):
            expected = np.sin(expected)
        np.testing.assert_allclose(values.to_host(result), expected + np.float32([0.5, 0.25]), rtol=1e-6)
        del extra
    assert compiles() <= 8


def test_garbage_cycles_recompile_nothing_whenever_the_collector_comes():
    """A value in a reference cycle lives until the collector comes by, at another step each time."""

    class Holder:
        def __init__(self, value):
            self.value, self.me = value, self

    w = leaf(np.float32([1, 0.5]))
    seen = []
    gc.disable()
    try:
        for k in range(60):
            y = ops.sin(w)
            Holder(y)
            w = ops.add(y, y)
            del y
            if k % 7 == 3 or k % 11 == 5:
                gc.collect()
            lazy_core.barrier()
            seen.append(compiles())
    finally:
        gc.enable()
    assert seen[-1] <= 2, seen


def big(value, nbytes=SMALLEST_DONATION_BYTES):
    """A leaf that is large enough to be donated."""
    return leaf(np.full(nbytes // 4, value, np.float32))


def test_buffers_that_only_the_trace_holds_are_donated():
    """An update in place of a parameter: the old buffer's memory is the new one's."""
    w, g = big(1), big(0.5)
    for _ in range(3):
        old = w.array
        w = ops.sub(w, g)
        del old
        lazy_core.barrier()
    plans = [p for p in cache.plans._entries.values() if p.operations]
    assert any(len(p.donated) == 1 for p in plans)
    assert values.to_host(w)[0] == -0.5
    assert values.to_host(g)[0] == 0.5
    assert compiles() == 1


def test_donated_buffer_is_really_given_up():
    """The device array of a donated leaf is deleted: its memory was taken."""
    w = big(1, WORTH_COMPILING_BYTES)
    array = w.array
    w = ops.neg(w)
    lazy_core.barrier()  # `array` is held: not donated
    assert not array.is_deleted()
    reference = weakref.ref(w.array)
    pointer = w.array.unsafe_buffer_pointer()
    w = ops.neg(w)
    lazy_core.barrier()
    assert reference() is None
    assert w.array.unsafe_buffer_pointer() == pointer


def test_a_held_value_is_never_donated():
    """print(a); print(a): a later read finds its buffer."""
    a = big(3)
    b = ops.add(a, a)
    lazy_core.barrier()
    assert values.to_host(a)[0] == 3
    c = ops.add(a, b)
    del b
    lazy_core.barrier()
    assert values.to_host(a)[0] == 3
    assert values.to_host(c)[0] == 9


def test_a_host_view_keeps_its_contents():
    """A read-only NumPy view outlives the value that it came from, whatever is donated later."""
    w = big(2)
    view = values.to_host(w)
    for _ in range(3):
        w = ops.add(w, w)
        lazy_core.barrier()
    values.to_host(w)
    assert (view == 2).all()


def test_an_exported_buffer_is_never_donated():
    """DLPack, to torch or to NumPy: the export is intact, though the value that it came from is updated and gone."""
    w = big(2, WORTH_COMPILING_BYTES)
    exported = np.from_dlpack(w.array)
    again = values.from_array(w.array)
    for _ in range(3):
        w = ops.add(w, w)
        lazy_core.barrier()
    assert values.to_host(w)[0] == 16
    assert (exported == 2).all()
    assert (values.to_host(again) == 2).all()


def test_plan_that_donates_does_not_run_while_somebody_holds_the_buffer():
    """The same trace, once with the old value dropped and once with it kept."""
    w = big(1)
    w = ops.neg(w)
    lazy_core.barrier()
    w2 = ops.neg(w)
    kept = w
    lazy_core.barrier()
    assert values.to_host(kept)[0] == -1
    assert values.to_host(w2)[0] == 1


def test_live_leaf_is_not_donated():
    """A value that is a leaf of the trace and an operand is returned intact."""
    from lazy_core.ops.registry import composite

    @composite("test_identity_for_donation")
    def same(x):
        return x

    w = big(5)
    held = values.record(same, (w,))
    w = ops.neg(w)
    lazy_core.barrier()
    assert values.to_host(held)[0] == 5
    assert values.to_host(w)[0] == -5
