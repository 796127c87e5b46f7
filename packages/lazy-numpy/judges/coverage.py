"""What of NumPy's public interface is recorded, what NumPy runs, and that every value is NumPy's; writes docs/numpy-coverage.md.

    python packages/lazy-numpy/judges/coverage.py [--check]

Owns: the audit.  Each callable is called once with NumPy's arrays and once with lazy ones whose calls are recorded (see `calls`), and each
ufunc in every way it can be called.  What is pending runs natively, so that nothing is compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import calls
import numpy as np

import lazy_core
from lazy_numpy.proxy import module
from lazy_numpy.recording import mode, settings

RECORDED, RUN = "recorded", "NumPy, counted"
UFUNCS = {
    name: u for name in sorted(dir(np)) if isinstance(u := getattr(np, name), np.ufunc) and u.__name__ in (name, "absolute", "invert")
}
WAYS = ("call", "out", "where", "dtype", "reduce", "accumulate", "reduceat", "outer", "at")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "numpy-coverage.md"


class Found(NamedTuple):
    """What came of one call.

    Attributes:
        status: RECORDED or RUN; "" where NumPy itself raises.
        difference: how the value differs from NumPy's, or "".
    """

    status: str
    difference: str


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Calls are recorded, even on the smallest arrays, and what is pending runs natively."""
    before = settings.small, settings.result, settings.part
    settings.small = settings.result = settings.part = -1
    with lazy_core.options(tier="native"):
        mode._tier = "compiled"
        mode._follow()
        try:
            yield
        finally:
            mode._tier = "native"
            settings.small, settings.result, settings.part = before


def audit(run: Callable[[Any, dict[str, Any]], Any]) -> Found:
    """Run a call with NumPy and recorded, and compare: values, dtypes, and the type of what is raised."""
    want = _outcome(run, np)
    counted = lazy_core.report().counters["fallbacks"]
    got = _outcome(run, module())
    fell = lazy_core.report().counters["fallbacks"] > counted
    status = "" if isinstance(want, Exception) else RUN if fell else RECORDED
    return Found(status, _difference(got, want))


