"""TensorFlow's C API and private Python modules: the only file that meets either.

Owns: finding and loading TensorFlow's shared libraries, the signatures of the functions used, the structs of the custom-device interface
(version 4, as in TensorFlow 2.18 to 2.21), and small helpers that turn C handles into Python data.  Sources:
`tensorflow/c/eager/c_api.h`, `c_api_experimental.h` and `tensorflow/c/c_api.h` of the installed wheel's include folder.

Getters that neither block nor run operations go through `ctypes.PyDLL`, which keeps the interpreter lock and is the faster; whatever may
run an operation goes through `ctypes.CDLL`.
"""

from __future__ import annotations

import ctypes as C
import functools
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        "lazy_tf needs TensorFlow, which it does not install by itself; install the build of your choice, "
        "such as tensorflow-cpu (pip install 'lazy-tf[cpu]')"
    ) from error
from tensorflow.core.framework import attr_value_pb2, op_def_pb2
from tensorflow.python.eager import context as tf_context
from tensorflow.python.eager import core as tf_core
from tensorflow.python.eager import record as tf_record
from tensorflow.python.eager.polymorphic_function import compiler_ir
from tensorflow.python.framework import errors_impl, op_def_registry
from tensorflow.python.framework import kernels as tf_kernels
from tensorflow.python.framework import ops as tf_ops

TESTED_VERSIONS = ((2, 18), (2, 21))
DEVICE_VERSION = 4

AttrValue = attr_value_pb2.AttrValue
NameAttrList = attr_value_pb2.NameAttrList
OpDef = op_def_pb2.OpDef


def check_version(version: str) -> None:
    """Refuse a TensorFlow without the custom-device interface that is used here; warn about one that was never tested.

    Raises:
        ImportError: the version is older than the oldest tested one.
    """
    major, minor = (int(p) for p in version.split(".")[:2])
    low, high = TESTED_VERSIONS
    if (major, minor) < low:
        raise ImportError(f"lazy_tf needs TensorFlow {low[0]}.{low[1]} or newer; {version} is installed")
    if (major, minor) > high:
        warnings.warn(f"lazy_tf was tested with TensorFlow up to {high[0]}.{high[1]}; {version} is installed", stacklevel=2)


check_version(tf.__version__)


def library_path(stem: str) -> str:
    """The path of one of TensorFlow's shared libraries, such as `libtensorflow_cc`.

    Raises:
        ImportError: the installed package does not hold it.
    """
    folder = os.path.dirname(tf.__file__)
    for suffix in (".so.2", ".2.dylib", ".so"):
        path = os.path.join(folder, stem + suffix)
        if os.path.exists(path):
            return path
    raise ImportError(
        f"TensorFlow {tf.__version__} in {folder} has no {stem}.so.2, through which lazy_tf registers its device; "
        "install TensorFlow from its own wheels (tensorflow or tensorflow-cpu), not a build that links everything statically"
    )


_CC, _FRAMEWORK = library_path("libtensorflow_cc"), library_path("libtensorflow_framework")
_cc, _framework, _cc_slow = C.PyDLL(_CC), C.PyDLL(_FRAMEWORK), C.CDLL(_CC)
_libc = C.CDLL(None)

Pointer = C.c_void_p

COPY_TO = C.CFUNCTYPE(Pointer, Pointer, Pointer, Pointer, Pointer)
COPY_FROM = C.CFUNCTYPE(Pointer, Pointer, Pointer, C.c_char_p, Pointer, Pointer)
EXECUTE = C.CFUNCTYPE(None, Pointer, C.POINTER(C.c_int), C.POINTER(Pointer), Pointer, Pointer)
_PACK = C.CFUNCTYPE(Pointer, Pointer, C.POINTER(Pointer), C.c_int, Pointer, Pointer)
_PIN = C.CFUNCTYPE(C.c_bool, Pointer, Pointer)
NUM_DIMS = C.CFUNCTYPE(C.c_int, Pointer, Pointer)
DIM = C.CFUNCTYPE(C.c_int64, Pointer, C.c_int, Pointer)
DEALLOCATOR = C.CFUNCTYPE(None, Pointer)
_SUMMARIZE = C.CFUNCTYPE(Pointer, Pointer, Pointer)


