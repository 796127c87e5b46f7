"""The lazy device: a TensorFlow custom device whose callbacks record.

Owns: registration with the eager context, and what users call: `DEVICE`, `device()`, `enable()`.  May import `capi`, `callbacks` and
the core.  Follows TensorFlow's `c_api_experimental.h` (TFE_RegisterCustomDevice).
"""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import tensorflow as tf

from lazy_core import events

from . import callbacks, capi, inspection, surroundings

DEVICE = "/job:localhost/replica:0/task:0/device:LAZY:0"
"""The device's full name.

`tf.device(lazy_tf.DEVICE)` and `tf.device("/device:LAZY:0")` work once `device()` or `enable()` was called.
"""

events.hide_package(os.path.dirname(os.path.abspath(__file__)))

_registered: Any = None
_registration_lock = threading.Lock()


def register() -> None:
    """Register the device with TensorFlow's eager context; does nothing the second time, and starts anew after a context reset."""
    global _registered
    with _registration_lock:
        context = capi.context_object()
        if _registered is not context:
            capi.forget_context()
            callbacks.install(DEVICE)
            inspection.install()
            surroundings.install(DEVICE)
            if _registered is None:
                # Importing TensorFlow makes some hundred thousand objects. The collector would soon walk them all, because of what is
                # recorded: 0.2 s, in the midst of an early step.
                gc.collect()
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
