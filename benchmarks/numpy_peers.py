"""The programs of `numpy_programs.py` beside numexpr, numba and jax.numpy, to which they are ported by hand: cold and warm.

    python benchmarks/numpy_peers.py [--only jacobi_2d,lu] [--seconds 4] [--peers numpy,lazy,jax,numba,numexpr] [--json FILE] [--page]

NumPy and lazy-numpy run the program unchanged; the others run its port in `numpy_ports`.  Each program gets a new process for each peer.
*Cold* is its first run there, with the imports of the peer and whatever is compiled, but not the making of the inputs nor importing
NumPy; *warm* is the shortest time of the second half of the runs, which the peers make in turns.  A peer that is not installed, or has no
port of a program, leaves its place empty, and the page says why.  Results are compared with NumPy's.  `--page` writes
docs/numpy-benchmarks.md and its plot from the figures in results/numpy_peers.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from numpy_programs import Process, programs

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "numpy_peers.json"
PAGE = HERE.parent / "docs" / "numpy-benchmarks.md"
PEERS = ("numpy", "lazy", "jax", "numba", "numexpr")
TITLES = {"numpy": "NumPy", "lazy": "lazy-numpy", "jax": "jax.numpy", "numba": "numba", "numexpr": "numexpr"}


# ------------------------------------------------------------------ a worker: one program with one peer


def _runner(peer: str, name: str) -> Any:
    """A function that runs the program, its inputs made before; what it imports counts as cold."""
    import numpy

    plain = programs(numpy)[name]
    if peer == "numpy":
        return lambda: plain
    if peer == "lazy":

        def lazy() -> Any:
            from lazy_numpy.proxy import module

            return programs(module())[name]

        return lazy

    def port() -> Any:
        ports = importlib.import_module(f"numpy_ports.{peer}_ports")
        function = getattr(ports, name)
        inputs = inspect.getclosurevars(plain).nonlocals
        given = {p: ports.convert(inputs[p]) for p in inspect.signature(function).parameters}
        return lambda: function(**given)

    return port


def worker(peer: str, name: str) -> None:
    """Answer each line of standard input with the seconds of one run; the first line is where the first result goes."""
    import numpy

    make = _runner(peer, name)
    print("ready", flush=True)
    path = sys.stdin.readline().strip()
    begin = time.perf_counter()
    run = make()
    result = numpy.asarray(run(), copy=False)  # there, as it lies in memory
    print(time.perf_counter() - begin, flush=True)
    numpy.save(path, result)
    for _ in sys.stdin:
        begin = time.perf_counter()
        numpy.asarray(run(), copy=False)
        print(time.perf_counter() - begin, flush=True)


class Peer(Process):
    """A process that runs one program with one peer."""

    def __init__(self, peer: str, name: str, path: str) -> None:
        self.times: list[float] = []
        self.path = path
        environment = {**os.environ, "LAZY_CACHE_DIR": "off", "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        super().__init__([sys.executable, str(HERE / "numpy_peers.py"), "--worker", peer, name], environment)
        self.line()  # the inputs are made
        self.cold = self.ask(path)

    def run(self) -> float:
        """Run once more; returns the seconds."""
        self.times.append(self.ask(""))
        return self.times[-1]

    @property
    def warm(self) -> float:
        """The shortest time of the second half of the runs."""
        return min(self.times[len(self.times) // 2 :])


# ------------------------------------------------------------------ measuring


def missing(peer: str, name: str) -> str | None:
    """Why a peer has no figure for a program; None if it has one."""
    if peer in ("numpy", "lazy"):
        return None
    try:
        ports = importlib.import_module(f"numpy_ports.{peer}_ports")
    except ImportError as error:
        return f"not installed here, or not for this NumPy: {error}"
    reason: str | None = ports.WITHOUT.get(name)
    return reason


def measure(name: str, peers: list[str], seconds: float, folder: str) -> dict[str, Any]:
    """The times of every peer on one program, in seconds, and why some are missing."""
    import numpy

    row: dict[str, Any] = {"program": name, "cold": {}, "warm": {}, "missing": {}}
    running: dict[str, Peer] = {}
    with contextlib.ExitStack() as stack:
        for peer in peers:
            reason = missing(peer, name)
            if reason is not None:
                row["missing"][peer] = reason
                continue
            running[peer] = Peer(peer, name, os.path.join(folder, f"{name}-{peer}.npy"))
            stack.callback(running[peer].close)
        spent = 0.0
        while spent < seconds * len(running) or min(len(p.times) for p in running.values()) < 3:
            for p in running.values():  # a third of a second each, in turns: threads that another's runs left have come to rest by then
                begin = time.perf_counter()
                while time.perf_counter() - begin < 1 / 3:
                    p.run()
                spent += time.perf_counter() - begin
        want = numpy.load(running["numpy"].path)
        for peer, p in running.items():
            tolerance = 1e-6 if want.dtype != numpy.float32 else 1e-4
            if name not in ("lu", "cholesky"):  # what lies above the diagonal is left as it was, in different ways
                numpy.testing.assert_allclose(numpy.load(p.path), want, rtol=tolerance, atol=1e-6, err_msg=f"{name} with {peer}")
            row["cold"][peer], row["warm"][peer] = p.cold, p.warm
    return row


# ------------------------------------------------------------------ the page


def mean_ratio(rows: list[dict[str, Any]], kind: str, peer: str) -> float | None:
    """The geometric mean of NumPy's time / the peer's, over the programs that the peer has."""
    ratios = [r[kind]["numpy"] / r[kind][peer] for r in rows if peer in r[kind]]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def table(rows: list[dict[str, Any]], kind: str, peers: list[str]) -> list[str]:
    """A table of NumPy's milliseconds, and how many times as fast the others are."""
    others = [p for p in peers if p != "numpy"]
    lines = ["| program | NumPy ms | " + " | ".join(TITLES[p] for p in others) + " |", "|---|--:|" + "--:|" * len(others)]
    for r in rows:
        cells = [f"{r[kind]['numpy'] / r[kind][p]:.2f}" if p in r[kind] else "" for p in others]
        lines.append(f"| {r['program']} | {r[kind]['numpy'] * 1e3:.2f} | " + " | ".join(cells) + " |")
    means = [mean_ratio(rows, kind, p) for p in others]
    lines.append("| *geometric mean* | | " + " | ".join("" if m is None else f"*{m:.2f}*" for m in means) + " |")
    return lines


