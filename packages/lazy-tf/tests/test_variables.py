"""Variables are rebound functionally and behave as TensorFlow's."""

from __future__ import annotations

import inspect

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


NUMBERS = {
    "lr": 0.1,
    "alpha": 0.1,
    "rho": 0.9,
    "momentum": 0.5,
    "epsilon": 1e-7,
    "beta": 0.9,
    "beta1": 0.9,
    "beta2": 0.999,
    "beta1_power": 0.9,
    "beta2_power": 0.999,
    "l1": 0.01,
    "l2": 0.02,
    "l2_shrinkage": 0.03,
    "lr_power": -0.5,
    "logbase": 1.0,
    "sign_decay": 0.7,
}
# The operation, its slot variables in order, and what is not as in NUMBERS.
STEPS = [
    ("ResourceApplyGradientDescent", (), {}),
    ("ResourceApplyMomentum", ("accum",), {}),
    ("ResourceApplyMomentum", ("accum",), {"use_nesterov": True}),
    ("ResourceApplyKerasMomentum", ("accum",), {"use_nesterov": True}),
    ("ResourceApplyAdam", ("m", "v"), {}),
    ("ResourceApplyAdam", ("m", "v"), {"use_nesterov": True}),
    ("ResourceApplyAdamWithAmsgrad", ("m", "v", "vhat"), {}),
    ("ResourceApplyAdaMax", ("m", "v"), {}),
    ("ResourceApplyAdadelta", ("accum", "accum_update"), {}),
    ("ResourceApplyAdagrad", ("accum",), {}),
    ("ResourceApplyAdagradV2", ("accum",), {}),
    ("ResourceApplyAdagradDA", ("gradient_accumulator", "gradient_squared_accumulator"), {"global_step": np.int64(3)}),
    ("ResourceApplyRMSProp", ("ms", "mom"), {}),
    ("ResourceApplyCenteredRMSProp", ("mg", "ms", "mom"), {}),
    ("ResourceApplyFtrl", ("accum", "linear"), {}),
    ("ResourceApplyFtrl", ("accum", "linear"), {"multiply_linear_by_lr": True, "lr_power": -0.7}),
    ("ResourceApplyFtrlV2", ("accum", "linear"), {}),
    ("ResourceApplyAddSign", ("m",), {}),
    ("ResourceApplyPowerSign", ("m",), {}),
    ("ResourceApplyProximalAdagrad", ("accum",), {}),
    ("ResourceApplyProximalGradientDescent", (), {}),
]


@pytest.mark.parametrize(("name", "slots", "special"), STEPS, ids=[f"{n}-{'-'.join(o)}" for n, _, o in STEPS])
def test_optimiser_steps_equal_plain_tensorflow(no_fallback, name, slots, special):
    step = getattr(tf.raw_ops, name)
    wanted = inspect.signature(step).parameters
    numbers = {k: v for k, v in NUMBERS.items() if k in wanted} | special
    gradient = "grad" if "grad" in wanted else "delta"

    def three_steps():
        v = tf.Variable(W)
        # Squares and maxima are positive, and centred squares exceed the squared mean.
        held = {s: tf.Variable(np.abs(W) * (0.1 if s == "mg" else 1) + 0.1 * (k + 1)) for k, s in enumerate(slots)}
        for _ in range(3):
            step(var=v.handle, **{s: h.handle for s, h in held.items()}, **numbers, **{gradient: tf.constant(W) * 0.5})
        return [x.numpy() for x in (v, *held.values())]

    mine = three_steps()
    with tf.device("CPU:0"):
        plain = three_steps()
    for a, b in zip(mine, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rows_are_combined_as_plain_tensorflow_combines_them(no_fallback):
    def combined():
        results = []
        for kind in ("mul", "div", "max", "min", "add", "sub"):
            v = tf.Variable(W)
            getattr(v, f"scatter_{kind}")(tf.IndexedSlices(tf.constant(W[:3]) + 2.0, [1, 3, 1]))
            results.append(v.numpy())
        return results

    mine = combined()
    with tf.device("CPU:0"):
        for a, b in zip(mine, combined(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_slices_are_assigned_and_a_moving_one_compiles_twice(no_fallback):
    def assigned():
        v = tf.Variable(W)
        v[1].assign([7.0, 8.0, 9.0])
        v[::2, 1:].assign(tf.ones([2, 2]))
        v[::-1, 0].assign([1.0, 2.0, 3.0, 4.0])
        v[..., tf.newaxis, 2].assign(tf.zeros([4, 1]))
        return v.numpy()

    mine = assigned()
    with tf.device("CPU:0"):
        np.testing.assert_array_equal(mine, assigned())
    lazy_core.reset_report()
    v = tf.Variable(np.zeros((40, 3), "f"))
    for i in range(10):
        v[i].assign(tf.ones([3]) * i)
        lazy_core.barrier()
    np.testing.assert_array_equal(v.numpy()[:10, 0], np.arange(10))
    assert lazy_core.report().counters["compiles"] <= 3
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        v[0].assign(tf.ones([5]))


def test_checkpoints_save_and_restore(lazy, tmp_path):
    v = tf.Variable([1.0, 2.0])
    checkpoint = tf.train.Checkpoint(v=v)
    path = checkpoint.save(str(tmp_path / "c"))
    v.assign([0.0, 0.0])
    checkpoint.restore(path)
    assert v.numpy().tolist() == [1.0, 2.0]
