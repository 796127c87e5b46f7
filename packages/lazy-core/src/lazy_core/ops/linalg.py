"""Products of matrices and factorisations.

Owns: dot products in every form (full precision on accelerators too, 16-bit floats accumulated in f32), and what LAPACK does.  A singular
or indefinite matrix gives NaN or infinities: raising is the frontend's, after a host read.  Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jnp, lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .registry import COMPLEX, NUMBER, WIDE_FLOAT, Sample, describe, numbers, op, same_dtype

FULL = "highest"  # as `lax.Precision` names it
Axes = tuple[int, ...]


def accumulator(x: Any) -> np.dtype:
    """The dtype that products of x are added up in."""
    return np.dtype(np.float32) if kind(x) == "f" and x.dtype.itemsize == 2 else np.dtype(x.dtype)


def _matmul_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for left, right in (
        ((3, 4), (4, 2)),
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 2)),
        ((2, 3, 4), (4, 2)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)),
    ):
        yield Sample((numbers(rng, left, dtype, -2, 2), numbers(rng, right, dtype, -2, 2)), {})


@op(samples=_matmul_samples)
def matmul(x: Any, y: Any) -> Any:
    """NumPy's matmul: dtype[..,m,k], dtype[..,k,n] -> dtype[..,m,n].

    Leading dims broadcast; a vector is a row on the left and a column on the right.

    XLA: DotGeneral.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: an operand is 0-d, the inner sizes differ, or leading dims do not broadcast.
    """
    same_dtype("matmul", x, y)
    if not x.ndim or not y.ndim:
        raise ShapeError(f"matmul({describe(x, y)}): 0-d operands have no matrix product; use mul")
    if x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise ShapeError(
            f"matmul({describe(x, y)}): {x.shape[-1]} columns on the left "
            f"meet {y.shape[-2 if y.ndim > 1 else 0]} rows on the right; they must be equal"
        )
    if kind(x) == "b":
        return lax.ne(matmul.fn(lax.convert_element_type(x, np.int32), lax.convert_element_type(y, np.int32)), np.int32(0))
    return lax.convert_element_type(jnp.matmul(x, y, precision=FULL, preferred_element_type=accumulator(x)), x.dtype)


def _dot_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((numbers(rng, (3, 4), dtype, -2, 2), numbers(rng, (5, 4), dtype, -2, 2)), {"contract": ((1,), (1,)), "batch": ((), ())})
    yield Sample(
        (numbers(rng, (2, 3, 4), dtype, -2, 2), numbers(rng, (2, 4, 5), dtype, -2, 2)), {"contract": ((2,), (1,)), "batch": ((0,), (0,))}
    )


@op(samples=_dot_samples, dtypes=NUMBER)
def dot_general(x: Any, y: Any, *, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes]) -> Any:
    """Products added up over some dims, side by side over others: dtype[*dims], dtype[*dims] -> dtype[*batch, *x's rest, *y's rest].

    Attributes: contract, batch, dims of x and of y.  XLA: DotGeneral.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: paired dims differ in size.
    """
    same_dtype("dot_general", x, y)
    result = lax.dot_general(x, y, (contract, batch), precision=FULL, preferred_element_type=accumulator(x))
    return lax.convert_element_type(result, x.dtype)


def _einsum_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    def make(*dims: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        return tuple(numbers(rng, d, dtype, -2, 2) for d in dims)

    yield Sample(make((3, 4), (4, 2)), {"equation": "ij,jk->ik"})
    yield Sample(make((2, 3, 4), (2, 5, 4)), {"equation": "bij,bkj->bik"})
    yield Sample(make((3, 3)), {"equation": "ii->"})
    yield Sample(make((2, 3), (3,), (2,)), {"equation": "ij,j,i->"})


@op(samples=_einsum_samples, dtypes=NUMBER)
def einsum(*xs: Any, equation: str) -> Any:
    """Einstein's sum convention: dtype[*dims].. -> dtype[*result].

    Attributes: equation, as NumPy takes it.  XLA: DotGeneral, Reduce, Transpose.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the equation does not fit the dims.
    """
    same_dtype("einsum", *xs)
    result = jnp.einsum(equation, *xs, precision=FULL, preferred_element_type=accumulator(xs[0]))
    return lax.convert_element_type(result, xs[0].dtype)


# ------------------------------------------------------------------ factorisations


def _matrices(name: str, x: Any, square: bool = True) -> None:
    if kind(x) not in "fc" or x.dtype.itemsize < 4:
        raise DtypeError(f"{name}({describe(x)}): expected f32, f64, c64 or c128; convert first")
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"{name}({describe(x)}): expected {'a square matrix' if square else 'a matrix'}, or such along leading dims")


_LAPACK = WIDE_FLOAT + COMPLEX


def _square_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((3, 3), (2, 4, 4)):
        yield Sample((numbers(rng, dims, dtype, -1, 1) + 3 * np.eye(dims[-1], dtype=dtype),), {})


def _hermitian(rng: np.random.Generator, dims: tuple[int, ...], dtype: np.dtype, definite: bool) -> np.ndarray:
    a = numbers(rng, dims, dtype, -1, 1)
    a = a @ np.conj(np.swapaxes(a, -1, -2)) if definite else a + np.conj(np.swapaxes(a, -1, -2))
    return np.asarray(a + (np.eye(dims[-1]) if definite else 0), dtype)


def _definite_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((3, 3), (2, 4, 4)):
        yield Sample((_hermitian(rng, dims, dtype, True),), {})


@op(samples=_definite_samples, dtypes=_LAPACK)
def cholesky(x: Any) -> Any:
    """The lower triangle whose product with its own transpose is x; NaN where there is none: f32[..,n,n] -> f32[..,n,n].

    Only the lower triangle of x is read.  XLA: Cholesky.

    Raises:
        ShapeError: x is not square.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("cholesky", x)
    return lax.linalg.cholesky(x, symmetrize_input=False)


