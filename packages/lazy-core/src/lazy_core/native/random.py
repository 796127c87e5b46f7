"""Kernels of random draws: the family `random`.

Owns: Philox4x32-10 in NumPy arithmetic, the same bits as `lazy_core.random` draws on a device, and the same numbers made of them
(normal numbers to within the rounding of a logarithm).  See there for the state, the order of words and the distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import special
from .compare import cast
from .registry import F32, F64, Array, kernel, kind

Dims = Sequence[int]

_U64 = np.dtype(np.uint64)
_U32 = np.dtype(np.uint32)
_MULTIPLIERS = (_U64.type(0xD2511F53), _U64.type(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = _U64.type(0xFFFF_FFFF)
_SHIFT = _U64.type(32)
# Blocks that are encrypted at a time: few calls of NumPy, and buffers that stay in the cache.
_CHUNK = 1 << 14


def _encrypt(seed: int, counters: Array, rows: Array) -> None:
    """The four words of each block: u64[n] counters -> u32[4, n] rows, in 64-bit registers whose upper halves are cleared as needed."""
    k0, k1 = seed & 0xFFFF_FFFF, seed >> 32
    a, b = counters & _LOW, counters >> _SHIFT
    c, d = np.zeros_like(a), np.zeros_like(a)
    p, q = np.empty_like(a), np.empty_like(a)
    for _ in range(_ROUNDS):
        np.multiply(a, _MULTIPLIERS[0], out=p)
        np.multiply(c, _MULTIPLIERS[1], out=q)
        np.right_shift(q, _SHIFT, out=a)
        np.bitwise_xor(a, b, out=a)
        np.bitwise_xor(a, _U64.type(k0), out=a)
        np.right_shift(p, _SHIFT, out=c)
        np.bitwise_xor(c, d, out=c)
        np.bitwise_xor(c, _U64.type(k1), out=c)
        np.bitwise_and(q, _LOW, out=b)
        np.bitwise_and(p, _LOW, out=d)
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFF_FFFF, (k1 + _WEYL[1]) & 0xFFFF_FFFF
    for row, word in zip(rows, (a, b, c, d), strict=True):
        row[...] = word


def _words(state: Array, count: int) -> tuple[Array, Array]:
    """`count` random 32-bit words and the next state; word w of block i stands at w * blocks + i."""
    blocks = max(-(-count // 4), 1) if count else 0
    seed, counter = int(state[0]), int(state[1])
    drawn = np.empty((4, blocks), _U32)
    for start in range(0, blocks, _CHUNK):
        stop = min(start + _CHUNK, blocks)
        places = np.arange(stop - start, dtype=_U64)
        places += _U64.type((counter + start) & 0xFFFF_FFFF_FFFF_FFFF)
        _encrypt(seed, places, drawn[:, start:stop])
    following = np.array([seed, (counter + blocks) & 0xFFFF_FFFF_FFFF_FFFF], _U64)
    return drawn.reshape(-1)[:count], following


def _bits(state: Array, dims: Dims, width: int) -> tuple[Array, Array]:
    size = math.prod(dims)
    if width == 64:
        drawn, following = _words(state, 2 * size)
        drawn = drawn[:size].astype(_U64) << _SHIFT | drawn[size:]
    else:
        drawn, following = _words(state, size)
        if width < 32:  # the high bits of a word each
            drawn = (drawn >> _U32.type(32 - width)).astype(np.dtype(f"u{width // 8}"))
    return drawn.reshape(tuple(dims)), following


def _float_width(dtype: np.dtype) -> tuple[int, int, np.dtype]:
    return (64, 53, F64) if dtype == F64 else (32, 24, F32)


def _uniform(state: Array, dims: Dims, dtype: np.dtype) -> tuple[Array, Array]:
    width, digits, computed = _float_width(dtype)
    if dtype.itemsize == 2:
        digits = 11 if dtype == np.float16 else 8
    drawn, following = _bits(state, dims, width)
    drawn = drawn >> drawn.dtype.type(width - digits)
    numbers = np.asarray(drawn).astype(f"i{width // 8}").astype(computed)
    numbers *= computed.type(2.0**-digits)
    return numbers.astype(dtype, copy=False), following


@kernel("random_bits")
def random_bits(state: Array, *, dims: Dims, dtype: np.dtype) -> tuple[Array, Array]:
    """Uniform bits."""
    return _bits(state, dims, 8 * dtype.itemsize)


@kernel("random_uniform")
def random_uniform(state: Array, *, dims: Dims, dtype: np.dtype) -> tuple[Array, Array]:
    """In [0, 1)."""
    return _uniform(state, dims, dtype)


@kernel("random_normal")
def random_normal(state: Array, *, dims: Dims, dtype: np.dtype) -> tuple[Array, Array]:
    """By inversion of an odd multiple of 2**-23 (2**-52)."""
    width, digits, computed = _float_width(dtype)
    digits -= 1
    drawn, following = _bits(state, dims, width)
    odd = np.asarray(drawn >> drawn.dtype.type(width - digits)).astype(f"i{width // 8}")
    odd *= odd.dtype.type(2)
    odd += odd.dtype.type(1 - (1 << digits))
    u = odd.reshape(-1).astype(computed)
    u *= computed.type(2.0**-digits)
    for start in range(0, u.size, _CHUNK):
        piece = u[start : start + _CHUNK]
        piece[...] = special.erfinv(piece)
    u *= computed.type(math.sqrt(2.0))
    return u.reshape(tuple(dims)).astype(dtype, copy=False), following


@kernel("random_randint")
def random_randint(state: Array, low: Array, high: Array, *, dims: Dims, dtype: np.dtype) -> tuple[Array, Array]:
    """In [low, high), low where that is empty; in 64-bit arithmetic that wraps."""
    first, last = (cast(b.dtype, _U64)(b) for b in (low, high))
    drawn, following = _bits(state, dims, 64)
    span = last - first
    empty = np.greater_equal(low, high) if low.dtype == high.dtype else np.equal(span, 0)
    offset = np.remainder(drawn, np.where(empty, _U64.type(1), span))
    return np.asarray(first + offset).astype(dtype), following


@kernel("random_bernoulli")
def random_bernoulli(state: Array, p: Array, *, dims: Dims) -> tuple[Array, Array]:
    """Whether a uniform number is below p."""
    wide = p if kind(p.dtype) == "f" and p.dtype.itemsize > 2 else p.astype(F32)
    drawn, following = _uniform(state, dims, wide.dtype)
    return np.less(drawn, wide), following


@kernel("random_permutation")
def random_permutation(state: Array, *, n: int, dtype: np.dtype) -> tuple[Array, Array]:
    """By sorting 64-bit keys."""
    keys, following = _bits(state, (n,), 64)
    return np.argsort(keys, kind="stable").astype(dtype, copy=False), following
