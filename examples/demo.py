"""Run every example twice, natively and lazily, and print what happened in one table: `python examples/demo.py [--only NAME ...]`.

The examples are ordinary programs of their library; each run is a process of its own. Both runs of a program are bound to
the same core, so that the step times compare one thread with one thread (`--cores N` for more). The first two steps are
left out of the times: natively they warm caches, lazily they compile.

By default everything is compiled before it first runs (`--tier compiled`), so that the table shows the recorder and the
compiler. `--tier auto` is what a user's program gets: natively at first, compiled in the background what repeats, whatever
measures faster.

The exit status is 1 if a program fails, if its numbers differ by more than its tolerance, or if, in the compiled tier, it
compiled anything in a step after its second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OBSERVE = HERE.parent / "tools" / "observe.py"


@dataclass(frozen=True)
class Program:
    """An example and how far its lazy numbers may be from the native ones.

    Attributes:
        script: the file's name in this folder.
        frontend: "torch", "numpy" or "tf".
        curve_tolerance: the greatest difference of two curves at any step, relative to max(1, |native|).
        value_tolerance: the greatest difference of the two results, relative to max(1, |native|).
        why: where the tolerances come from.
    """

    script: str
    frontend: str
    curve_tolerance: float
    value_tolerance: float
    why: str

    @property
    def name(self) -> str:
        """The script's name without its suffix."""
        return self.script.removesuffix(".py")

    def command(self, lazy: bool) -> list[str]:
        """What to run, without the interpreter."""
        script = str(HERE / self.script)
        if self.frontend == "numpy":
            return ["-m", "lazy_numpy", script, "--json"] if lazy else [script, "--json"]
        return [script, "lazy" if lazy else "cpu", "--json"]


_TRAINING = "float32 sums in another order, grown by training; one image in 297 may change its class"
_FLOAT64 = "float64 sums in another order"
PROGRAMS = (
    Program("torch_mlp.py", "torch", 1e-4, 0.0034, _TRAINING),
    Program("torch_cnn.py", "torch", 1e-4, 0.0034, _TRAINING),
    Program("numpy_kmeans.py", "numpy", 1e-9, 1e-9, _FLOAT64),
    Program("numpy_pca.py", "numpy", 1e-9, 1e-9, _FLOAT64),
    Program("numpy_heat.py", "numpy", 1e-9, 1e-9, _FLOAT64),
    Program("numpy_black_scholes.py", "numpy", 1e-9, 1e-9, _FLOAT64),
    Program("tf_tape.py", "tf", 1e-4, 0.0034, _TRAINING),
    Program("tf_keras_fit.py", "tf", 1e-4, 0.0034, _TRAINING),
)


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        result: what `value` is, in words.
        value: the program's result.
        curve: one number a step.
        step_ends: when each step ended, in seconds of `time.time`.
        report: the lazy system's report, empty for a native run.
        step_begins: when each step began; by default when the one before it ended. A program whose library works between
            steps, as Keras does at an epoch's end, says so.
    """

    result: str
    value: float
    curve: list[float]
    step_ends: list[float]
    report: dict[str, Any]
    step_begins: list[float] = field(default_factory=list)

    @property
    def late_steps(self) -> list[tuple[float, float]]:
        """When each step after the second began and ended."""
        begins = self.step_begins[2:] or self.step_ends[1:-1]
        return list(zip(begins, self.step_ends[2:], strict=True))

    @property
    def step_seconds(self) -> float:
        """The median time of a step after the second."""
        return statistics.median(end - begin for begin, end in self.late_steps)

    @property
    def late_compiles(self) -> list[dict[str, Any]]:
        """The compile events of steps after the second."""
        compiles = [e for e in self.report.get("events", []) if e["kind"] == "compile"]
        return [e for e in compiles if any(begin < e["when"] <= end for begin, end in self.late_steps)]


class ProgramError(Exception):
    """A program ended with an error; the message holds the end of what it printed."""


def run(program: Program, lazy: bool, cores: int = 1, timeout_seconds: float = 600, tier: str = "compiled") -> Run:
    """Run a program in a process of its own.

    Raises:
        ProgramError: it failed, printed no result, or took too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, str(OBSERVE), str(report), *program.command(lazy)]
        # A cache on disk of its own, empty: programs of an earlier run would hide this one's compiles.
        settings = {
            "LAZY_CACHE_DIR": str(Path(folder, "cache")),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OBSERVE_CORES": str(cores),
            "LAZY_TIER": tier,
        }
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise ProgramError(f"{program.name} took longer than {timeout_seconds:.0f} s") from error
        lines = done.stdout.strip().splitlines()
        if done.returncode != 0 or not lines or not lines[-1].startswith("{"):
            kind = "lazy" if lazy else "native"
            raise ProgramError(f"{program.name} ({kind}) ended with status {done.returncode}:\n{_essence(done.stdout + done.stderr)}")
        return Run(**json.loads(lines[-1]), report=json.loads(report.read_text()))


