"""Random programs of views, writes and ufuncs give what NumPy gives, whatever is read when."""

from __future__ import annotations

import contextlib
import operator

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lazy_core
from lazy_numpy.proxy import module

LAZY = module()
DTYPES = ["f8", "f4", "i8", "i4", "u1", "?"]


@st.composite
def keys(draw, dims):
    """A basic key for an array of these dims."""
    parts = []
    for n in dims:
        kind = draw(st.sampled_from(["all", "slice", "slice", "int"]))
        if kind == "int" and n:
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            parts.append(
                slice(
                    draw(st.none() | st.integers(-4, 4)), draw(st.none() | st.integers(-4, 4)), draw(st.sampled_from([None, 1, 2, -1, -2]))
                )
            )
        else:
            parts.append(slice(None))
    return (*parts[: draw(st.integers(0, len(parts)))], Ellipsis)


def step(draw, arrays, shapes):
    """One statement: how it is done with either library's arrays; the shapes follow NumPy's."""
    i = draw(st.integers(0, len(arrays) - 1))
    dims = shapes[i]
    kind = draw(
        st.sampled_from(
            [
                "view",
                "transpose",
                "reshape",
                "flip",
                "add",
                "iadd",
                "iadd_self",
                "set",
                "set_mask",
                "sum",
                "take",
                "put",
                "ufunc",
                "read",
                "barrier",
                "copy",
            ]
        )
    )
    if kind == "view":
        key = draw(keys(dims))
        return lambda xs, np_: xs.append(xs[i][key])
    if kind == "transpose":
        return lambda xs, np_: xs.append(xs[i].T)
    if kind == "reshape":
        return lambda xs, np_: xs.append(xs[i].reshape(-1))
    if kind == "flip":
        return lambda xs, np_: xs.append(np_.flip(xs[i]))
    if kind == "add":
        j = draw(st.integers(0, len(arrays) - 1))
        try:
            np.broadcast_shapes(dims, shapes[j])
        except ValueError:
            j = i
        return lambda xs, np_: xs.append(xs[i] + xs[j])
    if kind == "iadd":
        value = draw(st.sampled_from([1, 2, 3]))
        return lambda xs, np_: operator.iadd(xs[i], np_.asarray(value).astype(xs[i].dtype))
    if kind == "iadd_self" and dims and dims[0] > 1:

        def shifted(xs, np_):
            if xs[i].dtype == bool:
                xs[i][1:] ^= xs[i][:-1]
            else:
                xs[i][1:] += xs[i][:-1]

        return shifted
    if kind == "set":
        key = draw(keys(dims))
        value = draw(st.sampled_from([0, 1, 5]))
        return lambda xs, np_: xs[i].__setitem__(key, value)
    if kind == "set_mask":
        return lambda xs, np_: xs[i].__setitem__(xs[i] > 1, 1)
    if kind == "sum":
        return lambda xs, np_: xs.append(xs[i].sum(axis=0) if dims else xs[i] + xs[i])
    if kind in ("take", "put") and dims and dims[0]:
        picks = draw(st.lists(st.integers(-dims[0], dims[0] - 1), min_size=1, max_size=3, unique_by=lambda p, n=dims[0]: p % n))
        if kind == "take":
            return lambda xs, np_: xs.append(xs[i][picks])
        return lambda xs, np_: xs[i].__setitem__(picks, 1)
    if kind == "ufunc":
        name = draw(st.sampled_from(["negative", "square", "sqrt", "maximum", "logical_not"]))

        def apply(xs, np_):
            x = xs[i]
            if name == "maximum":
                xs.append(np_.maximum(x, 2))
            elif name == "negative" and x.dtype == bool:
                xs.append(~x)
            elif name == "sqrt":
                xs.append(np_.sqrt(np_.abs(x)))
            else:
                xs.append(getattr(np_, name)(x))

        return apply
    if kind == "read":
        return lambda xs, np_: np.asarray(xs[i])
    if kind == "barrier":
        return lambda xs, np_: lazy_core.barrier()
    return lambda xs, np_: xs.append(xs[i].copy())


def run(data, form_of):
    """Draw a program, run it on both libraries, and compare; each statement in the form that `form_of` gives."""
    dims = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from(DTYPES))
    start = (np.arange(np.prod(dims)).reshape(dims) % 5).astype(dtype)
    native, lazy = [start.copy()], [LAZY.array(start)]
    with np.errstate(all="ignore"):
        for _ in range(data.draw(st.integers(1, 8))):
            statement = step(data.draw, native, [np.shape(x) for x in native])
            alive = len(native)
            errors = []
            for xs, library in ((native, np), (lazy, LAZY)):
                try:
                    with form_of() if library is LAZY else contextlib.nullcontext():
                        statement(xs, library)
                except (ValueError, TypeError, AttributeError) as error:
                    errors.append(type(error))
            assert len(errors) in (0, 2)
            assert len(set(errors)) <= 1
            assert len(native) == len(lazy)
            # Scalars cannot be written to, in either library.
            for k in range(alive, len(native)):
                if not isinstance(native[k], np.ndarray):
                    native[k], lazy[k] = np.asarray(native[k]), LAZY.asarray(lazy[k])
    for a, b in zip(native, lazy, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(np.asarray(b), a, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs_of_views_and_writes_give_what_numpy_gives(data):
    run(data, contextlib.nullcontext)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_programs_may_change_between_recorded_and_immediate_at_every_statement(data, in_form):
    run(data, lambda: in_form(data.draw(st.sampled_from(["recorded", "immediate", "longer"]))))
