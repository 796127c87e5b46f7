"""The inputs of traces: of those that ran, where the user wants them kept, and of the pending one.

Owns: `Kept`, the latest of them (`config.keep_traces`), and `watchers`, who are handed each trace that runs.  Holding a buffer keeps any
program from taking it over.  May import `rerun`, `lowering`, `trace`, `config`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import lowering, trace
from .config import config
from .errors import LazyError
from .ir import Expr, Leaf
from .rerun import VECTOR_DTYPES, Inputs
from .trace import Source


class Kept:
    """A trace: what it computes, from what, and what came out.

    Attributes:
        inputs: the graph of everything live, and the buffers and numbers that it reads.
        live: the live expressions.
        results: the arrays that they became, in the form in which their holders have them; None before the run and after a failure.
        cause: why it ran.
        error: how it failed, or None.
    """

    def __init__(self, live: Sequence[Expr], sources: Sequence[Source], cause: str, exact: bool = False) -> None:
        self.live = tuple(live)
        self.cause = cause
        self.error: str | None = None
        roots = list(dict.fromkeys([e for e in live if e.node is not None]))
        graph = lowering.linearise(roots, exact)
        leaves = [source.leaves() for source in sources]
        scalars = [source.scalars() for source in sources]
        arrays = [leaves[leaf.source][leaf.slot] for leaf in graph.leaves]
        for array in arrays:
            error = getattr(array, "error", None)
            if error is not None:
                raise error
        packed = [
            np.array([scalars[s.source][kind][s.slot] for s in group], VECTOR_DTYPES[kind])
            for kind, group in enumerate(graph.scalars)
            if group
        ]
        self.inputs = Inputs(graph, arrays, packed)
        self.results: list[Any] | None = None

    @property
    def graph(self) -> lowering.Graph:
        """What is computed."""
        return self.inputs.graph

    def expression_of(self, array: Any) -> Expr | None:
        """The expression that became this array."""
        return next((e for e, a in zip(self.live, self.results or (), strict=False) if a is array), None)


_kept: collections.deque[Kept] = collections.deque()
watchers: list[Callable[[Kept], None]] = []


def kept() -> list[Kept]:
    """The traces that are kept, the latest first."""
    _forget()
    return list(reversed(_kept))


def _forget() -> None:
    while len(_kept) > config.keep_traces:
        _kept.popleft()


def begin(live: Sequence[Sequence[Expr]], sources: Sequence[Source], cause: str) -> Kept | None:
    """A trace is about to run; what goes in is kept.  None if nothing would run, or if it reads what an earlier failure left."""
    exprs = [e for part in live for e in part]
    if not any(e.node is not None for e in exprs):
        return None
    try:
        return Kept(exprs, sources, cause, lowering.gives_exact(live, sources))
    except LazyError:  # it reads what an earlier failure left: running it says so
        return None


def end(found: Kept, results: Sequence[Sequence[Any]], failure: LazyError | None) -> None:
    """It ran, or failed."""
    if failure is not None:
        found.error = str(failure)
    else:
        found.results = [a for part in results for a in part]
    if config.keep_traces:
        _kept.append(found)
    _forget()
    for watcher in list(watchers):
        watcher(found)


def pending(exprs: Sequence[Expr]) -> Kept:
    """Expressions of the current trace with what they read; nothing runs.

    Raises:
        ExecutionError: they read what an earlier failure left.
    """
    current = trace.current()
    with current.lock:
        return Kept([e for e in exprs if not isinstance(e, Leaf)], current.sources, "nothing yet: it is pending")
