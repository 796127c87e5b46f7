"""The loss of connectionist temporal classification.

Owns: `_ctc_loss` with lengths that are tensors, and its gradient; `composed` brings the other forms to this one.
"""

from __future__ import annotations

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import I64, cast


@aten("_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Expr, targets: Expr, input_lengths: Expr, target_lengths: Expr, blank: int = 0, zero_infinity: bool = False
) -> tuple[Expr, Expr]:
    nll, alpha = ops.ctc_forward(log_probs, *(cast(v, I64) for v in (targets, input_lengths, target_lengths)), blank=blank)
    return nll, alpha


@aten("_ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Expr,
    log_probs: Expr,
    targets: Expr,
    input_lengths: Expr,
    target_lengths: Expr,
    neg_log_likelihood: Expr,
    log_alpha: Expr,
    blank: int,
    zero_infinity: bool = False,
) -> Expr:
    return ops.ctc_backward(
        grad,
        log_probs,
        *(cast(v, I64) for v in (targets, input_lengths, target_lengths)),
        neg_log_likelihood,
        log_alpha,
        blank=blank,
        zero_infinity=zero_infinity,
    )
