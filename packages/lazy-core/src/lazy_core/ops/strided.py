"""Strided reads and writes: any view of a dense storage, as slices, reshapes and pads.

Owns: the plan that turns `(sizes, strides, offset)` into static XLA operations, and the two operations built on it.  A
view is first matched against the dimensions of the base itself (slices with steps); else against a mixed-radix
numbering of the flat storage, one level a stride; only windows that overlap are gathered.  Writes are the transpose of
the read plan: the update is padded back to the storage and selected, which XLA fuses into one pass, or, where it is
small, put in place by dynamic-update-slice.

Layouts and views are plain nested tuples `(sizes, strides, offset)`, counted in elements.  May import `ops.registry`,
`ir` and jax's lax only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..deferred import jnp, lax
from ..ir import Attrs, Const, Expr, Node
from .registry import InPlace, Sample, op

Dims = tuple[int, ...]
View = tuple[Dims, Dims, int]

# An update that covers at least this share of its base is selected in one fused pass; a smaller one is put in place.
SELECT_SHARE = 0.125
# A view with overlapping windows is built as a stack of plain reads up to this many, and gathered past it.
STACK_LIMIT = 32


class Step(NamedTuple):
    """One operation of a plan: `kind` is reshape, transpose, slice, pad, reverse or broadcast; `before` are the dims that it gets."""

    kind: str
    before: Dims
    args: tuple[Any, ...]


def c_strides(sizes: Dims) -> Dims:
    """The strides, in elements, of a contiguous array of these sizes."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(sizes[axis + 1], 1)
    return tuple(strides)


# ------------------------------------------------------------------ planning


class _Builder:
    """Collects steps, merging neighbouring reshapes and leaving out those that change nothing."""

    def __init__(self, dims: Dims) -> None:
        self.steps: list[Step] = []
        self.dims = dims

    def reshape(self, dims: Dims) -> None:
        if self.steps and self.steps[-1].kind == "reshape":
            self.dims = self.steps.pop().before
        if dims != self.dims:
            self.steps.append(Step("reshape", self.dims, (dims,)))
            self.dims = dims

    def transpose(self, perm: Dims) -> None:
        if perm != tuple(range(len(perm))):
            self.steps.append(Step("transpose", self.dims, (perm,)))
            self.dims = tuple(self.dims[p] for p in perm)

    def slice(self, starts: Dims, limits: Dims, strides: Dims) -> None:
        if starts == (0,) * len(starts) and limits == self.dims and strides == (1,) * len(strides):
            return
        self.steps.append(Step("slice", self.dims, (starts, limits, strides)))
        self.dims = tuple(-(-(hi - lo) // by) for lo, hi, by in zip(starts, limits, strides, strict=True))

    def slice_axis(self, axis: int, start: int, limit: int, stride: int = 1) -> None:
        rank = len(self.dims)
        self.slice(
            tuple(start if a == axis else 0 for a in range(rank)),
            tuple(limit if a == axis else self.dims[a] for a in range(rank)),
            tuple(stride if a == axis else 1 for a in range(rank)),
        )

    def pad_axis(self, axis: int, high: int) -> None:
        if high:
            self.steps.append(Step("pad", self.dims, (axis, high)))
            self.dims = tuple(d + high if a == axis else d for a, d in enumerate(self.dims))

    def reverse(self, axes: Dims) -> None:
        if axes:
            self.steps.append(Step("reverse", self.dims, (axes,)))

    def broadcast(self, dims: Dims) -> None:
        if dims != self.dims:
            self.steps.append(Step("broadcast", self.dims, (dims,)))
            self.dims = dims


class Plan(NamedTuple):
    """How a view is read: the steps, and the view's dims.  `steps` is None where windows overlap in no regular way."""

    steps: tuple[Step, ...] | None
    dims: Dims


class _Overlap(Exception):
    """The strides interleave or overlap: no mixed-radix numbering of the storage has one digit for each dimension."""


@lru_cache(maxsize=8192)
def plan(layout: View, view: View) -> Plan:
    """The plan that reads `view` from a base laid out as `layout`.

    Raises:
        ValueError: the layout is not dense, or the view reaches outside the storage.
    """
    sizes, strides, offset = view
    count = math.prod(layout[0])
    _check(layout, view, count)
    if 0 in sizes:
        return Plan((), sizes)
    flipped = tuple(a for a, (n, s) in enumerate(zip(sizes, strides, strict=True)) if s < 0 and n > 1)
    offset += sum((sizes[a] - 1) * strides[a] for a in flipped)
    kept = [a for a, n in enumerate(sizes) if n > 1 and strides[a] != 0]
    kept.sort(key=lambda a: (-abs(strides[a]), a))
    wanted = [(sizes[a], abs(strides[a])) for a in kept]
    order = sorted(range(len(kept)), key=lambda i: kept[i])
    build = _Builder(layout[0])
    axes = _match_base(build, layout, wanted, offset)
    if axes is None:
        build = _Builder(layout[0])
        try:
            _flatten(build, layout, count)
            _match_radices(build, count, offset, _merge(wanted))
        except _Overlap:
            return Plan(None, sizes)
        axes = list(range(len(wanted)))
    stored = sorted(axes)
    build.reshape(tuple(wanted[axes.index(a)][0] for a in stored))
    build.transpose(tuple(stored.index(axes[i]) for i in order))
    build.reshape(tuple(n if a in kept else 1 for a, n in enumerate(sizes)))
    build.reverse(flipped)
    build.broadcast(sizes)
    return Plan(tuple(build.steps), sizes)


def _check(layout: View, view: View, count: int) -> None:
    sizes, strides, offset = view
    if len(sizes) != len(strides):
        raise ValueError(f"strided view: {len(sizes)} sizes but {len(strides)} strides")
    if 0 in sizes:
        return
    low = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if s < 0)
    high = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if s > 0)
    if low < 0 or high >= count:
        raise ValueError(
            f"strided view: sizes {sizes}, strides {strides}, offset {offset} reach elements {low}..{high} "
            f"of a storage of {count} elements laid out as {layout}"
        )


