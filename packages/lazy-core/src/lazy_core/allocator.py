"""The C library's allocator: memory that was freed serves the next program instead of going to the system and coming back page by page.

Owns: `give_back`, and what the setting `keep_memory` does.  glibc gives each thread an arena of its own, made of heaps of 64 MiB, and
unmaps a heap when its last block is freed.  The threads that run XLA's programs allocate their results, so that each run of a program with
results of 29 MB may have them cleared by the system anew, 4 KiB at a time: 10 ms instead of 4 in a softmax, in one process out of three.
With one arena for all threads, and a top that is trimmed late, that does not happen.  May import `config`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from typing import Any

from .config import config, watch

# From malloc.h. The threshold from which blocks are mapped one by one is set to the greatest that glibc takes, as a fixed one for the top
# ends the adjustment of both.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST_FROM_HEAP = 32 << 20
# Whoever sets one of these has decided.
_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@functools.cache
def _glibc() -> Any:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def is_ours_to_set() -> bool:
    """Whether the allocator is glibc's, and the user has not set it up otherwise."""
    return _glibc() is not None and not any(name in os.environ for name in _VARIABLES)


def _keep() -> None:
    if config.keep_memory and is_ours_to_set():
        _glibc().mallopt(_ARENA_MAX, 1)
        _glibc().mallopt(_MMAP_THRESHOLD, _MOST_FROM_HEAP)
        _glibc().mallopt(_TRIM_THRESHOLD, min(config.keep_memory, 2**31 - 1))


def give_back() -> None:
    """Hand pages that are free to the system: what programs that were forgotten leave lies scattered, and glibc keeps it."""
    if _glibc() is not None:
        _glibc().malloc_trim(0)


watch("keep_memory", _keep)
