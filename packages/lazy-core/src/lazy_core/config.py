"""Settings: one dataclass, each setting also an environment variable `LAZY_<NAME>`.

Owns: `config` (the settings in force), `options` (a context manager) and `strict`.  May import `errors` only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

STRICT_EVENTS = ("compile", "fallback", "host_read", "shadow")
TIERS = ("auto", "compiled", "native")


@dataclass
class Config:
    """The settings in force.

    Attributes:
        tier: how pending work runs: "auto" (natively until it repeats, then whatever measures faster), "compiled" (always by XLA, at
            once) or "native" (never compiled) (`LAZY_TIER`).
        fast: whether compiled programs may round otherwise than the library whose calls they stand for, where that asks for exactness (see
            `sources.ValueSource`): multiply by a constant's reciprocal, take `(a + c) - c` for a (`LAZY_FAST`).
        compile_threads: how many background threads compile what repeats, in "auto" (`LAZY_COMPILE_THREADS`).
        learn_percent: the share of the running time that learning what repeats may take, recording and compiling, in "auto"
            (`LAZY_LEARN_PERCENT`).
        cut_after: past this many recorded operations without a barrier the sequence is searched for a period, and cut at the boundary of
            the loop that it is (`LAZY_CUT_AFTER`).
        max_trace: a trace of this many operations is cut wherever it is (`LAZY_MAX_TRACE`).
        max_exprs: how many interned expressions are kept between traces, in two generations (`LAZY_MAX_EXPRS`).
        max_executables: how many compiled programs are kept in memory, least recently used first to go (`LAZY_MAX_EXECUTABLES`).
        cache_dir: the folder of the disk cache; empty for the user's cache folder, "off" for none (`LAZY_CACHE_DIR`).
        cache_bytes: the size that the disk cache is kept below, least recently used first to go (`LAZY_CACHE_BYTES`).
        max_events: how many events `report()` remembers; counters are exact all the same (`LAZY_MAX_EVENTS`).
        strict: the kinds of event that raise `StrictError` (`LAZY_STRICT`, comma separated; compile, fallback, host_read,
            shadow).
        shadow: every so many runs of a compiled program, its results are computed again natively and compared, beginning with the first
            ("every" is 1, "off" is 0) (`LAZY_SHADOW`).
        shadow_tolerance: how many times each operation's declared tolerance such a run allows (`LAZY_SHADOW_TOLERANCE`).
        keep_memory: so many bytes of free memory at the end of the heap stay with the process for the next results; 0 leaves the C
            library's allocator as it is (`LAZY_KEEP_MEMORY`).
        keep_traces: how many of the latest traces are kept with their inputs, for `first_nan` and `capture`; their buffers are not reused
            (`LAZY_KEEP_TRACES`).
    """

    tier: str = "auto"
    fast: bool = False
    compile_threads: int = 1
    learn_percent: int = 10
    cut_after: int = 1_000
    max_trace: int = 20_000
    max_exprs: int = 200_000
    max_executables: int = 1024
    cache_dir: str = ""
    cache_bytes: int = 2_000_000_000
    max_events: int = 2_000
    strict: frozenset[str] = field(default_factory=frozenset)
    shadow: int = 0
    shadow_tolerance: float = 1.0
    keep_memory: int = 256 << 20
    keep_traces: int = 0

    def set(self, name: str, value: Any) -> None:
        """Set one setting after checking it.

        Raises:
            AttributeError: there is no such setting.
            ValueError: the value does not fit.
        """
        known = {f.name: f.type for f in fields(self)}
        if name not in known:
            raise AttributeError(f"no setting named {name!r}; there are {', '.join(sorted(known))}")
        setattr(self, name, _checked(name, value))
        _tell(name)

    @classmethod
    def from_environment(cls) -> Config:
        """The defaults, overridden by `LAZY_*` variables; a bad value raises ValueError and names the variable."""
        made = cls()
        for f in fields(cls):
            text = os.environ.get(f"LAZY_{f.name.upper()}")
            if text:
                try:
                    made.set(f.name, text)
                except ValueError as error:
                    raise ValueError(f"environment variable LAZY_{f.name.upper()}: {error}") from None
        return made


def _checked(name: str, value: Any) -> Any:
    if name == "strict":
        kinds = frozenset(k.strip() for k in value.split(",") if k.strip()) if isinstance(value, str) else frozenset(value)
        unknown = kinds - set(STRICT_EVENTS)
        if unknown:
            raise ValueError(f"strict knows the events {', '.join(STRICT_EVENTS)}; not {', '.join(sorted(unknown))}")
        return kinds
    if name == "tier":
        if value not in TIERS:
            raise ValueError(f"tier is one of {', '.join(TIERS)}; not {value!r}")
        return value
    if name == "fast":
        known = {"1": True, "0": False, "true": True, "false": False}.get(str(value).lower())
        if known is None:
            raise ValueError(f"fast is True or False, or 1 or 0; not {value!r}")
        return known
    if name == "cache_dir":
        return os.fspath(value)
    if name == "shadow_tolerance":
        return _number(name, value, float, 0.0)
    least = 0 if name in ("shadow", "keep_memory", "keep_traces") else 1
    if name == "shadow" and isinstance(value, str):
        value = {"every": 1, "off": 0}.get(value, value)
    return _number(name, value, int, least)


def _number(name: str, value: Any, kind: Any, least: Any) -> Any:
    what = f"a {'positive ' if least else ''}{'whole ' if kind is int else ''}number"
    try:
        number = kind(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {what}, not {value!r}") from None
    if not number >= least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number


_watchers: list[tuple[str, Callable[[], None]]] = []


def watch(name: str, callback: Callable[[], None]) -> None:
    """Call back now, and whenever a setting has been set through `Config.set`, `options` or `strict`."""
    _watchers.append((name, callback))
    callback()


def _tell(name: str) -> None:
    for wanted, callback in _watchers:
        if wanted == name:
            callback()


config = Config.from_environment()


@contextlib.contextmanager
def options(**settings: Any) -> Iterator[Config]:
    """Change settings for the time of a `with` block; unknown names raise AttributeError, bad values ValueError."""
    before = {f.name: getattr(config, f.name) for f in fields(config)}
    try:
        for name, value in settings.items():
            config.set(name, value)
        yield config
    finally:
        for name, value in before.items():
            if getattr(config, name) != value:
                config.set(name, value)


class strict:
    """Turn events into errors: `with strict("compile"): ...`, or `strict("fallback")` for good, `strict()` to switch off.

    Args:
        *events: "compile", "fallback", "host_read" or "shadow".

    Raises:
        ValueError: an unknown event name.
    """

    def __init__(self, *events: str) -> None:
        self._before = config.strict
        config.set("strict", events)

    def __enter__(self) -> strict:
        return self

    def __exit__(self, *exc: object) -> None:
        config.strict = self._before
