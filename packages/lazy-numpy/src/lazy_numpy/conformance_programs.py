"""Whole programs written with NumPy's public API, for the conformance matrix; what each computes stands in `lazy_core.whole`.

Owns: `PROGRAMS`.  They must work on NumPy's arrays and on lazy ones alike; what NumPy lacks (gradients, convolution) is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _softmax(x: Any) -> Any:
    shifted = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return shifted / np.sum(shifted, axis=-1, keepdims=True)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, labels: Any, *, middle: Any) -> Any:
    """Two layers, probabilities, and the mean cross entropy."""
    hidden = middle(np.maximum(x @ w1 + b1, 0))
    probabilities = _softmax(hidden @ w2 + b2)
    return probabilities, -np.mean(np.log(probabilities[np.arange(x.shape[0]), labels]))


def cnn(images: Any, filters: Any, w: Any, *, middle: Any) -> Any:
    """A convolution as a sum over the places of its window."""
    n, height, width, _ = images.shape
    rows, columns = height - filters.shape[0] + 1, width - filters.shape[1] + 1
    total = np.zeros_like(images, shape=(n, rows, columns, filters.shape[3]))
    for i in range(filters.shape[0]):
        for j in range(filters.shape[1]):
            total = total + images[:, i : i + rows, j : j + columns] @ filters[i, j]
    features = middle(np.maximum(total, 0))
    pooled = features.reshape(n, rows // 2, 2, columns // 2, 2, -1).max(axis=(2, 4))
    return pooled.reshape(n, -1) @ w


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, *, middle: Any) -> Any:
    """Causal attention with four heads."""
    n, length, width = x.shape
    q, k, v = [(x @ w).reshape(n, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv)]
    scores = middle(q @ k.swapaxes(-1, -2) / np.sqrt(width // 4).astype(x.dtype))
    causal = np.tril(np.ones((length, length), bool))
    mixed = _softmax(np.where(causal, scores, -np.inf)) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(n, length, width) @ wo


def lstm(x: Any, wx: Any, wh: Any, b: Any, *, middle: Any) -> Any:
    """A recurrent layer, step by step."""
    h = np.zeros_like(x, shape=(x.shape[1], wh.shape[0]))
    c = np.zeros_like(h)
    hs = []
    for t in range(x.shape[0]):
        i, f, g, o = np.split(x[t] @ wx + h @ wh + b, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        hs.append(middle(h) if t == 2 else h)
    return np.stack(hs), c


def optimizer_step(x: Any, y: Any, w1: Any, w2: Any, *, middle: Any) -> Any:
    """Two steps of Adam, with gradients by hand."""
    weights = [w1, w2]
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    loss = None
    for step in (1, 2):
        hidden = np.tanh(x @ weights[0])
        error = hidden @ weights[1] - y
        loss = np.mean(error * error)
        slope = 2 * error / error.size
        gradients = [x.T @ ((slope @ weights[1].T) * (1 - hidden * hidden)), hidden.T @ slope]
        for k, g in enumerate(gradients):
            means[k] = 0.9 * means[k] + (1 - 0.9) * g
            squares[k] = 0.999 * squares[k] + (1 - 0.999) * g * g
            size = np.sqrt(squares[k]) / (1 - 0.999**step) ** 0.5 + 1e-8
            weights[k] = weights[k] - 0.01 / (1 - 0.9**step) * means[k] / size
        if step == 1:
            weights[0] = middle(weights[0])
    return *weights, loss


def pca(x: Any, *, middle: Any) -> Any:
    """Principal components, their signs left out."""
    centred = middle(x - x.mean(axis=0))
    _, sizes, vt = np.linalg.svd(centred, full_matrices=False)
    return sizes**2 / (x.shape[0] - 1), np.abs(vt[:2]), np.abs(centred @ vt[:2].T)


def kmeans(points: Any, centres: Any, *, middle: Any) -> Any:
    """Five rounds of Lloyd's algorithm."""
    labels = None
    for round_ in range(5):
        distances = np.sum((points[:, None] - centres[None]) ** 2, axis=-1)
        labels = np.argmin(distances, axis=1)
        member = (labels[:, None] == np.arange(centres.shape[0])).astype(points.dtype)
        centres = member.T @ points / member.sum(axis=0)[:, None]
        if round_ == 2:
            centres = middle(centres)
    return centres, labels


def stencil(u: Any, *, middle: Any) -> Any:
    """Ten sweeps of Jacobi's method, in place."""
    u = u.copy()
    for sweep in range(10):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        if sweep == 4:
            middle(u)
    return u


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program for program in (mlp, cnn, attention, lstm, optimizer_step, pca, kmeans, stencil)
}
