"""The device's callbacks, as TensorFlow calls them: through the extension, or through ctypes where there is none.

Owns: `install`, which registers a device whose operations `dispatch` runs, and the table from handles to entries of the ctypes route.
`csrc/device.cpp` is the other route; both do the same.  May import `capi`, `tensor`, `stepping`, `dispatch` and the core.

The callbacks run inside TensorFlow, so no exception may leave them: each becomes a status, which TensorFlow raises as its own exception.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from lazy_core import trace, values

from . import capi, dispatch, fallback, source, twins
from .mapping.variables import step_may_end
from .stepping import stepper
from .tensor import EXTENSION, Bundle, Foreign, Tensor, Variable, device_tensor, live_table


def fail(status: int, error: BaseException) -> None:
    """Hand an exception to TensorFlow."""
    if isinstance(error, KeyboardInterrupt):
        capi.set_status(status, capi.CANCELLED, b"interrupted")
        error.__traceback__ = None  # frees what the frames hold, so that no destructor meets the next interrupt
        capi.interrupt_later()
        return
    code, message = dispatch.status_of(error)
    capi.set_status(status, code, message.encode(errors="replace"))


def copied_to(handle: int) -> Tensor:
    """The entry for a CPU handle that is moved to the device.

    Raises:
        StatusError: the device cannot hold it.
    """
    dtype = capi.handle_dtype(handle)
    if dtype not in capi.NUMPY_DTYPES:
        name = tf.dtypes.as_dtype(dtype).name
        message = f"the lazy device cannot hold tensors of dtype {name}; keep them on the CPU: with tf.device('CPU:0')"
        raise capi.StatusError(capi.UNIMPLEMENTED, message)
    if EXTENSION is None:
        return device_tensor(capi.handle_array(handle), dtype)
    made: Tensor = EXTENSION.of_handle(capi.copy_handle(handle))
    return made


def copied_from(entry: Tensor | Variable | Bundle) -> int:
    """A CPU handle with the contents of an entry; the caller owns it.

    Raises:
        StatusError: it is a variable.
    """
    if isinstance(entry, Variable):
        message = f"variable {entry.name!r} lives on the lazy device and cannot be handed to another; use its value"
        raise capi.StatusError(capi.UNIMPLEMENTED, message)
    if isinstance(entry, Bundle):
        return fallback.bundle_handle(entry)
    return capi.array_handle(host_contents(entry), entry.dtype)


def host_contents(tensor: Tensor) -> np.ndarray:
    """The contents of a tensor as the dtype that TensorFlow was promised."""
    array = tensor.numpy()
    expected = capi.NUMPY_DTYPES[tensor.dtype]
    if array.dtype != expected or array.shape != tensor.dims:
        raise TypeError(f"a lowering gave {array.dtype}{list(array.shape)} where TensorFlow expects {expected}{list(tensor.dims)}")
    return array


def install(device: str) -> None:
    """Register a device of this name with TensorFlow's eager context."""
    if EXTENSION is None:
        capi.register_device(device, *_ctypes_callbacks(device))
    else:
        EXTENSION.configure(_hooks())
        capi.register_capsules(device, *EXTENSION.device_capsules(device))


def _hooks() -> dict[str, Any]:
    """What the extension calls (see `csrc/device.h`)."""
    follower = source.install()
    return {
        # (name) -> see `dispatch.resolve`; (info, blob), (info, dtypes) -> signature; (signature) -> see `dispatch.describe`
        "resolve": dispatch.resolve,
        "by_blob": lambda info, blob: info.by_blob(blob),
        "by_dtypes": lambda info, dtypes: info.by_dtypes(dtypes),
        "describe": dispatch.describe,
        # (signature, inputs) -> outputs or None
        "fold": dispatch.fold,
        # (info, signature, inputs) -> outputs; (signature, inputs) -> Attrs; (target, operands, Attrs) -> value or values
        "run": lambda info, signature, inputs: info.handler(signature, inputs),
        "attributes": dispatch.attributes,
        "record": values.record,
        # entries and handles: (handle, status) -> entry; entry -> handle or array; handle -> entry
        "outside": dispatch.outside,
        "take": Foreign.take,
        "host_of": Tensor.numpy,
        "foreign": lambda handle: Foreign(handle, owned=True),
        "copy_to": copied_to,
        "copy_from": copied_from,
        "bundle": fallback.bundle_handle,
        "shadow": twins.lend,
        "refresh": twins.take_back,
        # (status, exception) -> None; (status) raises what it says
        "fail": fail,
        "raise": capi.raise_status,
        # traces: (expression) -> array or None; (native) -> None; (seconds or None) -> bool; () -> None
        "leaf": source.leaf,
        "flush": source.end_trace,
        "may_learn": source.may_learn,
        "cut_if_due": follower.cut_if_due,
        # steps: an object whose `epoch` grows with every barrier; () -> None; (tensor) -> None
        "sites": trace.current().sites,
        "restart": stepper.restart,
        "watch": stepper.watch,
        "step_ended": step_may_end,
        # where interrupts are raised, and where not
        "main_thread": threading.main_thread().ident,
        "constructor": capi.CONSTRUCTOR,
        # NumPy's dtype by TensorFlow's enum, and the class of tensors
        "numbers": capi.NUMPY_DTYPES,
        "tensor": Tensor,
    }


