"""Interning and bit-exact keys."""

import gc
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazy_core import Shape, ir
from lazy_core.errors import DtypeError

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.complex_numbers(allow_nan=True), st.text(), st.binary()
)
static = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12)


def test_shapes_are_interned_and_print_as_hlo():
    """Equal shapes are one object, whatever the dtype was given as."""
    assert Shape.of((8, 128), np.float32) is Shape.of([8, 128], "float32")
    assert str(Shape.of((8, 128), "float32")) == "f32[8,128]"
    assert str(Shape.of((), ml_dtypes.bfloat16)) == "bf16[]"
    assert Shape.of((3, 4), "complex64").nbytes == 96


def test_shape_rejects_negative_dimensions_and_assignment():
    """A negative dimension is named in the error; shapes are immutable."""
    with pytest.raises(ValueError, match="-1"):
        Shape.of((2, -1), "int8")
    with pytest.raises(AttributeError, match="immutable"):
        Shape.of((2,), "int8").dims = (3,)


@given(static)
def test_equal_attributes_are_the_same_object(value):
    """Interning is by type and bits, so nan and nested tuples too are found again."""
    assert ir.attrs(a=value) is ir.attrs(a=value)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (1, True), (0.0, -0.0), (1.0, 1 + 0j), ("a", b"a"), ((1,), (True,)), (np.float32(1), np.float64(1)), (None, False)],
)
def test_attributes_that_python_calls_equal_but_differ_in_bits_are_apart(left, right):
    """Keys are bits, not Python equality."""
    assert ir.attrs(a=left) is not ir.attrs(a=right)


def test_threads_intern_one_object():
    """Shapes and attributes that many threads ask for at once are one object each."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round_ in range(40):
            found = []
            start = threading.Barrier(4)

            def ask(round_=round_, found=found, start=start):
                start.wait()
                for k in range(20):
                    found.append((Shape.of((round_, k, 7), "float32"), ir.attrs(axes=(round_, k))))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert len({id(shape) for shape, _ in found}) == 20
            assert len({id(attributes) for _, attributes in found}) == 20
    finally:
        sys.setswitchinterval(interval)


def test_attribute_order_does_not_matter():
    """Keyword order is no part of the key."""
    assert ir.attrs(a=1, b=2) is ir.attrs(b=2, a=1)


def test_unhashable_attribute_is_a_clear_error():
    """Arrays and lists are data, not static attributes."""
    with pytest.raises(DtypeError, match="static attribute"):
        ir.attrs(a=[1, 2])
    with pytest.raises(DtypeError, match="static attribute"):
        ir.attrs(a=np.zeros(3))


def test_constants_are_interned_by_dtype_and_bits():
    """Zeros of both signs, nan and wrapping integers."""
    assert ir.const(1.0, "float32") is ir.const(1.0, np.float32)
    assert ir.const(0.0, "float32") is not ir.const(-0.0, "float32")
    assert ir.const(0.0, "float32") is not ir.const(-0.0, "float32")  # the second time through the fast table
    assert np.signbit(ir.const(-0.0, "float64").value)
    assert ir.const(float("nan"), "float32") is ir.const(float("nan"), "float32")
    assert ir.const(1, "int32") is not ir.const(1, "int64")
    assert ir.const(-1, "uint8").value == 255
    assert ir.const(2.5, ml_dtypes.bfloat16).value == 2.5


def test_constants_that_never_come_again_are_forgotten_and_the_others_stay():
    kept = ir.const(0.125, "float32")
    seen = weakref.WeakSet()
    for k in range(5 * ir._MOST_CONSTS):
        seen.add(ir.const(1.5 + k, "float64"))
        assert ir.const(0.125, "float32") is kept
    gc.collect()
    assert len(seen) <= 2 * ir._MOST_CONSTS


def test_constant_of_no_number_is_a_clear_error():
    """Strings and arrays are refused."""
    with pytest.raises(DtypeError):
        ir.const("x", "float32")
