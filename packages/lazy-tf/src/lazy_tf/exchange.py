"""How Python code gets at the entry behind a TensorFlow tensor, and makes a tensor for an entry.

Owns: two mailboxes.  TensorFlow shows Python no handles, so an entry travels through the device's own `execute` callback: `Placeholder`
hands out the entry that waits in this thread, and `Snapshot` (an identity) drops what it was given.  May import `tensor` only.
"""

from __future__ import annotations

import threading
from typing import Any

from .tensor import Entry


class _Mailboxes(threading.local):
    outgoing: Entry | None = None
    incoming: list[Any] | None = None


_boxes = _Mailboxes()


def post(entry: Entry) -> None:
    """Leave an entry for the next `take` of this thread."""
    _boxes.outgoing = entry


def take() -> Entry | None:
    """The entry that was posted in this thread, which is then gone; None if there is none."""
    entry, _boxes.outgoing = _boxes.outgoing, None
    return entry


def expect() -> list[Any]:
    """Ask that the next `deliver` of this thread is kept in the list returned."""
    _boxes.incoming = []
    return _boxes.incoming


def deliver(entry: Any) -> None:
    """Keep an entry if somebody expects it."""
    if _boxes.incoming is not None:
        _boxes.incoming.append(entry)
        _boxes.incoming = None
