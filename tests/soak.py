"""Memory and programs over a long time: `python -m nox -s soak`.

Two loops in the core: one that repeats a training-like step, one whose shapes never repeat. Resident memory must be flat after warm-up:
less than 1% growth over the second half. Prints a table and exits with status 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable

import numpy as np

import lazy_core
from lazy_core import ir, ops, values


def resident_mb() -> float:
    """Resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def repeating() -> Callable[[int], None]:
    """A step over parameters that live from step to step, with a learning rate that always changes."""
    rng = np.random.default_rng(0)
    state = {"w": values.from_host(rng.standard_normal((64, 64)).astype(np.float32))}
    x = values.from_host(rng.standard_normal((32, 64)).astype(np.float32))

    def step(k: int) -> None:
        w = state["w"]
        for _ in range(10):
            y = ops.tanh(ops.matmul(x, w))
            g = ops.matmul(ops.transpose(x, perm=(1, 0)), y)
            w = ops.sub(w, values.record(ops.mul, (g, ir.const(1e-3 / (k + 1), np.float32))))
        state["w"] = w
        if k % 10 == 9:
            values.to_host(ops.sum(w, axes=(0, 1), keepdims=False))
        else:
            lazy_core.barrier()

    return step


def never_repeating() -> Callable[[int], None]:
    """A step of a size that was never seen before."""

    def step(k: int) -> None:
        x = values.from_host(np.full(k + 1, 0.5, np.float32))
        values.to_host(ops.sum(ops.add(x, x), axes=(0,), keepdims=False))

    return step


def run(name: str, step: Callable[[int], None], steps: int) -> bool:
    """Run the steps; print memory at the quarters, and whether the second half grew by less than 1%."""
    marks = []
    for k in range(steps):
        step(k)
        if (k + 1) % (steps // 4) == 0:
            gc.collect()
            marks.append(resident_mb())
    growth = marks[-1] / marks[1] - 1
    counters = lazy_core.report().counters
    print(
        f"{name:<16} {steps:>7} steps, MiB at the quarters {', '.join(f'{m:.0f}' for m in marks)}, growth over the second half "
        f"{100 * growth:+.2f}%, {counters['compiles']} compiles"
    )
    lazy_core.reset_report()
    return growth < 0.01


def main() -> int:
    """Run both loops; the exit status says whether every bound held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args()
    with lazy_core.options(cache_dir="off"):
        results = [run("repeating", repeating(), args.steps), run("never repeating", never_repeating(), args.steps)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
