"""Training steps of four Keras 3 models: plain eager TensorFlow, the lazy device, and `tf.function(jit_compile=True)`, in one process.

    python packages/lazy-tf/benchmarks/keras_steps.py [--model mlp ...] [--rounds 7] [--steps 10] [--profile FILE]

The ways take turns, block by block, so that other load on the machine meets all of them; a block ends with a read of the loss. The
table shows the median over blocks of the milliseconds a step, by the clock and in processor time of all threads, and the ratios to
plain eager. `--profile` writes where Python spends the time of the lazy steps.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import lazy_core
import lazy_tf
from lazy_core import compiling

RNG = np.random.default_rng(0)


def _labels(count, kinds):
    return RNG.integers(0, kinds, count)


def mlp():
    """784-256-256-10 on 128 rows, SGD with momentum."""
    model = keras.Sequential([layers.Input((784,)), layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10)])
    return model, keras.optimizers.SGD(0.01, momentum=0.9), RNG.standard_normal((128, 784)).astype("f"), _labels(128, 10)


def cnn():
    """Two convolutions with batch normalisation on 32 images of 28x28, Adam."""
    made = [layers.Input((28, 28, 1))]
    for width in (16, 32):
        made += [layers.Conv2D(width, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    made += [layers.Flatten(), layers.Dropout(0.2), layers.Dense(10)]
    return keras.Sequential(made), keras.optimizers.Adam(1e-3), RNG.standard_normal((32, 28, 28, 1)).astype("f"), _labels(32, 10)


def lstm():
    """An embedding and an LSTM of 64 over 32 words, 32 rows, Adam."""
    model = keras.Sequential([layers.Input((32,), dtype="int32"), layers.Embedding(1000, 32), layers.LSTM(64), layers.Dense(10)])
    return model, keras.optimizers.Adam(1e-3), RNG.integers(0, 1000, (32, 32)).astype("int32"), _labels(32, 10)


def transformer():
    """Two encoder blocks, 64 wide, 4 heads, 32 words, 16 rows, AdamW."""
    words = layers.Input((32,), dtype="int32")
    x = layers.Embedding(1000, 64)(words)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(128, "gelu")(x)))
    model = keras.Model(words, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
    return model, keras.optimizers.AdamW(1e-3), RNG.integers(0, 1000, (16, 32)).astype("int32"), _labels(16, 10)


MODELS = {f.__name__: f for f in (mlp, cnn, lstm, transformer)}


class Way:
    """One way to take steps with a model of its own."""

    def __init__(self, make, scope, compiled):
        self.scope = scope
        with scope():
            keras.utils.set_random_seed(0)
            model, optimizer, x, y = make()
            optimizer.build(model.trainable_variables)
            loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self.x, self.y = tf.constant(x), tf.constant(y)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
            return loss

        self._step = tf.function(step, jit_compile=True) if compiled else step

    def block(self, steps):
        """Take steps and read the last loss; seconds by the clock and of the processor, a step, and the loss."""
        with self.scope():
            wall, processor = time.perf_counter(), time.process_time()
            for _ in range(steps):
                loss = self._step(self.x, self.y)
            value = float(loss)
            return (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps, value


def settled(way, steps):
    """Take steps until nothing is being compiled or decided any more, with leave to learn at once."""
    before, calm = None, 0
    while calm < 3:
        with lazy_core.options(learn_percent=10_000):
            way.block(steps)
        compiling.wait(120)
        lazy_core.barrier()
        report = lazy_core.report()
        now = (report.counters["compiles"], *(row.tier for row in report.traces))
        before, calm = now, calm + 1 if now == before and "undecided" not in now else 0


def measure(name, rounds, steps, profile):
    """A line of the table."""
    make = MODELS[name]
    ways = {"eager": Way(make, contextlib.nullcontext, False), "lazy": Way(make, lazy_tf.device, False)}
    ways["xla"] = Way(make, contextlib.nullcontext, True)
    for way in ways.values():
        way.block(3)
    lazy_core.reset_report()
    settled(ways["lazy"], steps)
    lazy_core.reset_report()
    found = {key: [] for key in ways}
    for _ in range(rounds):
        for key, way in ways.items():
            found[key].append(way.block(steps))
    counters = lazy_core.report().counters
    middle = {key: [statistics.median(column) for column in zip(*[f[:2] for f in blocks], strict=True)] for key, blocks in found.items()}
    cells = [name]
    for key in ways:
        cells += [f"{middle[key][0] * 1e3:.2f}", f"{middle[key][1] * 1e3:.2f}"]
    for other in ("eager", "xla"):
        cells += [f"{middle['lazy'][i] / middle[other][i]:.2f}" for i in (0, 1)]
    recorded = counters["recorded"] / (rounds * steps)
    tiers = sorted({row.tier for row in lazy_core.report().traces if row.operations > 16})
    print("  ".join(f"{c:>11}" for c in cells), f"  {recorded:.0f} operations, {', '.join(tiers)}", flush=True)
    if profile:
        profiler = cProfile.Profile()
        profiler.enable()
        ways["lazy"].block(rounds * steps)
        profiler.disable()
        profiler.dump_stats(profile)


def main():
    """Measure the models that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each way")
    parser.add_argument("--steps", type=int, default=10, help="steps of a block")
    parser.add_argument("--profile", metavar="FILE", help="where cProfile's figures of the last model go")
    args = parser.parse_args()
    heads = ["ms a step", "eager", "(cpu)", "lazy", "(cpu)", "jit_compile", "(cpu)", "lazy/eager", "(cpu)", "lazy/jit", "(cpu)"]
    print("  ".join(f"{h:>11}" for h in heads))
    for name in args.model:
        measure(name, args.rounds, args.steps, args.profile)


if __name__ == "__main__":
    main()
