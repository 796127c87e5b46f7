"""Working in the background without being felt: what threads that nobody waits for owe to the threads of the program.

Owns: `polite`, for work that holds the interpreter's lock, and `threads` and `step_back`, for threads that are others' and do not hold it.
Imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

# Libraries release the interpreter's lock in each operation. By default Python lets another thread keep it for 5 ms then, which makes
# a step of 50 operations wait for a quarter of a second.
SWITCH_SECONDS = 50e-6
# How much nicer than the program: a thread of the program that wants the same core gets nine tenths of it.
NICER = 10

_lock = threading.Lock()
_working = 0
_usual = 0.0


@contextlib.contextmanager
def polite() -> Iterator[None]:
    """While it lasts, whoever wants the interpreter's lock gets it after 50 us; afterwards the process's own interval holds again."""
    global _working, _usual
    with _lock:
        _working += 1
        if _working == 1:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual, SWITCH_SECONDS))
    try:
        yield
    finally:
        with _lock:
            _working -= 1
            if _working == 0:
                sys.setswitchinterval(_usual)


def usual_interval(seconds: float) -> None:
    """Have this interval hold again once nobody works in the background: for who shortened it before this module could be imported."""
    global _usual
    with _lock:
        _usual = seconds
        if not _working:
            sys.setswitchinterval(seconds)


def threads() -> dict[int, int]:
    """The processor time in nanoseconds that each thread of this process has had, by its system id; empty where that is not told."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{name}/schedstat", encoding="ascii") as file:  # else it has ended
                found[int(name)] = int(file.read().split()[0])
    return found


def step_back(thread: int) -> None:
    """Let other threads go before this one, for good: only a privileged process may take that back.

    Where threads have no priorities of their own, nothing happens.
    """
    if sys.platform == "linux":  # elsewhere priorities belong to processes
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICER)


def _after_fork_in_child() -> None:
    global _lock, _working
    _lock = threading.Lock()
    if _working:  # the thread that would restore it is gone
        sys.setswitchinterval(_usual)
    _working = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
