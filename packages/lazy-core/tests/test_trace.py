"""Recording, barriers, caches and liveness in the core."""

import gc
import threading

import numpy as np
import pytest

import lazy_core
from lazy_core import execution, ir, ops, trace, values
from lazy_core.cache import cache
from lazy_core.errors import BarrierError, DtypeError, ExecutionError, LazyError, ShapeError, StrictError
from lazy_core.ops.registry import Op, composite


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with nothing pending and empty caches."""
    gc.collect()
    lazy_core.barrier()
    cache.clear()
    lazy_core.reset_report()


def leaf(array):
    """A materialised value."""
    return values.from_host(np.asarray(array))


def f32(*dims):
    """A leaf of small distinct numbers."""
    return leaf(np.arange(1, 1 + np.prod(dims, dtype=int), dtype=np.float32).reshape(dims))


def counters():
    """The counters now."""
    return lazy_core.report().counters


def test_result_is_a_promise_until_it_is_read():
    """Recording runs nothing; a host read gives the value."""
    x = f32(2, 2)
    y = ops.add(x, x)
    assert y.pending
    assert y.shape is x.shape
    np.testing.assert_array_equal(values.to_host(y), [[2, 4], [6, 8]])
    assert not y.pending


@pytest.mark.parametrize("wait", [lambda: lazy_core.barrier(wait=True), execution.wait_for_previous], ids=["barrier", "wait_for_previous"])
def test_a_program_is_waited_for_though_the_smallest_of_its_results_was_dropped(wait):
    """As a loss is, once the next step's is there, while the parameters are still being computed."""
    x = leaf(np.full((900, 900), 1e-3, np.float32))
    for _ in range(2):  # the first time compiling is waited for
        y = x
        for _ in range(12):
            y = ops.matmul(y, x)
        total = ops.sum(y, axes=(0, 1), keepdims=False)
        lazy_core.barrier()
        held = y.array
        assert total.array is not None
        del total, y
        wait()
        assert held.is_ready()


def test_second_step_reuses_compiled_graph():
    """The same program over other leaves compiles once and then is one cache hit a step."""
    w = f32(3)
    for _ in range(5):
        w = ops.mul(ops.add(w, w), w)
        lazy_core.barrier()
    assert counters()["compiles"] == 1
    assert counters()["cache_hits"] == 4


def test_steady_state_does_no_shape_inference(monkeypatch):
    """Once recorded, an operation is one dictionary hit."""
    w = f32(3)
    w = ops.add(w, w)
    lazy_core.barrier()
    monkeypatch.setattr(Op, "infer", lambda *a: pytest.fail("shape inference in the steady state"))
    w = ops.add(w, w)
    lazy_core.barrier()


def test_host_read_flushes_everything_live_once():
    """Reading one value materialises the others too, in one program."""
    x = f32(2)
    a, b = ops.add(x, x), ops.mul(x, x)
    values.to_host(a)
    assert not b.pending
    assert counters()["barriers"] == 1


def test_dead_values_are_not_outputs():
    """What nobody holds is not returned, and an operation nobody needs is not in the program."""
    x = f32(2)
    y = ops.add(x, x)
    z = ops.mul(y, y)
    del y
    gc.collect()
    lazy_core.barrier()
    plan = next(iter(cache.plans._entries.values()))
    assert [row for row in plan.outputs if row] == [(0,)]
    assert values.to_host(z).tolist() == [4, 16]


def test_key_does_not_depend_on_collection_order():
    """Values that died in another order give the same program."""
    for order in ((0, 1), (1, 0)):
        x = f32(2)
        dead = [ops.add(x, x), ops.mul(x, x)]
        kept = ops.sub(x, x)
        for i in order:
            dead[i] = None
        lazy_core.barrier()
        del kept
    assert counters()["compiles"] == 1


