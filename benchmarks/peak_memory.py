"""Peak memory of training steps with Adam: lazy-torch beside hand-written `jax.jit` with donated arguments.

    python benchmarks/peak_memory.py [--width 4096] [--steps 5]

Each side runs in a process of its own, first trains a tiny model, so that what libraries load and compilers keep is not counted, and then
reports the growth of its peak resident memory.  The model is three square layers with ReLU and a squared error; the bar is that
lazy-torch stays within 10% of jax.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

LAYERS = 3
BATCH = 64


def peak_mb() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_lazy(width: int, steps: int) -> float:
    """Train on the lazy side; returns the last loss."""
    import torch

    import lazy_core

    with torch.device("lazy"):
        x = torch.ones(BATCH, width)
        weights = [torch.nn.Parameter(torch.full((width, width), (2.0 + k) / width)) for k in range(LAYERS)]
    lazy_core.barrier(wait=True)
    optimizer = torch.optim.Adam(weights, lr=1e-6)
    for _ in range(steps):
        optimizer.zero_grad()
        y = x
        for w in weights:
            y = torch.relu(y @ w)
        loss = ((y - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        del y
    return loss.item()


def run_jax(width: int, steps: int) -> float:
    """Train on the jax side; returns the last loss."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((BATCH, width))
    weights = [jnp.full((width, width), (2.0 + k) / width) for k in range(LAYERS)]
    first = [jnp.zeros_like(w) for w in weights]
    second = [jnp.zeros_like(w) for w in weights]

    def loss_of(ws):  # type: ignore[no-untyped-def]
        y = x
        for w in ws:
            y = jax.nn.relu(y @ w)
        return ((y - 1) ** 2).mean()

    def step(ws, ms, vs, t):  # type: ignore[no-untyped-def]
        loss, gs = jax.value_and_grad(loss_of)(ws)
        ms = [0.9 * m + 0.1 * g for m, g in zip(ms, gs, strict=True)]
        vs = [0.999 * v + 0.001 * g * g for v, g in zip(vs, gs, strict=True)]
        ws = [w - 1e-6 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8) for w, m, v in zip(ws, ms, vs, strict=True)]
        return ws, ms, vs, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    for k in range(steps):
        weights, first, second, loss = compiled(weights, first, second, float(k + 1))
        jax.block_until_ready(loss)
    return float(loss)


def measured(side: str, width: int, steps: int) -> str:
    """What a side's process prints: MiB of growth, and the last loss."""
    run = run_lazy if side == "lazy" else run_jax
    run(32, 3)
    before = peak_mb()
    loss = run(width, steps)
    return f"{peak_mb() - before:.1f} {loss:.6f}"


def main() -> int:
    """Run both sides and print the ratio; exit status 1 if the bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=("lazy", "jax"), help="run one side in this process")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    if args.side:
        print(measured(args.side, args.width, args.steps))
        return 0
    found = {}
    for side in ("lazy", "jax"):
        command = [sys.executable, __file__, "--side", side, "--width", str(args.width), "--steps", str(args.steps)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        found[side] = float(out[0])
        print(f"{side:>5}: peak grew by {out[0]} MiB, last loss {out[1]}")
    ratio = found["lazy"] / found["jax"]
    print(f"ratio: {ratio:.3f} (bar: 1.10)")
    return 0 if ratio <= 1.10 else 1


if __name__ == "__main__":
    sys.exit(main())
