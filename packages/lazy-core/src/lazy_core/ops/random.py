"""Random draws: functions of a state that also give the next state.

Owns: the distributions.  A state is u64[2] (see `lazy_core.random`), a value threaded through the trace: two draws from one state are
equal by design. Imports the registry, `lazy_core.random` and jax's lax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import random
from ..deferred import lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .registry import FLOAT, INT, Dtypes, Sample, describe, op, spread

Dims = Sequence[int]
_UNSIGNED: Dtypes = tuple(d for d in INT if d.kind == "u")


def _states(*each: dict[str, Any], typed: bool = True) -> Any:
    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for attributes in each:
            yield Sample((random.make_state(42, 7),), {**attributes, "dtype": dtype} if typed else attributes)

    return make


_DIMS = _states({"dims": (3, 5)}, {"dims": ()}, {"dims": (0, 2)}, {"dims": (64,)})


def _check(name: str, state: Any) -> None:
    if state.dtype != np.uint64 or state.shape != (2,):
        raise DtypeError(f"{name}({describe(state)}): expected a state u64[2]; make one with lazy_core.random.make_state")


@op(samples=_DIMS, dtypes=_UNSIGNED)
def random_bits(state: Any, *, dims: Dims, dtype: np.dtype) -> tuple[Any, Any]:
    """Uniform bits: u64[2] -> unsigned[*dims], u64[2].

    Attributes: dims; dtype, u8, u16, u32 or u64.  XLA: Philox4x32-10 in integer arithmetic.

    Raises:
        DtypeError: the state is not u64[2], or dtype is not unsigned.
    """
    _check("random_bits", state)
    if np.dtype(dtype).kind != "u":
        raise DtypeError(f"random_bits: dtype {np.dtype(dtype).name}; expected an unsigned integer")
    return random.bits(state, tuple(dims), 8 * np.dtype(dtype).itemsize)


def _float(name: str, dtype: np.dtype) -> np.dtype:
    dtype = np.dtype(dtype)
    if kind(np.zeros((), dtype)) != "f":
        raise DtypeError(f"{name}: dtype {dtype.name}; expected a float dtype")
    return dtype


@op(samples=_DIMS, dtypes=FLOAT)
def random_uniform(state: Any, *, dims: Dims, dtype: np.dtype) -> tuple[Any, Any]:
    """Uniform in [0, 1): u64[2] -> float[*dims], u64[2].

    Attributes: dims; dtype; f32 has 24 random bits, f64 53, f16 11, bf16 8.  XLA: Philox4x32-10, Convert, Multiply.

    Raises:
        DtypeError: the state is not u64[2], or dtype is not float.
    """
    _check("random_uniform", state)
    return random.uniform(state, tuple(dims), _float("random_uniform", dtype))


@op(samples=_DIMS, dtypes=FLOAT)
def random_normal(state: Any, *, dims: Dims, dtype: np.dtype) -> tuple[Any, Any]:
    """Normal with mean 0 and variance 1: u64[2] -> float[*dims], u64[2].

    Attributes: dims; dtype.  XLA: Philox4x32-10, ErfInv (see `lazy_core.random.normal` for why).

    Raises:
        DtypeError: the state is not u64[2], or dtype is not float.
    """
    _check("random_normal", state)
    return random.normal(state, tuple(dims), _float("random_normal", dtype))


def _randint_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    low, high = np.array(0 if dtype.kind == "u" else -3, dtype), np.array(9, dtype)
    for dims in ((3, 5), (), (64,)):
        yield Sample((random.make_state(1), low, high), {"dims": dims, "dtype": dtype})


@op(samples=_randint_samples, dtypes=INT)
def random_randint(state: Any, low: Any, high: Any, *, dims: Dims, dtype: np.dtype) -> tuple[Any, Any]:
    """Uniform integers in [low, high): u64[2], integer[], integer[] -> integer[*dims], u64[2]; low where high <= low.

    low and high may be of any integer dtype and broadcast to dims.  The excess probability of any number is below (high - low) / 2**64.
    Attributes: dims; dtype.  XLA: Philox4x32-10, Remainder.

    Raises:
        DtypeError: the state is not u64[2], or low, high or dtype is not integer.
        ShapeError: low or high does not broadcast to dims.
    """
    _check("random_randint", state)
    dims, dtype = tuple(dims), np.dtype(dtype)
    if kind(low) not in "iu" or kind(high) not in "iu" or dtype.kind not in "iu":
        raise DtypeError(f"random_randint({describe(state, low, high)}) of {dtype.name}: expected integers")
    for bound in (low, high):
        if bound.ndim > len(dims) or any(n not in (1, m) for n, m in zip(bound.shape[::-1], dims[::-1], strict=False)):
            raise ShapeError(f"random_randint({describe(state, low, high)}) of dims {dims}: the bounds do not broadcast to them")
    u64 = np.dtype(np.uint64)
    first, last = (spread(lax.convert_element_type(b, u64), dims) for b in (low, high))
    drawn, following = random.bits(state, dims, 64)
    span = lax.sub(last, first)
    empty = lax.ge(*(spread(b, dims) for b in (low, high))) if low.dtype == high.dtype else lax.eq(span, lax.full(dims, 0, u64))
    offset = lax.rem(drawn, lax.select(empty, lax.full(dims, 1, u64), span))
    return lax.convert_element_type(lax.add(first, offset), dtype), following


def _bernoulli_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for p, dims in ((np.array(0.3), (3, 5)), (rng.uniform(0, 1, (4,)), (2, 4)), (np.array([0.0, 1.0]), (2,))):
        yield Sample((random.make_state(1), p.astype(dtype)), {"dims": dims})


@op(samples=_bernoulli_samples, dtypes=FLOAT)
def random_bernoulli(state: Any, p: Any, *, dims: Dims) -> tuple[Any, Any]:
    """True with probability p: u64[2], float[] or float[*dims] -> pred[*dims], u64[2].

    p broadcasts to dims; 0 and 1 are exact.  Attributes: dims.  XLA: Philox4x32-10, Compare.

    Raises:
        DtypeError: the state is not u64[2], or p is not float.
        ShapeError: p does not broadcast to dims.
    """
    _check("random_bernoulli", state)
    dims = tuple(dims)
    if kind(p) != "f":
        raise DtypeError(f"random_bernoulli({describe(state, p)}): expected a float probability")
    if p.ndim > len(dims) or any(n not in (1, m) for n, m in zip(p.shape[::-1], dims[::-1], strict=False)):
        raise ShapeError(f"random_bernoulli({describe(state, p)}) of dims {dims}: p does not broadcast to them")
    wide = lax.convert_element_type(p, np.float32) if p.dtype.itemsize == 2 else p
    drawn, following = random.uniform(state, dims, np.dtype(wide.dtype))
    return lax.lt(drawn, spread(wide, dims)), following


def _permutation_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for n in (7, 1, 0):
        yield Sample((random.make_state(3),), {"n": n, "dtype": dtype})


@op(samples=_permutation_samples, dtypes=tuple(d for d in INT if d.itemsize >= 4))
def random_permutation(state: Any, *, n: int, dtype: np.dtype) -> tuple[Any, Any]:
    """0 .. n-1 in random order: u64[2] -> integer[n], u64[2].

    Attributes: n; dtype.  By sorting 64-bit keys, of which two are equal with probability below n**2 / 2**65.  XLA: Philox4x32-10, Sort.

    Raises:
        DtypeError: the state is not u64[2].
    """
    _check("random_permutation", state)
    keys, following = random.bits(state, (n,), 64)
    return lax.sort([keys, lax.iota(np.dtype(dtype), n)], num_keys=1)[1], following
