"""Products and decompositions of matrices.

Owns: `np.dot` to `np.einsum`, and `np.linalg`.  NumPy raises LinAlgError for a singular or indefinite matrix, so `inv`,
`solve` and `cholesky` read one flag. May import `base`, `reductions`, `shapes`, lazy_core's ops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from lazy_core import ops
from lazy_core.ir import const

from .. import dtypes
from ..fallback import NotLowered
from ..tensor import ndarray, wrap, wrap_any
from . import reductions, shapes, ufuncs
from .base import array, axes_tuple, lowers, recorded, store


def _cast(x: Any, dtype: np.dtype) -> Any:
    return x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)


def _together(*arrays: Any) -> tuple[list[ndarray], np.dtype]:
    parts = [array(a) for a in arrays]
    return parts, np.result_type(*[p._shape.dtype for p in parts])


@lowers(np.matmul)
def matmul(a: Any, b: Any, **kwargs: Any) -> Any:
    """`np.matmul`."""
    return ufuncs.call_with(np.matmul, (a, b), **kwargs)


@recorded("numpy.dot")
def _contract(x: Any, y: Any, *, contract: Any, dtype: np.dtype) -> Any:
    x, y = _cast(x, dtype), _cast(y, dtype)
    if dtype.kind == "b":
        wide = np.dtype(np.int32)
        return ops.ne(ops.dot_general(_cast(x, wide), _cast(y, wide), contract=contract, batch=((), ())), const(0, wide))
    return ops.dot_general(x, y, contract=contract, batch=((), ()))


@lowers(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """`np.dot`."""
    (x, y), dtype = _together(a, b)
    if x._shape.ndim == 0 or y._shape.ndim == 0:
        return store(x * y, out)
    last, first = x._shape.ndim - 1, max(y._shape.ndim - 2, 0)
    if x._shape.dims[last] != y._shape.dims[first]:
        left, right = (str(v._shape.dims).replace(" ", "") for v in (x, y))
        raise ValueError(
            f"shapes {left} and {right} not aligned: {x._shape.dims[last]} (dim {last}) != {y._shape.dims[first]} (dim {first})"
        )
    return store(wrap_any(_contract(x._get(), y._get(), contract=((last,), (first,)), dtype=dtype)), out)


@lowers(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    """`np.vdot`."""
    x, y = array(a), array(b)
    return dot(shapes.ravel(x).conj(), shapes.ravel(y))


@lowers(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    """`np.inner`."""
    (x, y), dtype = _together(a, b)
    if x._shape.ndim == 0 or y._shape.ndim == 0:
        return x * y
    if x._shape.dims[-1] != y._shape.dims[-1]:
        left, right = (str(v._shape.dims).replace(" ", "") for v in (x, y))
        raise ValueError(
            f"shapes {left} and {right} not aligned: "
            f"{x._shape.dims[-1]} (dim {x._shape.ndim - 1}) != {y._shape.dims[-1]} (dim {y._shape.ndim - 1})"
        )
    return wrap_any(_contract(x._get(), y._get(), contract=((x._shape.ndim - 1,), (y._shape.ndim - 1,)), dtype=dtype))


@lowers(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """`np.outer`."""
    x, y = shapes.ravel(a), shapes.ravel(b)
    return store(x[:, None] * y[None, :], out)


@lowers(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """`np.tensordot`."""
    (x, y), dtype = _together(a, b)
    n, m = x._shape.ndim, y._shape.ndim
    if np.ndim(axes) == 0 and not isinstance(axes, (list, tuple)):
        count = int(axes)
        left, right = tuple(range(n - count, n)), tuple(range(count))
    else:
        first, second = axes
        left, right = axes_tuple(first, n), axes_tuple(second, m)
    if len(left) != len(right) or any(x._shape.dims[i] != y._shape.dims[j] for i, j in zip(left, right, strict=True)):
        raise ValueError("shape-mismatch for sum")
    return wrap(_contract(x._get(), y._get(), contract=(left, right), dtype=dtype))


@recorded("numpy.einsum")
def _einsum(*xs: Any, equation: str, dtype: np.dtype) -> Any:
    return ops.einsum(*[_cast(x, dtype) for x in xs], equation=equation)


@lowers(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """`np.einsum` with an equation."""
    if kwargs or not operands or not isinstance(operands[0], str):
        raise NotLowered("operands given by lists of axes, or a dtype")
    parts, dtype = _together(*operands[1:])
    if dtype.kind == "b":
        raise NotLowered("einsum of bools")
    equation = operands[0].replace(" ", "")
    if all(p._shape.size < 1 << 12 for p in parts):  # let NumPy say what is wrong with the equation
        np.einsum(equation, *[np.broadcast_to(np.float32(0), p._shape.dims) for p in parts])
    else:
        _check_ranks(equation, parts)
    return store(wrap_any(_einsum(*[p._get() for p in parts], equation=equation, dtype=dtype)), out)


def _check_ranks(equation: str, parts: list[ndarray]) -> None:
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(parts):
        raise ValueError("fewer operands provided to einstein sum function than specified in the subscripts string")


@lowers(np.linalg.trace)
def matrices_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """`np.linalg.trace`: of the last two axes."""
    return trace(x, offset, -2, -1, dtype)


@lowers(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """`np.trace`."""
    return reductions.sum(shapes.diagonal(a, offset, axis1, axis2), -1, dtype, out)


@lowers(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    """`np.cross` of vectors of three."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = shapes.moveaxis(array(a), axisa, -1), shapes.moveaxis(array(b), axisb, -1)
    if x._shape.dims[-1] != 3 or y._shape.dims[-1] != 3:
        raise NotLowered("vectors of two elements")
    parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return shapes.moveaxis(shapes.stack(parts, -1), -1, axisc) if np.ndim(parts[0]) else shapes.stack(parts, -1)


