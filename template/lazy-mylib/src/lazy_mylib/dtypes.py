"""The library's dtypes, and which dtype an operation computes in.

Owns: the table from the library's dtypes to NumPy's, and promotion.  The core does no promotion: that is each library's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_strict as library
import numpy as np

NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
DTYPES: dict[str, Any] = {name: getattr(library, name) for name in NAMES}
_TO_NUMPY = {dtype: np.dtype(name) for name, dtype in DTYPES.items()}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _TO_NUMPY.items()}

# Which NumPy kinds the standard's categories are.
REAL, NUMERIC, FLOATING, BOOLEAN, INTEGER, ANY = "iuf", "iufc", "fc", "b", "iu", "biufc"
REAL_FLOATING = "f"
_SCALAR_KINDS = {bool: "b", int: "iufc", float: "fc", complex: "c"}


def to_numpy(dtype: Any) -> np.dtype:
    """NumPy's name for a dtype of the library.

    Raises:
        TypeError: it is none.
    """
    try:
        return _TO_NUMPY[dtype]
    except (KeyError, TypeError):
        raise TypeError(f"{dtype!r} is no dtype of the array API standard; use {', '.join(NAMES)}") from None


def from_numpy(dtype: np.dtype) -> Any:
    """The library's name for a dtype of NumPy's.

    Raises:
        TypeError: the library has none.
    """
    try:
        return _FROM_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise TypeError(f"the array API standard has no dtype {dtype}") from None


def common(name: str, arrays: Iterable[np.dtype], scalars: Iterable[Any], kinds: str) -> np.dtype:
    """The dtype that a function computes in: the library promotes arrays, and Python numbers take the arrays' dtype.

    Args:
        name: of the function, for errors.
        arrays: the dtypes of the operands that are arrays.
        scalars: the operands that are Python numbers.
        kinds: which kinds of dtype the function takes.

    Raises:
        TypeError: the standard does not define the function for these.
    """
    found = list(arrays)
    dtype = to_numpy(library.result_type(*[from_numpy(d) for d in found]))
    wrong = [s for s in scalars if dtype.kind not in _SCALAR_KINDS.get(type(s), "")]
    if dtype.kind not in kinds or wrong:
        given = ", ".join([*[d.name for d in found], *[repr(s) for s in wrong]])
        raise TypeError(f"{name}({given}): the standard has no {name} of {dtype.name}{' and such a number' if wrong else ''}")
    return dtype
