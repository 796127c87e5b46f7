"""The core operations: one file a family, one function an operation.

Every operation of the registry is an attribute of this package under its registered name: `ops.add`, `ops.sum`, `ops.slice`.
See `registry.Op` for what calling one does, and `docs/add-an-op.md` for how to write one.
"""

from __future__ import annotations

import importlib

from . import dims, registry
from .registry import REGISTRY, Composite, Op, Sample, composite, op

FAMILIES = (
    "arithmetic",
    "binary",
    "compare",
    "convolution",
    "creation",
    "ctc",
    "cumulative",
    "elementwise_unary",
    "fourier",
    "indefinite",
    "indexing",
    "linalg",
    "matrices",
    "nn",
    "pooling",
    "random",
    "reductions",
    "shapes",
    "sorting",
    "special",
    "strided",
)

for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}")

dims.install()

__all__ = ["FAMILIES", "REGISTRY", "Composite", "Op", "Sample", "composite", "op", "registry"]

slice_ = REGISTRY["slice"]


def __getattr__(name: str) -> Op:
    found = REGISTRY.get(name)
    if found is None:
        raise AttributeError(f"there is no operation {name!r}; lazy_core.ops.REGISTRY has them all")
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *REGISTRY])


globals().update({name: found for name, found in REGISTRY.items() if name not in globals()})
