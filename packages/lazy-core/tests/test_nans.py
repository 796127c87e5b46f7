"""Where a NaN came from: the operation that made it, at its line, for pending values and for those that just ran."""

import numpy as np
import pytest

import lazy_core
from lazy_core import ir, ops, values
from lazy_core.errors import LazyError


@pytest.fixture(autouse=True, params=["compiled", "native"])
def tier(request):
    """Both tiers: values that just ran are found by their arrays."""
    lazy_core.barrier()
    with lazy_core.options(tier=request.param):
        yield request.param
    lazy_core.barrier()


def array(*numbers, dtype=np.float32):
    return values.from_host(np.array(numbers, dtype))


def line_of(origin):
    name, _, line = origin.site.rpartition(":")
    with open(name) as file:
        return file.readlines()[int(line) - 1]


def test_a_pending_value_is_looked_into_without_running():
    """The logarithm of a negative number, ten operations ago; the value stays pending."""
    x = array(1.0, -2.0, 4.0)
    y = ops.log(x)  # here
    for _ in range(10):
        y = ops.tanh(ops.add(y, x))
    origin = lazy_core.first_nan(y)
    assert (origin.op, origin.place, origin.found, origin.size, origin.given) == ("log", (1,), 1, 3, "-2.0")
    assert "# here" in line_of(origin)
    assert str(origin).startswith("log(f32[3]) at ")
    assert "made it of operands without: 1 of 3 elements, first at (1,), from -2.0" in str(origin)
    assert y.pending


def test_a_value_that_just_ran_is_looked_into_if_traces_are_kept():
    """By its array, in a trace that is not the latest; what was taken over since is there all the same."""
    with lazy_core.options(keep_traces=3):
        x = array(*np.linspace(-1, 1, 40_000))
        for _ in range(4):
            x = ops.add(x, x)
            lazy_core.barrier()
        y = ops.div(x, ops.sub(x, x))  # here
        z = ops.sum(ops.sqrt(ops.abs(x)), axes=(0,), keepdims=False)
        total = ops.sum(y, axes=(0,), keepdims=False)
        lazy_core.barrier()
        later = ops.add(z, z)
        lazy_core.barrier()
        assert lazy_core.first_nan(z) is None
        origin = lazy_core.first_nan(total)
        assert origin.op == "sum"  # of infinities of both signs
        assert "from numbers from -inf to inf" in str(origin)
        origin = lazy_core.first_nan(total, infinities=True)
        assert origin.op == "div"
        assert "# here" in line_of(origin)
    del later


def test_what_was_not_kept_is_said_to_be_missing():
    """With the setting that keeps it."""
    y = ops.log(array(-1.0))
    lazy_core.barrier()
    with pytest.raises(LazyError, match=r"keep_traces=N"):
        lazy_core.first_nan(y)
    assert lazy_core.first_nan(ops.exp(array(1.0))) is None


def test_a_nan_that_was_replaced_is_not_followed():
    """Only what reached the value counts."""
    x = array(-1.0, 4.0)
    hidden = ops.log(x)
    clean = ops.where(ops.isnan(hidden), x, hidden)
    assert lazy_core.first_nan(clean) is None
    y = ops.sqrt(clean)  # here
    origin = lazy_core.first_nan(y)
    assert origin.op == "sqrt"
    assert "# here" in line_of(origin)


def test_the_first_of_several_is_named():
    """In the order in which operations were first recorded."""
    x = array(-1.0, -2.0, -3.0, -4.0, -5.0)
    second, first = ops.exp(x), ops.sqrt(x)  # here
    y = ops.add(ops.log(x), ops.add(first, second))
    origin = lazy_core.first_nan(y)
    assert origin.op == "sqrt"
    assert "# here" in line_of(origin)


def test_a_nan_that_came_in_is_said_to_have():
    """With a buffer, or as a number."""
    y = ops.exp(array(1.0, np.nan))
    assert "it came in with the input f32[2], first read at" in str(lazy_core.first_nan(y))
    z = values.record(ops.mul, (array(1.0), ir.const(np.nan, np.float32)))
    assert lazy_core.first_nan(z).op == "number"


def test_integers_have_none_and_strangers_are_refused():
    """An answer, and a TypeError."""
    assert lazy_core.first_nan(ops.add(array(1, dtype=np.int32), array(1, dtype=np.int32))) is None
    with pytest.raises(TypeError, match="ndarray is not a lazy tensor"):
        lazy_core.first_nan(np.ones(3))
