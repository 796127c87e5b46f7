"""Events and counters: what the system did, why, and at which line of the user's program.

Owns: counters, the bounded event log, finding the user's line, and turning forbidden events into errors.  May import `errors` and `config`.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import sysconfig
import threading
import time
from typing import Any, NamedTuple

from .config import config
from .errors import StrictError

COUNTERS = (
    "recorded",
    "barriers",
    "compiles",
    "cache_hits",
    "canonical_hits",
    "disk_hits",
    "native_runs",
    "fallbacks",
    "transfers",
    "compile_seconds",
    "shadow_runs",
    "shadow_differences",
)

_lock = threading.Lock()
counters: dict[str, float] = dict.fromkeys(COUNTERS, 0)
fallback_names: collections.Counter[str] = collections.Counter()


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        kind: compile, load, execute, native, fallback, host_read, cache, shadow or range.
        cause: why, in the user's terms; of a range, its name.
        site: the user's `file:line`, or None.
        operations: how many operations were concerned.
        seconds: how long it took; for an execution, how long handing it to the device took.
        bytes: how many bytes moved, where that is known.
        when: seconds since the epoch of `time.time`, at its end.
        graph: for a compile, the number of its graph in `graphs`.
    """

    kind: str
    cause: str
    site: str | None
    operations: int = 0
    seconds: float = 0.0
    bytes: int = 0
    when: float = 0.0
    graph: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The event as plain data."""
        return self._asdict()


# The texts of the latest graphs that were compiled, by number: (graph, StableHLO).
graphs: collections.OrderedDict[int, tuple[str, str]] = collections.OrderedDict()
_MOST_GRAPHS = 50
_graph_numbers = itertools.count()


def keep_graph(text: str, stablehlo: str) -> int:
    """Remember the text of a compiled graph for the report; returns its number."""
    number = next(_graph_numbers)
    graphs[number] = (text, stablehlo)
    while len(graphs) > _MOST_GRAPHS:
        graphs.popitem(last=False)
    return number


log: collections.deque[Event] = collections.deque(maxlen=config.max_events)

_HERE = os.path.dirname(os.path.abspath(__file__))
_hidden: list[str] = [_HERE + os.sep, "<frozen", "<__array_function__"]
_hidden_site_packages = ("jax", "jaxlib", "numpy", "torch", "tensorflow", "keras", "tf_keras", "optree")
for _root in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}:
    _hidden.extend(os.path.join(_root, name) + os.sep for name in _hidden_site_packages)
_hidden_tuple = tuple(_hidden)
_hidden_files: dict[str, bool] = {}


def hide_package(path: str) -> None:
    """Frames of files below this folder are never taken for the user's line; a frontend passes its own folder."""
    global _hidden_tuple
    _hidden_tuple = (*_hidden_tuple, os.path.join(os.path.abspath(path), ""))
    _hidden_files.clear()


def is_hidden(name: str) -> bool:
    """Whether a file's frames are never taken for the user's line."""
    hidden = _hidden_files.get(name)
    if hidden is None:
        hidden = _hidden_files[name] = name.startswith(_hidden_tuple)
    return hidden


def user_site() -> str | None:
    """The innermost `file:line` outside the system and the libraries it adapts, or None at an interactive prompt's edge."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_hidden(name):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def count(name: str, amount: float = 1) -> None:
    """Add to a counter."""
    with _lock:
        counters[name] += amount


def forbid(kind: str, cause: str, site: str | None) -> None:
    """Raise where `strict` forbids this kind of event.

    Raises:
        StrictError: the kind is among `config.strict`.
    """
    if kind in config.strict:
        raise StrictError(f"{kind} at {site or 'an unknown line'}: {cause}")


def emit(kind: str, cause: str, site: str | None = None, **facts: Any) -> None:
    """Log an event; where `strict` forbids its kind, raise instead.

    Raises:
        StrictError: the event's kind is among `config.strict`.
    """
    place = site if site is not None else user_site()
    forbid(kind, cause, place)
    if log.maxlen != config.max_events:
        _resize_log()
    log.append(Event(kind, cause, place, when=time.time(), **facts))


def amend_last(**facts: Any) -> None:
    """Add facts to the latest event, such as how long it took."""
    if log:
        log.append(log.pop()._replace(**facts))


def _resize_log() -> None:
    global log
    log = collections.deque(log, maxlen=config.max_events)


def fallback(frontend: str, name: str, reason: str) -> None:
    """Count and name an operation that runs outside the lazy system.

    Args:
        frontend: "torch", "numpy" or "tf".
        name: the library's name of the operation.
        reason: why it was not recorded.

    Raises:
        StrictError: fallbacks are forbidden by `strict`.
    """
    emit("fallback", f"{frontend}: {name}: {reason}", operations=1)
    with _lock:
        counters["fallbacks"] += 1
        fallback_names[f"{frontend}:{name}"] += 1


def host_read(what: str, nbytes: int = 0) -> None:
    """Note that the host reads a value that was pending.

    Raises:
        StrictError: host reads are forbidden by `strict`.
    """
    emit("host_read", what, bytes=nbytes)


def host_read_at(what: str, site: str | None) -> None:
    """Note a host read whose line is known already: the steady state pays for no search."""
    log.append(Event("host_read", what, site, 0, 0.0, 0, time.time()))


def executed(cause: str, site: str | None, operations: int, seconds: float) -> None:
    """Note that a program was handed to the device; called at every barrier, so it looks for no line itself."""
    log.append(Event("execute", cause, site, operations, seconds, 0, time.time()))


def ran_natively(cause: str, site: str | None, operations: int, seconds: float) -> None:
    """Note that pending operations ran natively; called at every barrier, so it looks for no line itself."""
    log.append(Event("native", cause, site, operations, seconds, 0, time.time()))


def add_ranges(ranges: list[tuple[str, float, float]]) -> None:
    """Note ranges of time that the program named, in order with everything else: (name, begin, end) as of `time.time`."""
    known = [Event("range", name, None, seconds=end - begin, when=end) for name, begin, end in ranges if end >= _reset_at]
    if known:
        ordered = sorted([*log, *known], key=lambda event: event.when)
        log.clear()
        log.extend(ordered)


_reset_at = 0.0


def reset() -> None:
    """Forget all events and set every counter to zero."""
    global _reset_at
    with _lock:
        _reset_at = time.time()
        for name in counters:
            counters[name] = 0
        fallback_names.clear()
        log.clear()
        graphs.clear()
