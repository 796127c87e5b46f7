"""What surrounds operations: other libraries, lists of devices, files, strategies, policies, long loops."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import lazy_core
import lazy_tf

X = np.random.default_rng(0).standard_normal((8, 4)).astype("f")


def small_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([layers.Input((4,)), layers.Dense(6, "relu"), layers.Dense(2)])


def trained(**settings):
    """A small model after three epochs, and its predictions."""
    model = small_model()
    model.compile("adam", "mse", **settings)
    model.fit(X, X[:, :2], batch_size=4, epochs=3, shuffle=False, verbose=0)
    return model, model.predict(X, verbose=0)


def test_the_device_is_listed_once():
    """Whoever asks for all devices, or for this kind, finds it."""
    lazy_tf.register()
    lazy_tf.register()
    assert [d.name for d in tf.config.list_logical_devices("LAZY")] == [lazy_tf.DEVICE]
    assert [d.device_type for d in tf.config.list_logical_devices()] == ["CPU", "LAZY"]
    with tf.device(tf.config.list_logical_devices("LAZY")[0].name):
        assert lazy_tf.is_lazy(tf.ones(2))


@pytest.mark.parametrize("take", [np.from_dlpack, lambda x: tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x))])
def test_other_libraries_get_copies_by_dlpack(no_fallback, take):
    """And writing to one changes nothing here."""
    x = tf.constant(X) * 2
    found = np.array(take(x))
    np.testing.assert_array_equal(found, X * 2)
    other = np.from_dlpack(x)
    assert not np.shares_memory(other, np.from_dlpack(x)) and x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal((x + 1).numpy(), X * 2 + 1)


def test_plain_tensors_are_still_exported_without_a_copy():
    lazy_tf.register()
    with tf.device("CPU:0"):
        x = tf.constant(np.ones(100, "f"))
    assert np.shares_memory(np.from_dlpack(x), np.from_dlpack(x))


@pytest.mark.parametrize("strategy", [tf.distribute.OneDeviceStrategy, lambda device: tf.distribute.MirroredStrategy([device])])
def test_a_strategy_of_one_replica_runs_on_the_device(strategy):
    """With the values of plain code."""
    with lazy_tf.device():
        chosen = strategy(lazy_tf.DEVICE)
        with chosen.scope():
            v = tf.Variable(1.0)
        total = chosen.reduce("SUM", chosen.run(lambda: v * 3.0), axis=None)
        assert float(total) == 3.0


def test_a_strategy_of_several_replicas_is_refused_by_name():
    """There is one lazy device; the error names the one that does not exist."""
    lazy_tf.register()
    second = lazy_tf.DEVICE.replace("LAZY:0", "LAZY:1")
    with pytest.raises(ValueError, match=r"there is no .*LAZY:1: the lazy device is one"):
        tf.distribute.MirroredStrategy([lazy_tf.DEVICE, second])


@pytest.mark.filterwarnings("ignore")  # h5py's and protobuf's
def test_a_trained_model_is_saved_and_loaded_anywhere(tmp_path):
    """`.keras`, weights, a checkpoint and a SavedModel, written from the device; read on it and without it."""
    with lazy_tf.device():
        model, expected = trained(run_eagerly=True)
        model.save(tmp_path / "model.keras")
        model.save_weights(tmp_path / "model.weights.h5")
        tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
        model.export(str(tmp_path / "saved"), verbose=False)
    for scope in (lazy_tf.device(), tf.device("CPU:0")):
        with scope:
            loaded, fresh, restored = keras.models.load_model(tmp_path / "model.keras"), small_model(), small_model()
            fresh.load_weights(tmp_path / "model.weights.h5")
            tf.train.Checkpoint(model=restored).read(str(tmp_path / "checkpoint")).expect_partial()
            saved = tf.saved_model.load(str(tmp_path / "saved"))
            for found in (loaded(X), fresh(X), restored(X), saved.serve(tf.constant(X))):
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_module_is_saved_with_what_its_variables_hold(tmp_path):
    class Scaled(tf.Module):
        def __init__(self):
            super().__init__()
            self.factor = tf.Variable([1.0, 2.0])

        @tf.function(input_signature=[tf.TensorSpec([2])])
        def scale(self, x):
            return self.factor * x

    with lazy_tf.device():
        module = Scaled()
        module.factor.assign_add([1.0, 1.0])
        tf.saved_model.save(module, str(tmp_path))
    assert tf.saved_model.load(str(tmp_path)).scale(tf.ones(2)).numpy().tolist() == [2.0, 3.0]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains_as_on_the_cpu(policy):
    """float16 scales its loss, which reads whether gradients are finite."""

    def losses():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([layers.Input((4,)), layers.Dense(6, "relu"), layers.Dense(2, dtype="float32")])
        model.compile("adam", "mse", run_eagerly=True)
        return model.layers[0].compute_dtype, model.fit(X, X[:, :2], batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]

    keras.config.set_dtype_policy(policy)
    try:
        plain = losses()
        with lazy_tf.device():
            mine = losses()
    finally:
        keras.config.set_dtype_policy("float32")
    assert mine[0] == plain[0] == policy.removeprefix("mixed_")
    np.testing.assert_allclose(mine[1], plain[1], rtol=2e-2)


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras's variables
def test_callbacks_see_and_change_training():
    """Early stopping, the best weights, a schedule and a history, as on the CPU."""

    def run():
        keras.utils.set_random_seed(0)
        model = small_model()
        model.compile(keras.optimizers.SGD(0.3), "mse", run_eagerly=True)
        calls = [
            keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            keras.callbacks.TerminateOnNaN(),
        ]
        history = model.fit(X, X[:, :2], batch_size=4, epochs=5, shuffle=False, verbose=0, callbacks=calls).history
        return len(history["loss"]), history["learning_rate"], model.evaluate(X, X[:, :2], verbose=0)

    plain = run()
    with lazy_tf.device():
        mine = run()
    assert mine[:1] == plain[:1]
    np.testing.assert_allclose(mine[1], plain[1], rtol=1e-6)
    np.testing.assert_allclose(mine[2], plain[2], rtol=1e-4)


def test_a_thousand_steps_with_a_changing_rate_compile_three_programs_and_read_nothing():
    """Each step has another learning rate, and only the end is read."""
    with lazy_tf.device():
        v, rate = tf.Variable(X[:, :3]), tf.Variable(0.1)
        x = tf.constant(X.T)
        count = tf.Variable(0, dtype=tf.int64)
        lazy_core.barrier()
        lazy_core.reset_report()
        for step in range(1000):
            rate.assign(0.1 / (1 + step))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(x @ v) ** 2)
            v.assign_sub(rate * tape.gradient(loss, v))
            count.assign_add(1)
        counters = lazy_core.report().counters
        assert counters["compiles"] <= 3 and counters["fallbacks"] == 0, counters
        assert 900 <= counters["barriers"] <= 1100 and not [e for e in lazy_core.report().events if e.kind == "host_read"]
        assert np.isfinite(float(loss)) and int(count) == 1000


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Ftrl"])
def test_legacy_optimizers_of_tf_keras_take_the_steps_of_cpu_tensorflow(name):
    tf_keras = pytest.importorskip("tf_keras", reason="tf_keras is a package of its own, and not everywhere")

    def run():
        v = tf.Variable(X)
        optimizer = getattr(tf_keras.optimizers.legacy, name)(0.1)
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(v) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, v), v)])
        return v.numpy()

    plain = run()
    with lazy_tf.device():
        np.testing.assert_allclose(run(), plain, rtol=1e-5, atol=1e-6)
