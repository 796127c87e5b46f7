"""The `lazy` command.

Owns: argument parsing and what is printed.  Imports frontends only through their entry points.

    lazy doctor                                  versions, devices, the disk cache, settings, installed frontends, what is missing
    lazy run [--frontend numpy] script.py ...    run a script with a frontend enabled and print the report
    lazy run --shadow script.py ...              the same; what compiled programs compute is computed natively too, and compared
    lazy run bug.lzt                             replay a capsule (lazy_core.capture), natively and compiled
    lazy report FILE [--html PAGE]               show a report that a program wrote (LAZY_REPORT=FILE python program.py)
    lazy graph FILE [NUMBER]                     show a graph of such a report or of a capsule, as text, StableHLO, Graphviz or HTML
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import sys
from collections.abc import Sequence
from dataclasses import fields

from . import __version__, backend, dump, frontend, page, replays
from .barrier import barrier
from .config import Config, config
from .disk import disk
from .errors import LazyError
from .report import Report, report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lazy", description="Inspect and run lazy tensor programs.")
    parser.add_argument("--version", action="version", version=f"lazytensor-core {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="versions, devices, the disk cache, settings, frontends and what is missing")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    run = commands.add_parser("run", help="run a script with a frontend enabled, then print the report; or replay a capsule (.lzt)")
    run.add_argument(
        "--frontend", help="an installed frontend that can run scripts (default: numpy); none for a script that chooses its device"
    )
    run.add_argument("--shadow", action="store_true", help="compute what compiled programs compute natively too, and compare")
    run.add_argument("--shadow-every", type=int, metavar="N", help="the same for every Nth run of each program")
    run.add_argument("--json", metavar="FILE", help="also write the report to this file as JSON")
    run.add_argument("script", help="the script to run, or the capsule to replay")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    shown = commands.add_parser("report", help="show a report that a program wrote: LAZY_REPORT=FILE python program.py")
    shown.add_argument("file", help="the JSON report")
    shown.add_argument("--html", metavar="PAGE", help="write it as one self-contained HTML page instead")
    drawn = commands.add_parser("graph", help="show a compiled graph of a report, or a graph of a capsule")
    drawn.add_argument("file", help="the JSON report, or the capsule (.lzt)")
    drawn.add_argument("number", type=int, nargs="?", help="which graph (default: the latest)")
    drawn.add_argument("--format", choices=("text", "stablehlo", "dot", "html"), default="text")
    args = parser.parse_args(argv)
    if args.command == "doctor":
        return _doctor(args.json)
    file = args.script if args.command == "run" else args.file
    if args.command == "run" and not file.endswith(replays.SUFFIX):
        if not os.path.exists(file):
            print(f"lazy: there is no script {file}", file=sys.stderr)
            return 2
        return _run(args)  # what the script raises is the script's, with its traceback
    try:
        if args.command == "run":
            return replays.run(file)
        if args.command == "graph" and file.endswith(replays.SUFFIX):
            return replays.graph(file, args.number, args.format)
        with open(file, encoding="utf-8") as opened:
            read = Report.from_json(opened.read())
        return _report(read, args.html) if args.command == "report" else _graph(read, args.number, args.format)
    except (OSError, ValueError) as error:
        print(f"lazy: {error}" if file in str(error) else f"lazy: {file}: {error}", file=sys.stderr)
        return 2


def _report(read: Report, target: str | None) -> int:
    if target is None:
        read.show()
    else:
        with open(target, "w", encoding="utf-8") as file:
            file.write(read.to_html())
    return 0


def _graph(read: Report, number: int | None, form: str) -> int:
    if not read.graphs:
        raise ValueError("the report holds no compiled graph")
    chosen = max(read.graphs) if number is None else number
    if chosen not in read.graphs:
        raise ValueError(f"there is no graph {chosen}; there are {', '.join(map(str, read.graphs))}")
    text, stablehlo = read.graphs[chosen]
    if form == "html":
        print(page.render_graph(chosen, text, stablehlo))
    else:
        print(stablehlo if form == "stablehlo" else dump.dot(text) if form == "dot" else text)
    return 0


def _doctor(as_json: bool) -> int:
    facts: dict[str, object] = {"lazytensor-core": __version__, "python": platform.python_version(), **backend.versions()}
    facts["devices"] = backend.topology()
    facts["disk cache"] = disk.describe()
    defaults = Config()
    changed = {f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != getattr(defaults, f.name)}
    facts["settings"] = ", ".join(f"{name}={value}" for name, value in changed.items()) or "the defaults"
    problems = 0
    for name in frontend.names():
        try:
            facts[f"frontend {name}"] = f"ok ({frontend.load(name).library})"
        except LazyError as error:
            problems += 1
            facts[f"frontend {name}"] = f"missing: {error}"
    if as_json:
        print(json.dumps(facts))
    else:
        for key, value in facts.items():
            print(f"{key:<20} {value}")
        if not frontend.names():
            print("no frontend is installed: pip install lazy-torch, lazy-numpy or lazy-tf")
    return 1 if problems else 0


def _run(args: argparse.Namespace) -> int:
    name = args.frontend or ("numpy" if "numpy" in frontend.names() else "none")
    try:
        chosen = frontend.load(name) if name != "none" else None
    except LazyError as error:
        print(f"lazy: {error}", file=sys.stderr)
        return 2
    runner = getattr(chosen, "run_script", _run_plainly)
    if args.shadow or args.shadow_every:
        config.set("shadow", args.shadow_every or 1)
        if "LAZY_TIER" not in os.environ:  # what never compiles would never be compared
            config.set("tier", "compiled")
            os.environ["LAZY_TIER"] = "compiled"  # a frontend that the script imports asks there
    try:
        status = int(runner(args.script, args.arguments) or 0)
        barrier()
    finally:
        report().show(sys.stderr)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as opened:
                opened.write(report().to_json())
    differences = int(report().counters["shadow_differences"])
    return status or (3 if differences else 0)


def _run_plainly(script: str, arguments: Sequence[str]) -> int:
    """Run a script that chooses its device itself."""
    before, sys.argv = sys.argv, [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as exit:
        if exit.code is not None and not isinstance(exit.code, int):
            print(exit.code, file=sys.stderr)
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    finally:
        sys.argv = before
    return 0


if __name__ == "__main__":
    sys.exit(main())
