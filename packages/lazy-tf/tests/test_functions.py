"""`tf.function` bodies and control flow are inlined on the device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf

X = np.random.default_rng(0).standard_normal((3, 3)).astype("f")


def test_a_function_records_its_body(no_fallback):
    @tf.function
    def f(x, w):
        return tf.nn.relu(x @ w) + 1

    y = f(tf.constant(X), tf.constant(X))
    assert lazy_tf.is_lazy(y) and lazy_core.report().counters["barriers"] == 0
    np.testing.assert_allclose(y.numpy(), np.maximum(X @ X, 0) + 1, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_updates_captured_variables(no_fallback, compiled):
    v = tf.Variable(1.0)

    @tf.function(jit_compile=compiled)
    def f(x):
        v.assign_add(1.0)
        return x * v

    assert float(f(tf.constant(2.0))) == 4.0 and float(v) == 2.0
    assert float(f(tf.constant(2.0))) == 6.0


def test_gradients_pass_through_functions(no_fallback):
    v = tf.Variable(X)

    @tf.function
    def f(x):
        return tf.reduce_sum(tf.nn.relu(x @ v) ** 2)

    with tf.GradientTape() as tape:
        loss = f(tf.constant(np.eye(3, dtype="f")))
    np.testing.assert_allclose(tape.gradient(loss, v).numpy(), 2 * np.maximum(X, 0), rtol=1e-5)


def test_autograph_loops_and_branches(lazy):
    @tf.function
    def f(x):
        i = 0
        while tf.reduce_sum(x) < 100.0:
            x = x * 2.0
            i += 1
        if i > 2:
            return x, i
        return x + 1.0, i

    y, i = f(tf.constant([1.0, 2.0]))
    assert y.numpy().tolist() == [64.0, 128.0] and int(i) == 6


def test_eager_control_flow(lazy):
    assert int(tf.while_loop(lambda i: i < 5, lambda i: [i + 1], [tf.constant(0)])[0]) == 5
    assert float(tf.cond(tf.constant(True), lambda: tf.constant(1.0), lambda: tf.constant(2.0))) == 1.0


def test_jacobian_map_and_scan(lazy):
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**2
    np.testing.assert_allclose(tf.linalg.diag_part(tape.jacobian(y, x)).numpy(), [2.0, 4.0, 6.0])
    assert tf.vectorized_map(lambda a: a * 2, x).numpy().tolist() == [2.0, 4.0, 6.0]
    assert tf.map_fn(lambda a: a + 1, x).numpy().tolist() == [2.0, 3.0, 4.0]
    assert tf.scan(lambda a, b: a + b, x).numpy().tolist() == [1.0, 3.0, 6.0]


def test_python_functions_run_on_the_host(lazy):
    x = tf.constant([1.0]) * 2
    assert tf.py_function(lambda a: a.numpy() + 1, [x], tf.float32).numpy().tolist() == [3.0]
    assert tf.numpy_function(lambda a: a + 1, [x], tf.float32).numpy().tolist() == [3.0]


def test_ragged_and_sparse_tensors_and_tensor_arrays(lazy):
    array = tf.TensorArray(tf.float32, 2)
    array = array.write(0, tf.constant(1.0)).write(1, tf.constant(2.0))
    assert array.stack().numpy().tolist() == [1.0, 2.0]
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    assert tf.reduce_sum(ragged, 1).numpy().tolist() == [3.0, 3.0]
    sparse = tf.sparse.from_dense(tf.constant([[1.0, 0.0], [0.0, 2.0]]))
    assert tf.sparse.sparse_dense_matmul(sparse, tf.ones([2, 1])).numpy().ravel().tolist() == [1.0, 2.0]
