"""Values: promises for Python frontends, and the recorder that they share.

Owns: `Value`, `record`, transfers between the host and values.  A frontend holds a Value in its own tensor object; when the
last reference to it dies the value is no longer live, and so no output of the next program.  May import `trace`, `ir`,
`backend`, `barrier`, `cutting`, `events`, `config`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Protocol

import numpy as np

from . import backend, dump, events, native, trace
from .barrier import Failed, failed_programs, flush
from .cutting import Cutter
from .errors import ExecutionError, LazyError
from .ir import NO_ATTRS, Attrs, Const, Expr, Leaf, ScalarLeaf, attrs
from .ops import registry
from .shape import Shape

_trace = trace.current()
_lock = _trace.lock
_lookup = _trace.table.get
# Live values in creation order.  A weak reference with a built-in callback removes its own entry: no Python code runs when a value dies.
_live: dict[weakref.ref[Value], None] = {}
_forget = _live.pop
_ref = weakref.ref


class Value:
    """A promise of a tensor value.

    Attributes:
        shape: dimensions and dtype, known without a barrier.
        expr: the expression in the current trace, or None if this trace has not used the value yet.
        array: the backend's array, or None while the value is pending.
    """

    __slots__ = ("__weakref__", "array", "expr", "shape")
    __lazy_value__ = True

    shape: Shape
    expr: Expr | None
    array: Any

    @property
    def pending(self) -> bool:
        """Whether the value has not been handed to the device yet."""
        return self.array is None

    def __repr__(self) -> str:
        return f"Value({self.shape}, {'pending' if self.array is None else 'materialised'})"


class _ForeignError(Exception):
    """A graph reads a buffer of another source."""


class Follower(Protocol):
    """Whoever must know when traces end (see `repeats`)."""

    def flushing(self) -> None:
        """The pending trace is about to be run."""
        ...

    def finished(self) -> None:
        """It has been; a new one begins."""
        ...

    def evicted(self) -> None:
        """The table of expressions began a new generation."""
        ...


class ValueSource:
    """The source of all values that Python frontends hold (see `trace.Source`)."""

    name = "values"

    def __init__(self) -> None:
        self._leaves: list[Value] = []
        self._holders: list[Value] = []
        self._scalars: tuple[list[float], list[int], list[complex]] = ([], [], [])
        self._recorded_before = 0
        self.log: list[Any] = []  # the targets recorded since the last barrier
        self.cutter = Cutter()
        self.cut_at = self.cutter.cut_at
        self.token: object | None = object()  # replaced when a barrier begins (None) and when it ends
        self.followers: list[Follower] = []
        self.exact = False  # whether a frontend has said that its library's rounding is part of its contract
        self.cutting = False  # whether the trace is being run because a loop's body has ended
        self.index = _trace.add_source(self)

    def live(self) -> list[Expr]:
        """See `trace.Source.live`."""
        self.token = None
        for follower in self.followers:
            follower.flushing()
        holders = [ref() for ref in list(_live)]
        self._holders = [v for v in holders if v is not None]
        return [v.expr for v in self._holders]  # type: ignore[misc]

    def leaves(self) -> list[Any]:
        """See `trace.Source.leaves`."""
        for value in self._leaves:
            if value.array.__class__ is np.ndarray:
                value.array = backend.from_host(value.array, copy=False)
        return [v.array for v in self._leaves]

    def native(self, wanted: Sequence[Expr]) -> list[Any] | None:
        """See `trace.Source.native`: by the interpreter, on host arrays."""
        distinct = list(dict.fromkeys([e for e in wanted if e.__class__ is not Leaf]))
        try:
            found = dict(zip(distinct, native.evaluate(distinct, self._host_leaf, self._scalar), strict=True))
        except _ForeignError:
            return None
        return [found[e] if e.__class__ is not Leaf else self._leaves[e.slot].array for e in wanted]

    def _host_leaf(self, leaf: Leaf) -> np.ndarray:
        if leaf.source != self.index:
            raise _ForeignError
        array = self._leaves[leaf.slot].array
        if array.__class__ is Failed:
            raise array.error
        return backend.to_host(array)

    def _scalar(self, scalar: ScalarLeaf) -> Any:
        if scalar.source != self.index:
            raise _ForeignError
        return self._scalars["fic".index(scalar.kind)][scalar.slot]

    def settled(self, native: bool) -> None:
        """See `trace.Source.settled`."""

    def postponed(self) -> None:
        """See `trace.Source.postponed`."""

    def compiled(self) -> None:
        """See `trace.Source.compiled`."""

    def donatable(self) -> list[bool]:
        """See `trace.Source.donatable`: counts references, those of this list, the loop and the call included."""
        return [getrefcount(v) == 3 and getrefcount(v.array) == 2 for v in self._leaves]

    def scalars(self) -> tuple[list[float], list[int], list[complex]]:
        """See `trace.Source.scalars`."""
        return self._scalars

    def finish(self, arrays: list[Any], epoch: int) -> None:
        """See `trace.Source.finish`."""
        for holder, array in zip(self._holders, arrays, strict=True):
            holder.array = array
            holder.expr = None
        for leaf in self._leaves:
            leaf.expr = None
        _live.clear()
        self._holders = []
        self._leaves = []
        self._scalars = ([], [], [])
        self._recorded_before += len(self.log)
        self.log.clear()
        self._restart()
        self.token = object()
        for follower in self.followers:
            follower.finished()

    def _restart(self) -> None:
        self.cutter.restart()
        self.cut_at = 0 if self.followers else self.cutter.cut_at  # they are asked about the first operation of each trace

    def forget_leaves(self) -> None:
        """Nothing was recorded in this trace, though leaves and scalars were given slots: the slots start again."""
        with _lock:
            for leaf in self._leaves:
                leaf.expr = None
            self._leaves = []
            self._scalars = ([], [], [])
            self._restart()

    def abort(self) -> None:
        """See `trace.Source.abort`."""
        self._holders = []
        self.token = object()

    def counters(self) -> dict[str, int]:
        """See `trace.Source.counters`."""
        return {"recorded": self._recorded_before + len(self.log)}

    def evict(self) -> None:
        """See `trace.Source.evict`; values cache no expressions between traces."""
        for follower in self.followers:
            follower.evicted()

    def cut_if_due(self) -> None:
        """Called when the log has reached `cut_at`: cut the trace if a boundary of the loop has been reached."""
        with _lock:
            if not self.log:
                self.cut_at = self.cutter.cut_at
            elif self.cutter.due(self.log, len(_live)):
                self.cutting = True
                try:
                    flush("the end of a loop's body, found by its period")
                finally:
                    self.cutting = False
            else:
                self.cut_at = self.cutter.cut_at

    def leaf(self, value: Value) -> Expr:
        """Give a materialised value its slot in the current trace."""
        with _lock:
            if value.expr is not None:  # another thread was first
                return value.expr
            if value.array is None:
                raise LazyError(f"a value of shape {value.shape} has neither an expression nor a buffer")
            if value.array.__class__ is Failed:
                raise value.array.error
            expr = value.expr = _trace.leaf(self.index, len(self._leaves), value.shape)
            self._leaves.append(value)
            return expr

    def scalar(self, value: np.generic) -> Expr:
        """Feed a scalar at run time in the current trace."""
        kind = "c" if value.dtype.kind == "c" else "f" if value.dtype.kind not in "iu" else "i"
        slots = self._scalars["fic".index(kind)]
        slots.append(complex(value) if kind == "c" else float(value) if kind == "f" else _wrap_s64(int(value)))  # type: ignore[arg-type]
        return _trace.scalar_leaf(self.index, kind, len(slots) - 1)


def _wrap_s64(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


source = ValueSource()


class Gate(Protocol):
    """What a frontend that also runs calls natively, as they come, is asked while recording (see `repeats`)."""

    def first(self, target: Any, exprs: Sequence[Expr], attributes: Attrs) -> None:
        """The first operation of a trace is about to be recorded; raises `repeats.Miss` if it should run natively instead."""
        ...

    def miss(self, target: Any, exprs: tuple[Expr, ...], attributes: Attrs) -> Any:
        """The expression for a key that is not in the table, or raises `repeats.Miss` if the call should run natively instead."""
        ...


def recorder(gate: Gate | None = None) -> Callable[..., Any]:
    """A function that records an operation on values; one dictionary hit in the steady state.

    Its arguments are: the target, an `Op` or a `Composite`; the inputs, values and constants made by `ir.const` (one that changes from
    trace to trace becomes a run-time scalar); and the static attributes, made by `ir.attrs`.  It returns a Value, or a tuple of them where
    the operation has several outputs, and raises ShapeError or DtypeError where the operands do not fit.

    Args:
        gate: whom to ask at the start of a trace and when a key is new; without one everything is recorded.
    """
    miss = record_miss if gate is None else gate.miss

    def record(target: Any, inputs: tuple[Any, ...], attributes: Attrs = NO_ATTRS) -> Any:
        log = source.log
        if len(log) >= source.cut_at:  # before this operation rather than after the last one: by now its temporaries have died
            source.cut_if_due()
            if gate is not None and not log:
                gate.first(target, [v.expr or source.leaf(v) for v in inputs], attributes)
        # No lock is taken here: a barrier of another thread replaces `source.token` when it begins and when it ends, and whoever
        # sees it change records again under the lock.  Expressions made meanwhile are interned and harmless.
        token = source.token
        if len(inputs) == 2:
            left, right = inputs
            key = (target, attributes, left.expr or source.leaf(left), right.expr or source.leaf(right))
        else:
            key = (target, attributes, *[v.expr or source.leaf(v) for v in inputs])
        found = _lookup(key)
        if found is None:
            with _lock:
                found = miss(target, key[2:], attributes)
        if isinstance(found, tuple):
            result: Any = tuple([from_expr(e) for e in found])
        else:
            result = Value()
            result.shape = found.shape
            result.expr = found
            result.array = None
            _live[_ref(result, _forget)] = None
        if source.token is not token or token is None:
            del result
            with _lock:
                return record(target, inputs, attributes)
        log.append(target)
        return result

    return record


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


def from_expr(expr: Expr) -> Value:
    """A live value for an expression of the current trace; hold the trace's lock, or know that no other thread runs a barrier."""
    value = Value()
    value.shape = expr.shape
    value.expr = expr
    value.array = None
    _live[_ref(value, _forget)] = None
    return value


def _materialised(shape: Shape, array: Any) -> Value:
    value = Value()
    value.shape = shape
    value.expr = None
    value.array = array
    return value


def from_array(array: Any) -> Value:
    """A materialised value that holds a backend array, which nobody may change or donate."""
    return _materialised(Shape.of(array.shape, array.dtype), array)


def from_host(array: Any, copy: bool = True) -> Value:
    """A materialised value with the contents of a NumPy array.

    Args:
        array: anything `numpy.asarray` takes; its dtype must exist on the device.
        copy: pass False only for an array that nobody will ever write to again, as its memory may be shared.

    Raises:
        DtypeError: the dtype has no counterpart on the device.
    """
    host = np.asarray(array)
    events.count("transfers")
    return _materialised(Shape.of(host.shape, host.dtype), backend.from_host(host, copy))


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
