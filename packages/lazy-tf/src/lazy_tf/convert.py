"""Moving values between TensorFlow tensors, NumPy and the core.

Owns: `to_lazy` and `from_lazy`, which share a value with another frontend without a copy, and `from_numpy`.  May import `capi`, `device`,
`tensor`, `exchange` and the core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from lazy_core import values
from lazy_core.errors import DeviceError, DtypeError
from lazy_core.values import Value

from . import capi, exchange
from .device import device, is_lazy
from .tensor import Tensor, of_value


def to_lazy(value: Value) -> Any:
    """A TensorFlow tensor on the lazy device that is this value of the core; nothing is copied or computed.

    Raises:
        DtypeError: TensorFlow has no such dtype.
    """
    dtype = capi.TF_DTYPES.get(value.shape.dtype)
    if dtype is None:
        raise DtypeError(f"TensorFlow has no dtype for a value of {value.shape}")
    with device(), capi.stop_recording():
        exchange.post(of_value(value, dtype))
        return tf.raw_ops.Placeholder(dtype=tf.dtypes.as_dtype(dtype), shape=value.shape.dims)


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


def from_lazy(tensor: Any) -> Value:
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
    return to_lazy(values.from_host(np.asarray(array)))
