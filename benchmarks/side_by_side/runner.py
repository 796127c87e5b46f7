"""Runs scenarios: a process for each peer, one of which works at a time, in turns; and rounds that repeat the whole.

A turn is a fraction of a second, so a drift of the machine meets all peers alike.  A process that fails or takes too long is a result
that says so.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
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
        quick: whether to do as little as shows that everything works.
        processor_time: whether to count the processor time of each process instead of the wall's.
    """

    cores: tuple[int, ...] = ()
    seconds: float = 10.0
    rounds: int = 2
    patience: float = 20.0
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


class _Child:
    """The process of a peer: it works only between `go` and its next word."""

    def __init__(self, scenario: Scenario, peer: Peer, settings: Settings, seconds: float, folder: str) -> None:
        self.peer = peer
        self.found: Found = {}
        self.done = False
        self._seconds = self._left = seconds
        self._request = {**asdict(settings), "scenario": scenario.name, "peer": peer.name}
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        # A disk cache of its own and empty: what an earlier process compiled would hide what this one has to.
        self._environment = {**os.environ, "LAZY_CACHE_DIR": folder, **peer.environment, "PYTHONPATH": os.pathsep.join(paths)}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed in `_end`)
        self._process: subprocess.Popen[str] | None = None

    def go(self) -> None:
        """Let it work until its turn ends, or it does."""
        begin = time.monotonic()
        if self._process is None:
            request = json.dumps({**self._request, "launched": begin})
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.child", request],
                env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            )  # fmt: skip
        else:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                print(file=self._process.stdin, flush=True)
        watchdog = threading.Timer(max(self._left, 0.0), self._process.kill)
        watchdog.start()
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                said = json.loads(line)
                if said.pop("turn", False):
                    return
                self.found.update(said)
        finally:
            watchdog.cancel()
            self._left -= time.monotonic() - begin
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        status = self._process.wait()
        self._process.communicate()
        self._errors.seek(0)
        stderr = self._errors.read()
        self._errors.close()
        self.done = True
        if self._left <= 0:
            self.found = {"error": f"took longer than {self._seconds:.0f} s"}
        elif status != 0:
            self.found |= {"error": f"{_essence(stderr)} (exit status {status})", "stderr": stderr[-4000:]}


def run_side_by_side(
    scenario: Scenario, peers: list[Peer], settings: Settings, timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[str, Found]:
    """Run a scenario of each peer, in turns; `error` in a result says what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_Child(scenario, peer, settings, timeout_seconds, str(Path(folder, peer.name))) for peer in peers]
        working = collections.deque(children)
        while working:
            child = working.popleft()
            child.go()
            if not child.done:
                working.append(child)
        return {child.peer.name: child.found for child in children}


def _essence(stderr: str) -> str:
    """The line that names the exception, or else the last line."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in said if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return ([*said, *named] or ["no message"])[-1][:200]


def run(scenarios: list[str], peers: list[str], settings: Settings, say: Callable[[str], None]) -> Iterator[dict[str, dict[str, Found]]]:
    """Run scenarios of peers; after each scenario gives the results so far, by scenario and peer.

    Args:
        scenarios: names of scenarios, in order.
        peers: names of peers; each runs what its library has.
        settings: how.
        say: receives a line about each scenario and each peer in it.
    """
    jobs = {s: [PEERS[p] for p in peers if PEERS[p].library in SCENARIOS[s].libraries] for s in scenarios}
    runs: dict[tuple[str, str], list[Found]] = {(s, p.name): [] for s, taking_part in jobs.items() for p in taking_part}
    total, count = settings.rounds * len(jobs), 0
    for _ in range(settings.rounds):
        for name, taking_part in jobs.items():
            scenario, begin = SCENARIOS[name], time.perf_counter()
            count += 1
            for _ in range(1 if settings.quick else scenario.processes):
                measure.Clock(settings.patience).wait_for_calm()
                for peer, found in run_side_by_side(scenario, taking_part, settings).items():
                    runs[name, peer].append(found)
            say(f"[{count}/{total}] {name}  ({time.perf_counter() - begin:.0f} s)")
            for peer in taking_part:
                say(f"    {peer.name:<20} {_brief(scenario, runs[name, peer.name][-1])}")
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
