"""Memory and programs over a long time: `python -m nox -s soak`.

Loops that repeat a training step, and loops whose shapes never repeat, in the core and in each frontend that is installed. Each runs in
a process of its own: first the steps of the warm-up, in which programs are timed and compiled and bounded tables fill, then as many that
are measured. Memory must be flat: less than 1% growth over the second half of the measured steps, each time after garbage is collected
and free pages are handed to the system. Prints a table and exits with status 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np

import lazy_core
from lazy_core import allocator, ir, ops, values


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


def numpy_never_repeating() -> Callable[[int], None]:
    """NumPy: a reduction over a size that was never seen before."""
    import lazy_numpy

    def step(k: int) -> None:
        x = lazy_numpy.asarray(np.full(k + 1000, 0.5))
        float((x + x).sum())

    return step


def torch_training() -> Callable[[int], None]:
    """Torch: a step of Adam whose learning rate always changes; the loss is read now and then."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to("lazy")
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 16, device="lazy")

    def step(k: int) -> None:
        optimizer.param_groups[0]["lr"] = 1e-3 / (k + 1)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if k % 10 == 9:
            loss.item()

    return step


def torch_never_repeating() -> Callable[[int], None]:
    """Torch: a reduction over a size that was never seen before."""
    import torch

    def step(k: int) -> None:
        x = torch.full((k + 1000,), 0.5, device="lazy")
        float((x + x).sum())

    return step


LOOPS: dict[str, tuple[str, Callable[[], Callable[[int], None]]]] = {
    "core, repeating": ("lazy_core", repeating),
    "core, never repeating": ("lazy_core", never_repeating),
    "numpy, never repeating": ("lazy_numpy", numpy_never_repeating),
    "torch, training": ("lazy_torch", torch_training),
    "torch, never repeating": ("lazy_torch", torch_never_repeating),
}


def run(name: str, steps: int, warm_up: int) -> bool:
    """Run the steps of a loop; print memory at the quarters, and whether the second half grew by less than allowed."""
    step = LOOPS[name][1]()
    for k in range(warm_up):
        step(k)
    marks, blocks = [], []
    for k in range(warm_up, warm_up + steps):
        step(k)
        if (k + 1 - warm_up) % (steps // 4) == 0:
            gc.collect()
            allocator.give_back()
            marks.append(resident_mb())
            blocks.append(sys.getallocatedblocks())
    growth, alive = marks[-1] / marks[1] - 1, blocks[-1] / blocks[1] - 1
    counters = lazy_core.report().counters
    print(
        f"{name:<24} {warm_up:>7} + {steps} steps, MiB at the quarters {', '.join(f'{m:.0f}' for m in marks)}, growth over the second half "
        f"{100 * growth:+.2f}% (objects alive {100 * alive:+.2f}%), {counters['compiles']} compiles",
        flush=True,
    )
    return growth < 0.01


def main() -> int:
    """Run the loops; the exit status says whether every bound held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--warm-up", type=int, default=10_000, help="steps before those that are measured")
    parser.add_argument("--loop", choices=LOOPS, help="run one of them, in this process")
    args = parser.parse_args()
    if args.loop:
        with lazy_core.options(cache_dir="off"):
            return 0 if run(args.loop, args.steps, args.warm_up) else 1
    broken = 0
    for name, (package, _) in LOOPS.items():
        if importlib.util.find_spec(package) is not None:
            steps = ["--steps", str(args.steps), "--warm-up", str(args.warm_up)]
            broken += subprocess.run([sys.executable, __file__, *steps, "--loop", name], check=False).returncode
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
