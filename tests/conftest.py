"""Options of the tests that need several packages: which frontends and dtypes the conformance matrix covers."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")  # tests of tiers choose theirs

from lazy_core import compiling, deferred, frontend
from lazy_core.errors import LazyError

# What a plain run covers; `--dtypes=all` is every dtype that an operation has samples for.
SAMPLED_DTYPES = ("float32", "float64", "int32", "int64", "bool", "complex64")


@pytest.fixture(scope="session", autouse=True)
def jax_is_imported():
    """In a program that happens in the background, and until then nothing is learned; tests of that start processes of their own."""
    deferred.load()


@pytest.fixture(autouse=True)
def nothing_left_in_the_background():
    """What other tests have left to be compiled would be counted here."""
    assert compiling.wait(120)


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    group.addoption("--frontends", default=None, help="comma separated names of frontends to test (default: all installed)")
    group.addoption("--dtypes", default=",".join(SAMPLED_DTYPES), help="comma separated dtypes of the conformance matrix, or 'all'")
    group.addoption(
        "--matrix", choices=("sample", "whole"), default="sample", help="which tiers and placements of barriers, see test_conformance.py"
    )


def selected_frontends(config):
    """The frontends to test; one that was named but is missing is an error, so that a typing mistake cannot pass."""
    option = config.getoption("--frontends")
    wanted = frontend.names() if option is None else [name for name in option.split(",") if name]
    try:
        return [frontend.load(name) for name in wanted]
    except LazyError as error:
        raise pytest.UsageError(str(error)) from error


def selected_dtypes(config):
    option = config.getoption("--dtypes")
    if option == "all":
        return None
    try:
        return [np.dtype(name) for name in option.split(",") if name]
    except TypeError as error:
        raise pytest.UsageError(f"--dtypes: {error}") from error


@pytest.fixture
def frontends(request):
    """The selected frontends by name."""
    return {found.name: found for found in selected_frontends(request.config)}
