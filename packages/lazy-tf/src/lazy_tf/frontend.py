"""The frontend object that the core finds through its entry point.

May import `convert`, `device`, `conformance`, `conformance_programs` and the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from . import capi, conformance, conformance_programs, convert
from .device import device, is_lazy


class TensorFlowFrontend:
    """See `lazy_core.frontend.Frontend`."""

    name = "tf"
    library = "tensorflow"
    conformance: Mapping[str, Callable[..., Any]] = conformance.CALLS
    programs: Mapping[str, Callable[..., Any]] = conformance_programs.PROGRAMS
    dtypes: Sequence[np.dtype] = tuple(capi.TF_DTYPES)

    def from_numpy(self, array: np.ndarray) -> Any:
        """A tensor on the lazy device with a copy of the array."""
        return convert.from_numpy(array)

    def native(self, array: np.ndarray) -> Any:
        """A CPU tensor with a copy of the array."""
        with tf.device("CPU:0"):
            return tf.constant(np.array(array))

    def creating(self) -> device:
        """The scope in which what takes no tensors makes lazy ones."""
        return device()

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """The contents of either kind of tensor."""
        array: np.ndarray = tensor.numpy() if hasattr(tensor, "numpy") else np.asarray(tensor)
        return array

    def is_lazy(self, tensor: Any) -> bool:
        """Whether a tensor lives on the lazy device."""
        return is_lazy(tensor)


FRONTEND = TensorFlowFrontend()
