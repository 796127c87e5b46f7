"""Eager TensorFlow on the lazy device gives the values of plain TensorFlow, without computing before somebody reads."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf
from lazy_core import ops, values

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 4)).astype("f")
W = RNG.standard_normal((4, 3)).astype("f")


def counter(name: str) -> float:
    """A counter of the report."""
    return lazy_core.report().counters[name]


def test_operations_are_recorded_until_a_read(no_fallback):
    y = tf.nn.relu(tf.matmul(tf.constant(X), tf.constant(W)))
    assert counter("barriers") == 0
    assert isinstance(y, tf.Tensor) and y.shape == (8, 3) and y.dtype == tf.float32
    assert lazy_tf.is_lazy(y) and y.device == lazy_tf.DEVICE
    np.testing.assert_allclose(y.numpy(), np.maximum(X @ W, 0), rtol=1e-5)
    assert counter("barriers") == 1 and counter("recorded") >= 2


def test_python_numbers_and_arrays_mix_with_tensors(no_fallback):
    x = tf.constant(X)
    z = (2 * x + 1.0) / 3 - x**2 + X
    np.testing.assert_allclose(float(tf.reduce_mean(z)), np.mean((2 * X + 1) / 3 - X**2 + X), rtol=1e-5)


def test_printing_shows_values(lazy, capsys):
    x = tf.constant([1.0, 2.0])
    print(x, repr(x * 2))
    assert "[2., 4.]" in capsys.readouterr().out


def test_python_control_flow_reads_values(lazy):
    x = tf.constant([1.0, -2.0, 3.0])
    assert tf.reduce_sum(x) > 0
    assert int(tf.constant(3) + 1) == 4 and len(x) == 3 and [float(a) for a in x] == [1.0, -2.0, 3.0]


def test_slicing_like_numpy(no_fallback):
    x = tf.constant(X)
    np.testing.assert_array_equal(x[1:3, ::2].numpy(), X[1:3, ::2])
    np.testing.assert_array_equal(x[-1].numpy(), X[-1])
    np.testing.assert_array_equal(x[::-2, 1:].numpy(), X[::-2, 1:])
    np.testing.assert_array_equal(x[..., tf.newaxis, 0].numpy(), X[..., None, 0])
    np.testing.assert_array_equal(x[tf.constant(2)].numpy(), X[2])


@pytest.mark.parametrize(
    "cut", [lambda z, i: z[i : i + 5], lambda z, i: z[i], lambda z, i: tf.slice(z, [i, 1], [3, 2]), lambda z, i: z * i]
)
def test_changing_whole_numbers_do_not_recompile(no_fallback, cut):
    data = RNG.standard_normal((100, 4)).astype("f")
    z = tf.constant(data) * 1
    for i in range(10):
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = tf.reduce_sum(cut(z, i) ** 2)
        d = tape.gradient(y, z)
        with tf.device("CPU:0"):
            plain = tf.reduce_sum(cut(tf.constant(data), i) ** 2)
        np.testing.assert_allclose(y.numpy(), plain.numpy(), rtol=1e-5)
        assert d.shape == z.shape
    assert counter("compiles") <= 3


def test_casts(no_fallback):
    np.testing.assert_array_equal(tf.cast(tf.constant(X), tf.int64).numpy(), X.astype("int64"))
    assert tf.cast(tf.constant(X), tf.bfloat16).dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(tf.constant([True, False, True] * 40), tf.float32).numpy(), [1, 0, 1] * 40)


def test_shapes_are_known_to_the_host_without_a_barrier(no_fallback):
    y = tf.constant(X) * 2
    n = tf.shape(y)[0] * tf.size(y)
    assert int(n) == 8 * 32 and counter("barriers") == 0
    z = tf.reshape(y, tf.stack([tf.shape(y)[1], -1]))
    assert z.shape == (4, 8) and counter("barriers") == 0


def test_gradient_tape_equals_plain_tensorflow(no_fallback):
    def gradients():
        x, w1, w2 = tf.constant(X), tf.constant(W), tf.constant(W.T[:3, :2].copy())
        with tf.GradientTape() as tape:
            tape.watch([w1, w2])
            loss = tf.reduce_sum(tf.nn.tanh(tf.matmul(x, w1) @ w2) ** 2)
        return [g.numpy() for g in tape.gradient(loss, [w1, w2])]

    lazy_gradients = gradients()
    with tf.device("CPU:0"):
        plain = gradients()
    for a, b in zip(lazy_gradients, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_persistent_tape_and_second_order(no_fallback):
    x = tf.constant([3.0, 4.0])
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(x**3)
        first = inner.gradient(y, x)
    np.testing.assert_allclose(outer.gradient(first, x).numpy(), [18.0, 24.0])
    np.testing.assert_allclose(outer.gradient(y, x).numpy(), [27.0, 48.0])


def test_forward_mode_and_custom_gradient(no_fallback):
    @tf.custom_gradient
    def scaled(x):
        return tf.exp(x), lambda dy: dy * 5.0

    x = tf.constant([1.0, 2.0])
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as acc:
        y = tf.exp(x)
    np.testing.assert_allclose(acc.jvp(y).numpy(), np.exp([1.0, 2.0]), rtol=1e-6)
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = scaled(x)
    np.testing.assert_allclose(tape.gradient(z, x).numpy(), [5.0, 5.0])


def test_moves_between_devices(lazy):
    x = tf.constant([1.0, 2.0]) * 2
    with tf.device("CPU:0"):
        z = tf.identity(x)
        w = z + 1
    assert z.device.endswith("CPU:0") and w.numpy().tolist() == [3.0, 5.0]
    assert np.asarray(x).tolist() == [2.0, 4.0]
    assert lazy_tf.is_lazy(tf.identity(z))


def test_values_are_shared_with_the_core_without_a_copy(lazy):
    x = tf.constant(X) + 1
    value = lazy_tf.to_lazy(x)
    assert value.pending and counter("barriers") == 0
    y = lazy_tf.from_lazy(value)
    assert y.dtype == tf.float32 and y.shape == (8, 4) and lazy_tf.to_lazy(y) is value
    np.testing.assert_array_equal(y.numpy(), X + 1)


class OfAnotherFrontend:
    """All that a frontend's tensor must have."""

    def __init__(self, array):
        self.value = values.record(ops.neg, (values.from_host(array),))

    def __lazy_core_value__(self):
        return self.value