def _base_digits(layout: View) -> list[tuple[int, int, int]]:
    """(axis, size, stride) of the base's own dims of more than one element, widest stride first."""
    digits = [(a, n, s) for a, (n, s) in enumerate(zip(layout[0], layout[1], strict=True)) if n > 1]
    digits.sort(key=lambda d: -d[2])
    expected = math.prod(layout[0])
    for _, n, s in digits:
        expected //= n
        if s != expected:
            raise ValueError(f"strided layout is not dense: sizes {layout[0]}, strides {layout[1]}, offset {layout[2]}")
    return digits


def _match_base(build: _Builder, layout: View, wanted: list[tuple[int, int]], offset: int) -> list[int] | None:
    """Match every wanted dim with a step along one of the base's own dims, by one slice; the axes matched, or None."""
    starts, limits, steps = [0] * len(layout[0]), [1] * len(layout[0]), [1] * len(layout[0])
    rest = offset
    axes: list[int] = []
    for axis, size, stride in _base_digits(layout):
        starts[axis], rest = divmod(rest, stride)
        limits[axis] = starts[axis] + 1
        if len(axes) < len(wanted):
            n, s = wanted[len(axes)]
            if stride <= s < stride * size and s % stride == 0:
                steps[axis] = s // stride
                limits[axis] = starts[axis] + (n - 1) * steps[axis] + 1
                axes.append(axis)
        if limits[axis] > size:
            return None
    if len(axes) < len(wanted):
        return None
    build.slice(tuple(starts), tuple(limits), tuple(steps))
    return axes


def _flatten(build: _Builder, layout: View, count: int) -> None:
    """The storage itself: the base with its dims in storage order, as one dim."""
    digits = [d[0] for d in _base_digits(layout)]
    others = [a for a in range(len(layout[0])) if a not in digits]
    if digits != sorted(digits):
        build.transpose(tuple(others + digits))
    build.reshape((count,))


