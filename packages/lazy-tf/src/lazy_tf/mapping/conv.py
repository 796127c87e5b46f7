"""Convolutions, pooling, and their gradients, in both data formats.

Source: `gen_nn_ops`; padding follows `tf.nn`'s notes on SAME and VALID.  Filters are HWIO; a depthwise filter HWCM is read as HW1(CM)
with C groups. May import `rules` and the core.
"""

from __future__ import annotations

from typing import Any

from lazy_core import ops
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr

from .rules import lower

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


def _depthwise(filter_dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*filter_dims[:-2], 1, filter_dims[-2] * filter_dims[-1])


@lower("Conv2D")
def _conv2d(
    x: Expr,
    w: Expr,
    *,
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    geometry = Geometry(x.shape.dims, w.shape.dims, strides, padding, explicit_paddings, data_format, dilations, "Conv2D")
    return ops.conv(x, w, **geometry.attributes)


@lower("Conv2DBackpropInput")
def _conv2d_input_gradient(
    w: Expr,
    g: Expr,
    *,
    input_sizes: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    dims = _full_input_dims(input_sizes, g.shape.dims, w.shape.dims[-2], data_format)
    geometry = Geometry(dims, w.shape.dims, strides, padding, explicit_paddings, data_format, dilations, "Conv2DBackpropInput")
    return ops.conv_input_grad(g, w, input_dims=dims, **geometry.attributes)


def _full_input_dims(sizes: tuple[int, ...], gradient: tuple[int, ...], channels: int, data_format: str) -> tuple[int, ...]:
    if len(sizes) == 2:  # spatial dimensions only
        return (gradient[0], *sizes, channels) if data_format == "NHWC" else (gradient[0], channels, *sizes)
    return sizes


@lower("Conv2DBackpropFilter")
def _conv2d_filter_gradient(
    x: Expr,
    g: Expr,
    *,
    filter_sizes: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    geometry = Geometry(x.shape.dims, filter_sizes, strides, padding, explicit_paddings, data_format, dilations, "Conv2DBackpropFilter")
    return ops.conv_filter_grad(x, g, filter_dims=filter_sizes, **geometry.attributes)


@lower("Conv3D")
def _conv3d(x: Expr, w: Expr, *, strides: tuple[int, ...], padding: str, data_format: str, dilations: tuple[int, ...]) -> Expr:
    geometry = Geometry(x.shape.dims, w.shape.dims, strides, padding, (), data_format, dilations, "Conv3D")
    return ops.conv(x, w, **geometry.attributes)


@lower("Conv3DBackpropInputV2")
def _conv3d_input_gradient(
    w: Expr, g: Expr, *, input_sizes: tuple[int, ...], strides: tuple[int, ...], padding: str, data_format: str, dilations: tuple[int, ...]
) -> Expr:
    geometry = Geometry(input_sizes, w.shape.dims, strides, padding, (), data_format, dilations, "Conv3DBackpropInputV2")
    return ops.conv_input_grad(g, w, input_dims=input_sizes, **geometry.attributes)


@lower("Conv3DBackpropFilterV2")
def _conv3d_filter_gradient(
    x: Expr, g: Expr, *, filter_sizes: tuple[int, ...], strides: tuple[int, ...], padding: str, data_format: str, dilations: tuple[int, ...]
) -> Expr:
    geometry = Geometry(x.shape.dims, filter_sizes, strides, padding, (), data_format, dilations, "Conv3DBackpropFilterV2")
    return ops.conv_filter_grad(x, g, filter_dims=filter_sizes, **geometry.attributes)


@lower("DepthwiseConv2dNative")
def _depthwise_conv2d(
    x: Expr,
    w: Expr,
    *,
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    flat = _depthwise(w.shape.dims)
    geometry = Geometry(x.shape.dims, flat, strides, padding, explicit_paddings, data_format, dilations, "DepthwiseConv2dNative")
    return ops.conv(x, ops.reshape(w, dims=flat), **geometry.attributes)


@lower("DepthwiseConv2dNativeBackpropInput")
def _depthwise_input_gradient(
    w: Expr,
    g: Expr,
    *,
    input_sizes: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    flat = _depthwise(w.shape.dims)
    dims = _full_input_dims(input_sizes, g.shape.dims, w.shape.dims[-2], data_format)
    geometry = Geometry(dims, flat, strides, padding, explicit_paddings, data_format, dilations, "DepthwiseConv2dNativeBackpropInput")
    return ops.conv_input_grad(g, ops.reshape(w, dims=flat), input_dims=dims, **geometry.attributes)


@lower("DepthwiseConv2dNativeBackpropFilter")
def _depthwise_filter_gradient(
    x: Expr,
    g: Expr,
    *,
    filter_sizes: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
    dilations: tuple[int, ...],
) -> Expr:
    flat = _depthwise(filter_sizes)
    geometry = Geometry(
        x.shape.dims, flat, strides, padding, explicit_paddings, data_format, dilations, "DepthwiseConv2dNativeBackpropFilter"
    )
    return ops.reshape(ops.conv_filter_grad(x, g, filter_dims=flat, **geometry.attributes), dims=filter_sizes)


# ------------------------------------------------------------------ pooling


def _pool(
    dims: tuple[int, ...], ksize: tuple[int, ...], strides: tuple[int, ...], padding: str, explicit: tuple[int, ...], name: str
) -> dict[str, Any]:
    if len(dims) != len(ksize):
        raise ShapeError(f"{name}: an input of rank {len(dims)} and a window of rank {len(ksize)}")
    pads = _pads(padding, explicit, tuple(range(len(dims))), list(dims), list(ksize), list(strides))
    return {"window": tuple(ksize), "strides": tuple(strides), "padding": pads}


@lower("MaxPool")
def _max_pool(
    x: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str, explicit_paddings: tuple[int, ...], data_format: str
) -> Expr:
    _layout(data_format, x.shape.ndim)
    return ops.max_pool(x, **_pool(x.shape.dims, ksize, strides, padding, explicit_paddings, "MaxPool"), dilation=(1,) * x.shape.ndim)


@lower("MaxPoolGrad")
def _max_pool_grad(
    x: Expr,
    y: Expr,
    g: Expr,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    explicit_paddings: tuple[int, ...],
    data_format: str,
) -> Expr:
    _layout(data_format, x.shape.ndim)
    window = _pool(x.shape.dims, ksize, strides, padding, explicit_paddings, "MaxPoolGrad")
    return ops.max_pool_grad(x, g, **window, dilation=(1,) * x.shape.ndim)


@lower("MaxPool3D")
def _max_pool_3d(x: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str) -> Expr:
    return ops.max_pool(x, **_pool(x.shape.dims, ksize, strides, padding, (), "MaxPool3D"), dilation=(1,) * x.shape.ndim)


@lower("MaxPool3DGrad")
def _max_pool_3d_grad(x: Expr, y: Expr, g: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str) -> Expr:
    return ops.max_pool_grad(x, g, **_pool(x.shape.dims, ksize, strides, padding, (), "MaxPool3DGrad"), dilation=(1,) * x.shape.ndim)


@lower("AvgPool", "AvgPool3D")
def _avg_pool(value: Expr, *, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str) -> Expr:
    return ops.avg_pool(value, **_pool(value.shape.dims, ksize, strides, padding, (), "AvgPool"), count_include_pad=False)


@lower("AvgPoolGrad")
def _avg_pool_grad(
    grad: Expr, *, orig_input_shape: tuple[int, ...], ksize: tuple[int, ...], strides: tuple[int, ...], padding: str
) -> Expr:
    window = _pool(orig_input_shape, ksize, strides, padding, (), "AvgPoolGrad")
    return ops.avg_pool_grad(grad, input_dims=orig_input_shape, **window, count_include_pad=False)


@lower("AvgPool3DGrad")
def _avg_pool_3d_grad(
    grad: Expr, *, orig_input_shape: tuple[int, ...], ksize: tuple[int, ...], strides: tuple[int, ...], padding: str
) -> Expr:
    return _avg_pool_grad(grad, orig_input_shape=orig_input_shape, ksize=ksize, strides=strides, padding=padding)
