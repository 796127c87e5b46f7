"""Normalised exponentials, which every library has and which are numerically one operation.

Owns: softmax and log_softmax.  16-bit floats are computed in f32.  Imports the registry and jax's lax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import lax
from ..errors import DtypeError
from .arithmetic import kind
from .reductions import wide
from .registry import FLOAT, Sample, axis_of, describe, numbers, op


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, axis in (((3, 4), 1), ((2, 3, 4), 0), ((5,), -1)):
        yield Sample((numbers(rng, dims, dtype, -8, 8),), {"axis": axis})


def _shifted(name: str, x: Any, axis: int) -> tuple[Any, Any, int]:
    if kind(x) != "f":
        raise DtypeError(f"{name}({describe(x)}): expected float; convert first")
    axis = axis_of(name, axis, x.ndim)
    values = wide(x)
    if x.shape[axis] == 0:
        return values, values, axis
    shifted = lax.sub(values, _along(lax.reduce_max(values, (axis,)), x, axis))
    return shifted, lax.exp(shifted), axis


def _along(reduced: Any, x: Any, axis: int) -> Any:
    return lax.broadcast_in_dim(reduced, x.shape, tuple(a for a in range(x.ndim) if a != axis))


@op(samples=_samples, dtypes=FLOAT)
def softmax(x: Any, *, axis: int) -> Any:
    """exp(x) over its sum along a dim, without overflow: float[*dims] -> the same.  XLA: Reduce, Exp, Divide.

    Attributes: axis.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is not float.
    """
    _, weights, axis = _shifted("softmax", x, axis)
    return lax.convert_element_type(lax.div(weights, _along(lax.reduce_sum(weights, (axis,)), x, axis)), x.dtype)


@op(samples=_samples, dtypes=FLOAT)
def log_softmax(x: Any, *, axis: int) -> Any:
    """The logarithm of softmax, without overflow: float[*dims] -> the same.  XLA: Reduce, Exp, Log, Subtract.

    Attributes: axis.

    Raises:
        ShapeError: the axis is out of bounds.
        DtypeError: x is not float.
    """
    shifted, weights, axis = _shifted("log_softmax", x, axis)
    return lax.convert_element_type(lax.sub(shifted, _along(lax.log(lax.reduce_sum(weights, (axis,))), x, axis)), x.dtype)
