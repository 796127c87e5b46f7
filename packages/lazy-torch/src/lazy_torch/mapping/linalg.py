"""Matrix products and factorisations.

Owns: mm and its relatives, outer products, cdist, and `linalg_*`.  Half floats are accumulated in f32.

Not here: `_linalg_det`, `_linalg_slogdet` and `_linalg_solve_ex`.  They return an LU factorisation of A or of its transpose, depending on
whether A is contiguous, and their derivatives rely on which; builders do not know strides.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazy_core import ops
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr

from . import aten
from .promotion import (
    BOOL,
    I32,
    I64,
    DType,
    Scalar,
    broadcast_dims,
    cast,
    expand,
    filled,
    iota,
    is_complex,
    is_float,
    is_half,
    is_static,
    math_dtype,
    operand,
    reshape,
)
from .shapes import crop, cut


def product(x: Expr, y: Expr, out: DType | None = None) -> Expr:
    """A matrix product with batch dims; half floats are accumulated in f32."""
    kind = x.shape.dtype
    if y.shape.dtype != kind:
        raise RuntimeError(f"expected both matrices to have the same dtype, but got {x.shape} and {y.shape}")
    if x.shape.dims[-1] == 0:
        dims = (*broadcast_dims(x.shape.dims[:-2], y.shape.dims[:-2]), x.shape.dims[-2], y.shape.dims[-1])
        return filled(0, dims, out or kind)
    if kind == BOOL:
        raise RuntimeError("matrix products are not defined for bool tensors; convert them to an integer or float type")
    wide = math_dtype(kind)
    return cast(ops.matmul(cast(x, wide), cast(y, wide)), out or kind)


def _check(name: str, x: Expr, y: Expr, ndim: int) -> None:
    if x.shape.ndim != ndim or y.shape.ndim != ndim:
        raise RuntimeError(f"{name}: expected {ndim}-D operands, but got {x.shape} and {y.shape}")
    if x.shape.dims[-1] != y.shape.dims[-2] or x.shape.dims[:-2] != y.shape.dims[:-2]:
        raise RuntimeError(f"{name}: {x.shape} and {y.shape} cannot be multiplied: {x.shape.dims[-1]} columns, {y.shape.dims[-2]} rows")


@aten("mm")
def mm(self: Expr, mat2: Expr) -> Expr:
    _check("mm", self, mat2, 2)
    return product(self, mat2)


@aten("mm.dtype")
def mm_dtype(self: Expr, mat2: Expr, out_dtype: DType) -> Expr:
    _check("mm", self, mat2, 2)
    return product(self, mat2, out_dtype)


@aten("bmm")
def bmm(self: Expr, mat2: Expr) -> Expr:
    _check("bmm", self, mat2, 3)
    return product(self, mat2)


@aten("bmm.dtype")
def bmm_dtype(self: Expr, mat2: Expr, out_dtype: DType) -> Expr:
    _check("bmm", self, mat2, 3)
    return product(self, mat2, out_dtype)


@aten("_int_mm")
def int_mm(self: Expr, mat2: Expr) -> Expr:
    return product(cast(self, I32), cast(mat2, I32))


def _affine(base: Expr, body: Expr, beta: Scalar, alpha: Scalar, kind: DType) -> Expr:
    """beta * base + alpha * body in the dtype of body; beta 0 ignores nan in base."""
    wide = body.shape.dtype
    scaled = body if is_static(alpha) and alpha == 1 else ops.mul(body, operand(alpha, wide))
    if is_static(beta) and beta == 0:
        return cast(scaled, kind)
    left = cast(base, wide)
    if not (is_static(beta) and beta == 1):
        left = ops.mul(left, operand(beta, wide))
    return expand(cast(ops.add(left, scaled), kind), body.shape.dims)


def _same(name: str, base: Expr, x: Expr) -> None:
    if base.shape.dtype != x.shape.dtype:
        raise RuntimeError(f"{name}: expected operands of one dtype, but got {base.shape} and {x.shape}")


@aten("addmm")
def addmm(self: Expr, mat1: Expr, mat2: Expr, *, beta: Scalar = 1, alpha: Scalar = 1) -> Expr:
    _check("addmm", mat1, mat2, 2)
    _same("addmm", self, mat1)
    return _affine(self, product(mat1, mat2, math_dtype(mat1.shape.dtype)), beta, alpha, self.shape.dtype)


@aten("_addmm_activation")
def addmm_activation(self: Expr, mat1: Expr, mat2: Expr, *, beta: Scalar = 1, alpha: Scalar = 1, use_gelu: bool = False) -> Expr:
    x = addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return ops.gelu(x, approximate=False) if use_gelu else ops.relu(x)


@aten("baddbmm")
def baddbmm(self: Expr, batch1: Expr, batch2: Expr, *, beta: Scalar = 1, alpha: Scalar = 1) -> Expr:
    _check("baddbmm", batch1, batch2, 3)
    _same("baddbmm", self, batch1)
    return _affine(self, product(batch1, batch2, math_dtype(batch1.shape.dtype)), beta, alpha, self.shape.dtype)


@aten("addbmm")
def addbmm(self: Expr, batch1: Expr, batch2: Expr, *, beta: Scalar = 1, alpha: Scalar = 1) -> Expr:
    _check("addbmm", batch1, batch2, 3)
    body = ops.sum(product(batch1, batch2, math_dtype(batch1.shape.dtype)), axes=(0,), keepdims=False)
    return _affine(self, body, beta, alpha, self.shape.dtype)


@aten("mv")
def mv(self: Expr, vec: Expr) -> Expr:
    if self.shape.ndim != 2 or vec.shape.ndim != 1 or self.shape.dims[1] != vec.shape.dims[0]:
        raise RuntimeError(f"size mismatch, got input {self.shape}, vec {vec.shape}")
    return reshape(product(self, reshape(vec, (*vec.shape.dims, 1))), (self.shape.dims[0],))


@aten("addmv")
def addmv(self: Expr, mat: Expr, vec: Expr, *, beta: Scalar = 1, alpha: Scalar = 1) -> Expr:
    return _affine(self, cast(mv(mat, vec), math_dtype(mat.shape.dtype)), beta, alpha, self.shape.dtype)


@aten("addr")
def addr(self: Expr, vec1: Expr, vec2: Expr, *, beta: Scalar = 1, alpha: Scalar = 1) -> Expr:
    n, m = vec1.shape.size, vec2.shape.size
    if self.shape.dtype == BOOL:
        raise UnsupportedError("addr of bool tensors")
    return _affine(self, ops.mul(reshape(vec1, (n, 1)), reshape(vec2, (1, m))), beta, alpha, self.shape.dtype)


@aten("dot")
def dot(self: Expr, tensor: Expr) -> Expr:
    if self.shape.ndim != 1 or tensor.shape.ndim != 1 or self.shape.size != tensor.shape.size:
        raise RuntimeError(f"dot: expected two 1-D tensors of one size, but got {self.shape} and {tensor.shape}")
    n = self.shape.size
    return reshape(product(reshape(self, (1, n)), reshape(tensor, (n, 1))), ())


@aten("vdot")
def vdot(self: Expr, other: Expr) -> Expr:
    return dot(ops.conj(self) if is_complex(self.shape.dtype) else self, other)


@aten("linear_backward")
def linear_backward(self: Expr, grad_output: Expr, weight: Expr, output_mask: Sequence[bool]) -> tuple[Expr | None, ...]:
    g = reshape(grad_output, (-(-grad_output.shape.size // max(grad_output.shape.dims[-1], 1)), grad_output.shape.dims[-1]))
    x = reshape(self, (g.shape.dims[0], self.shape.dims[-1]))
    gx = reshape(product(g, weight), self.shape.dims) if output_mask[0] else None
    gw = product(ops.transpose(g, perm=(1, 0)), x) if output_mask[1] else None
    gb = ops.sum(g, axes=(0,), keepdims=False) if output_mask[2] else None
    return gx, gw, gb


@aten("linalg_cross")
def cross(self: Expr, other: Expr, *, dim: int = -1) -> Expr:
    dims = broadcast_dims(self.shape.dims, other.shape.dims)
    a = dim % len(dims)
    x, y = expand(self, dims), expand(other, dims)

    def turned(z: Expr, by: int) -> Expr:
        return ops.roll(z, shifts=(by,), axes=(a,))

    return ops.sub(ops.mul(turned(x, -1), turned(y, -2)), ops.mul(turned(x, -2), turned(y, -1)))


# ------------------------------------------------------------------ factorisations


def square(name: str, x: Expr) -> int:
    """The size of square matrices.

    Raises:
        RuntimeError: they are not square, or of a dtype that has no factorisations.
        NotImplementedError: they are half floats, for which torch has none either.
    """
    if x.shape.ndim < 2 or x.shape.dims[-1] != x.shape.dims[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {x.shape}")
    if is_half(x.shape.dtype):
        raise NotImplementedError(f"{name}: not implemented for half floats, but got {x.shape}; convert it to float32 first")
    if not (is_float(x.shape.dtype) or is_complex(x.shape.dtype)):
        raise RuntimeError(f"{name}: expected a float, double or complex tensor, but got {x.shape}")
    return x.shape.dims[-1]


def _swap(x: Expr) -> Expr:
    n = x.shape.ndim
    return ops.transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def conj_transposed(x: Expr) -> Expr:
    """The conjugate transpose of matrices."""
    return ops.conj(_swap(x)) if is_complex(x.shape.dtype) else _swap(x)


def _info(packed: Expr) -> Expr:
    """LAPACK's report on LU factors: the number, from 1, of the first pivot that is zero, or 0."""
    n = min(packed.shape.dims[-2:])
    if n == 0:
        return filled(0, packed.shape.dims[:-2], I32)
    last = packed.shape.ndim - 2
    diagonal = ops.diagonal(packed, offset=0, axis1=last, axis2=last + 1)
    zero = ops.eq(diagonal, operand(0, packed.shape.dtype))
    at = ops.argmax(ops.convert(zero, dtype=I32), axis=last, keepdims=False, dtype=I32)
    return ops.where(ops.any(zero, axes=(last,), keepdims=False), ops.add(at, operand(1, I32)), operand(0, I32))


