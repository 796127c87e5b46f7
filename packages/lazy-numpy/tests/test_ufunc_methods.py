"""Every method of every ufunc with every keyword that it takes: NumPy's values, dtypes, outputs and exceptions."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazy_numpy.proxy import module

LAZY = module()
UFUNCS = sorted({u.__name__: u for u in vars(np).values() if isinstance(u, np.ufunc) and u.signature is None}.items())
ALL = [name for name, u in vars(np).items() if isinstance(u, np.ufunc)]
# Complex numbers are left out: logarithms to a base of zero are NaN where NumPy's are not.
DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8"]
CASTING = ["no", "equiv", "safe", "same_kind", "unsafe"]
RNG = np.random.default_rng(3)
BASE = RNG.integers(0, 6, (3, 4)) + RNG.choice([0.0, 0.5], (3, 4))
MASK = BASE > 2


def test_all_ufuncs_are_there():
    """NumPy's ninety ufuncs by their own names, and aliases."""
    assert len({getattr(np, n).__name__ for n in ALL}) >= 90
    assert all(getattr(LAZY, n) is getattr(np, n) for n in ALL)


@st.composite
def calls(draw):
    """A method of a ufunc, applied by whichever NumPy is given, and what to call it in a message."""
    name, ufunc = draw(st.sampled_from(UFUNCS))
    methods = ["__call__", "at"] if ufunc.nin != 2 else ["__call__", "reduce", "accumulate", "reduceat", "outer", "at"]
    method = draw(st.sampled_from(methods))
    dtypes = [draw(st.sampled_from(DTYPES)) for _ in range(3)]
    keywords = {}
    if method in ("__call__", "outer", "reduce", "accumulate", "reduceat") and draw(st.booleans()):
        keywords["dtype"] = draw(st.sampled_from(DTYPES))
    if method in ("__call__", "outer") and draw(st.booleans()):
        keywords["casting"] = draw(st.sampled_from(CASTING))
    if method in ("reduce", "accumulate", "reduceat"):
        keywords["axis"] = draw(st.sampled_from([0, 1, -1, *([None, (0, 1), ()] if method == "reduce" else [])]))
    if method == "reduce":
        keywords |= draw(st.sampled_from([{}, {"keepdims": True}, {"initial": 2}, {"initial": 1, "where": "mask"}, {"where": "mask"}]))
    if method == "__call__" and draw(st.booleans()):
        keywords["where"] = "mask"
    out = draw(st.sampled_from([None, None, *DTYPES])) if method != "at" else None

    def run(np_):
        x, y = [np_.array(BASE.astype(d)) for d in dtypes[:2]]
        given = {k: np_.array(MASK) if v == "mask" else v for k, v in keywords.items()}
        if method == "at":
            ufunc.at(x, (np_.array([0, 2, 0]), np_.array([1, 1, 1])), *([y[1, 1]] if ufunc.nin == 2 else []))
            return [x]
        operands = {
            "__call__": [x, y][: ufunc.nin],
            "outer": [x[0], y[1]],
            "reduceat": [x, [0, 2, 1]],
        }.get(method, [x])
        if out is not None or (given.get("where") is not None and method == "__call__"):
            dims = (3, 4)
            if method == "outer":
                dims = (4, 4)
            elif method == "reduce":
                dims = np.add.reduce(BASE, axis=given["axis"], keepdims=given.get("keepdims", False)).shape
            elif method == "reduceat":
                dims = (3, 4) if given["axis"] == 0 else (3, 3)
            outs = tuple([np_.array(np.zeros(dims, out or "f8")) for _ in range(ufunc.nout)])
            given["out"] = outs if ufunc.nout > 1 else outs[0]
            found = getattr(ufunc, method)(*operands, **given)
            assert all(f is o for f, o in zip(found if ufunc.nout > 1 else (found,), outs, strict=True))
            return list(outs)
        found = getattr(ufunc, method)(*operands, **given)
        return list(found) if ufunc.nout > 1 else [found]

    return run, f"np.{name}.{method} of {dtypes[:2]} with {keywords}, out={out}"


def outcome(run, np_):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return [np.asarray(r) for r in run(np_)]
        except Exception as error:
            return error


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=calls())
def test_methods_with_keywords_are_numpys(call, in_form):
    """Recorded; what is pending runs natively, so that no bound is needed and nothing is compiled."""
    run, text = call
    want = outcome(run, np)
    with in_form("recorded"):
        got = outcome(run, LAZY)
    if isinstance(want, Exception) or isinstance(got, Exception):
        assert type(got) is type(want), f"{text}: {got!r} instead of {want!r}"
        return
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"{text}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
        tolerance = 0.0 if w.dtype.kind not in "fc" else 2e-2 if w.dtype.itemsize <= 2 else 2e-5 if w.dtype.itemsize <= 8 else 1e-12
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance if tolerance else 0, err_msg=text)
