"""Whole programs in the library's own words, for the conformance kit; what each computes stands in `lazy_core.whole`.

Owns: `PROGRAMS`.  Each runs on the library's arrays and on ours, and calls `middle` once, halfway through, with an array that it returns.
Two of the kit's are missing: `pca` needs the standard's linear algebra extension, and `kmeans` argmin, for which the template has no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def _softmax(xp: Any, x: Any) -> Any:
    shifted = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return shifted / xp.sum(shifted, axis=-1, keepdims=True)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, labels: Any, *, middle: Any) -> Any:
    """Two layers, probabilities, and the mean cross entropy."""
    xp = x.__array_namespace__()
    hidden = x @ w1 + b1
    hidden = middle(xp.where(hidden > 0, hidden, 0 * hidden))
    probabilities = _softmax(xp, hidden @ w2 + b2)
    chosen = xp.astype(labels[:, None] == xp.asarray([[0, 1, 2, 3]], dtype=labels.dtype), x.dtype)
    return probabilities, -xp.mean(xp.log(xp.sum(probabilities * chosen, axis=1)))


def cnn(images: Any, filters: Any, w: Any, *, middle: Any) -> Any:
    """A convolution as a sum over the places of its window."""
    xp = images.__array_namespace__()
    n, rows, columns = images.shape[0], images.shape[1] - 2, images.shape[2] - 2
    places = [images[:, i : i + rows, j : j + columns, :] @ filters[i, j, :, :] for i in range(3) for j in range(3)]
    total = sum(places[1:], start=places[0])
    features = xp.reshape(middle(xp.where(total > 0, total, 0 * total)), (n, rows // 2, 2, columns // 2, 2, filters.shape[3]))
    return xp.reshape(xp.max(features, axis=(2, 4)), (n, w.shape[0])) @ w


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, *, middle: Any) -> Any:
    """Causal attention with four heads."""
    xp = x.__array_namespace__()
    n, length, width = x.shape
    q, k, v = [xp.permute_dims(xp.reshape(x @ w, (n, length, 4, width // 4)), (0, 2, 1, 3)) for w in (wq, wk, wv)]
    scores = middle(q @ xp.permute_dims(k, (0, 1, 3, 2)) / math.sqrt(width // 4))
    causal = xp.asarray([[column <= row for column in range(length)] for row in range(length)])
    mixed = _softmax(xp, xp.where(causal, scores, 0 * scores - math.inf)) @ v
    return xp.reshape(xp.permute_dims(mixed, (0, 2, 1, 3)), (n, length, width)) @ wo


def lstm(x: Any, wx: Any, wh: Any, b: Any, *, middle: Any) -> Any:
    """A recurrent layer, step by step."""
    xp = x.__array_namespace__()
    size = wh.shape[0]
    h = xp.zeros((x.shape[1], size), dtype=x.dtype)
    c = xp.zeros((x.shape[1], size), dtype=x.dtype)
    hs = []
    for t in range(x.shape[0]):
        gates = x[t, :, :] @ wx + h @ wh + b
        i, f, g, o = [gates[:, k * size : (k + 1) * size] for k in range(4)]
        c = _sigmoid(xp, f) * c + _sigmoid(xp, i) * xp.tanh(g)
        h = _sigmoid(xp, o) * xp.tanh(c)
        hs.append(middle(h) if t == 2 else h)
    return xp.stack(hs), c


def optimizer_step(x: Any, y: Any, w1: Any, w2: Any, *, middle: Any) -> Any:
    """Two steps of Adam, with gradients by hand."""
    xp = x.__array_namespace__()
    weights, means, squares = [w1, w2], [0 * w1, 0 * w2], [0 * w1, 0 * w2]
    loss = None
    for step in (1, 2):
        hidden = xp.tanh(x @ weights[0])
        error = hidden @ weights[1] - y
        loss = xp.mean(error * error)
        slope = 2 * error / error.size
        gradients = [x.T @ ((slope @ weights[1].T) * (1 - hidden * hidden)), hidden.T @ slope]
        for k, g in enumerate(gradients):
            means[k] = 0.9 * means[k] + (1 - 0.9) * g
            squares[k] = 0.999 * squares[k] + (1 - 0.999) * g * g
            weights[k] = weights[k] - 0.01 / (1 - 0.9**step) * means[k] / (xp.sqrt(squares[k]) / math.sqrt(1 - 0.999**step) + 1e-8)
        if step == 1:
            weights[0] = middle(weights[0])
    return weights[0], weights[1], loss


def stencil(u: Any, *, middle: Any) -> Any:
    """Ten sweeps of Jacobi's method; an array never changes, so the edges are put around the inner cells."""
    xp = u.__array_namespace__()
    for sweep in range(10):
        inner = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u = xp.concat([u[:1, :], xp.concat([u[1:-1, :1], inner, u[1:-1, -1:]], axis=1), u[-1:, :]], axis=0)
        if sweep == 4:
            u = middle(u)
    return u


PROGRAMS: dict[str, Callable[..., Any]] = {p.__name__: p for p in (mlp, cnn, attention, lstm, optimizer_step, stencil)}
