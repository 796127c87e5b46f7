"""Loops found in a graph: the same values as without them, for any connection of rounds and every operation; and what stays unrolled.

Then the rest of what keeps lowering from being felt: its pace, and that Python does not walk all objects because of it.
"""

import concurrent.futures
import functools
import gc
import itertools
import runpy
import time
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazy_core import backend, background, lowering, ops, pacing, rolling
from lazy_core.ir import Leaf, ScalarLeaf, const
from lazy_core.ops.registry import REGISTRY
from lazy_core.shape import Shape
from lazy_core.testing import assert_close, samples, tolerance

tools = runpy.run_path(str(Path(__file__).with_name("native_tools.py")))
leaves_of, node_of, compiled, where = (tools[name] for name in ("leaves_of", "node_of", "compiled", "where"))

F32, I64 = np.dtype("f4"), np.dtype("i8")
SIZE = 4


def apply(op, *inputs, **attributes):
    node = node_of(op, inputs, attributes)
    return node.outputs[0] if len(node.outputs) == 1 else node.outputs


def loops_of(graph):
    return [step for step in rolling.roll(graph.nodes, graph.outputs) if isinstance(step, rolling.Loop)]


def run(graph, leaf, rolled, scalars=()):
    """The outputs of a graph, compiled with or without loops."""
    program = backend.lower(lowering.function_of(graph, rolled), graph.argument_shapes, (), graph.exact)
    assert ("stablehlo.while" in program.text) == (rolled and bool(loops_of(graph)))
    return [backend.to_host(r) for r in program.compile()([backend.from_host(leaf(item)) for item in graph.leaves], list(scalars))]


def check(outputs, leaf, rtol=1e-5, scalars=()):
    """A graph's values are the same with loops as without; returns the loops."""
    graph = lowering.linearise(outputs)
    for got, want in zip(run(graph, leaf, True, scalars), run(graph, leaf, False, scalars), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)
    return loops_of(graph)


def arrays(count, *dims, seed=0):
    return list(np.random.default_rng(seed).standard_normal((count, *dims)).astype(np.float32) * np.float32(0.4))


# ------------------------------------------------------------------ what is found


def test_a_recurrent_net_and_its_backward_pass_are_two_loops_and_sums():
    """Rounds that hand on their state, read one input each, and are read again in reverse by the rounds of the derivative."""
    rounds = 12
    (sequence, w, u, h), leaf = leaves_of([np.stack(arrays(rounds, 3, SIZE)), *arrays(2, SIZE, SIZE, seed=1), *arrays(1, 3, SIZE, seed=2)])
    layout, view = ((rounds, 3, SIZE), (3 * SIZE, SIZE, 1), 0), ((3, SIZE), (SIZE, 1), 0)
    inputs, states = [], [h]
    for t in range(rounds):
        inputs.append(apply(ops.strided_read_at, sequence, const(t * 3 * SIZE, I64), layout=layout, view=view))
        states.append(apply(ops.tanh, apply(ops.add, apply(ops.matmul, inputs[t], w), apply(ops.matmul, states[t], u))))
    turned, back, total = apply(ops.transpose, u, perm=(1, 0)), states[-1], None
    for t in reversed(range(rounds)):
        slope = apply(ops.sub, const(1.0, F32), apply(ops.mul, states[t + 1], states[t + 1]))
        inner = apply(ops.mul, back, slope)
        part = apply(ops.matmul, apply(ops.transpose, states[t], perm=(1, 0)), inner)
        total = part if total is None else apply(ops.add, total, part)
        back = apply(ops.matmul, inner, turned)
    found = check([states[-1], back, total], leaf)
    assert [len(loop.rounds) for loop in found] == [12, 11]
    assert [len(loop.carries) for loop in found] == [1, 2]


@pytest.mark.parametrize("back", [1, 2, 3, 4])
def test_a_round_may_look_back_several_rounds(back):
    """As the wave equation does; the first rounds find what was there before the loop."""
    (w, *state), leaf = leaves_of([*arrays(1, SIZE, SIZE), *arrays(back, 3, SIZE, seed=1)])
    for _ in range(15):
        state.append(apply(ops.sub, apply(ops.matmul, state[-1], w), apply(ops.tanh, state[-back])))
    (loop,) = check(state[-back:], leaf)
    assert len(loop.rounds) == 15
    assert len(loop.carries) == back


