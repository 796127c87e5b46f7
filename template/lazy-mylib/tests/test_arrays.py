"""What the kit cannot know: operators, indexing, reads, errors, fallbacks, loops, and code written for the standard."""

import tomllib
from pathlib import Path

import array_api_strict as library
import lazy_mylib as xp
import numpy as np
import pytest
from lazy_mylib.frontend import FRONTEND

import lazy_core

DATA = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_nothing_runs_before_a_read():
    """A debugger may look; a read runs everything once."""
    x = xp.asarray(DATA)
    y = xp.sin(x) + 1
    assert repr(y) == "Array(f32[2,3,4], pending)"
    total = xp.sum(y)
    assert float(total) == pytest.approx(float(np.sum(np.sin(DATA) + 1)), rel=1e-5)
    assert not y._value.pending
    assert repr(xp.asarray([1, 2])) == "Array([1 2], dtype=int64)"


KEYS = [
    0, -1, slice(1), (..., 2), (0, slice(None, None, -1)), (slice(None), None, 1), (slice(5, 1), 0), (slice(None, None, 2), 2, 3), (),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_keys_give_the_librarys_parts(key):
    """Numbers, slices with any step, an ellipsis, new dimensions."""
    part = xp.asarray(DATA)[key]
    np.testing.assert_array_equal(part.numpy(), DATA[key])


def test_wrong_keys_are_refused():
    """With the error that the standard's users expect."""
    x = xp.asarray(DATA)
    for key in (5, (0, 0, 0, 0), True, "a", (..., ...)):
        with pytest.raises(IndexError):
            x[key]


def test_numbers_take_the_arrays_dtype_and_arrays_are_promoted():
    """As the standard says, on both sides of an operator; what it does not define is refused as the library refuses it."""
    x, i = xp.asarray([1.0, 2.0], dtype=xp.float32), xp.asarray([1, 2], dtype=xp.int8)
    assert (2 * x - 1).dtype == xp.float32
    assert (x + xp.asarray([1.0])).dtype == xp.float64
    assert (i + xp.asarray([1], dtype=xp.int32)).dtype == xp.int32
    for wrong in (lambda: x + i, lambda: i + 1.5, lambda: xp.sin(i), lambda: x + "a", lambda: xp.add(1, 2)):
        with pytest.raises(TypeError):
            wrong()


def test_code_for_the_standard_runs_unchanged():
    """Anything that asks an array for its namespace."""

    def standardised(x):
        ns = x.__array_namespace__()
        mean = ns.mean(x, axis=0, keepdims=True)
        return ns.sqrt(ns.mean((x - mean) ** 2, axis=0)) if ns.any(x > 0) else x

    host = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(standardised(xp.asarray(host)).numpy(), np.from_dlpack(standardised(library.asarray(host))), rtol=1e-12)


def test_what_has_no_rule_runs_in_the_library_and_is_counted():
    """Never silently: the report names it."""
    before = lazy_core.report().fallbacks.get("mylib:sort", 0)
    assert xp.sort(xp.asarray([3, 1, 2])).numpy().tolist() == [1, 2, 3]
    assert lazy_core.report().fallbacks["mylib:sort"] == before + 1
    with pytest.raises(AttributeError, match="has no frobnicate"):
        _ = xp.frobnicate


def test_a_loop_compiles_once():
    """Gradient descent: a step is one program."""
    x = xp.asarray(np.random.default_rng(0).standard_normal((8, 3)))
    w, target = xp.zeros((3, 1)), x @ xp.asarray([[1.0], [-2.0], [0.5]])
    with lazy_core.options(tier="compiled"):
        lazy_core.barrier()
        before = lazy_core.report().counters["compiles"]
        for _ in range(80):
            w = w - 0.1 * (x.T @ (x @ w - target))
            lazy_core.barrier()
        assert lazy_core.report().counters["compiles"] <= before + 2
    np.testing.assert_allclose(w.numpy(), [[1.0], [-2.0], [0.5]], atol=0.05)


def test_errors_name_the_users_line_and_leave_the_trace_usable():
    """Shapes that do not fit are refused at once."""
    x, y = xp.ones((2,)), xp.ones((3,))
    with pytest.raises(ValueError, match=r"add\(f64\[2\], f64\[3\]\)"):
        _ = x + y
    assert (x + x).numpy().tolist() == [2, 2]
    assert "test_arrays.py" in lazy_core.explain(x + 1)


def test_the_entry_point_leads_to_the_frontend():
    """What pyproject.toml says is what the core will find once the package is installed."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["lazy_core.frontends"] == {FRONTEND.name: f"{type(FRONTEND).__module__}:FRONTEND"}