# ------------------------------------------------------------------ the route through ctypes

# The key of a handle is what TensorFlow calls its device pointer.  For a CPU handle that is a real address, so ours start
# where no address of a user's process can lie.
_FIRST_KEY = 1 << 63
_next_key = itertools.count(_FIRST_KEY + 1).__next__


@capi.immortal
@capi.NUM_DIMS
def _num_dims(key: int, _status: int) -> int:
    return len(live_table[key].dims)


@capi.immortal
@capi.DIM
def _dim(key: int, index: int, _status: int) -> int:
    return live_table[key].dims[index]


@capi.immortal
@capi.DEALLOCATOR
def _deallocate(key: int, _pop: Any = live_table.pop) -> None:
    _pop(key, None)  # bound early: globals may be gone when the process ends


_METHODS = capi.handle_methods(_num_dims, _dim, _deallocate)


class Executor:
    """The body of the device's `execute` callback."""

    def __init__(self, device: str) -> None:
        self._device = device.encode()

    def handle(self, entry: Tensor | Variable | Bundle, status: int) -> int:
        """A handle that stands for this entry; the caller (TensorFlow) owns it."""
        key = _next_key()
        live_table[key] = entry
        made: int = capi.new_custom_handle(capi.eager_context(), self._device, entry.handle_dtype, key, _METHODS, status)
        return made

    def __call__(self, op: int, count: Any, outs: Any, status: int) -> None:
        """Run one `TFE_Op`, writing output handles."""
        stepper.count()
        info, fast = dispatch.known(capi.op_name(op, status))
        total = info.arity
        if total < 0:
            total = capi.op_input_count(op, status)
        inputs: list[Any] = []
        numbers, device = capi.NUMPY_DTYPES, self._device
        for i in range(total):
            handle = capi.op_input(op, i, status)
            # Asking a CPU handle of strings or resources for its address would abort the process.
            if capi.handle_dtype(handle) in numbers or capi.handle_device(handle, status) == device:
                entry = live_table.get(capi.handle_key(handle, status))
                inputs.append(entry if entry is not None else dispatch.outside(handle, status))
            else:
                inputs.append(Foreign(handle, owned=False))
        outputs = fast(inputs) if fast is not None else None
        if outputs is None:
            dtypes = tuple([e.dtype for e in inputs]) if info.follows else None
            signature = info.by_blob(capi.attributes_blob(op, status)) if dtypes is None else info.by_dtypes(dtypes)
            outputs = info.handler(signature, inputs)
        for i, output in enumerate(outputs):
            outs[i] = output.take() if output.__class__ is Foreign else self.handle(output, status)
        if info.op_def is None:
            count[0] = len(outputs)


def _ctypes_callbacks(device: str) -> tuple[Any, Any, Any]:
    execute_op = Executor(device)

    @capi.immortal
    @capi.EXECUTE
    def execute(op: int, count: Any, outs: Any, status: int, _info: int) -> None:
        try:
            execute_op(op, count, outs, status)
        except BaseException as error:
            fail(status, error)

    @capi.immortal
    @capi.COPY_TO
    def copy_to(_context: int, handle: int, status: int, _info: int) -> int | None:
        try:
            return execute_op.handle(copied_to(handle), status)
        except BaseException as error:
            fail(status, error)
            return None

    @capi.immortal
    @capi.COPY_FROM
    def copy_from(_context: int, handle: int, _target: bytes, status: int, _info: int) -> int | None:
        try:
            return copied_from(live_table[capi.handle_key(handle, status)])
        except BaseException as error:
            fail(status, error)
            return None

    return copy_to, copy_from, execute