class _CustomDevice(C.Structure):
    _fields_ = (
        ("version", C.c_int),
        ("copy_to", COPY_TO),
        ("copy_from", COPY_FROM),
        ("execute", EXECUTE),
        ("delete", Pointer),
        ("pack", _PACK),
        ("pin", _PIN),
    )


class HandleMethods(C.Structure):
    """`TFE_CustomDeviceTensorHandleMethods`."""

    _fields_ = (
        ("version", C.c_int),
        ("num_dims", NUM_DIMS),
        ("dim", DIM),
        ("deallocator", DEALLOCATOR),
        ("summarize", _SUMMARIZE),
    )


class _Buffer(C.Structure):
    _fields_ = (("data", Pointer), ("length", C.c_size_t), ("deallocator", Pointer))


def _bind(library: C.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError as error:
        raise ImportError(f"TensorFlow {tf.__version__} does not export {name}, which lazy_tf needs") from error
    function.restype = result
    function.argtypes = arguments
    return function


op_name = _bind(_cc, "TFE_OpGetName", C.c_char_p, Pointer, Pointer)
op_input_count = _bind(_cc, "TFE_OpGetFlatInputCount", C.c_int, Pointer, Pointer)
op_input = _bind(_cc, "TFE_OpGetFlatInput", Pointer, Pointer, C.c_int, Pointer)
handle_key = _bind(_cc, "TFE_TensorHandleDevicePointer", Pointer, Pointer, Pointer)
handle_dtype = _bind(_cc, "TFE_TensorHandleDataType", C.c_int, Pointer)
handle_device = _bind(_cc, "TFE_TensorHandleDeviceName", C.c_char_p, Pointer, Pointer)
_handle_rank = _bind(_cc, "TFE_TensorHandleNumDims", C.c_int, Pointer, Pointer)
_handle_dim = _bind(_cc, "TFE_TensorHandleDim", C.c_int64, Pointer, C.c_int, Pointer)
delete_handle = _bind(_cc, "TFE_DeleteTensorHandle", None, Pointer)
new_custom_handle = _bind(_cc, "TFE_NewCustomDeviceTensorHandle", Pointer, Pointer, C.c_char_p, C.c_int, Pointer, HandleMethods, Pointer)
_op_attrs = _bind(_cc, "TFE_OpGetAttrs", Pointer, Pointer)
_serialize_attrs = _bind(_cc, "TFE_OpAttrsSerialize", None, Pointer, Pointer, Pointer)
_copy_handle = _bind(_cc, "TFE_TensorHandleCopySharingTensor", Pointer, Pointer, Pointer)
_new_buffer = _bind(_framework, "TF_NewBuffer", Pointer)
_delete_buffer = _bind(_framework, "TF_DeleteBuffer", None, Pointer)

_resolve = _bind(_cc_slow, "TFE_TensorHandleResolve", Pointer, Pointer, Pointer)
_new_handle_from_tensor = _bind(_cc_slow, "TFE_NewTensorHandleFromTensor", Pointer, Pointer, Pointer, Pointer)
_new_op = _bind(_cc_slow, "TFE_NewOp", Pointer, Pointer, C.c_char_p, Pointer)
_delete_op = _bind(_cc_slow, "TFE_DeleteOp", None, Pointer)
_op_set_device = _bind(_cc_slow, "TFE_OpSetDevice", None, Pointer, C.c_char_p, Pointer)
_op_set_attr = _bind(_cc_slow, "TFE_OpSetAttrValueProto", None, Pointer, C.c_char_p, C.c_char_p, C.c_size_t, Pointer)
_op_add_input = _bind(_cc_slow, "TFE_OpAddInput", None, Pointer, Pointer, Pointer)
_execute = _bind(_cc_slow, "TFE_Execute", None, Pointer, C.POINTER(Pointer), C.POINTER(C.c_int), Pointer)

_tensor_data = _bind(_framework, "TF_TensorData", Pointer, Pointer)
_tensor_rank = _bind(_framework, "TF_NumDims", C.c_int, Pointer)
_tensor_dim = _bind(_framework, "TF_Dim", C.c_int64, Pointer, C.c_int)
_tensor_bytes = _bind(_framework, "TF_TensorByteSize", C.c_size_t, Pointer)
_delete_tensor = _bind(_framework, "TF_DeleteTensor", None, Pointer)
_allocate_tensor = _bind(_framework, "TF_AllocateTensor", Pointer, C.c_int, C.POINTER(C.c_int64), C.c_int, C.c_size_t)
set_status = _bind(_framework, "TF_SetStatus", None, Pointer, C.c_int, C.c_char_p)
status_code = _bind(_framework, "TF_GetCode", C.c_int, Pointer)
_status_message = _bind(_framework, "TF_Message", C.c_char_p, Pointer)
_new_status = _bind(_framework, "TF_NewStatus", Pointer)
_delete_status = _bind(_framework, "TF_DeleteStatus", None, Pointer)

CPU = b"/job:localhost/replica:0/task:0/device:CPU:0"
OK, CANCELLED, INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 0, 1, 3, 9, 12, 13


ANONYMOUS: str = tf_context.anonymous_name()
"""What TensorFlow itself names variables that belong to their handle."""


class StatusError(Exception):
    """A TensorFlow status that is not OK, on its way back to TensorFlow."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def exception_code(error: BaseException) -> int | None:
    """The status code of one of TensorFlow's own exceptions, or None."""
    return int(error.error_code) if isinstance(error, errors_impl.OpError) else None


def _check(status: int) -> None:
    code = status_code(status)
    if code:
        message = _status_message(status).decode(errors="replace")
        set_status(status, OK, b"")
        raise StatusError(code, message)


def raise_status(status: int) -> None:
    """Raise what a status says, unless that is that all is well, and clear it.

    Raises:
        StatusError: something went wrong.
    """
    _check(status)


class fresh_status:
    """A status of our own, for calls whose failure is not the caller's."""

    def __enter__(self) -> int:
        self._pointer: int = _new_status()
        return self._pointer

    def __exit__(self, *exc: object) -> None:
        _delete_status(self._pointer)


_context: int | None = None


def eager_context() -> int:
    """The `TFE_Context` of this process, made if need be."""
    global _context
    if _context is None:
        tf_context.context().ensure_initialized()
        get = C.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = Pointer, (C.py_object, C.c_char_p)
        name = C.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = C.c_char_p, (C.py_object,)
        capsule = tf_context.context()._handle
        _context = get(capsule, name(capsule))
    assert _context is not None
    return _context


def forget_context() -> None:
    """Called when TensorFlow's eager context was reset: the next use finds the new one."""
    global _context
    _context = None


def attributes_blob(op: int, status: int) -> bytes:
    """The serialised `NameAttrList` of an operation; the order of its map is random."""
    buffer = _new_buffer()
    _serialize_attrs(_op_attrs(op), buffer, status)
    view = _Buffer.from_address(buffer)
    blob = C.string_at(view.data, view.length)
    _delete_buffer(buffer)
    return blob


def function_def(name: str) -> Any:
    """The `FunctionDef` of a function that the context knows, or None."""
    try:
        return tf_context.context().get_function_def(name)
    except errors_impl.OpError:
        return None


def op_def(name: str) -> Any:
    """The `OpDef` of a registered operation, or None: then the name is a function's."""
    return op_def_registry.get(name)


def handle_array(handle: int) -> np.ndarray:
    """A copy of the contents of a CPU tensor handle of plain numbers.

    Raises:
        StatusError: the handle carries a failed computation.
    """
    with fresh_status() as status:
        tensor = _resolve(handle, status)
        _check(status)
    try:
        size = _tensor_bytes(tensor)
        dims = [_tensor_dim(tensor, i) for i in range(_tensor_rank(tensor))]
        raw = C.string_at(_tensor_data(tensor), size) if size else b""
        return np.frombuffer(raw, NUMPY_DTYPES[handle_dtype(handle)]).reshape(dims)
    finally:
        _delete_tensor(tensor)


def handle_dims(handle: int, status: int) -> tuple[int, ...]:
    """The dimensions of a CPU tensor handle."""
    return tuple([_handle_dim(handle, i, status) for i in range(_handle_rank(handle, status))])


def array_handle(array: np.ndarray, dtype: int) -> int:
    """A CPU tensor handle with a copy of a host array; the caller owns it."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    dims = (C.c_int64 * max(1, array.ndim))(*array.shape)
    tensor = _allocate_tensor(dtype, dims, array.ndim, array.nbytes)
    if array.nbytes:
        C.memmove(_tensor_data(tensor), array.ctypes.data, array.nbytes)
    try:
        with fresh_status() as status:
            handle: int = _new_handle_from_tensor(eager_context(), tensor, status)
            _check(status)
            return handle
    finally:
        _delete_tensor(tensor)


def copy_handle(handle: int) -> int:
    """Another handle to the same CPU tensor; the caller owns it."""
    with fresh_status() as status:
        copied: int = _copy_handle(handle, status)
        _check(status)
        return copied


def execute_on_cpu(name: str, attributes: Mapping[str, Any], inputs: Sequence[int], outputs: int) -> list[int]:
    """Run one operation with TensorFlow's CPU kernel.

    Args:
        name: the raw operation's, or a function's.
        attributes: `AttrValue` protos by name.
        inputs: borrowed CPU handles.
        outputs: how many there are at most.

    Returns:
        Handles that the caller owns.

    Raises:
        StatusError: the kernel refused, with its code and message.
    """
    with fresh_status() as status:
        op = _new_op(eager_context(), name.encode(), status)
        _check(status)
        try:
            _op_set_device(op, CPU, status)
            _check(status)
            for key, value in attributes.items():
                raw = value.SerializeToString()
                _op_set_attr(op, key.encode(), raw, len(raw), status)
                _check(status)
            for handle in inputs:
                _op_add_input(op, handle, status)
                _check(status)
            count = C.c_int(outputs)
            results = (Pointer * max(1, outputs))()
            _execute(op, results, C.byref(count), status)
            _check(status)
            return [r for r in results[: count.value] if r is not None]
        finally:
            _delete_op(op)


def _dtype_tables() -> tuple[dict[int, np.dtype], dict[np.dtype, int]]:
    names = (
        "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"
        " float8_e4m3fn float8_e5m2"
    )
    to_numpy: dict[int, np.dtype] = {}
    for name in names.split():
        dtype = getattr(tf, name, None) or getattr(tf.dtypes.experimental, name, None)
        if dtype is not None:
            to_numpy[dtype.as_datatype_enum] = np.dtype(dtype.as_numpy_dtype)
    return to_numpy, {v: k for k, v in to_numpy.items()}


NUMPY_DTYPES, TF_DTYPES = _dtype_tables()
RESOURCE: int = tf.resource.as_datatype_enum
VARIANT: int = tf.variant.as_datatype_enum


def immortal(callback: Any) -> Any:
    """Keep a callback for good: TensorFlow may call it until the process has ended."""
    C.pythonapi.Py_IncRef(C.py_object(callback))
    return callback


_PENDING = C.CFUNCTYPE(C.c_int, Pointer)
# The code of the constructor of what TensorFlow raises. Where that is interrupted, TensorFlow gives up on it, and raises another.
CONSTRUCTOR = tf_core._NotOkStatusException.__init__.__code__


def interrupt_later() -> None:
    """Interrupt the main thread as if by Ctrl-C, but not before the caller, and what it returns to, have returned to C.

    Python looks for interrupts after a call, so it would find one that was set here at once. It does not look again before it returns,
    and so finds later what a pending call sets.
    """
    C.pythonapi.Py_AddPendingCall(_pending_interrupt, None)


@_PENDING
def _pending_interrupt(_: Any) -> int:
    if sys._getframe(1).f_code is CONSTRUCTOR:
        interrupt_later()
    else:
        C.pythonapi.Py_AddPendingCall(C.cast(C.pythonapi.PyErr_SetInterruptEx, Pointer), Pointer(int(signal.SIGINT)))
    return 0


def register_device(name: str, copy_to: Any, copy_from: Any, execute: Any) -> None:
    """Register a custom device with these callbacks (ctypes functions that are never freed)."""
    new_capsule = C.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = C.py_object, (Pointer, C.c_char_p, Pointer)
    _libc.malloc.restype, _libc.malloc.argtypes = Pointer, (C.c_size_t,)
    device = _CustomDevice(DEVICE_VERSION, copy_to, copy_from, execute, C.cast(_libc.free, Pointer), _PACK(), _PIN())
    info = new_capsule(_libc.malloc(8), b"TFE_CustomDevice_DeviceInfo", None)  # never null; TensorFlow frees it with `delete`
    register_capsules(name, new_capsule(C.addressof(device), b"TFE_CustomDevice", None), info)


def register_capsules(name: str, device: Any, info: Any) -> None:
    """Register a custom device from capsules of its callbacks, which TensorFlow copies, and of its information."""
    tf_context.context().ensure_initialized()
    tf_context.register_custom_device(device, name, info)


def handle_methods(num_dims: Any, dim: Any, deallocator: Any) -> HandleMethods:
    """The callbacks that describe one of our handles."""
    return HandleMethods(DEVICE_VERSION, num_dims, dim, deallocator, _SUMMARIZE())


def current_device() -> str | None:
    """The full name of the device that the innermost scope of this thread names; None while a graph is built, and without a scope."""
    return tf_context.context().device_name if tf_context.executing_eagerly() else None


def context_object() -> Any:
    """TensorFlow's eager context: another object after a reset."""
    return tf_context.context()


def seeding() -> Any:
    """An object that is another one after every `tf.random.set_seed`."""
    return getattr(tf_context.context(), "_rng", None)


@functools.cache
def xla_kernels(name: str) -> tuple[Mapping[str, frozenset[int]], ...]:
    """For each kernel with which XLA compiles an operation for a CPU: the dtypes that it takes, by the name of the attribute.

    They are registered when something is compiled first, so a trifle is.
    """
    _register_xla_kernels()
    kernels = tf_kernels.get_registered_kernels_for_op(name).kernel
    return tuple([{c.name: frozenset(c.allowed_values.list.type) for c in k.constraint} for k in kernels if k.device_type == "XLA_CPU_JIT"])


def operations_with_kernels() -> list[str]:
    """The names of all operations that a CPU can run, in order, without those that only TensorFlow itself makes."""
    _register_xla_kernels()
    kernels = tf_kernels.get_all_registered_kernels().kernel
    return sorted({k.op for k in kernels if k.device_type in ("CPU", "XLA_CPU_JIT") and k.op[0] != "_" and op_def(k.op) is not None})


@functools.cache
def _register_xla_kernels() -> None:
    with tf.device(CPU.decode()), stop_recording():
        tf.function(lambda x: x + x, jit_compile=True)(tf.constant(1.0))


def create_in_graph(name: str, inputs: Sequence[Any], dtypes: Sequence[int], attributes: Mapping[str, Any]) -> list[Any]:
    """Add a raw operation to the graph being built and return its outputs."""
    graph = tf_ops.get_default_graph()
    return list(graph._create_op_internal(name, list(inputs), list(dtypes), attrs=dict(attributes)).outputs)


stop_recording = tf_record.stop_recording


def _cpu_for_compiling(device_name: str | None, _original: Any = compiler_ir.maybe_get_device_name) -> Any:
    return _original(CPU.decode() if device_name is None else device_name)


# TensorFlow finds the "current" device by drawing a random number, which would disturb seeded streams and land on the lazy device
# in the middle of its own barrier.
compiler_ir.maybe_get_device_name = _cpu_for_compiling
