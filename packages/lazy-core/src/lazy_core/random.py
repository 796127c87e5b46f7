"""Counter-based random bits: Philox4x32-10 in 32-bit lax arithmetic.

Owns: the generator, the state's layout and how bits become numbers.  The same seed and counter give the same bits on every device and
tier.  Imports jax's lax only; the operations are in `ops/random.py`.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): rounds, multipliers and Weyl constants; checked in the
tests against that paper's known answers.

A state is u64[2]: the seed, which is the key, and a counter of 128-bit blocks drawn so far.  Block i of a draw encrypts counter + i and
gives four 32-bit words; a draw of b blocks leaves counter + b, so no two draws of a stream share a block.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .deferred import lax

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_U32 = np.dtype(np.uint32)
_U64 = np.dtype(np.uint64)
ROUNDS = 10

Words = tuple[Any, Any, Any, Any]


def make_state(seed: int, counter: int = 0) -> np.ndarray:
    """The state u64[2] of a seed, which may be any integer (its low 64 bits count)."""
    return np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, counter & 0xFFFF_FFFF_FFFF_FFFF], _U64)


def _product(x: Any, multiplier: int) -> tuple[Any, Any]:
    """The high and low words of x times a constant."""
    product = lax.mul(lax.convert_element_type(x, _U64), lax.full(x.shape, multiplier, _U64))
    return lax.convert_element_type(lax.shift_right_logical(product, lax.full(x.shape, 32, _U64)), _U32), lax.convert_element_type(
        product, _U32
    )


def philox(key: tuple[Any, Any], counter: Words) -> Words:
    """Philox4x32-10: u32[*dims] a key word and counter word -> four u32[*dims]."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(a, _MULTIPLIERS[0])
        high1, low1 = _product(c, _MULTIPLIERS[1])
        a, b, c, d = lax.bitwise_xor(lax.bitwise_xor(high1, b), k0), low1, lax.bitwise_xor(lax.bitwise_xor(high0, d), k1), low0
        k0, k1 = lax.add(k0, lax.full(k0.shape, _WEYL[0], _U32)), lax.add(k1, lax.full(k1.shape, _WEYL[1], _U32))
    return a, b, c, d


def _halves(x: Any) -> tuple[Any, Any]:
    """The low and high words of u64."""
    high = lax.shift_right_logical(x, lax.full(x.shape, 32, _U64))
    return lax.convert_element_type(x, _U32), lax.convert_element_type(high, _U32)


def words(state: Any, count: int) -> tuple[Any, Any]:
    """At least `count` random 32-bit words, u32[4, blocks] flattened and cut, and the next state.

    Word w of block i stands at w * blocks + i: four contiguous runs, which needs no interleaving.
    """
    blocks = max(-(-count // 4), 1) if count else 0
    seed, counter = (lax.index_in_dim(state, i, keepdims=False) for i in (0, 1))
    places = lax.add(lax.broadcast(counter, (blocks,)), lax.iota(_U64, blocks))
    low, high = _halves(places)
    key = tuple(lax.broadcast(k, (blocks,)) for k in _halves(seed))
    zero = lax.full((blocks,), 0, _U32)
    # Four updates of a buffer rather than a concatenation: XLA fuses the ten rounds into that, element by element and unvectorised
    # (67 against 4 ms for a million words on one core).
    drawn = lax.full((4, blocks), 0, _U32)
    for row, word in enumerate(philox(key, (low, high, zero, zero))):  # type: ignore[arg-type]
        drawn = lax.dynamic_update_slice(drawn, lax.expand_dims(word, (0,)), (np.int32(row), np.int32(0)))
    drawn = lax.reshape(drawn, (4 * blocks,))
    following = lax.add(state, lax.concatenate([lax.full((1,), 0, _U64), lax.full((1,), blocks, _U64)], 0))
    return (drawn if 4 * blocks == count else lax.slice_in_dim(drawn, 0, count)), following


def bits(state: Any, dims: tuple[int, ...], width: int) -> tuple[Any, Any]:
    """Random unsigned integers of 8, 16, 32 or 64 bits with these dims, and the next state."""
    size = math.prod(dims)
    if width == 64:
        drawn, following = words(state, 2 * size)
        high, low = (lax.convert_element_type(lax.slice_in_dim(drawn, i * size, (i + 1) * size), _U64) for i in (0, 1))
        drawn = lax.bitwise_or(lax.shift_left(high, lax.full(high.shape, 32, _U64)), low)
    else:
        drawn, following = words(state, size)
        if width < 32:  # the high bits of a word each
            drawn = lax.convert_element_type(
                lax.shift_right_logical(drawn, lax.full(drawn.shape, 32 - width, _U32)), np.dtype(f"u{width // 8}")
            )
    return lax.reshape(drawn, dims), following


def _float_width(dtype: np.dtype) -> tuple[int, int, np.dtype]:
    """Bits of a word, of a fraction, and the dtype to compute in."""
    return (64, 53, np.dtype(np.float64)) if dtype == np.float64 else (32, 24, np.dtype(np.float32))


def uniform(state: Any, dims: tuple[int, ...], dtype: np.dtype) -> tuple[Any, Any]:
    """Numbers in [0, 1), multiples of 2**-24 (2**-53 for f64, 2**-11 for f16, 2**-8 for bf16), and the next state."""
    width, digits, computed = _float_width(dtype)
    if dtype.itemsize == 2:
        digits = 11 if dtype == np.float16 else 8
    drawn, following = bits(state, dims, width)
    drawn = lax.shift_right_logical(drawn, lax.full(dims, width - digits, drawn.dtype))
    # Through a signed integer: processors convert those to floats in one instruction.
    whole = lax.convert_element_type(lax.convert_element_type(drawn, np.dtype(f"i{width // 8}")), computed)
    return lax.convert_element_type(lax.mul(whole, lax.full(dims, 2.0**-digits, computed)), dtype), following


def normal(state: Any, dims: tuple[int, ...], dtype: np.dtype) -> tuple[Any, Any]:
    """Standard normal numbers, and the next state.

    By inversion, sqrt(2) erfinv(u): one word a number whatever the dims, monotone in the bits, and one fused pass without sines, where
    Box-Muller pairs numbers up.  u is an odd multiple of 2**-23 (2**-52) in (-1, 1), so that the result is symmetric, never zero and never
    infinite; it stays within 5.2 (8.1) deviations.
    """
    width, digits, computed = _float_width(dtype)
    digits -= 1
    drawn, following = bits(state, dims, width)
    signed = np.dtype(f"i{width // 8}")
    kept = lax.convert_element_type(lax.shift_right_logical(drawn, lax.full(dims, width - digits, drawn.dtype)), signed)
    odd = lax.add(lax.mul(kept, lax.full(dims, 2, signed)), lax.full(dims, 1 - (1 << digits), signed))
    u = lax.mul(lax.convert_element_type(odd, computed), lax.full(dims, 2.0**-digits, computed))
    return lax.convert_element_type(lax.mul(lax.erf_inv(u), lax.full(dims, math.sqrt(2.0), computed)), dtype), following