def _merge(wanted: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbouring dims that count on through each other, so that they are one digit."""
    merged: list[tuple[int, int]] = []
    for n, s in wanted:
        if merged and merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    return merged


def _match_radices(build: _Builder, length: int, offset: int, wanted: list[tuple[int, int]]) -> None:
    """Cut the last dim of what is built, `length` elements, by the widest stride, and go on in the remainder."""
    axis = 0
    while len(wanted) > 1:
        (n, s), inner = wanted[0], wanted[1:]
        row, column = divmod(offset, s)
        span = sum((m - 1) * t for m, t in inner) + 1
        if column + span > s:
            if span > s:
                raise _Overlap
            _take_rows(build, axis, offset, n, s, length)
            column = 0
        elif length % s == 0:
            build.reshape((*build.dims[:axis], length // s, s))
            build.slice_axis(axis, row, row + n)
        else:
            _take_rows(build, axis, row * s, n, s, length)
        axis, length, offset, wanted = axis + 1, s, column, inner
    if wanted:
        n, s = wanted[0]
        build.slice_axis(axis, offset, offset + (n - 1) * s + 1, s)
    else:
        build.slice_axis(axis, offset, offset + 1)


def _take_rows(build: _Builder, axis: int, start: int, n: int, s: int, length: int) -> None:
    """n rows of s elements from `start`, padded where the last row runs past the end."""
    build.slice_axis(axis, start, min(start + n * s, length))
    build.pad_axis(axis, max(start + n * s - length, 0))
    build.reshape((*build.dims[:axis], n, s))


# ------------------------------------------------------------------ running a plan


def _forward(x: Any, steps: tuple[Step, ...]) -> Any:
    for kind, before, args in steps:
        if kind == "reshape":
            x = lax.reshape(x, args[0])
        elif kind == "transpose":
            x = lax.transpose(x, args[0])
        elif kind == "slice":
            x = lax.slice(x, *args)
        elif kind == "pad":
            x = lax.pad(x, _zero(x), [(0, args[1] if a == args[0] else 0, 0) for a in range(len(before))])
        elif kind == "reverse":
            x = lax.rev(x, args[0])
        else:
            x = lax.broadcast_in_dim(x, args[0], tuple(range(len(before))))
    return x


def _backward(x: Any, steps: tuple[Step, ...]) -> Any:
    """Put the viewed elements back where they came from, zero elsewhere; of repeated elements the last one counts."""
    for kind, before, args in reversed(steps):
        if kind == "reshape":
            x = lax.reshape(x, before)
        elif kind == "transpose":
            x = lax.transpose(x, tuple(int(i) for i in np.argsort(args[0])))
        elif kind == "slice":
            edges = []
            for length, size, low, by in zip(x.shape, before, args[0], args[2], strict=True):
                edges.append((low, size - low - ((length - 1) * by + 1), by - 1))
            x = lax.pad(x, _zero(x), edges)
        elif kind == "pad":
            x = lax.slice(x, (0,) * len(before), before)
        elif kind == "reverse":
            x = lax.rev(x, args[0])
        else:
            x = lax.slice(x, tuple(n - b for n, b in zip(args[0], before, strict=True)), args[0])
    return x


def _zero(x: Any) -> Any:
    return lax.full((), 0, x.dtype)


def _flat_index(view: View, dtype: Any) -> Any:
    """The storage index of every viewed element, computed in the program from iotas."""
    sizes, strides, offset = view
    index = jnp.full(sizes, offset, dtype)
    for axis, stride in enumerate(strides):
        index = index + lax.broadcasted_iota(dtype, sizes, axis) * np.asarray(stride, dtype)
    return index


def _flat(base: Any, layout: View) -> Any:
    build = _Builder(layout[0])
    _flatten(build, layout, math.prod(layout[0]))
    return _forward(base, tuple(build.steps))


def _unflat(flat: Any, layout: View) -> Any:
    build = _Builder(layout[0])
    _flatten(build, layout, math.prod(layout[0]))
    return _backward(flat, tuple(build.steps))


def _index_dtype(count: int) -> Any:
    return np.dtype(np.int32) if count < 2**31 else np.dtype(np.int64)


# ------------------------------------------------------------------ the operations


_DENSE: dict[str, tuple[View, list[View]]] = {
    "matrix": (
        ((4, 6), (6, 1), 0),
        [
            ((4, 6), (6, 1), 0),  # all of it
            ((6, 4), (1, 6), 0),  # transposed
            ((2, 3), (12, 2), 7),  # stepped slices
            ((4,), (7,), 0),  # the diagonal
            ((24,), (1,), 0),  # flattened
            ((6,), (-1,), 11),  # one row reversed
            ((4, 3, 6), (6, 0, 1), 0),  # broadcast
            ((5, 2), (1, 1), 3),  # overlapping windows
        ],
    ),
    "permuted": (
        ((2, 3, 2, 2), (12, 1, 6, 3), 0),
        [((2, 2, 2, 2), (12, 6, 3, 1), 1), ((2, 12), (12, 1), 0), ((3,), (1,), 9)],
    ),
}


def _values(rng: np.random.Generator, dims: Dims, dtype: np.dtype) -> np.ndarray:
    return (rng.standard_normal(dims) * 10).astype(dtype)


def _read_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for layout, views in _DENSE.values():
        for view in views:
            yield Sample((_values(rng, layout[0], dtype),), {"layout": layout, "view": view})


def _write_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for layout, views in _DENSE.values():
        for view in views:
            base, update = _values(rng, layout[0], dtype), _values(rng, view[0], dtype)
            yield Sample((base, update), {"layout": layout, "view": view})


@op(samples=_read_samples)
def strided_read(base: Any, *, layout: View, view: View) -> Any:
    """The elements that `view` shows of a storage: dtype[layout sizes] -> dtype[view sizes].

    Attributes: layout, how `base` lies in its storage (sizes, strides, offset 0; dense, in any order of dims); view,
    (sizes, strides, offset) into the same storage, strides of any sign.  XLA: Slice, Reshape, Transpose, Reverse,
    Broadcast, Pad; Gather for irregular overlap.

    Raises:
        ValueError: the layout is not dense or the view leaves the storage.
    """
    found = plan(layout, view)
    if 0 in found.dims:
        return lax.full(found.dims, 0, base.dtype)
    if found.steps is not None:
        return _forward(base, found.steps)
    axis = _stack_axis(layout, view)
    if axis is not None:
        return lax.concatenate([lax.expand_dims(strided_read.fn(base, layout=layout, view=v), [axis]) for v in _along(view, axis)], axis)
    flat = _flat(base, layout)
    return flat.at[_flat_index(view, _index_dtype(flat.size))].get(mode="promise_in_bounds")


@op(samples=_write_samples)
def strided_write(base: Any, update: Any, *, layout: View, view: View) -> Any:
    """`base` with the elements that `view` shows replaced: dtype[layout sizes], dtype[view sizes] -> dtype[layout sizes].

    Attributes: as for `strided_read`.  Where a view shows an element more than once, the last one in C order stays.
    XLA: Pad and Select, or DynamicUpdateSlice where the update is small.

    Raises:
        ValueError: the layout is not dense, the view leaves the storage, or the update's dims are not the view's.
    """
    return _write(base, update, layout, view, SELECT_SHARE)


def _write_in_place(base: Any, update: Any, *, layout: View, view: View) -> Any:
    """`strided_write` that XLA runs as one loop over the box, together with what computes the update, on the base's own buffer."""
    return _write(jnp.asarray(base), jnp.asarray(update), layout, view, 1.0)


def _write(base: Any, update: Any, layout: View, view: View, share: float) -> Any:
    """The write, in place if the box that it changes has less than this share of the base's elements."""
    found = plan(layout, view)
    if tuple(update.shape) != view[0]:
        raise ValueError(f"strided_write: an update of dims {tuple(update.shape)} for a view of sizes {view[0]}")
    if 0 in found.dims:
        return base
    if found.steps is None:
        return _write_overlapping(base, update, layout, view)
    cut = next((i for i, step in enumerate(found.steps) if step.kind in ("slice", "pad")), None)
    if cut is None:
        return _backward(update, found.steps)
    lead, steps = found.steps[:cut], found.steps[cut:]
    inner = _forward(base, lead)
    if steps[0].kind == "slice":
        starts, limits, by = steps[0].args
        box = tuple(hi - lo for lo, hi in zip(starts, limits, strict=True))
        if math.prod(box) < share * base.size:
            build = _Builder(box)
            build.slice((0,) * len(box), box, by)
            steps = (*build.steps, *steps[1:])
            inner = lax.dynamic_update_slice(inner, _select(lax.slice(inner, starts, limits), update, steps), [np.int32(i) for i in starts])
            return _backward(inner, lead)
    return _backward(_select(inner, update, steps), lead)


def _select(base: Any, update: Any, steps: tuple[Step, ...]) -> Any:
    """The update put back over `base`, in one fused pass where it does not cover all of it."""
    placed = _backward(update, steps)
    if not any(step.kind in ("slice", "pad") for step in steps):
        return placed
    return lax.select(_backward(lax.full(update.shape, True, np.dtype(bool)), steps), placed, base)


# ------------------------------------------------------------------ what need not be recorded

_LOOK_BACK = 16


@lru_cache(maxsize=8192)
def _box(layout: View, view: View) -> tuple[tuple[int, int], ...] | None:
    """The ranges along the base's own dims that a view stays in; None where it is cut across them."""
    steps = plan(layout, view).steps
    if steps is None or 0 in view[0]:
        return None
    if steps and steps[0].kind == "slice" and steps[0].before == layout[0]:
        return tuple(zip(steps[0].args[0], steps[0].args[1], strict=True))
    return None


def _apart(layout: View, one: View, other: View) -> bool:
    """Whether two views surely share no element."""
    a, b = _box(layout, one), _box(layout, other)
    return a is not None and b is not None and any(hi <= lo_ or hi_ <= lo for (lo, hi), (lo_, hi_) in zip(a, b, strict=True))


def _write_below(expr: Expr, layout: View) -> tuple[Expr, Node, View] | None:
    """The base, node and view of the write that made this expression, if one with this layout and a known offset did."""
    node = expr.node
    if node is None or node.op not in (strided_write, strided_write_at) or node.attrs.kwargs["layout"] != layout:
        return None
    view = _view_of(node.inputs[2:], node.attrs)
    return None if view is None else (node.inputs[0], node, view)


def _view_of(offset: tuple[Expr, ...], attributes: Attrs) -> View | None:
    """The view of a read or write; None where its offset is fed at run time."""
    sizes, strides, start = attributes.kwargs["view"]
    if not offset:
        return sizes, strides, start
    return (sizes, strides, start + int(offset[0].value)) if isinstance(offset[0], Const) else None


def _rewrite_read(exprs: tuple[Expr, ...], attributes: Attrs) -> Expr | tuple[Expr, ...]:
    """A read of what has been written is the update, if nothing was written to these elements since."""
    layout, view = attributes.kwargs["layout"], _view_of(exprs[1:], attributes)
    base = exprs[0]
    if view is None:
        return exprs
    if view == layout:
        return base
    for _ in range(_LOOK_BACK):
        below = _write_below(base, layout)
        if below is None:
            break
        if below[2] == view:
            if plan(layout, view).steps is None or 0 in view[1]:  # an element that is shown twice is the last one written
                break
            return below[1].inputs[1]
        if not _apart(layout, below[2], view):
            break
        base = below[0]
    return exprs  # from the latest write on: reading from below would keep what that write may take the memory of


def _rewrite_write(exprs: tuple[Expr, ...], attributes: Attrs) -> Expr | tuple[Expr, ...]:
    """A write makes an earlier one to the same elements needless, if what lies between shares none with it.

    A loop of writes to one region is then as deep as one write, which matters because XLA recomputes a chain of selects
    in each of its readers.
    """
    layout, view = attributes.kwargs["layout"], _view_of(exprs[2:], attributes)
    between: list[Node] = []
    base = exprs[0]
    if view is None:
        return exprs
    for _ in range(_LOOK_BACK):
        below = _write_below(base, layout)
        if below is None:
            break
        base, node, other = below
        if other == view:
            for kept in reversed(between):
                base = kept.op(base, *kept.inputs[1:], **kept.attrs.kwargs)  # type: ignore[operator]
            return (base, *exprs[1:])
        if not _apart(layout, other, view):
            break
        between.append(node)
    return exprs


def _stack_axis(layout: View, view: View) -> int | None:
    """The shortest dim along which the view is a few views that have plans of their own."""
    sizes, strides, _ = view
    short = [a for a in range(len(sizes)) if 1 < sizes[a] <= STACK_LIMIT and strides[a] != 0]
    options = [a for a in short if plan(layout, _along(view, a)[0]).steps is not None]
    return min(options, key=lambda a: sizes[a]) if options else None


def _along(view: View, axis: int) -> list[View]:
    sizes, strides, offset = view
    rest = (sizes[:axis] + sizes[axis + 1 :], strides[:axis] + strides[axis + 1 :])
    return [(*rest, offset + i * strides[axis]) for i in range(sizes[axis])]


def _write_overlapping(base: Any, update: Any, layout: View, view: View) -> Any:
    """Decide on the host which update element reaches each storage element last, and pick it: the same on every device."""
    sizes, strides, offset = view
    count = math.prod(layout[0])
    where = np.full(sizes, offset, np.int64)
    for axis, stride in enumerate(strides):
        where += (np.arange(sizes[axis]) * stride).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
    winner = np.full(count, -1, _index_dtype(update.size))
    np.maximum.at(winner, where.ravel(), np.arange(update.size, dtype=winner.dtype))
    picked = lax.reshape(update, (update.size,)).at[np.maximum(winner, 0)].get(mode="promise_in_bounds")
    return _unflat(lax.select(jnp.asarray(winner >= 0), picked, _flat(base, layout)), layout)


# ------------------------------------------------------------------ views that move


@lru_cache(maxsize=8192)
def movable(layout: View, view: View) -> bool:
    """Whether a view is a box along the base's own dims, so that its offset may be fed at run time."""
    if any(s <= 0 for n, s in zip(*view[:2], strict=True) if n > 1) or 0 in view[0]:
        return False
    return _box(layout, view) is not None or math.prod(view[0]) == 1


def _moving(layout: View, view: View, offset: Any) -> tuple[list[Any], Dims, tuple[Step, ...]]:
    """Where the box of a view starts, its dims, and the steps that read the view from the box."""
    steps = plan(layout, (*view[:2], 0)).steps
    assert steps is not None
    box, by = layout[0], (1,) * len(layout[0])
    if steps and steps[0].kind == "slice":
        _, box, by = steps[0].args
        steps = steps[1:]
    build = _Builder(box)
    build.slice((0,) * len(box), box, by)
    starts = [lax.rem(lax.div(offset, np.int64(max(s, 1))), np.int64(n)) for n, s in zip(layout[0], layout[1], strict=True)]
    return starts, box, (*build.steps, *steps)


def _at_samples(samples: Any) -> Any:
    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for args, attributes in samples(dtype, rng):
            sizes, strides, offset = attributes["view"]
            if movable(attributes["layout"], attributes["view"]):
                yield Sample((*args, np.int64(offset)), {**attributes, "view": (sizes, strides, 0)})

    return make


@op(samples=_at_samples(_read_samples), raw=True)
def strided_read_at(base: Any, offset: Any, *, layout: View, view: View) -> Any:
    """`strided_read` of a view that moves: `view` at `offset` elements: dtype[layout sizes], s64[] -> dtype[view sizes].

    The view, whose own offset is 0, must be a box along the base's dims wherever it stands (see `movable`); a loop over
    its places is then one program.  XLA: as `strided_read` where the offset is a constant, else DynamicSlice.
    """
    base = jnp.asarray(base)
    if isinstance(offset, np.generic):
        return strided_read.fn(base, layout=layout, view=(*view[:2], view[2] + int(offset)))
    starts, box, steps = _moving(layout, view, offset)
    return _forward(lax.dynamic_slice(base, starts, box), steps)


@op(samples=_at_samples(_write_samples), raw=True)
def strided_write_at(base: Any, update: Any, offset: Any, *, layout: View, view: View) -> Any:
    """`strided_write` to a view that moves: dtype[layout sizes], dtype[view sizes], s64[] -> dtype[layout sizes].

    See `strided_read_at`.  XLA: as `strided_write` where the offset is a constant, else DynamicUpdateSlice.
    """
    base, update = jnp.asarray(base), jnp.asarray(update)
    if isinstance(offset, np.generic):
        return strided_write.fn(base, update, layout=layout, view=(*view[:2], view[2] + int(offset)))
    starts, box, steps = _moving(layout, view, offset)
    inner = lax.dynamic_slice(base, starts, box) if any(s.kind == "slice" for s in steps) else update
    placed = _select(inner, update, steps)
    return lax.dynamic_update_slice(base, placed, starts)


for _op in (strided_read, strided_read_at):
    _op.rewrite = _rewrite_read
for _op in (strided_write, strided_write_at):
    _op.rewrite = _rewrite_write
strided_write.in_place = InPlace(_write_in_place, strided_read.fn)
strided_write_at.in_place = InPlace(strided_write_at.fn, None)
