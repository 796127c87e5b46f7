"""Which of TensorFlow's operations run how on the lazy device: the page docs/tensorflow-coverage.md.

Owns: sorting every operation that this TensorFlow has a CPU kernel for, and the page.  May import `capi`, `mapping`, `functions` and
`call_tf`.
"""

from __future__ import annotations

import textwrap

import tensorflow as tf

from . import call_tf, capi, functions, mapping

GROUPS = {
    "recorded": "recorded by a lowering of its own on the core's operations",
    "host": "answered at once by what the device knows: shapes, variables, identities, lists, generators",
    "inlined": "control flow and calls of functions, inlined into the trace",
    "xla": "recorded as a whole, and lowered by XLA's own TensorFlow bridge, for the dtypes that it takes",
    "pipeline": "input pipelines (`tf.data`), which stay on the CPU and are no fallback",
    "fallback": "by the CPU's kernel, counted and named as a fallback where a trace is recorded",
}


def group_of(name: str) -> str:
    """The key in `GROUPS` of a raw operation."""
    if name in functions.CONTROL:
        return "inlined"
    if name in mapping.RULES or name in mapping.UPDATES or name in ("AssignAddVariableOp", "AssignSubVariableOp"):
        return "recorded"
    if name in mapping.FAST or name in mapping.SPECIAL:
        return "host"
    if mapping.is_input_pipeline(name):
        return "pipeline"
    return "xla" if call_tf.lowers(name) else "fallback"


def sort_out() -> dict[str, list[str]]:
    """For each group its operations, in order."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in capi.operations_with_kernels():
        found[group_of(name)].append(name)
    return found


def page() -> str:
    """The text of docs/tensorflow-coverage.md."""
    found = sort_out()
    total = sum(map(len, found.values()))
    lines = [
        "# What lazy-tf covers",
        "",
        f"Made by `python -m lazy_tf coverage` from the kernels of TensorFlow {tf.__version__} and the registry of lowerings.",
        f"Of {total} raw operations that have a kernel on the CPU:",
        "",
        "| how they run | operations |",
        "|---|---:|",
        *(f"| {what} | {len(found[group])} |" for group, what in GROUPS.items()),
        "",
        "Everything else that TensorFlow and Keras offer composes these.",
        "While nothing is known to repeat, each runs by TensorFlow's own kernel (see [tiers](tiers.md)).",
    ]
    for group, what in GROUPS.items():
        listed = ", ".join(f"`{name}`" for name in found[group])
        lines += ["", f"## {what[0].upper()}{what[1:]}", "", textwrap.fill(listed, 140, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"
