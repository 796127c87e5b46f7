"""Convolution, transposed convolution and their gradients for 1 to 3 spatial dims.

Owns: `convolution` and `convolution_overrideable` (a device's name for it) with their backward. A transposed convolution is the adjoint
of a convolution with the same weight, so its forward is our input gradient and its input gradient our forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import F64, cast, filled, math_dtype, reshape
from .shapes import crop, pad_

_SPATIAL = "DHW"


def _layout(rank: int) -> tuple[str, str, str]:
    space = _SPATIAL[3 - rank :]
    return f"NC{space}", f"OI{space}", f"NC{space}"


def _settings(rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> dict[str, Any]:
    def wide(v: Sequence[int]) -> tuple[int, ...]:
        return tuple(v) if len(v) == rank else tuple(v) * rank

    return {
        "strides": wide(stride),
        "padding": tuple((p, p) for p in wide(padding)),
        "lhs_dilation": (1,) * rank,
        "rhs_dilation": wide(dilation),
        "groups": groups,
        "spec": _layout(rank),
    }


def _check(input: Expr, weight: Expr, groups: int, transposed: bool) -> None:
    if input.shape.dtype != weight.shape.dtype:
        raise RuntimeError(f"convolution: input and weight should have one dtype, but got {input.shape} and {weight.shape}")
    wanted = weight.shape.dims[0] if transposed else weight.shape.dims[1] * groups
    if input.shape.ndim != weight.shape.ndim or input.shape.dims[1] != wanted:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {weight.shape}, expected input to have {weight.shape.ndim} dims and {wanted} channels, "
            f"but got {input.shape} instead"
        )


def _spread(x: Expr, stride: Sequence[int], output_padding: Sequence[int]) -> tuple[Expr, tuple[int, ...]]:
    """Whole strides of output padding are zeros behind the input; returns the padded input and what is left of the padding."""
    rank = x.shape.ndim - 2
    out = tuple(output_padding) if len(output_padding) == rank else tuple(output_padding) * rank
    more = tuple(o // s for o, s in zip(out, stride, strict=True))
    return pad_(x, (0,) * (rank + 2), (0, 0, *more)) if any(more) else x, tuple(o % s for o, s in zip(out, stride, strict=True))


def _transposed_dims(x: Expr, w: Expr, stride: Any, padding: Any, dilation: Any, out: Sequence[int], groups: int) -> tuple[int, ...]:
    rank = x.shape.ndim - 2
    space = tuple(
        (x.shape.dims[2 + i] - 1) * stride[i] - 2 * padding[i][0] + dilation[i] * (w.shape.dims[2 + i] - 1) + out[i] + 1
        for i in range(rank)
    )
    return (x.shape.dims[0], w.shape.dims[1] * groups, *space)


@aten("convolution", "convolution_overrideable")
def convolution(
    input: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    _check(input, weight, groups, transposed)
    kind = input.shape.dtype
    wide = F64 if kind.kind in "biu" else math_dtype(kind)  # XLA's convolution takes no integers; f64 holds sums up to 2**53
    x, w = cast(input, wide), cast(weight, wide)
    rank = x.shape.ndim - 2
    kw = _settings(rank, stride, padding, dilation, groups)
    if transposed:
        x, out = _spread(x, kw["strides"], output_padding)
        dims = _transposed_dims(x, w, kw["strides"], kw["padding"], kw["rhs_dilation"], out, groups)
        y = ops.conv_input_grad(x, w, input_dims=dims, **kw)
    else:
        y = ops.conv(x, w, **kw)
    if bias is not None:
        y = ops.add(y, reshape(cast(bias, wide), (1, bias.shape.size, *(1,) * rank)))
    return cast(y, kind)


@aten("_convolution")
def convolution_flags(
    input: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *flags: bool,
) -> Expr:
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@aten("convolution_backward")
def convolution_backward(
    grad_output: Expr,
    input: Expr,
    weight: Expr,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Expr | None, Expr | None, Expr | None]:
    kind = input.shape.dtype
    wide = math_dtype(kind)
    g, x, w = (cast(v, wide) for v in (grad_output, input, weight))
    rank = x.shape.ndim - 2
    kw = _settings(rank, stride, padding, dilation, groups)
    grad_input = grad_weight = grad_bias = None
    if g.shape.size == 0 or x.shape.size == 0:
        grad_input = filled(0, x.shape.dims, kind) if output_mask[0] else None
        grad_weight = filled(0, w.shape.dims, kind) if output_mask[1] else None
    else:
        if output_mask[0]:
            grad = crop(ops.conv(g, w, **kw), x.shape.dims) if transposed else ops.conv_input_grad(g, w, input_dims=x.shape.dims, **kw)
            grad_input = cast(grad, kind)
        if output_mask[1]:
            left, right = (g, _spread(x, kw["strides"], output_padding)[0]) if transposed else (x, g)
            grad_weight = cast(ops.conv_filter_grad(left, right, filter_dims=w.shape.dims, **kw), kind)
    if output_mask[2]:
        grad_bias = cast(ops.sum(g, axes=(0, *range(2, rank + 2)), keepdims=False), kind)
    return grad_input, grad_weight, grad_bias


@aten("convolution_backward_overrideable")
def convolution_backward_overrideable(
    grad_output: Expr,
    input: Expr,
    weight: Expr,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Expr | None, Expr | None, Expr | None]:
    return convolution_backward(
        grad_output, input, weight, None, stride, padding, dilation, transposed, output_padding, groups, output_mask
    )
