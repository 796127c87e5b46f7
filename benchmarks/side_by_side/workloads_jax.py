"""The workloads in jax as one would write them by hand: pure functions, one `jax.jit` a step, old state donated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .models import BERT_HEADS, BERT_LAYERS, BERT_WIDTH, CNN_CHANNELS, LSTM_HIDDEN, Batch, Model
from .peers import Peer

Parameters = dict[str, Any]


def start(peer: Peer) -> None:
    """Nothing to do: importing jax is all it takes."""


def _dense(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _mlp(p: Parameters, statistics: Parameters, x: Any) -> tuple[Any, Parameters]:
    return _dense(p, "fc2", jax.nn.relu(_dense(p, "fc1", jax.nn.relu(_dense(p, "fc0", x))))), statistics


def _cnn(p: Parameters, statistics: Parameters, x: Any) -> tuple[Any, Parameters]:
    kept = {}
    for k in range(len(CNN_CHANNELS)):
        x = lax.conv(x, p[f"conv{k}.weight"], (1, 1), "SAME") + p[f"conv{k}.bias"][:, None, None]
        mean, variance, count = x.mean((0, 2, 3)), x.var((0, 2, 3)), x.size // x.shape[1]
        kept[f"mean{k}"] = 0.9 * statistics[f"mean{k}"] + 0.1 * mean
        kept[f"variance{k}"] = 0.9 * statistics[f"variance{k}"] + 0.1 * variance * count / (count - 1)
        scale = p[f"bn{k}.weight"] * lax.rsqrt(variance + 1e-5)
        x = jax.nn.relu((x - mean[:, None, None]) * scale[:, None, None] + p[f"bn{k}.bias"][:, None, None])
        if k < 2:
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return _dense(p, "fc", x.mean((2, 3))), kept


def _lstm(p: Parameters, statistics: Parameters, x: Any) -> tuple[Any, Parameters]:
    def cell(state: Any, element: Any) -> tuple[Any, None]:
        h, c = state
        gates = element @ p["cell.weight_ih"].T + p["cell.bias_ih"] + h @ p["cell.weight_hh"].T + p["cell.bias_hh"]
        enter, forget, new, leave = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return (jax.nn.sigmoid(leave) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[1], LSTM_HIDDEN))
    (h, _), _ = lax.scan(cell, (zeros, zeros), x)
    return _dense(p, "fc", h), statistics


def _norm(p: Parameters, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _bert(p: Parameters, statistics: Parameters, tokens: Any) -> tuple[Any, Parameters]:
    rows, length = tokens.shape
    at = "bert.embeddings."
    x = p[f"{at}word_embeddings.weight"][tokens] + p[f"{at}position_embeddings.weight"][:length] + p[f"{at}token_type_embeddings.weight"][0]
    x = _norm(p, f"{at}LayerNorm", x)
    for layer in range(BERT_LAYERS):
        at = f"bert.encoder.layer.{layer}."
        q, k, v = (
            _dense(p, f"{at}attention.self.{part}", x).reshape(rows, length, BERT_HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        weights = jax.nn.softmax(q @ k.swapaxes(2, 3) / (BERT_WIDTH / BERT_HEADS) ** 0.5)
        attended = (weights @ v).transpose(0, 2, 1, 3).reshape(rows, length, BERT_WIDTH)
        x = _norm(p, f"{at}attention.output.LayerNorm", x + _dense(p, f"{at}attention.output.dense", attended))
        inner = jax.nn.gelu(_dense(p, f"{at}intermediate.dense", x), approximate=False)
        x = _norm(p, f"{at}output.LayerNorm", x + _dense(p, f"{at}output.dense", inner))
    return _dense(p, "classifier", jnp.tanh(_dense(p, "bert.pooler.dense", x[:, 0]))), statistics


FORWARD: dict[str, Callable[..., tuple[Any, Parameters]]] = {"tiny": _mlp, "mlp": _mlp, "cnn": _cnn, "lstm": _lstm, "bert": _bert}


def _first_statistics(model: Model) -> Parameters:
    if model.name != "cnn":
        return {}
    widths = [outputs for _, outputs in CNN_CHANNELS]
    zeros = {f"mean{k}": jnp.zeros(width) for k, width in enumerate(widths)}
    return zeros | {f"variance{k}": jnp.ones(width) for k, width in enumerate(widths)}


def _sgd(p: Parameters, state: Parameters, gradients: Parameters, lr: float, momentum: float) -> tuple[Parameters, Parameters]:
    speed = jax.tree.map(lambda m, g: momentum * m + g, state["speed"], gradients)
    return jax.tree.map(lambda w, m: w - lr * m, p, speed), {"speed": speed}


def _adam(p: Parameters, state: Parameters, gradients: Parameters, lr: float, weight_decay: float = 0.0) -> tuple[Parameters, Parameters]:
    t = state["t"] + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], gradients)
    size, root = lr / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
    moved = jax.tree.map(lambda w, m, v: w * (1 - lr * weight_decay) - size * m / (jnp.sqrt(v) / root + 1e-8), p, first, second)
    return moved, {"t": t, "first": first, "second": second}


def prepare(model: Model) -> Parameters:
    """The parameters on the host."""
    return model.parameters()


class Training:
    """A model in training: `step(place(batch))` is a training step and gives the loss, on the device."""

    def __init__(self, model: Model, prepared: Parameters, peer: Peer) -> None:
        forward, update = FORWARD[model.name], _sgd if model.optimizer == "sgd" else _adam
        parameters = {name: jnp.asarray(value) for name, value in prepared.items()}
        moments = ("speed",) if model.optimizer == "sgd" else ("first", "second")
        state: Parameters = {moment: jax.tree.map(jnp.zeros_like, parameters) for moment in moments}
        if model.optimizer != "sgd":
            state["t"] = jnp.float32(0)

        def loss_of(p: Parameters, statistics: Parameters, x: Any, y: Any) -> tuple[Any, Parameters]:
            logits, statistics = forward(p, statistics, x)
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), statistics

        def step(p: Parameters, statistics: Parameters, state: Parameters, x: Any, y: Any) -> tuple[Any, ...]:
            (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(p, statistics, x, y)
            p, state = update(p, state, gradients, **model.hyperparameters)
            return loss, p, statistics, state

        self._carried = (parameters, _first_statistics(model), state)
        self._step = jax.jit(step, donate_argnums=(0, 1, 2))

    def place(self, batch: Batch) -> tuple[Any, Any]:
        """A batch on the device."""
        return jnp.asarray(batch[0]), jnp.asarray(batch[1])

    def step(self, batch: tuple[Any, Any]) -> Any:
        """Forward, backward and update."""
        loss, *carried = self._step(*self._carried, *batch)
        self._carried = tuple(carried)
        return loss


def read(value: Any) -> np.ndarray:
    """The value on the host, computed."""
    return np.asarray(value)


def inference(model: Model, peer: Peer) -> Callable[[np.ndarray], np.ndarray]:
    """A function from a host array to the model's answer on the host."""
    parameters = {name: jnp.asarray(value) for name, value in prepare(model).items()}
    forward = jax.jit(lambda p, x: FORWARD[model.name](p, {}, x)[0])
    return lambda x: np.asarray(forward(parameters, x))


def chain(operations: int, backward: bool, peer: Peer) -> Callable[[], np.ndarray]:
    """A function that runs `operations` operations (add, mul, relu, matmul in turn) on f32[2,2] and reads the result, or a gradient."""
    x, a = jnp.array([[0.1, 0.2], [0.3, 0.4]]), jnp.full((2, 2), 0.1)
    b, c = jnp.full((2, 2), 0.5), jnp.array([[0.6, 0.4], [0.4, 0.6]])

    def forward(x: Any, a: Any, b: Any, c: Any) -> Any:
        for _ in range(operations // 4):
            x = jax.nn.relu((x + a) * b) @ c
        return x

    if backward:
        gradients = jax.jit(jax.grad(lambda b, c: forward(x, a, b, c).sum(), argnums=(0, 1)))
        return lambda: np.asarray(gradients(b, c)[0])
    run = jax.jit(forward)
    return lambda: np.asarray(run(x, a, b, c))
