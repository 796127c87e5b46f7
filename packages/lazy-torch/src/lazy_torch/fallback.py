"""Operations that no lowering serves: the CPU kernel on host copies, counted and named.

Owns: the report of fallbacks and their reasons. The copying, the call and the write-back of changed arguments are native (ATen's CPU
fallback). May import `lazy_core.events`.
"""

from __future__ import annotations

from lazy_core import events

_reasons: dict[str, str] = {}


def remember(name: str, reason: str) -> None:
    """Keep why a builder declined its arguments, for the event that follows."""
    _reasons[f"aten::{name}"] = reason


def note(name: str, reason: str) -> None:
    """Count and name an operation that runs on the CPU.

    Raises:
        StrictError: fallbacks are forbidden by `lazy_core.strict`.
    """
    events.fallback("torch", name, _reasons.get(name, reason))