@lowers(np.kron)
def kron(a: Any, b: Any) -> Any:
    """`np.kron`."""
    x, y = array(a), array(b)
    ndim = max(x._shape.ndim, y._shape.ndim)
    n = (1,) * (ndim - x._shape.ndim) + x._shape.dims
    m = (1,) * (ndim - y._shape.ndim) + y._shape.dims
    left = shapes.reshape(x, tuple([d for p in n for d in (p, 1)]))
    right = shapes.reshape(y, tuple([d for q in m for d in (1, q)]))
    return shapes.reshape(left * right, tuple([p * q for p, q in zip(n, m, strict=True)]))


# ------------------------------------------------------------------ np.linalg


def _square(a: Any, square: bool = True) -> tuple[ndarray, np.dtype]:
    x = array(a)
    if x._shape.ndim < 2:
        raise LinAlgError(f"{x._shape.ndim}-dimensional array given. Array must be at least two-dimensional")
    if square and x._shape.dims[-1] != x._shape.dims[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    kind = x._shape.dtype
    if kind == np.float16:
        raise TypeError("array type float16 is unsupported in linalg")
    if kind.kind in "biu":
        kind = dtypes.FLOAT64
    return x, kind


@recorded("numpy.linalg")
def _linalg(x: Any, *rest: Any, name: str, dtype: np.dtype, static: tuple[Any, ...]) -> Any:
    result = getattr(ops, name)(_cast(x, dtype), *[_cast(r, dtype) for r in rest], **dict(static))
    if name in ("inv", "solve", "cholesky"):
        axes = tuple(range(len(result.shape.dims)))
        finite = ops.all(ops.isfinite(result), axes=axes, keepdims=False)
        given = ops.all(
            ops.isfinite(x) if x.shape.dtype.kind in "fc" else ops.eq(x, x), axes=tuple(range(len(x.shape.dims))), keepdims=False
        )
        return result, ops.logical_and(given, ops.logical_not(finite))
    return result


def _checked(name: str, error: str, x: ndarray, dtype: np.dtype, *rest: Any, static: tuple[Any, ...] = ()) -> ndarray:
    result, failed = _linalg(x._get(), *rest, name=name, dtype=dtype, static=static)
    if x._shape.size and bool(wrap_any(failed)):
        raise LinAlgError(error)
    return wrap(result)


@lowers(np.linalg.inv)
def inv(a: Any) -> Any:
    """`np.linalg.inv`; reads whether the matrix was singular."""
    x, dtype = _square(a)
    return _checked("inv", "Singular matrix", x, dtype)


@lowers(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    """`np.linalg.solve`; reads whether the matrix was singular."""
    x, dtype = _square(a)
    y = array(b)
    dtype = np.result_type(dtype, dtypes.mean_dtype(y._shape.dtype))
    vector = y._shape.ndim == 1
    if (y._shape.dims[0] if vector else y._shape.dims[-2]) != x._shape.dims[-1]:
        raise ValueError(
            "solve: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"{'(m,m),(m)->(m)' if vector else '(m,m),(m,n)->(m,n)'} "
            f"(size {y._shape.dims[0] if vector else y._shape.dims[-2]} is different from {x._shape.dims[-1]})"
        )
    if not vector and x._shape.dims[:-2] != y._shape.dims[:-2]:
        joint = np.broadcast_shapes(x._shape.dims[:-2], y._shape.dims[:-2])
        x, y = shapes.broadcast_to(x, joint + x._shape.dims[-2:]), shapes.broadcast_to(y, joint + y._shape.dims[-2:])
    if vector and x._shape.ndim > 2:
        y = shapes.broadcast_to(y, x._shape.dims[:-1])[..., None]
    result = _checked("solve", "Singular matrix", x, dtype, (y[:, None] if vector and x._shape.ndim == 2 else y)._get())
    return result[..., 0] if vector else result


@lowers(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """`np.linalg.cholesky`; reads whether the matrix was positive definite."""
    x, dtype = _square(a)
    result = _checked("cholesky", "Matrix is not positive definite", x, dtype)
    return shapes.swapaxes(result, -1, -2).conj() if upper else result


@lowers(np.linalg.det)
def det(a: Any) -> Any:
    """`np.linalg.det`."""
    x, dtype = _square(a)
    return wrap_any(_linalg(x._get(), name="det", dtype=dtype, static=()))


@lowers(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """`np.linalg.slogdet`."""
    x, dtype = _square(a)
    sign, log = wrap_any(_linalg(x._get(), name="slogdet", dtype=dtype, static=()))
    return np.linalg._linalg.SlogdetResult(sign, log)  # type: ignore[attr-defined]


@lowers(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    """`np.linalg.qr`."""
    x, dtype = _square(a, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise NotLowered(f"mode {mode!r}")
    q, r = wrap_any(_linalg(x._get(), name="qr", dtype=dtype, static=(("mode", "reduced" if mode == "r" else mode),)))
    return r if mode == "r" else np.linalg._linalg.QRResult(q, r)  # type: ignore[attr-defined]


@lowers(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """`np.linalg.svd`."""
    x, dtype = _square(a, square=False)
    if hermitian:
        raise NotLowered("hermitian=True")
    u, s, vh = wrap_any(_linalg(x._get(), name="svd", dtype=dtype, static=(("full_matrices", bool(full_matrices)),)))
    return np.linalg._linalg.SVDResult(u, s, vh) if compute_uv else s  # type: ignore[attr-defined]


@lowers(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    """`np.linalg.svdvals`."""
    return svd(x, full_matrices=False, compute_uv=False)


@lowers(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """`np.linalg.eigh`."""
    x, dtype = _square(a)
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    if UPLO.upper() == "U":
        x = shapes.swapaxes(x, -1, -2).conj()
    w, v = wrap_any(_linalg(_lower(x)._get(), name="eigh", dtype=dtype, static=()))
    return np.linalg._linalg.EighResult(w, v)  # type: ignore[attr-defined]


def _lower(x: ndarray) -> ndarray:
    """The Hermitian matrix that the lower triangle says."""
    strict = shapes.tril(x, -1)
    diagonal = shapes.tril(x) - strict
    return diagonal + strict + shapes.swapaxes(strict, -1, -2).conj()


@lowers(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """`np.linalg.eigvalsh`."""
    return eigh(a, UPLO)[0]


@lowers(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`np.linalg.norm`: vectors of any order, matrices by Frobenius, one and infinity."""
    a = array(x)
    if a._shape.dtype.kind in "biu":
        a = a.astype(float)
    axes = axes_tuple(axis, a._shape.ndim)
    if axis is None and ord is None:
        axes = tuple(range(a._shape.ndim))
    if len(axes) == 1 or ord is None:
        result = _vector_norm(a, 2 if ord is None else ord, axes, keepdims)
    elif len(axes) == 2:
        result = _matrix_norm(a, ord, axes, keepdims)
    else:
        raise ValueError("Improper number of dimensions to norm.")
    return result


def _vector_norm(a: ndarray, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == 2:
        square = (a.real**2 + a.imag**2) if a._shape.dtype.kind == "c" else a * a
        return np.sqrt(reductions.sum(square, axes, None, None, keepdims))
    size: Any = np.abs(a)
    if ord == math.inf:
        return reductions.max(size, axes, None, keepdims)
    if ord == -math.inf:
        return reductions.min(size, axes, None, keepdims)
    if ord == 0:
        return reductions.sum((size != 0).astype(size.dtype), axes, None, None, keepdims)
    if ord == 1:
        return reductions.sum(size, axes, None, None, keepdims)
    return reductions.sum(size**ord, axes, None, None, keepdims) ** (1.0 / ord)


def _matrix_norm(a: ndarray, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    row, column = axes
    if ord in ("fro", "f"):
        return _vector_norm(a, 2, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        inner_axis, outer_axis = (row, column) if abs(ord) == 1 else (column, row)
        sums = reductions.sum(np.abs(a), inner_axis, None, None, True)
        pick = reductions.max if ord > 0 else reductions.min
        result = pick(sums, outer_axis, None, True)
        return result if keepdims else shapes.squeeze(result, axes) if a._shape.ndim > 2 else shapes.squeeze(result, axes)[()]
    raise NotLowered(f"a matrix norm of order {ord!r}")


@lowers(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """`np.linalg.matrix_power`."""
    x, _ = _square(a)
    n = int(n)
    if n == 0:
        from .creation import eye

        return shapes.broadcast_to(eye(x._shape.dims[-1], dtype=x._shape.dtype), x._shape.dims).copy()
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:
        if n & 1:
            result = x if result is None else result @ x
        n >>= 1
        if n:
            x = x @ x
    return result


@lowers(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """`np.linalg.multi_dot`, from left to right."""
    result = array(arrays[0])
    for x in arrays[1:]:
        result = dot(result, x)
    return store(result, out)
