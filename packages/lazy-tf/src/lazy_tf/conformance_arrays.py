"""The part of `conformance` that creates, reshapes, indexes, sorts, convolves and pools.  Imports TensorFlow only."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import numpy as tnp

Call = Callable[..., Any]


def _moved(call: Call) -> Call:
    """Apply a call that works on the last axis along another one."""

    def run(x: Any, *, axis: int, **attributes: Any) -> Any:
        rank = len(x.shape)
        order = [i for i in range(rank) if i != axis % rank] + [axis % rank]
        back = [order.index(i) for i in range(rank)]
        result = call(tf.transpose(x, order), **attributes)
        return tuple([tf.transpose(r, back) for r in result])

    return run


def _topk(x: Any, *, k: int, largest: bool) -> Any:
    if largest:
        values, indices = tf.math.top_k(x, k)
    else:
        indices = tf.argsort(x, axis=-1, stable=True)[..., :k]
        values = tf.sort(x, axis=-1)[..., :k]
    return values, tf.cast(indices, tf.int64)


def _ordered(x: Any) -> Any:
    """TensorFlow's sorts leave NaN wherever comparing puts it, so NaN is kept out."""
    return tf.where(tf.math.is_nan(x), tf.cast(float("inf"), x.dtype), x) if x.dtype.is_floating else x


def _argsort(x: Any, *, axis: int, descending: bool, stable: bool, dtype: Any) -> Any:
    return tf.cast(tf.argsort(_ordered(x), axis, "DESCENDING" if descending else "ASCENDING", stable=True), dtype)