@aten("linalg_cholesky_ex")
def cholesky_ex(self: Expr, *, upper: bool = False, check_errors: bool = False) -> tuple[Expr, Expr]:
    square("linalg.cholesky", self)
    if check_errors:
        raise UnsupportedError("linalg_cholesky_ex with check_errors reads the result")
    lower = ops.cholesky(conj_transposed(self) if upper else self)
    n = lower.shape.ndim
    bad = ops.any(ops.isnan(ops.real(lower) if is_complex(lower.shape.dtype) else lower), axes=(n - 2, n - 1), keepdims=False)
    return conj_transposed(lower) if upper else lower, cast(bad, I32)


@aten("cholesky")
def cholesky(self: Expr, upper: bool = False) -> Expr:
    return cholesky_ex(self, upper=upper)[0]


@aten("linalg_inv_ex")
def inv_ex(A: Expr, *, check_errors: bool = False) -> tuple[Expr, Expr]:
    square("linalg.inv", A)
    return ops.inv(A), _info(_factor(A)[0])


@aten("linalg_solve_triangular")
def solve_triangular(self: Expr, B: Expr, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Expr:
    square("linalg.solve_triangular", self)
    batch = broadcast_dims(self.shape.dims[:-2], B.shape.dims[:-2])
    a = expand(self, (*batch, *self.shape.dims[-2:]))
    b = expand(B, (*batch, *B.shape.dims[-2:]))
    if left:
        return ops.triangular_solve(a, b, lower=not upper, unit=unitriangular, transpose=False)
    x = ops.triangular_solve(_swap(a), _swap(b), lower=upper, unit=unitriangular, transpose=False)
    return _swap(x)


@aten("linalg_qr")
def qr(A: Expr, mode: str = "reduced") -> tuple[Expr, Expr]:
    if mode == "r":
        q, r = ops.qr(A, mode="reduced")
        return filled(0, (0,), A.shape.dtype), r
    q, r = ops.qr(A, mode=mode)
    return q, r


@aten("_linalg_eigh")
def eigh(A: Expr, UPLO: str = "L", compute_v: bool = True) -> tuple[Expr, Expr]:
    square("linalg.eigh", A)
    half = ops.tril(A, k=0) if UPLO.upper() == "L" else ops.triu(A, k=0)
    strict = ops.tril(A, k=-1) if UPLO.upper() == "L" else ops.triu(A, k=1)
    values, vectors = ops.eigh(ops.add(half, conj_transposed(strict)))
    return values, vectors if compute_v else filled(0, (0,), A.shape.dtype)


@aten("_linalg_svd")
def svd(A: Expr, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> tuple[Expr, Expr, Expr]:
    u, s, vh = ops.svd(A, full_matrices=full_matrices)
    if not compute_uv:
        empty = filled(0, (0,), A.shape.dtype)
        return empty, s, empty
    return u, s, vh


def _factor(A: Expr) -> tuple[Expr, Expr]:
    """Packed LU and pivots as torch counts them: from 1, i32."""
    packed, pivots, _ = ops.lu(A)
    return packed, ops.add(cast(pivots, I32), operand(1, I32))


@aten("linalg_lu_factor_ex")
def lu_factor_ex(A: Expr, *, pivot: bool = True, check_errors: bool = False) -> tuple[Expr, Expr, Expr]:
    if not pivot:
        raise UnsupportedError("LU without pivoting")
    packed, pivots = _factor(A)
    return packed, pivots, _info(packed)


@aten("lu_unpack")
def lu_unpack(LU_data: Expr, LU_pivots: Expr, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Expr, Expr, Expr]:
    *batch, m, n = LU_data.shape.dims
    k = min(m, n)
    kind = LU_data.shape.dtype
    empty = filled(0, (0,), kind)
    p = lower = upper = empty
    if unpack_data:
        left, top = crop(LU_data, (*batch, m, k)), crop(LU_data, (*batch, k, n))
        lower = ops.add(ops.tril(left, k=-1), ops.eye(n=m, m=k, k=0, dtype=kind))
        upper = ops.triu(top, k=0)
    if unpack_pivots:
        p = _swap(_permutation(LU_pivots, m, kind))
    return p, lower, upper


def _permutation(pivots: Expr, m: int, kind: DType) -> Expr:
    """The matrix that carries out the row swaps, [..., m, m]."""
    *batch, k = pivots.shape.dims
    rows = expand(iota((m,), 0), (*batch, m))
    last = len(batch)
    where = ops.sub(cast(pivots, I64), operand(1, I64))
    for i in range(k):
        at = cut(where, last, i, i + 1)
        other = ops.take_along_axis(rows, at, axis=last)
        mine = cut(rows, last, i, i + 1)
        rows = ops.scatter(rows, at, mine, axis=last, reduce="set")
        rows = ops.scatter(rows, expand(operand(i, I64), (*batch, 1)), other, axis=last, reduce="set")
    return ops.one_hot(rows, depth=m, dtype=kind)


@aten("linalg_lu_solve")
def lu_solve(LU: Expr, pivots: Expr, B: Expr, *, left: bool = True, adjoint: bool = False) -> Expr:
    n = square("linalg.lu_solve", LU)
    if not left:
        return conj_transposed(lu_solve(LU, pivots, conj_transposed(B), left=True, adjoint=not adjoint))
    batch = broadcast_dims(LU.shape.dims[:-2], B.shape.dims[:-2])
    packed = expand(LU, (*batch, n, n))
    p = expand(_permutation(pivots, n, LU.shape.dtype), (*batch, n, n))
    b = expand(B, (*batch, *B.shape.dims[-2:]))
    if not adjoint:
        y = ops.triangular_solve(packed, ops.matmul(p, b), lower=True, unit=True, transpose=False)
        return ops.triangular_solve(packed, y, lower=False, unit=False, transpose=False)
    turned = conj_transposed(packed)
    y = ops.triangular_solve(turned, b, lower=True, unit=False, transpose=False)
    return ops.matmul(_swap(p), ops.triangular_solve(turned, y, lower=False, unit=True, transpose=False))


@aten("linalg_lu")
def lu(A: Expr, *, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return lu_unpack(packed, pivots)


@aten("triangular_solve")
def triangular_solve(self: Expr, A: Expr, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> tuple[Expr, Expr]:
    a = _swap(A) if transpose else A
    return solve_triangular(a, self, upper=upper != transpose, unitriangular=unitriangular), A


@aten("cholesky_solve")
def cholesky_solve(self: Expr, input2: Expr, upper: bool = False) -> Expr:
    lower = conj_transposed(input2) if upper else input2
    y = solve_triangular(lower, self, upper=False)
    return solve_triangular(conj_transposed(lower), y, upper=True)


@aten("cholesky_inverse")
def cholesky_inverse(self: Expr, upper: bool = False) -> Expr:
    n = square("cholesky_inverse", self)
    return cholesky_solve(expand(ops.eye(n=n, m=n, k=0, dtype=self.shape.dtype), self.shape.dims), self, upper)


@aten("_trilinear")
def trilinear(
    i1: Expr,
    i2: Expr,
    i3: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Expr:
    kind = math_dtype(i1.shape.dtype)
    wide = [
        ops.expand_dims(cast(x, kind), axes=tuple(where)) if where else cast(x, kind)
        for x, where in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    product_ = ops.mul(ops.mul(wide[0], wide[1]), wide[2])
    return cast(ops.sum(product_, axes=tuple(sumdim), keepdims=False) if sumdim else product_, i1.shape.dtype)
