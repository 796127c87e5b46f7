"""Run a program as it is and write what the lazy system did: `python tools/observe.py REPORT.json (script.py | -m module) arguments...`.

OBSERVE_CORES binds it to so many cores before anything starts threads.  The program is not changed and need not know; the report is read
from `lazy_core` when the program ends, if it was ever imported.
"""

import importlib
import os
import runpy
import sys


def main() -> None:
    """Run the program, then write the report (an empty object when nothing lazy was imported)."""
    target, *command = sys.argv[1:]
    cores = int(os.environ.get("OBSERVE_CORES", "0"))
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
            runpy.run_path(command[0], run_name="__main__")
    finally:
        used = any(name in sys.modules for name in ("lazy_core", "lazy_torch"))
        core = importlib.import_module("lazy_core") if used else None
        with open(target, "w", encoding="utf-8") as file:
            file.write(core.report().to_json() if core else "{}")


if __name__ == "__main__":
    main()
