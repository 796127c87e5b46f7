"""Batch, layer and group normalisation with their gradients.

Owns: native_batch_norm and its variants, native_layer_norm, native_group_norm.  Statistics are computed and, except for
groups, saved in f32 for half floats.
Source: Ioffe and Szegedy 2015; Ba et al. 2016; Wu and He 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import cast, filled, math_dtype, num, reshape

Optional = Expr | None


def _mean(x: Expr, over: tuple[int, ...]) -> Expr:
    count = math.prod(x.shape.dims[a] for a in over)
    total = ops.sum(x, axes=over, keepdims=True)
    return ops.div(total, num(count, total))


def _moments(x: Expr, over: tuple[int, ...]) -> tuple[Expr, Expr]:
    """Mean and biased variance, keeping dims; computed in two passes, for accuracy."""
    mean = _mean(x, over)
    gap = ops.sub(x, mean)
    return mean, _mean(ops.mul(gap, gap), over)


def _rstd(var: Expr, eps: float) -> Expr:
    return ops.rsqrt(ops.add(var, num(eps, var)))


# ------------------------------------------------------------------ batch norm


def _channel(v: Expr, x: Expr) -> Expr:
    return reshape(v, (1, x.shape.dims[1], *(1,) * (x.shape.ndim - 2)))


def _batch_norm(
    input: Expr, weight: Optional, bias: Optional, mean: Optional, var: Optional, training: bool, momentum: float, eps: float
) -> tuple[Expr, Expr, Expr, Optional, Optional]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    x = cast(input, wide)
    over = (0, *range(2, x.shape.ndim))
    channels = (x.shape.dims[1],)
    new_mean: Optional = None
    new_var: Optional = None
    if training:
        count = math.prod(x.shape.dims[a] for a in over)
        if count == 0:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        middle, spread = _moments(x, over)
        rstd = _rstd(spread, eps)
        save_mean, save_rstd = reshape(middle, channels), reshape(rstd, channels)
        if mean is not None:
            new_mean = _running(mean, save_mean, momentum)
        if var is not None:
            flat = reshape(spread, channels)
            unbiased = ops.mul(flat, num(count / (count - 1) if count > 1 else math.nan, flat))
            new_var = _running(var, unbiased, momentum)
    else:
        if mean is None or var is None:
            raise RuntimeError("batch_norm: running_mean and running_var must be defined in evaluation mode")
        middle = _channel(cast(mean, wide), x)
        rstd = _rstd(_channel(cast(var, wide), x), eps)
        save_mean, save_rstd = cast(mean, wide), reshape(rstd, channels)
    y = ops.mul(ops.sub(x, middle), rstd)
    if weight is not None:
        y = ops.mul(y, _channel(cast(weight, wide), x))
    if bias is not None:
        y = ops.add(y, _channel(cast(bias, wide), x))
    return cast(y, kind), save_mean, save_rstd, new_mean, new_var


def _running(old: Expr, new: Expr, momentum: float) -> Expr:
    kind = old.shape.dtype
    was, now = cast(old, math_dtype(kind)), cast(new, math_dtype(kind))
    return cast(ops.add(ops.mul(was, num(1 - momentum, was)), ops.mul(now, num(momentum, now))), kind)


@aten("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    input: Expr,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Optional, ...]:
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(input: Expr, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float) -> tuple[Expr, ...]:
    return _batch_norm(input, weight, bias, None, None, True, momentum, eps)[:3]


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    input: Expr, weight: Optional, bias: Optional, running_mean: Expr, running_var: Expr, training: bool, momentum: float, eps: float
) -> tuple[Expr, ...]:
    out, save_mean, save_rstd, new_mean, new_var = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return out, save_mean, save_rstd, new_mean or running_mean, new_var or running_var


@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    input: Expr, weight: Optional, bias: Optional, running_mean: Expr, running_var: Expr, momentum: float, eps: float
) -> tuple[Expr, ...]:
    return _batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


def _reserve() -> Expr:
    import numpy as np

    return filled(0, (0,), np.dtype(np.uint8))


@aten("_batch_norm_with_update")
def batch_norm_with_update(
    input: Expr, weight: Optional, bias: Optional, running_mean: Optional, running_var: Optional, momentum: float, eps: float
) -> tuple[Optional, ...]:
    out, save_mean, save_rstd, new_mean, new_var = _batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return out, save_mean, save_rstd, _reserve(), new_mean, new_var


@aten("_batch_norm_with_update_functional")
def batch_norm_with_update_functional(
    input: Expr, weight: Optional, bias: Optional, running_mean: Expr, running_var: Expr, momentum: float, eps: float
) -> tuple[Optional, ...]:
    return batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps)


@aten("_batch_norm_no_update")
def batch_norm_no_update(
    input: Expr, weight: Optional, bias: Optional, running_mean: Optional, running_var: Optional, momentum: float, eps: float
) -> tuple[Expr, ...]:
    return (*_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)[:3], _reserve())


@aten("native_batch_norm_backward")
def batch_norm_backward(
    grad_out: Expr,
    input: Expr,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    save_mean: Optional,
    save_invstd: Optional,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    x, g = cast(input, wide), cast(grad_out, wide)
    over = (0, *range(2, x.shape.ndim))
    count = math.prod(x.shape.dims[a] for a in over)
    if train:
        assert save_mean is not None and save_invstd is not None
        mean, rstd = _channel(cast(save_mean, wide), x), _channel(cast(save_invstd, wide), x)
    else:
        assert running_mean is not None and running_var is not None
        mean = _channel(cast(running_mean, wide), x)
        rstd = _rstd(_channel(cast(running_var, wide), x), eps)
    hat = ops.mul(ops.sub(x, mean), rstd)
    sum_g = ops.sum(g, axes=over, keepdims=True)
    sum_gx = ops.sum(ops.mul(g, hat), axes=over, keepdims=True)
    grad_input: Optional = None
    param = kind if weight is None else weight.shape.dtype
    if output_mask[0]:
        scale = rstd if weight is None else ops.mul(rstd, _channel(cast(weight, wide), x))
        body = g
        if train:
            n = num(max(count, 1), g)
            body = ops.sub(ops.sub(g, ops.div(sum_g, n)), ops.mul(hat, ops.div(sum_gx, n)))
        grad_input = cast(ops.mul(body, scale), kind)
    channels = (x.shape.dims[1],)
    grad_weight = cast(reshape(sum_gx, channels), param) if output_mask[1] else None
    grad_bias = cast(reshape(sum_g, channels), param) if output_mask[2] else None
    return grad_input, grad_weight, grad_bias


@aten("batch_norm_backward")
def batch_norm_backward_reserved(
    grad_out: Expr,
    input: Expr,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    save_mean: Optional,
    save_var: Optional,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Expr,
) -> tuple[Optional, Optional, Optional]:
    return batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask)


# ------------------------------------------------------------------ layer norm


@aten("native_layer_norm")
def layer_norm(input: Expr, normalized_shape: Sequence[int], weight: Optional, bias: Optional, eps: float) -> tuple[Expr, Expr, Expr]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    dims = tuple(normalized_shape)
    first = input.shape.ndim - len(dims)
    if first < 0 or input.shape.dims[first:] != dims:
        raise RuntimeError(
            f"Given normalized_shape={list(dims)}, expected input to end with these sizes, but got input of size {input.shape}"
        )
    x = cast(input, wide)
    over = tuple(range(first, input.shape.ndim))
    mean, var = _moments(x, over)
    rstd = _rstd(var, eps)
    y = ops.mul(ops.sub(x, mean), rstd)
    if weight is not None:
        y = ops.mul(y, cast(weight, wide))
    if bias is not None:
        y = ops.add(y, cast(bias, wide))
    return cast(y, kind), mean, rstd


@aten("native_layer_norm_backward")
def layer_norm_backward(
    grad_out: Expr,
    input: Expr,
    normalized_shape: Sequence[int],
    mean: Expr,
    rstd: Expr,
    weight: Optional,
    bias: Optional,
    output_mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    x, g, m, r = (cast(v, wide) for v in (input, grad_out, mean, rstd))
    first = x.shape.ndim - len(normalized_shape)
    inner = tuple(range(first, x.shape.ndim))
    outer = tuple(range(first))
    hat = ops.mul(ops.sub(x, m), r)
    grad_input: Optional = None
    if output_mask[0]:
        scaled = g if weight is None else ops.mul(g, cast(weight, wide))
        body = ops.sub(ops.sub(scaled, _mean(scaled, inner)), ops.mul(hat, _mean(ops.mul(scaled, hat), inner)))
        grad_input = cast(ops.mul(body, r), kind)

    def over_rows(v: Expr, like: Expr) -> Expr:
        return cast(ops.sum(v, axes=outer, keepdims=False) if outer else v, like.shape.dtype)

    grad_weight = over_rows(ops.mul(g, hat), weight) if output_mask[1] and weight is not None else None
    grad_bias = over_rows(g, bias) if output_mask[2] and bias is not None else None
    return grad_input, grad_weight, grad_bias


@aten("_fused_rms_norm_backward")
def rms_norm_backward(
    grad_out: Expr, input: Expr, normalized_shape: Sequence[int], rstd: Expr, weight: Optional, output_mask: Sequence[bool]
) -> tuple[Optional, Optional]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    x, g, r = (cast(v, wide) for v in (input, grad_out, rstd))
    first = x.shape.ndim - len(normalized_shape)
    hat = ops.mul(x, r)
    grad_input: Optional = None
    if output_mask[0]:
        scaled = g if weight is None else ops.mul(g, cast(weight, wide))
        inner = tuple(range(first, x.shape.ndim))
        grad_input = cast(ops.mul(ops.sub(scaled, ops.mul(hat, _mean(ops.mul(scaled, hat), inner))), r), kind)
    grad_weight: Optional = None
    if output_mask[1] and weight is not None:
        product = ops.mul(g, hat)
        grad_weight = cast(ops.sum(product, axes=tuple(range(first)), keepdims=False) if first else product, weight.shape.dtype)
    return grad_input, grad_weight


# ------------------------------------------------------------------ group norm


@aten("native_group_norm")
def group_norm(input: Expr, weight: Optional, bias: Optional, N: int, C: int, HxW: int, group: int, eps: float) -> tuple[Expr, Expr, Expr]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    x = reshape(cast(input, wide), (N, group, C // group, HxW))
    mean, var = _moments(x, (2, 3))
    rstd = _rstd(var, eps)
    y = ops.mul(ops.sub(x, mean), rstd)
    y = _per_channel(y, weight, bias, group, C)
    return cast(reshape(y, input.shape.dims), kind), cast(reshape(mean, (N, group)), kind), cast(reshape(rstd, (N, group)), kind)


def _per_channel(y: Expr, weight: Optional, bias: Optional, group: int, channels: int) -> Expr:
    dims = (1, group, channels // group, 1)
    if weight is not None:
        y = ops.mul(y, reshape(cast(weight, y.shape.dtype), dims))
    if bias is not None:
        y = ops.add(y, reshape(cast(bias, y.shape.dtype), dims))
    return y


@aten("native_group_norm_backward")
def group_norm_backward(
    grad_out: Expr, input: Expr, mean: Expr, rstd: Expr, weight: Optional, N: int, C: int, HxW: int, group: int, output_mask: Sequence[bool]
) -> tuple[Optional, Optional, Optional]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    dims = (N, group, C // group, HxW)
    x, g = reshape(cast(input, wide), dims), reshape(cast(grad_out, wide), dims)
    m, r = (reshape(cast(v, wide), (N, group, 1, 1)) for v in (mean, rstd))
    hat = ops.mul(ops.sub(x, m), r)
    grad_input: Optional = None
    if output_mask[0]:
        scaled = _per_channel(g, weight, None, group, C)
        body = ops.sub(ops.sub(scaled, _mean(scaled, (2, 3))), ops.mul(hat, _mean(ops.mul(scaled, hat), (2, 3))))
        grad_input = cast(reshape(ops.mul(body, r), input.shape.dims), kind)
    param = kind if weight is None else weight.shape.dtype

    def channels(v: Expr) -> Expr:
        return cast(reshape(ops.sum(v, axes=(0, 3), keepdims=False), (C,)), param)

    return grad_input, channels(ops.mul(g, hat)) if output_mask[1] else None, channels(g) if output_mask[2] else None


# ------------------------------------------------------------------ weight normalisation


def _over(v: Expr, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(v.shape.ndim) if i != dim % v.shape.ndim)


@aten("_weight_norm_interface")
def weight_norm(v: Expr, g: Expr, dim: int = 0) -> tuple[Expr, Expr]:
    wide = cast(v, math_dtype(v.shape.dtype))
    norms = ops.sqrt(ops.sum(ops.mul(wide, wide), axes=_over(v, dim), keepdims=True))
    return cast(ops.mul(wide, ops.div(cast(g, wide.shape.dtype), norms)), v.shape.dtype), cast(norms, g.shape.dtype)


@aten("_weight_norm_interface_backward")
def weight_norm_backward(grad_w: Expr, saved_v: Expr, saved_g: Expr, saved_norms: Expr, dim: int) -> tuple[Expr, Expr]:
    kind = math_dtype(saved_v.shape.dtype)
    grad, v, g, norms = (cast(x, kind) for x in (grad_w, saved_v, saved_g, saved_norms))
    along = ops.div(ops.sum(ops.mul(grad, v), axes=_over(v, dim), keepdims=True), norms)
    grad_v = ops.mul(ops.div(g, norms), ops.sub(grad, ops.mul(v, ops.div(along, norms))))
    return cast(grad_v, saved_v.shape.dtype), cast(along, saved_g.shape.dtype)
