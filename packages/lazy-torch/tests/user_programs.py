"""Small programs as users write them, and how one is judged: it runs on the CPU and on the lazy device, and what it returns must be equal.

A program takes a device's name and returns tensors, numbers, strings or nests of these. Random numbers are drawn on the CPU and moved,
since the streams of devices differ. `may_fall_back` names the operations that have no lowering because their result's shape depends on
values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

import lazy_core


@dataclass(frozen=True)
class Program:
    run: Callable[[str], Any]
    may_fall_back: tuple[str, ...] = ()
    tolerance: dict[str, float] = field(default_factory=dict)


PROGRAMS: dict[str, Program] = {}


def program(*, may_fall_back: tuple[str, ...] = (), **tolerance: float) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    def register(run: Callable[[str], Any]) -> Callable[[str], Any]:
        PROGRAMS[run.__name__] = Program(run, may_fall_back, tolerance)
        return run

    return register


# Products of a few dozen terms, summed in another order and carried through some steps of training.
TRAINING = {"rtol": 1e-3, "atol": 1e-5}


def equal(found: Any, expected: Any, **tolerance: float) -> None:
    """Tensors are close and of one dtype, numbers are close, and everything else is equal."""
    (a, shape), (b, other) = tree_flatten(found), tree_flatten(expected)
    assert shape == other
    for x, y in zip(a, b, strict=True):
        if isinstance(y, Tensor):
            torch.testing.assert_close(x.detach().cpu(), y.detach(), equal_nan=True, **tolerance)
        elif isinstance(y, float):
            assert x == pytest.approx(y, rel=tolerance.get("rtol", 1e-6))
        else:
            assert x == y


def fallbacks() -> set[str]:
    """The names of the operations that ran on the CPU since the report was last reset."""
    return {e.cause.split("aten::")[-1].split(":")[0].split(".")[0] for e in lazy_core.report().events if e.kind == "fallback"}


def judge(chosen: Program) -> None:
    """Run a program on both devices.

    Raises:
        AssertionError: the results differ, or something fell back that has a lowering.
    """
    expected = chosen.run("cpu")
    lazy_core.reset_report()
    equal(chosen.run("lazy"), expected, **chosen.tolerance)
    assert fallbacks() <= set(chosen.may_fall_back)
