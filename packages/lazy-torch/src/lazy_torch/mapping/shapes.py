"""Joining, padding, reordering and copying views; gradients and functional writes of views.

Owns: cat, stack, pads, flip, roll, repeat, triangles, `*_copy` of views, `*_scatter` and `*_backward` of views (written with core's
strided operations).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazy_core import ops
from lazy_core.ir import Expr

from . import aten
from .promotion import Scalar, axis, cast, expand, filled, num, operand, reshape, result_type

View = tuple[tuple[int, ...], tuple[int, ...], int]


# ------------------------------------------------------------------ joining


@aten("cat", "concat", "concatenate")
def cat(tensors: Sequence[Expr], dim: int = 0) -> Expr:
    dtype = result_type(*tensors)
    kept = [t for t in tensors if t.shape.dims != (0,)]
    if any(t.shape.ndim == 0 for t in tensors):
        raise RuntimeError("zero-dimensional tensor cannot be concatenated; give it a dimension with unsqueeze(0)")
    if not kept:
        return filled(0, (0,), dtype)
    along = axis(dim, kept[0].shape.ndim)
    for t in kept:
        if t.shape.ndim != kept[0].shape.ndim or any(
            a != b for i, (a, b) in enumerate(zip(t.shape.dims, kept[0].shape.dims, strict=True)) if i != along
        ):
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {along}: cat got {', '.join(str(t.shape) for t in tensors)}"
            )
    parts = [cast(t, dtype) for t in kept]
    return parts[0] if len(parts) == 1 else ops.concatenate(*parts, axis=along)


@aten("stack", "_stack")
def stack(tensors: Sequence[Expr], dim: int = 0) -> Expr:
    dtype = result_type(*tensors)
    first = tensors[0].shape.dims
    for t in tensors:
        if t.shape.dims != first:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {', '.join(str(t.shape) for t in tensors)}")
    return ops.stack(*[cast(t, dtype) for t in tensors], axis=axis(dim, len(first) + 1))


@aten("block_diag")
def block_diag(tensors: Sequence[Expr]) -> Expr:
    dtype = result_type(*tensors)
    blocks = [reshape(cast(t, dtype), (1,) * (2 - t.shape.ndim) + t.shape.dims) for t in tensors]
    width = sum(b.shape.dims[1] for b in blocks)
    rows, left = [], 0
    for b in blocks:
        right = width - left - b.shape.dims[1]
        rows.append(ops.pad(b, num(0, b), low=(0, left), high=(0, right), interior=(0, 0)))
        left += b.shape.dims[1]
    return rows[0] if len(rows) == 1 else ops.concatenate(*rows, axis=0)


# ------------------------------------------------------------------ padding


def pad_(x: Expr, low: Sequence[int], high: Sequence[int], value: Scalar = 0) -> Expr:
    """Pad with a value; negative amounts crop."""
    if not any(low) and not any(high):
        return x
    return ops.pad(x, operand(value, x.shape.dtype), low=tuple(low), high=tuple(high), interior=(0,) * x.shape.ndim)


def _pad_pairs(amounts: Sequence[int], ndim: int) -> tuple[list[int], list[int]]:
    low, high = [0] * ndim, [0] * ndim
    for i in range(len(amounts) // 2):
        low[ndim - 1 - i], high[ndim - 1 - i] = amounts[2 * i], amounts[2 * i + 1]
    return low, high


@aten("constant_pad_nd")
def constant_pad_nd(self: Expr, pad: Sequence[int], value: Scalar = 0) -> Expr:
    low, high = _pad_pairs(pad, self.shape.ndim)
    for a, (lo, hi, d) in enumerate(zip(low, high, self.shape.dims, strict=True)):
        if d + lo + hi < 0:
            raise RuntimeError(f"The input size {d}, plus negative padding {lo} and {hi} resulted in a negative size at dimension {a}")
    return pad_(self, low, high, value)


def _pad_axis(x: Expr, a: int, lo: int, hi: int, mode: str) -> Expr:
    """Pad one axis from its own elements, then crop where an amount is negative."""
    n = x.shape.dims[a]
    parts = [x]
    if mode == "replicate":
        if lo > 0:
            parts.insert(0, expand(cut(x, a, 0, 1), _with(x, a, lo)))
        if hi > 0:
            parts.append(expand(cut(x, a, n - 1, n), _with(x, a, hi)))
    else:
        if lo > 0:
            parts.insert(0, ops.reverse(cut(x, a, 1, lo + 1), axes=(a,)))
        if hi > 0:
            parts.append(ops.reverse(cut(x, a, n - 1 - hi, n - 1), axes=(a,)))
    wide = x if len(parts) == 1 else ops.concatenate(*parts, axis=a)
    return cut(wide, a, max(-lo, 0), wide.shape.dims[a] - max(-hi, 0))


def _pad_axis_backward(g: Expr, a: int, n: int, lo: int, hi: int, mode: str) -> Expr:
    rank = range(g.shape.ndim)
    whole = pad_(g, [max(-lo, 0) if i == a else 0 for i in rank], [max(-hi, 0) if i == a else 0 for i in rank])
    lo, hi = max(lo, 0), max(hi, 0)
    result = cut(whole, a, lo, lo + n)

    def put(part: Expr, at: int) -> Expr:
        high = n - at - part.shape.dims[a]
        return pad_(part, [at if i == a else 0 for i in rank], [high if i == a else 0 for i in rank])

    for size, start, edge, mirror in ((lo, 0, 0, 1), (hi, lo + n, n - 1, n - 1 - hi)):
        if size:
            part = cut(whole, a, start, start + size)
            if mode == "replicate":
                result = ops.add(result, put(ops.sum(part, axes=(a,), keepdims=True), edge))
            else:
                result = ops.add(result, put(ops.reverse(part, axes=(a,)), mirror))
    return result


def _with(x: Expr, a: int, size: int) -> tuple[int, ...]:
    return tuple(size if i == a else d for i, d in enumerate(x.shape.dims))


def _mirror(name: str, rank: int, mode: str) -> None:
    @aten(f"{name}{rank}d")
    def build(self: Expr, padding: Sequence[int]) -> Expr:
        x = self
        for i in range(rank):
            a = x.shape.ndim - 1 - i
            lo, hi = padding[2 * i], padding[2 * i + 1]
            if mode == "reflect" and max(lo, hi) >= x.shape.dims[a]:
                raise RuntimeError(f"{name}{rank}d: padding ({lo}, {hi}) at dimension {a} must be less than the size there: {self.shape}")
            x = _pad_axis(x, a, lo, hi, mode)
        return x

    @aten(f"{name}{rank}d_backward")
    def backward(grad_output: Expr, self: Expr, padding: Sequence[int]) -> Expr:
        g = grad_output
        for i in reversed(range(rank)):
            a = g.shape.ndim - 1 - i
            g = _pad_axis_backward(g, a, self.shape.dims[a], padding[2 * i], padding[2 * i + 1], mode)
        return g


for _rank in (1, 2, 3):
    _mirror("reflection_pad", _rank, "reflect")
    _mirror("replication_pad", _rank, "replicate")


# ------------------------------------------------------------------ slices


def cut(x: Expr, a: int, start: int, limit: int, stride: int = 1) -> Expr:
    """x[start:limit:stride] along one axis."""
    dims = x.shape.dims
    if start == 0 and limit == dims[a] and stride == 1:
        return x
    return ops.slice_(
        x,
        starts=tuple(start if i == a else 0 for i in range(len(dims))),
        limits=tuple(limit if i == a else d for i, d in enumerate(dims)),
        strides=tuple(stride if i == a else 1 for i in range(len(dims))),
    )


def crop(x: Expr, dims: Sequence[int]) -> Expr:
    """The corner of x of these dims."""
    if x.shape.dims == tuple(dims):
        return x
    return ops.slice_(x, starts=(0,) * len(dims), limits=tuple(dims), strides=(1,) * len(dims))


def _bounds(n: int, start: int | None, end: int | None) -> tuple[int, int]:
    lo = 0 if start is None else start
    hi = n if end is None else end
    lo = min(max(lo + n if lo < 0 else lo, 0), n)
    hi = min(max(hi + n if hi < 0 else hi, lo), n)
    return lo, hi


@aten("slice_copy.Tensor")
def slice_copy(self: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Expr:
    a = axis(dim, self.shape.ndim)
    return cut(self, a, *_bounds(self.shape.dims[a], start, end), step)


@aten("narrow_copy")
def narrow_copy(self: Expr, dim: int, start: int, length: int) -> Expr:
    a = axis(dim, self.shape.ndim)
    begin = start + self.shape.dims[a] if start < 0 else start
    return cut(self, a, begin, begin + length)


@aten("slice_backward")
def slice_backward(grad_output: Expr, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Expr:
    a = axis(dim, len(input_sizes))
    n = input_sizes[a]
    lo, _ = _bounds(n, start, end)
    m = grad_output.shape.dims[a]
    if m == 0:
        return filled(0, input_sizes, grad_output.shape.dtype)
    last = lo + (m - 1) * step + 1
    rank = range(len(input_sizes))
    return ops.pad(
        grad_output,
        num(0, grad_output),
        low=tuple(lo if i == a else 0 for i in rank),
        high=tuple(n - last if i == a else 0 for i in rank),
        interior=tuple(step - 1 if i == a else 0 for i in rank),
    )


def _index(n: int, index: int) -> int:
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for a dimension of size {n}")
    return index % n


@aten("select_backward")
def select_backward(grad_output: Expr, input_sizes: Sequence[int], dim: int, index: int) -> Expr:
    a = axis(dim, len(input_sizes))
    at = _index(input_sizes[a], index)
    g = ops.expand_dims(grad_output, axes=(a,))
    rank = range(len(input_sizes))
    return pad_(g, [at if i == a else 0 for i in rank], [input_sizes[a] - at - 1 if i == a else 0 for i in rank])


def contiguous(dims: Sequence[int]) -> View:
    """The layout of a contiguous tensor: sizes, strides, offset."""
    strides, step = [], 1
    for d in reversed(dims):
        strides.append(step)
        step *= max(d, 1)
    return tuple(dims), tuple(reversed(strides)), 0


def _select_view(dims: Sequence[int], dim: int, index: int) -> View:
    sizes, strides, _ = contiguous(dims)
    a = axis(dim, len(sizes))
    at = _index(sizes[a], index)
    return sizes[:a] + sizes[a + 1 :], strides[:a] + strides[a + 1 :], at * strides[a]


def _slice_view(dims: Sequence[int], dim: int, start: int | None, end: int | None, step: int) -> View:
    sizes, strides, _ = contiguous(dims)
    a = axis(dim, len(sizes))
    lo, hi = _bounds(sizes[a], start, end)
    count = -(-(hi - lo) // step)
    return (
        (*sizes[:a], count, *sizes[a + 1 :]),
        (*strides[:a], strides[a] * step, *strides[a + 1 :]),
        lo * strides[a] if count else 0,
    )


def _diagonal_view(dims: Sequence[int], offset: int, dim1: int, dim2: int) -> View:
    sizes, strides, _ = contiguous(dims)
    a, b = axis(dim1, len(sizes)), axis(dim2, len(sizes))
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    count = max(min(sizes[a], sizes[b] - offset) if offset >= 0 else min(sizes[a] + offset, sizes[b]), 0)
    start = 0 if not count else offset * strides[b] if offset >= 0 else -offset * strides[a]
    rest = [i for i in range(len(sizes)) if i not in (a, b)]
    return (*(sizes[i] for i in rest), count), (*(strides[i] for i in rest), strides[a] + strides[b]), start


def _write(base: Expr, src: Expr, view: View) -> Expr:
    if math.prod(view[0]) == 0:
        return base
    update = expand(cast(src, base.shape.dtype), view[0])
    return ops.strided_write(base, update, layout=contiguous(base.shape.dims), view=view)


@aten("slice_scatter")
def slice_scatter(self: Expr, src: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Expr:
    return _write(self, src, _slice_view(self.shape.dims, dim, start, end, step))


@aten("select_scatter")
def select_scatter(self: Expr, src: Expr, dim: int, index: int) -> Expr:
    return _write(self, src, _select_view(self.shape.dims, dim, index))


@aten("diagonal_scatter")
def diagonal_scatter(self: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    return _write(self, src, _diagonal_view(self.shape.dims, offset, dim1, dim2))


@aten("diagonal_backward")
def diagonal_backward(grad_output: Expr, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Expr:
    return _write(filled(0, input_sizes, grad_output.shape.dtype), grad_output, _diagonal_view(input_sizes, offset, dim1, dim2))


@aten("diag_embed")
def diag_embed(self: Expr, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Expr:
    ndim = self.shape.ndim + 1
    a, b = axis(dim1, ndim), axis(dim2, ndim)
    n = self.shape.dims[-1] + abs(offset)
    rest = iter(self.shape.dims[:-1])
    dims = [n if i in (a, b) else next(rest) for i in range(ndim)]
    return _write(filled(0, dims, self.shape.dtype), self, _diagonal_view(dims, offset, a, b))


@aten("diagonal_copy")
def diagonal_copy(self: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    return ops.diagonal(self, offset=offset, axis1=axis(dim1, self.shape.ndim), axis2=axis(dim2, self.shape.ndim))


@aten("select_copy.int")
def select_copy(self: Expr, dim: int, index: int) -> Expr:
    a = axis(dim, self.shape.ndim)
    at = _index(self.shape.dims[a], index)
    return ops.squeeze(cut(self, a, at, at + 1), axes=(a,))


@aten("unfold_copy")
def unfold_copy(self: Expr, dimension: int, size: int, step: int) -> Expr:
    a = axis(dimension, self.shape.ndim)
    if self.shape.ndim == 0:
        return reshape(self, (size,))
    sizes, strides, _ = contiguous(self.shape.dims)
    count = (sizes[a] - size) // step + 1
    view = ((*sizes[:a], count, *sizes[a + 1 :], size), (*strides[:a], strides[a] * step, *strides[a + 1 :], strides[a]), 0)
    return ops.strided_read(self, layout=contiguous(sizes), view=view)


@aten("unfold_backward")
def unfold_backward(grad_in: Expr, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Expr:
    a = axis(dim, len(input_sizes))
    if not input_sizes:
        return reshape(grad_in, ())
    count = grad_in.shape.dims[a]
    if size <= step:  # windows do not overlap
        sizes, strides, _ = contiguous(input_sizes)
        view = ((*sizes[:a], count, *sizes[a + 1 :], size), (*strides[:a], strides[a] * step, *strides[a + 1 :], strides[a]), 0)
        return _write(filled(0, sizes, grad_in.shape.dtype), grad_in, view)
    total = filled(0, input_sizes, grad_in.shape.dtype)
    rank = range(len(input_sizes))
    last = len(input_sizes)
    for j in range(size):
        part = ops.squeeze(cut(grad_in, last, j, j + 1), axes=(last,))
        high = input_sizes[a] - j - ((count - 1) * step + 1)
        spread = ops.pad(
            part,
            num(0, part),
            low=tuple(j if i == a else 0 for i in rank),
            high=tuple(high if i == a else 0 for i in rank),
            interior=tuple(step - 1 if i == a else 0 for i in rank),
        )
        total = ops.add(total, spread)
    return total


# ------------------------------------------------------------------ views as copies


def infer_dims(size: Sequence[int], numel: int) -> tuple[int, ...]:
    """The dims of a reshape in which one size may be -1.

    Raises:
        RuntimeError: the number of elements does not fit.
    """
    known = math.prod(s for s in size if s != -1)
    dims = tuple((numel // known if known else 0) if s == -1 else s for s in size)
    if math.prod(dims) != numel:
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel}")
    return dims


@aten("_reshape_copy")
def reshape_copy(self: Expr, size: Sequence[int]) -> Expr:
    return reshape(self, infer_dims(size, self.shape.size))


@aten("permute_copy")
def permute_copy(self: Expr, dims: Sequence[int]) -> Expr:
    return ops.transpose(self, perm=tuple(axis(d, self.shape.ndim) for d in dims))


@aten("transpose_copy.int")
def transpose_copy(self: Expr, dim0: int, dim1: int) -> Expr:
    perm = list(range(self.shape.ndim))
    if not perm:
        return self
    a, b = axis(dim0, len(perm)), axis(dim1, len(perm))
    perm[a], perm[b] = perm[b], perm[a]
    return ops.transpose(self, perm=tuple(perm))


@aten("t_copy")
def t_copy(self: Expr) -> Expr:
    return self if self.shape.ndim < 2 else ops.transpose(self, perm=(1, 0))


@aten("expand_copy")
def expand_copy(self: Expr, size: Sequence[int], *, implicit: bool = False) -> Expr:
    lead = len(size) - self.shape.ndim
    return expand(self, tuple(self.shape.dims[i - lead] if s == -1 else s for i, s in enumerate(size)))


@aten("unsqueeze_copy")
def unsqueeze_copy(self: Expr, dim: int) -> Expr:
    return ops.expand_dims(self, axes=(axis(dim, self.shape.ndim + 1),))


@aten("squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze_copy(self: Expr, dim: int | Sequence[int] | None = None) -> Expr:
    wanted = range(self.shape.ndim) if dim is None else [axis(d, self.shape.ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    return reshape(self, tuple(d for i, d in enumerate(self.shape.dims) if not (i in wanted and d == 1)))


@aten("split_with_sizes_copy", "unsafe_split_with_sizes")
def split_with_sizes(self: Expr, split_sizes: Sequence[int], dim: int = 0) -> list[Expr]:
    a = axis(dim, self.shape.ndim)
    parts, start = [], 0
    for size in split_sizes:
        parts.append(cut(self, a, start, start + size))
        start += size
    return parts


@aten("split_copy.Tensor", "unsafe_split.Tensor")
def split(self: Expr, split_size: int, dim: int = 0) -> list[Expr]:
    n = self.shape.dims[axis(dim, self.shape.ndim)]
    if split_size == 0 or n == 0:
        return [self]
    return split_with_sizes(self, [min(split_size, n - s) for s in range(0, n, split_size)], dim)


@aten("unbind_copy.int")
def unbind_copy(self: Expr, dim: int = 0) -> list[Expr]:
    a = axis(dim, self.shape.ndim)
    return [select_copy(self, a, i) for i in range(self.shape.dims[a])]


# ------------------------------------------------------------------ reordering


@aten("flip")
def flip(self: Expr, dims: Sequence[int]) -> Expr:
    found = tuple(sorted(axis(d, self.shape.ndim) for d in dims))
    return ops.reverse(self, axes=found) if self.shape.ndim and found else self


@aten("roll")
def roll(self: Expr, shifts: Sequence[int], dims: Sequence[int] = ()) -> Expr:
    if not dims:
        if len(shifts) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        flat = reshape(self, (self.shape.size,))
        return reshape(ops.roll(flat, shifts=(shifts[0],), axes=(0,)), self.shape.dims)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    return ops.roll(self, shifts=tuple(shifts), axes=tuple(axis(d, self.shape.ndim) for d in dims))


@aten("rot90")
def rot90(self: Expr, k: int = 1, dims: Sequence[int] = (0, 1)) -> Expr:
    a, b = (axis(d, self.shape.ndim) for d in dims)
    turns = k % 4
    if turns == 2:
        return ops.reverse(self, axes=tuple(sorted((a, b))))
    if turns == 0:
        return self
    return transpose_copy(flip(self, (b if turns == 1 else a,)), a, b)


@aten("repeat")
def repeat(self: Expr, repeats: Sequence[int]) -> Expr:
    lead = len(repeats) - self.shape.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    wide = reshape(self, (1,) * lead + self.shape.dims)
    if any(r == 0 for r in repeats):
        return filled(0, tuple(d * r for d, r in zip(wide.shape.dims, repeats, strict=True)), self.shape.dtype)
    return ops.tile(wide, reps=tuple(repeats))


def _triangle(name: str) -> None:
    @aten(name)
    def build(self: Expr, diagonal: int = 0) -> Expr:
        return getattr(ops, name)(self, k=diagonal)


_triangle("tril")
_triangle("triu")


@aten("pixel_shuffle")
def pixel_shuffle(self: Expr, upscale_factor: int) -> Expr:
    *lead, c, h, w = self.shape.dims
    r, n = upscale_factor, len(self.shape.dims) - 3
    x = reshape(self, (*lead, c // (r * r), r, r, h, w))
    x = ops.transpose(x, perm=(*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(x, (*lead, c // (r * r), h * r, w * r))


@aten("pixel_unshuffle")
def pixel_unshuffle(self: Expr, downscale_factor: int) -> Expr:
    *lead, c, h, w = self.shape.dims
    r, n = downscale_factor, len(self.shape.dims) - 3
    x = reshape(self, (*lead, c, h // r, r, w // r, r))
    x = ops.transpose(x, perm=(*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(x, (*lead, c * r * r, h // r, w // r))


@aten("channel_shuffle")
def channel_shuffle(self: Expr, groups: int) -> Expr:
    n, c, *rest = self.shape.dims
    x = reshape(self, (n, groups, c // groups, *rest))
    return reshape(ops.transpose(x, perm=(0, 2, 1, *range(3, len(x.shape.dims)))), self.shape.dims)
