"""Torch's dtypes and NumPy's: the one table.

Owns: the numbers that ATen gives scalar types, and both libraries' dtypes for them.  May import torch, numpy, ml_dtypes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from lazy_core.errors import DtypeError

_TABLE: dict[int, tuple[torch.dtype, np.dtype]] = {
    code: (dtype, np.dtype(other))
    for code, dtype, other in (
        (0, torch.uint8, np.uint8),
        (1, torch.int8, np.int8),
        (2, torch.int16, np.int16),
        (3, torch.int32, np.int32),
        (4, torch.int64, np.int64),
        (5, torch.float16, np.float16),
        (6, torch.float32, np.float32),
        (7, torch.float64, np.float64),
        (9, torch.complex64, np.complex64),
        (10, torch.complex128, np.complex128),
        (11, torch.bool, np.bool_),
        (15, torch.bfloat16, ml_dtypes.bfloat16),
        (23, torch.float8_e5m2, ml_dtypes.float8_e5m2),
        (24, torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (27, torch.uint16, np.uint16),
        (28, torch.uint32, np.uint32),
        (29, torch.uint64, np.uint64),
    )
}
_CODES = {dtype: code for code, (_, dtype) in _TABLE.items()}
_TO_NUMPY = dict(_TABLE.values())
_TO_TORCH = {b: a for a, b in _TABLE.values()}

DTYPES: tuple[np.dtype, ...] = tuple(_CODES)


def of_code(code: int) -> np.dtype:
    """The NumPy dtype of ATen's scalar type number.

    Raises:
        DtypeError: XLA has no such dtype (complex32, quantised types).
    """
    found = _TABLE.get(code)
    if found is None:
        raise DtypeError(f"torch's scalar type number {code} (complex32, quantised and packed types) does not exist on the lazy device")
    return found[1]


def code_of(dtype: np.dtype) -> int:
    """ATen's scalar type number of a NumPy dtype."""
    found = _CODES.get(np.dtype(dtype))
    if found is None:
        raise DtypeError(f"{dtype} has no counterpart in torch")
    return found


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of a torch dtype."""
    found = _TO_NUMPY.get(dtype)
    if found is None:
        raise DtypeError(f"{dtype} does not exist on the lazy device")
    return found


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The torch dtype of a NumPy dtype."""
    found = _TO_TORCH.get(np.dtype(dtype))
    if found is None:
        raise DtypeError(f"{dtype} has no counterpart in torch")
    return found
