"""NumPy programs, unchanged, beside NumPy itself: warm, and in a new process.

    python benchmarks/numpy_programs.py [--tier auto] [--only jacobi_2d,lu] [--seconds 3] [--cold] [--json FILE]

Two processes run the same program in turns, one with NumPy and one with lazy-numpy, and each times itself; the table gives the ratio of
the shortest times of the second half of their runs (NumPy / lazy, so that more than 1 is faster than NumPy), and the geometric mean.
Other load on the machine changes both sides alike.  Results are compared.  `--cold` also runs each program once as a script in new
processes: `python script.py` against `python -m lazy_numpy script.py`, the start of the interpreter and every import included.  Bind to a
core with `taskset -c 0` for single-threaded figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# ------------------------------------------------------------------ the programs; `np` is whichever NumPy they are given


def programs(np: Any) -> dict[str, Callable[[], Any]]:
    """Each program by name, written against `np`; inputs are made now, once."""
    rng = np.random.default_rng(7)

    grid = rng.standard_normal((1000, 1000))

    def jacobi_2d() -> Any:
        a, b = grid.copy(), grid.copy()
        for _ in range(20):
            b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
            a, b = b, a
        return a

    cube = rng.standard_normal((80, 80, 80))

    def heat_3d() -> Any:
        a, b = cube.copy(), cube.copy()
        for _ in range(10):
            for x, y in ((a, b), (b, a)):
                y[1:-1, 1:-1, 1:-1] = (
                    0.125 * (x[2:, 1:-1, 1:-1] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1])
                    + 0.125 * (x[1:-1, 2:, 1:-1] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1])
                    + 0.125 * (x[1:-1, 1:-1, 2:] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[1:-1, 1:-1, :-2])
                    + x[1:-1, 1:-1, 1:-1]
                )
        return a

    source = rng.standard_normal(30)

    def fdtd_2d() -> Any:
        ex, ey, hz = np.zeros((600, 700)), np.zeros((600, 700)), np.zeros((600, 700))
        for t in range(30):
            ey[0, :] = source[t]
            ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
            ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
            hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        return hz

    def advection() -> Any:
        u = np.exp(-((np.linspace(0, 1, 400_000) - 0.3) ** 2) / 0.002)
        for _ in range(60):
            u[1:] = u[1:] - 0.4 * (u[1:] - u[:-1])
        return u

    where, speed, mass = rng.standard_normal((300, 3)), rng.standard_normal((300, 3)), rng.uniform(1, 2, (300, 1))

    def n_body() -> Any:
        pos, vel = where.copy(), speed.copy()
        for _ in range(10):
            apart = pos[None, :, :] - pos[:, None, :]
            inverse = ((apart**2).sum(axis=2) + 0.01) ** -1.5
            vel += 0.01 * (apart * (mass[None, :, :] * inverse[:, :, None])).sum(axis=1)
            pos += 0.01 * vel
        return pos

    points, centres = rng.standard_normal((60_000, 16)), rng.standard_normal((8, 16))

    def k_means() -> Any:
        c = centres
        for _ in range(3):
            nearest = ((points[:, None, :] - c[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
            one_hot = (nearest[:, None] == np.arange(8)[None, :]).astype(np.float64)
            c = (one_hot.T @ points) / one_hot.sum(axis=0)[:, None]
        return c

    spot, strike, years = rng.uniform(10, 50, 1_000_000), rng.uniform(10, 50, 1_000_000), rng.uniform(1, 2, 1_000_000)

    def normal(d: Any) -> Any:
        k = 1.0 / (1.0 + 0.2316419 * np.abs(d))
        tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
        r = 0.39894228040143267 * np.exp(-0.5 * d * d) * tail
        return np.where(d > 0, 1.0 - r, r)

    def black_scholes() -> Any:
        root = np.sqrt(years)
        d1 = (np.log(spot / strike) + (0.02 + 0.5 * 0.3 * 0.3) * years) / (0.3 * root)
        d2 = d1 - 0.3 * root
        n1, n2, discount = normal(d1), normal(d2), np.exp(-0.02 * years)
        return spot * n1 - strike * discount * n2 + strike * discount * (1.0 - n2) - spot * (1.0 - n1)

    def mandelbrot() -> Any:
        x, y = np.linspace(-2, 0.6, 500), np.linspace(-1.2, 1.2, 400)
        c = x[None, :] + 1j * y[:, None]
        z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
        for _ in range(20):
            z = np.where(np.abs(z) < 2, z * z + c, z)
            count += np.abs(z) < 2
        return count

    logits = rng.standard_normal((6000, 1200)).astype(np.float32)

    def softmax() -> Any:
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    image, kernel = rng.standard_normal((1004, 1004)), rng.standard_normal((5, 5))

    def convolution() -> Any:
        out = np.zeros((1000, 1000))
        for i in range(5):
            for j in range(5):
                out += kernel[i, j] * image[i : i + 1000, j : j + 1000]
        return np.maximum(out, 0.0)

    square = rng.standard_normal((500, 500)) + 500 * np.eye(500)

    def lu() -> Any:
        a = square.copy()
        for k in range(499):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, None, k + 1 :]
        return a

    many = rng.standard_normal((800, 800)) + 800 * np.eye(800)
    positive = many @ many.T

    def cholesky() -> Any:
        a = positive.copy()
        n = a.shape[0]
        for j in range(n):
            a[j, j] = np.sqrt(a[j, j] - a[j, :j] @ a[j, :j])
            a[j + 1 :, j] = (a[j + 1 :, j] - a[j + 1 :, :j] @ a[j, :j]) / a[j, j]
        return a

    series = rng.standard_normal(40_000)

    def scalar_recurrence() -> Any:
        out = np.zeros(series.shape[0])
        for i in range(1, series.shape[0]):
            out[i] = 0.9 * out[i - 1] + series[i]
        return out

    def scalar_arithmetic() -> Any:
        x, total = np.float64(0.3), np.float64(0.0)
        for _ in range(100_000):
            x = 3.7 * x * (1.0 - x)
            total = total + x
        return np.array([total, x])

    small = rng.standard_normal((4, 4))

    def tiny_chain() -> Any:
        m, v = small.copy(), np.ones(4)
        for _ in range(5_000):
            v = m @ v
            v = v / np.sqrt((v * v).sum())
            v = np.maximum(v, -1.0) + 0.1
        return v

    middle = rng.standard_normal(3_000)

    def middle_chain() -> Any:
        v = middle.copy()
        for _ in range(1_000):
            v = v * 0.99 + middle
            v = np.maximum(v, -1.0)
            v = v - v.mean()
        return v

    plate = rng.standard_normal((300, 300))

    def element_loop() -> Any:
        a, b = plate, np.zeros((300, 300))
        for i in range(300):
            for j in range(300):
                b[i, j] = a[i, j] * 2.0
        return b

    signal = rng.standard_normal((256, 8192))

    def spectrum() -> Any:
        f = np.fft.rfft(signal * np.hanning(8192), axis=1)
        power = np.abs(f) ** 2
        return np.log10(power.mean(axis=0) + 1e-12)

    design, answers = rng.standard_normal((20_000, 40)), rng.standard_normal(20_000)

    def gradient_descent() -> Any:
        w = np.zeros(40)
        for _ in range(40):
            residual = design @ w - answers
            w = w - 0.1 * (design.T @ residual / 20_000 + 0.01 * w)
        return w

    def converge() -> Any:
        a = np.zeros((400, 400))
        a[0, :] = 1.0
        for _ in range(60):
            old = a.copy()
            a[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
            if np.abs(a - old).max() < 1e-6:
                break
        return a

    return {name: f for name, f in locals().items() if callable(f) and name not in ("normal", "np", "rng")}


# In these a compiler has little to gain: what counts is that they are no slower.
SMALL = ("scalar_arithmetic", "tiny_chain", "middle_chain", "element_loop", "converge")


# ------------------------------------------------------------------ a worker: runs what it is told to, and says how long it took


def worker(lazy: bool) -> None:
    """Read names of programs from standard input; answer each with the seconds of one run, or with the file of its result."""
    import numpy

    np: Any = numpy
    if lazy:
        from lazy_numpy.proxy import module

        np = module()
    made = programs(np)
    print(json.dumps(list(made)), flush=True)
    clock = time.process_time if os.environ.get("BENCH_CPU_TIME") else time.perf_counter
    for line in sys.stdin:
        name, _, path = line.strip().partition(" ")
        begin = clock()
        result = numpy.asarray(made[name](), copy=False)  # there, as it lies in memory
        seconds = clock() - begin
        if path:
            numpy.save(path, result)
        print(seconds, flush=True)


class Process:
    """A process that answers lines of text."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def line(self) -> str:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker died with status {self._process.wait()}")
        return line

    def ask(self, line: str) -> float:
        """The seconds that it answers a line with."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(self.line())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Worker(Process):
    """A process that runs programs."""

    def __init__(self, lazy: bool, environment: dict[str, str]) -> None:
        super().__init__([sys.executable, os.path.abspath(__file__), "--worker", "lazy" if lazy else "numpy"], environment)
        self.names: list[str] = json.loads(self.line())

    def run(self, name: str, path: str = "") -> float:
        """Seconds that one run took."""
        return self.ask(f"{name} {path}")


def measure(name: str, workers: tuple[Worker, Worker], seconds: float, folder: str) -> dict[str, Any]:
    """First and steady-state seconds of both sides, and how far the results differ."""
    import numpy

    paths = [os.path.join(folder, f"{name}-{k}.npy") for k in range(2)]
    first = [w.run(name, p) for w, p in zip(workers, paths, strict=True)]
    results = [numpy.load(p) for p in paths]
    numpy.testing.assert_allclose(results[1], results[0], rtol=1e-6 if results[0].dtype != numpy.float32 else 1e-4, atol=1e-6, err_msg=name)
    spent, times = 0.0, ([], [])  # type: ignore[var-annotated]
    while spent < seconds or len(times[0]) < 5:
        for w, t in zip(workers, times, strict=True):
            t.append(w.run(name))
        spent += times[0][-1] + times[1][-1]
    tail = [min(t[len(t) // 2 :]) for t in times]
    overall = [sum(t) + f for t, f in zip(times, first, strict=True)]
    return {
        "program": name,
        "numpy_ms": tail[0] * 1e3,
        "lazy_ms": tail[1] * 1e3,
        "ratio": tail[0] / tail[1],
        "first_ratio": first[0] / first[1],
        "overall_ratio": overall[0] / overall[1],
        "rounds": len(times[0]),
    }


def cold(name: str, environment: dict[str, str], folder: str) -> float:
    """NumPy's seconds / lazy-numpy's for the program run once as a script; the better of three each."""
    script = os.path.join(folder, "script.py")
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    body = text[text.index("def programs(") : text.index("# ---", text.index("def programs("))]
    with open(script, "w", encoding="utf-8") as file:
        file.write(
            "from __future__ import annotations\nimport sys\nfrom collections.abc import Callable\nfrom typing import Any\nimport numpy\n"
        )
        file.write(f"{body}\nprint(numpy.asarray(programs(numpy)[sys.argv[1]]()).sum())\n")
    best = [math.inf, math.inf]
    for _ in range(3):
        for k, command in enumerate(([sys.executable, script], [sys.executable, "-m", "lazy_numpy", script])):
            begin = time.perf_counter()
            subprocess.run([*command, name], env=environment, check=True, stdout=subprocess.DEVNULL)
            best[k] = min(best[k], time.perf_counter() - begin)
    return best[0] / best[1]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="NumPy programs, unchanged, beside NumPy itself")
    parser.add_argument("--tier", default="auto", help="auto, compiled or native")
    parser.add_argument("--only", default="", help="names of programs, with commas between them")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each program is run, both sides together")
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time of all threads, which other load changes less")
    parser.add_argument("--cold", action="store_true", help="also run each program once as a script in a new process")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--worker", choices=("lazy", "numpy"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker == "lazy")
        return
    environment = {**os.environ, "LAZY_TIER": args.tier, "BENCH_CPU_TIME": "1" if args.cpu_time else ""}
    workers = Worker(False, environment), Worker(True, environment)
    names = [n for n in args.only.split(",") if n] or workers[0].names
    rows = []
    print(
        f"{'program':20} {'numpy ms':>9} {'lazy ms':>9} {'ratio':>7} {'first':>7} {'overall':>8} {'rounds':>7}"
        + ("    cold" if args.cold else "")
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            row = measure(name, workers, args.seconds, folder)
            line = f"{name:20} {row['numpy_ms']:9.2f} {row['lazy_ms']:9.2f} {row['ratio']:7.2f} {row['first_ratio']:7.2f} "
            line += f"{row['overall_ratio']:8.2f} {row['rounds']:7}"
            if args.cold:
                row["cold_ratio"] = cold(name, environment, folder)
                line += f" {row['cold_ratio']:7.2f}"
            rows.append(row)
            print(line, flush=True)
    for w in workers:
        w.close()
    arrays = [r for r in rows if r["program"] not in SMALL]
    small = [r for r in rows if r["program"] in SMALL]
    for found, what in ((arrays, "programs of large arrays"), (small, "loops over small arrays, scalars and elements"), (rows, "all")):
        for key, label in (("ratio", "warm"), ("overall_ratio", "all rounds, learning and compiling included")):
            if found:
                mean = math.exp(statistics.fmean(math.log(r[key]) for r in found))
                print(f"geometric mean of NumPy / lazy, {what}, {label}: {mean:.2f}; lowest {min(r[key] for r in found):.2f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
