"""CPU tensors and NumPy arrays on the same memory.

Owns: the two conversions, for every dtype that both libraries know (bfloat16 and float8 through ml_dtypes).  May import `dtypes`.
"""

from __future__ import annotations

import numpy as np
import torch

from . import dtypes

_BYTES = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.int16)}


def cpu_to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A CPU tensor's contents as a NumPy array, sharing memory where that is possible."""
    dtype = dtypes.to_numpy(tensor.dtype)
    plain = tensor.detach()
    if dtype.kind == "V" or dtype.name in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        as_int, as_numpy = _BYTES[dtype.itemsize]
        return plain.contiguous().view(as_int).numpy().view(as_numpy).view(dtype)
    return plain.numpy()


class _Memory:
    """Lends an array's memory without its read-only flag, about which torch would warn."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def numpy_to_cpu(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor that shares a NumPy array's memory."""
    dtype = dtypes.to_torch(array.dtype)
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype)
    plain = array
    if array.dtype.name in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        plain = array.view(_BYTES[array.dtype.itemsize][1])
    tensor = torch.from_numpy(np.asarray(_Memory(plain)))
    return tensor.view(dtype) if tensor.dtype != dtype else tensor