def _outcome(run: Callable[[Any, dict[str, Any]], Any], np_: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return run(np_, calls.arrays(np_))
        except Exception as error:
            return error


def _difference(got: Any, want: Any) -> str:
    if isinstance(want, Exception) or isinstance(got, Exception):
        return "" if type(got) is type(want) else f"{got!r} instead of {want!r}"[:300]
    if isinstance(want, (tuple, list)):
        if type(got) is not type(want) or len(got) != len(want):
            return f"{type(got).__name__} of {len(got)} instead of {type(want).__name__} of {len(want)}"
        return next((d for d in map(_difference, got, want) if d), "")
    if not isinstance(want, (np.ndarray, np.generic)):
        return "" if got == want else f"{got!r} instead of {want!r}"
    host = np.asarray(got)
    if host.dtype != want.dtype or host.shape != want.shape:
        return f"{host.dtype}{host.shape} instead of {want.dtype}{want.shape}"
    tolerance = 0.0 if want.dtype.kind not in "fc" else 2e-2 if want.dtype.itemsize <= 2 else 1e-5 if want.dtype.itemsize <= 4 else 1e-11
    close = np.allclose(host, want, tolerance, tolerance, equal_nan=True) if want.dtype.kind in "fc" else np.array_equal(host, want)
    return "" if close else f"{host!r} instead of {want!r}"[:300]


def expression(text: str) -> Found:
    """Audit an expression of `calls`."""
    code = compile(text, "<call>", "eval")
    return audit(lambda np_, names: eval(code, {**names, "np": np_}))


def public(of: Any) -> list[str]:
    """The public callables of a module that are no ufuncs."""
    return [n for n in sorted(dir(of)) if n[0] != "_" and callable(getattr(of, n)) and not isinstance(getattr(of, n), np.ufunc)]


def unaudited() -> list[str]:
    """Public names that the audit does not know."""
    left_out = {name for names in calls.NOT_ARRAYS.values() for name in names.split()}
    missing = [n for n in public(np) if n not in calls.FUNCTIONS and n not in left_out and not _is_class(getattr(np, n))]
    missing += [f"linalg.{n}" for n in public(np.linalg) if n not in calls.LINALG and n not in ("LinAlgError", "test")]
    missing += [f"fft.{n}" for n in public(np.fft) if n not in calls.FFT and n != "test"]
    return missing + [f"ndarray.{n}" for n in dir(np.ndarray) if n[0] != "_" and n not in calls.METHODS]


def _is_class(x: Any) -> bool:
    return isinstance(x, type)


# ------------------------------------------------------------------ ufuncs


def _operands(ufunc: np.ufunc, names: dict[str, Any], kind: str) -> list[Any]:
    if ufunc.signature is not None:
        return [names["x"], names["y"].T if ufunc is np.matmul else names["y"]] if ufunc is not np.matvec else [names["x"], names["y"][0]]
    chosen = {"f": ("x", "y"), "i": ("n", "n"), "b": ("b", "b")}[kind]
    if ufunc is np.ldexp:
        return [names["x"], names["n"]]
    return [names[c] for c in chosen[: ufunc.nin]]


def _kind(ufunc: np.ufunc) -> str:
    loops = "".join(t.split("->")[0] for t in ufunc.types)
    return "f" if "d" in loops else "i" if "l" in loops else "b"


def way(ufunc: np.ufunc, how: str) -> Callable[[Any, dict[str, Any]], Any]:
    """A call of a ufunc in one of WAYS."""
    kind = _kind(ufunc)

    def run(np_: Any, names: dict[str, Any]) -> Any:
        x = _operands(ufunc, names, kind)
        if how == "call":
            return ufunc(*x)
        if how == "dtype":
            return ufunc(*x, dtype=np.float32, casting="unsafe")
        if how in ("out", "where"):
            plain = ufunc(*_operands(ufunc, calls.arrays(np), kind))
            outs = [np_.zeros(np.shape(p), np.asarray(p).dtype) for p in (plain if type(plain) is tuple else (plain,))]
            rest = {"where": names["b"]} if how == "where" else {}
            ufunc(*x, out=tuple(outs), **rest)
            return outs
        if how == "outer":
            return ufunc.outer(x[0][0], x[1][1])
        if how == "at":
            changed = x[0].copy()
            ufunc.at(changed, (np_.array([0, 2, 0]), np_.array([1, 1, 1])), *([x[1][0, 0]] if ufunc.nin == 2 else []))
            return changed
        if how == "reduceat":
            return ufunc.reduceat(x[0], [0, 2, 1], axis=1)
        return getattr(ufunc, how)(x[0], axis=1)

    return run


# ------------------------------------------------------------------ the page


def tables() -> tuple[dict[str, dict[str, Found]], dict[str, dict[str, Found]]]:
    """The audit of every callable by module, and of every ufunc by way."""
    with recording():
        modules = {
            title: {name: expression(table[name]) for name in sorted(table)}
            for title, table in (
                ("numpy", calls.FUNCTIONS),
                ("numpy.linalg", calls.LINALG),
                ("numpy.fft", calls.FFT),
                ("numpy.ndarray", calls.METHODS),
            )
        }
        ufuncs = {name: {how: audit(way(u, how)) for how in WAYS} for name, u in UFUNCS.items()}
    return modules, ufuncs


_MARK = {RECORDED: "yes", RUN: "NumPy", "": "-"}


def page(modules: dict[str, dict[str, Found]], ufuncs: dict[str, dict[str, Found]]) -> str:
    """The page, from the audit."""
    lines = [
        "# What of NumPy is recorded",
        "",
        "Made by `python packages/lazy-numpy/judges/coverage.py`, which calls everything below once with NumPy's arrays and once with lazy",
        "ones, and compares. *Recorded* calls become part of compiled programs. What is left to NumPy has NumPy's value too, is counted as",
        "a fallback in `lazy_core.report()`, and names your line. In the default tier calls that do not repeat are NumPy's own anyway.",
        "",
    ]
    for title, table in modules.items():
        named = {s: [f"`{n}`" for n, f in table.items() if f.status == s] for s in (RECORDED, RUN)}
        lines += [f"## {title}", "", f"Recorded ({len(named[RECORDED])}): {', '.join(named[RECORDED])}.", ""]
        if named[RUN]:
            lines += [f"Left to NumPy ({len(named[RUN])}): {', '.join(named[RUN])}.", ""]
    lines += ["## Ufuncs", "", f"Of all {len(ufuncs)}: *yes* is recorded, *NumPy* is left to NumPy, - is what NumPy itself refuses.", ""]
    lines += ["| ufunc | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    lines += [f"| `{name}` | " + " | ".join(_MARK[row[how].status] for how in WAYS) + " |" for name, row in ufuncs.items()]
    lines += ["", "## Not here", ""]
    lines += [f"- {reason}: {', '.join(f'`{n}`' for n in sorted(names.split()))}" for reason, names in calls.NOT_ARRAYS.items()]
    return "\n".join([*lines, ""])


def differences(modules: dict[str, dict[str, Found]], ufuncs: dict[str, dict[str, Found]]) -> list[str]:
    """Every call whose value, dtype, shape or exception is not NumPy's."""
    return [
        f"{title}.{name}: {f.difference}"
        for title, table in (*modules.items(), *ufuncs.items())
        for name, f in table.items()
        if f.difference
    ]


def main() -> int:
    """Write the page, or check it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date instead of writing it")
    args = parser.parse_args()
    found = tables()
    wrong = [*differences(*found), *(f"{n} is not audited" for n in unaudited())]
    print("\n".join(wrong) or "every value is NumPy's")
    text = page(*found)
    if args.check:
        return int(bool(wrong) or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    os.environ.setdefault("LAZY_CACHE_DIR", "off")
    sys.exit(main())
