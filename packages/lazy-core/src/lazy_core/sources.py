"""Values, and the sources that hold them for Python frontends.

Owns: `Value`, `ValueSource`, the source of the values that are of no particular class, and `recording`, what sources of values have in
common: the operations recorded since the last barrier, and when the trace is cut.
May import `trace`, `ir`, `backend`, `barrier`, `cutting`, `native`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, ClassVar, Protocol, TypeGuard

import numpy as np

from . import backend, native, trace
from .barrier import Failed, flush
from .cutting import Cutter
from .errors import LazyError
from .ir import Expr, Leaf, ScalarLeaf
from .shape import Shape

_trace = trace.current()
_lock = _trace.lock


class Value:
    """A promise of a tensor value.

    Attributes:
        shape: dimensions and dtype, known without a barrier.
        expr: the expression in the current trace, or None if this trace has not used the value yet.
        array: the backend's array, or None while the value is pending.
        source: who is asked for it at a barrier.
    """

    __slots__ = ("__weakref__", "array", "expr", "shape")
    __lazy_value__ = True

    shape: Shape
    expr: Expr | None
    array: Any
    source: ClassVar[ValueSource]

    @property
    def pending(self) -> bool:
        """Whether the value has not been handed to the device yet."""
        return self.array is None

    def __repr__(self) -> str:
        return f"Value({self.shape}, {'pending' if self.array is None else 'materialised'})"


class _ForeignError(Exception):
    """A graph reads a buffer that no Python frontend holds."""


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


class Recording:
    """What Python frontends have recorded since the last barrier, whoever holds the values.

    Attributes:
        log: the targets, in order.
        cutter: finds where loops' bodies end.
        cut_at: the length of the log at which `cut_if_due` is to be called.
        token: replaced when a barrier begins (None) and when it ends.
        followers: who must know when traces end.
        cutting: whether the trace is being run because a loop's body has ended.
        sources: who holds the values.
    """

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.cutter = Cutter()
        self.cut_at = self.cutter.cut_at
        self.token: object | None = object()
        self.followers: list[Follower] = []
        self.cutting = False
        self.sources: list[ValueSource] = []
        self._last: ValueSource | None = None  # of those that take part in the barrier
        self._recorded_before = 0

    @property
    def recorded(self) -> int:
        """How many operations have been recorded in all."""
        return self._recorded_before + len(self.log)

    def begin(self, source: ValueSource) -> None:
        """A barrier asks a source for what is live; the first one is asked first."""
        if source is self.sources[0]:
            self.token = None
            self._last = self.sources[-1]
            for follower in self.followers:
                follower.flushing()

    def end(self, source: ValueSource) -> None:
        """A source holds what the barrier gave it: the trace begins anew when the last one does."""
        if source is not self._last:
            return
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
            for source in self.sources:
                source.forget_leaves()
            self._restart()

    def cut_if_due(self) -> None:
        """Called when the log has reached `cut_at`: cut the trace if a boundary of the loop has been reached."""
        with _lock:
            if not self.log:
                self.cut_at = self.cutter.cut_at
            elif self.cutter.due(self.log, sum([len(source.held) for source in self.sources])):
                self.cutting = True
                try:
                    flush("the end of a loop's body, found by its period")
                finally:
                    self.cutting = False
            else:
                self.cut_at = self.cutter.cut_at


recording = Recording()


class ValueSource:
    """The source of the values of one class (see `trace.Source`).

    Args:
        kind: the class: `Value`, or one that a frontend derives from it to have a source of its own.
        exact: whether programs that read or give such values are computed as they stand, for a library whose rounding is part of its
            contract.

    Attributes:
        held: weak references to the live values in creation order, each with a callback that takes it out.
    """

    name = "values"

    def __init__(self, kind: type[Value], exact: bool = False) -> None:
        kind.source = self
        self.exact = exact
        # A built-in callback takes a reference out: no Python code runs when a value dies.
        self.held: dict[weakref.ref[Value], None] = {}
        self._leaves: list[Value] = []
        self._holders: list[Value] = []
        self._scalars: tuple[list[float], list[int], list[complex]] = ([], [], [])
        with _lock:
            self.index = _trace.add_source(self)
            recording.sources.append(self)

    def live(self) -> list[Expr]:
        """See `trace.Source.live`."""
        recording.begin(self)
        if not self.held:
            return []
        holders = [ref() for ref in list(self.held)]
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
            found = dict(zip(distinct, native.evaluate(distinct, _host_leaf, _number), strict=True))
        except _ForeignError:
            return None
        return [buffer(e) if isinstance(e, Leaf) else found[e] for e in wanted]

    def settled(self, native: bool) -> None:
        """See `trace.Source.settled`."""

    def reopened(self) -> None:
        """See `trace.Source.reopened`."""

    def postponed(self) -> None:
        """See `trace.Source.postponed`."""

    def try_natively(self, seconds: float) -> bool:
        """See `trace.Source.try_natively`."""
        return False

    def tried(self) -> float | None:
        """See `trace.Source.tried`."""
        return None

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
        if arrays:
            for holder, array in zip(self._holders, arrays, strict=True):
                holder.array = array
                holder.expr = None
            self._holders = []
        self.held.clear()
        self.forget_leaves()
        recording.end(self)

    def forget_leaves(self) -> None:
        """Leaves and scalars have no slots any more."""
        if self._leaves:
            for leaf in self._leaves:
                leaf.expr = None
            self._leaves = []
        self._scalars = ([], [], [])

    def abort(self) -> None:
        """See `trace.Source.abort`."""
        self._holders = []
        recording.token = object()

    def counters(self) -> dict[str, int]:
        """See `trace.Source.counters`."""
        return {"recorded": recording.recorded} if self is source else {}

    def evict(self) -> None:
        """See `trace.Source.evict`; values cache no expressions between traces."""
        if self is source:
            for follower in recording.followers:
                follower.evicted()

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


def _source_of(leaf: Leaf | ScalarLeaf) -> ValueSource:
    found = _trace.sources[leaf.source]
    if not isinstance(found, ValueSource):
        raise _ForeignError
    return found


def buffer(leaf: Leaf) -> Any:
    """The array that a leaf of the current trace names."""
    return _source_of(leaf)._leaves[leaf.slot].array


def is_held(expr: Expr) -> TypeGuard[Leaf]:
    """Whether an expression is a buffer that some Python frontend holds."""
    return isinstance(expr, Leaf) and isinstance(_trace.sources[expr.source], ValueSource)


def _host_leaf(leaf: Leaf) -> np.ndarray:
    array = buffer(leaf)
    if array.__class__ is Failed:
        raise array.error
    return backend.to_host(array)


def _number(scalar: ScalarLeaf) -> Any:
    return _source_of(scalar)._scalars["fic".index(scalar.kind)][scalar.slot]


source = ValueSource(Value)
