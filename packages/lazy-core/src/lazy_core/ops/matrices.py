"""More factorisations and functions of matrices: reflectors, eigenvectors of general matrices, the exponential.

Owns: what LAPACK or a series does beyond `linalg`; the conventions are LAPACK's.  Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jax, jnp, lax
from ..errors import DtypeError, ShapeError
from .registry import COMPLEX, WIDE_FLOAT, Sample, describe, numbers, op, same_dtype

_DTYPES = WIDE_FLOAT + COMPLEX


def _matrix(name: str, x: Any, square: bool = False) -> Any:
    if x.dtype not in _DTYPES:
        raise DtypeError(f"{name}({describe(x)}): expected f32, f64, c64 or c128")
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"{name}({describe(x)}): expected {'square ' if square else ''}matrices")
    return x


def _matrix_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((4, 3), (3, 4), (2, 3, 3)):
        yield Sample((numbers(rng, dims, dtype),), {})


def _square_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((4, 4), (2, 3, 3), (1, 1)):
        yield Sample((numbers(rng, dims, dtype, -1, 1),), {})


@op(samples=_matrix_samples, dtypes=_DTYPES)
def geqrf(x: Any) -> Any:
    """Householder reflectors below R, and their factors: f32[..,m,n] -> f32[..,m,n], f32[..,min(m,n)] (f64, c64, c128 too).

    XLA: a call of LAPACK.

    Raises:
        DtypeError: x is of another dtype.
        ShapeError: x is no matrix.
    """
    packed, tau = jnp.linalg.qr(_matrix("geqrf", x), mode="raw")
    return jnp.swapaxes(packed, -1, -2), tau


def _reflectors(dtype: np.dtype, rng: np.random.Generator, dims: tuple[int, ...]) -> tuple[Any, Any]:
    a = numbers(rng, dims, dtype)
    packed, tau = np.zeros_like(a), np.zeros((*dims[:-2], min(dims[-2:])), dtype)
    for at in np.ndindex(dims[:-2]):
        h, t = np.linalg.qr(a[at], mode="raw")
        packed[at], tau[at] = h.T, t
    return packed, tau


def _product_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((4, 3), (3, 3), (2, 4, 2)):
        yield Sample(_reflectors(dtype, rng, dims), {})


@op(samples=_product_samples, dtypes=_DTYPES)
def householder_product(x: Any, tau: Any) -> Any:
    """The first columns of the product of reflectors: f32[..,m,n], f32[..,k] -> f32[..,m,n], n <= m (f64, c64, c128 too).

    XLA: a call of LAPACK.

    Raises:
        DtypeError: an operand is of another dtype, or they differ.
        ShapeError: x is no matrix, or has more columns than rows.
    """
    same_dtype("householder_product", _matrix("householder_product", x), tau)
    if x.shape[-1] > x.shape[-2]:
        raise ShapeError(f"householder_product({describe(x, tau)}): expected no more columns than rows")
    return lax.linalg.householder_product(x, tau)


def _ormqr_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for left in (True, False):
        for transpose in (True, False):
            packed, tau = _reflectors(dtype, rng, (4, 3))
            yield Sample((packed, tau, numbers(rng, (4, 2) if left else (2, 4), dtype)), {"left": left, "transpose": transpose})


@op(samples=_ormqr_samples, dtypes=_DTYPES)
def ormqr(x: Any, tau: Any, y: Any, *, left: bool, transpose: bool) -> Any:
    """A matrix times the whole product of reflectors: f32[..,m,n], f32[..,k], f32[..,m,p] -> f32[..,m,p] (f64, c64, c128 too).

    XLA: a call of LAPACK.

    Attributes: left, whether the product stands on the left (else y is [..,p,m]); transpose, whether its adjoint is taken.

    Raises:
        DtypeError: an operand is of another dtype, or they differ.
        ShapeError: the dims do not fit.
    """
    same_dtype("ormqr", _matrix("ormqr", x), tau, _matrix("ormqr", y))
    return lax.linalg.ormqr(x, tau, y, left=left, transpose=transpose)


@op(samples=_square_samples, dtypes=_DTYPES)
def eig(x: Any) -> Any:
    """Eigenvalues and right eigenvectors of length 1: f32[..,n,n] -> c64[..,n], c64[..,n,n] (f64, c64, c128 too).  XLA: a call of LAPACK.

    It exists on CPUs only.

    Raises:
        DtypeError: x is of another dtype.
        ShapeError: x is no square matrix.
    """
    values, vectors = lax.linalg.eig(_matrix("eig", x, square=True), compute_left_eigenvectors=False)
    return values, vectors


@op(samples=_square_samples, dtypes=_DTYPES)
def matrix_exp(x: Any) -> Any:
    """The exponential of a square matrix: f32[..,n,n] -> f32[..,n,n] (f64, c64, c128 too).  XLA: DotGeneral, a call of LAPACK.

    It is computed in double precision: squaring doubles relative errors as well.

    Raises:
        DtypeError: x is of another dtype.
        ShapeError: x is no square matrix.
    """
    _matrix("matrix_exp", x, square=True)
    wide = lax.convert_element_type(x, np.complex128 if x.dtype in COMPLEX else np.float64)
    return lax.convert_element_type(jax.scipy.linalg.expm(wide, max_squarings=64), x.dtype) if x.size else x
