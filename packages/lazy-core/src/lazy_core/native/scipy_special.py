"""Kernels of special functions that SciPy has: the family `special`.

Owns: SciPy's functions for them, imported when the first is run, since that takes a third of a second.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..ir import Node
from ..ops.special import RECURRENCES
from .registry import Array, Function, builder, kernel


@functools.cache
def _scipy() -> Any:
    from scipy import special

    return special


def _functions(**table: str) -> None:
    """Operations that are one function of SciPy."""
    for name, function in table.items():
        builder(name)(_choose(function))


def _choose(function: str) -> Any:
    def build(node: Node) -> Function:
        found: Function = getattr(_scipy(), function)
        return found

    return build


_functions(
    bessel_i0e="i0e",
    bessel_i1e="i1e",
    bessel_j0="j0",
    bessel_j1="j1",
    bessel_y0="y0",
    bessel_y1="y1",
    bessel_k0e="k0e",
    bessel_k1e="k1e",
    erfcx="erfcx",
    igamma="gammainc",
    igammac="gammaincc",
    ndtri="ndtri",
)


@kernel("airy_ai")
def airy_ai(x: Array) -> Array:
    """The first of the four that SciPy computes together; in double precision."""
    return np.asarray(_scipy().airy(x.astype(np.float64))[0]).astype(x.dtype)


@kernel("orthogonal_polynomial")
def orthogonal_polynomial(x: Array, n: Array, *, kind: str) -> Array:
    """By the recurrence, up to the highest degree; each element stops at its own."""
    (constant, slope), coefficients = RECURRENCES[kind]
    at, degree = np.broadcast_arrays(x, n)
    number = x.dtype.type
    before, now = np.ones_like(at), np.asarray(number(constant) + number(slope) * at)
    for k in range(1, int(degree.max(initial=1))):
        a, b, c, d = (number(v) for v in coefficients(k))
        following = ((a + b * at) * now - c * before) / d
        going = k < degree
        before, now = np.where(going, now, before), np.where(going, following, now)
    return np.where(degree < 0, number(0), np.where(degree == 0, number(1), now))
