"""Sharing values with the core and other frontends, and with NumPy.

Owns: `to_lazy`, `from_lazy`, `is_pending`.  May import `lazy_core.values` and `trace`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lazy_core import trace, values

from . import build, dtypes, tensor

_native = build.native()


def to_lazy(x: torch.Tensor) -> values.Value:
    """The core value of a tensor, dtype[*dims] as the tensor shows them; shared, and later writes do not change it.

    Raises:
        TypeError: the tensor is not on the lazy device.
    """
    with trace.current().lock:
        expr, array = _native.value(x.resolve_conj().resolve_neg())
        return values.from_array(array) if expr is None else values.from_expr(expr)


def from_lazy(x: Any) -> torch.Tensor:
    """A tensor on the lazy device with what another frontend's lazy tensor holds now: nothing is copied or computed, the trace goes on.

    Later writes to the one do not change the other. The tensor requires no gradient.

    Args:
        x: whatever has `__lazy_core_value__`, a value of the core, or a NumPy array (which is copied); dtype[*dims].

    Raises:
        TypeError: it is neither.
        DtypeError: torch has no such dtype.
    """
    value = values.shared(x)
    with trace.current().lock:
        shape = value.shape
        return _native.wrap(value.expr if value.array is None else None, value.array, shape.dims, dtypes.code_of(shape.dtype))


def is_pending(x: torch.Tensor) -> bool:
    """Whether a lazy tensor's value has been recorded but not handed to the device yet.

    Raises:
        TypeError: the tensor is not on the lazy device.
    """
    return bool(_native.pending(x))


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """A lazy tensor with a copy of a NumPy array (bfloat16 and float8 of ml_dtypes included)."""
    return tensor.numpy_to_cpu(np.ascontiguousarray(array).reshape(np.shape(array))).to("lazy")


def to_numpy(x: Any) -> np.ndarray:
    """The contents of a tensor on any device, as a new NumPy array."""
    return np.array(tensor.cpu_to_numpy(x.detach().cpu().resolve_conj().resolve_neg()), copy=True)
