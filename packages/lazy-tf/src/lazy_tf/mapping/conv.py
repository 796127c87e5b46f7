"""Convolutions, pooling, and their gradients, in both data formats.

Source: `gen_nn_ops`; padding follows `tf.nn`'s notes on SAME and VALID.  Filters are HWIO; a depthwise filter HWCM is read as HW1(CM)
with C groups. May import `rules` and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ir, ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr

from .rules import like, lower

Pads = tuple[tuple[int, int], ...]


def _layout(data_format: str, rank: int) -> tuple[str, tuple[int, ...], int]:
    """The layout as letters, the spatial axes and the channel axis."""
    spatial = "DHW"[-(rank - 2) :]
    if data_format in ("NHWC", "NDHWC"):
        return "N" + spatial + "C", tuple(range(1, rank - 1)), rank - 1
    if data_format in ("NCHW", "NCDHW"):
        return "NC" + spatial, tuple(range(2, rank)), 1
    raise UnsupportedError(f"convolutions and pooling in the data format {data_format}")


def _pads(padding: str, explicit: tuple[int, ...], axes: tuple[int, ...], sizes: list[int], windows: list[int], strides: list[int]) -> Pads:
    if padding == "VALID":
        return tuple([(0, 0)] * len(sizes))
    if padding == "EXPLICIT":
        return tuple([(explicit[2 * a], explicit[2 * a + 1]) for a in axes])
    pads = []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        total = max(((size + stride - 1) // stride - 1) * stride + window - size, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


class Geometry:
    """A convolution's attributes in the core's terms, for an input and a filter of these dimensions."""

    def __init__(
        self,
        dims: tuple[int, ...],
        filter_dims: tuple[int, ...],
        strides: tuple[int, ...],
        padding: str,
        explicit: tuple[int, ...],
        data_format: str,
        dilations: tuple[int, ...],
        name: str,
    ) -> None:
        rank = len(dims)
        if rank not in (4, 5) or len(filter_dims) != rank:
            raise ShapeError(f"{name}: an input of rank {rank} and a filter of rank {len(filter_dims)}")
        layout, axes, self.channel_axis = _layout(data_format, rank)
        spread = dilations or (1,) * rank
        dilation = [spread[a] for a in axes]
        windows = [(k - 1) * d + 1 for k, d in zip(filter_dims, dilation, strict=False)]
        sizes = [dims[a] for a in axes]
        steps = [strides[a] for a in axes]
        if dims[self.channel_axis] % max(1, filter_dims[-2]):
            raise ShapeError(f"{name}: {dims[self.channel_axis]} input channels and a filter for {filter_dims[-2]}")
        self.attributes: dict[str, Any] = {
            "strides": tuple(steps),
            "padding": _pads(padding, explicit, axes, sizes, windows, steps),
            "lhs_dilation": (1,) * (rank - 2),
            "rhs_dilation": tuple(dilation),
            "groups": dims[self.channel_axis] // max(1, filter_dims[-2]),
            "spec": (layout, layout.strip("NC") + "IO", layout),
        }


def _as_is(filter_dims: tuple[int, ...]) -> tuple[int, ...]:
    return filter_dims


def _depthwise(filter_dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*filter_dims[:-2], 1, filter_dims[-2] * filter_dims[-1])


def _full_input_dims(sizes: tuple[int, ...], gradient: tuple[int, ...], channels: int, data_format: str) -> tuple[int, ...]:
    if len(sizes) == 2:  # spatial dimensions only
        return (gradient[0], *sizes, channels) if data_format == "NHWC" else (gradient[0], channels, *sizes)
    return sizes


def _convolution(forward: str, input_gradient: str, filter_gradient: str, flat: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
    """Declare a convolution and its two gradients; `flat` are the dimensions of a filter as the core's convolution takes it."""

    def flattened(w: Expr) -> Expr:
        dims = flat(w.shape.dims)
        return w if dims == w.shape.dims else ops.reshape(w, dims=dims)

    @lower(forward)
    def convolve(
        x: Expr,
        w: Expr,
        *,
        strides: tuple[int, ...],
        padding: str,
        explicit_paddings: tuple[int, ...] = (),
        data_format: str,
        dilations: tuple[int, ...],
    ) -> Expr:
        geometry = Geometry(x.shape.dims, flat(w.shape.dims), strides, padding, explicit_paddings, data_format, dilations, forward)
        return ops.conv(x, flattened(w), **geometry.attributes)

    @lower(input_gradient)
    def to_input(
        w: Expr,
        g: Expr,
        *,
        input_sizes: tuple[int, ...],
        strides: tuple[int, ...],
        padding: str,
        explicit_paddings: tuple[int, ...] = (),
        data_format: str,
        dilations: tuple[int, ...],
    ) -> Expr:
        dims = _full_input_dims(input_sizes, g.shape.dims, w.shape.dims[-2], data_format)
        geometry = Geometry(dims, flat(w.shape.dims), strides, padding, explicit_paddings, data_format, dilations, input_gradient)
        return ops.conv_input_grad(g, flattened(w), input_dims=dims, **geometry.attributes)

    @lower(filter_gradient)
    def to_filter(
        x: Expr,
        g: Expr,
        *,
        filter_sizes: tuple[int, ...],
        strides: tuple[int, ...],
        padding: str,
        explicit_paddings: tuple[int, ...] = (),
        data_format: str,
        dilations: tuple[int, ...],
    ) -> Expr:
        dims = flat(filter_sizes)
        geometry = Geometry(x.shape.dims, dims, strides, padding, explicit_paddings, data_format, dilations, filter_gradient)
        made = ops.conv_filter_grad(x, g, filter_dims=dims, **geometry.attributes)
        return made if dims == filter_sizes else ops.reshape(made, dims=filter_sizes)


