"""NumPy's dtypes and promotion.

Owns: which dtypes can be lazy, and the dtype rules that are not a ufunc's own.  Promotion is always asked of NumPy
itself (`np.result_type`, `ufunc.resolve_dtypes`), so that it is NumPy's by construction, Python scalars (NEP 50)
included.  May import NumPy and lazy_core's backend only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lazy_core import backend

BOOL = np.dtype(bool)
INTP = np.dtype(np.intp)
FLOAT64 = np.dtype(np.float64)

NUMERIC = tuple(np.dtype(c) for c in "?bBhHiIlLefdFD")
WEAK = (int, float, complex)


@lru_cache(maxsize=256)
def supports(dtype: np.dtype) -> bool:
    """Whether arrays of this dtype are lazy; others (object, str, datetime, longdouble, structured, byte-swapped) stay NumPy's."""
    return dtype.names is None and dtype.subdtype is None and dtype.kind in "biufcV" and backend.supports(dtype)


def integer_bounds(dtype: np.dtype) -> tuple[int, int]:
    """The least and greatest number of an integer dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def check_python_int(value: int, dtype: np.dtype) -> None:
    """NEP 50: a Python int must fit the dtype that it is taken to.

    Raises:
        OverflowError: it does not.
    """
    if dtype.kind in "iu":
        low, high = integer_bounds(dtype)
        if not low <= value <= high:
            raise OverflowError(f"Python integer {value} out of bounds for {dtype}")


@lru_cache(maxsize=256)
def sum_dtype(dtype: np.dtype) -> np.dtype:
    """What sums and products of a dtype accumulate in: integers narrower than the platform's widen to it."""
    if dtype.kind == "b" or (dtype.kind == "i" and dtype.itemsize < INTP.itemsize):
        return INTP
    if dtype.kind == "u" and dtype.itemsize < INTP.itemsize:
        return np.dtype(np.uintp)
    return dtype


@lru_cache(maxsize=256)
def mean_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a mean."""
    return FLOAT64 if dtype.kind in "biu" else dtype


@lru_cache(maxsize=256)
def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of one component of a complex dtype; other dtypes stay."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def result_type(*operands: Any) -> np.dtype:
    """`np.result_type` of dtypes and Python scalars (a Python scalar counts by its kind, not its value)."""
    return np.result_type(*operands)
