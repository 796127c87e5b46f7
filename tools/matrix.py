"""The conformance matrix as the page docs/conformance.md: `python tools/matrix.py` (needs every package installed; takes an hour).

Runs every cell: core operation or whole program x frontend x dtype x tier x placement of barriers. Each result is written to a file as soon
as it is there, so that a run that was stopped goes on where it was: `--results FOLDER`, `--frontends torch,numpy`, `--page` to write the
page from what is there already.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GAPS = tomllib.loads((ROOT / "tests" / "gaps.toml").read_text(encoding="utf-8"))
FRONTENDS = ("torch", "numpy", "tf")
FAILS = "fails"


class Result(NamedTuple):
    """What came of one cell: "agrees", "gap", "refused" by the library itself, or "fails"."""

    name: str
    dtype: str
    tier: str
    placement: str
    kind: str
    reason: str


# ------------------------------------------------------------------ running


def run(name: str, file: Path, dtypes: list[str] | None) -> None:
    """Run what a file of results lacks of a frontend's cells, of some dtypes or of all."""
    from lazy_core import frontend
    from lazy_core.testing import PLACEMENTS, TIERS, iter_cases, iter_programs, judge

    found = frontend.load(name)
    known = {result[:4] for result in read(file)}
    # Samples that are read one by one are the same programs with both placements: those next to each other.
    placements = sorted(PLACEMENTS)
    cells = [*iter_programs(found, dtypes, TIERS, placements), *iter_cases(found, dtypes, TIERS, placements)]
    with file.open("a", encoding="utf-8") as out:
        for cell in cells:
            key = (cell[0], cell.dtype.name, *cell[2:])
            if key in known:
                continue
            try:
                verdict = tuple(judge(found, cell, GAPS.get(name, {})))
            except Exception as error:
                verdict = (FAILS, f"{type(error).__name__}: {error}")
            if verdict[0] == FAILS:
                print(name, *key, verdict[1], flush=True)
            out.write(json.dumps([*key, *verdict]) + "\n")
            out.flush()


