"""The NumPy programs and their ports: every program is ported or has a reason why not, and all compute the same."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import numpy_peers  # noqa: E402
from numpy_programs import programs  # noqa: E402

PROGRAMS = programs(np)
LIBRARIES = ["jax", "numba", "numexpr"]


@pytest.fixture(scope="module", params=LIBRARIES)
def ports(request):
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return importlib.import_module(f"numpy_ports.{request.param}_ports")


def test_every_program_has_a_port_or_a_reason(ports):
    ported = {name for name in PROGRAMS if inspect.isroutine(getattr(ports, name, None)) or callable(getattr(ports, name, None))}
    assert ported.isdisjoint(ports.WITHOUT)
    assert ported | set(ports.WITHOUT) == set(PROGRAMS)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_port_computes_what_the_program_does(ports, name):
    if name in ports.WITHOUT:
        return
    inputs = inspect.getclosurevars(PROGRAMS[name]).nonlocals
    port = getattr(ports, name)
    got = np.asarray(port(**{p: ports.convert(inputs[p]) for p in inspect.signature(port).parameters}))
    want = np.asarray(PROGRAMS[name]())
    assert got.dtype == want.dtype
    if name == "cholesky":
        got, want = np.tril(got), np.tril(want)
    np.testing.assert_allclose(got, want, rtol=1e-6 if want.dtype != np.float32 else 1e-4, atol=1e-6)


def test_a_peer_that_is_not_installed_leaves_its_place_empty(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy_ports.numba_ports", None)
    assert "not installed here" in numpy_peers.missing("numba", "lu")
    assert numpy_peers.missing("numpy", "lu") is numpy_peers.missing("lazy", "lu") is None
    row = {"program": "lu", "cold": {"numpy": 1.0, "lazy": 2.0}, "warm": {"numpy": 1.0, "lazy": 0.5}, "missing": {"numba": "gone"}}
    text = numpy_peers.page({"rows": [row], "peers": ["numpy", "lazy", "numba"], "machine": "this one"})
    assert "| lu | 1000.00 | 2.00 |  |" in text
    assert "| lu | 1000.00 | 0.50 |  |" in text
    assert "- numba, lu: gone." in text


def test_the_page_is_up_to_date():
    """Otherwise run `python benchmarks/numpy_peers.py --page`."""
    found = json.loads(numpy_peers.RESULTS.read_text(encoding="utf-8"))
    assert {r["program"] for r in found["rows"]} == set(PROGRAMS)
    assert numpy_peers.PAGE.read_text(encoding="utf-8") == numpy_peers.page(found)
    assert numpy_peers.PAGE.with_suffix(".svg").read_text(encoding="utf-8") == numpy_peers.plot(found["rows"], found["peers"])
