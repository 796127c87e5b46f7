"""The fused inference paths of nn.MultiheadAttention and nn.TransformerEncoderLayer.

Owns: `_native_multi_head_attention` and `_transformer_encoder_layer_fwd`, which torch calls in evaluation mode without gradients, written
with the builders of their parts. Source: Vaswani et al. 2017.
"""

from __future__ import annotations

import math

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .activations import gelu, safe_softmax
from .compare import truth
from .linalg import product
from .normalization import layer_norm
from .promotion import cast, math_dtype, num, reshape
from .shapes import cut

SRC_MASK, KEY_PADDING_MASK = 0, 1


def _linear(x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    n, m = x.shape.size // max(x.shape.dims[-1], 1), weight.shape.dims[0]
    y = product(reshape(x, (n, x.shape.dims[-1])), ops.transpose(weight, perm=(1, 0)))
    y = y if bias is None else ops.add(y, bias)
    return reshape(y, (*x.shape.dims[:-1], m))


def _heads(x: Expr, count: int) -> Expr:
    b, t, width = x.shape.dims
    return ops.transpose(reshape(x, (b, t, count, width // count)), perm=(0, 2, 1, 3))


def _masked(scores: Expr, mask: Expr | None, mask_type: int | None) -> Expr:
    if mask is None:
        return scores
    dims = mask.shape.dims
    if mask_type == SRC_MASK and len(dims) == 2:
        mask = reshape(mask, (1, 1, *dims))
    elif mask_type == KEY_PADDING_MASK and len(dims) == 2:
        mask = reshape(mask, (dims[0], 1, 1, dims[1]))
    elif len(dims) != 4:
        raise UnsupportedError(f"an attention mask of {mask.shape} and type {mask_type}")
    if mask.shape.dtype.kind != "b":
        return ops.add(scores, cast(mask, scores.shape.dtype))
    return ops.where(truth(mask), num(-math.inf, scores), scores)


def _attend(
    query: Expr, key: Expr, value: Expr, heads: int, qkv: tuple[Expr, Expr], mask: Expr | None, mask_type: int | None
) -> tuple[Expr, Expr]:
    """The joined heads before the output projection, and the weights [batch, heads, targets, sources]."""
    weight, bias = qkv
    width = weight.shape.dims[0] // 3
    parts = [
        _heads(_linear(x, cut(weight, 0, i * width, (i + 1) * width), cut(bias, 0, i * width, (i + 1) * width)), heads)
        for i, x in enumerate((query, key, value))
    ]
    q, k, v = parts
    kind = q.shape.dtype
    scaled = ops.mul(q, num(1 / math.sqrt(q.shape.dims[-1]), q))
    scores = product(scaled, ops.transpose(k, perm=(0, 1, 3, 2)), math_dtype(kind))
    weights = cast(safe_softmax(_masked(scores, mask, mask_type), -1), kind)
    joined = ops.transpose(product(weights, v), perm=(0, 2, 1, 3))
    return reshape(joined, (*query.shape.dims[:-1], width)), weights


def _is_self_attention(query: Expr, key: Expr, value: Expr) -> bool:
    return query.shape.ndim == key.shape.ndim == value.shape.ndim == 3


@aten("_native_multi_head_attention")
def multi_head_attention(
    query: Expr,
    key: Expr,
    value: Expr,
    embed_dim: int,
    num_head: int,
    qkv_weight: Expr,
    qkv_bias: Expr,
    proj_weight: Expr,
    proj_bias: Expr,
    mask: Expr | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Expr, Expr | None]:
    if not _is_self_attention(query, key, value):
        raise UnsupportedError("multi-head attention on operands that are not [batch, sequence, width]")
    joined, weights = _attend(query, key, value, num_head, (qkv_weight, qkv_bias), mask, mask_type)
    out = _linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    if average_attn_weights:
        total = ops.sum(cast(weights, math_dtype(weights.shape.dtype)), axes=(1,), keepdims=False)
        weights = cast(ops.div(total, num(num_head, total)), weights.shape.dtype)
    return out, weights


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    src: Expr,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Expr,
    qkv_bias: Expr,
    proj_weight: Expr,
    proj_bias: Expr,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Expr,
    norm_bias_1: Expr,
    norm_weight_2: Expr,
    norm_bias_2: Expr,
    ffn_weight_1: Expr,
    ffn_bias_1: Expr,
    ffn_weight_2: Expr,
    ffn_bias_2: Expr,
    mask: Expr | None = None,
    mask_type: int | None = None,
) -> Expr:
    if src.shape.ndim != 3:
        raise UnsupportedError(f"an encoder layer on {src.shape}: expected [batch, sequence, width]")

    def norm(x: Expr, weight: Expr, bias: Expr) -> Expr:
        return layer_norm(x, (embed_dim,), weight, bias, eps)[0]

    def attention(x: Expr) -> Expr:
        return _linear(_attend(x, x, x, num_heads, (qkv_weight, qkv_bias), mask, mask_type)[0], proj_weight, proj_bias)

    def feed_forward(x: Expr) -> Expr:
        hidden = _linear(x, ffn_weight_1, ffn_bias_1)
        return _linear(gelu(hidden) if use_gelu else ops.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = ops.add(src, attention(norm(src, norm_weight_1, norm_bias_1)))
        return ops.add(x, feed_forward(norm(x, norm_weight_2, norm_bias_2)))
    x = norm(ops.add(src, attention(src)), norm_weight_1, norm_bias_1)
    return norm(ops.add(x, feed_forward(x)), norm_weight_2, norm_bias_2)