def read(file: Path) -> list[Result]:
    """The results in a file; the last of a cell counts."""
    if not file.exists():
        return []
    results = [Result(*json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    return list({result[:4]: result for result in results}.values())


def shown(results: list[Result], dtypes: str | None) -> list[Result]:
    """The results for the page: whole programs, and operations of the dtypes that were chosen."""
    from lazy_core import whole

    return [r for r in results if dtypes is None or r.dtype in dtypes.split(",") or r.name in whole.PROGRAMS]


# ------------------------------------------------------------------ the page


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """A table in Markdown."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * lines[0].count(" | ") + "---|", *lines[1:], ""]


def counts(results: dict[str, list[Result]]) -> list[str]:
    """How many cells agree, by frontend, tier and placement."""
    conditions = list(dict.fromkeys((r.tier, r.placement) for rs in results.values() for r in rs))
    rows = []
    for name, found in results.items():
        for tier, placement in conditions:
            kinds = Counter(r.kind for r in found if (r.tier, r.placement) == (tier, placement))
            rows.append((name, tier, placement, f"{kinds.total():,}", *(f"{kinds[k]:,}" for k in ("agrees", "gap", "refused", FAILS))))
    return table(("frontend", "tier", "barriers", "cells", "agree", "gaps", "not in the library", "fail"), rows)


def programs(results: dict[str, list[Result]], names: Iterable[str]) -> list[str]:
    """Whole programs by frontend."""
    rows = []
    for name in names:
        cells = {f: Counter(r.kind for r in found if r.name == name) for f, found in results.items()}
        rows.append((f"`{name}`", *(f"{kinds['agrees']} of {kinds.total()}" for kinds in cells.values())))
    return table(("program", *results), rows)


def operation(found: list[Result]) -> str:
    """One operation of one frontend: the dtypes, and what does not agree."""
    dtypes: dict[str, set[str]] = defaultdict(set)
    for r in found:
        dtypes[r.dtype].add(r.kind)
    agree = [d for d, kinds in dtypes.items() if kinds <= {"agrees"}]
    said = {kind: [d for d, kinds in dtypes.items() if kind in kinds] for kind in ("gap", "refused", FAILS)}
    if len(said["gap"]) == len(dtypes):
        return "gap"
    words = {"gap": "gap", "refused": "not in the library", FAILS: "fails"}
    return "; ".join([str(len(agree)), *(f"{words[k]}: {', '.join(ds)}" for k, ds in said.items() if ds)])


def operations(results: dict[str, list[Result]], programs_: Iterable[str]) -> list[str]:
    """Every operation by frontend."""
    by_op: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for name, found in results.items():
        for r in found:
            if r.name not in programs_:
                by_op[r.name][name].append(r)
    return table(("operation", *results), [(f"`{op}`", *(operation(by[f]) for f in results)) for op, by in sorted(by_op.items())])


def gaps(results: dict[str, list[Result]]) -> list[str]:
    """What is a gap, and why."""
    lines = []
    for name in results:
        declared = sorted(GAPS.get(name, {}).items())
        rows = [(f"`{op}`", ", ".join(gap.get("dtypes", ["all"])), gap["status"], gap["reason"]) for op, gap in declared]
        lines += [f"### {name}", "", *(table(("operation", "dtypes", "status", "reason"), rows) if rows else ["None.", ""])]
    return lines


def covered(results: dict[str, list[Result]], programs_: Iterable[str]) -> str:
    """Which dtypes the results are of."""
    parts = []
    for what, wanted in (("operations", False), ("whole programs", True)):
        dtypes = {name: {r.dtype for r in found if (r.name in programs_) == wanted} for name, found in results.items()}
        common = set.intersection(*dtypes.values())
        parts.append(f"{what} of {', '.join(sorted(common))}")
        parts += [f"{name} also {', '.join(sorted(ds - common))}" for name, ds in dtypes.items() if ds - common]
    return f"On this page: {'; '.join(parts)}. The command runs every dtype, which takes an hour, and `--dtypes` chooses."


def page(results: dict[str, list[Result]]) -> str:
    """The whole page."""
    from lazy_core import whole

    explained = [(f"`{name}`", program.text) for name, program in whole.PROGRAMS.items()]
    failing = [
        f"- {frontend} `{r.name}` {r.dtype}, {r.tier}, {r.placement}: {r.reason}"
        for frontend, found in results.items()
        for r in found
        if r.kind == FAILS
    ]
    return "\n".join(
        [
            "# Conformance",
            "",
            "Made by `python tools/matrix.py` from the whole matrix. `python -m nox -s conformance` runs the same cells as tests,",
            "every plain run of the tests a sample. The kit is `lazy_core.testing`, also for [anybody's frontend](add-a-frontend.md).",
            "",
            "A cell is an operation of the core (or a whole program) in a frontend, a dtype, a tier and a placement of barriers. It agrees",
            "when the frontend gives on its lazy tensors what the library gives on its own, for every sample of the operation: the same",
            "dtypes and shapes, values within the operation's declared tolerance, and compiled without a fallback. Barriers stand",
            "",
            "- **end**: only where the results are read, after everything was recorded;",
            "- **each**: after each recorded operation;",
            "- **middle**: where each sample's result is read before the next one is recorded; a whole program reads halfway through.",
            "",
            "## How many agree",
            "",
            covered(results, whole.PROGRAMS),
            "",
            *counts(results),
            *(["These fail:", "", *failing, ""] if failing else []),
            "## Whole programs",
            "",
            "Each is written once per library, in that library's own words; the libraries' own results are compared with each other, too.",
            "Cells are float32 and float64, 2 tiers and 3 placements of barriers.",
            "",
            *programs(results, whole.PROGRAMS),
            *table(("program", "inputs, results, and what it does"), explained),
            "## Operations",
            "",
            "The number of dtypes that agree in every tier and with every placement; dtypes of which the library itself refuses the",
            "operation's samples; and gaps, whose reasons follow.",
            "",
            *operations(results, whole.PROGRAMS),
            "## Gaps and their reasons",
            "",
            "From `tests/gaps.toml`: `notimpl` is ours to do, `notyet` the library's or XLA's, `never` would be wrong. A gap that works",
            "fails the tests, so that the list stays true. What has a call runs natively even where it is a gap of compiled programs.",
            "",
            *gaps(results),
        ]
    )


def main() -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frontends", default=",".join(FRONTENDS), help="comma separated")
    parser.add_argument("--dtypes", help="comma separated; default: all")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "_build" / "matrix", help="the folder of results; kept")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    os.environ.update(LAZY_TIER="compiled", LAZY_CACHE_DIR="off")
    options.results.mkdir(parents=True, exist_ok=True)
    chosen = options.frontends.split(",")
    if not options.page:
        for name in chosen:
            run(name, options.results / f"{name}.jsonl", options.dtypes and options.dtypes.split(","))
    files = {name: options.results / f"{name}.jsonl" for name in FRONTENDS}
    results = {name: shown(read(file), options.dtypes) for name, file in files.items() if file.exists()}
    text = page(results)
    (ROOT / "docs" / "conformance.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    return int(any(r.kind == FAILS for found in results.values() for r in found))


if __name__ == "__main__":
    sys.exit(main())
