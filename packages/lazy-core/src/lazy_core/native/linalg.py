"""Kernels of products of matrices, factorisations and Fourier transforms: the families `linalg` and `fourier`.

Owns: how products reach BLAS without copies where layouts allow it.  Where LAPACK refuses a matrix the operation is run by XLA, which
gives the NaNs that it declares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Node
from .registry import F32, Array, Function, builder, compiled, kind, narrow


@builder("matmul")
def matmul(node: Node) -> Function:
    """NumPy's; leading dims that only the left has are rows."""
    left, right = (e.shape for e in node.inputs)
    dtype = left.dtype
    if narrow(dtype):
        return lambda x, y: np.matmul(x.astype(F32), y.astype(F32)).astype(dtype)
    if left.ndim > 2 and right.ndim == 2 and kind(dtype) in "fc":
        dims = node.outputs[0].shape.dims
        inner = left.dims[-1]

        def joined(x: Array, y: Array) -> Array:
            if not x.flags.c_contiguous or x.size == 0:
                return np.matmul(x, y)
            return np.matmul(x.reshape(-1, inner), y).reshape(dims)

        return joined
    return np.matmul


def _split(dims: Sequence[int], contract: Sequence[int], batch: Sequence[int]) -> tuple[list[int], list[int]]:
    """The free dims, and whether they lie before the contracted ones."""
    return [a for a in range(len(dims)) if a not in contract and a not in batch], [a % len(dims) for a in contract]


def contraction(
    left: Sequence[int], right: Sequence[int], contract: tuple[Sequence[int], Sequence[int]], batch: tuple[Sequence[int], Sequence[int]]
) -> Function:
    """A function of two arrays of these dims: batch dims, what is left of the first, what is left of the second."""
    free_x, con_x = _split(left, contract[0], batch[0])
    free_y, con_y = _split(right, contract[1], batch[1])
    # Contracted pairs may be taken in any order: the one in which they lie in the larger operand needs no copy.
    by = con_x if math.prod(left) >= math.prod(right) else con_y
    pairs = sorted(range(len(by)), key=lambda i: by[i])
    con_x, con_y = [con_x[i] for i in pairs], [con_y[i] for i in pairs]
    size_b = [left[a] for a in batch[0]]
    m, n, k = (math.prod([d[a] for a in axes]) for d, axes in ((left, free_x), (right, free_y), (left, con_x)))
    result = (*size_b, *[left[a] for a in free_x], *[right[a] for a in free_y])
    b = math.prod(size_b)
    lead = (b,) if size_b else ()
    x_rows = not con_x or not free_x or max(free_x) < max(con_x)
    y_rows = bool(con_y) and bool(free_y) and max(con_y) < max(free_y)
    x_perm = (*batch[0], *free_x, *con_x) if x_rows else (*batch[0], *con_x, *free_x)
    y_perm = (*batch[1], *con_y, *free_y) if y_rows else (*batch[1], *free_y, *con_y)
    x_dims = (*lead, m, k) if x_rows else (*lead, k, m)
    y_dims = (*lead, k, n) if y_rows else (*lead, n, k)

    def run(x: Array, y: Array) -> Array:
        x = x.transpose(x_perm).reshape(x_dims)
        y = y.transpose(y_perm).reshape(y_dims)
        return np.matmul(x if x_rows else x.swapaxes(-1, -2), y if y_rows else y.swapaxes(-1, -2)).reshape(result)

    return run


@builder("dot_general")
def dot_general(node: Node) -> Function:
    """Transposes that cost nothing, and a product of matrices."""
    left, right = (e.shape for e in node.inputs)
    dtype = left.dtype
    run = contraction(left.dims, right.dims, node.attrs.kwargs["contract"], node.attrs.kwargs["batch"])
    return (lambda x, y: run(x.astype(F32), y.astype(F32)).astype(dtype)) if narrow(dtype) else run


@builder("einsum")
def einsum(node: Node) -> Function:
    """Two operands without repeated letters as one product of matrices; others as NumPy does them."""
    shapes = [e.shape for e in node.inputs]
    dtype = shapes[0].dtype
    equation = node.attrs.kwargs["equation"].replace(" ", "")
    run = _pair(equation, [s.dims for s in shapes]) if len(shapes) == 2 else None
    if run is None:
        run = _numpy_einsum(equation, len(shapes) > 2)
    if narrow(dtype):
        found = run
        return lambda *xs: np.asarray(found(*[x.astype(F32) for x in xs])).astype(dtype)
    return run


