"""A Keras 3 classifier on scikit-learn's digits, eager `fit` with Adam: `python tf_keras_fit.py [cpu|lazy]`."""

import argparse
import json
import os
import time

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf
from sklearn.datasets import load_digits


class Steps(keras.callbacks.Callback):
    """Keep the loss and the times of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.step_begins: list[float] = []
        self.step_ends: list[float] = []

    def on_train_batch_begin(self, batch, logs=None) -> None:
        """A step begins; what Keras does at an epoch's end lies between steps."""
        self.step_begins.append(time.time())

    def on_train_batch_end(self, batch, logs=None) -> None:
        """Read the epoch's mean loss so far."""
        self.losses.append(float(logs["loss"]))
        self.step_ends.append(time.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    if args.device == "lazy":
        import lazy_tf

        device = lazy_tf.device()
    else:
        device = tf.device("/device:CPU:0")

    digits = load_digits()
    images = (digits.images[..., None] / 16).astype("float32")
    with device:
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
                keras.layers.MaxPooling2D(2),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(2e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            run_eagerly=True,
        )
        steps = Steps()
        model.fit(images[:1500], digits.target[:1500], batch_size=100, epochs=args.epochs, callbacks=[steps], verbose=2)
        _, accuracy = model.evaluate(images[1500:], digits.target[1500:], batch_size=99, verbose=0)
    print(f"test accuracy {accuracy:.4f}")
    if args.json:
        times = {"step_begins": steps.step_begins, "step_ends": steps.step_ends}
        print(json.dumps({"result": "test accuracy", "value": float(accuracy), "curve": steps.losses, **times}))


if __name__ == "__main__":
    main()
