"""One program written in three libraries is one graph: the second and third cause no compile.

The program is a step of gradient descent on a small network, forward and backward by hand, in each library's own words.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lazy_core

# One batch, two layers of weights and the targets: the same numbers for all.
RNG = np.random.default_rng(0)
INPUTS = [RNG.standard_normal(dims).astype(np.float32) for dims in ((8, 4), (4, 16), (16, 1), (8, 1))]


def in_torch(x, w1, w2, target):
    import torch

    hidden = torch.tanh(x @ w1)
    error = hidden @ w2 - target
    loss = torch.sum(error * error)
    grad2 = hidden.T @ error
    grad1 = x.T @ ((error @ w2.T) * (1.0 - hidden * hidden))
    return loss, w1 - 0.1 * grad1, w2 - 0.1 * grad2


def in_numpy(x, w1, w2, target):
    hidden = np.tanh(x @ w1)
    error = hidden @ w2 - target
    loss = np.sum(error * error)
    grad2 = hidden.T @ error
    grad1 = x.T @ ((error @ w2.T) * (1.0 - hidden * hidden))
    return loss, w1 - 0.1 * grad1, w2 - 0.1 * grad2


def in_tf(x, w1, w2, target):
    import tensorflow as tf

    hidden = tf.tanh(x @ w1)
    error = hidden @ w2 - target
    loss = tf.reduce_sum(error * error)
    grad2 = tf.transpose(hidden) @ error
    grad1 = tf.transpose(x) @ ((error @ tf.transpose(w2)) * (1.0 - hidden * hidden))
    return loss, w1 - 0.1 * grad1, w2 - 0.1 * grad2


PROGRAMS = {"torch": in_torch, "numpy": in_numpy, "tf": in_tf}


def run(frontend, fast=True):
    """Results of the program in one library, and how the report changed; `fast`: without NumPy's rounding, which others do not share."""
    lazy_core.barrier()
    gc.collect()
    lazy_core.reset_report()
    arguments = [frontend.from_numpy(a) for a in INPUTS]
    with lazy_core.options(fast=fast):
        results = PROGRAMS[frontend.name](*arguments)
        lazy_core.barrier()
    return [frontend.to_numpy(r) for r in results], lazy_core.report()


@pytest.fixture(scope="module")
def reports(request):
    """The program run by every selected frontend in turn."""
    options = next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "selected_frontends"))
    found = [f for f in options.selected_frontends(request.config) if f.name in PROGRAMS]
    if len(found) < 2:
        pytest.skip("one frontend alone has nobody to share a graph with")
    return {f.name: run(f) for f in found}


def test_program_is_recorded_without_fallback(reports):
    """Every library's program is wholly in the trace."""
    for name, (_, report) in reports.items():
        assert report.counters["fallbacks"] == 0, f"{name}: {report.fallbacks}"


def test_second_and_third_library_compile_nothing(reports):
    """The graph of the first is found by its canonical key."""
    first, *others = reports
    assert reports[first][1].counters["compiles"] + reports[first][1].counters["disk_hits"] == 1
    for name in others:
        counters = reports[name][1].counters
        assert counters["compiles"] == 0, f"{name} compiled a graph of its own; {first} has the same program"
        assert counters["canonical_hits"] == 1, name


def test_numpys_rounding_takes_a_program_of_its_own(reports):
    """By default a program that reads NumPy's arrays is not shared with libraries that do not ask for its rounding."""
    if "numpy" not in reports:
        pytest.skip("NumPy's frontend is not among those selected")
    _, report = run(lazy_core.frontend.load("numpy"), fast=False)
    assert report.counters["compiles"] + report.counters["disk_hits"] == 1
    assert report.counters["canonical_hits"] == 0


def test_results_are_the_same_numbers(reports):
    """One executable gives one result, bit for bit, and it is NumPy's within a tolerance."""
    expected = in_numpy(*INPUTS)
    first = next(iter(reports.values()))[0]
    for results, _ in reports.values():
        for result, same, wanted in zip(results, first, expected, strict=True):
            np.testing.assert_array_equal(result, same)
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_libraries_share_programs_on_disk_too(reports, tmp_path):
    """Each library in a process of its own: the first compiles, the other loads what it left, and the report says so."""
    imports = "import json, sys, test_same_graph as t; from lazy_core import frontend; "
    program = imports + "print(json.dumps(t.run(frontend.load(sys.argv[1]))[1].counters))"
    env = {**os.environ, "LAZY_CACHE_DIR": str(tmp_path), "LAZY_TIER": "compiled", "TF_CPP_MIN_LOG_LEVEL": "3"}
    found = []
    for name in [n for n in reports if n != "tf"] or reports:  # two will do, and TensorFlow's import is the longest
        command = [sys.executable, "-c", program, name]
        done = subprocess.run(command, cwd=Path(__file__).parent, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        counters = json.loads(done.stdout.splitlines()[-1])
        found.append((counters["compiles"], counters["disk_hits"]))
    assert found == [(1, 0), *[(0, 1)] * (len(found) - 1)]
