"""Strided reads and writes: equal to NumPy's own strided views, for any layout and view, and static wherever the view is regular."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy_core import values
from lazy_core.ir import post_order
from lazy_core.ops.strided import movable, strided_read, strided_read_at, strided_write, strided_write_at
from lazy_core.storage import Layout, Storage

READ, WRITE = strided_read.fn, strided_write.fn


def dense(dims, order):
    """Strides of a dense storage whose dims lie in `order`, widest first."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= dims[axis]
    return (tuple(dims), tuple(strides), 0)


def base_of(layout):
    """An array with the layout's dims, and the flat storage that it lies in."""
    storage = np.arange(math.prod(layout[0]), dtype=np.int32)
    return np.lib.stride_tricks.as_strided(storage, layout[0], [s * 4 for s in layout[1]]).copy(), storage


def viewed(storage, view):
    sizes, strides, offset = view
    if 0 in sizes:
        return np.zeros(sizes, storage.dtype)
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, [s * storage.itemsize for s in strides])


def written(layout, view, update):
    """Element by element in C order: the definition."""
    _, storage = base_of(layout)
    for index in itertools.product(*map(range, view[0])):
        storage[view[2] + sum(i * s for i, s in zip(index, view[1], strict=True))] = update[index]
    return np.lib.stride_tricks.as_strided(storage, layout[0], [s * 4 for s in layout[1]])


@st.composite
def layouts(draw):
    dims = draw(st.lists(st.integers(1, 6), min_size=0, max_size=4))
    return dense(dims, draw(st.permutations(range(len(dims)))))


