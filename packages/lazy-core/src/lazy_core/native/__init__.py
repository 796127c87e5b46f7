"""The native tier: a recorded graph run by NumPy, node by node, without compiling it.

Owns: the interpreter and one NumPy kernel for nearly every core operation, a file a family as in `ops`.  What has no kernel is run by XLA,
one operation at a time (`backend.op_by_op`).  Results have the dtypes, dims and meaning that operations declare, whichever tier computes
them; floats may differ within the operation's tolerance.  May import `ops`, `ir`, `shape`, `backend`, `errors`; never `barrier`, `plans` or
`values`.
"""

from __future__ import annotations

import importlib

from .interpreter import Schedule, evaluate
from .registry import kernels
from .stepping import Step, run_node, steps

for _family in (
    "binary",
    "compare",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "linalg",
    "matrices",
    "pooling",
    "random",
    "reductions",
    "scipy_special",
    "shapes",
    "sorting",
    "strided",
):
    importlib.import_module(f"{__name__}.{_family}")

__all__ = ["Schedule", "Step", "evaluate", "kernels", "run_node", "steps"]
