"""Kernels of convolutions and their transposes: the family `convolution`.

Owns: windows gathered into columns, a few images at a time, and products of matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..ir import Node
from .registry import F32, Array, Function, builder, narrow
from .shapes import placement

Dims = tuple[int, ...]

# The columns of so many bytes are made at a time.
_COLUMN_BYTES = 1 << 23


class _Geometry:
    """Sizes of a convolution in the layouts x[n, c, *spatial], w[o, c / groups, *window], y[n, o, *out].

    Attributes:
        to_x, to_w, to_y: permutations of the operation's dims to these; from_x, from_w, from_y the other way.
    """

    def __init__(self, x_dims: Dims, w_dims: Dims, attributes: dict[str, Any]) -> None:
        x_spec, w_spec, y_spec = attributes["spec"]
        spatial = [c for c in x_spec if c not in "NC"]
        self.to_x = _order(x_spec, ["N", "C", *spatial])
        self.to_w = _order(w_spec, ["O", "I", *spatial])
        self.to_y = _order(y_spec, ["N", "C", *spatial])
        self.from_x, self.from_w, self.from_y = (tuple(np.argsort(p).tolist()) for p in (self.to_x, self.to_w, self.to_y))
        self.n, self.c, *sizes = [x_dims[a] for a in self.to_x]
        self.o, self.ci, *window = [w_dims[a] for a in self.to_w]
        self.sizes, self.window = tuple(sizes), tuple(window)
        self.groups = attributes["groups"]
        self.strides, self.steps = tuple(attributes["strides"]), tuple(attributes["rhs_dilation"])
        self.padded: Dims = ()
        take, put = [slice(None), slice(None)], [slice(None), slice(None)]
        for size, (lo, hi), by in zip(sizes, attributes["padding"], attributes["lhs_dilation"], strict=True):
            length = max(lo + (size - 1) * by + 1 + hi, 0) if size else max(lo + hi, 0)
            source, target = placement(size, length, lo, by - 1)
            self.padded += (length,)
            take.append(source)
            put.append(target)
        self.take, self.put = tuple(take), tuple(put)
        self.plain = self.padded == self.sizes and all(t == slice(0, n, 1) for t, n in zip(put[2:], sizes, strict=True))
        self.out = tuple(
            [
                max((p - (d * (k - 1) + 1)) // s + 1, 0)
                for p, k, d, s in zip(self.padded, self.window, self.steps, self.strides, strict=True)
            ]
        )
        self.pointwise = self.plain and all(k == 1 for k in self.window) and all(s == 1 for s in self.strides)
        self.empty = 0 in (self.n, self.c, self.o, self.ci, *self.sizes, *self.window, *self.out)

    def prepared(self, x: Array) -> Array:
        """x padded and dilated."""
        if self.plain:
            return x
        result = np.zeros((self.n, self.c, *self.padded), x.dtype)
        result[self.put] = x[self.take]
        return result

    def offsets(self) -> Iterator[tuple[Dims, tuple[slice, ...]]]:
        """Each place in the window, and the slices of a padded image that all windows see there."""
        for at in itertools.product(*[range(k) for k in self.window]):
            spans = zip(at, self.steps, self.strides, self.out, strict=True)
            yield at, tuple([slice(k * d, k * d + (o - 1) * s + 1, s) for k, d, s, o in spans])

    def batches(self, itemsize: int) -> Iterator[slice]:
        """The images a few at a time."""
        each = self.c * math.prod(self.window) * math.prod(self.out) * itemsize
        count = max(_COLUMN_BYTES // max(each, 1), 1)
        for start in range(0, self.n, count):
            yield slice(start, min(start + count, self.n))

    def columns(self, padded: Array) -> Array:
        """What each window sees: [m, groups, ci * window, out]."""
        m = padded.shape[0]
        dims = (m, self.groups, self.ci * math.prod(self.window), math.prod(self.out))
        if self.pointwise:
            return padded.reshape(dims)
        strides = padded.strides
        window = tuple([s * d for s, d in zip(strides[2:], self.steps, strict=True)])
        step = tuple([s * d for s, d in zip(strides[2:], self.strides, strict=True)])
        seen = as_strided(padded, (m, self.c, *self.window, *self.out), (*strides[:2], *window, *step), writeable=False)
        return seen.reshape(dims)


def _order(spec: str, wanted: Sequence[str]) -> Dims:
    return tuple([spec.index(c) for c in wanted])


def _forward(geometry: _Geometry, x: Array, w: Array) -> Array:
    g = geometry
    padded = g.prepared(x.transpose(g.to_x))
    matrix = w.transpose(g.to_w).reshape(g.groups, g.o // g.groups, -1)
    result = np.empty((g.n, g.groups, g.o // g.groups, math.prod(g.out)), x.dtype)
    for batch in g.batches(x.dtype.itemsize):
        np.matmul(matrix, g.columns(padded[batch]), out=result[batch])
    return result.reshape(g.n, g.o, *g.out).transpose(g.from_y)


def _input_grad(geometry: _Geometry, grad: Array, w: Array) -> Array:
    g = geometry
    rows = grad.transpose(g.to_y).reshape(g.n, g.groups, g.o // g.groups, math.prod(g.out))
    matrix = w.transpose(g.to_w).reshape(g.groups, g.o // g.groups, -1).swapaxes(-1, -2)
    if g.pointwise:
        return np.matmul(matrix, rows).reshape(g.n, g.c, *g.sizes).transpose(g.from_x)
    padded = np.zeros((g.n, g.c, *g.padded), grad.dtype)
    if g.ci == 1 and g.o == g.groups:  # each channel by itself: products of single numbers
        images, filters = rows.reshape(g.n, g.c, *g.out), w.transpose(g.to_w).reshape(g.c, *g.window)
        ones = (1,) * len(g.out)
        for at, spans in g.offsets():
            target = padded[(slice(None), slice(None), *spans)]
            target += images * filters[(slice(None), *at)].reshape(g.c, *ones)
        return _cropped(g, padded)
    for batch in g.batches(grad.dtype.itemsize):
        columns = np.matmul(matrix, rows[batch]).reshape(-1, g.c, *g.window, *g.out)
        target = padded[batch]
        for at, spans in g.offsets():
            target[(slice(None), slice(None), *spans)] += columns[(slice(None), slice(None), *at)]
    return _cropped(g, padded)


def _cropped(geometry: _Geometry, padded: Array) -> Array:
    """What x was before it was padded and dilated."""
    g = geometry
    if g.plain:
        return padded.transpose(g.from_x)
    result = np.zeros((g.n, g.c, *g.sizes), padded.dtype)
    result[g.take] = padded[g.put]
    return result.transpose(g.from_x)


def _filter_grad(geometry: _Geometry, x: Array, grad: Array) -> Array:
    g = geometry
    padded = g.prepared(x.transpose(g.to_x))
    rows = grad.transpose(g.to_y).reshape(g.n, g.groups, g.o // g.groups, math.prod(g.out))
    total = np.zeros((g.groups, g.o // g.groups, g.ci * math.prod(g.window)), x.dtype)
    for batch in g.batches(x.dtype.itemsize):
        total += np.matmul(rows[batch], g.columns(padded[batch]).swapaxes(-1, -2)).sum(0)
    return total.reshape(g.o, g.ci, *g.window).transpose(g.from_w)


def _build(run: Any, node: Node, x_dims: Dims, w_dims: Dims) -> Function:
    geometry = _Geometry(x_dims, w_dims, node.attrs.kwargs)
    shape = node.outputs[0].shape
    if geometry.empty:
        return lambda a, b: np.zeros(shape.dims, shape.dtype)
    if narrow(shape.dtype):
        return lambda a, b: run(geometry, a.astype(F32), b.astype(F32)).astype(shape.dtype)
    return lambda a, b: run(geometry, a, b)


@builder("conv")
def conv(node: Node) -> Function:
    """The filter as a matrix times columns."""
    return _build(_forward, node, node.inputs[0].shape.dims, node.inputs[1].shape.dims)


@builder("conv_input_grad")
def conv_input_grad(node: Node) -> Function:
    """The filter's transpose times the gradient, added up where each window was."""
    return _build(_input_grad, node, tuple(node.attrs.kwargs["input_dims"]), node.inputs[1].shape.dims)


@builder("conv_filter_grad")
def conv_filter_grad(node: Node) -> Function:
    """The gradient times the columns' transpose."""
    return _build(_filter_grad, node, node.inputs[0].shape.dims, tuple(node.attrs.kwargs["filter_dims"]))
