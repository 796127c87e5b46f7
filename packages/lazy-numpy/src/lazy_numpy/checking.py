"""`python -m lazy_numpy --check ...`: the program by NumPy and lazily, and the first line at which a value differs.

Owns: the two runs, each in a process of its own that notes after every line what the arrays named on it hold, and the comparison.  The lazy
run compiles everything; values are noted as promises and read many lines at a time, so that programs span lines as they do without the
check.  May import `__main__`, `proxy`, `convert` and lazy_core.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import operator
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

DIFFERS = 3
# So many visits of a line are noted, and after that each whose number is a power of two.
_VISITS = 20
# So many values are noted before they are read, or so many bytes.
_WAITING, _WAITING_BYTES = 100, 1 << 27
_SAMPLES = 64
_ONE_RUN = "import sys; from lazy_numpy.checking import run; sys.exit(run(*sys.argv[1:3], sys.argv[3:]))"
# By the size of a real number in bytes, what the two runs may differ by, in units of the largest number of the array.
_TOLERANCE = {2: 1e-2, 4: 1e-4, 8: 1e-9, 16: 1e-9}


class Note(NamedTuple):
    """What an array held after a line: in full if it is small, else some of its elements, and how many of them are no numbers."""

    path: str
    line: int
    visit: int
    name: str
    dtype: np.dtype
    dims: tuple[int, ...]
    elements: np.ndarray
    largest: float

    @property
    def visited(self) -> tuple[str, int, int]:
        """The line, and which time it had run."""
        return self.path, self.line, self.visit


# ------------------------------------------------------------------ one run


def names_by_line(source: str) -> dict[int, tuple[str, ...]]:
    """For each line of a program the names, `x` or `self.x`, in the statement that stands there, or in the head of a compound one."""
    found: dict[int, tuple[str, ...]] = {}
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or not isinstance(statement, ast.stmt):
            continue
        inner = [part for name in ("body", "orelse", "finalbody", "handlers") for part in getattr(statement, name, [])]
        last = min([part.lineno for part in inner], default=(statement.end_lineno or statement.lineno) + 1) - 1
        names: dict[str, None] = {}
        for node in ast.walk(statement):
            if getattr(node, "lineno", last) > max(last, statement.lineno):
                continue
            if isinstance(node, ast.Name):
                names[node.id] = None
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names[f"{node.value.id}.{node.attr}"] = None
        for line in range(statement.lineno, max(last, statement.lineno) + 1):
            found.setdefault(line, tuple(names))
    return found


class Observer:
    """Notes, for `sys.settrace`, what the arrays named on a line hold once it has run."""

    def __init__(self, file: BinaryIO, is_user_file: Callable[[str], bool], code: str | None) -> None:
        self._file = file
        self._code = code  # what `-c` was given
        self._is_user_file = is_user_file
        self._names: dict[str, dict[int, tuple[str, ...]]] = {}
        self._visits: Counter[tuple[str, int]] = Counter()
        self._waiting: list[tuple[tuple[str, int, int, str], Any]] = []
        self._bytes = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The tracing function of a new frame."""
        code = frame.f_code
        if code.co_name.startswith("<") and code.co_name != "<module>":
            return None
        path = code.co_filename
        if path == "<string>" and frame.f_globals is not vars(sys.modules["__main__"]):  # made by dataclasses and the like
            return None
        if path not in self._names:
            text = self._code if path == "<string>" else None
            if os.path.exists(path) and self._is_user_file(path):
                text = "".join(linecache.getlines(path))
            self._names[path] = names_by_line(text) if text else {}
        names = self._names[path]
        if not names:
            return None
        before = 0

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event in ("line", "return") and before:
                self._look(frame, path, before, names.get(before, ()))
            before = frame.f_lineno if event == "line" else 0
            return follow

        return follow

    def _look(self, frame: FrameType, path: str, line: int, names: tuple[str, ...]) -> None:
        self._visits[path, line] += 1
        visits = self._visits[path, line]
        if visits > _VISITS and visits & (visits - 1):
            return
        local = frame.f_locals
        for name in names:
            owner, _, attribute = name.partition(".")
            value = local.get(owner, frame.f_globals.get(owner))
            if attribute:
                value = getattr(value, "__dict__", {}).get(attribute)
            promise = _promise(value)
            if promise is not None:
                self._waiting.append(((path, line, visits, name), promise))
                self._bytes += promise.nbytes if isinstance(promise, (np.ndarray, np.generic)) else promise.shape.nbytes
        if len(self._waiting) > _WAITING or self._bytes > _WAITING_BYTES:
            self.write()

    def write(self) -> None:
        """Read what was noted, and write it down."""
        from lazy_core import values

        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for place, promise in waiting:
            array = np.asarray(values.to_host(promise) if isinstance(promise, values.Value) else promise)
            pickle.dump(_note(place, array), self._file)
        self._file.flush()


