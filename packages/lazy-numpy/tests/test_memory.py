"""Where the extension lets NumPy's large arrays lie: at cache lines, whatever becomes of them afterwards."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

import lazy_numpy  # noqa: F401
from lazy_core import backend
from lazy_numpy import extension

pytestmark = pytest.mark.skipif(extension.loaded() is None, reason="there is no extension here: NumPy's memory is as it was")

SIZES = [0, 1, 511, 512, 513, 1000, 5000, 100_001, 1_000_000]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [np.empty, np.zeros, np.ones, lambda n: np.arange(float(n)) * 2, lambda n: np.array([0.5] * n)])
def test_large_arrays_begin_at_a_line(make, size):
    array = make(size)
    assert size < 512 or address(array) % 64 == 0
    assert make is not np.zeros or not array.any()
    array[...] = 7  # all of it is there
    assert array.sum() == 7 * size


def test_the_handler_has_a_name_that_says_whose_it_is():
    assert get_handler_name() == get_handler_name(np.empty(1000)) == "lazy_numpy_aligned"


@pytest.mark.parametrize("before", SIZES)
@pytest.mark.parametrize("after", SIZES)
def test_a_resized_array_keeps_its_elements(before, after):
    array = np.arange(float(before))
    array.resize(after, refcheck=False)
    kept = min(before, after)
    assert (array[:kept] == np.arange(float(kept))).all() and not array[kept:].any()


def test_arrays_that_grow_as_they_are_read(tmp_path):
    assert (np.fromiter((float(k) for k in range(100_000)), float) == np.arange(100_000)).all()
    path = tmp_path / "numbers.txt"
    path.write_text("\n".join(map(str, range(20_000))))
    assert (np.loadtxt(path) == np.arange(20_000)).all()
    assert (np.fromfile(path, dtype=int, sep=" ") == np.arange(20_000)).all()


def test_blocks_of_both_kinds_in_any_order():
    """Made, resized, transposed and freed in random order; what each holds is its own."""
    random.seed(3)
    live = {}
    for _ in range(20_000):
        key = random.randrange(40)
        dice = random.random()
        if dice < 0.5:
            live[key] = np.full(random.choice([1, 10, 300, 511, 512, 600, 2000, 9000, 60_000]), key, np.int64)
        elif key in live and dice < 0.8:
            assert (live.pop(key) == key).all()
        elif key in live:
            live[key].resize(random.choice([1, 10, 511, 512, 600, 5000]), refcheck=False)
            live[key][:] = key
    assert all((array == key).all() for key, array in live.items())


def test_memory_is_traced_and_given_back():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        array = np.zeros(1_000_000)
        assert tracemalloc.get_traced_memory()[0] - before >= array.nbytes
        del array
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_the_device_takes_such_an_array_as_it_is():
    """No copy: the buffer of the value is the array's memory."""
    array = np.arange(100_000.0)
    array.flags.writeable = False
    assert backend.from_host(array, copy=False).unsafe_buffer_pointer() == address(array)


def test_an_allocator_that_is_not_numpys_own_stays():
    assert extension.loaded().align_memory(True) is False  # ours is there already
