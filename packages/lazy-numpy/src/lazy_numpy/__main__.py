"""`python -m lazy_numpy [-m module | -c code | script.py | -] [arguments]`: run a NumPy program lazily.

Owns: what Python itself does for a script: `sys.argv`, `sys.path`, `__main__`, exit codes and tracebacks that begin in the user's file.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

USAGE = """usage: python -m lazy_numpy [--report | --check] [-m module | -c code | script.py | -] [arguments]

Run a NumPy program; its own modules (the script and what lies in its folder) see a lazy NumPy, libraries see the real one.

  script.py    run this file; - reads the program from standard input
  -m module    run a module as a program
  -c code      run this code
  --report     print what was recorded, compiled and left to NumPy, to standard error, at the end
  --check      run it by NumPy and lazily, and print the first line at which a value differs, to standard error; exit with 3 then
  --build-extension [--into FOLDER]
               build the extension that makes calls which are not recorded cheaper, and print where it is
  --help       print this

Without a program it is an interactive prompt.
"""


def main(arguments: list[str]) -> int:
    """Run; returns the exit status."""
    report = False
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option in ("--help", "--version"):
            from . import __version__

            print(USAGE if option == "--help" else f"lazy-numpy {__version__}", end="" if option == "--help" else "\n")
            return 0
        if option == "--build-extension":
            return _build(arguments)
        if option == "--check" and arguments:
            from .checking import check

            return check(arguments)
        if option != "--report":
            print(f"unknown option {option}\n\n{USAGE}", file=sys.stderr, end="")
            return 2
        report = True
    if arguments and arguments[0] == "-h":
        print(USAGE, end="")
        return 0
    try:
        return _guarded(_choose(arguments))
    finally:
        if report:
            import lazy_core

            print(lazy_core.report(), file=sys.stderr)


def _build(arguments: list[str]) -> int:
    from . import extension

    into = Path(arguments[1]) if len(arguments) == 2 and arguments[0] == "--into" else None
    if arguments and into is None:
        print(f"--build-extension takes --into FOLDER only\n\n{USAGE}", file=sys.stderr, end="")
        return 2
    try:
        print(extension.build(into) if into else extension.find() or extension.build())
    except extension.BuildError as problem:
        print(f"lazy_numpy: {problem}", file=sys.stderr)
        return 1
    return 0


def _choose(arguments: list[str]) -> Callable[[], None]:
    if not arguments:
        return _prompt if sys.stdin.isatty() else lambda: _stdin([""])
    first, rest = arguments[0], arguments[1:]
    if first in ("-m", "-c"):
        if not rest:
            print(f"Argument expected for the {first} option\n\n{USAGE}", file=sys.stderr, end="")
            raise SystemExit(2)
        return (lambda: _module(rest[0], rest[1:])) if first == "-m" else (lambda: _code(rest[0], rest[1:]))
    if first == "-":
        return lambda: _stdin(arguments)
    if first.startswith("-"):
        print(f"unknown option {first}\n\n{USAGE}", file=sys.stderr, end="")
        raise SystemExit(2)
    return lambda: _script(first, rest)


def _fresh_main(**names: Any) -> dict[str, Any]:
    """A new `__main__` module; returns its namespace."""
    made = types.ModuleType("__main__")
    made.__dict__.update({"__builtins__": __builtins__, **names})
    sys.modules["__main__"] = made
    return made.__dict__


def _script(path: str, rest: list[str]) -> None:
    from . import proxy

    sys.argv[:] = [path, *rest]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0] = path
        proxy.install(path)
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    folder = os.path.dirname(os.path.abspath(path))
    sys.path[0] = folder
    proxy.install(folder)
    namespace = _fresh_main(__file__=path, __cached__=None)
    exec(compile(source, path, "exec"), namespace)


def _module(name: str, rest: list[str]) -> None:
    import importlib.util

    from . import proxy

    sys.argv[:] = ["-m", *rest]
    sys.path[0] = os.getcwd()
    top = importlib.util.find_spec(name.partition(".")[0])
    folder = None
    if top is not None:
        places = list(top.submodule_search_locations or ())
        folder = places[0] if places else os.path.dirname(top.origin or "") or None
    proxy.install(folder)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _code(code: str, rest: list[str]) -> None:
    from . import proxy

    sys.argv[:] = ["-c", *rest]
    sys.path[0] = ""
    proxy.install(os.getcwd())
    exec(compile(code, "<string>", "exec"), _fresh_main())


def _stdin(arguments: list[str]) -> None:
    from . import proxy

    sys.argv[:] = arguments
    sys.path[0] = ""
    proxy.install(os.getcwd())
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), _fresh_main())


def _prompt() -> None:
    import code

    from . import __version__, proxy

    sys.argv[:] = [""]
    sys.path[0] = ""
    proxy.install(os.getcwd())
    code.interact(
        f"Python {sys.version.split()[0]}, lazy-numpy {__version__}: `import numpy as np` is lazy here", local=_fresh_main(), exitmsg=""
    )


def _guarded(run: Callable[[], None]) -> int:
    """Run a program; an exception is printed from the user's first frame on, as Python would."""
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        ours = (__file__, runpy.__file__, "<frozen runpy>")
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
