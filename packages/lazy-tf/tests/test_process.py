"""The device in threads, and at the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import traceback
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf
from lazy_core import values


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
from lazy_core import values
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
from lazy_core import values
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


def test_gradients_on_the_device_leave_plain_code_alone():
    """What TensorFlow's gradient functions keep for later use is kept for each device."""

    def devices():
        x = tf.ones([3, 2, 4])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x * x)
        return {t.device[-5:] for t in (x, y, tape.gradient(y, x))}

    with lazy_tf.device():
        assert devices() == {"AZY:0"}
    assert devices() == {"CPU:0"}
    with lazy_tf.device():
        assert devices() == {"AZY:0"}


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


def test_a_debugger_that_shows_variables_runs_nothing():
    """The `repr` of a pending tensor or variable tells shape, operations and line there; elsewhere it shows the contents."""
    window = {}
    code = compile("def show(x):\n    return repr(x)\n", "/somewhere/debugpy/_vendored/pydevd/_pydevd_bundle/pydevd_safe_repr.py", "exec")
    exec(code, window)
    with lazy_tf.device():
        lazy_core.reset_report()
        x = tf.constant([1.0, 2.0]) * 2
        v = tf.Variable([1.0, 2.0])
        v.assign_add(x)
        for y in (x, v):
            assert "pending: " in window["show"](y)
            assert "shape=(2,)" in window["show"](y)
        assert "test_process.py:" in lazy_core.explain(x)
        assert "mul" in lazy_core.graph(x)
        assert lazy_core.report().counters["barriers"] == 0
        assert "[2., 4.]" in repr(x)
        assert "[3., 6.]" in window["show"](v)
    with pytest.raises(TypeError, match="not a lazy tensor"), tf.device("CPU:0"):
        lazy_core.explain(tf.constant(1.0))


PREAMBLE = """
import os, signal, sys, threading, time
import tensorflow as tf
import lazy_core, lazy_tf
lazy_tf.enable()
x = tf.constant([0.0, 1.0, 2.0])
"""


def printed(body: str, **environment: str) -> list[str]:
    """The lines that a program in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_forked_child_that_uses_pending_tensors_gets_a_clear_error() -> None:
    """And the parent goes on."""
    out = printed(
        """
        (x * 3).numpy()
        y = x + 1
        child = os.fork()
        if child == 0:
            try:
                y.numpy()
            except Exception as error:
                print("child:", "spawn" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", y.numpy().tolist())
        """
    )
    assert out == ["child: True", "parent: [1.0, 2.0, 3.0]"]


def test_exit_with_pending_work_is_silent() -> None:
    """Pending tensors, a variable and a gradient that outlive the interpreter's modules."""
    out = printed(
        """
        import builtins
        v = tf.Variable(x)
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * v)
        sys.keep, builtins.keep, tf.keep = x + 1, v, tape.gradient(y, v)
        """
    )
    assert out == []


def test_an_interrupt_while_it_compiles_ends_in_a_consistent_state() -> None:
    """Ctrl-C in a loop that compiles all the time: KeyboardInterrupt, and what was pending is right afterwards."""
    out = printed(
        """
        done = threading.Event()
        def interrupt():
            while not done.wait(1.5):  # one that arrives in a destructor or in jax's garbage callback is swallowed there
                os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        y = x + 1
        def compile_for_ever():
            n = 0
            while True:
                n += 1
                float(tf.reduce_sum(tf.sin(tf.ones(n)) * 2))
        try:
            compile_for_ever()
        except KeyboardInterrupt:
            done.set()
            print("interrupted")
        print((y * 2).numpy().tolist(), tf.ones(2).numpy().tolist())
        """
    )
    assert out == ["interrupted", "[2.0, 4.0, 6.0] [1.0, 1.0]"]


def test_interrupts_at_any_moment_of_training_are_raised_as_such() -> None:
    """Some hundred signals at random moments: each arrives as KeyboardInterrupt, and the variable is what some steps made of it."""
    out = printed(
        """
        from lazy_core.testing import interrupt_at_random
        v = tf.Variable(tf.zeros((30, 30)))
        def step(k):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(v)
            v.assign_add(tape.gradient(loss, v))
            float(tf.reduce_sum(tf.sin(tf.ones(k % 40 + 1))))
        print(interrupt_at_random(step, v.numpy) > 5)
        """
    )
    assert out == ["True"]


@pytest.mark.parametrize("extension", ["on", "off"])
def test_an_interrupt_while_it_waits_for_a_result_ends_in_a_consistent_state(extension: str) -> None:
    """Ctrl-C during a read of what is being computed: the value is there afterwards."""
    out = printed(
        """
        y = big = tf.eye(1000)
        for _ in range(30):
            y = tf.matmul(y, big)
        lazy_core.barrier()  # compiled and handed to the device by now
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            y.numpy()
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted")
        print(y.numpy()[0, :2].tolist(), (x + 1).numpy().tolist())
        """,
        LAZY_TF_EXTENSION=extension,
    )
    assert out == ["interrupted", "[1.0, 0.0] [1.0, 2.0, 3.0]"]


class TimeIsUp(BaseException):
    """What the handler of a signal may raise that is no error."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, TimeIsUp])
def test_what_is_no_error_leaves_a_callback_as_it_is(lazy: None, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]) -> None:
    """It is not turned into one of TensorFlow's exceptions, and what was pending is right afterwards."""
    x = tf.ones(3) * 2
    real = values.to_host

    def interrupted(value: Any) -> Any:
        monkeypatch.setattr(values, "to_host", real)
        raise kind("now")

    monkeypatch.setattr(values, "to_host", interrupted)
    with pytest.raises(kind):
        x.numpy()
    assert x.numpy().tolist() == [2.0, 2.0, 2.0]
