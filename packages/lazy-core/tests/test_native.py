"""The interpreter: values, memory, aliasing and failures of graphs run node by node."""

import gc
import runpy
import sys
import tracemalloc
import warnings
import weakref
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazy_core import backend, lowering, native, ops
from lazy_core.errors import ExecutionError, LazyError
from lazy_core.ir import Const, Expr, Leaf, Node, ScalarLeaf, const
from lazy_core.native import registry
from lazy_core.ops.registry import REGISTRY, Op
from lazy_core.shape import Shape
from lazy_core.testing import samples

tools = runpy.run_path(str(Path(__file__).with_name("native_tools.py")))
leaves_of, node_of = tools["leaves_of"], tools["node_of"]

F32, F64, I32, BOOL = (np.dtype(t) for t in ("f4", "f8", "i4", "?"))
BIG = 1 << 14  # elements: past the size from which buffers are reused


def apply(op, *inputs, **attributes):
    node = node_of(op, inputs, attributes)
    return node.outputs[0] if len(node.outputs) == 1 else node.outputs


def evaluate(outputs, leaf=None, scalar=None):
    return native.evaluate(outputs, leaf, scalar)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize("value", [np.float32(-0.0), np.int64(7), np.bool_(True), ml_dtypes.bfloat16(1.5)])
def test_constants_and_scalars_are_operands(value):
    """A constant keeps its bits; a run-time scalar is read when the graph runs."""
    found = evaluate([apply(ops.full, const(value, value.dtype), dims=(2,)), const(value, value.dtype)])
    assert found[0].dtype == value.dtype
    assert found[0].tobytes() == value.tobytes() * 2
    assert (found[1].shape, found[1].tobytes()) == ((), value.tobytes())
    scalar = ScalarLeaf(0, "f", 3)
    total = apply(ops.add, scalar, const(1.0, F64))
    for number in (1.5, 2.5):
        assert evaluate([total], scalar=lambda s, n=number: n if s is scalar else None)[0] == number + 1


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0])
def test_constant_exponents_are_those_of_the_compiled_tier(exponent):
    """They become divisions, roots and products on both tiers: the same at infinities and zeros too."""
    values = np.array([4.0, -np.inf, np.inf, 0.0, -0.0, -2.0, np.nan], np.float32)
    (x,), leaf = leaves_of([values])
    (found,) = evaluate([apply(ops.pow, x, const(exponent, F32))], leaf)
    expected = np.asarray(jax.jit(lambda a: ops.pow.fn(a, np.float32(exponent)))(values))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)]))


@pytest.mark.parametrize("dtype", ["?", "i1", "f2", ml_dtypes.bfloat16, "f4", "i8", "f8", "c8", "c16"])
def test_selection_among_many_elements_keeps_their_bits(dtype):
    """NaN payloads and signs of zeros too; a scalar, a row or a view may stand for an array."""
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    x, y = (np.frombuffer(rng.bytes(40_000 * dtype.itemsize), f"u{min(dtype.itemsize, 8)}") for _ in range(2))
    x, y = (a % 2 != 0 if dtype.kind == "b" else a.view(dtype).reshape(200, 200) for a in (x, y))
    x, y = x.reshape(200, 200), y.reshape(200, 200)
    mask = rng.random((200, 200)) < 0.5
    (p, a, b, row, one), leaf = leaves_of([mask, x, y, x[0], x[0, 0]])
    turned = apply(ops.transpose, b, perm=(1, 0))
    for first, second, chosen, other in ((a, b, x, y), (row, b, x[0], y), (one, b, x[0, 0], y), (a, one, x, x[0, 0]), (a, turned, x, y.T)):
        (found,) = evaluate([apply(ops.where, p, first, second)], leaf)
        expected = np.where(mask, chosen, other)
        assert found.dtype == dtype
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


UNARY = ["neg", "exp", "tanh", "sin", "abs", "square", "relu", "sigmoid", "floor", "identity"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "atan2"]


