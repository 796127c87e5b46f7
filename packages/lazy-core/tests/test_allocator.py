"""Memory that was freed serves the next program; whoever has set up the allocator otherwise is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lazy_core
from lazy_core import allocator

pytestmark = pytest.mark.skipif(allocator._glibc() is None, reason="the C library is not glibc, whose allocator is meant")

# Threads allocate 28 MB each time, which the main thread frees, beside something that takes up most of a heap.
PROGRAM = """
import ctypes, resource, threading
import lazy_core
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
ready, made = threading.Semaphore(0), []

def work():
    kept = [libc.malloc(18 << 20) for _ in range(2)]
    for _ in range(12):
        ready.acquire()
        block = libc.malloc(28 << 20)
        ctypes.memset(block, 1, 28 << 20)
        made.append(block)
        done.release()

done = threading.Semaphore(0)
thread = threading.Thread(target=work)
libc.free(libc.malloc(30 << 20))  # blocks of this size are not mapped one by one from now on, whatever the setting
thread.start()
faults = []
for _ in range(12):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    ready.release()
    done.acquire()
    libc.free(made.pop())
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread.join()
print(sorted(faults)[6])
"""


def faults(**variables: str) -> int:
    """The page faults that each block of 7,168 pages costs, once the first are there."""
    environment = {"PATH": "/usr/bin:/bin", "LAZY_CACHE_DIR": "off", **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_of_threads_is_used_again():
    assert faults() < 100


@pytest.mark.parametrize("variables", [{"LAZY_KEEP_MEMORY": "0"}, {"MALLOC_ARENA_MAX": "8"}], ids=lambda v: next(iter(v)))
def test_the_allocator_is_left_alone_where_the_user_wants_that(variables):
    assert faults(**variables) > 5_000


# Each run of the program takes 40 MB for its result, and as much while it runs.
LARGE = """
import resource
import numpy as np
import lazy_core
from lazy_core import ops, values
lazy_core.config.tier = "compiled"
x = values.from_host(np.ones(5_000_000))
faults = []
for _ in range(30):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = ops.cumsum(x, axis=0)
    lazy_core.barrier(wait=True)
    del y
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults[-11:])[5])  # the first runs need more: what one frees comes too late for the next
"""


@pytest.mark.parametrize(
    ("variables", "few"), [({}, True), ({"LAZY_KEEP_MEMORY": str(32 << 20)}, False), ({"MALLOC_MMAP_MAX_": "65536"}, False)]
)
def test_results_larger_than_malloc_keeps_are_used_again_by_the_next_run(variables, few):
    environment = {"PATH": "/usr/bin:/bin", "LAZY_CACHE_DIR": "off", **variables}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LARGE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) < 500) == few


def test_what_is_too_small_or_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(allocator, "is_ours_to_set", lambda: True)
    with lazy_core.options(keep_memory=100 << 20):
        assert [allocator.is_kept(size << 20) for size in (0, 32, 33, 100, 101)] == [False, False, True, True, False]
