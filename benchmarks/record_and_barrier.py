"""What recording and a barrier cost in the core, in the steady state.

    python benchmarks/record_and_barrier.py [--json FILE] [--rounds 30]

For 10, 100, 1,000 and 5,000 pending operations: microseconds to record one operation (median over rounds of a whole trace),
microseconds a barrier takes without waiting for execution, and the part of it that is not XLA's own call (the lookup).  The
figures are ratios of one run on one machine: other load changes both sides alike.  Recording thousands of operations evicts
the barrier's code and data from the processor's caches, so each row is also measured with caches that were emptied before
the barrier: what then still grows with the number of pending operations is work, not cold memory. The bars that the project
holds itself to: 1.0 us an operation, and a barrier at 5,000 pending operations at most twice one at 100.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from typing import Any

import numpy as np

import lazy_core
from lazy_core import cache, ops, values


class _TimedExecutable:
    """Stands in for an executable and notes how long its call takes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seconds = 0.0

    def __call__(self, arrays: Any, packed: Any = ()) -> Any:
        begin = time.perf_counter()
        outputs = self.inner(arrays, packed)
        self.seconds = time.perf_counter() - begin
        return outputs


def measure(operations: int, rounds: int, size: int) -> dict[str, float]:
    """Record `operations` operations on f32[size,size] values, barrier, wait; medians over `rounds`."""
    x = values.from_host(np.full((size, size), 0.5, np.float32))
    w = values.from_host(np.full((size, size), 0.5, np.float32))
    add, mul, record = ops.add, ops.mul, values.record

    other_memory = np.zeros(1 << 22)

    def step(empty_caches: bool = False) -> tuple[float, float]:
        y = x
        begin = time.perf_counter()
        for _ in range(operations // 2):
            y = record(mul, (y, w))
            y = record(add, (y, x))
        recorded = time.perf_counter()
        if empty_caches:
            other_memory[:] += 1
        barrier_begin = time.perf_counter()
        lazy_core.barrier()
        done = time.perf_counter()
        values.to_host(y)
        return recorded - begin, done - barrier_begin

    begin = time.perf_counter()
    step()
    cold = time.perf_counter() - begin
    for _ in range(5):
        step()
    for plan in cache.cache.plans._entries.values():
        if plan.executable is not None and not isinstance(plan.executable, _TimedExecutable):
            plan.executable = _TimedExecutable(plan.executable)
    gc.collect()
    gc.disable()
    try:
        record_seconds, barrier_seconds, lookup_seconds = [], [], []
        for _ in range(rounds):
            recorded, whole = step()
            timed = next(reversed(cache.cache.plans._entries.values())).executable
            record_seconds.append(recorded / operations)
            barrier_seconds.append(whole)
            lookup_seconds.append(whole - timed.seconds)
        cold_seconds = []
        for _ in range(rounds):
            _, whole = step(empty_caches=True)
            cold_seconds.append(whole)
    finally:
        gc.enable()
    return {
        "operations": operations,
        "record_us": statistics.median(record_seconds) * 1e6,
        "record_best_us": min(record_seconds) * 1e6,
        "barrier_us": statistics.median(barrier_seconds) * 1e6,
        "lookup_us": statistics.median(lookup_seconds) * 1e6,
        "emptied_us": statistics.median(cold_seconds) * 1e6,
        "first_seconds": cold,
    }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=2, help="values are f32[size,size]; XLA runs tiny programs within its call")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    args = parser.parse_args()
    with lazy_core.options(cut_after=100_000, max_trace=100_000):  # the loops here are to stay one trace
        lazy_core.barrier()
        rows = [measure(n, args.rounds, args.size) for n in (10, 100, 1000, 5000)]
    print(f"{'pending':>8} {'record us/op':>13} {'(best)':>8} {'barrier us':>11} {'lookup us':>10} {'emptied us':>11} {'first s':>8}")
    for r in rows:
        print(
            f"{r['operations']:>8} {r['record_us']:>13.2f} {r['record_best_us']:>8.2f} {r['barrier_us']:>11.1f} "
            f"{r['lookup_us']:>10.1f} {r['emptied_us']:>11.1f} {r['first_seconds']:>8.2f}"
        )
    at = {r["operations"]: r for r in rows}
    print(f"barrier at 5,000 pending / at 100: {at[5000]['barrier_us'] / at[100]['barrier_us']:.2f}")
    print(f"lookup at 5,000 pending / at 100: {at[5000]['lookup_us'] / at[100]['lookup_us']:.2f}")
    print(f"barrier with emptied caches at 5,000 pending / at 100: {at[5000]['emptied_us'] / at[100]['emptied_us']:.2f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
