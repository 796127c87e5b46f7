"""The pending trace: interning, leaf slots, sources of live values, and the policy for scalars.

Owns: the table from keys to interned expressions, the epoch, the lock, and which scalar sites are fed at run time.  Holds
no buffers: those belong to the sources.  A trace belongs to the device, not to a thread; `lock` is held while recording on
a miss, and through a whole barrier. May import `ir`, `shape`, `errors`, `events`, `config`, `ops.registry`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

from . import events
from .config import config
from .errors import BarrierError, LazyError
from .ir import NO_ATTRS, Attrs, Expr, Leaf, Node, ScalarLeaf, hole
from .ops import registry
from .shape import Shape

Recorded = Expr | tuple[Expr, ...]


class Source(Protocol):
    """Whoever holds live values: a frontend's tensors.  It numbers its own leaf slots in the current trace."""

    name: str

    def live(self) -> list[Expr]:
        """Pending expressions in creation order, one per holder.  Until `finish` or `abort` the source must not record."""
        ...

    def leaves(self) -> list[Any]:
        """The backend arrays that this trace uses, by slot; those held in host memory are moved to the device first."""
        ...

    def donatable(self) -> list[bool]:
        """For each slot, whether nobody but this trace holds the buffer, so that an output may take its memory."""
        ...

    def native(self, wanted: Sequence[Expr]) -> list[Any] | None:
        """What `live()` returned, computed natively, in a form that `finish` takes; None if others' operations are needed for it."""
        ...

    def settled(self, native: bool) -> None:
        """The trace that is about to finish is known to run faster natively, or has run compiled, as it will again.

        A source may run traces that begin like one that is faster natively as they come, unless one that begins so runs compiled often.
        Where running the record takes less than that it may go on recording them.
        """
        ...

    def reopened(self) -> None:
        """The trace that is about to finish is measured again: the next such ones are to be recorded."""
        ...

    def postponed(self) -> None:
        """The trace that is about to finish runs natively until more programs are there: the next such ones may run as they come."""
        ...

    def try_natively(self, seconds: float) -> bool:
        """The next traces like the one that is about to finish run as they come, and are timed, for so long; False if no source's do."""
        ...

    def tried(self) -> float | None:
        """Of these the median round, from one's beginning to the next one's, in seconds; None if too few came."""
        ...

    def compiled(self) -> None:
        """What was being compiled in the background is there, and nothing is just now; called from any thread."""
        ...

    def scalars(self) -> tuple[list[float], list[int], list[complex]]:
        """The run-time scalars of this trace by slot, one list per kind (f, i, c)."""
        ...

    def finish(self, arrays: list[Any], epoch: int) -> None:
        """Holders, in `live()` order, now hold these arrays; slots restart, and the trace has this epoch."""
        ...

    def abort(self) -> None:
        """The barrier failed: everything stays pending."""
        ...

    def counters(self) -> dict[str, int]:
        """Counts to add to the report, such as {"recorded": n}."""
        ...

    def evict(self) -> None:
        """Forget every cached reference to expressions; none is pending when this is called."""
        ...


def asks_exactness(source: Source) -> bool:
    """Whether programs that read or give this source's values are to be computed as they stand: its attribute `exact`, if it has one."""
    return bool(getattr(source, "exact", False))


_VALUES_OF_A_KIND = 64


class Sites:
    """Which scalars are baked into the graph and which are fed at run time.

    A scalar is baked the first time.  If the same site (operation, inputs, static attributes) shows a new value in a later
    trace, it becomes a run-time input for good, so that a learning-rate schedule compiles at most twice; several values within
    one trace are so many constants.  Feeding one scalar changes the inputs of every site after it, so a site names its inputs by
    their skeletons, which scalars do not change.  An optimizer's second step has other inputs than its first (its state exists by
    then): hence a scalar is also lifted when its *kind* (operation, shapes, static attributes) shows a value in a later trace
    that it never showed before.
    """

    def __init__(self) -> None:
        self._first_epoch: dict[Hashable, int] = {}
        self._lifted: set[Hashable] = set()
        self._kinds: dict[Hashable, tuple[int, dict[Hashable, int]]] = {}
        self.epoch = 0

    def should_lift(self, site: Hashable, kind: Hashable = None, shown: Hashable = None) -> bool:
        """Say that a value not recorded before turned up at a site; returns whether it must be fed at run time.

        Args:
            site: operation, the inputs' skeletons and static attributes.
            kind: the same with shapes in place of the inputs; None for the rule of the site alone.
            shown: the value's bits.
        """
        by_site = site in self._lifted or self._first_epoch.setdefault(site, self.epoch) < self.epoch
        by_kind = False
        if kind is not None:
            first, known = self._kinds.setdefault(kind, (self.epoch, {}))
            seen = known.get(shown, self.epoch)
            if len(known) < _VALUES_OF_A_KIND:
                known.setdefault(shown, self.epoch)
            by_kind = seen == self.epoch and first < self.epoch
        if by_site or by_kind:
            self._lifted.add(site)
        return by_site or by_kind

    def clear(self) -> None:
        """Forget every site and kind."""
        self._first_epoch.clear()
        self._lifted.clear()
        self._kinds.clear()


class _Forbidden(threading.local):
    reason: str | None = None


