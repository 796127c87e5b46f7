"""Which ATen operations are recorded, and how the others run: the table of docs/torch-coverage.md.

Owns: the page, made from torch's dispatcher and the registry of builders; a test holds the page in the repository against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

from . import composed, mapping
from .recipes import recipe_of

# What torch has for its own tests, or for data that does not exist on this device.
_NOT_OURS = tuple(
    "_test_ _foobar crow_indices ccol_indices col_indices row_indices _indices_copy indices_copy values_copy int4pack int8pack _4bit_ "
    "_coo_to_csr _csr_to_coo jagged coalesced per_channel _spdiags".split()
)
# They only change what a tensor says of its storage, or move bytes: written in C++ (csrc/storage.cpp).
_STORAGE = frozenset(
    "_copy_from _copy_from_and_resize _local_scalar_dense _reshape_alias alias as_strided copy_ empty empty_strided is_set_to resize_ set_ "
    "unfold view view_as_complex view_as_real".split()
)

# Where torch has an operation made of others.
_COMPOSED = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")

# What `nox -s opinfo` and `nox -s modules` found, with eight samples a test (two for most of float64): per cent of the tests that passed
# without a fallback.
_JUDGED = {
    "operators": {"float32": 98.2, "float64": 98.2, "int64": 97.6, "bool": 97.1, "complex64": 97.9},
    "modules": {"float32": 100.0, "float64": 100.0},
}


def overloads() -> list[str]:
    """Every overload that has a kernel on the device, such as "add.Tensor"."""
    names = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    ours = (name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1"))
    return sorted(name for name in ours if not any(part in name for part in _NOT_OURS))


def _plain(name: str) -> str:
    """The operation of an overload: in-place variants belong to it."""
    base = name.partition(".")[0]
    return base if base.startswith("__") else base.rstrip("_") or base


def _forms(names: Iterable[str]) -> str:
    """Which forms of an operation there are, in words."""
    found = set()
    for name in names:
        base, _, overload = name.partition(".")
        written = [
            a for a in torch._C._get_schema(f"aten::{base}", overload).arguments if a.alias_info is not None and a.alias_info.is_write
        ]
        found.add("plain" if not written else "`out=`" if all(a.kwarg_only for a in written) else "in place")
    return ", ".join(form for form in ("plain", "in place", "`out=`") if form in found)


def sort_out() -> tuple[dict[str, dict[str, list[str]]], dict[str, dict[str, list[str]]]]:
    """(recorded: family -> operation -> overloads; not recorded: "storage", "composed" or "cpu" -> operation -> overloads)."""
    mapping.load()
    recorded: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    rest: dict[str, dict[str, list[str]]] = {kind: defaultdict(list) for kind in ("storage", "composed", "cpu")}
    for name in overloads():
        recipe = recipe_of(name)
        if recipe is not None:
            family = recipe.builder.fn.__module__.rpartition(".")[2]
            recorded[family][_plain(name)].append(name)
        elif name.partition(".")[0] in _STORAGE:
            rest["storage"][_plain(name)].append(name)
        elif name in composed.names() or any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key) for key in _COMPOSED):
            rest["composed"][_plain(name)].append(name)
        else:
            rest["cpu"][_plain(name)].append(name)
    return recorded, rest


def _count(found: Iterable[dict[str, list[str]]]) -> int:
    return sum(len(names) for operations in found for names in operations.values())


def _list(operations: dict[str, list[str]]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(operations))


def _judged() -> list[str]:
    lines = [
        "## Judged",
        "",
        "torch's own databases of operators and modules, values and gradients against the CPU's, everything compiled. A test passes if it "
        "gives what the CPU gives and nothing fell back. `nox -s opinfo -- --dtypes float64` judges one dtype, `nox -s modules` the "
        "modules; what does not pass stands with its reason in [gaps.toml](../packages/lazy-torch/judges/gaps.toml).",
        "",
        "| database | dtype | passed |",
        "|---|---|---:|",
    ]
    lines += [f"| {database} | {dtype} | {share:.1f}% |" for database, shares in _JUDGED.items() for dtype, share in shares.items()]
    return [*lines, ""]


def page() -> str:
    """The page, in Markdown."""
    recorded, rest = sort_out()
    total = _count(recorded.values()) + _count(rest.values())
    lines = [
        "# What lazy-torch covers",
        "",
        f"Made by `python -m lazy_torch coverage` from the dispatcher of torch {torch.__version__.partition('+')[0]} and the registry of "
        f"builders. Of {total} overloads that reach the device:",
        "",
        "| how they run | overloads | operations |",
        "|---|---:|---:|",
    ]
    rows = (
        ("recorded, and compiled with what is around them", recorded.values()),
        ("in C++ on a tensor's sizes, strides and storage", (rest["storage"],)),
        ("composed by torch, or here, of operations that are", (rest["composed"],)),
        ("by the CPU's kernel, counted and named as a fallback where a trace is compiled", (rest["cpu"],)),
    )
    lines += [f"| {text} | {_count(found)} | {sum(map(len, found))} |" for text, found in rows]
    lines += [
        "",
        "Everything else that torch offers, thousands of functions and methods, torch itself composes of these before they reach a device. "
        "Natively each of them runs by the CPU's own kernel.",
        "",
        *_judged(),
    ]
    for family, operations in sorted(recorded.items()):
        lines += [f"## Recorded: {family.replace('_', ' ')}", "", "| operation | overloads | forms |", "|---|---:|---|"]
        lines += [f"| `{name}` | {len(names)} | {_forms(names)} |" for name, names in sorted(operations.items())]
        lines.append("")
    lines += ["## Sizes, strides and storage", "", _list(rest["storage"]), ""]
    lines += ["## Composed", "", _list(rest["composed"]), ""]
    by_cpu = ", ".join(f"`{name}`" for names in rest["cpu"].values() for name in names)
    lines += ["## By the CPU's kernel", "", by_cpu, ""]
    lines += [
        "The sizes of some of these results depend on values (`nonzero`, `masked_select`, `_unique2`); the others await a lowering.",
        "",
    ]
    return "\n".join(lines)
