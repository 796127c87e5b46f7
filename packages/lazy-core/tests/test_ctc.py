"""Connectionist temporal classification against the definition: every alignment listed, and slopes measured."""

import functools
import itertools

import jax
import numpy as np
import pytest

from lazy_core.ops import ctc_backward, ctc_forward
from lazy_core.testing import samples

F64 = np.dtype(np.float64)


def _collapsed(path):
    """The labels that an alignment stands for: repeats merged, then blanks left out."""
    return [label for label, _ in itertools.groupby(path) if label != 0]


def _likelihood(scores, labels):
    """The sum over all alignments: f64[T,C] -> a number."""
    paths = itertools.product(range(scores.shape[1]), repeat=len(scores))
    return sum(np.exp(sum(scores[t, k] for t, k in enumerate(path))) for path in paths if _collapsed(path) == labels)


@functools.cache
def _compiled(op, attributes):
    return jax.jit(functools.partial(op.fn, **dict(attributes)))


def _run(op, *args, **attributes):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _compiled(op, tuple(attributes.items()))(*args))


def _normalised(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_likelihood_sums_over_all_alignments():
    """Repeated labels, shorter inputs and targets, no target at all."""
    scores, targets, frames, lengths = samples("ctc_forward", F64)[0].args
    nll, _ = _run(ctc_forward, scores, targets, frames, lengths, blank=0)
    for n in range(3):
        expected = _likelihood(scores[: frames[n], n], targets[n, : lengths[n]].tolist())
        np.testing.assert_allclose(nll[n], -np.log(expected), rtol=1e-12)


def test_gradient_is_the_measured_slope():
    """The gradient by what a log softmax was taken of: differences of likelihoods."""
    _, targets, frames, lengths = samples("ctc_forward", F64)[0].args
    x = np.random.default_rng(3).normal(size=(6, 3, 4))
    weights = np.array([0.5, 2.0, -1.0])

    def loss(x):
        return float(weights @ _run(ctc_forward, _normalised(x), targets, frames, lengths, blank=0)[0])

    nll, alpha = _run(ctc_forward, _normalised(x), targets, frames, lengths, blank=0)
    found = _run(ctc_backward, weights, _normalised(x), targets, frames, lengths, nll, alpha, blank=0, zero_infinity=False)
    for place in ((0, 0, 1), (3, 0, 2), (5, 0, 0), (4, 1, 3), (5, 1, 1), (2, 2, 0), (3, 2, 2), (4, 2, 0)):
        step = np.zeros_like(x)
        step[place] = 1e-5
        np.testing.assert_allclose(found[place], (loss(x + step) - loss(x - step)) / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_impossible_targets_have_no_gradient_or_nan(zero_infinity):
    """More labels than frames: an infinite loss."""
    scores = _normalised(np.zeros((2, 2, 3)))
    targets, lengths = np.array([[1, 1], [1, 2]]), (np.array([2, 2]), np.array([2, 2]))
    nll, alpha = _run(ctc_forward, scores, targets, *lengths, blank=0)
    assert nll[0] == np.inf and np.isfinite(nll[1])
    grad = _run(ctc_backward, np.ones(2), scores, targets, *lengths, nll, alpha, blank=0, zero_infinity=zero_infinity)
    assert np.isfinite(grad[:, 1]).all()
    assert (grad[:, 0] == 0).all() if zero_infinity else np.isnan(grad[:, 0]).any()


def test_no_frames_and_no_labels():
    """Nothing is aligned with nothing in one way, and with something in none."""
    scores = _normalised(np.zeros((2, 3, 3)))
    frames, lengths = np.array([0, 0, 2]), np.array([0, 1, 0])
    nll, _ = _run(ctc_forward, scores, np.array([[1], [1], [1]]), frames, lengths, blank=0)
    np.testing.assert_allclose(nll, [0, np.inf, 2 * np.log(3)])
    nll, alpha = _run(ctc_forward, scores, np.zeros((3, 0), np.int64), np.array([1, 2, 2]), np.zeros(3, np.int64), blank=0)
    np.testing.assert_allclose(nll, np.array([1, 2, 2]) * np.log(3))
    assert alpha.shape == (3, 2, 1)
