"""TensorFlow's own word for other libraries' tensors: `tf.convert_to_tensor` of a lazy one shares its value on the lazy device.

Owns: the conversion function that TensorFlow calls (`tf.register_tensor_conversion_function`), for every class with a core value.  It
applies inside `lazy_tf.device()`; outside, TensorFlow reads what it is given, or says that it cannot.  May import `capi` and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lazy_core import dump

from . import capi

_FIRST = 50  # before TensorFlow's own conversions, which are at 100 and read the tensor


class _HasValue(type):
    def __subclasscheck__(cls, other: type) -> bool:
        return hasattr(other, "__lazy_core_value__") and not issubclass(other, (tf.Tensor, tf.Variable))

    def __instancecheck__(cls, x: Any) -> bool:
        return issubclass(type(x), cls)


class Lazy(metaclass=_HasValue):
    """Whatever has a core value, TensorFlow's own tensors aside."""


def install(share: Callable[[Any], Any], device: str) -> None:
    """Register the conversion; `share` makes a tensor on the device of a core value."""

    def convert(x: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        if as_ref or capi.current_device() != device:
            return NotImplemented
        value = dump.value_or_none(x)
        found = None if value is None else capi.TF_DTYPES.get(value.shape.dtype)
        if found is None:
            return NotImplemented
        wanted, has = tf.as_dtype(found if dtype is None else dtype), tf.as_dtype(found)
        if wanted != has and not (wanted.is_floating and has.is_floating):
            return NotImplemented  # TensorFlow has rules by value for it
        tensor = share(value)
        return tensor if wanted == has else tf.cast(tensor, wanted)

    tf.register_tensor_conversion_function(Lazy, convert, priority=_FIRST)
