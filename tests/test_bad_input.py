"""Bad input to the core: an error of a fitting type at the line that is wrong, with the values in it; the trace stays usable after it."""

import numpy as np
import pytest

import lazy_core
from lazy_core import ir, ops, values
from lazy_core.errors import BarrierError, DtypeError, LazyError, ShapeError
from lazy_core.ops import composite


def leaf(*dims, dtype=np.float32):
    return values.from_host(np.ones(dims, dtype))


@pytest.fixture(autouse=True)
def trace_stays_usable():
    """Something is pending when the error happens, and is right afterwards."""
    pending = ops.add(leaf(2), leaf(2))
    yield
    np.testing.assert_array_equal(values.to_host(ops.mul(pending, pending)), [4, 4])


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        (lambda: ops.add(leaf(2), leaf(3)), ValueError, r"add\(f32\[2\], f32\[3\]\)"),
        (lambda: ops.add(leaf(2), leaf(2, dtype=np.int64)), TypeError, r"float32 and int64"),
        (lambda: ops.matmul(leaf(2, 3), leaf(4, 5)), ValueError, r"3 columns on the left meet 4 rows"),
        (lambda: ops.matmul(leaf(), leaf(2)), ValueError, r"0-d operands"),
        (lambda: ops.reshape(leaf(2, 3), dims=(4,)), ValueError, r"6 elements cannot fill 4"),
        (lambda: ops.sum(leaf(2), axes=(1,), keepdims=False), ValueError, r"axis 1 is out of bounds for an operand of 1 dims"),
        (lambda: ops.sum(leaf(2, 2), axes=(0, -2), keepdims=False), ValueError, r"name a dim of an operand of 2 dims twice"),
        (lambda: ops.max(leaf(0), axes=(0,), keepdims=False), ValueError, r"an empty set of numbers has no max"),
        (lambda: ops.slice(leaf(4), starts=(1,), limits=(9,), strides=(1,)), ValueError, r"outside the operand"),
        (lambda: ops.take(leaf(4), leaf(2), axis=0, mode="clip"), TypeError, r"must be integers"),
        (lambda: ops.where(leaf(2), leaf(2), leaf(2)), TypeError, r"must be bool"),
        (lambda: ops.sin(leaf(2, dtype=np.int32)), TypeError, r"sin\(s32\[2\]\)"),
        (lambda: ops.cholesky(leaf(2, 3)), ValueError, r"a square matrix"),
        (lambda: ops.concatenate(leaf(2, 3), leaf(2, 4), axis=0), ValueError, r"all other dims must be equal"),
        (lambda: ops.random_uniform(leaf(2), dims=(3,), dtype=np.dtype(np.float32)), TypeError, r"a state u64\[2\]"),
        (lambda: ops.broadcast_to(leaf(3), dims=(2, 4)), ValueError, r"sizes must be equal or 1"),
        (lambda: ops.add(leaf(2), 1.0), TypeError, r"core does no promotion"),
        (lambda: ops.sum(leaf(2), axis=0), TypeError, r"takes the attributes"),
    ],
)
def test_wrong_operands_are_refused_where_they_are_recorded(record, error, message):
    """Not at the barrier, far from the line that is wrong."""
    with pytest.raises(error, match=message):
        record()


def test_errors_are_of_one_tree():
    """`except LazyError` catches what the core refuses, whatever built-in type it also is."""
    for error in (ShapeError, DtypeError, BarrierError):
        assert issubclass(error, LazyError)


FOREIGN = (np.array(["a"]), np.array([object()]), np.zeros(2, "M8[s]"), np.zeros(2, "f4,i4"), np.zeros(2, np.longdouble))


@pytest.mark.parametrize("array", FOREIGN, ids=lambda a: str(a.dtype))
def test_dtype_without_a_counterpart_is_refused(array):
    """Strings, objects, dates, records and long doubles do not exist on the device."""
    with pytest.raises(TypeError, match="does not exist on the device"):
        values.from_host(array)


def test_attribute_that_is_no_constant_is_refused():
    """A list or an array cannot be part of a program's key."""
    with pytest.raises(TypeError, match="cannot be a static attribute"):
        ir.attrs(axes=[0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_into_an_integer_is_what_numpy_gives(value):
    """Not a number that XLA saturates to: the smallest integer, as the processor's own conversion."""
    x = values.from_host(np.array([value], np.float64))
    with np.errstate(invalid="ignore"):
        for dtype in (np.int32, np.int64):
            np.testing.assert_array_equal(values.to_host(ops.convert(x, dtype=np.dtype(dtype))), np.array([value]).astype(dtype))


def test_integer_division_by_zero_is_what_numpy_gives():
    """Zero, and not -1 or a trap."""
    x, zero = leaf(3, dtype=np.int32), values.from_host(np.zeros(3, np.int32))
    np.testing.assert_array_equal(values.to_host(ops.floor_div(x, zero)), [0, 0, 0])
    np.testing.assert_array_equal(values.to_host(ops.remainder(x, zero)), [0, 0, 0])


def test_read_inside_a_composite_is_refused():
    """A composite is traced once: a value read in it would be baked in."""
    x = leaf(2)

    @composite("test_bad_reads")
    def reads(a):
        lazy_core.barrier()
        return a

    with pytest.raises(RuntimeError, match="test_bad_reads"):
        reads(x)


def test_composite_that_returns_no_expression_is_refused():
    """Its result must be of the graph."""

    @composite("test_bad_result")
    def returns_number(a):
        return 3

    with pytest.raises(LazyError, match="must return expressions"):
        returns_number(leaf(2))
