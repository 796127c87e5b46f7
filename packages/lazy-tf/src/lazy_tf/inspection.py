"""What a debugger is shown of a pending tensor, and what `lazy_core.explain` and `lazy_core.graph` ask of one.

Owns: the wrapper around `tensorflow.python.framework.ops.value_text`, TensorFlow's private function behind the `repr` of tensors and
variables.  Everywhere but in a debugger a tensor prints its contents, as always.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from lazy_core import dump, notebook


def install() -> None:
    """Wrap the function behind `repr`, and give tensors their core value; once."""
    shown = ops.value_text
    if hasattr(shown, "__lazy_wrapped__"):
        return

    @functools.wraps(shown)
    def text(tensor: Any, *args: Any, **kwargs: Any) -> str:
        from .device import is_lazy

        found = dump.inspected(tensor) if is_lazy(tensor) else None
        return str(shown(tensor, *args, **kwargs)) if found is None else found

    text.__lazy_wrapped__ = True  # type: ignore[attr-defined]
    ops.value_text = text
    tf.Tensor.__lazy_core_value__ = tf.Variable.__lazy_core_value__ = _value
    for cls in (tf.Tensor, tf.Variable):
        notebook.attach(cls)


def _value(tensor: Any) -> Any:
    from .convert import to_lazy
    from .device import is_lazy

    if not is_lazy(tensor):
        raise TypeError(f"a tensor on {tensor.device or 'no device'} is not a lazy tensor or value")
    return to_lazy(tensor)
