"""Lists of tensors, as `tf.TensorArray` makes in functions, and optionals live on the device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf

X = np.arange(12, dtype="f").reshape(4, 3) / 10


@tf.function
def recurrent(a):
    states = tf.TensorArray(tf.float32, size=4)
    state = tf.zeros([3])
    for i in tf.range(4):
        state = tf.tanh(state + a[i])
        states = states.write(i, state)
    return states.stack()


@tf.function
def growing(a):
    sums = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in range(3):
        a = a * 1.5
        sums = sums.write(i, tf.reduce_sum(a))
    return sums.stack(), sums.size()


@tf.function
def joined(a):
    parts = tf.TensorArray(tf.float32, size=3, infer_shape=False)
    for i in range(3):
        parts = parts.write(i, a[: i + 1])
    return parts.concat()


@tf.function
def cut(a):
    parts = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(a, [1, 3])
    return parts.read(1), parts.size()


@tf.function
def gathered(a):
    return tf.TensorArray(tf.float32, size=4).unstack(a).gather([2, 0])


@tf.function
def scattered(a):
    return tf.TensorArray(tf.float32, size=4, element_shape=[3]).scatter([3, 1], a[:2]).stack()


@tf.function
def mapped(a):
    return tf.map_fn(lambda row: tf.reduce_sum(row) * row, a)


@tf.function
def scanned(a):
    return tf.scan(lambda before, row: before * 0.5 + row, a)


@tf.function
def pushed(a):
    handle = tf.raw_ops.EmptyTensorList(element_shape=[3], max_num_elements=-1, element_dtype=tf.float32)
    handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=a[0])
    handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=a[1])
    handle, last = tf.raw_ops.TensorListPopBack(input_handle=handle, element_shape=[3], element_dtype=tf.float32)
    handle = tf.raw_ops.TensorListResize(input_handle=handle, size=2)
    shape = tf.raw_ops.TensorListElementShape(input_handle=handle, shape_type=tf.int32)
    return last, shape, tf.raw_ops.TensorListStack(input_handle=handle, element_shape=[3], element_dtype=tf.float32, num_elements=-1)


@pytest.mark.parametrize(
    "function", [recurrent, growing, joined, cut, gathered, scattered, mapped, scanned, pushed], ids=lambda f: f.python_function.__name__
)
def test_functions_with_lists_equal_plain_tensorflow_without_a_read(no_fallback, function):
    results = tf.nest.flatten(function(tf.constant(X)))
    assert lazy_core.report().counters["barriers"] == 0 and all(lazy_tf.is_lazy(r) for r in results)
    with tf.device("CPU:0"):
        plain = tf.nest.flatten(function(tf.constant(X)))
    for a, b in zip(results, plain, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_gradients_pass_through_loops_over_lists(no_fallback):
    def gradient():
        v = tf.Variable(X)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(recurrent(v) ** 2)
        return tape.gradient(loss, v).numpy()

    mine = gradient()
    with tf.device("CPU:0"):
        np.testing.assert_allclose(mine, gradient(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("index", [-1, 4])
@pytest.mark.parametrize("place", ["/device:LAZY:0", "CPU:0"])
def test_an_element_outside_a_list_raises_as_plain_tensorflow_does(lazy, index, place):
    with tf.device(place):
        handle = tf.raw_ops.TensorListFromTensor(tensor=tf.constant(X) * 1, element_shape=[3])
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"Trying to access element {index} in a list with 4 elements"):
            tf.raw_ops.TensorListGetItem(input_handle=handle, index=index, element_shape=[3], element_dtype=tf.float32)


def test_an_optional_holds_pending_tensors(no_fallback):
    full = tf.experimental.Optional.from_value({"a": tf.constant(X) * 2})
    assert bool(full.has_value()) and not bool(tf.experimental.Optional.empty(full.element_spec).has_value())
    value = full.get_value()["a"]
    assert lazy_core.report().counters["barriers"] == 0
    np.testing.assert_array_equal(value.numpy(), X * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
        tf.experimental.Optional.empty(full.element_spec).get_value()


def test_lists_and_optionals_move_to_the_cpu(lazy):
    handle = tf.raw_ops.TensorListFromTensor(tensor=tf.constant(X) * 2, element_shape=[3])
    full = tf.raw_ops.OptionalFromValue(components=[tf.constant(X) * 2])
    with tf.device("CPU:0"):
        stacked = tf.raw_ops.TensorListStack(input_handle=tf.identity(handle), element_shape=[3], element_dtype=tf.float32, num_elements=-1)
        (value,) = tf.raw_ops.OptionalGetValue(optional=tf.identity(full), output_types=[tf.float32], output_shapes=[[4, 3]])
    np.testing.assert_array_equal(stacked.numpy(), X * 2)
    np.testing.assert_array_equal(value.numpy(), X * 2)
