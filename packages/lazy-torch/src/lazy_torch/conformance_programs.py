"""Whole programs written with torch's public API, for the conformance matrix; what each computes stands in `lazy_core.whole`.

Owns: `PROGRAMS`.  They must work on CPU tensors and on lazy ones alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, labels: Any, *, middle: Any) -> Any:
    """Two layers, probabilities, and the mean cross entropy."""
    hidden = middle(torch.relu(functional.linear(x, w1.T, b1)))
    logits = functional.linear(hidden, w2.T, b2)
    return torch.softmax(logits, dim=-1), functional.cross_entropy(logits, labels)


def cnn(images: Any, filters: Any, w: Any, *, middle: Any) -> Any:
    """A convolution with the channels first, as torch has them."""
    features = torch.relu(functional.conv2d(images.permute(0, 3, 1, 2), filters.permute(3, 2, 0, 1)))
    pooled = functional.max_pool2d(middle(features), 2)
    return pooled.permute(0, 2, 3, 1).flatten(1) @ w


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, *, middle: Any) -> Any:
    """Causal attention with four heads."""
    q, k, v = [(x @ w).unflatten(-1, (4, -1)).transpose(1, 2) for w in (wq, wk, wv)]
    mixed = functional.scaled_dot_product_attention(middle(q), k, v, is_causal=True)
    return mixed.transpose(1, 2).flatten(2) @ wo


def lstm(x: Any, wx: Any, wh: Any, b: Any, *, middle: Any) -> Any:
    """A recurrent layer, step by step."""
    h = x.new_zeros(x.shape[1], wh.shape[0])
    c = torch.zeros_like(h)
    hs = []
    for t, step in enumerate(x):
        i, f, g, o = (torch.addmm(b, step, wx) + h @ wh).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        hs.append(middle(h) if t == 2 else h)
    return torch.stack(hs), c


def optimizer_step(x: Any, y: Any, w1: Any, w2: Any, *, middle: Any) -> Any:
    """Two steps of torch.optim.Adam."""
    weights = [torch.nn.Parameter(w.clone()) for w in (w1, w2)]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    loss = None
    for step in range(2):
        optimizer.zero_grad()
        loss = functional.mse_loss(torch.tanh(x @ weights[0]) @ weights[1], y)
        loss.backward()
        optimizer.step()
        if step == 0:
            middle(weights[0])
    return *[w.detach() for w in weights], loss


def pca(x: Any, *, middle: Any) -> Any:
    """Principal components, their signs left out."""
    centred = middle(x - x.mean(dim=0))
    _, sizes, vt = torch.linalg.svd(centred, full_matrices=False)
    return sizes**2 / (x.shape[0] - 1), vt[:2].abs(), (centred @ vt[:2].T).abs()


def kmeans(points: Any, centres: Any, *, middle: Any) -> Any:
    """Five rounds of Lloyd's algorithm."""
    labels = None
    for round_ in range(5):
        labels = (points[:, None] - centres[None]).square().sum(-1).argmin(dim=1)
        totals = torch.zeros_like(centres).index_add(0, labels, points)
        centres = totals / functional.one_hot(labels, centres.shape[0]).sum(dim=0).to(points.dtype)[:, None]
        if round_ == 2:
            centres = middle(centres)
    return centres, labels


def stencil(u: Any, *, middle: Any) -> Any:
    """Ten sweeps of Jacobi's method, in place."""
    u = u.clone()
    for sweep in range(10):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        if sweep == 4:
            middle(u)
    return u


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program for program in (mlp, cnn, attention, lstm, optimizer_step, pca, kmeans, stencil)
}
