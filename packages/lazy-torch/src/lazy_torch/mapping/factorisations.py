"""Reflectors, eigenvectors, pseudoinverses and exponentials of matrices, and factors of those that are symmetric but not definite.

Owns: geqrf, ormqr, linalg_householder_product, linalg_eig, linalg_ldl_factor_ex, linalg_ldl_solve, linalg_pinv, linalg_matrix_exp. Imports
`linalg` for the factorisations that it builds on.
"""

from __future__ import annotations

import numpy as np

from lazy_core import backend, ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .linalg import conj_transposed, eigh, square, svd
from .promotion import Scalar, broadcast_dims, cast, expand, filled, math_dtype, num, operand, real_of, reshape


@aten("geqrf")
def geqrf(self: Expr) -> tuple[Expr, Expr]:
    packed, tau = ops.geqrf(self)
    return packed, tau


@aten("linalg_householder_product")
def householder_product(input: Expr, tau: Expr) -> Expr:
    return input if input.shape.size == 0 else ops.householder_product(input, tau)


@aten("ormqr")
def ormqr(self: Expr, input2: Expr, input3: Expr, left: bool = True, transpose: bool = False) -> Expr:
    return input3 if input3.shape.size == 0 or self.shape.size == 0 else ops.ormqr(self, input2, input3, left=left, transpose=transpose)


def _on_cpu(name: str) -> None:
    if backend.device_name() != "cpu":
        raise UnsupportedError(f"{name}: XLA has it on CPUs only")


@aten("linalg_eig")
def eig(self: Expr) -> tuple[Expr, Expr]:
    square("linalg.eig", self)
    _on_cpu("linalg.eig")
    values, vectors = ops.eig(self)
    return values, vectors


@aten("_linalg_eigvals")
def eigvals(self: Expr) -> Expr:
    return eig(self)[0]


@aten("linalg_ldl_factor_ex")
def ldl_factor_ex(self: Expr, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Expr, Expr, Expr]:
    square("torch.linalg.ldl_factor_ex", self)
    if check_errors:
        raise UnsupportedError("linalg_ldl_factor_ex with check_errors reads the result")
    packed, pivots, info = ops.ldl(self, hermitian=hermitian)
    return packed, pivots, info


@aten("linalg_ldl_solve")
def ldl_solve(LD: Expr, pivots: Expr, B: Expr, *, hermitian: bool = False) -> Expr:
    batch = broadcast_dims(LD.shape.dims[:-2], B.shape.dims[:-2])
    packed, swaps = expand(LD, (*batch, *LD.shape.dims[-2:])), expand(pivots, (*batch, *pivots.shape.dims[-1:]))
    return ops.ldl_solve(packed, swaps, expand(B, (*batch, *B.shape.dims[-2:])), hermitian=hermitian)


@aten("linalg_matrix_exp")
def matrix_exp(self: Expr) -> Expr:
    wide = cast(self, math_dtype(self.shape.dtype))  # the only one of these that torch has of half floats
    square("linalg.matrix_exp", wide)
    return cast(ops.matrix_exp(wide), self.shape.dtype)


@aten("linalg_pinv.atol_rtol_tensor")
def pinv(self: Expr, *, atol: Scalar | None = None, rtol: Scalar | None = None, hermitian: bool = False) -> Expr:
    *batch, m, n = self.shape.dims
    kind = real_of(self.shape.dtype)
    if self.shape.size == 0:
        return filled(0, (*batch, n, m), self.shape.dtype)
    if hermitian:
        values, vectors = eigh(self)
        size = ops.abs(values)
        left, right = vectors, conj_transposed(vectors)
    else:
        u, values, vh = svd(self)
        size = values
        left, right = conj_transposed(vh), conj_transposed(u)
    largest = ops.max(size, axes=(size.shape.ndim - 1,), keepdims=True)
    usual = num(float(np.finfo(kind).eps) * max(m, n), size)
    absolute = _column(atol, size) if atol is not None else num(0, size)
    if rtol is not None:
        relative = _column(rtol, size)
    else:
        relative = usual if atol is None else ops.where(ops.gt(absolute, num(0, size)), num(0, size), usual)
    kept = ops.gt(size, ops.maximum(absolute, ops.mul(relative, largest)))
    inverse = ops.where(kept, ops.div(num(1, size), ops.where(kept, values, num(1, size))), num(0, size))
    row = ops.expand_dims(cast(inverse, self.shape.dtype), axes=(inverse.shape.ndim - 1,))
    return ops.matmul(ops.mul(left, row), right)


def _column(limit: Scalar, size: Expr) -> Expr:
    """A tolerance for each matrix, beside its singular values."""
    value = operand(limit, size.shape.dtype)
    lead = size.shape.dims[:-1]
    return reshape(expand(value, lead), (*lead, 1))
