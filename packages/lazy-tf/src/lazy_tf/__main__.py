"""`python -m lazy_tf build [--into DIR]` builds the extension, `coverage` prints what is covered; without arguments: what is there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import native


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lazy_tf", description="The native extension of lazy_tf, which makes recording cheaper."
    )
    commands = parser.add_subparsers(dest="command")
    making = commands.add_parser("build", help="build the extension for the TensorFlow that is installed")
    making.add_argument("--into", type=Path, default=None, help="the folder to build in (default: the user's cache folder)")
    commands.add_parser("coverage", help="print the page of covered operations")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "build":
            print(native.build(chosen.into) if chosen.into else native.find() or native.build())
        elif chosen.command == "coverage":
            from . import coverage

            print(coverage.page(), end="")
        else:
            print(f"binary: {native.find() or 'none for this TensorFlow; run: python -m lazy_tf build'}")
    except native.BuildError as problem:
        print(f"lazy_tf: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
