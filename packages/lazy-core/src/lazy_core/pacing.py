"""Lowering at the pace that the program allows.

Owns: `paced` and `pause`. Tracing and lowering in the background keep a core busy for 0.1 to 0.5 s a program, and hold the interpreter's
lock nearly all that time; the thread cannot be given a low priority, for whoever waits for the lock would then wait for it. So it rests,
between the operations. JAX lowers them where nobody is asked, but for the rules of primitives: among the operations stand some that do
nothing, whose rule rests. They leave no trace in the program. Imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# One operation in so many is followed by a rest, if one is due: tracing and lowering four takes some 2 ms.
_EVERY = 4
# It works for so long before it rests. Short turns find nothing of their own in the processor's caches: with 2 ms lowering takes four
# times as long in all.
_TURN_SECONDS = 0.008
# For how long it rests at most before it looks whether somebody waits: waking up takes 0.1 ms on a busy machine.
_LOOK_SECONDS = 0.05


class _Pace(threading.local):
    rest: Callable[[], None] | None = None
    passed = 0


_pace = _Pace()


@contextlib.contextmanager
def paced(percent: float, hurried: Callable[[], bool]) -> Iterator[None]:
    """In this block and thread, what is lowered takes at most `percent` of one core; not while `hurried()` says that somebody waits."""
    began, had = time.perf_counter(), time.thread_time()
    rested = had

    def rest() -> None:
        nonlocal rested
        worked = time.thread_time()
        if worked - rested < _TURN_SECONDS:
            return
        rested = worked
        until = began + (worked - had) * 100 / percent
        while (left := until - time.perf_counter()) > 0 and not hurried():
            time.sleep(min(left, _LOOK_SECONDS))

    before, _pace.rest = _pace.rest, rest if percent < 100 else None
    try:
        yield
    finally:
        _pace.rest = before


def pause(results: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation that has just been traced: here this thread may rest, and again when the operation is lowered."""
    if _pace.rest is None or not results:
        return results
    _pace.passed += 1
    if _pace.passed % _EVERY:
        return results
    _pace.rest()
    return [_primitive().bind(results[0]), *results[1:]]


@functools.cache
def _primitive() -> Any:
    """An operation that does nothing, and rests when it is lowered."""
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    def lower(_context: Any, operand: Any) -> list[Any]:
        if _pace.rest is not None:
            _pace.rest()
        return [operand]

    primitive = Primitive("lazy_rest")
    primitive.def_abstract_eval(lambda x: x)  # type: ignore[no-untyped-call]
    mlir.register_lowering(primitive, lower, cacheable=False)  # else the first one's result would stand for all
    return primitive
