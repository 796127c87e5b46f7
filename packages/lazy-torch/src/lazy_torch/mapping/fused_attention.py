"""Scaled dot-product attention as one operation, and its gradient: what torch runs on the CPU where its fused kernel can do it.

Owns: the kernel that torch names after flash attention. Compiled, the scores are an ordinary value: the gradient's builder makes the very
expressions of the forward pass again, so that in one trace nothing is computed twice. Source: Vaswani et al. 2017, section 3.2.1.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .activations import safe_softmax
from .linalg import product
from .promotion import BOOL, cast, expand, filled, math_dtype, num, reshape


def _swapped(x: Expr) -> Expr:
    return ops.transpose(x, perm=(0, 1, 3, 2))


def _shared(x: Expr, heads: int) -> Expr:
    """Keys or values of one group of heads, for each of the heads: f[b,g,n,e] -> f[b,heads,n,e]."""
    b, groups, n, width = x.shape.dims
    if groups == heads:
        return x
    return reshape(expand(reshape(x, (b, groups, 1, n, width)), (b, groups, heads // groups, n, width)), (b, heads, n, width))


def _summed(x: Expr, groups: int) -> Expr:
    """The transpose of `_shared`."""
    b, heads, n, width = x.shape.dims
    if groups == heads:
        return x
    return ops.sum(reshape(x, (b, groups, heads // groups, n, width)), axes=(2,), keepdims=False)


def _factor(query: Expr, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape.dims[-1]) if scale is None else scale


def _scores(query: Expr, key: Expr, is_causal: bool, mask: Expr | None, scale: float | None) -> Expr:
    """f[b,h,targets,sources] in the precision of sums."""
    wide = math_dtype(query.shape.dtype)
    found = product(cast(query, wide), _swapped(cast(key, wide)))
    found = ops.mul(found, num(_factor(query, scale), found))
    if mask is not None:
        found = ops.add(found, cast(mask, wide))
    if is_causal:
        seen = ops.tril(filled(1, found.shape.dims[-2:], BOOL), k=0)
        found = ops.where(expand(seen, found.shape.dims), found, num(-math.inf, found))
    return found


def _log_sum(scores: Expr) -> Expr:
    """The logarithm of what a softmax divides by, and zero where every score is minus infinity: f[b,h,targets]."""
    top = ops.max(scores, axes=(3,), keepdims=True)
    dead = ops.eq(top, num(-math.inf, top))
    top = ops.where(dead, num(0, top), top)
    total = ops.sum(ops.exp(ops.sub(scores, top)), axes=(3,), keepdims=True)
    found = ops.where(dead, num(0, top), ops.add(ops.log(total), top))
    return reshape(found, scores.shape.dims[:3])


def _check(query: Expr, dropout_p: float) -> None:
    if dropout_p != 0 or query.shape.ndim != 4:
        raise UnsupportedError(f"fused attention on {query.shape} with dropout {dropout_p}")


@aten("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Expr | None = None,
    scale: float | None = None,
) -> tuple[Expr, Expr]:
    _check(query, dropout_p)
    heads, kind = query.shape.dims[1], query.shape.dtype
    scores = _scores(query, _shared(key, heads), is_causal, attn_mask, scale)
    wide = scores.shape.dtype
    found = product(safe_softmax(scores, -1), _shared(cast(value, wide), heads))
    return cast(found, kind), _log_sum(scores)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    grad_out: Expr,
    query: Expr,
    key: Expr,
    value: Expr,
    out: Expr,
    logsumexp: Expr,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Expr | None = None,
    scale: float | None = None,
) -> tuple[Expr, Expr, Expr]:
    _check(query, dropout_p)
    heads, groups, kind = query.shape.dims[1], key.shape.dims[1], query.shape.dtype
    scores = _scores(query, _shared(key, heads), is_causal, attn_mask, scale)
    wide = scores.shape.dtype
    weights, g = safe_softmax(scores, -1), cast(grad_out, wide)
    by_weights = product(g, _swapped(_shared(cast(value, wide), heads)))
    along = ops.sum(ops.mul(g, cast(out, wide)), axes=(3,), keepdims=True)  # what a softmax's gradient takes off
    by_scores = ops.mul(ops.mul(weights, ops.sub(by_weights, along)), num(_factor(query, scale), weights))
    by_query = product(by_scores, _shared(cast(key, wide), heads))
    by_key = _summed(product(_swapped(by_scores), cast(query, wide)), groups)
    by_value = _summed(product(_swapped(weights), g), groups)
    return cast(by_query, kind), cast(by_key, kind), cast(by_value, kind)
