"""TensorFlow's raw operations in terms of core operations, by family.

`RULES` holds lowerings (see `rules`), `FAST` handlers that need no attributes, `SPECIAL` handlers of operations that are not functions of
arrays.
"""

from __future__ import annotations

from . import arrays, conv, host, linalg, math, nn, random, reductions, slices
from .checks import CHECKS
from .rules import RULES, Rule
from .variables import FAST, UPDATES, contents

SPECIAL = {**host.SPECIAL, **random.STATEFUL}

_INPUT_PIPELINE = ("Dataset", "Iterator", "Optional")


def is_input_pipeline(name: str) -> bool:
    """Whether an operation belongs to `tf.data`, which stays on the CPU and is no fallback."""
    return any(part in name for part in _INPUT_PIPELINE)


__all__ = [
    "CHECKS",
    "FAST",
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
    "math",
    "nn",
    "random",
    "reductions",
    "slices",
]