def test_rounds_that_look_back_further_stay_as_they_are():
    back = rolling._DEEPEST + 1
    (w, *state), leaf = leaves_of([*arrays(1, SIZE, SIZE), *arrays(back, 3, SIZE, seed=1)])
    for _ in range(2 * rolling.FEWEST_ROUNDS - 2):  # two of more rounds than that could pass for one
        state.append(apply(ops.sub, apply(ops.matmul, state[-1], w), apply(ops.tanh, state[-back])))
    assert check(state[-1:], leaf) == []


def test_numbers_that_differ_from_round_to_round_are_brought_together():
    """Baked ones become a constant array; those fed at run time are read from their vector."""
    (w, x), leaf = leaves_of(arrays(2, SIZE, SIZE))
    fed = [ScalarLeaf(0, "f", k) for k in range(10)]
    for k in range(10):
        scaled = apply(ops.mul, apply(ops.matmul, x, w), const(0.5 + k / 10, F32))
        x = apply(ops.add, scaled, apply(ops.convert, fed[k], dtype=F32))
    (loop,) = check([x], leaf, scalars=[np.arange(10.0)])
    assert len(loop.rounds) == 10


def test_what_is_read_of_several_rounds_is_kept_and_of_the_last_only_that():
    (w, x), leaf = leaves_of(arrays(2, SIZE, SIZE))
    kept = []
    for _ in range(12):
        product = apply(ops.matmul, x, w)
        x = apply(ops.tanh, apply(ops.neg, product))
        kept.append(product)
    (loop,) = check([*kept[3:7], x], leaf)
    assert loop.stacked == ((0, 0),)
    assert loop.last == ((2, 0),)
    (loop,) = check([kept[-1], x], leaf)
    assert loop.stacked == ()
    assert loop.last == ((0, 0), (2, 0))


def test_rounds_recorded_together_but_connected_by_nothing_are_one_loop():
    """Depth first, the two chains would come one after the other; a count that reads all of a chain would keep it in memory."""
    (w, x), leaf = leaves_of(arrays(2, SIZE, SIZE))
    total = apply(ops.sum, x, axes=(0,), keepdims=False)
    for _ in range(12):
        x = apply(ops.matmul, x, w)
        total = apply(ops.add, total, apply(ops.sum, apply(ops.abs, x), axes=(0,), keepdims=False))
    (loop,) = check([x, total], leaf)
    assert loop.stacked == ()


# ------------------------------------------------------------------ what stays


def test_what_xla_fuses_over_rounds_stays_unrolled():
    """Values that never leave the registers; one sum in each round, and they would."""
    (x,), leaf = leaves_of(arrays(1, 64))
    for _ in range(40):
        x = apply(ops.add, apply(ops.mul, x, x), const(0.1, F32))
    assert check([x], leaf) == []
    for _ in range(40):
        x = apply(ops.sub, x, apply(ops.max, x, axes=(0,), keepdims=True))
    assert len(check([x], leaf)) == 1


def test_layers_with_weights_of_their_own_stay_unrolled():
    """Bringing them together would copy all of them at each run, unless the layers make much more than they weigh."""
    for rows, loops in ((1, 0), (64, 1)):
        (x, *weights), leaf = leaves_of([*arrays(1, rows, 8), *arrays(20, 8, 8, seed=1)])
        for w in weights:
            x = apply(ops.tanh, apply(ops.matmul, x, w))
        assert len(check([x], leaf)) == loops


def test_what_would_take_much_more_memory_stays_unrolled(monkeypatch):
    """Many rounds of which few are read, and inputs that lie somewhere already."""
    (w, x, *inputs), leaf = leaves_of([*arrays(2, SIZE, SIZE), *arrays(20, SIZE, SIZE, seed=1)])
    kept = []
    for _ in range(20):
        x = apply(ops.tanh, apply(ops.matmul, x, w))
        kept.append(x)
    outputs = [kept[3], kept[9], x]
    assert len(check(outputs, leaf)) == 1
    monkeypatch.setattr(rolling, "_LITTLE_BYTES", 0)
    assert check(outputs, leaf) == []
    assert len(check(kept[5:], leaf)) == 1
    for one in inputs:
        x = apply(ops.sin, apply(ops.tanh, apply(ops.add, apply(ops.matmul, x, w), one)))
    monkeypatch.setattr(rolling, "_MOST_MOVED_BYTES", 20 * SIZE * SIZE * 4)
    assert len(check([x], leaf)) == 2
    monkeypatch.setattr(rolling, "_MOST_MOVED_BYTES", 20 * SIZE * SIZE * 4 - 1)
    assert len(check([x], leaf)) == 1


