"""The toy frontend: short, right, and lazy like the real ones."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import lazy_core
from lazy_core.testing import check, iter_cases

PATH = Path(__file__).with_name("toy_frontend.py")
_spec = importlib.util.spec_from_file_location("toy_frontend", PATH)
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)

CASES = [case for case in iter_cases(toy.FRONTEND) if case.op in toy.FRONTEND.conformance]


def test_toy_frontend_stays_short():
    """What it takes to write a frontend: under 150 lines."""
    assert len(PATH.read_text().splitlines()) < 150


@pytest.mark.parametrize("case", CASES, ids=[f"{c.op}-{c.dtype.name}" for c in CASES])
def test_toy_agrees_with_numpy(case):
    """The conformance kit runs on the toy as on the real frontends."""
    check(toy.FRONTEND, case.op, case.dtype)


def test_operators_promote_and_record():
    """A Python number takes the array's dtype, arrays of two dtypes their common one; nothing runs until the read."""
    x = toy.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    i = toy.array(np.array([1, 2, 3], np.int32))
    y = 2 * x + i
    assert repr(y) == "Toy(f64[2,3], pending)"
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(6).reshape(2, 3) + [1, 2, 3])
    assert (x[1:] - 1.0).dtype == np.float32
    assert bool((x @ i).shape == (2,))


def test_training_loop_compiles_once():
    """A gradient step repeated is one program."""
    rng = np.random.default_rng(0)
    x, w = toy.array(rng.standard_normal((8, 3)).astype(np.float32)), toy.array(np.zeros((3, 1), np.float32))
    target = x @ toy.array(np.array([[1.0], [-2.0], [0.5]], np.float32))
    lazy_core.barrier()
    lazy_core.reset_report()
    for _ in range(60):
        error = x @ w - target
        w = w - 0.1 * toy.call("matmul", toy.call("transpose", x, perm=(1, 0)), error)
        lazy_core.barrier()
    assert lazy_core.report().counters["compiles"] <= 2
    np.testing.assert_allclose(w.numpy(), [[1.0], [-2.0], [0.5]], atol=0.05)


def test_errors_reach_the_user():
    """An operation that does not fit raises at once, and the trace stays usable."""
    x, y = toy.array(np.ones(2, np.float32)), toy.array(np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"add\(f32\[2\], f32\[3\]\)"):
        _ = x + y
    np.testing.assert_array_equal((x + x).numpy(), [2, 2])
