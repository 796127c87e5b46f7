"""Errors that depend on contents, raised while recording where the host happens to know the contents.

Indices that only the device knows are clamped to their range, and `guards` notes that they were outside.  May import `capi`, `attributes`,
`tensor`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import capi
from ..attributes import Signature

CHECKS: dict[str, Callable[[Signature, list[Any]], None]] = {}


def _inside(indices: Any, size: int) -> None:
    known = indices.host
    if known is None:
        return
    outside = (known < 0) | (known >= size)
    if outside.any():
        place = tuple(np.argwhere(outside)[0].tolist())
        where = f"[{','.join(map(str, place))}]" if place else ""
        raise capi.StatusError(capi.INVALID_ARGUMENT, f"indices{where} = {known[place]} is not in [0, {size})")


def _gather(signature: Signature, inputs: list[Any]) -> None:
    axis = 0
    if len(inputs) > 2:
        axis = inputs[2].static()
        axis = axis[0] if isinstance(axis, tuple) else axis
    elif signature.info.name == "ResourceGather":
        axis = signature.values["batch_dims"]
    dims = inputs[0].dims
    if -len(dims) <= axis < len(dims):
        others = (*dims[:axis], *dims[axis % len(dims) + 1 :])
        if 0 not in others or signature.info.name == "ResourceGather":  # of nothing, the other kernels look at nothing
            _inside(inputs[1], dims[axis])


for _name in ("GatherV2", "Gather", "ResourceGather"):
    CHECKS[_name] = _gather
