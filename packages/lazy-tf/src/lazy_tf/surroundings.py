"""Parts of TensorFlow's Python that take every device for one of its own, taught about the lazy device.

Owns: the list of devices, export by DLPack, what strategies are told, and the cache of constants of gradient functions.  Meets private
modules of TensorFlow: `eager.context` (`_TensorCaches`, `_EagerTensorCache`, `_logical_devices`), `distribute.device_util` and
`pywrap_tfe`.  May import `capi`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.distribute import device_util
from tensorflow.python.eager import context as tf_context

from . import capi

_CPU_OF_DLPACK = (1, 0)


def install(device: str) -> None:
    """Teach this process, and its present eager context, about a device of this full name; harmless the second time."""
    tf_context._TensorCaches.ones_rank_cache = property(_ones_rank_cache)
    _announce(device)
    _export_copies(device)
    _refuse_others(device)


def _announce(device: str) -> None:
    """Add the device to what `tf.config.list_logical_devices` gives."""
    listed = capi.context_object()._logical_devices
    if all(d.name != device for d in listed):
        listed.append(tf.config.LogicalDevice(name=device, device_type=device.rsplit(":", 2)[1]))


def _export_copies(device: str) -> None:
    """Let other libraries have the contents of lazy tensors by DLPack: as copies on the CPU, since somebody may write to them."""

    def wrap(name: str, make: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
        original = getattr(pywrap_tfe, name)
        if hasattr(original, "__lazy_wrapped__"):
            return

        @functools.wraps(original)
        def wrapped(tensor: Any) -> Any:
            return make(tensor, original) if getattr(tensor, "device", "") == device else original(tensor)

        wrapped.__lazy_wrapped__ = True  # type: ignore[attr-defined]
        setattr(pywrap_tfe, name, wrapped)

    def capsule(tensor: Any, original: Callable[[Any], Any]) -> Any:
        with tf.device(capi.CPU.decode()), capi.stop_recording():
            return original(tf.constant(np.array(tensor.numpy())))

    wrap("TFE_ToDlpackCapsule", capsule)
    wrap("TFE_DlpackDevice", lambda tensor, original: _CPU_OF_DLPACK)


def _refuse_others(device: str) -> None:
    """Have strategies of `tf.distribute` refuse lazy devices that do not exist, where they would silently take the CPU."""
    original = device_util.canonicalize
    if hasattr(original, "__lazy_wrapped__"):
        return
    kind = device.rpartition(":")[0]

    @functools.wraps(original)
    def canonicalize(d: Any, default: Any = None) -> Any:
        found = original(d, default=default)
        if found != device and str(found).startswith(f"{kind}:"):
            raise ValueError(f"there is no {found}: the lazy device is one, {device}, and so holds one replica")
        return found

    canonicalize.__lazy_wrapped__ = True  # type: ignore[attr-defined]
    device_util.canonicalize = canonicalize


class _ConstantsByDevice(tf_context._EagerTensorCache):  # type: ignore[misc]
    """TensorFlow's cache of small constants of its gradient functions, with one entry for each device.

    They are shapes, which TensorFlow keeps in host memory for every device of its own. One on the lazy device would pull there whatever
    it meets in plain code.
    """

    __slots__ = ()

    def get(self, key: Any) -> Any:
        return super().get((tf_context.context().device_name, key))

    def put(self, key: Any, value: Any) -> None:
        super().put((tf_context.context().device_name, key), value)


def _ones_rank_cache(caches: Any) -> Any:
    if not isinstance(caches._ones_rank_cache, _ConstantsByDevice):
        caches._ones_rank_cache = _ConstantsByDevice()
    return caches._ones_rank_cache