def _essence(printed: str) -> str:
    """The end of what a program printed; of a traceback, from its last frame on, and not all of a very long message."""
    lines = printed.strip().splitlines()
    frames = [k for k, line in enumerate(lines) if line.startswith("  File ")]
    start = frames[-1] if frames else max(0, len(lines) - 15)
    return "\n".join(lines[start : start + 15])


def curve_difference(native: Run, lazy: Run) -> float:
    """The greatest difference of two curves, relative to max(1, |native|); infinite if they differ in length."""
    if len(native.curve) != len(lazy.curve):
        return float("inf")
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(native.curve, lazy.curve, strict=True))


def value_difference(native: Run, lazy: Run) -> float:
    """The difference of two results, relative to max(1, |native|)."""
    return abs(native.value - lazy.value) / max(1.0, abs(native.value))


def faults(program: Program, native: Run, lazy: Run, tier: str = "compiled") -> list[str]:
    """What is wrong with a lazy run, in words; nothing if all is well."""
    found = []
    if (difference := curve_difference(native, lazy)) > program.curve_tolerance:
        found.append(f"the curves differ by {difference:.2e}, more than {program.curve_tolerance:.0e}")
    if (difference := value_difference(native, lazy)) > program.value_tolerance:
        found.append(f"the results differ by {difference:.2e}, more than {program.value_tolerance:.0e}")
    if not lazy.report.get("counters", {}).get("recorded"):
        found.append("nothing was recorded: the run was not lazy")
    if tier == "compiled":
        found += [f"compiled in a step after the second: {e['cause']} at {e['site']}" for e in lazy.late_compiles]
    return found


COLUMNS = (
    "program",
    "result",
    "lazy",
    "native",
    "curve diff",
    "steps",
    "recorded",
    "compiles",
    "after 2nd",
    "hits",
    "fallbacks",
    "lazy ms",
    "eager ms",
)


def row(program: Program, native: Run, lazy: Run) -> tuple[str, ...]:
    """A row of the table."""
    counters = lazy.report["counters"] if lazy.report else {}
    return (
        program.name,
        lazy.result,
        f"{lazy.value:.6g}",
        f"{native.value:.6g}",
        f"{curve_difference(native, lazy):.1e}",
        str(len(lazy.curve)),
        *(str(counters.get(name, 0)) for name in ("recorded", "compiles")),
        str(len(lazy.late_compiles)),
        *(str(counters.get(name, 0)) for name in ("cache_hits", "fallbacks")),
        f"{lazy.step_seconds * 1e3:.2f}",
        f"{native.step_seconds * 1e3:.2f}",
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows under their titles; words to the left, numbers to the right."""
    widths = [max(len(cells[k]) for cells in (COLUMNS, *rows)) for k in range(len(COLUMNS))]
    lines = []
    for cells in (COLUMNS, tuple("-" * w for w in widths), *rows):
        lines.append("  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True))).rstrip())
    return "\n".join(lines)


def main() -> int:
    """Run the programs and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[p.name for p in PROGRAMS], help="run these programs only")
    parser.add_argument("--cores", type=int, default=1, help="cores that each program may use (default: 1)")
    parser.add_argument(
        "--tier", choices=["compiled", "auto", "native"], default="compiled", help="how pending work runs (default: compiled)"
    )
    args = parser.parse_args()

    rows, problems, fallbacks = [], [], []
    for program in PROGRAMS:
        if args.only and program.name not in args.only:
            continue
        print(f"running {program.name} ...", file=sys.stderr, flush=True)
        try:
            native, lazy = run(program, False, args.cores), run(program, True, args.cores, tier=args.tier)
        except ProgramError as error:
            problems.append(str(error))
            continue
        rows.append(row(program, native, lazy))
        problems += [f"{program.name}: {fault}" for fault in faults(program, native, lazy, args.tier)]
        fallbacks += [f"{program.name}: {count} x {name}" for name, count in lazy.report.get("fallbacks", {}).items()]

    print(table(rows))
    print("\nhits: barriers that found their program in the cache. after 2nd: compiles in steps after the second.")
    print(f"ms: median of the steps after the second, {args.cores} core(s) for both. Times of a run on a busy machine say little.")
    if fallbacks:
        print("\nfallbacks, run by the native library and reported:\n  " + "\n  ".join(fallbacks))
    if problems:
        print("\nnot as it should be:\n" + "\n".join(f"* {p}" for p in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
