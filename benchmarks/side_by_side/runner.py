"""Runs scenarios: one process a peer, peers in turn, rounds that repeat the whole, so that a drift of the machine meets all alike.

A process that fails or takes too long is a result that says so.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import measure
from .peers import PEERS, Peer, versions
from .scenarios import SCENARIOS, Found, Scenario, combine

TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        cores: which cores to bind to; empty for all.
        seconds: how long a measurement lasts.
        rounds: how often everything is repeated.
        patience: how long a process waits for a calm machine before each measurement, in all.
        tries: how often a disturbed measurement is made.
        quick: whether to do as little as shows that everything works.
        processor_time: whether to count the processor time of each process instead of the wall's.
    """

    cores: tuple[int, ...] = ()
    seconds: float = 3.0
    rounds: int = 2
    patience: float = 20.0
    tries: int = 3
    quick: bool = False
    processor_time: bool = False


def machine(cores: tuple[int, ...]) -> dict[str, Any]:
    """What the results hold for: processor, cores, system, versions, date."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    system = f"{platform.system()} {platform.release()}"
    used = list(cores) or sorted(os.sched_getaffinity(0))
    return {
        "processor": processor, "cores": len(used), "system": system, "versions": versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": _commit(),
    }  # fmt: skip


def _commit() -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run_one(scenario: Scenario, peer: Peer, settings: Settings, timeout_seconds: float = TIMEOUT_SECONDS) -> Found:
    """Run a scenario of a peer in a process of its own; `error` in the result says what went wrong."""
    request = {**asdict(settings), "scenario": scenario.name, "peer": peer.name}
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as folder:
        # A disk cache of its own and empty: what an earlier process compiled would hide what this one has to.
        environment = {**os.environ, "LAZY_CACHE_DIR": folder, **peer.environment, "PYTHONPATH": os.pathsep.join(paths)}
        request["launched"] = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"{__package__}.child", json.dumps(request)],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"took longer than {timeout_seconds:.0f} s"}
    found: Found = {}
    for line in done.stdout.splitlines():
        found.update(json.loads(line))
    if done.returncode != 0:
        found["error"] = f"{_essence(done.stderr)} (exit status {done.returncode})"
        found["stderr"] = done.stderr[-4000:]
    return found


def _essence(stderr: str) -> str:
    """The line that names the exception, or else the last line."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in said if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return ([*said, *named] or ["no message"])[-1][:200]


def run(scenarios: list[str], peers: list[str], settings: Settings, say: Callable[[str], None]) -> Iterator[dict[str, dict[str, Found]]]:
    """Run scenarios of peers; after each process gives the results so far, by scenario and peer.

    Args:
        scenarios: names of scenarios, in order.
        peers: names of peers; each runs what its library has.
        settings: how.
        say: receives a line about each process.
    """
    jobs = [(SCENARIOS[s], PEERS[p]) for s in scenarios for p in peers if PEERS[p].library in SCENARIOS[s].libraries]
    runs: dict[tuple[str, str], list[Found]] = {(s.name, p.name): [] for s, p in jobs}
    total, count = settings.rounds * len(jobs), 0
    for _ in range(settings.rounds):
        for scenario, peer in jobs:
            count += 1
            begin = time.perf_counter()
            found = runs[scenario.name, peer.name]
            for _ in range(1 if settings.quick else scenario.processes):
                measure.Clock(settings.patience, 1).wait_for_calm()
                found.append(run_one(scenario, peer, settings))
            said = _brief(scenario, found[-1])
            say(f"[{count}/{total}] {scenario.name:<16} {peer.name:<20} {said}  ({time.perf_counter() - begin:.0f} s)")
            yield _results(runs)


def _results(runs: dict[tuple[str, str], list[Found]]) -> dict[str, dict[str, Found]]:
    results: dict[str, dict[str, Found]] = {}
    for (scenario, peer), found in runs.items():
        if found:
            failed = [f for f in found if "error" in f]
            results.setdefault(scenario, {})[peer] = failed[0] if failed else combine(found)
    return results


def _brief(scenario: Scenario, found: Found) -> str:
    from .table import number

    if "error" in found:
        return f"FAILED: {found['error'][:160]}"
    shown = ", ".join(f"{row.key} {number(found, row)}" for row in scenario.rows)
    busy = found.get("other_cores", 0.0)
    return (
        shown + ("" if found.get("losses_right", True) else "; WRONG LOSSES") + (f"; others used {busy:.1f} cores" if busy > 0.15 else "")
    )
