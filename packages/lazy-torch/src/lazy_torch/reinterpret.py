"""A storage's bytes under another dtype: what `view(dtype)`, `view_as_real` and untyped storages need.

Owns: bitcasts of flat vectors, including those that XLA lacks (bool, complex).  May import `lazy_core.ops`.
"""

from __future__ import annotations

import numpy as np

from lazy_core import ops
from lazy_core.ir import Expr

_PARTS: dict[np.dtype, np.dtype] = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
_BYTE = np.dtype(np.uint8)
_BOOL = np.dtype(np.bool_)


def reinterpret(flat: Expr, dtype: np.dtype) -> Expr:
    """The bytes of a vector as another dtype: dtype0[n] -> dtype1[n * width0 / width1]; whole elements only."""
    have = flat.shape.dtype
    if have == dtype:
        return flat
    if have in _PARTS:
        pairs = ops.stack(ops.real(flat), ops.imag(flat), axis=1)
        return reinterpret(ops.reshape(pairs, dims=(2 * flat.shape.size,)), dtype)
    if have == _BOOL:
        return reinterpret(ops.convert(flat, dtype=_BYTE), dtype)
    if dtype == _BOOL:
        return ops.convert(reinterpret(flat, _BYTE), dtype=_BOOL)
    if dtype in _PARTS:
        parts = reinterpret(flat, _PARTS[dtype])
        half = parts.shape.size // 2
        pairs = ops.reshape(parts, dims=(half, 2))
        real, imag = (ops.reshape(ops.slice_(pairs, starts=(0, k), limits=(half, k + 1), strides=(1, 1)), dims=(half,)) for k in (0, 1))
        return ops.REGISTRY["complex"](real, imag)
    ratio = dtype.itemsize // have.itemsize
    if ratio > 1:
        count = flat.shape.size // ratio
        whole = flat if count * ratio == flat.shape.size else ops.slice_(flat, starts=(0,), limits=(count * ratio,), strides=(1,))
        return ops.bitcast(ops.reshape(whole, dims=(count, ratio)), dtype=dtype)
    cast = ops.bitcast(flat, dtype=dtype)
    return ops.reshape(cast, dims=(cast.shape.size,))
