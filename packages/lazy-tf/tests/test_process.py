"""The device in threads, and at the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback

import numpy as np
import tensorflow as tf

import lazy_tf


def test_threads_record_side_by_side():
    errors: list[str] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(k: int) -> None:
        try:
            with lazy_tf.device():
                for _ in range(10):
                    x = tf.constant(np.full((4, 4), k, "f"))
                    with tf.GradientTape() as tape:
                        tape.watch(x)
                        y = tf.reduce_sum(tf.matmul(x, x))
                    np.testing.assert_allclose(tape.gradient(y, x).numpy(), np.full((4, 4), 8.0 * k))
        except Exception:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join(timeout=120)
    finally:
        sys.setswitchinterval(before)
    assert not any(t.is_alive() for t in threads) and errors == []


def test_lazy_inputs_are_caught_in_a_thread_without_the_scope():
    with lazy_tf.device():
        x = tf.constant([1.0, 2.0]) * 2
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append((x + 1).device))
    thread.start()
    thread.join()
    assert seen == [lazy_tf.DEVICE]


SCRIPT = """
import builtins, sys
import tensorflow as tf
import lazy_tf
lazy_tf.enable()
kept = [tf.constant([1.0, 2.0]) * i for i in range(10)]
variable = tf.Variable(kept[1])
tf.keep = kept
builtins.keep = [tf.constant(3.0) * 2, tf.Variable(2.0)]
sys.keep = tf.constant(1.0) + 1
print(float(tf.reduce_sum(kept[3] + 2.5)))
"""


def test_the_process_ends_cleanly_with_live_handles():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=180, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "14.0"


RESET = """
import tensorflow as tf
import lazy_tf
from tensorflow.python.eager import context
with lazy_tf.device():
    tf.constant([1.0, 2.0]) * 2
context._reset_context()
with lazy_tf.device():
    x = tf.constant([1.0, 2.0]) * 2
    v = tf.Variable([1.0, 2.0])
    v.assign_add(x)
    print(lazy_tf.is_lazy(x), v.numpy().tolist(), tf.where(x > 2).numpy().tolist())
"""


def test_the_device_is_registered_anew_after_a_context_reset():
    done = subprocess.run(
        [sys.executable, "-c", RESET], capture_output=True, text=True, timeout=180, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "True [3.0, 6.0] [[1]]"


def test_registering_twice_is_harmless():
    lazy_tf.register()
    lazy_tf.register()
    with lazy_tf.device() as name:
        assert name == lazy_tf.DEVICE


def test_the_short_device_name_works():
    lazy_tf.register()
    with tf.device("/device:LAZY:0"):
        assert lazy_tf.is_lazy(tf.constant(1.0))


def test_enable_and_disable_change_the_default():
    lazy_tf.enable()
    try:
        assert lazy_tf.is_lazy(tf.constant(1.0))
    finally:
        lazy_tf.disable()
    assert not lazy_tf.is_lazy(tf.constant(1.0))