def test_changed_attribute_changes_key():
    """An attribute is part of the program."""
    x = f32(2, 3)
    a = ops.sum(x, axes=(0,), keepdims=False)
    lazy_core.barrier()
    b = ops.sum(x, axes=(1,), keepdims=False)
    lazy_core.barrier()
    assert counters()["compiles"] == 2
    assert values.to_host(a).tolist() == [5, 7, 9]
    assert values.to_host(b).tolist() == [6, 15]


def test_equal_graph_recorded_in_another_order_is_found_by_structure():
    """The canonical key joins equal graphs, and nothing is compiled for the second."""
    x, y = f32(2), f32(2)
    a = ops.add(ops.mul(x, x), ops.neg(y))
    lazy_core.barrier()
    m = ops.neg(y)
    b = ops.add(ops.mul(x, x), m)
    del m
    lazy_core.barrier()
    assert counters()["compiles"] == 1
    assert counters()["canonical_hits"] == 1
    np.testing.assert_array_equal(values.to_host(a), values.to_host(b))


def test_leaves_with_equal_contents_are_not_merged():
    """Two buffers that happen to hold the same number stay two inputs (a learning rate that equals eps must not recompile)."""
    for other in (0.5, 0.25):
        a, b = leaf(np.float32(0.5)), leaf(np.float32(other))
        r = ops.add(ops.mul(a, a), b)
        lazy_core.barrier()
        assert values.to_host(r) == np.float32(0.25 + other)
    assert counters()["compiles"] == 1


def test_scalar_that_changes_every_step_compiles_at_most_twice():
    """A learning-rate schedule: baked the first time, a run-time input for good after that."""
    w = f32(4)
    expected = values.to_host(w).copy()
    for step in range(1000):
        rate = 0.1 / (step + 1)
        w = values.record(ops.mul, (w, ir.const(1 - rate, np.float32)))
        expected = expected * np.float32(1 - rate)
        lazy_core.barrier()
    assert counters()["compiles"] <= 2
    np.testing.assert_allclose(values.to_host(w), expected, rtol=1e-6)


def test_many_sites_with_one_schedule_compile_at_most_twice():
    """A chain of operations that all take the changing number: none of them waits for the one before to be lifted."""
    w = f32(4)
    for step in range(20):
        for _ in range(10):
            w = values.record(ops.mul, (ops.sin(w), ir.const(1 - 0.1 / (step + 1), np.float32)))
        lazy_core.barrier()
    assert counters()["compiles"] <= 2


def test_a_value_that_was_seen_elsewhere_before_does_not_compile_again():
    """Two schedules that meet: a lifted site stays lifted, whatever value it shows."""
    x, y = f32(3), f32(3)
    for step in range(8):
        a = values.record(ops.mul, (x, ir.const(1.0 + step, np.float32)))
        b = values.record(ops.mul, (y, ir.const(8.0 - step, np.float32)))
        lazy_core.barrier()
        assert values.to_host(a).tolist() == [1.0 + step, 2 * (1.0 + step), 3 * (1.0 + step)]
        assert values.to_host(b).tolist() == [8.0 - step, 2 * (8.0 - step), 3 * (8.0 - step)]
    assert counters()["compiles"] <= 3


def test_several_constants_within_one_trace_stay_baked():
    """X * 2 and x * 3 in one step are two constants, in every later step too."""
    x = f32(3)
    for _ in range(4):
        a = values.record(ops.mul, (x, ir.const(2, np.float32)))
        b = values.record(ops.mul, (x, ir.const(3, np.float32)))
        lazy_core.barrier()
        assert values.to_host(a).tolist() == [2, 4, 6]
        assert values.to_host(b).tolist() == [3, 6, 9]
    assert counters()["compiles"] == 1


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_64_bit_types_stay_64_bit_without_touching_jax_configuration(dtype):
    """Other users of jax in the process keep their setting."""
    import jax

    big = np.array([2**40 + 1], dtype)
    x = leaf(big)
    y = ops.add(x, x)
    assert values.to_host(y).dtype == dtype
    assert values.to_host(y)[0] == 2 * big[0]
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("scalar", [2**40 + 1, 2.5 + 1e-12, 3 + 4j])
def test_run_time_scalars_keep_64_bits(scalar):
    """Lifted scalars are packed as f64, s64 and c128."""
    dtype = np.asarray(scalar).dtype
    x = leaf(np.ones(2, dtype))
    for k in range(3):
        y = values.record(ops.mul, (x, ir.const(scalar + k, dtype)))
        assert values.to_host(y)[0] == scalar + k
    assert counters()["compiles"] == 2


