"""The C library's allocator: memory that was freed serves the next program instead of going to the system and coming back page by page.

Owns: `is_kept`, `keep_all`, `keep_as_usual`, `give_back`, and what `keep_memory` does.  glibc gives each thread an arena of its own, made
of heaps of 64 MiB, and unmaps a heap when its last block is freed.  The threads that run XLA's programs allocate their results, so that
each run of a program with results of 29 MB may have them cleared by the system anew, 4 KiB at a time: 10 ms instead of 4 in a softmax, in
one process out of three.  With one arena for all threads, and a top that is trimmed late, that does not happen.  Blocks of more than 32 MiB
are mapped one by one all the same, which makes a Fourier transform of 17 MB take 29 ms instead of 11, unless that is forbidden: so it is
while a program runs whose results and temporaries are large, but not larger than what is kept.  May import `config`.
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
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_MOST_FROM_HEAP = 32 << 20
_USUAL_MMAP_MAX = 65536
# Whoever sets one of these has decided.
_VARIABLES = (
    *("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"),
    "GLIBC_TUNABLES",
)


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


def is_kept(size: int) -> bool:
    """Whether so many bytes would be mapped for each run of a program, and are to be kept between its runs instead."""
    return _MOST_FROM_HEAP < size <= config.keep_memory and is_ours_to_set()


_keeping = False


def keep_all() -> None:
    """From now on no memory is mapped by itself: what is freed serves the next one who asks for as much."""
    global _keeping
    if not _keeping:
        _keeping = True
        _glibc().mallopt(_MMAP_MAX, 0)


def keep_as_usual() -> None:
    """The programs that memory was kept for have run."""
    global _keeping
    if _keeping:
        _keeping = False
        _glibc().mallopt(_MMAP_MAX, _USUAL_MMAP_MAX)


def give_back() -> None:
    """Hand pages that are free to the system: what programs that were forgotten leave lies scattered, and glibc keeps it."""
    if _glibc() is not None:
        _glibc().malloc_trim(0)


watch("keep_memory", _keep)
