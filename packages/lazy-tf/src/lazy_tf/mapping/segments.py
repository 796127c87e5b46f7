"""Segments of rows whose ids are sorted: how many there are follows from the last id, so the host must know it.

Owns: handlers of `Segment*`, which become `UnsortedSegment*` where the ids are host constants, and run on the CPU where they are not.
Source: `segment_reduction_ops_impl.h`.  May import `capi`, `attributes`, `fallback`, `functions`, `tensor`, `host`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import capi, fallback, functions
from ..attributes import Signature, op_info
from ..tensor import Entry, Tensor, of_host
from .host import special

_INT32 = capi.TF_DTYPES[np.dtype(np.int32)]


def _apply(name: str, inputs: list[Any], **attributes: Any) -> list[Any]:
    assert functions.apply is not None
    info = op_info(name)
    return functions.apply(info, info.by_protos(attributes), inputs)


@special("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def _segments(signature: Signature, inputs: list[Any]) -> list[Entry]:
    data, ids = inputs
    known = ids.host if ids.__class__ is Tensor else None
    if data.__class__ is not Tensor or known is None or known.ndim != 1 or not known.size or data.dims[:1] != known.shape:
        return fallback.run(signature, inputs, 1, "the number of segments depends on the contents of the ids")
    if (np.diff(known) < 0).any() or known[0] < 0:
        return fallback.execute(signature, inputs, 1)  # raises
    kind = signature.info.name.removeprefix("Segment")
    count = of_host(np.array(known[-1] + 1, np.int32), _INT32)
    types = {"T": signature.protos["T"], "Tindices": signature.protos["Tindices"], "Tnumsegments": capi.AttrValue(type=_INT32)}
    made: list[Entry] = _apply(f"UnsortedSegment{'Sum' if kind == 'Mean' else kind}", [data, ids, count], **types)
    if kind == "Mean":
        sizes = np.maximum(np.bincount(known), 1).astype(capi.NUMPY_DTYPES[data.dtype]).reshape(-1, *[1] * (len(data.dims) - 1))
        return _apply("RealDiv", [made[0], of_host(sizes, data.dtype)], T=signature.protos["T"])
    missing = np.setdiff1d(np.arange(known[-1] + 1), known)
    if missing.size and kind in ("Max", "Min"):  # an empty segment gives 0, where the unsorted operation gives the extreme number
        return fallback.run(signature, inputs, 1, "a segment is empty")
    return made