def test_composite_is_one_table_entry_of_core_operations():
    """A coarse library call is recorded once and expands to core operations in the graph."""

    @composite("test_axpy")
    def axpy(a, x, y):
        return ops.add(ops.mul(a, x), y)

    x = f32(2)
    r = values.record(axpy, (x, x, x))
    assert "add" in lazy_core.graph(r)
    assert "mul" in lazy_core.graph(r)
    assert values.to_host(r).tolist() == [2, 6]


def test_composite_may_return_an_input():
    """An identity is a live leaf: nothing runs for it."""

    @composite("test_same")
    def same(x):
        return x

    x = f32(2)
    r = values.record(same, (x,))
    assert values.to_host(r).tolist() == [1, 2]
    assert counters()["compiles"] == 0


def test_multiple_outputs_are_separate_values():
    """Each output of an operation lives and dies on its own."""
    x = leaf(np.float32([3, 1, 2]))
    v, i = ops.sort_with_indices(x, axis=0, descending=False, stable=True)
    del v
    gc.collect()
    assert values.to_host(i).tolist() == [1, 2, 0]


def test_shapes_that_do_not_fit_raise_with_shapes_and_leave_the_trace_usable():
    """The error names the operation and both operands."""
    x, y = f32(3), f32(4)
    pending = ops.add(x, x)
    with pytest.raises(ShapeError, match=r"add.*f32\[3\].*f32\[4\]") as info:
        ops.add(x, y)
    assert isinstance(info.value, ValueError)
    assert values.to_host(pending).tolist() == [2, 4, 6]


def test_dtypes_that_do_not_fit_raise_with_dtypes():
    """The core promotes nothing."""
    with pytest.raises(DtypeError, match=r"f32.*s64"):
        ops.add(f32(3), leaf(np.arange(3)))


@pytest.mark.parametrize("dtype", ["datetime64[s]", "U3", "O"])
def test_unsupported_dtype_is_a_clear_error(dtype):
    """Dtypes that the device lacks are named."""
    with pytest.raises(DtypeError, match="dtype"):
        values.from_host(np.zeros(2, dtype))


def test_barrier_inside_a_composite_is_refused():
    """A builder records; it may not read."""
    x = f32(2)
    pending = ops.add(x, x)

    @composite("test_reads")
    def reads(v):
        values.to_host(pending)
        return v

    with pytest.raises(BarrierError, match="test_reads"):
        values.record(reads, (x,))
    assert values.to_host(pending).tolist() == [2, 4]


def test_barrier_inside_a_lowering_is_refused():
    """A callback of the compiler may not run the trace that is being compiled."""
    op = Op.unregistered("test_reading_op", lambda v: (lazy_core.barrier(), v)[1])
    y = values.record(op, (f32(2),))
    with pytest.raises(LazyError, match="barrier"):
        lazy_core.barrier()
    assert y.pending
    del y
    z = ops.neg(f32(1))
    assert values.to_host(z).tolist() == [-1]


