"""The recorder that Python frontends share, and transfers between the host and values.

Owns: `record`, and what makes values.  A frontend holds a Value in its own tensor object; when the last reference to it dies the value is
no longer live, and so no output of the next program.  May import `sources`, `trace`, `ir`, `backend`, `barrier`, `events`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from . import backend, dump, events, trace
from .barrier import Failed, failed_programs, flush
from .errors import BarrierError, ExecutionError
from .ir import NO_ATTRS, Attrs, Const, Expr, attrs
from .ops import registry
from .shape import Shape
from .sources import Value, ValueSource, recording, source

__all__ = [
    "Gate",
    "Value",
    "ValueSource",
    "from_array",
    "from_expr",
    "from_host",
    "record",
    "record_miss",
    "recorder",
    "recording",
    "shared",
    "source",
    "to_host",
]

_trace = trace.current()
_lock = _trace.lock
_lookup = _trace.table.get
_ref = weakref.ref


class Gate(Protocol):
    """What a frontend that also runs calls natively, as they come, is asked while recording (see `repeats`)."""

    def first(self, target: Any, exprs: Sequence[Expr], attributes: Attrs) -> None:
        """The first operation of a trace is about to be recorded; raises `repeats.Miss` if it should run natively instead."""
        ...

    def miss(self, target: Any, exprs: tuple[Expr, ...], attributes: Attrs) -> Any:
        """The expression for a key that is not in the table, or raises `repeats.Miss` if the call should run natively instead."""
        ...


def recorder(gate: Gate | None = None, kind: type[Value] = Value) -> Callable[..., Any]:
    """A function that records an operation on values; one dictionary hit in the steady state.

    Its arguments are: the target, an `Op` or a `Composite`; the inputs, values and constants made by `ir.const` (one that changes from
    trace to trace becomes a run-time scalar); and the static attributes, made by `ir.attrs`.  It returns a Value, or a tuple of them where
    the operation has several outputs, and raises ShapeError or DtypeError where the operands do not fit.

    Args:
        gate: whom to ask at the start of a trace and when a key is new; without one everything is recorded.
        kind: the class of the values that it gives.
    """
    miss = record_miss if gate is None else gate.miss
    held = kind.source.held
    forget = held.pop

    def record(target: Any, inputs: tuple[Any, ...], attributes: Attrs = NO_ATTRS) -> Any:
        log = recording.log
        if len(log) >= recording.cut_at:  # before this operation rather than after the last one: by now its temporaries have died
            recording.cut_if_due()
            if gate is not None and not log:
                gate.first(target, [v.expr or _leaf(v) for v in inputs], attributes)
        # No lock is taken here: a barrier of another thread replaces `recording.token` when it begins and when it ends, and whoever
        # sees it change records again under the lock.  Expressions made meanwhile are interned and harmless.
        token = recording.token
        if len(inputs) == 2:
            left, right = inputs
            key = (target, attributes, left.expr or _leaf(left), right.expr or _leaf(right))
        else:
            key = (target, attributes, *[v.expr or _leaf(v) for v in inputs])
        found = _lookup(key)
        if found is None:
            with _lock:
                found = miss(target, key[2:], attributes)
        if isinstance(found, tuple):
            result: Any = tuple([from_expr(e, kind) for e in found])
        else:
            result = kind()
            result.shape = found.shape
            result.expr = found
            result.array = None
            held[_ref(result, forget)] = None
        if recording.token is not token or token is None:
            del result
            with _lock:
                if recording.token is None:
                    raise BarrierError(
                        "nothing can be recorded inside a barrier, in a destructor or in a signal's handler; do it before, or after"
                    )
                return record(target, inputs, attributes)
        log.append(target)
        return result

    return record


def _leaf(value: Value) -> Expr:
    return value.source.leaf(value)


def record_miss(target: Any, exprs: tuple[Expr, ...], attributes: Attrs) -> Any:
    """Record an operation whose key is not in the table; hold the trace's lock."""
    if any(e.__class__ is Const and e.shape.dtype.kind != "b" for e in exprs):
        shapes = tuple([e.shape for e in exprs])
        site = (target, attributes, *[e.skeleton for e in exprs])
        shown = tuple([e.bits for e in exprs if e.__class__ is Const])
        if _trace.sites.should_lift(site, (target, attributes, shapes), shown):
            lifted = tuple([_lift(e) if e.__class__ is Const else e for e in exprs])
            return _trace.record(target, lifted, attributes)
    return _trace.record(target, exprs, attributes)


def _lift(constant: Expr) -> Expr:
    assert isinstance(constant, Const)
    if constant.shape.dtype.kind == "b":
        return constant
    scalar = source.scalar(constant.value)
    if scalar.shape is constant.shape:
        return scalar
    converted = _trace.record(registry.REGISTRY["convert"], (scalar,), attrs(dtype=constant.shape.dtype))
    assert isinstance(converted, Expr)
    return converted


def from_expr(expr: Expr, kind: type[Value] = Value) -> Value:
    """A live value for an expression of the current trace; hold the trace's lock, or know that no other thread runs a barrier."""
    value = kind()
    value.shape = expr.shape
    value.expr = expr
    value.array = None
    held = kind.source.held
    held[_ref(value, held.pop)] = None
    return value


def from_array(array: Any, kind: type[Value] = Value) -> Value:
    """A materialised value that holds a backend array, which nobody may change or donate."""
    value = kind()
    value.shape = Shape.of(array.shape, array.dtype)
    value.expr = None
    value.array = array
    return value


def from_host(array: Any, copy: bool = True, kind: type[Value] = Value) -> Value:
    """A materialised value with the contents of a NumPy array.

    Args:
        array: anything `numpy.asarray` takes; its dtype must exist on the device.
        copy: pass False only for an array that nobody will ever write to again, as its memory may be shared.
        kind: the value's class.

    Raises:
        DtypeError: the dtype has no counterpart on the device.
    """
    host = np.asarray(array)
    events.count("transfers")
    value = kind()
    value.shape = Shape.of(host.shape, host.dtype)
    value.expr = None
    value.array = backend.from_host(host, copy)
    return value


def shared(x: Any) -> Value:
    """The value that any frontend's lazy tensor stands for now, so that another frontend can go on with it in the same trace.

    A NumPy array is copied: where NumPy runs its small arrays at once, they are no lazy tensors.

    Args:
        x: whatever has `__lazy_core_value__`, a value, or a NumPy array or scalar.

    Raises:
        TypeError: it is none of these.
        DtypeError: the device has no such dtype.
    """
    if isinstance(x, (np.ndarray, np.generic)) and not hasattr(type(x), "__lazy_core_value__"):
        return from_host(x)
    value: Value = dump.value_of(x)
    return value


def to_host(value: Value) -> np.ndarray:
    """The contents as a read-only NumPy array; flushes everything live once if the value is pending, and waits.

    Raises:
        BarrierError: called inside a lowering or a composite.
        ExecutionError: compiling or running the trace failed.
    """
    if value.array is None:
        with _lock:
            if value.array is None:
                flush("a host read", host_read=True)
    if value.array.__class__ is Failed:
        raise value.array.error
    events.count("transfers")
    try:
        array = backend.to_host(value.array)
    except Exception as error:
        origin = "; ".join(failed_programs()) or "a program that is no longer among the latest"
        raise ExecutionError(f"computing a value of shape {value.shape} failed: {error}; it comes from {origin}") from error
    if array.flags.writeable:  # what ran natively left it
        array.flags.writeable = False
    return array


record = recorder()


def _record_call(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return record(op, args, attrs(**kwargs))


registry.set_value_recorder(_record_call)