def plot(rows: list[dict[str, Any]], peers: list[str]) -> str:
    """A picture of the warm ratios: a row for each program, a mark for each peer, on a logarithmic scale."""
    colours = {"lazy": "#d62728", "jax": "#1f77b4", "numba": "#2ca02c", "numexpr": "#9467bd"}
    left, width, high, top = 150, 520, 22, 50
    low, most = 0.1, 100.0

    def at(ratio: float) -> float:
        return left + width * (math.log(min(max(ratio, low), most)) - math.log(low)) / (math.log(most) - math.log(low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{top + high * len(rows) + 30}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for k, peer in enumerate(p for p in peers if p in colours):
        parts.append(f'<circle cx="{left + 110 * k}" cy="16" r="5" fill="{colours[peer]}"/>')
        parts.append(f'<text x="{left + 110 * k + 10}" y="20">{TITLES[peer]}</text>')
    bottom = top + high * len(rows)
    for ratio in (0.1, 0.5, 1, 2, 5, 10, 50, 100):
        colour = "#000" if ratio == 1 else "#ddd"
        parts.append(f'<line x1="{at(ratio):.1f}" x2="{at(ratio):.1f}" y1="{top - 12}" y2="{bottom}" stroke="{colour}"/>')
        parts.append(f'<text x="{at(ratio):.1f}" y="{bottom + 18}" text-anchor="middle">{ratio:g}</text>')
    for k, r in enumerate(rows):
        y = top + high * k
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{r["program"]}</text>')
        for peer, colour in colours.items():
            if peer in r["warm"]:
                x = at(r["warm"]["numpy"] / r["warm"][peer])
                parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.8"/>')
    return "\n".join([*parts, "</svg>", ""])


def page(found: dict[str, Any]) -> str:
    """The page."""
    rows, peers = found["rows"], found["peers"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        for peer, reason in r["missing"].items():
            reasons.setdefault((peer, reason), []).append(r["program"])
    lines = [
        "# NumPy programs beside other libraries",
        "",
        "Made by `python benchmarks/numpy_peers.py --page` from what `python -m nox -s numpy-peers` measured. NumPy and lazy-numpy run",
        "the same program, unchanged; for the others it was ported by hand (`benchmarks/numpy_ports`), as their users write it:",
        "jax.numpy compiles the whole of it, numba runs explicit loops, numexpr the elementwise expressions.",
        "",
        f"Measured on {found['machine']}.{found.get('remark', '')}",
        "",
        "![How many times as fast as NumPy, warm](numpy-benchmarks.svg)",
        "",
        "## Warm",
        "",
        "NumPy's time for a run, and how many times as fast the others are (below 1: slower), after the first half of the runs:",
        "",
        *table(rows, "warm", peers),
        "",
        "## Cold",
        "",
        "The first run in a new process, with importing the library and compiling (NumPy itself is imported, the inputs are made):",
        "",
        *table(rows, "cold", peers),
        "",
        "## What is missing",
        "",
        *[f"- {TITLES[peer]}, {', '.join(names)}: {reason}." for (peer, reason), names in reasons.items()],
        "",
    ]
    return "\n".join(lines)


def write(found: dict[str, Any]) -> None:
    """Write the page and its plot."""
    PAGE.write_text(page(found), encoding="utf-8")
    PAGE.with_suffix(".svg").write_text(plot(found["rows"], found["peers"]), encoding="utf-8")


def machine() -> str:
    """What was measured on, with versions."""
    from importlib.metadata import PackageNotFoundError, version

    versions = []
    for name in ("numpy", "jax", "numba", "numexpr"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return f"{len(os.sched_getaffinity(0))} cores of {platform.machine()}, Python {platform.python_version()}, {', '.join(versions)}"


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="NumPy programs beside ports of them to other libraries")
    parser.add_argument("--only", default="", help="names of programs, with commas between them")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers; NumPy is always among them")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each peer runs each program")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the figures that are kept")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(*args.worker)
        return
    if args.page:
        write(json.loads(RESULTS.read_text(encoding="utf-8")))
        return
    import numpy

    peers = ["numpy", *[p for p in args.peers.split(",") if p and p != "numpy"]]
    names = [n for n in args.only.split(",") if n] or list(programs(numpy))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            row = measure(name, peers, args.seconds, folder)
            rows.append(row)
            shown = [f"{p} {row['warm']['numpy'] / row['warm'][p]:.2f}" for p in row["warm"]]
            print(f"{name}: numpy {row['warm']['numpy'] * 1e3:.2f} ms; {', '.join(shown)}", flush=True)
            if args.json:  # as far as it is known: measuring takes long
                found = {"machine": machine(), "peers": peers, "rows": rows}
                Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for kind in ("warm", "cold"):
        print("\n".join(["", kind, *table(rows, kind, peers)]))


if __name__ == "__main__":
    main()