@st.composite
def graphs(draw):
    """A random graph over a few matrices, with views, broadcasts, reductions, updates, selections and shared subexpressions."""
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    rows, columns = draw(st.sampled_from([(3, 4), (1, 1), (0, 2), (64, 96)]))
    arrays = [rng.standard_normal(d).astype(np.float32) for d in ((rows, columns), (rows, columns), (columns,), ())]
    leaves, leaf = leaves_of(arrays)
    pool = list(leaves)
    full = [leaves[0], leaves[1]]
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.integers(0, 8))
        x = draw(st.sampled_from(full))
        y = draw(st.sampled_from(pool))
        if kind == 0:
            new = apply(REGISTRY[draw(st.sampled_from(UNARY))], x)
        elif kind in (1, 2):
            pair = (x, y) if draw(st.booleans()) else (y, x)
            new = apply(REGISTRY[draw(st.sampled_from(BINARY))], *pair)
        elif kind == 3:
            turned = apply(ops.transpose, x, perm=(1, 0))
            new = apply(ops.transpose, apply(REGISTRY[draw(st.sampled_from(UNARY))], turned), perm=(1, 0))
        elif kind == 4:
            new = apply(ops.where, apply(ops.lt, x, const(draw(st.sampled_from([0.0, 0.5])), F32)), x, draw(st.sampled_from(full)))
        elif kind == 5 and rows and columns:
            row = apply(ops.slice, x, starts=(rows - 1, 0), limits=(rows, columns), strides=(1, 1))
            new = apply(ops.update_slice, draw(st.sampled_from(full)), row, starts=(0, 0), strides=(1, 1))
        elif kind == 6:
            pool.append(apply(ops.sum, x, axes=(0,), keepdims=draw(st.booleans())))
            continue
        elif kind == 7:
            new = apply(ops.reshape, apply(ops.reverse, apply(ops.reshape, x, dims=(rows * columns,)), axes=(0,)), dims=(rows, columns))
        else:
            new = apply(ops.clip, x, const(-1.0, F32), const(2.0, F32))
        pool.append(new)
        full.append(new)
    made = [e for e in pool if e.node is not None]
    outputs = draw(st.lists(st.sampled_from(made or [apply(ops.neg, leaves[0])]), min_size=1, max_size=4, unique=True))
    return arrays, leaf, outputs


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs_equal_the_compiled_program(graph):
    """The same values as the whole graph lowered and compiled; leaves as they were; results that can be written to share nothing."""
    arrays, leaf, outputs = graph
    linear = lowering.linearise(outputs)
    with jax.enable_x64(True):
        expected = jax.jit(lowering.function_of(linear))(*[leaf(item) for item in linear.leaves])
    found = evaluate(outputs, leaf)
    for got, wanted in zip(found, expected, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert got.flags.c_contiguous
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    before = [np.array(a) for a in found]
    for k, array in enumerate(found):
        if array.flags.writeable:
            array.fill(77)
            for j, other in enumerate(found):
                if j > k:
                    np.testing.assert_array_equal(other, before[j])
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(leaf(Leaf(Shape.of(array.shape, array.dtype), 0, k)), array)


# ------------------------------------------------------------------ memory


def test_buffers_of_operands_that_die_are_reused():
    """A chain over a large array needs two buffers at most, however long it is."""
    (x,), leaf = leaves_of([np.ones(1 << 18, np.float32)])
    chain = x
    for k in range(12):
        chain = apply(ops.add, chain, x) if k % 2 else apply(ops.relu, chain)
    schedule = native.Schedule([chain])
    schedule.run(leaf, None)
    tracemalloc.start()
    try:
        schedule.run(leaf, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * (1 << 20), "one buffer of a mebibyte, written in place"


def test_values_are_freed_after_their_last_use():
    """What an operation made is gone when the next but one runs; what is needed later is kept until then."""
    alive, seen = [], []

    def watch(x):
        seen.append(sum(ref() is not None for ref in alive))
        result = x + 1
        alive.append(weakref.ref(result))
        return result

    op = Op.unregistered("test_watch", lambda x: x)
    (x,), leaf = leaves_of([np.ones(8, np.float32)])
    nodes = []
    last = x
    for _ in range(6):
        last = apply(op, last)
        nodes.append(last.node)
    for node in nodes:
        node.kernel = registry.Call(watch, (), False)
    (found,) = evaluate([last], leaf)
    assert found.tolist() == [7.0] * 8
    assert max(seen) == 1, "only the operand is alive while an operation runs"
    del found
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_a_leaf_is_let_go_of_when_it_has_been_used():
    """The interpreter does not keep a leaf's buffer alive that its owner has dropped."""
    big = np.ones(BIG, np.float32)
    gone = []
    reference = weakref.ref(big)
    leaf_expr = Leaf(Shape.of(big.shape, big.dtype), 0, 0)
    first = apply(ops.sum, leaf_expr, axes=(0,), keepdims=False)
    second = apply(ops.neg, first)
    second.node.kernel = registry.Call(lambda x: (gone.append(reference() is None), -x)[1], (), False)
    held = [big]
    del big
    assert evaluate([second], lambda _: held.pop())[0] == -BIG
    assert gone == [True]


@pytest.mark.parametrize("name", sorted(n for n in native.kernels() if registry._TABLE[n].reuse))
def test_reused_buffers_do_not_change_results(name):
    """Every operation that may write over its operand gives the same values when it does, and leaves a leaf alone."""
    copy = ops.where
    done = 0
    for dtype in REGISTRY[name].dtypes:
        for sample in samples(name, dtype):
            args = [np.asarray(a) for a in sample.args]
            if not args[0].size or args[0].ndim == 0 or (args[0].ndim == 1 and args[0].size < 3):
                continue
            leaves, leaf = leaves_of(args)
            (plain,) = evaluate(node_of(REGISTRY[name], leaves, sample.attrs).outputs, leaf)
            copies = [apply(copy, const(True, BOOL), e, e) for e in leaves]
            node = node_of(REGISTRY[name], copies, sample.attrs)
            found = registry.resolve(node)
            fits = tuple(p for p in registry._TABLE[name].reuse if copies[p].shape is node.outputs[0].shape)
            node.kernel = registry.Call(found.function, fits, False)  # however small the arrays are
            (again,) = evaluate(node.outputs, leaf)
            assert again.dtype == plain.dtype
            np.testing.assert_array_equal(again.view(np.uint8) if again.ndim else again, plain.view(np.uint8) if plain.ndim else plain)
            done += bool(fits)
    assert done


def _reversed(leaf):
    return apply(ops.reverse, leaf, axes=tuple(range(len(leaf.shape.dims))))


@pytest.mark.parametrize("name", sorted(native.kernels()))
def test_kernels_take_views_of_any_strides(name):
    """An operand that is a reversed, transposed or broadcast view of another value, which cannot be written to."""
    op = REGISTRY[name]
    for sample in samples(name, op.dtypes[0]):
        args = [np.asarray(a) for a in sample.args]
        leaves, leaf = leaves_of(args)
        plain = evaluate(node_of(op, leaves, sample.attrs).outputs, leaf)
        views, leaf = leaves_of([a[(slice(None, None, -1),) * a.ndim] for a in args])
        again = evaluate(node_of(op, [_reversed(v) if v.shape.dims else v for v in views], sample.attrs).outputs, leaf)
        turned, leaf = leaves_of([a.T for a in args])
        once_more = evaluate(
            node_of(op, [apply(ops.transpose, v, perm=tuple(range(v.shape.ndim))[::-1]) for v in turned], sample.attrs).outputs, leaf
        )
        for a, b, c in zip(plain, again, once_more, strict=True):
            for other in (b, c):
                assert other.dtype == a.dtype
                np.testing.assert_allclose(other.astype(np.complex128), a.astype(np.complex128), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["strided_read", "strided_write", "strided_read_at", "strided_write_at"])
def test_storages_may_be_broadcast(name):
    """A base of zeros is one number, seen everywhere."""
    for sample in samples(name, F32):
        base, *others = [np.asarray(a) for a in sample.args]
        leaves, leaf = leaves_of([np.full_like(base, 3), *others])
        (plain,) = evaluate(node_of(REGISTRY[name], leaves, sample.attrs).outputs, leaf)
        full = apply(ops.full, const(3.0, F32), dims=base.shape)
        (again,) = evaluate(node_of(REGISTRY[name], [full, *leaves[1:]], sample.attrs).outputs, leaf)
        np.testing.assert_array_equal(again, plain)


def test_an_operand_that_is_needed_again_is_not_written_over():
    """By a later operation, by the result, or by a view of it."""
    (x,), leaf = leaves_of([np.arange(BIG, dtype=np.float32)])
    a = apply(ops.add, x, const(1.0, F32))
    b = apply(ops.relu, a)
    c = apply(ops.mul, a, b)
    view = apply(ops.reshape, c, dims=(2, BIG // 2))
    d = apply(ops.neg, c)
    e = apply(ops.sum, view, axes=(0, 1), keepdims=False)
    found = evaluate([a, d, e], leaf)
    expected = np.arange(1, BIG + 1, dtype=np.float64)
    np.testing.assert_array_equal(found[0], expected.astype(np.float32))
    np.testing.assert_allclose(found[1], -(expected**2), rtol=1e-6)
    np.testing.assert_allclose(found[2], (expected**2).sum(), rtol=1e-5)


def test_updates_write_into_a_base_that_nobody_else_holds():
    """A loop of small updates to a large array copies it once."""
    (x,), leaf = leaves_of([np.zeros((512, 512), np.float32)])
    base = x
    for k in range(40):
        element = apply(ops.full, const(float(k), F32), dims=(1, 1))
        base = apply(ops.update_slice, base, element, starts=(k, k), strides=(1, 1))
    schedule = native.Schedule([base])
    copies = []
    tracemalloc.start()
    try:
        (found,) = schedule.run(leaf, None)
        copies.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(np.diag(found)[:40], np.arange(40))
    assert copies[0] < 1.2 * found.nbytes
    assert not leaf(x).any()


# ------------------------------------------------------------------ aliasing


def test_a_result_that_can_be_written_to_shares_no_memory():
    """Views, copies that are none, the same output twice, and leaves that are not read-only."""
    own = np.arange(6, dtype=np.float32)  # a leaf whose owner did not make it read-only
    x = Leaf(Shape.of((6,), F32), 0, 0)
    once = apply(ops.add, x, const(1.0, F32))
    outputs = [
        x,
        apply(ops.identity, x),
        apply(ops.reshape, x, dims=(2, 3)),
        once,
        once,
        apply(ops.reshape, once, dims=(3, 2)),
        apply(ops.slice, once, starts=(1,), limits=(5,), strides=(2,)),
        apply(ops.broadcast_to, apply(ops.reshape, once, dims=(1, 6)), dims=(2, 6)),
        const(3.0, F32),
    ]
    found = evaluate(outputs, lambda _: own)
    for array in found:
        assert array.flags.c_contiguous
        assert not array.flags.writeable or not np.shares_memory(array, own)
    writable = [a for a in found if a.flags.writeable]
    for i, a in enumerate(writable):
        for b in writable[i + 1 :]:
            assert not np.shares_memory(a, b)


def test_a_leaf_that_is_read_only_may_be_a_result_without_a_copy():
    """As it is, or under other dims."""
    (x,), leaf = leaves_of([np.arange(6, dtype=np.float32)])
    same, other = evaluate([x, apply(ops.reshape, x, dims=(2, 3))], leaf)
    assert same is leaf(x)
    assert np.shares_memory(other, same)
    assert not other.flags.writeable


def test_a_small_part_of_a_large_value_does_not_keep_it():
    """A result that is a slice has memory of its own."""
    (x,), leaf = leaves_of([np.zeros(BIG, np.float32)])
    (part,) = evaluate([apply(ops.slice, apply(ops.neg, x), starts=(0,), limits=(3,), strides=(1,))], leaf)
    assert part.base is None
    assert part.nbytes == 12


# ------------------------------------------------------------------ failures, fallbacks


def test_nothing_warns():
    """Division by zero, overflow, NaN: silent, as a compiled program is, and the caller's own settings come back."""
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        floats, integers = np.array([0.0, np.inf, np.nan, 1e38], np.float32), np.array([0, 2**31 - 1], np.int32)
        (x, n, c), leaf = leaves_of([floats, integers, np.array([1j], np.complex64)])
        outputs = [
            apply(ops.div, x, x),
            apply(ops.log, apply(ops.neg, x)),
            apply(ops.convert, x, dtype=I32),
            apply(ops.mul, x, x),
            apply(ops.floor_div, n, apply(ops.sub, n, n)),
            apply(ops.mul, n, n),
            apply(ops.mean, apply(ops.slice, x, starts=(0,), limits=(0,), strides=(1,)), axes=(0,), keepdims=False),
            apply(ops.convert, c, dtype=F32),
        ]
        evaluate(outputs, leaf)
        assert set(np.geterr().values()) == {"raise"}


def test_failure_names_the_operation_and_its_line():
    """What a kernel raises is an ExecutionError; what `leaf` raises goes through."""
    (x,), leaf = leaves_of([np.ones(3, np.float32)])
    y = apply(ops.neg, x)
    y.node.site = "script.py:12"
    y.node.kernel = registry.Call(lambda a: 1 // 0, (), False)
    with pytest.raises(ExecutionError, match=r"neg\(f32\[3\]\).*ZeroDivisionError.*script\.py:12"):
        evaluate([y], leaf)
    with pytest.raises(KeyError):
        evaluate([y], {}.__getitem__)


def test_an_operation_without_a_kernel_is_compiled_by_itself_once():
    """Unregistered operations, and registered ones of the same name as a kernel's, run by XLA; programs are kept by dims and dtype."""
    traced = []
    op = Op.unregistered("add", lambda x, y: (traced.append(1), x - y)[1])
    (x, y), leaf = leaves_of([np.ones(3, np.float32), np.ones(3, np.float32)])
    for _ in range(3):
        assert evaluate([apply(op, x, y)], leaf)[0].tolist() == [0, 0, 0]
    assert len(traced) == 2, "once to infer its shape, once to compile it"
    (packed, swaps, permutation) = evaluate(apply(ops.lu, *leaves_of([np.eye(3)])[0]), leaves_of([np.eye(3)])[1])
    assert packed.tolist() == np.eye(3).tolist()
    assert (swaps.dtype, permutation.dtype) == (I32, I32)


def test_programs_of_single_operations_are_bounded():
    """Shapes that never repeat do not fill the memory."""
    assert 0 < backend._single.cache_info().maxsize <= 4096


def test_a_matrix_that_lapack_refuses_gives_what_the_operation_declares():
    """NaN or infinities, not an exception: raising is the frontend's."""
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    (x,), leaf = leaves_of([singular])
    inverse, root = evaluate([apply(ops.inv, x), apply(ops.cholesky, apply(ops.neg, x))], leaf)
    assert not np.isfinite(inverse).any()
    assert np.isnan(root[0, 0])


def test_long_graphs_are_walked_without_recursion():
    """A chain far longer than Python's stack."""
    (x,), leaf = leaves_of([np.zeros(1, np.float32)])
    chain = x
    for _ in range(3 * sys.getrecursionlimit()):
        chain = apply(ops.add, chain, const(1.0, F32))
    assert evaluate([chain], leaf)[0] == 3 * sys.getrecursionlimit()


def test_a_schedule_may_be_run_again_with_other_buffers():
    """It holds no buffer of an earlier run."""
    x = Leaf(Shape.of((2,), F32), 0, 0)
    schedule = native.Schedule([apply(ops.mul, apply(ops.add, x, x), const(3.0, F32)), const(1.0, F32)])
    for k in range(3):
        found, one = schedule.run(lambda _, k=k: np.full(2, k, np.float32), None)
        assert found.tolist() == [6.0 * k] * 2
        assert one == 1
    assert all(isinstance(e, (Expr, Node, Const)) for e in schedule.steps[0][-1].inputs)


def test_errors_of_the_core_keep_their_type():
    """A LazyError of a kernel is not wrapped."""

    class Special(LazyError):
        pass

    def fail(_):
        raise Special

    (x,), leaf = leaves_of([np.ones(3, np.float32)])
    y = apply(ops.neg, x)
    y.node.kernel = registry.Call(fail, (), False)
    with pytest.raises(Special):
        evaluate([y], leaf)
