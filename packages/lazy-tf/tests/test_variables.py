"""Variables are rebound functionally and behave as TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf

W = np.random.default_rng(1).standard_normal((4, 3)).astype("f")


def test_assignments_record_and_read_back(no_fallback):
    v = tf.Variable(W)
    v.assign_add(tf.ones_like(v))
    v.assign(v * 2)
    v.assign_sub(tf.ones([4, 3]))
    assert lazy_core.report().counters["barriers"] == 0
    np.testing.assert_allclose(v.numpy(), (W + 1) * 2 - 1, rtol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    np.testing.assert_allclose(tape.gradient(loss, v).numpy(), 2 * v.numpy())
    assert v.device == lazy_tf.DEVICE and "shape=(4, 3)" in repr(v)


def test_a_read_keeps_its_value_when_the_variable_changes(no_fallback):
    v = tf.Variable([1.0, 2.0])
    before = v.read_value()
    v.assign_add([1.0, 1.0])
    assert before.numpy().tolist() == [1.0, 2.0] and v.numpy().tolist() == [2.0, 3.0]


def test_a_lazy_variable_works_outside_the_scope():
    with lazy_tf.device():
        v = tf.Variable([1.0, 2.0])
    y = v * 3 + 1
    v.assign_add([1.0, 1.0])
    assert y.device == lazy_tf.DEVICE
    assert y.numpy().tolist() == [4.0, 7.0] and v.numpy().tolist() == [2.0, 3.0]


def test_a_cpu_variable_mixes_with_lazy_tensors(lazy):
    with tf.device("CPU:0"):
        v = tf.Variable([1.0, 2.0])
    x = tf.constant([1.0, 1.0]) * 2
    v.assign_add(x)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * x)
    assert v.numpy().tolist() == [3.0, 4.0] and float(y) == 14.0
    assert tape.gradient(y, v).numpy().tolist() == [2.0, 2.0]


def test_scatter_and_sliced_assignment(lazy):
    v = tf.Variable([1.0, 2.0, 3.0])
    v.scatter_nd_add([[0]], [5.0])
    v[1].assign(9.0)
    v.scatter_update(tf.IndexedSlices([7.0], [2]))
    assert v.numpy().tolist() == [6.0, 9.0, 7.0]


def test_embedding_gradients_are_indexed_slices(no_fallback):
    v = tf.Variable(np.ones((5, 2), "f"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(v, [1, 1, 3]) ** 2)
    d = tape.gradient(loss, v)
    assert isinstance(d, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(d).numpy().sum(1), [0, 8, 0, 4, 0])


@pytest.mark.parametrize(
    "step",
    [
        lambda v, s, g: tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.1, delta=g),
        lambda v, s, g: tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=s[0].handle, lr=0.1, grad=g, momentum=0.9),
        lambda v, s, g: tf.raw_ops.ResourceApplyKerasMomentum(
            var=v.handle, accum=s[0].handle, lr=0.1, grad=g, momentum=0.9, use_nesterov=True
        ),
        lambda v, s, g: tf.raw_ops.ResourceApplyAdam(
            var=v.handle,
            m=s[0].handle,
            v=s[1].handle,
            beta1_power=0.9,
            beta2_power=0.999,
            lr=0.1,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-7,
            grad=g,
        ),
        lambda v, s, g: tf.raw_ops.ResourceApplyRMSProp(
            var=v.handle, ms=s[0].handle, mom=s[1].handle, lr=0.1, rho=0.9, momentum=0.5, epsilon=1e-7, grad=g
        ),
        lambda v, s, g: tf.raw_ops.ResourceApplyAdagradV2(var=v.handle, accum=s[0].handle, lr=0.1, epsilon=1e-7, grad=g),
        lambda v, s, g: tf.raw_ops.ResourceApplyFtrl(
            var=v.handle, accum=s[0].handle, linear=s[1].handle, grad=g, lr=0.1, l1=0.01, l2=0.01, lr_power=-0.5
        ),
    ],
)
def test_optimiser_steps_equal_plain_tensorflow(lazy, step):
    def three_steps():
        v, slots = tf.Variable(W), [tf.Variable(np.abs(W) + 0.1), tf.Variable(np.abs(W) + 0.2)]
        for _ in range(3):
            step(v, slots, tf.constant(W) * 0.5)
        return [x.numpy() for x in (v, *slots)]

    mine = three_steps()
    with tf.device("CPU:0"):
        plain = three_steps()
    for a, b in zip(mine, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_checkpoints_save_and_restore(lazy, tmp_path):
    v = tf.Variable([1.0, 2.0])
    checkpoint = tf.train.Checkpoint(v=v)
    path = checkpoint.save(str(tmp_path / "c"))
    v.assign([0.0, 0.0])
    checkpoint.restore(path)
    assert v.numpy().tolist() == [1.0, 2.0]