def _qr_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for mode in ("reduced", "complete", "r"):
        yield Sample((numbers(rng, (4, 3), dtype),), {"mode": mode})
    yield Sample((numbers(rng, (2, 3, 4), dtype),), {"mode": "reduced"})


@op(samples=_qr_samples, dtypes=_LAPACK)
def qr(x: Any, *, mode: str) -> Any:
    """Orthonormal columns times an upper triangle: f32[..,m,n] -> (f32[..,m,k], f32[..,k,n]), or the triangle alone.

    Attributes: mode: "reduced", k = min(m, n); "complete", k = m; "r", the triangle.  XLA: a call of LAPACK's geqrf, orgqr.

    Raises:
        ShapeError: x is not a matrix, or the mode is another.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("qr", x, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"qr: mode {mode!r}; expected 'reduced', 'complete' or 'r'")
    result = jnp.linalg.qr(x, mode=mode)
    return result if mode == "r" else (result[0], result[1])


def _svd_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for full in (False, True):
        yield Sample((numbers(rng, (4, 3), dtype),), {"full_matrices": full})
    yield Sample((numbers(rng, (2, 3, 4), dtype),), {"full_matrices": False})


@op(samples=_svd_samples, dtypes=_LAPACK)
def svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Singular values and vectors, largest first: f32[..,m,n] -> (u f32[..,m,k], s f32[..,k], vh f32[..,k,n]).

    Attributes: full_matrices, u and vh square instead of k = min(m, n).  XLA: a call of LAPACK's gesdd.

    Raises:
        ShapeError: x is not a matrix.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("svd", x, square=False)
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return u, s, vh


def _symmetric_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims in ((3, 3), (2, 4, 4)):
        yield Sample((_hermitian(rng, dims, dtype, False),), {})


@op(samples=_symmetric_samples, dtypes=_LAPACK)
def eigh(x: Any) -> tuple[Any, Any]:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix: f32[..,n,n] -> (f32[..,n], f32[..,n,n]).

    Only the lower triangle of x is read.  XLA: a call of LAPACK's syevd.

    Raises:
        ShapeError: x is not square.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("eigh", x)
    vectors, eigenvalues = lax.linalg.eigh(x, lower=True, symmetrize_input=False)
    return eigenvalues, vectors


def _solve_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    a = numbers(rng, (3, 3), dtype, -1, 1) + 3 * np.eye(3, dtype=dtype)
    yield Sample((a, numbers(rng, (3,), dtype)), {})
    yield Sample((a, numbers(rng, (3, 2), dtype)), {})
    yield Sample((np.stack([a, a * 2]), numbers(rng, (2, 3, 2), dtype)), {})


@op(samples=_solve_samples, dtypes=_LAPACK)
def solve(a: Any, b: Any) -> Any:
    """The x with a x = b: f32[..,n,n], f32[n] or f32[..,n,k] -> the dims of b, leading dims broadcast; infinite or NaN if a is singular.

    XLA: a call of LAPACK's getrf, TriangularSolve.

    Raises:
        DtypeError: the dtypes differ or are not f32, f64, c64 or c128.
        ShapeError: a is not square, or b has another number of rows.
    """
    same_dtype("solve", a, b)
    _matrices("solve", a)
    if not b.ndim or b.shape[-2 if b.ndim > 1 else 0] != a.shape[-1]:
        raise ShapeError(f"solve({describe(a, b)}): expected {a.shape[-1]} rows in b")
    return jnp.linalg.solve(a, b)


def _triangular_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    a = numbers(rng, (3, 3), dtype, -1, 1) + 3 * np.eye(3, dtype=dtype)
    for lower, unit, transpose in ((True, False, False), (False, False, True), (True, True, False)):
        yield Sample((a, numbers(rng, (3, 2), dtype)), {"lower": lower, "unit": unit, "transpose": transpose})


@op(samples=_triangular_samples, dtypes=_LAPACK)
def triangular_solve(a: Any, b: Any, *, lower: bool, unit: bool, transpose: bool) -> Any:
    """The x with a x = b, reading one triangle of a: f32[..,n,n], f32[..,n,k] -> f32[..,n,k].

    Attributes: lower, which triangle; unit, its diagonal counts as ones; transpose, solve with a's transpose.  XLA: TriangularSolve.

    Raises:
        DtypeError: the dtypes differ or are not f32, f64, c64 or c128.
        ShapeError: a is not square, or b has another number of rows or other leading dims.
    """
    same_dtype("triangular_solve", a, b)
    _matrices("triangular_solve", a)
    if b.ndim < 2 or b.shape[-2] != a.shape[-1] or b.shape[:-2] != a.shape[:-2]:
        raise ShapeError(f"triangular_solve({describe(a, b)}): expected b to be [.., {a.shape[-1]}, k] with a's leading dims")
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=lower, unit_diagonal=unit, transpose_a=transpose)


@op(samples=_square_samples, dtypes=_LAPACK)
def inv(x: Any) -> Any:
    """The inverse; infinite or NaN if x is singular: f32[..,n,n] -> f32[..,n,n].  XLA: a call of LAPACK's getrf, TriangularSolve.

    Raises:
        ShapeError: x is not square.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("inv", x)
    return jnp.linalg.inv(x)


