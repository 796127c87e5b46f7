"""One scenario of one peer, in this process: `python -m side_by_side.child '{"scenario": ..., "peer": ...}'`.

Prints JSON lines to standard output: what is found, and at the end how calm the machine was.  A line `{"turn": true}` asks for the
next turn, which begins when a line comes from standard input, or when that is closed.  Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from . import measure
from .peers import PEERS
from .scenarios import SCENARIOS, Run


def _own_stdout() -> TextIO:
    """A stream to the real standard output, which from now on nobody else writes to."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def _own_stdin() -> TextIO:
    """A stream from the real standard input; everybody else finds an empty one."""
    kept = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return os.fdopen(kept, encoding="utf-8")


def main() -> None:
    """Run what the argument says."""
    request: dict[str, Any] = json.loads(sys.argv[1])
    out, turns = _own_stdout(), _own_stdin()

    def say(**found: Any) -> None:
        print(json.dumps(found), file=out, flush=True)

    def turn() -> None:
        say(turn=True)
        turns.readline()

    measure.bind(request["cores"])
    clock = measure.Clock(request["patience"], turn)
    if request["processor_time"]:
        measure.count_processor_time()
    run = Run(PEERS[request["peer"]], request["launched"], clock, request["seconds"], request["quick"], request["processor_time"])
    say(**SCENARIOS[request["scenario"]].run(run))
    others = 0.0 if request["processor_time"] else max(clock.others, default=0.0)
    say(other_cores=others, process_peak=measure.peak_mebibytes(), **run.lazy_report())


if __name__ == "__main__":
    main()