@st.composite
def raw_views(draw, count):
    """Any sizes and strides that stay inside a storage of `count` elements."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    strides, low, high = [], 0, 0
    for n in sizes:
        room = (count - 1 - (high - low)) // max(n - 1, 1)
        s = draw(st.integers(-room, room)) if n > 1 else draw(st.integers(-9, 9))
        strides.append(s)
        if n > 1:
            low, high = low + min((n - 1) * s, 0), high + max((n - 1) * s, 0)
    return (tuple(sizes), tuple(strides), draw(st.integers(-low, count - 1 - high)))


@st.composite
def chained_views(draw, layout):
    """What a program does: slices, transposes, reshapes, diagonals and broadcasts, one after another."""
    storage = np.arange(math.prod(layout[0]), dtype=np.int32)
    x = np.lib.stride_tricks.as_strided(storage, layout[0], [s * 4 for s in layout[1]])
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["slice", "index", "transpose", "reshape", "diagonal", "broadcast"]))
        if kind == "slice" and x.ndim:
            key = [slice(None)] * x.ndim
            axis = draw(st.integers(0, x.ndim - 1))
            key[axis] = slice(
                draw(st.none() | st.integers(-4, 4)), draw(st.none() | st.integers(-4, 4)), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
            )
            x = x[tuple(key)]
        elif kind == "index" and x.ndim and x.shape[0]:
            x = x[draw(st.integers(0, x.shape[0] - 1)), ...]
        elif kind == "transpose":
            x = x.transpose(draw(st.permutations(range(x.ndim))))
        elif kind == "reshape":
            y = x.reshape(-1) if draw(st.booleans()) or x.size % 2 else x.reshape(2, x.size // 2)
            x = y if np.shares_memory(x, y) and y.size else x
        elif kind == "diagonal" and x.ndim >= 2:
            x = np.lib.stride_tricks.as_strided(d := np.diagonal(x, draw(st.integers(-2, 2))), d.shape, d.strides)
        elif kind == "broadcast" and x.ndim < 4:
            x = np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape))
    offset = (x.__array_interface__["data"][0] - storage.__array_interface__["data"][0]) // 4 if x.size else 0
    return (x.shape, tuple(s // 4 for s in x.strides), offset)


@st.composite
def cases(draw):
    layout = draw(layouts())
    count = math.prod(layout[0])
    return layout, draw(st.one_of(raw_views(count), chained_views(layout), chained_views(layout)))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_read_equals_numpys_strided_view(case):
    layout, view = case
    base, storage = base_of(layout)
    np.testing.assert_array_equal(np.asarray(READ(base, layout=layout, view=view)), viewed(storage, view))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_write_equals_assigning_each_element_in_c_order(case):
    layout, view = case
    base, _ = base_of(layout)
    update = -1 - np.arange(math.prod(view[0]), dtype=np.int32).reshape(view[0])
    np.testing.assert_array_equal(np.asarray(WRITE(base, update, layout=layout, view=view)), written(layout, view, update))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_a_view_that_moves_reads_and_writes_what_one_that_stands_does(case):
    layout, view = case
    if not movable(layout, view):
        return
    base, storage = base_of(layout)
    kept = {"layout": layout, "view": (view[0], view[1], 0)}
    update = -1 - np.arange(math.prod(view[0]), dtype=np.int32).reshape(view[0])
    with jax.enable_x64(True):
        for offset in (np.int64(view[2]), jax.numpy.asarray(view[2], np.int64)):  # a constant of the program; fed at run time
            np.testing.assert_array_equal(np.asarray(strided_read_at.fn(base, offset, **kept)), viewed(storage, view))
            np.testing.assert_array_equal(np.asarray(strided_write_at.fn(base, update, offset, **kept)), written(layout, view, update))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sequences_of_writes_and_reads_see_what_was_written(data):
    layout = data.draw(layouts())
    count = math.prod(layout[0])
    base, flat = base_of(layout)
    storage = Storage(values.from_host(base), Layout.of(*layout))
    moving = data.draw(st.booleans())
    options = [layout, *[data.draw(st.one_of(raw_views(count), chained_views(layout), chained_views(layout))) for _ in range(3)]]
    reads = []
    for step in range(data.draw(st.integers(1, 8))):
        view = data.draw(st.sampled_from(options))
        Layout.of(*view).moving = moving
        if data.draw(st.booleans()):
            update = -100 * (step + 1) - np.arange(math.prod(view[0]), dtype=np.int32).reshape(view[0])
            storage.write(Layout.of(*view), values.from_host(update))
            for index in itertools.product(*map(range, view[0])):
                flat[view[2] + sum(i * s for i, s in zip(index, view[1], strict=True))] = update[index]
        else:
            reads.append((storage.read(Layout.of(*view)), np.array(viewed(flat, view))))
    for got, want in reads:
        np.testing.assert_array_equal(values.to_host(got), want)
    whole = values.to_host(storage.read(Layout.of(*layout)))
    np.testing.assert_array_equal(whole, viewed(flat, layout))


def test_a_loop_of_writes_to_one_region_is_as_deep_as_one():
    storage = Storage(values.from_host(np.zeros((6, 6))))
    inner, edge = Layout.of((4, 4), (6, 1), 7), Layout.of((6,), (1,), 0)
    for k in range(5):
        storage.write(inner, values.from_host(np.full((4, 4), float(k))))
        storage.write(edge, values.from_host(np.full(6, -float(k))))
    writes = [n for n in post_order([storage.value.expr]) if getattr(n, "op", None) in (strided_write, strided_write_at)]
    assert len(writes) == 2
    assert storage.read(inner).expr.node is None
    assert values.to_host(storage.value)[0, 0] == -4.0


COMMON = {
    "whole": (dense((8, 6), (0, 1)), ((8, 6), (6, 1), 0)),
    "slice with steps": (dense((8, 6), (0, 1)), ((3, 2), (12, 3), 7)),
    "transpose": (dense((8, 6), (0, 1)), ((6, 8), (1, 6), 0)),
    "diagonal": (dense((8, 6), (0, 1)), ((6,), (7,), 0)),
    "lower diagonal": (dense((8, 6), (0, 1)), ((6,), (7,), 12)),
    "batched diagonal": (dense((3, 4, 4), (0, 1, 2)), ((3, 4), (16, 5), 0)),
    "select": (dense((8, 6), (0, 1)), ((8,), (6,), 2)),
    "flatten": (dense((8, 6), (0, 1)), ((48,), (1,), 0)),
    "stepped flatten": (dense((5, 3), (0, 1)), ((8,), (2,), 0)),
    "reverse": (dense((8, 6), (0, 1)), ((8, 6), (-6, -1), 47)),
    "broadcast": (dense((8, 1), (0, 1)), ((8, 5), (1, 0), 0)),
    "split heads": (dense((2, 5, 12), (0, 1, 2)), ((2, 3, 5, 4), (60, 4, 12, 1), 0)),
    "channels last seen as channels first": (dense((2, 3, 4, 5), (0, 2, 3, 1)), ((2, 4, 5, 3), (60, 15, 3, 1), 0)),
    "one channel of channels last": (dense((2, 3, 4, 5), (0, 2, 3, 1)), ((2, 20), (60, 3), 1)),
}


@pytest.mark.parametrize("name", COMMON)
def test_common_views_need_no_gather_or_scatter(name):
    layout, view = COMMON[name]
    base, storage = base_of(layout)
    update = np.ascontiguousarray(viewed(storage, view))
    read = jax.jit(lambda b: READ(b, layout=layout, view=view)).lower(base).as_text()
    write = jax.jit(lambda b, u: WRITE(b, u, layout=layout, view=view)).lower(base, update).as_text()
    assert "gather" not in read and "scatter" not in read
    assert "gather" not in write and "scatter" not in write
    assert read.count("stablehlo.transpose") <= 1


def test_small_updates_are_put_in_place():
    layout, view = dense((100, 10), (0, 1)), ((10,), (1,), 30)
    base, storage = base_of(layout)
    text = jax.jit(lambda b, u: WRITE(b, u, layout=layout, view=view)).lower(base, viewed(storage, view)).as_text()
    assert "dynamic_update_slice" in text and "select" not in text


def test_sliding_windows_are_a_stack_of_slices():
    layout, view = dense((40,), (0,)), ((38, 3), (1, 1), 0)
    text = jax.jit(lambda b: READ(b, layout=layout, view=view)).lower(base_of(layout)[0]).as_text()
    assert "gather" not in text


@pytest.mark.parametrize("view", [((3,), (1,), 6), ((3,), (-1,), 1), ((2, 2), (5, 1), 3)])
def test_view_outside_the_storage_is_an_error_with_numbers(view):
    with pytest.raises(ValueError, match=r"storage of 8 elements"):
        READ(np.zeros(8, np.int32), layout=((8,), (1,), 0), view=view)


def test_layout_that_is_not_dense_is_an_error():
    with pytest.raises(ValueError, match="not dense"):
        READ(np.zeros(4, np.int32), layout=((4,), (2,), 0), view=((2,), (1,), 0))
