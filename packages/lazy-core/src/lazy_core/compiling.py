"""Compiling in the background, so that no new graph stalls the program that records it.

Owns: the queue of plans whose program is wanted, and the threads that compile them; and the memory, on disk, of which tier a graph was
found to run faster on. Tracing and lowering hold the interpreter's lock, some 0.1 ms an operation, and rest in between; XLA does not
hold it, but takes processors: its threads get a lower priority. Both count as learning as far as the program feels it, and the next job
waits until so much is allowed. May import `programs`, `plans`, `cache`, `disk`, `lowering`, `backend`, `events`, `trace`, `allowance`,
`background`, `pacing`.
"""

from __future__ import annotations

import atexit
import collections
import os
import threading
import time
from collections.abc import Callable

from . import backend, background, events, lowering, pacing, programs, trace
from .allowance import allowance
from .cache import Plan
from .config import config
from .disk import disk

_wanted: collections.deque[Callable[[], None]] = collections.deque()
_changed = threading.Condition()
_threads: list[threading.Thread] = []
_busy = 0
_awaited = 0  # threads that wait for all of it
_stopping = False
_POLL_SECONDS = 0.02


def submit(plan: Plan, cause: str) -> None:
    """Compile a plan's program in the background; its trial is told when it is there.

    Raises:
        StrictError: compiling is forbidden by `strict`.
    """
    events.forbid("compile", f"{plan.operations} operations would be compiled in the background; {cause}", plan.site)
    _enqueue(lambda: _compile(plan, cause))


def submit_undonated(plan: Plan, cause: str) -> None:
    """Compile the variant of a plan's program that takes over no buffers."""
    if not plan.wants_undonated:
        plan.wants_undonated = True
        _enqueue(lambda: _compile_undonated(plan, cause))


def cancel() -> None:
    """Forget what has not begun."""
    with _changed:
        _wanted.clear()


def wait(timeout: float | None = None) -> bool:
    """Wait until nothing is being compiled; returns whether that came true in time (seconds). Meanwhile nothing is put off."""
    global _awaited
    with _changed:
        _awaited += 1
        _changed.notify_all()
        try:
            return _changed.wait_for(lambda: not _wanted and not _busy, timeout)
        finally:
            _awaited -= 1


def cost(wall: float, xlas: float) -> float:
    """What the program lost to a compile that took so many seconds, and XLA's threads so many of processor time.

    These get what the program leaves. Where they are hardly made to wait they run on cores that were idle, and cost nothing.
    """
    return xlas * max(0.0, 1.0 - xlas / wall) if wall > 0 else 0.0


def busy() -> bool:
    """Whether something is being compiled in the background just now, which disturbs measurements."""
    return _busy > 0


def remember_verdict(graph: lowering.Graph, verdict: str) -> None:
    """Keep on disk which tier a graph runs on."""
    structure = lowering.text_of(graph)
    if structure is not None:
        disk.put("verdict", structure, verdict.encode())


def _enqueue(job: Callable[[], None]) -> None:
    with _changed:
        _wanted.append(job)
        _threads[:] = [t for t in _threads if t.is_alive()]
        if len(_threads) < min(config.compile_threads, len(_wanted) + _busy):
            thread = threading.Thread(target=_work, name="lazy-compile", daemon=True)
            _threads.append(thread)
            thread.start()
        _changed.notify_all()


def _work() -> None:
    global _busy
    while True:
        with _changed:
            if not _changed.wait_for(lambda: _wanted or _stopping, timeout=10.0) or _stopping:
                if _threads and threading.current_thread() in _threads:
                    _threads.remove(threading.current_thread())
                return
            while not (_stopping or _awaited or allowance.permits()):
                _changed.wait(_POLL_SECONDS)
            if _stopping or not _wanted:
                continue
            job = _wanted.popleft()
            _busy += 1
        begin = time.perf_counter(), time.thread_time(), backend.compiled_for()
        try:
            with background.polite(), pacing.paced(config.learn_percent, _hurried):
                job()
        finally:
            wall, ours, xlas = time.perf_counter() - begin[0], time.thread_time() - begin[1], backend.compiled_for() - begin[2]
            allowance.spend(ours + cost(wall, xlas))
            del job
            with _changed:
                _busy -= 1
                _changed.notify_all()
            if not _busy and not (_wanted and allowance.permits()):  # what waits for its turn does not keep others from being used
                for source in trace.current().sources:
                    source.compiled()


def _hurried() -> bool:
    return _awaited > 0 or _stopping


def _compile(plan: Plan, cause: str) -> None:
    trial, graph = plan.trial, plan.graph
    assert trial is not None and graph is not None
    begin = time.perf_counter()
    try:
        structure = lowering.text_of(graph)
        known = disk.get("verdict", structure) if structure is not None and not trial.reopened else None
        if known == b"native":
            trial.decide_as_before("native")
            return
        executable, donated = programs.find(graph, plan.free, cause, unhurried=True)
    except Exception as error:  # whatever the compiler raises: the trace goes on natively, and the report says why
        trial.decide("native", f"compiling it failed: {error}")
        return
    with trace.current().lock:
        plan.donated = tuple([plan.arguments[k] for k in donated])
        plan.executable = executable
        if known == b"compiled":
            trial.decide_as_before("compiled")
        else:
            trial.reason = f"being measured, compiled in {time.perf_counter() - begin:.2g} s"


def _compile_undonated(plan: Plan, cause: str) -> None:
    assert plan.graph is not None
    try:
        plan.undonated = programs.find(plan.graph, (), cause, unhurried=True)[0]
    except Exception as error:  # as above
        if plan.trial is not None:
            plan.trial.decide("native", f"compiling a variant failed: {error}")


def _at_exit() -> None:
    """Begin nothing new, and let what is being compiled end: the compiler must not outlive what it uses."""
    global _stopping
    with _changed:
        _stopping = True
        _wanted.clear()
        _changed.notify_all()
    for thread in list(_threads):
        thread.join()


atexit.register(_at_exit)


def _after_fork_in_child() -> None:
    global _changed, _busy, _awaited
    _changed = threading.Condition()
    _wanted.clear()
    _threads.clear()
    _busy = _awaited = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
