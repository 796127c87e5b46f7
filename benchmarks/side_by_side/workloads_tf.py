"""The workloads in TensorFlow: MLP and LSTM in the eager style, with a tape and variables that are updated in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .models import LSTM_HIDDEN, Batch, Model
from .peers import Peer


def start(peer: Peer) -> None:
    """Make the lazy device the default of the process, for a peer that is lazy."""
    if peer.lazy:
        import lazy_tf

        lazy_tf.enable()


def _maybe_compiled(function: Callable[..., Any], peer: Peer) -> Callable[..., Any]:
    return tf.function(function, jit_compile=True) if peer.compiled else function


def _dense(p: dict[str, Any], name: str, x: Any) -> Any:
    return tf.matmul(x, p[f"{name}.weight"], transpose_b=True) + p[f"{name}.bias"]


def _mlp(p: dict[str, Any], x: Any) -> Any:
    return _dense(p, "fc2", tf.nn.relu(_dense(p, "fc1", tf.nn.relu(_dense(p, "fc0", x)))))


def _lstm(p: dict[str, Any], x: Any) -> Any:
    h = c = tf.zeros((x.shape[1], LSTM_HIDDEN))
    for k in range(x.shape[0]):
        gates = tf.matmul(x[k], p["cell.weight_ih"], transpose_b=True) + p["cell.bias_ih"]
        gates += tf.matmul(h, p["cell.weight_hh"], transpose_b=True) + p["cell.bias_hh"]
        enter, forget, new, leave = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(forget) * c + tf.sigmoid(enter) * tf.tanh(new)
        h = tf.sigmoid(leave) * tf.tanh(c)
    return _dense(p, "fc", h)


FORWARD = {"tiny": _mlp, "mlp": _mlp, "lstm": _lstm}


def prepare(model: Model) -> dict[str, np.ndarray]:
    """The parameters on the host."""
    return model.parameters()


class Training:
    """A model in training: `step(place(batch))` is a training step and gives the loss, on the device."""

    def __init__(self, model: Model, prepared: dict[str, np.ndarray], peer: Peer) -> None:
        lr, momentum = model.hyperparameters["lr"], model.hyperparameters["momentum"]
        forward = FORWARD[model.name]
        parameters = {name: tf.Variable(value) for name, value in prepared.items()}
        speeds = {name: tf.Variable(tf.zeros(value.shape)) for name, value in prepared.items()}

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=forward(parameters, x)))
            for name, gradient in tape.gradient(loss, parameters).items():
                speeds[name].assign(momentum * speeds[name] + gradient)
                parameters[name].assign_sub(lr * speeds[name])
            return loss

        self._step = _maybe_compiled(step, peer)

    def place(self, batch: Batch) -> tuple[Any, Any]:
        """A batch on the device."""
        return tf.constant(batch[0]), tf.constant(batch[1])

    def step(self, batch: tuple[Any, Any]) -> Any:
        """Forward, backward and update."""
        return self._step(*batch)


def read(value: Any) -> np.ndarray:
    """The value on the host, computed."""
    return value.numpy()


def inference(model: Model, peer: Peer) -> Callable[[np.ndarray], np.ndarray]:
    """A function from a host array to the model's answer on the host."""
    parameters = {name: tf.constant(value) for name, value in prepare(model).items()}
    forward = _maybe_compiled(lambda x: FORWARD[model.name](parameters, x), peer)
    return lambda x: forward(tf.constant(x)).numpy()


def chain(operations: int, backward: bool, peer: Peer) -> Callable[[], np.ndarray]:
    """A function that runs `operations` operations (add, mul, relu, matmul in turn) on f32[2,2] and reads the result, or a gradient."""
    x, a = tf.constant([[0.1, 0.2], [0.3, 0.4]]), tf.constant([[0.1, 0.1], [0.1, 0.1]])
    b, c = tf.Variable([[0.5, 0.5], [0.5, 0.5]]), tf.Variable([[0.6, 0.4], [0.4, 0.6]])
    if not backward:
        b, c = tf.constant([[0.5, 0.5], [0.5, 0.5]]), tf.constant([[0.6, 0.4], [0.4, 0.6]])

    def forward() -> Any:
        y = x
        for _ in range(operations // 4):
            y = tf.matmul(tf.nn.relu((y + a) * b), c)
        return y

    def both() -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(forward())
        return tape.gradient(total, [b, c])[0]

    run = _maybe_compiled(both if backward else forward, peer)
    return lambda: run().numpy()
