"""Kernels of arrays out of nothing, or of one scalar: the family `creation`.

Owns: full, iota and eye.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .registry import INT64, Array, kernel, kind
from .shapes import spread


@kernel("full")
def full(value: Array, *, dims: Sequence[int]) -> Array:
    """The scalar itself, seen everywhere."""
    return spread(value, tuple(dims))


@kernel("iota")
def iota(*, dims: Sequence[int], axis: int, dtype: np.dtype) -> Array:
    """Counted in 64 bits and then cast, so that narrow integers wrap."""
    along = [1] * len(dims)
    along[axis] = dims[axis]
    counted = np.arange(dims[axis], dtype=INT64)
    if kind(dtype) == "f":
        counted = counted.astype(np.float64 if dtype == np.float64 else np.float32)
    return spread(counted.astype(dtype, copy=False).reshape(along), tuple(dims))


@kernel("eye")
def eye(*, n: int, m: int, k: int, dtype: np.dtype) -> Array:
    """NumPy's, in bytes where the dtype is one that it cannot count with."""
    return np.eye(n, m, k, bool).astype(dtype)
