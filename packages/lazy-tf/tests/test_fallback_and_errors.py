"""What the device cannot record runs on the CPU and is named; what is wrong raises TensorFlow's own errors, and the trace lives on."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf
from lazy_core import events
from lazy_tf import capi
from lazy_tf.attributes import op_info

ROWS = np.arange(40, dtype="f").reshape(8, 5)


def test_unknown_operations_fall_back_and_are_named(lazy):
    x = tf.constant([1.0, -1.0, 2.0]) * 1
    assert tf.where(x > 0).numpy().tolist() == [[0], [2]]
    assert tf.boolean_mask(x, x > 0).numpy().tolist() == [1.0, 2.0]
    assert tf.unique(tf.constant([1, 1, 2])).y.numpy().tolist() == [1, 2]
    assert events.fallback_names["tf:Where"] == 2
    named = [e for e in events.log if e.kind == "fallback" and "tf: Where" in e.cause]
    assert named and __file__ in (named[0].site or "")


def test_strings_stay_on_the_cpu(lazy):
    assert tf.strings.join(["a", "b"]).numpy() == b"ab"
    assert tf.strings.as_string(tf.constant([1.5])).numpy()[0].startswith(b"1.5")
    assert events.fallback_names["tf:AsString"] == 1


def test_fallbacks_can_be_forbidden(lazy):
    x = tf.constant([1.0, -1.0]) * 2
    with lazy_core.strict("fallback"), pytest.raises(tf.errors.InternalError, match="Where"):
        tf.where(x > 0)
    assert x.numpy().tolist() == [2.0, -2.0]


def test_data_sets_feed_the_device_without_counting_as_fallback(lazy):
    data = tf.data.Dataset.from_tensor_slices((ROWS, np.arange(8))).map(lambda a, b: (a * 2, b)).batch(4)
    total = tf.constant(0.0)
    for a, _ in data:
        total += tf.reduce_sum(a)
    assert float(total) == 2 * ROWS.sum()
    assert not any("Dataset" in name or "Iterator" in name for name in events.fallback_names)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tf.matmul(x, x),
        lambda x: x + tf.zeros([3, 3]),
        lambda x: tf.reshape(x, [7, 7]),
        lambda x: tf.concat([x, tf.zeros([2, 4])], 0),
        lambda x: tf.transpose(x, [0, 0]),
        lambda x: tf.nn.bias_add(x, tf.zeros([4])),
        lambda x: tf.split(x, 3, axis=1),
        lambda x: tf.reduce_sum(x, axis=5),
        lambda x: tf.slice(x, [0, 4], [1, 9]),
        lambda x: tf.squeeze(x, 0),
        lambda x: tf.nn.conv2d(x, x, 1, "SAME"),
        lambda x: tf.linalg.inv(x),
        lambda x: x[9],
    ],
)
def test_bad_shapes_raise_as_plain_tensorflow_does(lazy, call):
    def outcome():
        x = tf.constant(ROWS) * 1
        with pytest.raises((ValueError, tf.errors.OpError)) as caught:
            call(x)
        return caught.value, x

    mine, x = outcome()
    with tf.device("CPU:0"):
        plain, _ = outcome()
    assert type(mine) is type(plain)
    assert str(mine)[:60] == str(plain)[:60]
    np.testing.assert_array_equal(x.numpy(), ROWS)


def test_host_known_indices_out_of_range_raise(lazy):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = 9 is not in \[0, 8\)"):
        tf.gather(tf.constant(ROWS) * 1, [0, 9])


def test_unsupported_dtype_stays_on_the_cpu(lazy):
    with tf.device("CPU:0"):
        text = tf.constant("abc")
    assert tf.identity(text).numpy() == b"abc"


def test_reading_an_unassigned_variable_raises(lazy):
    v = tf.Variable([1.0, 2.0])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        v.assign_add([1.0, 2.0, 3.0])
    assert v.numpy().tolist() == [1.0, 2.0]


def test_handles_are_freed(lazy):
    from lazy_tf.tensor import live_handles

    [tf.constant(ROWS) * i for i in range(20)]  # TensorFlow itself keeps the constants of Python numbers
    gc.collect()
    before = live_handles()
    kept = [tf.constant(ROWS) * i for i in range(20)]
    assert live_handles() >= before + 20
    del kept
    gc.collect()
    assert live_handles() <= before + 4


def test_out_of_range_casts_and_nan_follow_plain_tensorflow(lazy):
    odd = np.array([np.nan, np.inf, -np.inf, 1e20, -3.7] * 20, "f")
    mine = tf.cast(tf.constant(odd) * 1, tf.int32).numpy()
    with tf.device("CPU:0"):
        plain = tf.cast(tf.constant(odd), tf.int32).numpy()
    np.testing.assert_array_equal(mine, plain)


def test_another_device_number_is_refused():
    lazy_tf.register()
    with pytest.raises((ValueError, tf.errors.OpError), match="LAZY:1"), tf.device(lazy_tf.DEVICE.replace(":0", ":1")):
        tf.constant(1.0)


def test_missing_libraries_and_old_versions_are_named():
    with pytest.raises(ImportError, match=r"no libnowhere\.so\.2"):
        capi.library_path("libnowhere")
    with pytest.raises(ImportError, match=r"needs TensorFlow 2\.18 or newer; 2\.9\.1 is installed"):
        capi.check_version("2.9.1")
    with pytest.warns(UserWarning, match=r"up to 2\.21; 3\.0\.0 is installed"):
        capi.check_version("3.0.0")


def test_to_lazy_refuses_other_devices(lazy):
    with tf.device("CPU:0"):
        x = tf.constant(1.0)
    with pytest.raises(lazy_core.LazyError, match="not lazy"):
        lazy_tf.to_lazy(x)


@pytest.mark.parametrize("wrap", [tf.numpy_function, tf.py_function], ids=["numpy_function", "py_function"])
def test_a_barrier_inside_a_callback_is_harmless(lazy, wrap):
    x = tf.constant(ROWS) * 1
    pending = x + 1

    def doubled(a):
        lazy_core.barrier()
        return a * 2

    np.testing.assert_array_equal(wrap(doubled, [x], tf.float32).numpy(), np.multiply(ROWS, 2))
    np.testing.assert_array_equal(pending.numpy(), np.add(ROWS, 1))


def test_operands_of_the_cpu_are_copied_and_other_dtypes_refused(lazy):
    x = tf.constant(ROWS) * 1
    with tf.device("CPU:0"):
        plain, text = tf.constant(ROWS), tf.constant(["a", "b"])
    np.testing.assert_array_equal((x + plain).numpy(), np.multiply(ROWS, 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"string tensor|string is not in the list of allowed values"):
        tf.add(x, text)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected to be a (int32|float) tensor but is a (float|int32) tensor"):
        tf.add(x, tf.constant([1, 2]))
    np.testing.assert_array_equal((x + 1).numpy(), np.add(ROWS, 1))


def test_attributes_in_any_order_are_one_signature():
    """TensorFlow serialises them in a random order, which must not make another program each time."""
    parts = {"transpose_a": capi.AttrValue(b=True), "transpose_b": capi.AttrValue(b=False), "T": capi.AttrValue(type=1)}
    blobs = []
    for order in (list(parts), list(reversed(parts))):
        listed = [capi.NameAttrList(attr={name: parts[name]}).SerializeToString() for name in order]
        blobs.append(b"".join(listed))
    assert blobs[0] != blobs[1]
    first, second = (op_info("MatMul").by_blob(blob) for blob in blobs)
    assert first is second and first.values["transpose_a"] is True
