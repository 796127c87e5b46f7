"""Symmetric and Hermitian matrices that need not be definite: factors with diagonal blocks of one or two rows, and systems solved by them.

Owns: `ldl` and `ldl_solve`. XLA has neither. The pivots are those of Bunch and Kaufman, "Some stable methods for calculating inertia and
solving symmetric linear systems", Math. Comp. 31 (1977), chosen and packed as LAPACK's sytf2, hetf2 and sytrs do it for lower triangles:
swaps of rows are not applied to columns that are done, and complex numbers are compared by |re| + |im|. Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..deferred import jax, jnp, lax
from ..errors import DtypeError, ShapeError
from .registry import COMPLEX, WIDE_FLOAT, Sample, describe, numbers, op

_DTYPES = WIDE_FLOAT + COMPLEX
_ALPHA = (1 + 17**0.5) / 8  # bounds the growth of elements: two steps of one row grow by as much as one step of two


def _check(name: str, x: Any, *rest: Any) -> None:
    if x.dtype not in _DTYPES:
        raise DtypeError(f"{name}({describe(x, *rest)}): expected f32, f64, c64 or c128")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}({describe(x, *rest)}): expected square matrices")


def _each(fn: Any, count: int) -> Any:
    for _ in range(count):
        fn = jax.vmap(fn)
    return fn


def _size(x: Any) -> Any:
    return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def _swapped(n: int, a: Any, b: Any) -> Any:
    """0 .. n-1 with two of them exchanged."""
    i = jnp.arange(n)
    return jnp.where(i == a, b, jnp.where(i == b, a, i))


def _inverse(a: Any, below: Any, c: Any, above: Any) -> Any:
    """Of a block of two rows, scaled by what is beside its diagonal, which is the largest."""
    p, q = a / above, c / below
    scale = 1 / (p * q - 1)
    return jnp.stack([jnp.stack([q * scale / above, -scale / below]), jnp.stack([-scale / above, p * scale / below])])


def _with_real_diagonal(x: Any, hermitian: bool) -> Any:
    return jnp.where(jnp.eye(x.shape[0], dtype=bool), x.real, x) if hermitian else x


def _choose(work: Any, k: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """(the row that becomes the pivot, whether the block has two rows, whether there is nothing to divide by)."""
    i = jnp.arange(work.shape[0])
    diagonal = _size(work.diagonal().real if hermitian else work.diagonal())
    column = jnp.where(i > k, _size(work[:, k]), -1)
    best = jnp.argmax(column)
    at_k, largest = diagonal[k], jnp.maximum(column[best], 0)
    in_row = jnp.max(jnp.where((i >= k) & (i != best), _size(work[best]), 0))
    none = (jnp.maximum(at_k, largest) == 0) | jnp.isnan(at_k)
    stay = none | (at_k >= _ALPHA * largest) | (at_k >= _ALPHA * largest * (largest / in_row))
    one = stay | (diagonal[best] >= _ALPHA * in_row)
    return jnp.where(stay, k, best), ~one, none


def _factor(x: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    n = x.shape[-1]
    i = jnp.arange(n)
    dual = jnp.conj if hermitian else lambda y: y
    whole = _with_real_diagonal(jnp.tril(x) + dual(jnp.tril(x, -1)).T, hermitian)

    def step(state: Any) -> Any:
        k, work, packed, pivots, info = state
        pivot, two, none = _choose(work, k, hermitian)
        last = jnp.where(two, k + 1, k)
        order = _swapped(n, last, pivot)
        work = work[order][:, order]
        rest = (i > last)[:, None]
        beside = jnp.minimum(k + 1, n - 1)
        first, second = work[:, k], jnp.where(two, work[:, beside], 0)
        block = _inverse(work[k, k], work[beside, k], work[beside, beside], work[k, beside])
        single = jnp.where(none, 0, first / jnp.where(none, 1, work[k, k]))
        pair = jnp.stack([first, second], 1)
        factors = jnp.where(rest, jnp.where(two, pair @ block, jnp.stack([single, jnp.zeros_like(single)], 1)), 0)
        after = _with_real_diagonal(work - jnp.where(rest & rest.T, factors @ dual(pair).T, 0), hermitian)
        done = jnp.where(none, jnp.where(i > k, first, 0), factors[:, 0])  # a column that is zero, or not a number, stays as it is
        done = jnp.where(i == k, work[k, k], jnp.where(two & (i == beside), work[beside, k], done))
        packed = packed.at[:, k].set(jnp.where(i >= k, done, packed[:, k]))
        then = jnp.where(i == beside, work[beside, beside], jnp.where(i > beside, factors[:, 1], packed[:, beside]))
        packed = packed.at[:, beside].set(jnp.where(two, then, packed[:, beside]))
        sign = jnp.where(two, -(pivot + 1), pivot + 1).astype(jnp.int32)
        pivots = jnp.where((i == k) | (i == last), sign, pivots)
        info = jnp.where((info == 0) & none, k + 1, info).astype(jnp.int32)
        return last + 1, after, packed, pivots, info

    start = (jnp.int32(0), whole, jnp.tril(x), jnp.zeros(n, jnp.int32), jnp.int32(0))
    _, _, packed, pivots, info = lax.while_loop(lambda state: state[0] < n, step, start)
    return packed, pivots, info


def _ldl_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, hermitian in (((4, 4), False), ((2, 3, 3), True)):
        x = numbers(rng, dims, dtype, -1, 1)
        y = np.swapaxes(x, -1, -2)
        yield Sample((x + (np.conj(y) if hermitian else y),), {"hermitian": hermitian})


@op(samples=_ldl_samples, dtypes=_DTYPES)
def ldl(x: Any, *, hermitian: bool) -> tuple[Any, Any, Any]:
    """x = L D L^T, or L D L^H, packed as LAPACK packs it, with its pivots and report: f32[..,n,n] -> f32[..,n,n], s32[..,n], s32[..].

    Only the lower triangle is read, and the upper one of the factors is zero. The report is the first diagonal block that is zero, counted
    from one, or zero. XLA: While.

    Attributes:
        hermitian: x is its own conjugate transpose, and not its own transpose.

    Raises:
        DtypeError: x is of another dtype.
        ShapeError: x is not square.
    """
    _check("ldl", x)
    if not x.shape[-1]:
        return x, jnp.zeros(x.shape[:-1], jnp.int32), jnp.zeros(x.shape[:-2], jnp.int32)
    packed, pivots, info = _each(lambda a: _factor(a, hermitian), x.ndim - 2)(x)
    return packed, pivots, info


def _solve(packed: Any, pivots: Any, y: Any, hermitian: bool) -> Any:
    n = packed.shape[-1]
    i = jnp.arange(n)
    dual = jnp.conj if hermitian else lambda a: a

    def below(k: Any, last: Any) -> Any:
        return jnp.where(i > last, packed[:, k], 0)

    def forward(state: Any) -> Any:
        k, b = state
        two = pivots[k] < 0
        last, beside = jnp.where(two, k + 1, k), jnp.minimum(k + 1, n - 1)
        b = b[_swapped(n, last, jnp.abs(pivots[k]) - 1)]
        b = b - below(k, last)[:, None] * b[k] - jnp.where(two, below(beside, last)[:, None] * b[beside], 0)
        corner = packed[k, k].real.astype(b.dtype) if hermitian else packed[k, k]
        block = _inverse(packed[k, k], packed[beside, k], packed[beside, beside], dual(packed[beside, k]))
        pair = block @ jnp.stack([b[k], b[beside]])
        b = b.at[k].set(jnp.where(two, pair[0], b[k] / corner))
        b = b.at[beside].set(jnp.where(two, pair[1], b[beside]))
        return last + 1, b

    def backward(state: Any) -> Any:
        k, b = state
        two = pivots[k] < 0
        before = jnp.maximum(k - 1, 0)
        here, other = (b[j] - dual(below(j, k)) @ b for j in (k, before))
        b = b.at[before].set(jnp.where(two, other, b[before])).at[k].set(here)
        b = b[_swapped(n, k, jnp.abs(pivots[k]) - 1)]
        return jnp.where(two, k - 2, k - 1), b

    _, y = lax.while_loop(lambda state: state[0] < n, forward, (jnp.int32(0), y))
    return lax.while_loop(lambda state: state[0] >= 0, backward, (jnp.int32(n - 1), y))[1]


def _ldl_solve_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, hermitian, pivots, pair in (((4, 4), False, (2, 2, -4, -4), 2), ((2, 3, 3), True, (-3, -3, 3), 0)):
        packed = np.tril(numbers(rng, dims, dtype, -1, 1), -1) + 3 * np.eye(dims[-1], dtype=dtype)
        packed[..., pair + 1, pair] = 5
        swaps = np.broadcast_to(np.array(pivots, np.int32), dims[:-1]).copy()
        yield Sample((packed, swaps, numbers(rng, (*dims[:-1], 2), dtype)), {"hermitian": hermitian})


@op(samples=_ldl_solve_samples, dtypes=_DTYPES)
def ldl_solve(packed: Any, pivots: Any, y: Any, *, hermitian: bool) -> Any:
    """The solution of x z = y by what `ldl` gave for x: f32[..,n,n], s32[..,n], f32[..,n,m] -> f32[..,n,m].  XLA: While.

    Attributes:
        hermitian: as for `ldl`.

    Raises:
        DtypeError: the factors are of another dtype.
        ShapeError: the factors are not square, or leading dims or rows differ.
    """
    _check("ldl_solve", packed, pivots, y)
    if y.shape[:-1] != packed.shape[:-1] or pivots.shape != packed.shape[:-1]:
        raise ShapeError(f"ldl_solve({describe(packed, pivots, y)}): leading dims and rows must be equal")
    if not y.size:
        return y
    return _each(lambda a, p, b: _solve(a, p, b, hermitian), packed.ndim - 2)(packed, pivots, y)
