"""Working in the background without being felt: what threads that nobody waits for owe to the threads of the program.

Owns: `polite`, for work that holds the interpreter's lock, `few_collections`, for work that makes many objects, `threads` and `step_back`,
for threads that are others' and do not hold it.
Imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import platform
import struct
import sys
import threading
from collections.abc import Iterator

# Libraries release the interpreter's lock in each operation. By default Python lets another thread keep it for 5 ms then, which makes
# a step of 50 operations wait for a quarter of a second.
SWITCH_SECONDS = 50e-6
# What a thread that has stepped back takes of a core that the program wants, as a part of what learning may cost the program: whoever
# works on all cores at once waits for the slowest of them, so that 7 % of two cores made torch's training steps 8 to 10 % slower.
SHARE = 1 / 3
# For how long it keeps a core that the program wants: by default 1 to 3 ms, for which an operation on all cores then waits.
SLICE_SECONDS = 100e-6

# So many collections of younger objects come before one of all.
_NEVER = 1_000_000

_lock = threading.Lock()
_working = 0
_usual = 0.0
_sparing = 0
_usual_third = 0


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


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """While it lasts, in any thread, Python does not walk all objects there are, nor soon after because of those that were made meanwhile.

    For importing and lowering: these make hundreds of thousands of objects that stay, and each walk stops the program for 0.1 to 0.5 s.
    """
    global _sparing, _usual_third
    with _lock:
        _sparing += 1
        first, second, third = gc.get_threshold()
        if _sparing == 1:
            _usual_third = third
            gc.set_threshold(first, second, _NEVER)
    try:
        yield
    finally:
        with _lock:
            _sparing -= 1
            first, second, third = gc.get_threshold()
            if _sparing == 0 and third == _NEVER:  # else the program has chosen another one meanwhile
                gc.set_threshold(first, second, _usual_third)
            if gc.get_freeze_count() == 0:  # else the program keeps objects from the collector itself, and freeing them would undo that
                gc.freeze()
                gc.collect()  # sees no object, so that it costs nothing; the collector counts anew from here
                gc.unfreeze()


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


def name(thread: int) -> str:
    """What the system calls a thread of this process; empty where that is not told."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


def nicer(percent: float) -> int:
    """How much nicer than the program a thread must be that may cost it `percent` of its time: each level takes a fifth of what is left."""
    share = percent / 100 * SHARE
    return 0 if share >= 0.5 else 19 if share <= 0 else min(19, round(math.log((1 - share) / share, 1.25)))


def step_back(thread: int, levels: int) -> None:
    """Let other threads go before this one, for good: only a privileged process may take that back.

    Where threads have no priorities of their own, nothing happens.

    Args:
        thread: its system id.
        levels: how much nicer it is to be.
    """
    if sys.platform == "linux" and levels:  # elsewhere priorities belong to processes
        with contextlib.suppress(OSError):
            nice = min(19, os.getpriority(os.PRIO_PROCESS, thread) + levels)
            os.setpriority(os.PRIO_PROCESS, thread, nice)
            _take_short_turns(thread, nice)


# The system call's number, its argument and one of its flags: `man 2 sched_setattr`. The C library has a function for it since glibc 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_KEEP_POLICY = 0x08


def _take_short_turns(thread: int, nice: int) -> None:
    """Have the thread give its core back soon (Linux 6.12 and later; earlier ones take no notice)."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, round(SLICE_SECONDS * 1e9), 0, 0)
        ctypes.CDLL(None).syscall(number, thread, attributes, 0)


def _after_fork_in_child() -> None:
    global _lock, _working, _sparing
    _lock = threading.Lock()
    if _sparing:  # as below
        gc.set_threshold(*gc.get_threshold()[:2], _usual_third)
    _sparing = 0
    if _working:  # the thread that would restore it is gone
        sys.setswitchinterval(_usual)
    _working = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
