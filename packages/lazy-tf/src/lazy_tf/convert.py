"""Moving values between TensorFlow tensors, NumPy and the core.

Owns: `to_lazy` (a TensorFlow tensor becomes a value of the core) and `from_lazy` (any frontend's lazy tensor becomes a TensorFlow tensor),
which share without a copy and inside the trace, and `from_numpy`.  May import `capi`, `device`, `tensor`, `exchange`, `foreign` and
the core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from lazy_core import values
from lazy_core.errors import DeviceError, DtypeError
from lazy_core.values import Value

from . import capi, exchange, foreign
from .device import DEVICE, device, is_lazy
from .tensor import Tensor, of_value


def from_lazy(value: Any) -> Any:
    """A TensorFlow tensor on the lazy device that is the same dtype[*dims] value; nothing is copied or computed.

    Args:
        value: another frontend's lazy tensor (whatever has `__lazy_core_value__`), a value of the core, or a NumPy array (which is copied).

    Raises:
        TypeError: it is neither.
        DtypeError: TensorFlow has no such dtype.
    """
    shared = values.shared(value)
    dtype = capi.TF_DTYPES.get(shared.shape.dtype)
    if dtype is None:
        raise DtypeError(f"TensorFlow has no dtype for a value of {shared.shape}")
    with device(), capi.stop_recording():
        exchange.post(of_value(shared, dtype))
        return tf.raw_ops.Placeholder(dtype=tf.dtypes.as_dtype(dtype), shape=shared.shape.dims)


def entry_of(tensor: Any) -> Tensor:
    """The entry behind a TensorFlow tensor or variable on the lazy device.

    Raises:
        DeviceError: it lives on another device.
    """
    if isinstance(tensor, tf.Variable):
        tensor = tensor.read_value()
    if not is_lazy(tensor):
        raise DeviceError(
            f"a tensor on {getattr(tensor, 'device', type(tensor).__name__)!r} is not lazy; create it inside lazy_tf.device()"
        )
    with device(), capi.stop_recording():
        box = exchange.expect()
        tf.raw_ops.Snapshot(input=tensor)
    entry = box[0]
    assert isinstance(entry, Tensor)
    return entry


def to_lazy(tensor: Any) -> Value:
    """The value of the core that a TensorFlow tensor (or variable) on the lazy device stands for; nothing is copied or computed.

    Raises:
        DeviceError: the tensor lives on another device.
    """
    entry = entry_of(tensor)
    value = entry.operand()
    return value if isinstance(value, Value) else values.from_host(entry.numpy())


def from_numpy(array: np.ndarray) -> Any:
    """A TensorFlow tensor on the lazy device with a copy of an array: always a value of the device, never a host constant.

    Raises:
        DtypeError: TensorFlow or the device has no such dtype.
    """
    return from_lazy(values.from_host(np.asarray(array)))


foreign.install(from_lazy, DEVICE)