_convolution("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", _as_is)
_convolution("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", _as_is)
_convolution("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", _depthwise)


# ------------------------------------------------------------------ pooling


def _pool(
    dims: tuple[int, ...], ksize: tuple[int, ...], strides: tuple[int, ...], padding: str, explicit: tuple[int, ...], name: str
) -> dict[str, Any]:
    if len(dims) != len(ksize):
        raise ShapeError(f"{name}: an input of rank {len(dims)} and a window of rank {len(ksize)}")
    pads = _pads(padding, explicit, tuple(range(len(dims))), list(dims), list(ksize), list(strides))
    return {"window": tuple(ksize), "strides": tuple(strides), "padding": pads}


@lower("MaxPool", "MaxPool3D")
def _max_pool(
    x: Expr,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...] = (),
    data_format: str,
) -> Expr:
    _layout(data_format, x.shape.ndim)
    return ops.max_pool(x, **_pool(x.shape.dims, ksize, strides, padding, explicit_paddings, "MaxPool"), dilation=(1,) * x.shape.ndim)


@lower("MaxPoolGrad", "MaxPool3DGrad")
def _max_pool_grad(
    x: Expr,
    y: Expr,
    g: Expr,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...] = (),
    data_format: str,
) -> Expr:
    _layout(data_format, x.shape.ndim)
    window = _pool(x.shape.dims, ksize, strides, padding, explicit_paddings, "MaxPoolGrad")
    return ops.max_pool_grad(x, g, **window, dilation=(1,) * x.shape.ndim)


@lower("AvgPool", "AvgPool3D")
def _avg_pool(value: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str) -> Expr:
    return ops.avg_pool(value, **_pool(value.shape.dims, ksize, strides, padding, (), "AvgPool"), count_include_pad=False)


@lower("AvgPoolGrad", "AvgPool3DGrad")
def _avg_pool_grad(
    grad: Expr, *, orig_input_shape: tuple[int, ...], ksize: tuple[int, ...], strides: tuple[int, ...], padding: str
) -> Expr:
    window = _pool(orig_input_shape, ksize, strides, padding, (), "AvgPoolGrad")
    return ops.avg_pool_grad(grad, input_dims=orig_input_shape, **window, count_include_pad=False)


def _places(dims: tuple[int, ...], dtype: np.dtype, include_batch: bool) -> tuple[Expr, Expr]:
    """For `[n, h, w, c]`: the offset of each element's channel, and of its image, in TensorFlow's flat numbering of maxima."""
    n, h, w, c = dims
    channel = ops.reshape(ops.iota(dims=(c,), axis=0, dtype=dtype), dims=(1, 1, 1, c))
    image = ops.mul(ops.iota(dims=(n,), axis=0, dtype=dtype), ir.const(h * w * c if include_batch else 0, dtype))
    return channel, ops.reshape(image, dims=(n, 1, 1, 1))


@lower("MaxPoolWithArgmax")
def _max_pool_with_argmax(
    x: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], Targmax: np.dtype, padding: str, include_batch_in_index: bool
) -> tuple[Expr, Expr]:
    window = _pool(x.shape.dims, ksize, strides, padding, (), "MaxPoolWithArgmax")
    spatial = {name: numbers[1:3] for name, numbers in window.items()}
    first = ops.transpose(x, perm=(0, 3, 1, 2))
    best, flat = (ops.transpose(e, perm=(0, 2, 3, 1)) for e in ops.max_pool_with_indices(first, **spatial, dilation=(1, 1)))
    channel, image = _places(x.shape.dims, Targmax, include_batch_in_index)
    place = ops.mul(ops.convert(flat, dtype=Targmax), ir.const(x.shape.dims[3], Targmax))
    return best, ops.add(ops.add(place, channel), image)


@lower("MaxPoolGradWithArgmax")
def _max_pool_grad_with_argmax(x: Expr, g: Expr, argmax: Expr, *, include_batch_in_index: bool) -> Expr:
    dims, dtype = x.shape.dims, argmax.shape.dtype
    if not include_batch_in_index:
        argmax = ops.add(argmax, _places(dims, dtype, True)[1])
    size = x.shape.size
    flat, places = (ops.reshape(e, dims=(g.shape.size,)) for e in (g, argmax))
    summed = ops.index_put(ops.full(like(g, 0), dims=(size,)), flat, places, axes=(0,), accumulate=True)
    return ops.reshape(summed, dims=dims)
