"""The lazy device: a TensorFlow custom device whose callbacks record.

Owns: registration with the eager context, the three device callbacks, and what users call: `DEVICE`, `device()`, `enable()`.  May import
`capi`, `tensor`, `dispatch`, `fallback` and the core.  Follows TensorFlow's `c_api_experimental.h` (TFE_RegisterCustomDevice).

The callbacks run inside TensorFlow, so no exception may leave them: each becomes a status, which TensorFlow raises as its own exception.
"""

from __future__ import annotations

import _thread
import os
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from lazy_core import events

from . import capi, dispatch
from .tensor import TABLE, HandleMaker, Tensor, Variable, device_tensor

DEVICE = "/job:localhost/replica:0/task:0/device:LAZY:0"
"""The device's full name.

`tf.device(lazy_tf.DEVICE)` and `tf.device("/device:LAZY:0")` work once `device()` or `enable()` was called.
"""

events.hide_package(os.path.dirname(os.path.abspath(__file__)))

_execute_op = dispatch.Executor(DEVICE)
_new_handle = HandleMaker(DEVICE)


def _fail(status: int, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # raised anew as soon as TensorFlow has returned
    code, message = dispatch.status_of(error)
    capi.set_status(status, code, message.encode(errors="replace"))


@capi.immortal
@capi.EXECUTE
def _execute(op: int, count: Any, outs: Any, status: int, _info: int) -> None:
    try:
        _execute_op(op, count, outs, status)
    except BaseException as error:
        _fail(status, error)


@capi.immortal
@capi.COPY_TO
def _copy_to(_context: int, handle: int, status: int, _info: int) -> int | None:
    try:
        dtype = capi.handle_dtype(handle)
        if dtype not in capi.NUMPY_DTYPES:
            name = tf.dtypes.as_dtype(dtype).name
            message = f"the lazy device cannot hold tensors of dtype {name}; keep them on the CPU: with tf.device('CPU:0')"
            capi.set_status(status, capi.UNIMPLEMENTED, message.encode())
            return None
        return _new_handle(device_tensor(capi.handle_array(handle), dtype), status)
    except BaseException as error:
        _fail(status, error)
        return None


@capi.immortal
@capi.COPY_FROM
def _copy_from(_context: int, handle: int, _target: bytes, status: int, _info: int) -> int | None:
    try:
        entry = TABLE[capi.handle_key(handle, status)]
        if isinstance(entry, Variable):
            message = f"variable {entry.name!r} lives on the lazy device and cannot be handed to another; use its value"
            capi.set_status(status, capi.UNIMPLEMENTED, message.encode())
            return None
        return capi.array_handle(host_contents(entry), entry.dtype)
    except BaseException as error:
        _fail(status, error)
        return None


def host_contents(tensor: Tensor) -> np.ndarray:
    """The contents of a tensor as the dtype that TensorFlow was promised."""
    array = tensor.numpy()
    expected = capi.NUMPY_DTYPES[tensor.dtype]
    if array.dtype != expected or array.shape != tensor.dims:
        raise TypeError(f"a lowering gave {array.dtype}{list(array.shape)} where TensorFlow expects {expected}{list(tensor.dims)}")
    return array


_registered: Any = None
_registration_lock = threading.Lock()


def register() -> None:
    """Register the device with TensorFlow's eager context; does nothing the second time, and starts anew after a context reset."""
    global _registered
    with _registration_lock:
        context = capi.context_object()
        if _registered is not context:
            capi.forget_context()
            capi.register_device(DEVICE, _copy_to, _copy_from, _execute)
            _registered = context


class device:
    """Place what TensorFlow runs inside the block on the lazy device: `with lazy_tf.device(): ...`.

    The scope belongs to the thread that enters it, as every `tf.device` scope does; operations on lazy tensors are recorded
    wherever they run.
    """

    def __init__(self) -> None:
        register()
        self._scope = tf.device(DEVICE)

    def __enter__(self) -> str:
        self._scope.__enter__()
        return DEVICE

    def __exit__(self, *exc: Any) -> None:
        self._scope.__exit__(*exc)


_process_scopes = threading.local()


def enable() -> None:
    """Make the lazy device the default of this thread for the rest of the program; `disable()` undoes it."""
    if getattr(_process_scopes, "scope", None) is None:
        scope = device()
        scope.__enter__()
        _process_scopes.scope = scope


def disable() -> None:
    """Undo `enable()` in this thread."""
    scope = getattr(_process_scopes, "scope", None)
    if scope is not None:
        _process_scopes.scope = None
        scope.__exit__(None, None, None)


def is_lazy(tensor: Any) -> bool:
    """Whether a TensorFlow tensor or variable lives on the lazy device."""
    return getattr(tensor, "device", "") == DEVICE