@op(samples=_square_samples, dtypes=_LAPACK)
def det(x: Any) -> Any:
    """The determinant: f32[..,n,n] -> f32[..].  XLA: a call of LAPACK's getrf, Reduce(Multiply).

    Raises:
        ShapeError: x is not square.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("det", x)
    return jnp.linalg.det(x)


@op(samples=_square_samples, dtypes=_LAPACK)
def slogdet(x: Any) -> tuple[Any, Any]:
    """The determinant's sign, and the logarithm of its size: f32[..,n,n] -> (f32[..], f32[..]).  XLA: a call of LAPACK's getrf, Log.

    Raises:
        ShapeError: x is not square.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("slogdet", x)
    sign, logarithm = jnp.linalg.slogdet(x)
    return sign, logarithm


@op(samples=_square_samples, dtypes=_LAPACK)
def lu(x: Any) -> tuple[Any, Any, Any]:
    """Both triangles in one matrix, the row swaps, and the permutation: f32[..,m,n] -> (f32[..,m,n], s32[..,k], s32[..,m]).

    XLA: a call of LAPACK's getrf.

    Raises:
        ShapeError: x is not a matrix.
        DtypeError: x is not f32, f64, c64 or c128.
    """
    _matrices("lu", x, square=False)
    packed, swaps, permutation = lax.linalg.lu(x)
    return packed, swaps, permutation
