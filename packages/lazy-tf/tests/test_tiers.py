"""Native and compiled execution of the same programs: the same values, errors and random numbers, whichever ran and wherever it changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf
from lazy_core import compiling, tiers, trials
from lazy_core.allowance import allowance
from lazy_core.testing import first_verdict
from lazy_tf.tensor import EXTENSION

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 12)).astype("f")
W = RNG.standard_normal((12, 12)).astype("f") / 4
RUNS = 12
MEASURED = 24  # runs after which both tiers have been timed
"""So often does a program run: twice as it comes, once to be learned, then recorded, compiled, and timed on each tier."""

needs_extension = pytest.mark.skipif(EXTENSION is None, reason="without the extension everything is compiled")


@pytest.fixture(autouse=True)
def short_trials(monkeypatch):
    """Measuring takes a few runs of each tier, however short they are."""
    monkeypatch.setattr(trials, "_WARM_SECONDS", 0.0)


@pytest.fixture(params=["auto", "native", "compiled"])
def tier(request):
    """The tiers in turn; in "auto" learning is not rationed, so that every test learns."""
    lazy_core.barrier()
    tiers.forget()
    with lazy_core.options(tier=request.param, learn_percent=10_000), lazy_tf.device():
        lazy_core.reset_report()
        allowance.restart()
        yield request.param
        lazy_core.barrier()
        compiling.wait(60)


def settle():
    """End the trace, and let what is being compiled be there for the next."""
    lazy_core.barrier()
    assert compiling.wait(60)


def counters():
    return lazy_core.report().counters


def long_enough(x, w):
    """Some 40 small operations: more work than handing a program to the device."""
    for _ in range(20):
        x = tf.tanh(x @ w) + 0.5
    return x


def training():
    """Adam by hand: variables, gradients, a counter that grows."""
    v, m, s = (tf.Variable(a) for a in (W, np.zeros_like(W), np.zeros_like(W)))
    count = tf.Variable(0, dtype=tf.int64)
    x = tf.constant(X)
    for _ in range(RUNS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((long_enough(x, v) - 1.0) ** 2)
        g = tape.gradient(loss, v)
        m.assign(0.9 * m + 0.1 * g)
        s.assign(0.99 * s + 0.01 * g * g)
        count.assign_add(1)
        scale = tf.cast(count, tf.float32)
        v.assign_sub(0.01 * (m / (1 - 0.9**scale)) / (tf.sqrt(s / (1 - 0.99**scale)) + 1e-3))
        yield loss, v.read_value(), count.read_value()


def drawing():
    """Every kind of draw, from a seed that the program sets."""
    tf.random.set_seed(3)
    generator = tf.random.Generator.from_seed(5)
    for k in range(RUNS):
        yield (
            tf.random.normal([3, 4], seed=1),
            tf.random.uniform([5], maxval=100, dtype=tf.int32),
            tf.random.truncated_normal([6]),
            generator.normal([4]),
            tf.random.stateless_uniform([7], seed=[k, 2]),
            tf.random.shuffle(tf.range(8), seed=4),
            tf.nn.dropout(tf.ones([4, 5]), 0.4, seed=2),
            long_enough(tf.random.normal([32, 12], seed=9), tf.constant(W)),
        )


def rows():
    """Scattered and sliced assignments, gathers, a moving index."""
    table = tf.Variable(X)
    for k in range(RUNS):
        table.scatter_nd_add([[k % 4], [5]], tf.constant(X[:2]))
        table[k % 3, 1:4].assign(tf.ones(3) * float(k))
        table.scatter_update(tf.IndexedSlices(tf.constant(X[:2] * k), tf.constant([7, 8])))
        yield table.read_value(), tf.gather(table, [1, k % 5]), long_enough(table.read_value(), tf.constant(W))


def lists():
    """Loops over lists of tensors, with gradients."""

    @tf.function
    def recurrent(x, w):
        states = tf.TensorArray(tf.float32, size=4)
        state = x
        for t in tf.range(4):
            state = tf.tanh(state @ w)
            states = states.write(t, state)
        return states.stack()

    x, w = tf.constant(X), tf.constant(W)
    for _ in range(RUNS):
        with tf.GradientTape() as tape:
            tape.watch(w)
            states = recurrent(x, w)
        yield states, tape.gradient(states, w)


def dtypes():
    """Each kind of number, and casts between them."""
    for k in range(RUNS):
        x = tf.constant(X) * (k + 1)
        yield (
            tf.cast(x * 2, tf.int8),
            tf.cast(x, tf.bfloat16) * 2,
            tf.cast(x, tf.float64) ** 2,
            x > 0,
            tf.cast(x, tf.complex64) * 1j,
            long_enough(x, W),
        )


PROGRAMS = {f.__name__: f for f in (training, drawing, rows, lists, dtypes)}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
def test_a_program_that_repeats_gives_the_values_of_plain_tensorflow_all_the_way(tier, name, read):
    """As it comes, recorded and run natively, compiled and in turns: no change of tier is to be seen."""
    if tier == "compiled" and read:
        pytest.skip("the values of programs on this tier are the subject of test_programs.py")
    with tf.device("CPU:0"):
        expected = [[t.numpy() for t in step] for step in PROGRAMS[name]()]
    found = []
    for step in PROGRAMS[name]():
        settle()
        found.append([t.numpy() if read else t for t in step])
    for k, (mine, plain) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(mine, plain, strict=True):
            a = np.asarray(a)
            assert a.dtype == b.dtype and a.shape == b.shape
            if b.dtype.kind in "iub":
                np.testing.assert_array_equal(a, b, err_msg=f"step {k}")
            else:
                np.testing.assert_allclose(a.astype("c16"), b.astype("c16"), rtol=2e-4, atol=2e-4, err_msg=f"step {k}")


@needs_extension
def test_what_repeats_is_recorded_compiled_and_measured():
    """The report says of the trace where it was recorded, which tier it is on, why, and both times."""
    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        tiers.forget()
        lazy_core.reset_report()
        x, w = tf.constant(X[:29]), tf.constant(W)
        seen = []
        while len(seen) < 200 and all(trial.verdict is None for trial in tiers.trials() if trial.operations == 60):
            long_enough(x, w).numpy()
            settle()
            seen.append(counters()["compiles"])
        assert seen[:3] == [0, 0, 0], "what came twice is recorded the third time, and compiled when it comes again"
        assert seen[-1] == 1
        here = [t for t in lazy_core.report().traces if "test_tiers.py" in (t.site or "") and t.operations == 60]
        row = here[-1]  # other tests' are older
        assert row.tier in ("native", "compiled") and "measured" in row.reason
        assert row.native_runs >= 2 and row.compiled_runs >= 3
        assert row.native_seconds > 0 and row.compiled_seconds > 0


@needs_extension
def test_a_long_trace_is_recorded_as_a_whole():
    """Thousands of beginnings are remembered beside each other: the third time nothing runs as it comes."""
    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        x, w = tf.constant(X[:3]), tf.constant(W[:3])
        ways = [tf.raw_ops.AddV2, tf.raw_ops.Sub, tf.raw_ops.Maximum, tf.raw_ops.Minimum]
        chosen = [ways[k] for k in np.random.default_rng(0).integers(0, len(ways), 1500)]  # a period would be cut out
        immediate = []
        for _ in range(3):
            y = x
            for way in chosen:
                y = way(x=y, y=w)
            immediate.append(EXTENSION.immediate())
            y.numpy()
        assert immediate == [True, True, False]


@needs_extension
def test_a_verdict_for_the_cpu_ends_recording(monkeypatch):
    """A trace that measures faster natively runs as it comes again."""
    monkeypatch.setattr(tiers, "DISPATCH_SECONDS", 0.0)  # so short a trace is planned, however fast this machine is
    monkeypatch.setattr(tiers, "_SURELY_LONG_SECONDS", 0.0)
    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        tiers.forget()
        x, w = tf.constant(X), tf.constant(W[:, :7])
        for _ in range(MEASURED):
            tf.tanh(tf.matmul(tf.matmul(x, w), w, transpose_b=True)).numpy()
            for trial in tiers.trials():
                if trial.verdict is None and trial.native_runs:
                    trial.decide("native", "as the test says")
            settle()
        y = tf.matmul(x, w)
        assert EXTENSION.immediate() and y.shape == (32, 7)


@needs_extension
def test_a_long_trace_goes_on_being_recorded_after_a_verdict_for_the_cpu(monkeypatch):
    """TensorFlow's kernels run from the record in less time than TensorFlow takes to call them."""
    monkeypatch.setattr(tiers, "DISPATCH_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "_SURELY_LONG_SECONDS", 0.0)

    def step(x, w):
        for _ in range(20):
            x = tf.tanh(tf.matmul(x, w))
        return float(tf.reduce_sum(x))

    expected = step(X, W)
    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        tiers.forget()
        x, w = tf.constant(X), tf.constant(W)
        for _ in range(MEASURED):
            assert step(x, w) == pytest.approx(expected, rel=1e-4)
            for trial in tiers.trials():
                if trial.verdict is None and trial.native_runs:
                    trial.decide("native", "as the test says")
            settle()
        before = sum(trial.native_runs for trial in tiers.trials())
        for _ in range(5):
            assert step(x, w) == pytest.approx(expected, rel=1e-4)
        assert sum(trial.native_runs for trial in tiers.trials()) - before == 5


@needs_extension
def test_traces_that_are_only_known_in_part_run_as_they_come_until_they_are_known():
    """As a step that ends with an array of another length each time: its beginning is recorded once in a while, and no more."""
    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        tiers.forget()
        x, w = tf.constant(np.repeat(X, 8, 0)), tf.constant(W)

        def step(length):
            y = x
            for _ in range(20):
                y = tf.tanh(tf.matmul(y, w))
            total = tf.reduce_sum(y)
            return float(tf.reduce_sum(total * tf.ones([length]))) if length else float(total)

        once = step(0)
        for _ in range(MEASURED):
            step(0)
        settle()
        for length in range(1000, 1300):
            assert step(length) == pytest.approx(length * once, rel=1e-3, abs=1e-2 * length)
        before = lazy_core.report().counters["barriers"]
        for length in range(2000, 2100):
            step(length)
        assert lazy_core.report().counters["barriers"] - before <= 10


@needs_extension
def test_shapes_that_never_repeat_compile_nothing():
    with lazy_core.options(tier="auto"), lazy_tf.device():
        tiers.forget()
        lazy_core.reset_report()
        for n in range(1, 40):
            assert float(tf.reduce_sum(tf.ones([n, 6]) @ tf.ones([6, 2]))) == 12.0 * n
        settle()
        assert counters()["compiles"] == 0


def test_variables_hold_the_same_whoever_wrote_them():
    """Each step on another tier than the one before, with all kinds of assignment."""
    with lazy_tf.device():
        mine = tf.Variable(X[:4, :6])
    with tf.device("CPU:0"):
        plain = tf.Variable(X[:4, :6])
    kept = []
    for k, name in enumerate(["native", "compiled", "auto", "compiled", "native", "native", "auto", "compiled"]):
        with lazy_core.options(tier=name):
            for v in (mine, plain):
                with tf.device(v.device):
                    v.assign_add(tf.ones_like(v) * k)
                    v[1].assign(v[2] * 2)
                    v[:, ::2].assign(v[:, 1::2])
                    v.scatter_nd_update([[0, 0], [3, 5]], [float(k), -1.0])
                    v.assign(tf.reverse(v, [1]) / 2)
            kept.append((mine.read_value(), plain.numpy()))
            np.testing.assert_allclose(mine.numpy(), plain.numpy(), rtol=1e-6)
    for old, then in kept:
        np.testing.assert_allclose(old.numpy(), then, rtol=1e-6, err_msg="a value that was read keeps its contents")


def test_what_was_read_does_not_change_with_the_variable(tier):
    """Neither a NumPy array nor a copy on the CPU, though their memory may be shared."""
    for k in range(RUNS):
        v = tf.Variable(X)
        with tf.device("CPU:0"):
            copied = tf.identity(v.read_value())
        array, pending = v.numpy(), v * 2
        v.assign_add(tf.ones_like(v))
        v.scatter_nd_update([[0]], tf.zeros([1, 12]))
        settle()
        for unchanged in (copied.numpy(), array, pending.numpy() / 2):
            np.testing.assert_array_equal(unchanged, X, err_msg=f"round {k}")
        assert v.numpy()[0].sum() == 0
        np.testing.assert_array_equal(v.numpy()[1:], X[1:] + 1)


def test_an_array_that_was_handed_over_is_a_copy(tier):
    for _ in range(RUNS):
        host = np.ones(100, "f")
        x = tf.constant(host)
        host += 1
        y = x * 2
        host += 1
        settle()
        assert y.numpy().max() == 2.0 and x.numpy().max() == 1.0 and host.max() == 3.0


def raised(call):
    """The class of the error that a call raises, and how it begins."""
    with pytest.raises(Exception, match=r".") as caught:
        call()
    return type(caught.value), re.sub(r"^\{\{function_node .*?\}\} | \[Op:.*", "", str(caught.value), flags=re.DOTALL)[:40]


ERRORS = {
    "shapes": lambda x: x + tf.ones([5]),
    "inner": lambda x: tf.matmul(x, x),
    "dtypes": lambda x: tf.raw_ops.AddV2(x=x, y=tf.constant(1)),
    "axis": lambda x: tf.reduce_sum(x, axis=7).numpy(),
    "gather": lambda x: tf.gather(x, tf.constant([99]) + 0).numpy(),
    "reshape": lambda x: tf.reshape(x, [7, 7]).numpy(),
    "division": lambda x: (tf.cast(x, tf.int32) // tf.zeros([12], tf.int32)).numpy(),
    "numerics": lambda x: tf.debugging.check_numerics(x / 0.0, "found").numpy(),
    "labels": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x, labels=tf.fill([32], 77)).numpy(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_tensorflows(tier, name):
    """Of the same class and with the same words; and what comes after is not touched."""
    with tf.device("CPU:0"):
        expected = raised(lambda: ERRORS[name](tf.constant(X)))
    for _ in range(5):
        x = tf.constant(X) + 0
        assert raised(lambda x=x: ERRORS[name](x)) == expected
        settle()
        np.testing.assert_array_equal((x + 1).numpy(), X + 1)


def test_an_error_in_a_trace_that_is_known_to_repeat(tier):
    """The values differ from those that were learned, and so does what a kernel says of them."""
    for k in range(RUNS + 1):
        index = tf.constant([k if k < RUNS else 99]) + 0

        def step(index=index):
            return float(tf.reduce_sum(tf.gather(long_enough(tf.constant(X), W), index)))

        if k < RUNS:
            step()
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 99 is not in \[0, 32\)"):
                step()
        settle()
    assert float(tf.ones([]) + 1) == 2.0


PREAMBLE = """
import os, sys
import numpy as np
import tensorflow as tf
import lazy_core, lazy_tf
lazy_tf.enable()
"""


def run(code, **environment):
    """The output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", PREAMBLE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LAZY_CACHE_DIR": "off", "LAZY_TIER": "auto", "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_short_program_compiles_nothing():
    """It runs on TensorFlow's kernels from its first line to its last."""
    out = run(
        """
        w = tf.Variable(tf.random.normal([64, 10]))
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.relu(tf.random.normal([32, 64]) @ w) ** 2)
            w.assign_sub(tape.gradient(loss, w))
        counters = lazy_core.report().counters
        print(float(loss) > 0, counters["compiles"], counters["barriers"], w.device.endswith("LAZY:0"))
        """
    )
    assert out == "True 0 0 True\n"


@pytest.mark.parametrize("tier", ["auto", "native", "compiled"])
def test_without_the_extension_the_values_are_the_same(tier):
    """What is pending is then compiled, or run by the core's own interpreter."""
    out = run(
        """
        v = tf.Variable(np.ones((3, 3), "f"))
        for step in range(4):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(v @ v))
            v.assign_sub(0.1 * tape.gradient(loss, v))
            lazy_core.barrier()
        print(f"{float(loss):.5f}", f"{v.numpy().sum():.5f}")
        tf.random.set_seed(1)
        print(tf.random.normal([2]).numpy().tolist())
        with tf.device("CPU:0"):
            u = tf.Variable(np.ones((3, 3), "f"))
            for step in range(4):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.tanh(u @ u))
                u.assign_sub(0.1 * tape.gradient(loss, u))
            print(f"{float(loss):.5f}", f"{u.numpy().sum():.5f}")
            tf.random.set_seed(1)
            print(tf.random.normal([2]).numpy().tolist())
        """,
        LAZY_TF_EXTENSION="off",
        LAZY_TIER=tier,
    ).splitlines()
    assert out[0] == out[2]
    np.testing.assert_allclose(eval(out[1]), eval(out[3]), rtol=1e-6)


def test_no_early_step_walks_what_importing_made():
    """In auto the collector walked every object there is in the sixth step of a small model, for a quarter of a second."""
    out = run(
        """
        import gc
        walks = []
        gc.callbacks.append(lambda phase, info: walks.append(step) if phase == "stop" and info["generation"] == 2 else None)
        layers = [tf.Variable(tf.random.normal([48, 48])) for _ in range(3)]
        speeds = [tf.Variable(tf.zeros([48, 48])) for _ in layers]
        for step in range(100):
            with tf.GradientTape() as tape:
                x = tf.ones([64, 48])
                for layer in layers:
                    x = tf.nn.tanh(x @ layer)
                loss = tf.reduce_mean(x ** 2)
            for speed, layer, gradient in zip(speeds, layers, tape.gradient(loss, layers)):
                speed.assign(0.9 * speed + gradient)
                layer.assign_sub(0.01 * speed)
            float(loss)
        print(walks)
        """
    )
    assert out == "[]\n"


@needs_extension
def test_a_trace_that_runs_compiled_often_is_recorded_though_one_that_begins_like_it_runs_natively(monkeypatch):
    x, w = tf.constant(X), tf.constant(W)

    def trace(rounds):
        y = x
        for _ in range(rounds):
            y = tf.tanh(y @ w) + 0.5
        return float(tf.reduce_sum(y))

    def note(trial, *_args, **_more):
        trial.decide("compiled" if trial.operations > 40 else "native", "the test says so")
        return False

    def turns(count):
        for _ in range(count):
            for rounds in (30, 30, 30, 10):
                trace(rounds)

    monkeypatch.setattr(trials.Trial, "note", note)
    known = tiers.trials()

    def found():
        return {t.verdict: t for t in tiers.trials() if t.verdict and not any(t is k for k in known)}

    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        for _ in range(100):
            turns(1)
            if len(found()) == 2:
                break
            compiling.wait(60)
        assert set(found()) == {"compiled", "native"}
        turns(20)
        before = found()["compiled"].compiled_runs
        turns(20)
        assert found()["compiled"].compiled_runs - before >= 55


@needs_extension
def test_a_wrong_verdict_does_not_last(monkeypatch):
    """It is looked at again after a while, though its traces, which are short, run as they come."""
    x = tf.constant(RNG.standard_normal(200_000).astype("f"))

    def step():
        y = x
        for _ in range(9):
            y = tf.tanh(y) * 0.9 + 0.1
        return float(tf.reduce_sum(y))

    with lazy_core.options(tier="auto", learn_percent=10_000), lazy_tf.device():
        with monkeypatch.context() as wrong:
            wrong.setattr(trials.Trial, "decide_by_times", lambda self, now=None: self.decide_as_before("native", now))
            found = first_verdict(step)
        assert (found.verdict, found.reopened) == ("native", False)
        for _ in range(50):
            step()
        assert (found.verdict, found.reopened) == ("native", False)
        found._again = 0.0
        for _ in range(4000):
            step()
            if found.verdict == "compiled":
                break
        assert found.verdict == "compiled", found
        before = found.compiled_runs
        for _ in range(100):
            step()
        assert found.compiled_runs - before >= 95
