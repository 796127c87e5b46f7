"""Connectionist temporal classification: the likelihood of label sequences under frames of class scores, and its gradient.

Owns: the recurrences over time.  A sequence of L labels is read as 2 L + 1 states, a blank before, between and after them; lengths are
values, so that batches of other lengths are the same program.  Imports the registry and jax.

Source: Graves et al., "Connectionist Temporal Classification" (ICML 2006), equations 6 to 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError, ShapeError
from .registry import WIDE_FLOAT, Sample, describe, op


def _batch(dtype: np.dtype, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    scores = rng.uniform(-2, 2, (6, 3, 4))
    log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    targets = np.array([[1, 2, 2], [3, 1, 0], [2, 0, 0]], np.int64)
    return log_probs.astype(dtype), targets, np.array([6, 5, 4], np.int64), np.array([3, 2, 0], np.int64)


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(_batch(dtype, rng), {"blank": 0})


def _check(name: str, log_probs: Any, targets: Any, *lengths: Any) -> None:
    if log_probs.dtype not in WIDE_FLOAT or any(v.dtype != np.int64 for v in (targets, *lengths)):
        raise DtypeError(f"{name}({describe(log_probs, targets, *lengths)}): expected f32 or f64 and s64")
    n = log_probs.shape[1] if log_probs.ndim == 3 else -1
    if targets.ndim != 2 or targets.shape[0] != n or any(v.shape != (n,) for v in lengths):
        raise ShapeError(f"{name}({describe(log_probs, targets, *lengths)}): expected dims [T,N,C], [N,S], [N], [N]")


def _states(targets: Any, blank: int) -> tuple[Any, Any]:
    """The label of each state, s64[N,2S+1], and whether it may be reached from the one before the last."""
    n, s = targets.shape
    between = jnp.full((n, s + 1), blank, targets.dtype)
    labels = jnp.stack([between[:, :s], targets], 2).reshape(n, 2 * s)
    labels = jnp.concatenate([labels, between[:, s:]], 1)
    before = jnp.concatenate([jnp.full((n, min(2, 2 * s + 1)), blank, targets.dtype), labels[:, :-2]], 1)
    return labels, labels != before


def _scores(log_probs: Any, labels: Any) -> Any:
    """What each state emits at each time: f[T,N,2S+1]."""
    wide = jnp.broadcast_to(labels, (log_probs.shape[0], *labels.shape))
    return jnp.take_along_axis(log_probs, wide, 2, mode="clip")


def _moved(x: Any, by: int) -> Any:
    """States moved up by one or two, with nothing below."""
    n, width = x.shape
    return jnp.concatenate([jnp.full((n, min(by, width)), -jnp.inf, x.dtype), x[:, : max(width - by, 0)]], 1)


def _following(now: Any, skips: Any) -> Any:
    two = jnp.where(skips, _moved(now, 2), -jnp.inf)
    return jnp.logaddexp(jnp.logaddexp(now, _moved(now, 1)), two)


@op(samples=_samples, dtypes=WIDE_FLOAT)
def ctc_forward(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int) -> Any:
    """f32[T,N,C], s64[N,S], s64[N], s64[N] -> f32[N], f32[N,T,2S+1]: minus the log likelihood, and the forward variables (f64 too).

    XLA: While.

    Attributes: blank, the class that stands for no label.

    Raises:
        DtypeError: an operand is of another dtype.
        ShapeError: the dims do not fit.
    """
    _check("ctc_forward", log_probs, targets, input_lengths, target_lengths)
    labels, skips = _states(targets, blank)
    emitted = _scores(log_probs, labels)
    steps, n, width = emitted.shape
    state = jnp.arange(width)
    start = jnp.where(state == 0, 0.0, -jnp.inf).astype(log_probs.dtype)

    def step(now: Any, frame: Any) -> Any:
        following = _following(now, skips) + frame
        return following, following

    # Before the first frame there is one place to be, from which the first two states are reached.
    entry = jnp.where((state == 1) & (target_lengths[:, None] > 0), 0.0, start).astype(log_probs.dtype)
    first = (entry + emitted[0])[None] if steps else emitted
    rest = lax.scan(step, first[0], emitted[1:])[1] if steps > 1 else emitted[:0]
    alpha = jnp.concatenate([first, rest], 0)
    last = jnp.clip(input_lengths - 1, 0, max(steps - 1, 0))
    final = alpha[last, jnp.arange(n)] if steps else jnp.broadcast_to(start, (n, width))
    end = (2 * target_lengths)[:, None]
    with_blank = jnp.take_along_axis(final, end, 1, mode="clip")[:, 0]
    with_label = jnp.take_along_axis(final, jnp.maximum(end - 1, 0), 1, mode="clip")[:, 0]
    likelihood = jnp.where(target_lengths > 0, jnp.logaddexp(with_blank, with_label), with_blank)
    nothing = jnp.where(target_lengths == 0, 0.0, -jnp.inf).astype(log_probs.dtype)
    return -jnp.where(input_lengths > 0, likelihood, nothing), jnp.transpose(alpha, (1, 0, 2))


def _gradient_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    given = _batch(dtype, rng)
    each = [_forward_variables(*one) for one in zip(np.moveaxis(given[0].astype(np.float64), 1, 0), *given[1:], strict=True)]
    nll, alpha = (np.stack([one[k] for one in each]).astype(dtype) for k in (0, 1))
    for zero_infinity in (True, False):
        yield Sample((rng.uniform(0.5, 1, 3).astype(dtype), *given, nll, alpha), {"blank": 0, "zero_infinity": zero_infinity})


def _forward_variables(scores: np.ndarray, labels: np.ndarray, frames: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """One sequence, state by state, with the blank 0: what `ctc_forward` gives."""
    states = [0, *(label for one in labels.tolist() for label in (one, 0))]
    alpha = np.full((len(scores), len(states)), -np.inf)
    for t, emitted in enumerate(scores):
        for s, label in enumerate(states):
            if t == 0:
                reached = 0.0 if s == 0 or (s == 1 and length > 0) else -np.inf
            else:
                sources = [s, s - 1, s - 2] if s > 1 and label not in (0, states[s - 2]) else [s, s - 1]
                reached = np.logaddexp.reduce([alpha[t - 1, k] for k in sources if k >= 0])
            alpha[t, s] = reached + emitted[label]
    ends = alpha[frames - 1, max(2 * length - 1, 0) : 2 * length + 1]
    return -np.logaddexp.reduce(ends), alpha


@op(samples=_gradient_samples, dtypes=WIDE_FLOAT)
def ctc_backward(
    g: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, nll: Any, alpha: Any, *, blank: int, zero_infinity: bool
) -> Any:
    """f32[N], what ctc_forward took and gave -> f32[T,N,C]: the gradient by scores that a log softmax made (f64 too).

    XLA: While, Scatter.

    Attributes: blank; zero_infinity, no gradient where the likelihood is zero (NaN otherwise).

    Raises:
        DtypeError: an operand is of another dtype.
        ShapeError: the dims do not fit.
    """
    _check("ctc_backward", log_probs, targets, input_lengths, target_lengths)
    labels, skips = _states(targets, blank)
    emitted = _scores(log_probs, labels)
    steps, n, width = emitted.shape
    state = jnp.arange(width)
    # Backward variables are forward ones of the reversed sequence: a state may be left for the second next that may be entered so.
    leaving = jnp.concatenate([skips[:, 2:], jnp.zeros((n, min(2, width)), bool)], 1)
    end = (2 * target_lengths)[:, None]
    entry = jnp.where((state == end) | ((state == end - 1) & (target_lengths[:, None] > 0)), 0.0, -jnp.inf).astype(log_probs.dtype)

    def step(after: Any, frame: Any) -> Any:
        t, scores = frame
        reached = _following(after[:, ::-1], leaving[:, ::-1])[:, ::-1]
        here = jnp.where((t == input_lengths - 1)[:, None], entry, reached) + scores
        here = jnp.where((t < input_lengths)[:, None], here, -jnp.inf)
        return here, here

    nowhere = jnp.full((n, width), -jnp.inf, log_probs.dtype)
    beta = lax.scan(step, nowhere, (jnp.arange(steps), emitted), reverse=True)[1] if steps else emitted
    # How likely each state is at each time, given the labels; both variables hold what the state emits, so one of them is taken off.
    share = jnp.exp(jnp.transpose(alpha, (1, 0, 2)) + beta + nll[:, None] - emitted)
    share = jnp.where(jnp.isneginf(beta) | jnp.isneginf(emitted), jnp.where(jnp.isinf(nll)[:, None], share, 0), share)
    t, i = jnp.arange(steps)[:, None, None], jnp.arange(n)[None, :, None]
    by_class = jnp.zeros_like(log_probs).at[t, i, labels[None]].add(share, mode="drop")
    found = (jnp.exp(log_probs) - by_class) * g[:, None]
    found = jnp.where((jnp.arange(steps)[:, None] < input_lengths)[:, :, None], found, 0)
    return jnp.where((jnp.isinf(nll) & zero_infinity)[:, None], 0, found).astype(log_probs.dtype)
