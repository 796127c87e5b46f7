"""What is computed: shapes, parameters, batches, optimizers, and the losses that any right implementation finds.

Owns the facts that all libraries share.  Imports numpy only, so that a peer's process loads nothing but that peer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MLP_SIZES, TINY_SIZES = (784, 256, 256, 10), (16, 8, 8, 4)
CNN_CHANNELS = ((3, 32), (32, 64), (64, 64))
LSTM_INPUT, LSTM_HIDDEN, LSTM_LENGTH = 64, 128, 32
BERT_VOCABULARY, BERT_WIDTH, BERT_LAYERS, BERT_HEADS, BERT_INNER, BERT_LENGTH, BERT_CLASSES = 1000, 256, 4, 4, 1024, 64, 2

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model and how it is trained.

    Attributes:
        name: "mlp", "cnn", "lstm", "bert", or "tiny", which is an MLP that wakes up a library before something else is timed.
        shapes: name and shape of each parameter, in the order in which they are drawn.
        optimizer: "sgd", "adam" or "adamw".
        hyperparameters: what the optimizer takes, under torch's names.
        batch_size: rows of a batch.
        batch: `batch(rows, seed)` gives inputs and labels.
        losses: the losses of the first steps on the batch of seed 1.
        tolerance: the greatest relative difference from them that rounding explains.
    """

    name: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    optimizer: str
    hyperparameters: dict[str, float]
    batch_size: int
    batch: Callable[..., Batch]
    losses: tuple[float, ...]
    tolerance: float

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters, f32, the same in every process."""
        return _parameters(self.name)


@functools.lru_cache(maxsize=1)
def _parameters(name: str) -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    drawn = {}
    for parameter, shape in MODELS[name].shapes:
        value = random.standard_normal(shape).astype(np.float32)
        if len(shape) > 1:
            scale = np.float32(0.05) if "embeddings" in parameter else 1 / np.sqrt(np.prod(shape[1:]))
            value = value * scale
        elif parameter.endswith("weight"):  # of a norm
            value = 1 + 0.05 * value
        else:
            value = 0.01 * value
        drawn[parameter] = value.astype(np.float32)
    return drawn


def _dense(name: str, outputs: int, inputs: int) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]


def _norm(name: str, width: int) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{name}.weight", (width,)), (f"{name}.bias", (width,))]


def _mlp_shapes(sizes: tuple[int, ...]) -> list[Any]:
    return [entry for k in range(3) for entry in _dense(f"fc{k}", sizes[k + 1], sizes[k])]


def _cnn_shapes() -> list[Any]:
    shapes: list[Any] = []
    for k, (inputs, outputs) in enumerate(CNN_CHANNELS):
        shapes += [(f"conv{k}.weight", (outputs, inputs, 3, 3)), (f"conv{k}.bias", (outputs,)), *_norm(f"bn{k}", outputs)]
    return [*shapes, *_dense("fc", 10, CNN_CHANNELS[-1][1])]


def _lstm_shapes() -> list[Any]:
    gates = 4 * LSTM_HIDDEN
    weights = [("cell.weight_ih", (gates, LSTM_INPUT)), ("cell.weight_hh", (gates, LSTM_HIDDEN))]
    return [*weights, ("cell.bias_ih", (gates,)), ("cell.bias_hh", (gates,)), *_dense("fc", 10, LSTM_HIDDEN)]


def _bert_shapes() -> list[Any]:
    top, width = "bert.embeddings.", BERT_WIDTH
    rows = {"word": BERT_VOCABULARY, "position": BERT_LENGTH, "token_type": 2}
    shapes: list[Any] = [(f"{top}{kind}_embeddings.weight", (count, width)) for kind, count in rows.items()]
    shapes += _norm(f"{top}LayerNorm", width)
    for layer in range(BERT_LAYERS):
        at = f"bert.encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            shapes += _dense(f"{at}attention.self.{part}", width, width)
        shapes += _dense(f"{at}attention.output.dense", width, width) + _norm(f"{at}attention.output.LayerNorm", width)
        shapes += _dense(f"{at}intermediate.dense", BERT_INNER, width)
        shapes += _dense(f"{at}output.dense", width, BERT_INNER) + _norm(f"{at}output.LayerNorm", width)
    return [*shapes, *_dense("bert.pooler.dense", width, width), *_dense("classifier", BERT_CLASSES, width)]


def _images(*shape: int, classes: int = 10) -> Callable[..., Batch]:
    def batch(rows: int, seed: int) -> Batch:
        random = np.random.RandomState(seed)
        return random.standard_normal((rows, *shape)).astype(np.float32), random.randint(0, classes, rows).astype(np.int64)

    return batch


def _sequences(rows: int, seed: int) -> Batch:
    random = np.random.RandomState(seed)
    inputs = random.standard_normal((LSTM_LENGTH, rows, LSTM_INPUT)).astype(np.float32)
    return inputs, random.randint(0, 10, rows).astype(np.int64)


def _texts(rows: int, seed: int, length: int = BERT_LENGTH) -> Batch:
    random = np.random.RandomState(seed)
    tokens = random.randint(0, BERT_VOCABULARY, (rows, length)).astype(np.int64)
    return tokens, random.randint(0, BERT_CLASSES, rows).astype(np.int64)


_SGD = {"lr": 0.05, "momentum": 0.9}

# Tolerances: sums in another order, grown by five steps.  Adam's first step divides each gradient by its own size, so that the sign
# of a gradient near zero moves a parameter by the whole learning rate.
MODELS = {
    model.name: model
    for model in (
        Model("tiny", tuple(_mlp_shapes(TINY_SIZES)), "sgd", _SGD, 4, _images(16, classes=4), (), 0.0),
        Model("mlp", tuple(_mlp_shapes(MLP_SIZES)), "sgd", _SGD, 64, _images(784), (2.39448, 2.16874, 1.80910, 1.42262, 1.07562), 1e-5),
        Model(
            "cnn", tuple(_cnn_shapes()), "adam", {"lr": 1e-3}, 32, _images(3, 32, 32),
            (2.29983, 2.20548, 2.11722, 2.03319, 1.95245), 2e-5,
        ),
        Model("lstm", tuple(_lstm_shapes()), "sgd", _SGD, 32, _sequences, (2.26497, 2.25068, 2.22369, 2.18555, 2.13777), 1e-5),
        Model(
            "bert", tuple(_bert_shapes()), "adamw", {"lr": 1e-4, "weight_decay": 0.01}, 8, _texts,
            (0.729873, 1.11311, 0.688274, 0.512029, 0.634518), 1e-4,
        ),
    )
}  # fmt: skip


def loss_error(model: Model, losses: list[float]) -> float:
    """The greatest relative difference of `losses` from what they should be; infinite if some are missing or not finite."""
    if len(losses) < len(model.losses) or not all(map(math.isfinite, losses)):
        return math.inf
    return max(abs(found - right) / abs(right) for found, right in zip(losses, model.losses, strict=False))


# Sequences of batches -------------------------------------------------------------------------------------------------


def batch_sizes(steps: int) -> list[int]:
    """Sizes from 1 to 64 at random; 62 different ones in 200 steps."""
    return [int(size) for size in np.random.RandomState(7).randint(1, 65, steps)]


def last_batches(epochs: int, full: int = 9) -> list[int]:
    """Epochs of `full` batches of 64 rows and a last one that has another size in each epoch."""
    return [size for epoch in range(epochs) for size in (*[64] * full, 5 + 7 * epoch % 59)]


def text_lengths(steps: int) -> list[int]:
    """Lengths of texts: multiples of 4 from 20 to 64 at random; 12 different ones in 60 steps."""
    return [int(4 * k) for k in np.random.RandomState(11).randint(5, 17, steps)]