def _sort_with_indices(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    direction = "DESCENDING" if descending else "ASCENDING"
    indices = tf.argsort(_ordered(x), axis, direction, stable=True)
    return tf.sort(_ordered(x), axis, direction), tf.cast(indices, tf.int64)


def _pad(x: Any, value: Any, *, low: Any, high: Any, interior: Any) -> Any:
    for axis, gap in enumerate(interior):
        if gap and x.shape[axis] > 1:
            rest = [d for i, d in enumerate(x.shape) if i != axis]
            filler = tf.fill([gap, *rest], value)
            parts: list[tf.Tensor] = []
            for i, row in enumerate(tf.unstack(x, axis=axis)):
                parts += ([] if i == 0 else tf.unstack(filler)) + [row]
            x = tf.stack(parts, axis=axis)
    x = tf.pad(x, [[max(a, 0), max(b, 0)] for a, b in zip(low, high, strict=True)], constant_values=value)
    begin = [max(-a, 0) for a in low]
    size = [d - b - max(-h, 0) for d, b, h in zip(x.shape, begin, high, strict=True)]
    return tf.slice(x, begin, size)


def _positions(x: Any, indices: Any, axes: Any) -> Any:
    """Broadcast indices, negative ones counted from the end, as the last axis of one tensor."""
    wrapped = [tf.where(i < 0, i + x.shape[a], i) for i, a in zip(indices, axes, strict=True)]
    shape = wrapped[0].shape
    for w in wrapped[1:]:
        shape = tf.broadcast_static_shape(shape, w.shape)
    return tf.stack([tf.broadcast_to(w, shape) for w in wrapped], axis=-1)


def _front(x: Any, axes: Any) -> list[int]:
    return [*axes, *[i for i in range(len(x.shape)) if i not in axes]]


def _index(x: Any, *indices: Any, axes: Any, mode: str) -> Any:
    places = _positions(x, indices, axes)
    result = tf.gather_nd(tf.transpose(x, _front(x, axes)), places)
    neighbours = all(b == a + 1 for a, b in itertools.pairwise(axes))
    if neighbours and axes[0]:
        wide, lead = len(places.shape) - 1, axes[0]
        order = [*range(wide, wide + lead), *range(wide), *range(wide + lead, len(result.shape))]
        result = tf.transpose(result, order)
    return result


def _index_put(x: Any, values: Any, *indices: Any, axes: Any, accumulate: bool) -> Any:
    order = _front(x, axes)
    moved = tf.transpose(x, order)
    places = _positions(x, indices, axes)
    lead = len(places.shape) - 1
    dims = [*places.shape[:-1], *moved.shape[len(axes) :]]
    if axes[0] and len(values.shape) == len(dims) > lead:
        values = tf.transpose(values, [*range(axes[0], axes[0] + lead), *range(axes[0]), *range(axes[0] + lead, len(dims))])
    values = tf.broadcast_to(values, dims)
    write = tf.tensor_scatter_nd_add if accumulate else tf.tensor_scatter_nd_update
    return tf.transpose(write(moved, places, values), [order.index(i) for i in range(len(order))])


_SCATTERS: dict[str, Call] = {
    "set": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


def _scatter(x: Any, indices: Any, updates: Any, *, axis: int, reduce: str) -> Any:
    grids = tf.meshgrid(*[tf.range(d, dtype=indices.dtype) for d in indices.shape], indexing="ij")
    grids[axis] = tf.where(indices < 0, indices + x.shape[axis], indices)
    places = tf.stack(grids, axis=-1)
    if reduce == "mul":
        flat, rows = tf.reshape(places, [-1, len(x.shape)]), tf.reshape(updates, [-1])
        for i in range(int(flat.shape[0])):
            at = flat[i : i + 1]
            x = tf.tensor_scatter_nd_update(x, at, tf.gather_nd(x, at) * rows[i : i + 1])
        return x
    return _SCATTERS[reduce](x, places, updates)


def _take(x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    size = tf.cast(x.shape[axis], indices.dtype)
    if mode == "wrap":
        indices = tf.math.floormod(indices, size)
    elif mode == "clip":
        indices = tf.clip_by_value(indices, tf.zeros_like(size), size - 1)
    return tf.gather(x, indices, axis=axis)


def _along(x: Any, indices: Any, *, axis: int) -> Any:
    wrapped = tf.where(indices < 0, indices + x.shape[axis], indices)
    return tnp.take_along_axis(x, wrapped, axis)


def _dynamic_slice(x: Any, *starts: Any, sizes: Any) -> Any:
    clamped = [tf.clip_by_value(tf.cast(s, tf.int64), 0, d - n) for s, d, n in zip(starts, x.shape, sizes, strict=True)]
    return tf.slice(x, tf.stack(clamped), list(sizes))


def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    rows = [
        tf.range(n, dtype=tf.int64) + tf.clip_by_value(tf.cast(s, tf.int64), 0, d - n)
        for s, d, n in zip(starts, x.shape, update.shape, strict=True)
    ]
    return tf.tensor_scatter_nd_update(x, tf.stack(tf.meshgrid(*rows, indexing="ij"), axis=-1), update)


def _expand_dims(x: Any, *, axes: Any) -> Any:
    rank = len(x.shape) + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = tf.expand_dims(x, axis)
    return x


def _tile(x: Any, *, reps: Any) -> Any:
    x = tf.reshape(x, [*([1] * (len(reps) - len(x.shape))), *x.shape])
    return tf.tile(x, [*([1] * (len(x.shape) - len(reps))), *reps])


def _searchsorted(ordered: Any, v: Any, *, side: str) -> Any:
    if len(ordered.shape) == 1 and len(v.shape) != 1:
        return tf.reshape(tf.searchsorted(ordered, tf.reshape(v, [-1]), side, out_type=tf.int64), v.shape)
    return tf.searchsorted(ordered, v, side, out_type=tf.int64)


def _strided(starts: Any, limits: Any, strides: Any) -> Any:
    return tuple([slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True)])


def _update_slice(x: Any, update: Any, *, starts: Any, strides: Any) -> Any:
    ranges = [tf.range(a, a + s * n, s) if n else tf.zeros([0], tf.int32) for a, s, n in zip(starts, strides, update.shape, strict=True)]
    return tf.tensor_scatter_nd_update(x, tf.stack(tf.meshgrid(*ranges, indexing="ij"), axis=-1), update)


# ------------------------------------------------------------------ convolution and pooling


def _conv(x: Any, w: Any, *, strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any, groups: int, spec: Any) -> Any:
    left, middle, right = spec
    spatial = [c for c in left if c not in "NC"]
    order = "N" + "".join(spatial) + "C"
    x = tf.transpose(x, [left.index(c) for c in order])
    w = tf.transpose(w, [middle.index(c) for c in [*spatial, "I", "O"]])
    if any(d != 1 for d in lhs_dilation):
        x = _pad(x, tf.zeros([], x.dtype), low=[0] * len(order), high=[0] * len(order), interior=[0, *[d - 1 for d in lhs_dilation], 0])
    x = _pad(
        x, tf.zeros([], x.dtype), low=[0, *[p[0] for p in padding], 0], high=[0, *[p[1] for p in padding], 0], interior=[0] * len(order)
    )
    parts = [
        tf.nn.convolution(a, b, list(strides), "VALID", dilations=list(rhs_dilation))
        for a, b in zip(tf.split(x, groups, -1), tf.split(w, groups, -1), strict=True)
    ]
    return tf.transpose(tf.concat(parts, -1), [order.index(c) for c in right])


def _conv_input_grad(g: Any, w: Any, *, input_dims: Any, **attributes: Any) -> Any:
    x = tf.zeros(list(input_dims), g.dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _conv(x, w, **attributes)
    return tape.gradient(y, x, output_gradients=g)


def _conv_filter_grad(x: Any, g: Any, *, filter_dims: Any, **attributes: Any) -> Any:
    w = tf.zeros(list(filter_dims), g.dtype)
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = _conv(x, w, **attributes)
    return tape.gradient(y, w, output_gradients=g)


def _images(x: Any, window: Any) -> tuple[Any, list[int], Any]:
    """The two axes that a window covers as the spatial axes of images with one channel; how to go back."""
    spatial = [i for i, w in enumerate(window) if w != 1]
    order = [i for i in range(len(window)) if i not in spatial] + spatial
    moved = tf.transpose(x, order)
    lead = moved.shape[:-2]
    images = tf.reshape(moved, [-1, *moved.shape[-2:], 1])

    def back(y: Any) -> Any:
        return tf.transpose(tf.reshape(y, [*lead, *y.shape[1:3]]), [order.index(i) for i in range(len(order))])

    return images, spatial, back


def _pooled(x: Any, kind: str, *, window: Any, strides: Any, padding: Any, dilation: Any = None, filler: Any = 0) -> Any:
    images, spatial, back = _images(x, window)
    pads = [[0, 0], *[list(padding[i]) for i in spatial], [0, 0]]
    images = tf.pad(images, pads, constant_values=tf.cast(filler, x.dtype))
    return back(
        tf.nn.pool(
            images,
            [window[i] for i in spatial],
            kind,
            [strides[i] for i in spatial],
            "VALID",
            dilations=None if dilation is None else [dilation[i] for i in spatial],
        )
    )


def _max_pool(x: Any, **attributes: Any) -> Any:
    return _pooled(x, "MAX", filler=x.dtype.min, **attributes)


def _max_pool_grad(x: Any, g: Any, **attributes: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _max_pool(x, **attributes)
    return tape.gradient(y, x, output_gradients=g)


def _avg_pool(x: Any, *, count_include_pad: bool, **attributes: Any) -> Any:
    sums = _pooled(x, "AVG", **attributes)
    return sums if count_include_pad else sums / _pooled(tf.ones_like(x), "AVG", **attributes)


def _avg_pool_grad(g: Any, *, input_dims: Any, **attributes: Any) -> Any:
    x = tf.zeros(list(input_dims), g.dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _avg_pool(x, **attributes)
    return tape.gradient(y, x, output_gradients=g)


ARRAYS: dict[str, Call] = {
    "argsort": _argsort,
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
    "broadcast_to": lambda x, *, dims: tf.broadcast_to(x, list(dims)),
    "concatenate": lambda *xs, axis: tf.concat(list(xs), axis),
    "conv": _conv,
    "conv_filter_grad": _conv_filter_grad,
    "conv_input_grad": _conv_input_grad,
    "diagonal": lambda x, *, offset, axis1, axis2: tnp.diagonal(x, offset, axis1, axis2),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "expand_dims": _expand_dims,
    "eye": lambda *, n, m, k, dtype: tnp.eye(n, m, k, dtype=dtype),
    "full": lambda value, *, dims: tf.fill(list(dims), value),
    "index": _index,
    "index_put": _index_put,
    "iota": lambda *, dims, axis, dtype: tf.broadcast_to(
        tf.reshape(tf.cast(tf.range(dims[axis]), dtype), [-1 if i == axis else 1 for i in range(len(dims))]), list(dims)
    ),
    "log_softmax": lambda x, *, axis: tf.nn.log_softmax(x, axis),
    "max_pool": _max_pool,
    "max_pool_grad": _max_pool_grad,
    "one_hot": lambda indices, *, depth, dtype: tf.one_hot(indices, depth, dtype=dtype),
    "pad": _pad,
    "reshape": lambda x, *, dims: tf.reshape(x, list(dims)),
    "reverse": lambda x, *, axes: tf.reverse(x, list(axes)),
    "roll": lambda x, *, shifts, axes: tf.roll(x, list(shifts), list(axes)),
    "scatter": _scatter,
    "searchsorted": _searchsorted,
    "segment_sum": lambda data, ids, *, num: tf.math.unsorted_segment_sum(data, ids, num),
    "slice": lambda x, *, starts, limits, strides: x[_strided(starts, limits, strides)],
    "softmax": lambda x, *, axis: tf.nn.softmax(x, axis),
    "sort": lambda x, *, axis, descending, stable: tf.sort(_ordered(x), axis, "DESCENDING" if descending else "ASCENDING"),
    "sort_with_indices": _sort_with_indices,
    "squeeze": lambda x, *, axes: tf.squeeze(x, list(axes)),
    "stack": lambda *xs, axis: tf.stack(list(xs), axis),
    "take": _take,
    "take_along_axis": _along,
    "tile": _tile,
    "topk": _moved(_topk),
    "transpose": lambda x, *, perm: tf.transpose(x, list(perm)),
    "tril": lambda x, *, k: tnp.tril(x, k),
    "triu": lambda x, *, k: tnp.triu(x, k),
    "update_slice": _update_slice,
}