def _promise(value: Any) -> Any:
    """What an array, or a scalar of NumPy's, holds now: a value, or a copy; None for everything else."""
    from . import convert
    from .selection import selection

    if convert.is_lazy(value) and type(value) is not selection:
        return value._get()
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return np.array(value) if value.dtype.kind in "biufc" and value.dtype.itemsize <= 16 and value.dtype.char not in "gG" else None
    return None


def _note(place: tuple[str, int, int, str], array: np.ndarray) -> Note:
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        finite = np.abs(flat[np.isfinite(flat)]) if flat.dtype.kind in "fc" else flat[:0]
        largest = float(finite.max(initial=0.0))
    chosen = flat if flat.size <= _SAMPLES else flat[np.linspace(0, flat.size - 1, _SAMPLES).astype(int)]
    return Note(*place, array.dtype, array.shape, np.array(chosen), largest)


def run(side: str, path: str, arguments: list[str]) -> int:
    """Run the program on one side, "numpy" or "lazy", noting into a file; returns its exit status."""
    from . import __main__ as runner
    from . import proxy

    if side == "numpy":
        vars(proxy)["install"] = proxy.know
    np.random.seed(0)  # a program that seeds nothing draws the same numbers on both sides
    code = arguments[1] if arguments[:1] == ["-c"] and len(arguments) > 1 else None
    with open(path, "wb") as file:
        observer = Observer(file, proxy.is_user_file, code)
        program = runner._choose(arguments)
        sys.settrace(observer)
        try:
            return runner._guarded(program)
        finally:
            sys.settrace(None)
            observer.write()


# ------------------------------------------------------------------ both


def check(arguments: list[str]) -> int:
    """Run the program on both sides and print the first line that differs; returns the exit status, 3 if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        notes, statuses = {}, {}
        for side in ("numpy", "lazy"):
            notes[side] = os.path.join(folder, side)
            command = [sys.executable, "-c", _ONE_RUN, side, notes[side], *arguments]
            tier = {"LAZY_TIER": "compiled"} if side == "lazy" else {}
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if side == "numpy" else {}
            statuses[side] = subprocess.run(command, env={"PYTHONHASHSEED": "0", **os.environ, **tier}, check=False, **quiet).returncode
        verdict, same = compare(_read(notes["numpy"]), _read(notes["lazy"]))
    if same and statuses["numpy"] != statuses["lazy"]:
        verdict, same = f"NumPy's run ended with status {statuses['numpy']}, the lazy one with {statuses['lazy']}", False
    print(f"check: {verdict}", file=sys.stderr)
    return statuses["lazy"] if same else DIFFERS


def _read(path: str) -> Iterator[Note]:
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def compare(numpys: Iterator[Note], lazys: Iterator[Note]) -> tuple[str, bool]:
    """What is to be said of two runs, and whether they agree."""
    agreed, lines = 0, set[str]()
    last = "the beginning"
    ours, theirs = [itertools.groupby(notes, operator.attrgetter("visited")) for notes in (lazys, numpys)]
    for (want, wanted), (got, found) in itertools.zip_longest(theirs, ours, fillvalue=(None, ())):
        if want is None or got is None or want != got:
            ways = [f"{visited[0]}:{visited[1]}" if visited else "the end" for visited in (want, got)]
            return f"after {last} NumPy's run came to {ways[0]}, the lazy one to {ways[1]}", False
        path, line, _ = want
        last = f"{path}:{line}"
        pairs = list(itertools.zip_longest(wanted, found))
        # What cancels is as large as what it was computed from.
        largest = max([note.largest for note, _ in pairs if note is not None])
        for note, other in pairs:
            why = difference(note, other, largest) if note and other and note.name == other.name else "in one run it is no array"
            if why is not None:
                return f"{last}: `{(note or other).name}` differs: {why}\n    {linecache.getline(path, line).strip()}", False
        agreed += len(pairs)
        lines.add(last)
    return f"{agreed} values on {len(lines)} lines agree", True


def difference(want: Note, got: Note, largest: float) -> str | None:
    """How what an array holds differs, or None; `largest` is the largest number of the line."""
    if (want.dtype, want.dims) != (got.dtype, got.dims):
        return f"NumPy has {want.dtype} of shape {want.dims}, the lazy run {got.dtype} of shape {got.dims}"
    if want.dtype.kind in "fc":
        tolerance = _TOLERANCE[want.dtype.itemsize // (2 if want.dtype.kind == "c" else 1)]
        with np.errstate(all="ignore"):
            near = np.abs(got.elements - want.elements) <= tolerance * max(largest, float(np.finfo(want.dtype).smallest_subnormal))
        wrong = ~(near | (got.elements == want.elements) | (np.isnan(got.elements) & np.isnan(want.elements)))
    else:
        wrong = got.elements != want.elements
    if not wrong.any():
        return None
    k = int(np.argmax(wrong))
    return f"NumPy has {want.elements[k]}, the lazy run {got.elements[k]}, in {int(wrong.sum())} of {wrong.size} elements looked at"
