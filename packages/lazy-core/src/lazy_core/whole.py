"""Whole programs of the conformance kit: what each computes, on which numbers, and how far two libraries may be apart.

Owns: `PROGRAMS`.  A frontend writes each of them once, in its library's own words (see `lazy_core.frontend.Frontend.programs`).  May import
`tolerances` and NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .tolerances import Tolerance

Inputs = Callable[[np.random.Generator], tuple[np.ndarray, ...]]
_SUMS = "sums in another order, and exponentials of another library, one after the other"


class WholeProgram(NamedTuple):
    """A program that every library can express.

    Attributes:
        text: what it computes from which inputs, and what it returns; enough to write it in another library.
        inputs: makes the inputs; floats are cast to the dtype under test, whole numbers stay int64.
        allowed: what its results may differ by, between tiers and between libraries.
    """

    text: str
    inputs: Inputs
    allowed: Tolerance = Tolerance(64, 256, _SUMS)


def _mlp(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    normal = rng.standard_normal
    return normal((16, 12)), normal((12, 32)) / 4, normal(32) / 4, normal((32, 4)) / 4, normal(4) / 4, rng.integers(0, 4, 16)


def _cnn(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((2, 8, 8, 3)), rng.standard_normal((3, 3, 3, 4)) / 4, rng.standard_normal((36, 5)) / 4


def _attention(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal((2, 6, 16)), *(rng.standard_normal((16, 16)) / 4 for _ in range(4)))


def _lstm(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((5, 3, 4)), rng.standard_normal((4, 32)) / 2, rng.standard_normal((8, 32)) / 2, rng.standard_normal(32) / 4


def _optimizer(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((16, 6)), rng.standard_normal((16, 1)), rng.standard_normal((6, 8)) / 2, rng.standard_normal((8, 1)) / 2


def _pca(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal((40, 6)) * np.array([5.0, 3.0, 2.0, 1.0, 0.5, 0.25]) + rng.standard_normal(6),)


def _kmeans(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    return np.concatenate([c + rng.standard_normal((20, 2)) for c in centres]), centres + rng.standard_normal((3, 2))


def _stencil(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return (rng.uniform(0, 100, (16, 16)),)


PROGRAMS: dict[str, WholeProgram] = {
    "mlp": WholeProgram(
        "x f[16,12], w1 f[12,32], b1 f[32], w2 f[32,4], b2 f[4], labels i64[16] -> probabilities f[16,4], loss f[]: "
        "relu(x w1 + b1) w2 + b2, its softmax, and the mean cross entropy of the labels",
        _mlp,
    ),
    "cnn": WholeProgram(
        "images f[2,8,8,3], filters f[3,3,3,4] (height, width, in, out), w f[36,5] -> scores f[2,5]: "
        "a convolution without padding, relu, maximum over windows of 2 by 2, flattened (height, width, channel), times w",
        _cnn,
    ),
    "attention": WholeProgram(
        "x f[2,6,16], wq, wk, wv, wo f[16,16] -> f[2,6,16]: causal attention with 4 heads of 4, scaled by 1/2, then times wo",
        _attention,
    ),
    "lstm": WholeProgram(
        "x f[5,3,4] (time, batch, features), wx f[4,32], wh f[8,32], b f[32] -> all h f[5,3,8], the last c f[3,8]: "
        "from zeros; the gates stand in the order input, forget, cell, output",
        _lstm,
    ),
    "optimizer_step": WholeProgram(
        "x f[16,6], y f[16,1], w1 f[6,8], w2 f[8,1] -> w1, w2, loss f[]: two steps of Adam (rate 0.01, 0.9, 0.999, epsilon 1e-8) on the "
        "mean of (tanh(x w1) w2 - y) squared, with the library's own gradients where it has any; the loss is the second step's",
        _optimizer,
        Tolerance(64, 1024, "a step divides by the root of its own square: rounding of a small gradient counts in full"),
    ),
    "pca": WholeProgram(
        "x f[40,6] -> variances f[6], components f[2,6], scores f[40,2]: the singular values of x without its mean, squared over 39; "
        "the first two right singular vectors, as absolute values, and x on them, likewise",
        _pca,
    ),
    "kmeans": WholeProgram(
        "points f[60,2], centres f[3,2] -> centres f[3,2], labels i64[60]: five rounds of assigning each point to the nearest centre, "
        "and each centre to the mean of its points",
        _kmeans,
    ),
    "stencil": WholeProgram(
        "u f[16,16] -> f[16,16]: ten sweeps, each of which sets the inner cells to the mean of their four neighbours",
        _stencil,
    ),
}


def inputs(name: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """The inputs of a program in a floating-point dtype: the same ones in every process.

    Raises:
        KeyError: there is no such program.
    """
    made = PROGRAMS[name].inputs(np.random.default_rng(0))
    return tuple([np.ascontiguousarray(a, a.dtype if a.dtype.kind in "iu" else dtype) for a in made])