class Trace:
    """The operations recorded since the last barrier, as a table of interned expressions."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.table: dict[Hashable, Recorded] = {}
        self._old: dict[Hashable, Recorded] = {}
        self.sources: list[Source] = []
        self._skeletons: dict[Hashable, tuple[Expr, ...]] = {}
        self.sites = Sites()
        self._size = 0  # of the table at the last barrier
        self._grown = 0  # how many barriers of this generation found new expressions
        self._forbidden = _Forbidden()

    # -------------------------------------------------------------- epochs and sources

    @property
    def epoch(self) -> int:
        """A number that grows at every barrier."""
        return self.sites.epoch

    def next_epoch(self) -> int:
        """Called by the barrier: the trace begins anew; returns its number."""
        self.sites.epoch += 1
        return self.sites.epoch

    def add_source(self, source: Source) -> int:
        """Register a holder of live values; returns the index that its leaves are named by."""
        with self.lock:
            self.sources.append(source)
            return len(self.sources) - 1

    def rotate_if_full(self) -> bool:
        """Called when nothing is pending: start a new generation of expressions when there are too many; returns whether it did.

        That is when the table is past its limit, or when as many traces brought something new as executables are kept: those whose
        expressions were not used since have lost their programs too.
        """
        self._grown += len(self.table) > self._size
        self._size = len(self.table)
        if self._size < config.max_exprs // 2 and self._grown < config.max_executables:
            return False
        self._size = self._grown = 0
        self._old = dict(self.table)
        self.table.clear()
        self._skeletons.clear()
        self.sites.clear()
        for source in self.sources:
            source.evict()
        return True

    # -------------------------------------------------------------- recording

    def record(self, target: Any, exprs: tuple[Expr, ...], attrs: Attrs = NO_ATTRS) -> Recorded:
        """The interned result of an operation or composite on these expressions; scalars among them are baked.

        Raises:
            ShapeError, DtypeError: the operands do not fit.
        """
        found = self.table.get((target, attrs, *exprs))
        if found is None:
            with self.lock:
                found = self.miss(target, exprs, attrs)
        return found

    def miss(self, target: Any, exprs: tuple[Expr, ...], attrs: Attrs) -> Recorded:
        """Make and intern what `record` did not find."""
        key = (target, attrs, *exprs)
        found = self._old.get(key)
        if found is None:
            found = self._build(target, exprs, attrs)
        self.table[key] = found
        return found

    def _build(self, target: Any, exprs: tuple[Expr, ...], attrs: Attrs) -> Recorded:
        if isinstance(target, registry.Composite):
            with self.forbid_barrier(f"while recording {target.name}"):
                result = target.fn(*exprs, **attrs.kwargs)
            parts = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            if not all(isinstance(p, Expr) for p in parts):
                raise LazyError(f"composite {target.name} returned {result!r}; it must return expressions")
            return parts if isinstance(result, (tuple, list)) else parts[0]
        if target.rewrite is not None:
            better = target.rewrite(exprs, attrs)
            if isinstance(better, Expr):
                return better
            exprs = better
        shapes, multiple = target.infer(tuple([e.shape for e in exprs]), attrs)
        node = Node(target, exprs, attrs, events.user_site())
        node.outputs = tuple([Expr(shape, node, i) for i, shape in enumerate(shapes)])
        self._name_skeletons(node)
        return node.outputs if multiple else node.outputs[0]

    def _name_skeletons(self, node: Node) -> None:
        if node.op.name == "convert" and isinstance(node.inputs[0], ScalarLeaf):
            node.outputs[0].skeleton = hole(node.outputs[0].shape)  # a fed scalar of the dtype that a baked one would have
            return
        key = (node.op, node.attrs, *[e.skeleton for e in node.inputs])
        first = self._skeletons.setdefault(key, node.outputs)
        if len(first) == len(node.outputs):
            for expr, model in zip(node.outputs, first, strict=True):
                expr.skeleton = model.skeleton

    def leaf(self, source: int, slot: int, shape: Shape) -> Leaf:
        """The interned leaf of a source's slot."""
        return self._interned(Leaf, shape, source, slot)  # type: ignore[no-any-return]

    def scalar_leaf(self, source: int, kind: str, slot: int) -> ScalarLeaf:
        """The interned run-time scalar of a source: kind "f" (f64), "i" (s64) or "c" (c128)."""
        return self._interned(ScalarLeaf, source, kind, slot)  # type: ignore[no-any-return]

    def _interned(self, make: Any, *arguments: Any) -> Any:
        """What `make(*arguments)` gave the first time."""
        key = (make, *arguments)
        found = self.table.get(key)
        if found is None:
            found = self._old.get(key)
            found = self.table.setdefault(key, make(*arguments) if found is None else found)
        return found

    # -------------------------------------------------------------- where no barrier may run

    @contextlib.contextmanager
    def forbid_barrier(self, reason: str) -> Iterator[None]:
        """In this block and thread a barrier raises BarrierError with this reason."""
        before = self._forbidden.reason
        self._forbidden.reason = reason
        try:
            yield
        finally:
            self._forbidden.reason = before

    def check_barrier_allowed(self) -> None:
        """Raise BarrierError where `forbid_barrier` is in force."""
        if self._forbidden.reason is not None:
            raise BarrierError(
                f"a barrier (or a read of a pending value) cannot run {self._forbidden.reason}; read the value before, or after"
            )


_current = Trace()


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held the lock: in the child nobody does."""
    _current.lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def current() -> Trace:
    """The trace of the device."""
    return _current


registry.set_recorder(_current.record)