def test_writes_are_not_repeated():
    """Whether one takes its base's memory depends on who else reads that, which differs between rounds."""
    (x,), leaf = leaves_of(arrays(1, 6, SIZE))
    layout, view = ((6, SIZE), (SIZE, 1), 0), ((2, SIZE), (SIZE, 1), SIZE)
    for _ in range(30):
        part = apply(ops.strided_read, x, layout=layout, view=view)
        part = apply(ops.sub, part, apply(ops.max, part, axes=(0,), keepdims=True))
        x = apply(ops.strided_write, x, part, layout=layout, view=view)
    assert check([x], leaf) == []


def test_few_rounds_stay_unrolled():
    (w, x), leaf = leaves_of(arrays(2, SIZE, SIZE))
    for _ in range(rolling.FEWEST_ROUNDS - 1):
        for op in (ops.tanh, ops.sin, ops.cos, ops.neg, ops.exp):
            x = apply(op, apply(ops.matmul, x, w))
    assert check([x], leaf) == []


# ------------------------------------------------------------------ any connection


@st.composite
def programs(draw):
    """A body of a few operations on what earlier rounds and the round itself made, on shared leaves and on one of the round's own.

    What is read afterwards is drawn too.
    """
    rounds, body = draw(st.integers(9, 14)), draw(st.integers(3, 6))
    leaves, leaf = leaves_of(arrays(4 + rounds, SIZE, SIZE, seed=draw(st.integers(0, 99))))
    fixed, own = leaves[:4], leaves[4:]
    steps = []
    for k in range(body):
        kind = draw(st.sampled_from(["matmul", "add", "mul", "tanh", "transpose", "max", "scale"])) if k else "matmul"
        ways = [
            st.tuples(st.just("fixed"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("own"), st.just(0), st.just(0)),
            st.tuples(st.just("back"), st.integers(0, body - 1), st.integers(1, 3)),
        ]
        if k:
            sources = [("made", k - 1, 0), draw(st.one_of(*ways, st.tuples(st.just("made"), st.integers(0, k - 1), st.just(0))))]
        else:
            sources = [draw(ways[2]), draw(st.one_of(*ways))]
        steps.append((kind, sources))
    made = [[apply(ops.sin, fixed[(k + r) % 4]) for k in range(body)] for r in range(3)]  # what was there before
    for r in range(rounds):
        now = []
        for kind, sources in steps:
            x, y = [
                fixed[k] if how == "fixed" else own[r] if how == "own" else made[-back][k] if how == "back" else now[k]
                for how, k, back in sources
            ]
            if kind in ("matmul", "add", "mul"):
                now.append(apply(ops.tanh, apply(REGISTRY[kind], x, y)))
            elif kind == "transpose":
                now.append(apply(ops.transpose, x, perm=(1, 0)))
            elif kind == "max":
                now.append(apply(ops.sub, x, apply(ops.max, y, axes=(0,), keepdims=True)))
            elif kind == "scale":
                now.append(apply(ops.mul, x, const(draw(st.sampled_from([0.5, 0.25])), F32)))
            else:
                now.append(apply(ops.tanh, x))
        made.append(now)
    every = list(itertools.chain(*made))
    outputs = [*draw(st.lists(st.sampled_from(every), max_size=4)), *made[-1]]
    if draw(st.booleans()):  # read again in another order
        outputs.append(functools.reduce(lambda x, y: apply(ops.add, x, y), draw(st.permutations(every))))
    return leaf, list(dict.fromkeys(outputs))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_connection_of_rounds_gives_the_same_values(program):
    leaf, outputs = program
    with mock.patch.object(rolling, "FEWEST_SAVED", 8):
        check(outputs, leaf, rtol=1e-4)


def test_random_programs_do_have_loops():
    """Else the test above would show nothing."""
    found = []

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(programs())
    def collect(program):
        with mock.patch.object(rolling, "FEWEST_SAVED", 8):
            found.append(len(loops_of(lowering.linearise(program[1]))))

    collect()
    assert sum(n > 0 for n in found) > len(found) / 3


# ------------------------------------------------------------------ every operation


FAMILIES = sorted({op.family for op in REGISTRY.values()})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operation_gives_the_same_in_a_loop(family, monkeypatch):
    """Its operands are rows there, also where they were constants: an operation that looks at its operands' kind must not mind."""
    monkeypatch.setattr(rolling, "FEWEST_SAVED", 1)
    monkeypatch.setattr(rolling, "_MOST_MOVED", 1e9)
    monkeypatch.setattr(rolling, "_MOST_KEPT", 1e9)
    monkeypatch.setattr(rolling, "_FUSED_FAMILIES", frozenset())
    monkeypatch.setattr(rolling, "_FUSED", frozenset())
    todo = []
    for name, op in sorted(REGISTRY.items()):
        if op.family == family and op.in_place is None:
            dtype = next((d for d in op.dtypes if d == F32), op.dtypes[0])
            todo += [(name, sample) for sample in samples(name, dtype)[:1]]
    if not todo:
        pytest.skip("only writes, which are not repeated")
    held, outputs = [], []
    for name, sample in todo:
        for _ in range(rolling.FEWEST_ROUNDS):
            operands = []
            for argument in sample.args:
                value = np.asarray(argument)
                operands.append(Leaf(Shape.of(value.shape, value.dtype), 0, len(held)))
                held.append(value)
            outputs += node_of(REGISTRY[name], operands, sample.attrs).outputs
    graph = lowering.linearise(outputs)
    loops = loops_of(graph)
    rolled = {id(node) for loop in loops for one in loop.rounds for node in one}
    assert [node for node in graph.nodes if id(node) not in rolled] == []
    with jax.enable_x64(True):
        arguments = [held[leaf.slot] for leaf in graph.leaves]
        lowered = jax.jit(lowering.function_of(graph)).lower(*arguments)
        results = iter([np.asarray(r) for r in lowered.compile({"xla_backend_optimization_level": "0"})(*arguments)])
    for (name, sample), expected in zip(todo, compiled(todo), strict=True):
        for _ in range(rolling.FEWEST_ROUNDS):
            for want in expected:
                got = next(results)
                assert (got.dtype, got.shape) == (want.dtype, want.shape), where(name, sample)
                assert_close(got, want, tolerance(name), where(name, sample))


# ------------------------------------------------------------------ at the pace that the program allows


def chain(rounds=40):
    (w, x), leaf = leaves_of(arrays(2, SIZE, SIZE))
    for k in range(rounds):
        x = apply(ops.tanh, apply(ops.matmul, x, w)) if k % 3 else apply(ops.sin, apply(ops.matmul, w, x))
    return lowering.linearise([x]), leaf


def lowered(graph):
    return backend.lower(lowering.function_of(graph, rolled=False), graph.argument_shapes).text


def test_rests_leave_no_trace_in_the_program(monkeypatch):
    """The same text, and so the same place in every cache."""
    graph, _ = chain()
    monkeypatch.setattr(pacing, "_EVERY", 1)
    plain = lowered(graph)
    with pacing.paced(50, lambda: True):
        assert lowered(graph) == plain
    for rolled in chain(), (lowering.linearise([apply(ops.neg, e) for e in graph.outputs]), None):
        text = backend.lower(lowering.function_of(rolled[0]), rolled[0].argument_shapes).text
        with pacing.paced(50, lambda: True):
            assert backend.lower(lowering.function_of(rolled[0]), rolled[0].argument_shapes).text == text


def test_lowering_rests_unless_somebody_waits():
    """It takes its share of the time at most; when somebody waits it goes on at once."""
    graph, _ = chain(200)
    lowered(graph)  # what jax imports and remembers the first time does not count
    begin, had = time.perf_counter(), time.thread_time()
    with pacing.paced(20, lambda: False):
        lowered(graph)
    wall, worked = time.perf_counter() - begin, time.thread_time() - had
    assert worked < 0.35 * wall
    begin = time.perf_counter()
    with pacing.paced(1, lambda: True):
        lowered(graph)
    assert time.perf_counter() - begin < wall
    asked = time.perf_counter() + 0.1
    with pacing.paced(1, lambda: time.perf_counter() > asked):
        lowered(graph)
    assert time.perf_counter() < asked + wall


def test_only_the_thread_that_asks_is_slowed_down():
    graph, _ = chain(200)
    with pacing.paced(1, lambda: False), concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lowered, graph).result(timeout=60)


# ------------------------------------------------------------------ collections


def test_collections_of_all_objects_wait_while_anybody_makes_many():
    """However the blocks end; a threshold that the program chooses meanwhile stays."""
    usual = gc.get_threshold()
    first, second = background.few_collections(), background.few_collections()
    try:
        first.__enter__()
        second.__enter__()
        assert gc.get_threshold() == (*usual[:2], background._NEVER)
        first.__exit__(None, None, None)
        assert gc.get_threshold() == (*usual[:2], background._NEVER)
        second.__exit__(None, None, None)
        assert gc.get_threshold() == usual
        with background.few_collections():
            gc.set_threshold(500, 5, 7)
        assert gc.get_threshold() == (500, 5, 7)
    finally:
        gc.set_threshold(*usual)
