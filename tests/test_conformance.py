"""The matrix: every core operation and every whole program in every frontend, against the frontend's own library.

What a frontend does not do stands in gaps.toml with a reason, and nowhere else: an operation in neither the frontend's table nor the gaps
fails, and so does a gap that works.  The kit itself is `lazy_core.testing`; docs/conformance.md is made from the whole matrix.

A gap is a table [frontend.operation] with status (notimpl: ours to do; notyet: the library's or XLA's; never: it would be wrong) and
reason; `dtypes` and `samples` (numbers of samples) narrow it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from lazy_core import conformance, events, whole
from lazy_core.errors import StrictError
from lazy_core.ops import REGISTRY
from lazy_core.testing import PLACEMENTS, TIERS, Case, ProgramCase, assert_close, cell_name, iter_cases, iter_programs, judge, run_cell

GAPS = tomllib.loads((Path(__file__).parent / "gaps.toml").read_text())
# A sample of the matrix has every operation compiled and read at the end; every so many of them are run otherwise too.
STRIDE = 12


def whole_matrix(frontend, dtypes):
    """Every cell of a frontend."""
    return [*iter_cases(frontend, dtypes, TIERS, PLACEMENTS), *iter_programs(frontend, dtypes, TIERS, PLACEMENTS)]


def sample_of_the_matrix(frontend, dtypes):
    """What a plain run covers."""
    cells = list(iter_cases(frontend, dtypes, ("compiled",)))
    for case in list(iter_cases(frontend, ("float32",)))[::STRIDE]:
        cells += [case._replace(tier=t, placement=p) for t in TIERS for p in PLACEMENTS if (t, p) != ("compiled", "end")]
    for number, case in enumerate(iter_programs(frontend, ("float32",))):
        cells += [case._replace(tier=t, placement=p) for t in TIERS for p in ("end", PLACEMENTS[1 + number % 2])]
    return cells


def pytest_generate_tests(metafunc):
    if "cell" in metafunc.fixturenames:
        config = metafunc.config
        options = next(p for p in config.pluginmanager.get_plugins() if hasattr(p, "selected_frontends"))
        choose = whole_matrix if config.getoption("--matrix") == "whole" else sample_of_the_matrix
        cells = [(f, case) for f in options.selected_frontends(config) for case in choose(f, options.selected_dtypes(config))]
        metafunc.parametrize("cell", cells, ids=[cell_name(*cell) for cell in cells])


def test_agrees_with_the_library(cell):
    """Lazy equals native within the declared tolerance, without a fallback; or the gap is declared, and real."""
    frontend, case = cell
    run_cell(frontend, case, GAPS.get(frontend.name, {}))


@pytest.mark.parametrize("program", whole.PROGRAMS)
def test_libraries_compute_the_same_program(program, frontends):
    """A whole program is one program: run natively, all libraries give the same numbers, in the same order."""
    given = whole.inputs(program, np.dtype("float64"))
    found = {}
    for f in frontends.values():
        if program in conformance.programs_of(f):
            results = f.programs[program](*[f.native(a) for a in given], middle=lambda tensor: tensor)
            found[f.name] = [f.to_numpy(r) for r in (results if isinstance(results, tuple) else (results,))]
    (first, expected), *others = found.items()
    for name, results in others:
        assert len(results) == len(expected)
        for result, wanted in zip(results, expected, strict=True):
            assert_close(result, wanted, whole.PROGRAMS[program].allowed, f"{program} in {name}, against {first}")


def test_gaps_are_well_formed():
    """Every gap names an operation of the registry or a program, a status and a reason."""
    conformance.assert_well_formed(GAPS)
    for wrong in ({"exq": {}}, {"random_bits": {}}, {"exp": {"status": "later", "reason": "x"}}, {"exp": {"status": "never"}}):
        with pytest.raises(AssertionError):
            conformance.assert_well_formed({"torch": wrong})


def test_tables_name_only_operations(frontends):
    """A frontend's table has no entry that the registry lacks: it would never be run."""
    for found in frontends.values():
        assert not set(found.conformance) - set(REGISTRY), found.name
        assert not set(conformance.programs_of(found)) - set(whole.PROGRAMS), found.name


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


# ------------------------------------------------------------------ the kit finds what it is for


class Wrong:
    """A frontend whose tables are another's, except for what a test replaces."""

    def __init__(self, frontend, **replaced):
        self.frontend, self.replaced = frontend, replaced

    def __getattr__(self, name):
        return self.replaced.get(name) or getattr(self.frontend, name)


@pytest.fixture(params=TIERS)
def numpy_case(request, frontends):
    if "numpy" not in frontends:
        pytest.skip("the tests of the kit itself are written for NumPy")
    return frontends["numpy"], Case("exp", np.dtype("float32"), request.param)


def test_the_kit_notices_another_result(numpy_case):
    """In every tier, for an operation and for a program."""
    frontend, case = numpy_case

    calls = []

    def every_other(u, *, middle):  # the first call is the library's own
        calls.append(u)
        return middle(u * np.float32(1 if len(calls) % 2 else 1.01))

    def exp(x):
        return np.exp(x) * np.float32(1.01 if frontend.is_lazy(x) else 1)

    assert judge(frontend, case, {}).kind == "agrees"
    with pytest.raises(AssertionError, match="elements differ"):
        judge(Wrong(frontend, programs={"stencil": every_other}), ProgramCase("stencil", case.dtype, case.tier), {})
    with pytest.raises(AssertionError, match="elements differ"):
        judge(Wrong(frontend, conformance={"exp": exp}), case, {})


def test_the_kit_notices_barriers_and_fallbacks_where_none_should_be(numpy_case):
    """A program that reads before its end, one that falls back, and one without a middle."""
    frontend, case = numpy_case
    if case.tier == "native":
        pytest.skip("what runs natively is read at any time")

    def reads(u, *, middle):
        return middle(u) * float(u.sum())

    def falls_back(u, *, middle):
        events.fallback("numpy", "frobnicate", "as a frontend tells of it")
        return middle(u)

    for program, message in ((reads, "host read|reads"), (falls_back, "fell back"), (lambda u, *, middle: u, "calls middle once")):
        with pytest.raises((AssertionError, StrictError), match=message):
            judge(Wrong(frontend, programs={"stencil": program}), ProgramCase("stencil", case.dtype, case.tier), {})


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_gaps_must_be_real(frontends, placement):
    """A gap that works fails; an operation with neither a call nor a gap fails; a gap of some samples lets the others be tested."""
    frontend = next(iter(frontends.values()))
    case = Case("exp", np.dtype("float32"), "compiled", placement)
    gap = {"status": "notimpl", "reason": "said so"}
    with pytest.raises(AssertionError, match="no gap any more"):
        judge(frontend, case, {"exp": gap})
    with pytest.raises(AssertionError, match="sample 0 works"):
        judge(frontend, case, {"exp": {**gap, "samples": [0]}})
    without = Wrong(frontend, conformance={"log": frontend.conformance["log"]})
    with pytest.raises(AssertionError, match="no call for exp"):
        judge(without, case, {})
    assert judge(without, case, {"exp": gap}) == ("gap", "notimpl: said so")
