"""Arrays out of nothing, or of one scalar.

Owns: full, iota and eye.  Called with no array among its arguments such an operation is recorded, never run.  Imports the registry and
jax's lax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .registry import ANY, REAL, Sample, axis_of, describe, numbers, op


def _full_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((3, 4), (), (0, 2)):
        yield Sample((numbers(rng, (), dtype),), {"dims": dims})


@op(samples=_full_samples)
def full(value: Any, *, dims: Sequence[int]) -> Any:
    """One scalar everywhere: dtype[] -> dtype[*dims].  XLA: Broadcast.

    Attributes: dims.

    Raises:
        ShapeError: value is not 0-d.
    """
    if value.ndim:
        raise ShapeError(f"full({describe(value)}): expected a 0-d value; use broadcast_to")
    return lax.broadcast(value, tuple(dims))


def _iota_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, axis in (((5,), 0), ((2, 3), 1), ((2, 3), 0)):
        yield Sample((), {"dims": dims, "axis": axis, "dtype": dtype})


@op(samples=_iota_samples, dtypes=REAL)
def iota(*, dims: Sequence[int], axis: int, dtype: np.dtype) -> Any:
    """0, 1, 2, .. along a dim: -> dtype[*dims].  XLA: Iota.

    Attributes: dims; axis; dtype, an integer or float one.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: dtype is bool.
    """
    if np.dtype(dtype).kind == "b":
        raise DtypeError("iota: expected an integer or float dtype, not bool")
    return lax.broadcasted_iota(np.dtype(dtype), tuple(dims), axis_of("iota", axis, len(dims)))


def _eye_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for n, m, k in ((3, 3, 0), (2, 4, 1), (4, 2, -1)):
        yield Sample((), {"n": n, "m": m, "k": k, "dtype": dtype})


@op(samples=_eye_samples, dtypes=ANY)
def eye(*, n: int, m: int, k: int, dtype: np.dtype) -> Any:
    """Ones on the k-th diagonal, zeros elsewhere: -> dtype[n,m].  XLA: Iota, Compare, Convert.

    Attributes: n, m; k, above the main diagonal where positive; dtype.
    """
    row, column = (lax.broadcasted_iota(np.dtype(np.int64), (n, m), axis) for axis in (0, 1))
    ones = lax.eq(lax.add(row, lax.full((n, m), k, np.dtype(np.int64))), column)
    return ones if kind(np.zeros((), dtype)) == "b" else lax.convert_element_type(ones, np.dtype(dtype))
