"""A reason for every compile, in the user's terms, with what to do about it."""

import numpy as np
import pytest

import lazy_core
from lazy_core import causes, ir, ops, values
from lazy_core.cache import cache

HERE = "test_causes.py"


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with nothing pending and empty caches."""
    lazy_core.barrier()
    cache.clear()
    causes.forget()
    lazy_core.reset_report()


def leaf(*dims, dtype=np.float32):
    """A materialised value."""
    return values.from_host(np.ones(dims, dtype))


def number(x):
    """A scalar of the graph."""
    return ir.const(x, np.float32)


def step(x, w, extra=False, rounds=1, scale=None, axes=(0, 1)):
    """A small program that ends at one line."""
    for _ in range(rounds):
        x = ops.mul(x, w)
    if extra:
        x = ops.neg(x)
    if scale is not None:
        x = values.record(ops.mul, (x, number(scale)))
    return ops.sum(x, axes=axes, keepdims=False)


def causes_of(*runs):
    """The causes of the compiles that these calls of `step` bring, each followed by a barrier."""
    for arguments, keywords in runs:
        result = step(*arguments, **keywords)
        lazy_core.barrier()
        del result
    return [e.cause for e in lazy_core.report().events if e.kind == "compile"]


def of_shapes(*shapes):
    """The same step on operands of these shapes."""
    return causes_of(*[((leaf(*dims), leaf(1, 1)), {}) for dims in shapes])


def test_the_first_program_of_a_line_says_so():
    """Nothing to compare with."""
    (cause,) = of_shapes((4, 3))
    assert "the first program of 2 operations that ends at this line" in cause


def test_a_changed_batch_names_operand_line_and_advice():
    """The last batch of a data set."""
    cause = of_shapes((32, 3), (31, 3))[-1]
    assert f"operand 1 of mul at {HERE}:" in cause
    assert "changed from f32[32,3] to f32[31,3]" in cause
    assert "only the first size differs; if it is the last batch" in cause


def test_a_growing_sequence_is_told_from_a_varying_batch():
    """One more each time: the advice is to write into a buffer of the final length."""
    cause = of_shapes((2, 5), (2, 6), (2, 7))[-1]
    assert "from f32[2,6] to f32[2,7]" in cause
    assert "size 1, counted from 0, grows by 1 each time" in cause


def test_a_size_that_keeps_changing_is_to_be_padded():
    """Three sizes without a pattern."""
    cause = of_shapes((7, 2), (3, 2), (12, 2))[-1]
    assert "size 0, counted from 0, keeps changing (7, 3, 12); pad it to few sizes" in cause


def test_the_dimension_that_differs_is_named():
    """Two that look alike but for one size, and two that differ in several."""
    assert "only size 1 differs" in of_shapes((4, 8), (4, 9))[-1]
    assert "sizes 0 and 1 differ" in of_shapes((4, 8), (5, 10))[-1]


def test_another_number_of_dimensions_is_named():
    """A batch dimension that was not there."""
    cause = causes_of(((leaf(4), leaf(1)), {"axes": ()}), ((leaf(2, 4), leaf(1, 1)), {"axes": ()}))[-1]
    assert "from f32[4] to f32[2,4], and 1 more buffer: another number of dimensions" in cause


def test_a_changed_dtype_is_named_with_the_one_to_convert_to():
    """A float64 array among float32 ones."""
    cause = causes_of(((leaf(4, 3), leaf(1, 1)), {}), ((leaf(4, 3, dtype=np.float64), leaf(1, 1, dtype=np.float64)), {}))[-1]
    assert "from f32[4,3] to f64[4,3]" in cause
    assert "another dtype; convert it to f32 where it comes from" in cause


def test_a_changed_number_says_that_it_happens_once():
    """A learning rate."""
    found = causes_of(*[((leaf(4, 3), leaf(1, 1)), {"scale": 0.5 / (k + 1)}) for k in range(4)])
    assert len(found) == 2
    assert f"the number 0.5 of mul at {HERE}" in found[1]
    assert "changed, and is fed at run time from now on: it will not be a reason again" in found[1]


def test_a_changed_attribute_is_named_with_both_values():
    """A Python value that is part of the program."""
    cause = causes_of(((leaf(3, 3), leaf(1, 1)), {"axes": (0,)}), ((leaf(3, 3), leaf(1, 1)), {"axes": (1,)}))[-1]
    assert "now has axes=(1,), keepdims=False instead of axes=(0,), keepdims=False" in cause
    assert "use a tensor if it changes often" in cause


def test_another_size_of_what_is_made_is_named_with_advice():
    """An operation without operands."""
    for n in (8, 7):
        made = ops.neg(values.record(ops.iota, (), ir.attrs(dims=(n, 3), axis=0, dtype=np.dtype("float32"))))
        lazy_core.barrier()
        del made
    cause = [e.cause for e in lazy_core.report().events if e.kind == "compile"][-1]
    assert f"iota at {HERE}" in cause
    assert "now gives f32[7,3] instead of f32[8,3]: only the first size differs" in cause


def test_another_branch_is_named_with_operation_and_line():
    """An if of the host language, without and with an else."""
    x, w = leaf(4, 3), leaf(1, 1)
    with_it = causes_of(((x, w), {}), ((x, w), {"extra": True}))[-1]
    assert f"1 more operation, first neg at {HERE}" in with_it
    without_it = causes_of(((x, w), {"extra": True, "scale": 2}), ((x, w), {"scale": 2}))[-1]
    assert f"1 operation fewer, first neg at {HERE}" in without_it
    causes.forget()
    other = causes_of(((x, w), {"extra": True, "axes": (0,)}), ((x, w), {"scale": 3, "axes": (0,)}))[-1]
    assert "is recorded now, and neg at" in other
    assert "took another way" in other


def test_a_loop_of_another_length_is_named_with_both_counts():
    """More rounds, or fewer."""
    x, w = leaf(4, 3), leaf(1, 1)
    found = causes_of(((x, w), {"rounds": 3}), ((x, w), {"rounds": 5}), ((x, w), {"rounds": 1}))
    assert "was recorded 5 times instead of 3: a loop ran another number of rounds" in found[1]
    assert "was recorded 1 time instead of 5: a loop ran another number of rounds" in found[2]


def test_more_live_values_are_named():
    """A tensor that is kept, and then another one."""
    for keep in ((), (0,)):
        x, w = leaf(4, 3), leaf(1, 3)
        y = [ops.mul(x, w)]
        r = ops.sum(y[0], axes=(0, 1), keepdims=False)
        y = [y[k] for k in keep]
        lazy_core.barrier()
        del r
    cause = [e.cause for e in lazy_core.report().events if e.kind == "compile"][-1]
    assert f"1 more value is alive (2 instead of 1), first f32[4,3] of mul at {HERE}" in cause
    assert "kept from step to step" in cause


def test_another_live_set_of_the_same_size_is_named():
    """One kept instead of another, where neither program serves the other."""
    for keep in (0, 1):
        x = leaf(4, 3)
        y = [ops.sin(x)]
        y.append(ops.cos(y[0]))
        z = ops.tanh(y[1])
        y = y[keep]
        lazy_core.barrier()
        del y, z
    cause = [e.cause for e in lazy_core.report().events if e.kind == "compile"][-1]
    assert f"f32[4,3] of cos at {HERE}" in cause
    assert "is alive instead of f32[4,3] of sin" in cause


def test_what_is_remembered_of_long_loops_is_short():
    """Equal operations are counted, not listed."""
    x = leaf(29)  # of no other test: an expression that was recorded before keeps its line
    for _ in range(500):
        x = ops.sin(x)
    lazy_core.barrier()
    (sketches,) = causes._known.values()
    assert len(sketches[0].operations) == 1
    assert sketches[0].total() == 500
