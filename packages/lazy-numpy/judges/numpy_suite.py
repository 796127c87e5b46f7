"""NumPy's own tests as a judge: its installed test modules, with `np` swapped for the lazy one.

    python packages/lazy-numpy/judges/numpy_suite.py [--tier auto] [--only test_indexing,test_umath]

Owns: which modules concern numeric arrays, the swap, and the comparison with `numpy_gaps.toml`, where every test that is known not to pass
stands with its reason.  Each module runs in a process of its own; a test whose reason begins with "crashes" is not run, and counts as
failed.  A test that fails and is not in the file, or is in it and passes, is an error.  With the tier "recorded" every call is recorded, on
the smallest arrays too, and what is pending runs natively: a sterner test, for which there is no list.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
GAPS = HERE / "numpy_gaps.toml"
MODULES = {
    "_core": (
        "einsum function_base half indexerrors indexing item_selection mem_overlap multiarray nep50_promotions numeric scalarmath "
        "shape_base ufunc umath umath_complex errstate"
    ),
    "lib": (
        "arraypad arraysetops function_base histograms index_tricks nanfunctions packbits polynomial shape_base stride_tricks twodim_base "
        "type_check ufunclike"
    ),
    "linalg": "linalg regression",
    "fft": "helper pocketfft",
}


def paths() -> dict[str, Path]:
    """The judged modules of the installed NumPy by short name, such as `lib/test_arraypad`."""
    root = Path(np.__file__).parent
    return {f"{part}/test_{n}": root / part / "tests" / f"test_{n}.py" for part, names in MODULES.items() for n in names.split()}


# ------------------------------------------------------------------ in the process that runs one module


class Swap:
    """A pytest plugin: the modules under test see the lazy NumPy, and the outcome of each test is kept."""

    def __init__(self, known: dict[str, str]) -> None:
        self.outcomes: dict[str, str] = {}
        self._crashing = {test: why for test, why in known.items() if why.startswith("crashes")}

    def _leave_out(self, items: list[Any]) -> None:
        for item in list(items):
            name = item.nodeid.split("::", 1)[1]
            why = reason_of(name, self._crashing)
            if why is not None:
                items.remove(item)
                self.outcomes[name] = f"failed: {why}"

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Swap `np`, and names imported from NumPy, in every module that was collected."""
        from lazy_numpy.proxy import module

        self._leave_out(items)
        lazy = module()
        known: dict[int, Any] = {}
        parts = [(getattr(np, n), getattr(lazy, n)) for n in ("linalg", "fft", "random", "lib", "testing")]
        for real, ours in ((np, lazy), *parts, (np.lib.stride_tricks, lazy.lib.stride_tricks)):
            known[id(real)] = ours
            for name, value in vars(real).items():
                new = getattr(ours, name, value)
                if new is not value and callable(value):
                    known[id(value)] = new
        for space in {id(i.module): vars(i.module) for i in items}.values():
            for name, value in list(space.items()):
                if not name.startswith("__") and isinstance(value, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)):
                    space[name] = known.get(id(value), value)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep how a test ended; setup and teardown count where they fail."""
        name = report.nodeid.split("::", 1)[1]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.outcomes[name] = "failed: " + (crash.message if crash else str(report.longrepr)).split("\n")[0][:200]
        elif report.when == "call" or report.skipped:
            self.outcomes.setdefault(name, "passed" if report.passed else "skipped")


@contextlib.contextmanager
def _in_tier(tier: str) -> Iterator[None]:
    if tier == "real":
        yield
    elif tier == "recorded":
        import coverage

        with coverage.recording():
            yield
    else:
        import lazy_core

        with lazy_core.options(tier=tier):
            yield


def run_one(path: str, tier: str, into: str, rest: list[str]) -> None:
    """Run one module here, and write the outcomes as JSON."""
    import pytest

    swap = Swap(next((gaps().get(name, {}) for name, found in paths().items() if str(found) == path), {}))
    if tier == "real":
        del Swap.pytest_collection_modifyitems
    with _in_tier(tier):
        # Not this repository's settings of pytest, which an environment inside the checkout would find.
        settings = ["-c", os.devnull, "--rootdir", os.getcwd()]
        pytest.main(["-q", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore", *settings, path, *rest], plugins=[swap])
    Path(into).write_text(json.dumps(swap.outcomes), encoding="utf-8")


# ------------------------------------------------------------------ the judge


def judge(name: str, path: Path, tier: str, rest: list[str], seconds: float) -> dict[str, str]:
    """The outcome of each test of a module."""
    with tempfile.TemporaryDirectory() as folder:
        into = os.path.join(folder, "outcomes.json")
        command = [sys.executable, __file__, "--run", str(path), "--tier", tier, "--into", into, *rest]
        environment = {**os.environ, "LAZY_CACHE_DIR": "off"}
        try:
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"": f"failed: {name} took longer than {seconds:g} s"}
        if not os.path.exists(into):
            return {"": f"failed: {name} ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"}
        found: dict[str, str] = json.loads(Path(into).read_text(encoding="utf-8"))
        return found


def gaps() -> dict[str, dict[str, str]]:
    """By module, the reason of each test that is known not to pass; a name ends with * where all that begin so are meant."""
    with GAPS.open("rb") as file:
        return tomllib.load(file)


def reason_of(test: str, known: dict[str, str]) -> str | None:
    """Why a test is known not to pass, or None."""
    if test in known:
        return known[test]
    return next((why for name, why in known.items() if name.endswith("*") and test.startswith(name[:-1])), None)


def main() -> int:
    """Run the judge; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tier", default="auto", help="auto (the default), recorded, native, compiled; real is NumPy itself")
    parser.add_argument("--only", default="", help="modules, such as test_umath, with commas between them")
    parser.add_argument("--seconds", type=float, default=900.0, help="the most that one module may take")
    parser.add_argument("--json", metavar="FILE", help="also write every outcome to this file")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    if args.run:
        run_one(args.run, args.tier, args.into, rest)
        return 0
    only = {n for n in args.only.split(",") if n}
    known = gaps() if args.tier in ("auto", "native") else {}
    passed = failed = surprises = 0
    everything = {}
    for name, path in paths().items():
        if only and name not in only and name.rpartition("/")[2] not in only:
            continue
        outcomes = everything[name] = judge(name, path, args.tier, rest, args.seconds)
        listed = known.get(name, {})
        good = [t for t, o in outcomes.items() if o == "passed"]
        bad = {t: o for t, o in outcomes.items() if o.startswith("failed")}
        new = {t: o for t, o in bad.items() if reason_of(t, listed) is None}
        over = [t for t in listed if not t.endswith("*") and outcomes.get(t) == "passed"]
        passed, failed, surprises = passed + len(good), failed + len(bad), surprises + len(new) + len(over)
        print(f"{name:32} {len(good):6} passed {len(bad):5} failed {len(new):5} of them new", flush=True)
        for test, outcome in new.items():
            print(f"    {test}  {outcome}")
        for test in over:
            print(f"    {test}  passes, and stands in {GAPS.name}")
    print(f"{passed} passed, {failed} failed: {100 * passed / max(passed + failed, 1):.2f} %")
    if args.json:
        Path(args.json).write_text(json.dumps(everything, indent=1), encoding="utf-8")
    return int(bool(surprises))


if __name__ == "__main__":
    sys.exit(main())
