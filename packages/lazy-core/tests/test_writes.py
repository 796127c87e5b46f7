"""Writes within a compiled graph: in the base's own memory where nobody reads it later, each computed once, and NumPy's values always."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy_core import backend, lowering, ops, values
from lazy_core.storage import Layout, Storage

ROWS, COLUMNS = 6, 5
SIZE = 64


def part(rows, columns, width=COLUMNS):
    """The layout of a box of a matrix that has so many columns."""
    return Layout.of((rows.stop - rows.start, columns.stop - columns.start), (width, 1), rows.start * width + columns.start)


BOXES = [
    (slice(1, 5), slice(1, 4)),
    (slice(0, 4), slice(0, 3)),
    (slice(2, 6), slice(2, 5)),
    (slice(1, 5), slice(0, 3)),
]


def graph_of(*storages):
    """The graph that computes what the storages hold now."""
    return lowering.linearise([s.value.expr for s in storages])


def optimised(graph, donated=()):
    """What XLA makes of a graph."""
    shapes = graph.argument_shapes
    return backend.lower(lowering.function_of(graph), shapes, donated).compile()._call.as_text()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.booleans(), st.booleans()),
        min_size=1,
        max_size=10,
    )
)
def test_any_sequence_of_updates_gives_numpys_values(steps):
    """Each step: to which array and box, from which array and box, whether added to what is there, and whether the result is kept."""
    rng = np.random.default_rng(len(steps))
    plain = [np.round(rng.standard_normal((ROWS, COLUMNS)) * 8) for _ in range(2)]
    lazy = [Storage(values.from_host(a)) for a in plain]
    kept = []
    for target, box, source, other, added, keep in steps:
        into, out_of = part(*BOXES[box]), part(*BOXES[other])
        update = ops.add(lazy[source].read(out_of), lazy[source].read(out_of))
        new = plain[source][BOXES[other]] + plain[source][BOXES[other]]
        if added:
            update = ops.sub(lazy[target].read(into), update)
            new = plain[target][BOXES[box]] - new
        lazy[target].write(into, update)
        plain[target][BOXES[box]] = new
        if keep:
            kept.append((update, new.copy()))
            kept.append((lazy[target].value, plain[target].copy()))
    graph = lowering.linearise(
        [v.expr for v in dict.fromkeys([v for v, _ in kept] + [s.value for s in lazy]) if v.expr is not None and v.expr.node is not None]
    )
    leaves = {leaf: values.to_host(v) for v, leaf in [(v, v.expr) for v in values.source._leaves]}
    program = backend.lower(lowering.function_of(graph), graph.argument_shapes).compile()
    found = program([backend.from_host(leaves[leaf]) for leaf in graph.leaves])
    by_expr = dict(zip(graph.outputs, map(backend.to_host, found), strict=True))
    for value, want in [*kept, *zip([s.value for s in lazy], plain, strict=True)]:
        if value.expr is not None and value.expr in by_expr:
            np.testing.assert_array_equal(by_expr[value.expr], want)
    for value, want in [*kept, *zip([s.value for s in lazy], plain, strict=True)]:
        np.testing.assert_array_equal(values.to_host(value), want)


@pytest.mark.parametrize("rounds", [4, 24])
def test_a_chain_of_writes_computes_each_update_once(rounds):
    """Each round reads what the one before has written at two offsets: computed again for each reader it would double every time."""
    line = Storage(values.from_host(np.arange(4096.0)))
    behind, ahead = Layout.of((4095,), (1,), 0), Layout.of((4095,), (1,), 1)
    for _ in range(rounds):
        line.write(ahead, ops.sub(line.read(ahead), line.read(behind)))
    assert optimised(graph_of(line)).count(" subtract(") <= rounds + 2


def test_arrays_that_are_written_from_each_other_are_updated_in_their_own_memory():
    """A staggered grid: nothing is copied, and each update is one loop."""
    one, two = (Storage(values.from_host(np.random.default_rng(k).standard_normal((SIZE, SIZE)))) for k in range(2))
    low, high = part(slice(0, SIZE - 1), slice(0, SIZE), SIZE), part(slice(1, SIZE), slice(0, SIZE), SIZE)
    two.write(high, ops.sub(two.read(high), ops.sub(one.read(high), one.read(low))))
    one.write(low, ops.sub(one.read(low), ops.sub(two.read(high), two.read(low))))
    text = optimised(graph_of(one, two), donated=(0, 1))
    assert " copy(" not in text
    assert text.count("dynamic-update-slice(") == 2


def test_an_array_that_is_written_from_another_takes_its_own_memory_whatever_comes_first():
    """Two arrays of one shape are returned in another order than they are read in."""
    one, two = (Storage(values.from_host(np.random.default_rng(k).standard_normal((SIZE, SIZE)))) for k in range(2))
    inner, corner = part(slice(1, SIZE - 1), slice(1, SIZE - 1), SIZE), part(slice(0, SIZE - 2), slice(0, SIZE - 2), SIZE)
    two.write(inner, ops.mul(one.read(corner), one.read(inner)))
    one.write(inner, ops.mul(two.read(corner), two.read(inner)))
    for storages in ((one, two), (two, one)):
        assert " copy(" not in optimised(graph_of(*storages), donated=(0, 1))


def test_a_base_that_is_read_later_is_kept():
    """The write then selects between its update and the base, in one pass."""
    grid = Storage(values.from_host(np.random.default_rng(0).standard_normal((SIZE, SIZE))))
    before = grid.value
    inner = part(slice(1, SIZE - 1), slice(1, SIZE - 1), SIZE)
    grid.write(inner, ops.neg(grid.read(part(slice(0, SIZE - 2), slice(0, SIZE - 2), SIZE))))
    change = ops.sub(grid.value, before)
    text = optimised(lowering.linearise([grid.value.expr, change.expr]))
    assert "dynamic-update-slice(" not in text
    np.testing.assert_array_equal(values.to_host(change), values.to_host(grid.value) - values.to_host(before))
