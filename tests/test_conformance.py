"""The matrix: every core operation in every frontend, against the frontend's own library.

What a frontend does not do stands in gaps.toml with a reason, and nowhere else: an operation in neither the frontend's table nor the gaps
fails, and so does a gap that works.

A gap is a table [frontend.operation] with status (notimpl: ours to do; notyet: the library's or XLA's; never: it would be wrong) and
reason; `dtypes` and `samples` (numbers of samples) narrow it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from lazy_core.ops import REGISTRY
from lazy_core.testing import OWN_FAMILIES, check, iter_cases

GAPS = tomllib.loads((Path(__file__).parent / "gaps.toml").read_text())
STATUSES = ("notimpl", "notyet", "never")


def gap_of(frontend_name, op, dtype):
    """The gap that covers a cell, or None."""
    gap = GAPS.get(frontend_name, {}).get(op)
    return gap if gap is not None and dtype.name in gap.get("dtypes", [dtype.name]) else None


def pytest_generate_tests(metafunc):
    if "cell" in metafunc.fixturenames:
        conftest = metafunc.config.pluginmanager
        options = next(p for p in conftest.get_plugins() if hasattr(p, "selected_frontends"))
        dtypes = options.selected_dtypes(metafunc.config)
        cells = [(f, case) for f in options.selected_frontends(metafunc.config) for case in iter_cases(f, dtypes)]
        metafunc.parametrize("cell", cells, ids=[f"{f.name}-{case.op}-{case.dtype.name}" for f, case in cells])


def test_operation_agrees_with_the_library(cell):
    """Lazy equals native within the declared tolerance, without a fallback; or the gap is declared, and real."""
    frontend, (op, dtype) = cell
    gap = gap_of(frontend.name, op, dtype)
    if op not in frontend.conformance:
        assert gap is not None, f"{frontend.name} has no call for {op} in its conformance table, and tests/gaps.toml does not say why"
        pytest.xfail(f"{gap['status']}: {gap['reason']}")
    excluded = None if gap is None else gap.get("samples")
    if gap is None or excluded:
        outcome = check(frontend, op, dtype, lambda number: number not in (excluded or ()))
        if excluded:
            for number in excluded:
                with pytest.raises(AssertionError):
                    check(frontend, op, dtype, lambda given, wanted=number: given == wanted)
        elif outcome.compared == 0:
            pytest.skip(f"{frontend.library} itself has no {op} of {dtype.name}: {outcome.refused}")
        return
    try:
        outcome = check(frontend, op, dtype)
    except Exception as error:
        pytest.xfail(f"{gap['status']}: {gap['reason']} ({type(error).__name__})")
    if outcome.compared:
        pytest.fail(f"{frontend.name} {op} {dtype.name} works: take it out of tests/gaps.toml")


def test_gaps_are_well_formed():
    """Every gap names an operation of the registry, a status and a reason."""
    for frontend_name, gaps in GAPS.items():
        for op, gap in gaps.items():
            where = f"[{frontend_name}.{op}]"
            assert op in REGISTRY, f"{where}: there is no such operation"
            assert REGISTRY[op].family not in OWN_FAMILIES, f"{where}: {op} is not in the matrix"
            assert gap.get("status") in STATUSES, f"{where}: status must be one of {STATUSES}"
            assert gap.get("reason"), f"{where}: a reason is missing"
            assert not set(gap) - {"status", "reason", "dtypes", "samples"}, f"{where}: unknown keys"


def test_tables_name_only_operations(frontends):
    """A frontend's table has no entry that the registry lacks: it would never be run."""
    for found in frontends.values():
        assert not set(found.conformance) - set(REGISTRY), found.name


def test_named_but_missing_frontend_is_an_error(pytestconfig):
    """A typing mistake in --frontends or --dtypes cannot pass for a run."""
    options = next(p for p in pytestconfig.pluginmanager.get_plugins() if hasattr(p, "selected_frontends"))

    class Mistaken:
        @staticmethod
        def getoption(name):
            return {"--frontends": "torhc", "--dtypes": "flaot32"}[name]

    with pytest.raises(pytest.UsageError, match="torhc"):
        options.selected_frontends(Mistaken)
    with pytest.raises(pytest.UsageError, match="flaot32"):
        options.selected_dtypes(Mistaken)
