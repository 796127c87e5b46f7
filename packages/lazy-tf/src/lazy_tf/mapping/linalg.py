"""Linear algebra and Fourier transforms.

Source: `gen_linalg_ops`, `gen_spectral_ops`.  May import `rules` and the core.
"""

from __future__ import annotations

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from .math import adjoint_of
from .rules import direct, lower

direct(ops.cholesky, "Cholesky")
direct(ops.det, "MatrixDeterminant")


def _as(x: Expr, like: Expr) -> Expr:
    return x if x.shape.dtype == like.shape.dtype else ops.convert(x, dtype=like.shape.dtype)


@lower("LogMatrixDeterminant")
def _log_determinant(x: Expr) -> tuple[Expr, Expr]:
    sign, logarithm = ops.slogdet(x)
    return sign, _as(logarithm, x)


@lower("MatrixInverse")
def _inverse(x: Expr, *, adjoint: bool) -> Expr:
    return ops.inv(adjoint_of(x, adjoint))


@lower("Qr")
def _qr(x: Expr, *, full_matrices: bool) -> tuple[Expr, Expr]:
    q, r = ops.qr(x, mode="complete" if full_matrices else "reduced")
    return q, r


@lower("Svd")
def _svd(x: Expr, *, compute_uv: bool, full_matrices: bool) -> tuple[Expr, Expr, Expr]:
    if not compute_uv:
        raise UnsupportedError("Svd: singular values alone")
    u, s, vh = ops.svd(x, full_matrices=full_matrices)
    return s, u, adjoint_of(vh, True)


@lower("SelfAdjointEigV2")
def _eigh(x: Expr, *, compute_v: bool) -> tuple[Expr, Expr]:
    if not compute_v:
        raise UnsupportedError("SelfAdjointEigV2: eigenvalues alone")
    values, vectors = ops.eigh(x)
    return _as(values, x), vectors


@lower("MatrixSolve")
def _solve(matrix: Expr, rhs: Expr, *, adjoint: bool) -> Expr:
    return ops.solve(adjoint_of(matrix, adjoint), rhs)


@lower("MatrixTriangularSolve")
def _triangular_solve(matrix: Expr, rhs: Expr, *, lower: bool, adjoint: bool) -> Expr:
    if adjoint and matrix.shape.dtype.kind == "c":
        matrix = ops.conj(matrix)
    return ops.triangular_solve(matrix, rhs, lower=lower, unit=False, transpose=adjoint)


def _transform(name: str, kind: str, rank: int) -> None:
    @lower(name)
    def transform(x: Expr) -> Expr:
        return ops.fft(x, kind=kind, lengths=x.shape.dims[-rank:])


for _rank, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _transform(f"FFT{_suffix}", "fft", _rank)
    _transform(f"IFFT{_suffix}", "ifft", _rank)


@lower("RFFT")
def _rfft(x: Expr, *, fft_length: tuple[int, ...]) -> Expr:
    if x.shape.dims[-1:] != fft_length:
        raise UnsupportedError(f"RFFT: {x.shape} cut or padded to {fft_length}")
    return ops.fft(x, kind="rfft", lengths=fft_length)


@lower("IRFFT")
def _irfft(x: Expr, *, fft_length: tuple[int, ...]) -> Expr:
    if x.shape.dims[-1] != fft_length[0] // 2 + 1:
        raise UnsupportedError(f"IRFFT: {x.shape} cut or padded to {fft_length}")
    return ops.fft(x, kind="irfft", lengths=fft_length)
