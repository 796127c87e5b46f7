"""Operations that need no device: constants, shapes, identities, and the making of variables.

Owns: `SPECIAL`, handlers of `(signature, inputs) -> outputs`.  May import `capi`, `attributes`, `fallback`, `functions`, `tensor`,
`variables` and the core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .. import capi, exchange, fallback, functions
from ..attributes import Signature, op_info
from ..tensor import SMALL, Entry, Foreign, Tensor, Variable, device_tensor, of_host
from .variables import contents, fast

Handler = Callable[[Signature, "list[Any]"], "list[Entry]"]
SPECIAL: dict[str, Handler] = {}
_SCALAR_LIMIT = 16384
_scalars: dict[tuple[int, bytes], Tensor] = {}


def special(*names: str) -> Callable[[Handler], Handler]:
    """Declare the handler of operations that are not functions of arrays."""

    def declare(function: Handler) -> Handler:
        for name in names:
            SPECIAL[name] = function
        return function

    return declare


def known(array: np.ndarray, dtype: int) -> Tensor:
    """A constant of the program text: small ones stay on the host, and equal scalars are one object."""
    if array.ndim == 0:
        key = (dtype, array.tobytes())
        found = _scalars.get(key)
        if found is None:
            if len(_scalars) >= _SCALAR_LIMIT:
                _scalars.clear()
            found = _scalars[key] = of_host(array, dtype)
        return found
    return of_host(array, dtype) if array.size <= SMALL else device_tensor(array, dtype)


@fast("_EagerConst")
def _eager_const(inputs: list[Any]) -> list[Entry] | None:
    (entry,) = inputs
    if entry.__class__ is not Tensor:
        return [entry]
    if entry.host is None or entry.foldable:
        return [entry]
    return [known(entry.host, entry.dtype)]


@special("Const")
def _const(signature: Signature, inputs: list[Any]) -> list[Entry]:
    found: Entry | None = signature.cache.get("const")
    if found is None:
        value = signature.protos["value"].tensor
        if value.dtype in capi.NUMPY_DTYPES:
            found = known(tf.make_ndarray(value), value.dtype)
        else:
            (handle,) = capi.execute_on_cpu("Const", signature.protos, [], 1)
            found = Foreign(handle, owned=True)
        signature.cache["const"] = found
    if isinstance(found, Foreign):
        return [Foreign(capi.copy_handle(found.handle), owned=True)]
    return [found]


@special("Placeholder")
def _placeholder(signature: Signature, inputs: list[Any]) -> list[Entry]:
    entry = exchange.take()
    if entry is None:
        raise capi.StatusError(capi.INVALID_ARGUMENT, "You must feed a value for a placeholder: it cannot run on its own.")
    return [entry]


@fast("Snapshot")
def _snapshot(inputs: list[Any]) -> list[Entry] | None:
    exchange.deliver(inputs[0])
    return list(inputs)


@fast("Identity", "StopGradient", "PreventGradient", "IdentityN")
def _identity(inputs: list[Any]) -> list[Entry] | None:
    return list(inputs)


@special("EnsureShape")
def _ensure_shape(signature: Signature, inputs: list[Any]) -> list[Entry]:
    wanted = signature.values["shape"]
    dims = inputs[0].dims
    if wanted is not None and (len(wanted) != len(dims) or any(w not in (-1, d) for w, d in zip(wanted, dims, strict=True))):
        shape = tf.TensorShape(wanted)
        raise capi.StatusError(capi.INVALID_ARGUMENT, f"Shape of tensor {list(dims)} is not compatible with expected shape {shape}.")
    return [inputs[0]]


@special("NoOp", "ControlTrigger")
def _nothing(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return []


# ------------------------------------------------------------------ shapes


def dims_of(entry: Any) -> tuple[int, ...]:
    """The dimensions of any entry."""
    if entry.__class__ is Foreign:
        with capi.fresh_status() as status:
            return capi.handle_dims(entry.handle, status)
    if entry.__class__ is Variable:
        return entry.current.dims if entry.current is not None else entry.shape or ()
    dims: tuple[int, ...] = entry.dims
    return dims


_shape_constants: dict[Any, Tensor] = {}


def _shape_constant(value: Any, dtype: int) -> Tensor:
    key = (value, dtype)
    found = _shape_constants.get(key)
    if found is None:
        if len(_shape_constants) >= _SCALAR_LIMIT:
            _shape_constants.clear()
        array = np.array(value, capi.NUMPY_DTYPES[dtype])
        found = _shape_constants[key] = of_host(array, dtype)
    return found


@special("Shape", "ShapeN", "VariableShape")
def _shape(signature: Signature, inputs: list[Any]) -> list[Entry]:
    dtype = signature.outputs[0]
    return [_shape_constant(dims_of(e), dtype) for e in inputs]


@special("Size")
def _size(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [_shape_constant(math.prod(dims_of(inputs[0])), signature.outputs[0])]


@special("Rank")
def _rank(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [_shape_constant(len(dims_of(inputs[0])), signature.outputs[0])]


# ------------------------------------------------------------------ variables


@special("VarHandleOp")
def _var_handle(signature: Signature, inputs: list[Any]) -> list[Entry]:
    proto = signature.protos["dtype"].type
    if proto not in capi.NUMPY_DTYPES:
        (handle,) = capi.execute_on_cpu("VarHandleOp", signature.protos, [], 1)
        return [Foreign(handle, owned=True)]
    return [Variable(proto, signature.values["shape"], signature.values["shared_name"])]


@special("ResourceStridedSliceAssign")
def _sliced_assign(signature: Signature, inputs: list[Any]) -> list[Entry]:
    variable, value = inputs[0], inputs[-1]
    if variable.__class__ is not Variable or value.__class__ is not Tensor:
        return fallback.run(signature, inputs, 0, "a variable lives on the CPU")
    assert functions.apply is not None
    info = op_info("TensorStridedSliceUpdate")
    protos = {name: proto for name, proto in signature.protos.items() if name != "container"}
    (after,) = functions.apply(info, info.by_protos(protos), [contents(variable), *inputs[1:]])
    assert isinstance(after, Tensor)
    variable.assign(after)
    return []
