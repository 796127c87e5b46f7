"""Biases, softmax and losses, batch normalisation.

Source: `gen_nn_ops`; fused batch normalisation follows the CPU kernel (unbiased variance for the running statistics).  May import `rules`
and the core.
"""

from __future__ import annotations

import numpy as np

from lazy_core import ops
from lazy_core.errors import ShapeError
from lazy_core.ir import Expr

from .rules import like, lower


def _channel_axis(rank: int, data_format: str) -> int:
    return 1 if data_format.startswith("NC") and rank > 2 else rank - 1


@lower("BiasAdd")
def _bias_add(value: Expr, bias: Expr, *, data_format: str) -> Expr:
    rank = value.shape.ndim
    axis = _channel_axis(rank, data_format)
    if rank < 2 or bias.shape.dims != (value.shape.dims[axis],):
        raise ShapeError(f"BiasAdd: a bias of {bias.shape} for {value.shape} in {data_format}")
    if axis != rank - 1:
        bias = ops.reshape(bias, dims=(*bias.shape.dims, *[1] * (rank - 1 - axis)))
    return ops.add(value, bias)


@lower("BiasAddGrad")
def _bias_add_grad(out_backprop: Expr, *, data_format: str) -> Expr:
    rank = out_backprop.shape.ndim
    keep = _channel_axis(rank, data_format)
    return ops.sum(out_backprop, axes=tuple([i for i in range(rank) if i != keep]), keepdims=False)


@lower("CheckNumerics", "CheckNumericsV2")
def _check_numerics(tensor: Expr) -> Expr:
    return tensor  # a guard looks at it


@lower("Softmax")
def _softmax(logits: Expr) -> Expr:
    return ops.softmax(logits, axis=logits.shape.ndim - 1)


@lower("LogSoftmax")
def _log_softmax(logits: Expr) -> Expr:
    return ops.log_softmax(logits, axis=logits.shape.ndim - 1)


def _loss_and_gradient(features: Expr, labels: Expr) -> tuple[Expr, Expr]:
    logs = ops.log_softmax(features, axis=1)
    loss = ops.neg(ops.sum(ops.mul(labels, logs), axes=(1,), keepdims=False))
    return loss, ops.sub(ops.exp(logs), labels)


@lower("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(features: Expr, labels: Expr) -> tuple[Expr, Expr]:
    dims = np.broadcast_shapes(features.shape.dims, labels.shape.dims)
    if len(dims) != 2:
        raise ShapeError(f"SoftmaxCrossEntropyWithLogits: logits {features.shape} and labels {labels.shape} must be matrices")
    spread = [x if x.shape.dims == dims else ops.broadcast_to(x, dims=dims) for x in (features, labels)]
    return _loss_and_gradient(*spread)


@lower("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(features: Expr, labels: Expr) -> tuple[Expr, Expr]:
    if features.shape.ndim != 2 or labels.shape.dims != features.shape.dims[:1]:
        raise ShapeError(f"SparseSoftmaxCrossEntropyWithLogits: logits {features.shape} and labels {labels.shape}")
    hot = ops.one_hot(labels, depth=features.shape.dims[1], dtype=features.shape.dtype)
    logs = ops.log_softmax(features, axis=1)
    zero = like(features, 0)
    loss = ops.neg(ops.sum(ops.where(ops.ne(hot, zero), logs, zero), axes=(1,), keepdims=False))
    return loss, ops.sub(ops.exp(logs), hot)


# ------------------------------------------------------------------ fused batch normalisation


def _statistics_axes(x: Expr, data_format: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    rank = x.shape.ndim
    channel = 1 if data_format.startswith("NC") else rank - 1
    axes = tuple([i for i in range(rank) if i != channel])
    dims = tuple([x.shape.dims[i] if i == channel else 1 for i in range(rank)])
    count = x.shape.size // max(1, x.shape.dims[channel])
    return axes, dims, count


@lower("FusedBatchNormV3")
def _fused_batch_norm(
    x: Expr,
    scale: Expr,
    offset: Expr,
    mean: Expr,
    variance: Expr,
    *,
    epsilon: float,
    exponential_avg_factor: float,
    data_format: str,
    is_training: bool,
) -> tuple[Expr, ...]:
    axes, dims, count = _statistics_axes(x, data_format)
    wide = x if x.shape.dtype == scale.shape.dtype else ops.convert(x, dtype=scale.shape.dtype)
    if is_training:
        batch_mean = ops.mean(wide, axes=axes, keepdims=False)
        centred = ops.sub(wide, ops.reshape(batch_mean, dims=dims))
        batch_variance = ops.mean(ops.square(centred), axes=axes, keepdims=False)
        unbiased = ops.mul(batch_variance, like(scale, count / max(1, count - 1)))
        new_mean, new_variance = batch_mean, unbiased
        if exponential_avg_factor != 1.0:
            old, new = like(scale, 1 - exponential_avg_factor), like(scale, exponential_avg_factor)
            new_mean = ops.add(ops.mul(mean, old), ops.mul(batch_mean, new))
            new_variance = ops.add(ops.mul(variance, old), ops.mul(unbiased, new))
    else:
        batch_mean, batch_variance, new_mean, new_variance = mean, variance, mean, variance
        centred = ops.sub(wide, ops.reshape(mean, dims=dims))
    inverse = ops.rsqrt(ops.add(batch_variance, like(scale, epsilon)))
    y = ops.add(ops.mul(centred, ops.reshape(ops.mul(inverse, scale), dims=dims)), ops.reshape(offset, dims=dims))
    if y.shape.dtype != x.shape.dtype:
        y = ops.convert(y, dtype=x.shape.dtype)
    return y, new_mean, new_variance, batch_mean, batch_variance, ops.full(like(scale, 0), dims=(0,))


@lower("FusedBatchNormGradV3")
def _fused_batch_norm_grad(
    y_backprop: Expr,
    x: Expr,
    scale: Expr,
    mean: Expr,
    variance: Expr,
    reserve: Expr,
    *,
    epsilon: float,
    data_format: str,
    is_training: bool,
) -> tuple[Expr, ...]:
    axes, dims, count = _statistics_axes(x, data_format)
    dtype = scale.shape.dtype
    dy, wide = (e if e.shape.dtype == dtype else ops.convert(e, dtype=dtype) for e in (y_backprop, x))
    centred = ops.sub(wide, ops.reshape(mean, dims=dims))
    inverse = ops.rsqrt(ops.add(variance, like(scale, epsilon)))
    d_offset = ops.sum(dy, axes=axes, keepdims=False)
    projected = ops.sum(ops.mul(dy, centred), axes=axes, keepdims=False)
    d_scale = ops.mul(projected, inverse)
    factor = ops.reshape(ops.mul(scale, inverse), dims=dims)
    if is_training:
        n = like(scale, 1 / count)
        along = ops.mul(ops.mul(projected, ops.square(inverse)), n)
        dx = ops.sub(dy, ops.add(ops.reshape(ops.mul(d_offset, n), dims=dims), ops.mul(centred, ops.reshape(along, dims=dims))))
    else:
        dx = dy
    dx = ops.mul(dx, factor)
    if dx.shape.dtype != x.shape.dtype:
        dx = ops.convert(dx, dtype=x.shape.dtype)
    empty = ops.full(like(scale, 0), dims=(0,))
    return dx, d_scale, d_offset, empty, empty
