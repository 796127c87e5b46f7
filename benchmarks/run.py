"""Benchmarks side by side: lazy frontends, the libraries under them, and hand-written jax, in one table.

    python benchmarks/run.py [--scenario NAME ...] [--peer NAME ...] [--cores 0,1] [--quick] [--save]

Each peer runs each scenario in a process of its own. Results go to benchmarks/results/ as JSON; `--save` also renews
docs/benchmarks.md and its plot, from this run or, with `--from FILE`, from an earlier one's results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from side_by_side import page, plot, runner, table
from side_by_side.peers import PEERS
from side_by_side.scenarios import SCENARIOS

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="Targets and meaning of each row: docs/benchmarks.md.")
    add = parser.add_argument
    add("--scenario", nargs="+", action="extend", choices=SCENARIOS, metavar="NAME", help=f"one or more of {', '.join(SCENARIOS)}")
    add("--peer", nargs="+", action="extend", choices=PEERS, metavar="NAME", help=f"one or more of {', '.join(PEERS)}")
    add("--cores", type=cores, default=(), metavar="0,1", help="bind every process to these cores (default: all there are)")
    add("--seconds", type=float, default=10.0, help="how long a measurement lasts (default: 10)")
    add("--rounds", type=int, default=2, help="how often everything is repeated; medians over rounds count (default: 2)")
    add("--patience", type=float, default=20.0, help="seconds that a process waits for a calm machine (default: 20; 0: do not look)")
    add("--cpu-time", action="store_true", help="count processor time, not the wall's: for one core of a machine that others use too")
    add("--quick", action="store_true", help="do as little as shows that everything works; the times mean nothing")
    add("--from", dest="source", type=Path, metavar="FILE", help="run nothing; show the results in FILE")
    add("--output", type=Path, metavar="FILE", help="where the results go (default: a file in benchmarks/results/ named by the time)")
    add("--save", action="store_true", help="keep the results as benchmarks/results/published.json; renew docs/benchmarks.md and the plot")
    return parser.parse_args(arguments)


def cores(text: str) -> tuple[int, ...]:
    """`0,1` -> (0, 1), if this process may run there."""
    try:
        wanted = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"cores are numbers separated by commas, not {text!r}") from None
    if missing := set(wanted) - os.sched_getaffinity(0):
        raise argparse.ArgumentTypeError(f"there is no core {min(missing)} here")
    return wanted


def measured(args: argparse.Namespace, output: Path) -> dict[str, Any]:
    """Run everything that was asked for; `output` always holds what there is so far."""
    quick = {"seconds": 0.0, "rounds": 1, "patience": 0.0} if args.quick else {}
    settings = runner.Settings(args.cores, args.seconds, args.rounds, args.patience, quick=args.quick, processor_time=args.cpu_time)
    settings = replace(settings, **quick)
    peers = args.peer or [peer.name for peer in PEERS.values() if not peer.optional]
    about = runner.machine(args.cores)
    print(f"{about['processor']}, {about['cores']} cores; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()), flush=True)
    data = {"machine": about, "settings": asdict(settings), "results": {}}
    for results in runner.run(args.scenario or list(SCENARIOS), peers, settings, lambda line: print(line, flush=True)):
        data["results"] = results
        output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write; the exit status is 1 if a peer failed or found something wrong."""
    args = parse(arguments)
    if args.source:
        data = json.loads(args.source.read_text(encoding="utf-8"))
    else:
        output = args.output or HERE / "results" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        data = measured(args, output)
        print(f"results: {output}")
    print(f"\n{table.text(data['results'])}")
    if args.save:
        (HERE / "results" / "published.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        drawn = plot.draw(data["results"], DOCS / "benchmarks.svg")
        (DOCS / "benchmarks.md").write_text(page.text(data, drawn), encoding="utf-8")
        print(f"\nrenewed {DOCS / 'benchmarks.md'}" + ("" if drawn else "; matplotlib is not installed, so the plot was left out"))
    return 1 if table.faults(data["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
