"""Whole programs written with TensorFlow's public API, for the conformance matrix; what each computes stands in `lazy_core.whole`.

Owns: `PROGRAMS`.  They must work on CPU tensors and on lazy ones alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, labels: Any, *, middle: Any) -> Any:
    """Two layers, probabilities, and the mean cross entropy."""
    hidden = middle(tf.nn.relu(tf.nn.bias_add(x @ w1, b1)))
    logits = tf.nn.bias_add(hidden @ w2, b2)
    return tf.nn.softmax(logits), tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def cnn(images: Any, filters: Any, w: Any, *, middle: Any) -> Any:
    """A convolution with the channels last, as TensorFlow has them."""
    features = middle(tf.nn.relu(tf.nn.conv2d(images, filters, strides=1, padding="VALID")))
    pooled = tf.nn.max_pool2d(features, 2, 2, padding="VALID")
    return tf.reshape(pooled, (images.shape[0], -1)) @ w


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, *, middle: Any) -> Any:
    """Causal attention with four heads."""
    n, length, width = x.shape
    q, k, v = [tf.transpose(tf.reshape(x @ w, (n, length, 4, width // 4)), (0, 2, 1, 3)) for w in (wq, wk, wv)]
    scores = middle(tf.matmul(q, k, transpose_b=True) / (width // 4) ** 0.5)
    causal = tf.linalg.band_part(tf.ones((length, length), tf.bool), -1, 0)
    mixed = tf.nn.softmax(tf.where(causal, scores, tf.cast(float("-inf"), x.dtype))) @ v
    return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (n, length, width)) @ wo


def lstm(x: Any, wx: Any, wh: Any, b: Any, *, middle: Any) -> Any:
    """A recurrent layer, step by step."""
    h = tf.zeros((x.shape[1], wh.shape[0]), x.dtype)
    c = tf.zeros_like(h)
    hs = []
    for t, step in enumerate(tf.unstack(x)):
        i, f, g, o = tf.split(step @ wx + h @ wh + b, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        hs.append(middle(h) if t == 2 else h)
    return tf.stack(hs), c


def optimizer_step(x: Any, y: Any, w1: Any, w2: Any, *, middle: Any) -> Any:
    """Two steps of Adam on variables, by the tape's gradients."""
    with tf.device(x.device):
        weights = [tf.Variable(w) for w in (w1, w2)]
        means, squares = [tf.Variable(tf.zeros_like(w)) for w in weights], [tf.Variable(tf.zeros_like(w)) for w in weights]
    loss = None
    for step in (1, 2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ weights[0]) @ weights[1] - y))
        for w, m, v, g in zip(weights, means, squares, tape.gradient(loss, weights), strict=True):
            m.assign(0.9 * m + (1 - 0.9) * g)
            v.assign(0.999 * v + (1 - 0.999) * g * g)
            w.assign_sub(0.01 / (1 - 0.9**step) * m / (tf.sqrt(v) / (1 - 0.999**step) ** 0.5 + 1e-8))
        if step == 1:
            middle(tf.convert_to_tensor(weights[0]))
    return *[tf.convert_to_tensor(w) for w in weights], loss


def pca(x: Any, *, middle: Any) -> Any:
    """Principal components, their signs left out."""
    centred = middle(x - tf.reduce_mean(x, axis=0))
    sizes, _, v = tf.linalg.svd(centred)
    return sizes**2 / (x.shape[0] - 1), tf.abs(tf.transpose(v[:, :2])), tf.abs(centred @ v[:, :2])


def kmeans(points: Any, centres: Any, *, middle: Any) -> Any:
    """Five rounds of Lloyd's algorithm."""
    labels = None
    for round_ in range(5):
        distances = tf.reduce_sum(tf.square(points[:, None] - centres[None]), axis=-1)
        labels = tf.argmin(distances, axis=1)
        totals = tf.math.unsorted_segment_sum(points, labels, centres.shape[0])
        centres = totals / tf.reduce_sum(tf.one_hot(labels, centres.shape[0], dtype=points.dtype), axis=0)[:, None]
        if round_ == 2:
            centres = middle(centres)
    return centres, labels


def stencil(u: Any, *, middle: Any) -> Any:
    """Ten sweeps of Jacobi's method; TensorFlow's tensors never change, so the edges are put around the inner cells."""
    for sweep in range(10):
        inner = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u = tf.concat([u[:1], tf.concat([u[1:-1, :1], inner, u[1:-1, -1:]], axis=1), u[-1:]], axis=0)
        if sweep == 4:
            u = middle(u)
    return u


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program for program in (mlp, cnn, attention, lstm, optimizer_step, pca, kmeans, stencil)
}