def test_failing_lowering_names_operation_and_line_and_spares_the_rest():
    """What fails to compile raises at the barrier and at each read; values that do not depend on it are materialised."""

    def fails(v):
        if type(v).__name__ == "DynamicJaxprTracer" and fails.armed:
            raise RuntimeError("no such luck")
        return v

    fails.armed = False
    op = Op.unregistered("test_fails", fails)
    y = values.record(op, (f32(2),))
    fine = ops.neg(f32(2))
    fails.armed = True
    for action in (lazy_core.barrier, lambda: values.to_host(y), lambda: ops.neg(y)):
        with pytest.raises(ExecutionError, match=r"test_fails.*f32\[2\].*test_trace.py"):
            action()
    assert values.to_host(fine).tolist() == [-1, -2]
    assert values.to_host(ops.neg(fine)).tolist() == [1, 2]


def test_from_host_copies():
    """A later write by the owner of the array does not change the value."""
    host = np.arange(4, dtype=np.float32)
    x = values.from_host(host)
    y = ops.add(x, x)
    host[:] = 100
    assert values.to_host(y).tolist() == [0, 2, 4, 6]
    assert values.to_host(x).tolist() == [0, 1, 2, 3]


def test_reading_twice_and_after_other_barriers():
    """A value that was read can be read again, and used again."""
    x = f32(2)
    y = ops.add(x, x)
    assert values.to_host(y).tolist() == values.to_host(y).tolist() == [2, 4]
    z = ops.add(y, y)
    lazy_core.barrier()
    assert values.to_host(y).tolist() == [2, 4]
    assert values.to_host(z).tolist() == [4, 8]


def test_read_only_host_view():
    """Nobody can write into a buffer that other values may share."""
    y = values.to_host(ops.neg(f32(2)))
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 1


def test_a_trace_without_reads_is_cut():
    """A loop that nothing interrupts does not grow without bound, and its values are right."""
    with lazy_core.options(max_trace=100):
        lazy_core.barrier()
        x = leaf(np.float64(0))
        one = leaf(np.float64(1))
        for _ in range(1000):
            x = ops.add(x, one)
        assert counters()["barriers"] >= 9
    assert values.to_host(x) == 1000


def test_threads_share_one_trace():
    """Eight threads record at once; every value is right."""
    results = {}

    def work(k):
        x = leaf(np.full(3, k, np.int32))
        for _ in range(50):
            x = ops.add(x, leaf(np.ones(3, np.int32)))
            if _ % 10 == k % 10:
                lazy_core.barrier()
        results[k] = values.to_host(x)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {k: v.tolist() for k, v in results.items()} == {k: [k + 50] * 3 for k in range(8)}


def test_expression_table_is_bounded_and_programs_survive_eviction():
    """Past its limit the table starts a new generation; equal graphs are still found by structure."""
    with lazy_core.options(max_exprs=40):
        for _ in range(6):
            x = f32(2)
            for k in range(30):
                x = values.record(ops.add, (x, ir.const(k, np.float32)))
            lazy_core.barrier()
        assert len(trace.current().table) + len(trace.current()._old) < 400
    assert counters()["compiles"] <= 2


def test_shapes_that_never_repeat_leave_nothing_behind(monkeypatch):
    """Expressions go with the programs that they are keys of, long before their table is full, and the system gets the memory."""
    table, sizes, roots, given_back = trace.current(), [], [], []
    monkeypatch.setattr("lazy_core.allocator.give_back", lambda: given_back.append(len(sizes)))
    with lazy_core.options(max_executables=8):
        for n in range(1, 60):
            x = leaf(np.ones(n, np.float32))
            total = values.to_host(ops.sum(ops.add(x, x), axes=(0,), keepdims=False))
            assert total == 2 * n
            sizes.append(len(table.table) + len(table._old))
            roots.append(len(cache._by_root))
    assert max(sizes[16:]) <= max(sizes[:16])
    assert max(roots) <= 8
    assert len(given_back) >= 59 // 8