def _numpy_einsum(equation: str, optimize: bool) -> Function:
    return lambda *xs: np.einsum(equation, *xs, optimize=optimize)


def _pair(equation: str, dims: Sequence[Sequence[int]]) -> Function | None:
    if "..." in equation:
        return None
    operands, arrow, result = equation.partition("->")
    x, y = operands.split(",")
    if not arrow:
        letters = operands.replace(",", "")
        result = "".join(sorted([c for c in set(letters) if letters.count(c) == 1]))
    sizes: dict[str, set[int]] = {}
    for term, each in zip((x, y), dims, strict=True):
        for letter, n in zip(term, each, strict=True):
            sizes.setdefault(letter, set()).add(n)
    once = len(set(x)) == len(x) and len(set(y)) == len(y)
    if not once or any(len(s) > 1 for s in sizes.values()):  # a diagonal, or a dim of 1 that broadcasts
        return None
    alone = [c for c in set(x) ^ set(y) if c not in result]
    if alone:
        return None
    both = [c for c in x if c in y]
    batch = [c for c in both if c in result]
    contract = [c for c in both if c not in result]
    run = contraction(
        dims[0],
        dims[1],
        ([x.index(c) for c in contract], [y.index(c) for c in contract]),
        ([x.index(c) for c in batch], [y.index(c) for c in batch]),
    )
    order = [*batch, *[c for c in x if c not in both], *[c for c in y if c not in both]]
    perm = tuple([order.index(c) for c in result])
    if perm == tuple(range(len(perm))):
        return run
    return lambda a, b: run(a, b).transpose(perm)


# ------------------------------------------------------------------ factorisations


def lapack(name: str, make: Any) -> None:
    """What NumPy has of LAPACK; `make` turns attributes into a function that may raise."""

    @builder(name)
    def build(node: Node) -> Function:
        function, otherwise = make(**node.attrs.kwargs), compiled(node)
        if any(0 in e.shape.dims for e in node.inputs):
            return otherwise

        def run(*arrays: Array) -> Any:
            try:
                return function(*arrays)
            except np.linalg.LinAlgError:
                return otherwise(*arrays)

        return run


lapack("cholesky", lambda: np.linalg.cholesky)
lapack("eigh", lambda: lambda x: tuple(np.linalg.eigh(x)))
lapack("solve", lambda: np.linalg.solve)
lapack("inv", lambda: np.linalg.inv)
lapack("det", lambda: np.linalg.det)
lapack("slogdet", lambda: lambda x: tuple(np.linalg.slogdet(x)))
lapack("svd", lambda full_matrices: lambda x: tuple(np.linalg.svd(x, full_matrices=full_matrices)))
lapack("qr", lambda mode: (lambda x: np.linalg.qr(x, "r")) if mode == "r" else (lambda x: tuple(np.linalg.qr(x, mode))))


def _triangular(lower: bool, unit: bool, transpose: bool) -> Function:
    def solve(a: Array, b: Array) -> Array:
        triangle = np.tril(a, -1 if unit else 0) if lower else np.triu(a, 1 if unit else 0)
        if unit:
            triangle = triangle + np.eye(a.shape[-1], dtype=a.dtype)
        return np.linalg.solve(triangle.swapaxes(-1, -2) if transpose else triangle, b)

    return solve


lapack("triangular_solve", _triangular)


# ------------------------------------------------------------------ Fourier transforms


@builder("fft")
def fft(node: Node) -> Function:
    """NumPy's, which keeps single precision."""
    lengths, name = tuple(node.attrs.kwargs["lengths"]), node.attrs.kwargs["kind"]
    shape = node.outputs[0].shape
    if shape.size == 0 or node.inputs[0].shape.size == 0:
        return lambda x: np.zeros(shape.dims, shape.dtype)
    axes = tuple(range(-len(lengths), 0))
    transform: Any = {"fft": np.fft.fftn, "ifft": np.fft.ifftn, "rfft": np.fft.rfftn, "irfft": np.fft.irfftn}[name]
    return lambda x: transform(x, lengths, axes)
