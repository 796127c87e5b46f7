"""TensorFlow's raw operations in terms of core operations, by family.

`RULES` holds lowerings (see `rules`), `FAST` handlers that need no attributes, `SPECIAL` handlers of operations that are not functions of
arrays.
"""

from __future__ import annotations

import functools

from . import arrays, conv, host, linalg, lists, math, nn, optimizers, random, reductions, segments, slices
from .checks import CHECKS
from .lists import add_lists, zeros_like
from .rules import RULES, Rule
from .variables import FAST, UPDATES, contents

SPECIAL = {**host.SPECIAL, **random.STATEFUL}

BUNDLES = {"AddN": lambda inputs: functools.reduce(add_lists, inputs), "ZerosLike": lambda inputs: zeros_like(inputs[0])}
"""What a few operations on numbers mean for bundles of them."""

DRAWS = frozenset(["RandomStandardNormal", "RandomUniform", "RandomUniformInt"])
"""Operations whose generators are ours on every tier: their handlers ask whether to record."""

ON_CPU = frozenset(n for n in SPECIAL if n.startswith(("TensorList", "Segment"))) | {"ResourceStridedSliceAssign", "RngReadAndSkip"}
"""Operations with a handler of their own that CPU kernels run while nothing is recorded."""

_INPUT_PIPELINE = ("Dataset", "Iterator", "Optional")


def is_input_pipeline(name: str) -> bool:
    """Whether an operation belongs to `tf.data`, which stays on the CPU and is no fallback."""
    return any(part in name for part in _INPUT_PIPELINE)


__all__ = [
    "BUNDLES",
    "CHECKS",
    "DRAWS",
    "FAST",
    "ON_CPU",
    "RULES",
    "SPECIAL",
    "UPDATES",
    "Rule",
    "arrays",
    "contents",
    "conv",
    "host",
    "is_input_pipeline",
    "linalg",
    "lists",
    "math",
    "nn",
    "optimizers",
    "random",
    "reductions",
    "segments",
    "slices",
]