def test_a_program_in_use_outlives_those_that_come_and_go():
    """Starting a new generation of expressions does not forget what is used all the time."""
    x, w = leaf(np.ones(3, np.float32)), leaf(np.ones(3, np.float32))
    with lazy_core.options(max_executables=8):
        for n in range(1, 30):
            y = leaf(np.ones(n, np.float32))
            values.to_host(ops.neg(y))
            w = ops.sub(ops.mul(w, x), x)
            lazy_core.barrier()
    assert counters()["compiles"] == 30
    assert values.to_host(w).tolist() == [-28.0] * 3


def test_executables_are_bounded():
    """The least recently used program goes first."""
    with lazy_core.options(max_executables=2):
        for n in (1, 2, 3):
            y = ops.neg(f32(n))
            lazy_core.barrier()
            del y
        assert len(cache.plans) == 2


def test_report_names_counters_events_and_lines():
    """Every compile says where its graph was recorded."""
    y = ops.neg(f32(2))
    lazy_core.barrier()
    report = lazy_core.report()
    assert set(report.counters) >= {"recorded", "barriers", "compiles", "cache_hits", "canonical_hits", "fallbacks", "transfers"}
    assert report.counters["recorded"] == 1
    event = next(e for e in report.events if e.kind == "compile")
    assert "test_trace.py" in event.site
    assert event.seconds > 0
    assert "compiles" in str(report)
    assert '"compiles": 1' in report.to_json()
    del y


def test_strict_turns_events_into_errors():
    """A forbidden host read raises and leaves the value pending."""
    y = ops.neg(f32(2))
    with lazy_core.strict("host_read"), pytest.raises(StrictError, match="host_read"):
        values.to_host(y)
    assert y.pending
    with lazy_core.strict("compile"), pytest.raises(StrictError, match="compile"):
        lazy_core.barrier()
    assert values.to_host(y).tolist() == [-1, -2]
    with lazy_core.strict("fallback"), pytest.raises(StrictError, match="nothing"):
        lazy_core.events.fallback("toy", "nothing", "a test")


def test_fallbacks_are_counted_and_named():
    """A fallback has a name, a reason and a line."""
    lazy_core.events.fallback("toy", "frobnicate", "no lowering")
    report = lazy_core.report()
    assert report.fallbacks == {"toy:frobnicate": 1}
    assert "no lowering" in report.events[-1].cause
    assert "test_trace.py" in report.events[-1].site


def test_explain_and_graph_run_nothing():
    """Looking at a pending value does not materialise it."""
    y = ops.neg(ops.add(f32(2), f32(2)))
    assert "pending: 2 operations" in lazy_core.explain(y)
    assert lazy_core.graph(y).count("leaf") == 2
    assert y.pending
    values.to_host(y)
    assert "materialised" in lazy_core.explain(y)
    with pytest.raises(TypeError, match="not a lazy tensor"):
        lazy_core.explain(3)


def test_options_are_checked_and_restored():
    """Unknown settings and bad values are named."""
    before = lazy_core.config.max_trace
    with lazy_core.options(max_trace=7):
        assert lazy_core.config.max_trace == 7
    assert lazy_core.config.max_trace == before
    with pytest.raises(AttributeError, match="max_tracee"), lazy_core.options(max_tracee=1):
        pass
    with pytest.raises(ValueError, match="max_trace"), lazy_core.options(max_trace=0):
        pass
    with pytest.raises(ValueError, match="compile"):
        lazy_core.strict("compiles")


def test_duplicate_live_values_share_one_output():
    """Two values of one expression are one output of the program."""
    x = f32(2)
    a, b = ops.add(x, x), ops.add(x, x)
    lazy_core.barrier()
    assert a.array is b.array
    assert values.to_host(b).tolist() == [2, 4]


def test_public_names_are_frozen():
    """`__all__` changes on purpose only."""
    assert lazy_core.__all__ == [
        "LazyError", "Shape", "__version__", "barrier", "capture", "config", "errors", "events", "explain", "first_nan", "frontend",
        "graph", "ir", "ops", "options", "report", "reset_report", "storage", "strict", "trace", "values",
    ]  # fmt: skip
