"""What runs on TensorFlow's CPU kernels because it is not recorded; counted and named.

Owns: running one operation outside the trace, folding small host constants (which is no fallback, as nothing leaves the device for it),
and asking TensorFlow's own kernel for its error message.  May import `capi`, `attributes`, `tensor`, `twins` and the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazy_core import events

from . import capi, twins
from .attributes import Signature
from .tensor import EXTENSION, SMALL, Bundle, Entry, Foreign, Tensor, Variable, of_host

_INT32 = capi.TF_DTYPES[np.dtype(np.int32)]


def run(signature: Signature, inputs: Sequence[Entry], outputs: int, reason: str) -> list[Entry]:
    """Run an operation on the CPU and say so in the report.

    Args:
        signature: the operation and its attributes.
        inputs: lazy tensors are read (a barrier), for lazy variables their twins on the CPU stand in.
        outputs: how many outputs there are at most.
        reason: why the operation is not recorded.

    Raises:
        StatusError: TensorFlow's kernel refused.
    """
    events.fallback("tf", signature.info.name, reason)
    return [_to_device(r) for r in execute(signature, inputs, outputs)]


def _to_device(entry: Entry) -> Entry:
    """Numbers that a CPU kernel computed belong to the device again."""
    return cpu_tensor(entry) if isinstance(entry, Foreign) and entry.dtype in capi.NUMPY_DTYPES else entry


def cpu_tensor(entry: Foreign) -> Tensor:
    """A tensor with the contents of a CPU handle of numbers, whose memory it shares if it can."""
    if EXTENSION is None:
        return of_host(capi.handle_array(entry.handle), entry.dtype, foldable=False)
    made: Tensor = EXTENSION.of_handle(entry.take())
    return made


def execute(signature: Signature, inputs: Sequence[Entry], outputs: int) -> list[Entry]:
    """Run an operation on the CPU without counting it; outputs stay CPU handles."""
    temporary: list[int] = []
    lent: list[Variable] = []
    handles: list[int] = []
    changes = signature.info.changes
    try:
        for entry in inputs:
            if isinstance(entry, Foreign):
                handles.append(entry.handle)
            elif isinstance(entry, Variable):
                handles.append(twins.lend(entry, changes))
                if changes:
                    lent.append(entry)
            elif isinstance(entry, Tensor) and EXTENSION is not None:
                handles.append(EXTENSION.cpu_handle(entry))
            else:
                handle = bundle_handle(entry) if isinstance(entry, Bundle) else capi.array_handle(entry.numpy(), entry.dtype)
                temporary.append(handle)
                handles.append(handle)
        results = capi.execute_on_cpu(signature.info.name, signature.protos, handles, outputs)
        return [Foreign(h, owned=True) for h in results]
    finally:
        for variable in lent:
            twins.take_back(variable)
        for handle in temporary:
            capi.delete_handle(handle)


def bundle_handle(bundle: Bundle) -> int:
    """A CPU handle of a list or an optional, with copies of what it holds; the caller owns it."""
    held = [e for e in bundle.entries if e is not None]
    handles = [capi.array_handle(e.numpy(), e.dtype) if isinstance(e, Tensor) else bundle_handle(e) for e in held]
    try:
        if bundle.kind == "none":
            return capi.execute_on_cpu("OptionalNone", {}, [], 1)[0]
        if bundle.kind == "optional":
            listed = capi.AttrValue()
            listed.list.type.extend([e.handle_dtype for e in held])
            return capi.execute_on_cpu("OptionalFromValue", {"Toutput_types": listed}, handles, 1)[0]
        return _list_handle(bundle, handles)
    finally:
        for handle in handles:
            capi.delete_handle(handle)


def _list_handle(bundle: Bundle, handles: list[int]) -> int:
    known = bundle.element_dims
    dims = capi.array_handle(np.array(-1 if known is None else known, np.int32).reshape(() if known is None else (-1,)), _INT32)
    size = capi.array_handle(np.array(len(bundle.entries), np.int32), _INT32)
    attributes = {"element_dtype": capi.AttrValue(type=bundle.element_dtype)}
    made = capi.execute_on_cpu("TensorListReserve", {**attributes, "shape_type": capi.AttrValue(type=_INT32)}, [dims, size], 1)[0]
    rest = iter(handles)
    for position, entry in enumerate(bundle.entries):
        if entry is not None:
            index = capi.array_handle(np.array(position, np.int32), _INT32)
            before, made = made, capi.execute_on_cpu("TensorListSetItem", attributes, [made, index, next(rest)], 1)[0]
            capi.delete_handle(before)
            capi.delete_handle(index)
    capi.delete_handle(dims)
    capi.delete_handle(size)
    return made


_FOLD_ENTRIES = 8192
_folded: dict[Any, list[Entry] | None] = {}
_MISSING = object()


def foldable(inputs: Sequence[Any]) -> bool:
    """Whether there are inputs, and all are small tensors that the host knows from the program text or from shapes.

    Integers of any rank, and scalars of any dtype.
    """
    for entry in inputs:
        if entry.__class__ is not Tensor or not entry.foldable:
            return False
        host: Any = entry.host
        if host.ndim and (host.dtype.kind not in "iub" or host.size > SMALL):
            return False
    return len(inputs) > 0


def fold(signature: Signature, inputs: Sequence[Tensor]) -> list[Entry] | None:
    """Compute a small operation on host constants with TensorFlow's own kernel, remembered by the inputs' bits.

    Returns:
        The outputs, or None if they are not small.

    Raises:
        StatusError: TensorFlow's kernel refused.
    """
    key = (signature, tuple([t.bits() for t in inputs]))
    found: Any = _folded.get(key, _MISSING)
    if found is _MISSING:
        found = _small(execute(signature, inputs, len(signature.outputs)))
        if len(_folded) >= _FOLD_ENTRIES:
            _folded.clear()
        _folded[key] = found
    return None if found is None else list(found)


def _small(results: Sequence[Entry]) -> list[Entry] | None:
    tensors: list[Entry] = []
    for result in results:
        assert isinstance(result, Foreign)
        if result.dtype not in capi.NUMPY_DTYPES:
            return None
        array = capi.handle_array(result.handle)
        if array.size > SMALL:
            return None
        tensors.append(of_host(array, result.dtype))
    return tensors


def explain_refusal(signature: Signature, inputs: Sequence[Entry], statics: Sequence[int]) -> None:
    """Run an operation on zeros of the inputs' shapes, so that TensorFlow itself says what is wrong with them; returns if nothing is.

    Args:
        signature: the operation and its attributes.
        inputs: what it was given.
        statics: positions of inputs whose contents decide the output's shape; they keep their contents.

    Raises:
        StatusError: TensorFlow's kernel refused.
    """
    probe: list[Entry] = []
    for position, entry in enumerate(inputs):
        if isinstance(entry, Tensor) and entry.host is None and position not in statics:
            probe.append(of_host(np.zeros(entry.dims, capi.NUMPY_DTYPES[entry.dtype]), entry.dtype))
        elif isinstance(entry, (Variable, Bundle)):
            return
        else:
            probe.append(entry)
    execute(signature, probe, len(signature.outputs))
