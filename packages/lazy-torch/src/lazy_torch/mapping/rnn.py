"""Fused LSTM and GRU cells, which torch picks for devices like ours, with their gradients.

Owns: `_thnn_fused_*`.  The workspace is a saved tensor whose layout only this file knows: the activated gates side by side.
"""

from __future__ import annotations

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import filled, num
from .shapes import cut


def _gates(x: Expr, count: int) -> list[Expr]:
    n = x.shape.dims[1] // count
    return [cut(x, 1, i * n, (i + 1) * n) for i in range(count)]


def _biased(x: Expr, bias: Expr | None) -> Expr:
    return x if bias is None else ops.add(x, bias)


@aten("_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Expr, hidden_gates: Expr, cx: Expr, input_bias: Expr | None = None, hidden_bias: Expr | None = None
) -> tuple[Expr, Expr, Expr]:
    total = ops.add(_biased(input_gates, input_bias), _biased(hidden_gates, hidden_bias))
    i, f, c, o = _gates(total, 4)
    i, f, c, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(c), ops.sigmoid(o)
    cy = ops.add(ops.mul(f, cx), ops.mul(i, c))
    return ops.mul(o, ops.tanh(cy)), cy, ops.concatenate(i, f, c, o, axis=1)


@aten("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Expr | None, grad_cy: Expr | None, cx: Expr, cy: Expr, workspace: Expr, has_bias: bool
) -> tuple[Expr | None, Expr | None, Expr | None]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, c, o = _gates(workspace, 4)
    t = ops.tanh(cy)
    zero = filled(0, cx.shape.dims, cx.shape.dtype)
    gh = zero if grad_hy is None else grad_hy
    gc = ops.mul(ops.mul(gh, o), ops.sub(num(1, t), ops.mul(t, t)))
    if grad_cy is not None:
        gc = ops.add(gc, grad_cy)

    def through_sigmoid(g: Expr, y: Expr) -> Expr:
        return ops.mul(g, ops.mul(ops.sub(num(1, y), y), y))

    grad_gates = ops.concatenate(
        through_sigmoid(ops.mul(gc, c), i),
        through_sigmoid(ops.mul(gc, cx), f),
        ops.mul(ops.mul(gc, i), ops.sub(num(1, c), ops.mul(c, c))),
        through_sigmoid(ops.mul(gh, t), o),
        axis=1,
    )
    bias = ops.sum(grad_gates, axes=(0,), keepdims=False) if has_bias else None
    return grad_gates, ops.mul(gc, f), bias


@aten("_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Expr, hidden_gates: Expr, hx: Expr, input_bias: Expr | None = None, hidden_bias: Expr | None = None
) -> tuple[Expr, Expr]:
    ir, ii, inew = _gates(_biased(input_gates, input_bias), 3)
    hr, hi, hnew = _gates(_biased(hidden_gates, hidden_bias), 3)
    reset = ops.sigmoid(ops.add(ir, hr))
    keep = ops.sigmoid(ops.add(ii, hi))
    new = ops.tanh(ops.add(inew, ops.mul(reset, hnew)))
    hy = ops.add(new, ops.mul(keep, ops.sub(hx, new)))
    return hy, ops.concatenate(reset, keep, new, hx, hnew, axis=1)


@aten("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Expr, workspace: Expr, has_bias: bool) -> tuple[Expr, Expr, Expr, Expr | None, Expr | None]:
    reset, keep, new, hx, hnew = _gates(workspace, 5)
    one = num(1, new)
    g_keep = ops.mul(ops.mul(grad_hy, ops.sub(hx, new)), ops.mul(ops.sub(one, keep), keep))
    g_new = ops.mul(ops.mul(grad_hy, ops.sub(one, keep)), ops.sub(one, ops.mul(new, new)))
    g_reset = ops.mul(ops.mul(g_new, hnew), ops.mul(ops.sub(one, reset), reset))
    grad_in = ops.concatenate(g_reset, g_keep, g_new, axis=1)
    grad_hidden = ops.concatenate(g_reset, g_keep, ops.mul(g_new, reset), axis=1)
    grad_hx = ops.mul(grad_hy, keep)
    if not has_bias:
        return grad_in, grad_hidden, grad_hx, None, None
    return grad_in, grad_hidden, grad_hx, ops.sum(grad_in, axes=(0,), keepdims=False), ops.sum(grad_hidden, axes=(0,), keepdims=False)
