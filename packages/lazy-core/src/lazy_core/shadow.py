"""Shadow runs: what a compiled program computed is computed again by native kernels, and held against it.

Owns: which runs are chosen (`config.shadow`), keeping their inputs, and what is said of a difference.  Nothing here changes a result.  May
import `faults`, `rerun`, `tolerances`, `backend`, `events`, `config`.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import backend, events, faults, rerun
from .cache import Plan
from .config import config
from .rerun import Inputs
from .tolerances import Tolerance, difference


class ShadowWarning(UserWarning):
    """A compiled program gave something else than the native kernels."""


@dataclass
class _Known:
    """What was found out about a graph in earlier shadow runs.

    Attributes:
        said: what is wrong with it, and at which line, if something is.
        relative: for outputs that differ by rounding, the largest difference relative to the largest number.
        rounded: how often differences of such a size were found.
    """

    said: tuple[str, str | None] | None = None
    rounded: int = 0
    relative: dict[int, float] = field(default_factory=dict)


_MOST_KNOWN = 1024
_known: OrderedDict[Hashable, _Known] = OrderedDict()
# Runs of the trace that is being flushed: they are looked at when it is done.
held: list[tuple[Inputs, Sequence[Any]]] = []


def hold(plan: Plan, arguments: Sequence[Any], packed: Sequence[np.ndarray], donating: bool) -> Inputs | None:
    """Keep what goes into a program that is about to run, if this run of it is chosen; what it takes over is copied.

    Args:
        plan: what runs.
        arguments: the buffers that go in.
        packed: the run-time scalars.
        donating: whether the program takes over the plan's donated buffers.
    """
    turn, plan.turns = plan.turns, plan.turns + 1
    if plan.graph is None or turn % config.shadow:
        return None
    taken = set(plan.donated) if donating else set()
    arrays = [backend.copy(a) if place in taken else a for a, place in zip(arguments, plan.arguments, strict=True)]
    return Inputs(plan.graph, arrays, packed)


def ran(inputs: Inputs, outputs: Sequence[Any]) -> None:
    """The program ran; it is looked at in `tell`, when its results have reached those who hold them."""
    held.append((inputs, outputs))


def drop() -> None:
    """The barrier failed: nothing is looked at."""
    held.clear()


def tell() -> None:
    """Compare what was held since the last call.

    Raises:
        StrictError: something differs, and `strict` forbids that.
    """
    runs = held.copy()
    held.clear()
    for inputs, outputs in runs:
        found = check(inputs, [backend.to_host(a) for a in outputs])
        if found is not None:
            _say(*found)


def _say(text: str, site: str | None) -> None:
    events.count("shadow_differences")
    known = any(e.kind == "shadow" and e.cause == text for e in events.log)
    events.forbid("shadow", text, site)
    if known:
        return
    events.emit("shadow", text, site=site or "an unknown line")
    name, _, line = (site or "unknown:0").rpartition(":")
    warnings.warn_explicit(f"shadow run: {text}", ShadowWarning, name, int(line), registry={})


def check(inputs: Inputs, outputs: Sequence[np.ndarray]) -> tuple[str, str | None] | None:
    """What is wrong with the outputs of a program, and the line of the operation that is to blame; None if nothing is.

    Raises:
        ExecutionError: a native kernel failed.
    """
    graph = inputs.graph
    events.count("shadow_runs")
    known = _known.setdefault(graph.key, _Known())
    _known.move_to_end(graph.key)
    while len(_known) > _MOST_KNOWN:
        _known.popitem(last=False)
    expected = rerun.natively(graph.outputs, inputs)
    wrong = [k for k, fine in enumerate(faults.agree(graph, outputs, expected, config.shadow_tolerance)) if not fine]
    if not wrong or (known.said is None and _rounded(known, wrong, outputs, expected)):
        return None
    if known.said is None:
        known.said = _blame(inputs, outputs, expected, wrong)
    if known.said is None:  # rounding: the next run may differ by as much
        for k in wrong:
            scale = faults.scale_of(expected[k])
            off = faults.largest(outputs[k], expected[k])
            known.relative[k] = max(known.relative.get(k, 0.0), 2 * off / scale if scale else 0.0)
    return known.said


def _rounded(known: _Known, wrong: Sequence[int], outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Whether the outputs differ by no more than rounding did before; the 1st, 2nd, 4th, 8th... time it is looked into all the same."""
    if any(faults.largest(outputs[k], expected[k]) > known.relative.get(k, -1.0) * faults.scale_of(expected[k]) for k in wrong):
        return False
    known.rounded += 1
    return known.rounded.bit_count() != 1


def _blame(
    inputs: Inputs, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray], wrong: Sequence[int]
) -> tuple[str, str | None] | None:
    """Which operation makes outputs differ; None if rounding alone may."""
    graph = inputs.graph
    found = faults.guilty(graph, inputs, config.shadow_tolerance)
    if found:
        others = "".join([f"; so does {f.op} at {f.site or 'an unknown line'}" for f in found[1:]])
        return f"{found[0]}{others}", found[0].site
    roots = [graph.outputs[k] for k in wrong]
    fine = faults.explained(roots, inputs, [outputs[k] for k in wrong], [expected[k] for k in wrong])
    if all(fine):
        return None
    fault = faults.prefix(graph, inputs)
    if fault is not None:
        return str(fault), fault.site
    bad = wrong[fine.index(False)]
    off = difference(outputs[bad], expected[bad], Tolerance(0, 0, ""))
    node = graph.outputs[bad].node
    assert node is not None
    return f"the program that ran gives {off}, in the result of {node.op.name}; compiled anew it does not", node.site
