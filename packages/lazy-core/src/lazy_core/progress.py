"""A line on the terminal while something takes long.

Owns: when and where progress is shown: only on a terminal, only after a second, and taken away at the end.  Imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

SECONDS_BEFORE_SHOWING = 1.0


@contextlib.contextmanager
def line(text: str) -> Iterator[None]:
    """Show a line with the seconds so far on stderr, if it is a terminal and the block takes over a second."""
    if not sys.stderr or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(text, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(text: str, done: threading.Event) -> None:
    begin = time.monotonic()
    shown = False
    while not done.wait(SECONDS_BEFORE_SHOWING):
        shown = True
        sys.stderr.write(f"\r{text} ({time.monotonic() - begin:.0f} s)\x1b[K")
        sys.stderr.flush()
    if shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