@pytest.mark.parametrize(
    "make", [OfAnotherFrontend, lambda x: tf.constant(-x) * 1, lambda x: tf.Variable(-x)], ids=["other", "tensor", "variable"]
)
def test_the_tensor_of_any_frontend_becomes_one_of_tensorflow_inside_the_trace(lazy, make):
    given = make(X)
    y = lazy_tf.from_lazy(given) * 2
    assert lazy_tf.is_lazy(y) and counter("barriers") == 0
    np.testing.assert_array_equal(y.numpy(), -X * 2)


def test_what_is_no_lazy_tensor_is_refused_by_name(lazy):
    with pytest.raises(TypeError, match="list is not a lazy tensor"):
        lazy_tf.from_lazy([1.0, 2.0])


def test_copies_and_pickles(lazy):
    x = tf.constant([1.0, 2.0]) * 3
    assert copy.deepcopy(x).numpy().tolist() == [3.0, 6.0]


def test_small_dtypes(no_fallback):
    a = tf.cast(tf.constant([1.0, 2.0]), tf.bfloat16)
    assert (a * a).numpy().astype("f").tolist() == [1.0, 4.0]
    assert tf.cast(a, tf.float16).dtype == tf.float16


def test_linear_algebra_and_sorting_are_compiled(no_fallback):
    a = RNG.standard_normal((4, 4)).astype("f")
    t = tf.constant(np.tile(a, (5, 1, 1)))
    np.testing.assert_allclose((tf.linalg.inv(t) @ t).numpy()[0], np.eye(4), atol=1e-4)
    np.testing.assert_array_equal(tf.sort(t).numpy()[0], np.sort(a))
    np.testing.assert_array_equal(tf.math.top_k(t, 2).values.numpy()[0], np.sort(a)[:, ::-1][:, :2])
    np.testing.assert_allclose(tf.einsum("bij,bjk->bik", t, t).numpy()[0], a @ a, atol=1e-5)
    np.testing.assert_allclose(tf.linalg.svd(t, compute_uv=False).numpy()[0], np.linalg.svd(a, compute_uv=False), atol=1e-4)
    np.testing.assert_allclose(tf.signal.fft(tf.cast(t, tf.complex64)).numpy()[0], np.fft.fft(a), atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_stateless_random_equals_plain_tensorflow(no_fallback, seed):
    def draw():
        return [
            tf.random.stateless_uniform([33, 7], seed=[seed, 5]).numpy(),
            tf.random.stateless_normal([33, 7], seed=[seed, 5]).numpy(),
            tf.random.stateless_uniform([11], seed=[seed, 5], minval=0, maxval=10, dtype=tf.int32).numpy(),
            tf.random.stateless_uniform([11], seed=[seed, 5], dtype=tf.float64).numpy(),
        ]

    mine = draw()
    with tf.device("CPU:0"):
        plain = draw()
    np.testing.assert_array_equal(mine[0], plain[0])
    np.testing.assert_allclose(mine[1], plain[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mine[2], plain[2])
    np.testing.assert_array_equal(mine[3], plain[3])


def test_seeded_stateful_random_equals_plain_tensorflow(no_fallback):
    def draw():
        tf.random.set_seed(3)
        once = tf.random.normal([5]).numpy(), tf.random.uniform([2, 2]).numpy(), tf.nn.dropout(tf.ones([50]), 0.5).numpy()
        repeated = [tf.random.normal([3], seed=7).numpy() for _ in range(3)]
        wide = tf.random.uniform([3], dtype=tf.float64).numpy(), tf.random.normal([3], dtype=tf.float64).numpy()
        return [*once, *repeated, *wide]

    mine = draw()
    with tf.device("CPU:0"):
        plain = draw()
    for a, b in zip(mine, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_generator_equals_plain_tensorflow(no_fallback):
    def draw():
        g = tf.random.Generator.from_seed(5)
        return [g.normal([3]).numpy(), g.uniform([7]).numpy(), g.uniform([4], 0, 9, tf.int32).numpy(), g.state.numpy()]

    mine = draw()
    with tf.device("CPU:0"):
        plain = draw()
    for a, b in zip(mine, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_unseeded_draws_differ(no_fallback):
    a, b = tf.raw_ops.RandomUniform(shape=[100], dtype=tf.float32), tf.raw_ops.RandomUniform(shape=[100], dtype=tf.float32)
    assert len(np.unique(np.concatenate([a.numpy(), b.numpy()]))) > 190


def test_numpy_interface_of_tensorflow(no_fallback):
    import tensorflow.experimental.numpy as tnp

    assert float(tnp.sum(tnp.ones([2, 3]) * 2).numpy()) == 12.0
