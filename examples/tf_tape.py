"""A custom GradientTape loop on scikit-learn's digits, SGD with momentum by hand: `python tf_tape.py [cpu|lazy]`."""

import argparse
import itertools
import json
import time

import tensorflow as tf
from sklearn.datasets import load_digits


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
    images = (digits.data / 16).astype("float32")
    labels = digits.target.astype("int64")
    losses, step_ends = [], []
    with device:
        tf.random.set_seed(0)
        sizes = [64, 128, 10]
        weights = [tf.Variable(tf.random.normal([m, n], stddev=(2 / m) ** 0.5)) for m, n in itertools.pairwise(sizes)]
        biases = [tf.Variable(tf.zeros([n])) for n in sizes[1:]]
        variables = weights + biases
        speeds = [tf.Variable(tf.zeros_like(v)) for v in variables]

        def predict(x):
            hidden = tf.nn.relu(x @ weights[0] + biases[0])
            return hidden @ weights[1] + biases[1]

        for epoch in range(args.epochs):
            for start in range(0, 1500, 100):
                x, y = tf.constant(images[start : start + 100]), tf.constant(labels[start : start + 100])
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=predict(x)))
                for variable, speed, gradient in zip(variables, speeds, tape.gradient(loss, variables), strict=True):
                    speed.assign(0.9 * speed + gradient)
                    variable.assign_sub(0.03 * speed)
                losses.append(float(loss))
                step_ends.append(time.time())
            print(f"epoch {epoch + 1}: loss {sum(losses[-15:]) / 15:.4f}")

        guesses = tf.argmax(predict(tf.constant(images[1500:])), axis=1)
        accuracy = float(tf.reduce_mean(tf.cast(guesses == labels[1500:], tf.float32)))
    print(f"test accuracy {accuracy:.4f}")
    if args.json:
        print(json.dumps({"result": "test accuracy", "value": accuracy, "curve": losses, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
