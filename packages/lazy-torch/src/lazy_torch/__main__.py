"""`python -m lazy_torch` says what is there; `... build [--into DIR]` builds the extension, `... coverage` prints what is recorded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import autoload, build


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lazy_torch", description="The native extension of lazy_torch.")
    commands = parser.add_subparsers(dest="command")
    making = commands.add_parser("build", help="build the extension for the torch that is installed")
    making.add_argument("--into", type=Path, default=None, help="the folder to build in (default: the user's cache folder)")
    commands.add_parser("coverage", help="print docs/torch-coverage.md: which of torch's operations are recorded")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "build":
            print(build.build(chosen.into) if chosen.into else build.find() or build.build())
        elif chosen.command == "coverage":
            autoload.activate()
            from . import coverage

            print(coverage.page(), end="")
        else:
            print(f"binary: {build.find() or 'none for this torch; run: python -m lazy_torch build'}")
            if (other := autoload.other_accelerator()) is not None:
                print(
                    f"`import torch` does not register the device, because torch cannot compute gradients on {other} beside it; "
                    "`import lazy_torch` does"
                )
            if autoload.error is not None:
                print(f"autoload failed: {autoload.error!r}")
    except build.BuildError as problem:
        print(f"lazy_torch: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
