"""Stateless random operations, with the numbers that TensorFlow's CPU kernels draw.

Source: Philox4x32-10 (Salmon et al., SC 2011) and its use in TensorFlow's `random_distributions.h` and `stateless_random_ops_v2.h`: block
i is the cipher of counter + i, and gives four 32-bit or two 64-bit numbers.  XLA's own lowering of these operations draws others, so it
is not used.  Truncated normals reject a varying number of draws and stay on the CPU.  May import `rules` and the core.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazy_core import ir, ops, values
from lazy_core.deferred import jnp, lax
from lazy_core.errors import ShapeError, UnsupportedError
from lazy_core.ir import Expr
from lazy_core.ops.registry import Op, composite

from .. import capi, fallback
from ..attributes import Signature, op_info
from ..tensor import EXTENSION, Entry, Foreign, Variable, of_host, of_value
from .rules import lower
from .variables import contents

_PHILOX = (1, 3)  # the algorithm's number, and "choose for me", which on a CPU is Philox

_ROUND_A, _ROUND_B = 0xD2511F53, 0xCD9E8D57
_WEYL_A, _WEYL_B = 0x9E3779B9, 0xBB67AE85


def _product(x: Any, factor: int) -> tuple[Any, Any]:
    """The high and low words of a 32 by 32 bit product."""
    wide = x.astype(jnp.uint64) * jnp.uint64(factor)
    return (wide >> jnp.uint64(32)).astype(jnp.uint32), wide.astype(jnp.uint32)


def _cipher(words: list[Any], key: list[Any]) -> list[Any]:
    """Philox4x32-10 of four counter words under two key words."""
    for turn in range(10):
        if turn:
            key = [key[0] + jnp.uint32(_WEYL_A), key[1] + jnp.uint32(_WEYL_B)]
        high_a, low_a = _product(words[0], _ROUND_A)
        high_b, low_b = _product(words[2], _ROUND_B)
        words = [high_b ^ words[1] ^ key[0], low_b, high_a ^ words[3] ^ key[1], low_a]
    return words


def _halves(x: Any) -> list[Any]:
    return [x.astype(jnp.uint32), (x >> jnp.uint64(32)).astype(jnp.uint32)]


def _bits(key: Any, counter: Any, *, blocks: int) -> Any:
    """`u64[1], u64[2] -> u32[blocks, 4]`: the cipher of counter + i for each block i."""
    index = lax.iota(jnp.uint64, blocks)
    low = counter[0] + index
    high = counter[1] + (low < index).astype(jnp.uint64)
    return jnp.stack(_cipher(_halves(low) + _halves(high), _halves(key.reshape(()))), axis=1)


def _key_counter(seed: Any) -> tuple[Any, Any]:
    """`s64[2] -> u64[1], u64[2]`: the key and counter that TensorFlow derives from a seed."""
    seeds = seed.astype(jnp.int64).astype(jnp.uint64)
    words = _cipher(_halves(seeds[0]) + _halves(seeds[1]), [jnp.uint32(0x3EC8F720), jnp.uint32(0x02461E29)])
    wide = [w.astype(jnp.uint64) for w in words]
    key = wide[0] | wide[1] << jnp.uint64(32)
    return key.reshape(1), jnp.stack([jnp.uint64(0), wide[2] | wide[3] << jnp.uint64(32)])


def _normals(bits: Any, *, dtype: np.dtype) -> Any:
    """`u32[blocks, 4] -> dtype[blocks, n]`: Box-Muller, four floats or two doubles a block."""
    if dtype == np.float64:
        uniform = _doubles(bits)
        radius, angle = uniform[:, 0], uniform[:, 1]
    else:
        uniform = _floats(bits)
        radius, angle = uniform[:, 0::2], uniform[:, 1::2]
    wide = uniform.dtype
    scale = jnp.sqrt(wide.type(-2) * jnp.log(jnp.maximum(radius, wide.type(1e-7))))
    turn = wide.type(2 * math.pi) * angle
    pair = jnp.stack([jnp.sin(turn) * scale, jnp.cos(turn) * scale], axis=-1)
    return pair.reshape(bits.shape[0], -1).astype(dtype)


def _floats(bits: Any) -> Any:
    """`u32[...] -> f32[...]` in [0, 1): 23 bits of mantissa."""
    raw = (bits & jnp.uint32(0x7FFFFF)) | jnp.uint32(0x3F800000)
    return lax.bitcast_convert_type(raw, jnp.float32) - jnp.float32(1)


def _doubles(bits: Any) -> Any:
    """`u32[n, 4] -> f64[n, 2]` in [0, 1): 52 bits of mantissa from each pair."""
    wide = bits.astype(jnp.uint64)
    raw = ((wide[:, 0::2] & jnp.uint64(0xFFFFF)) << jnp.uint64(32)) | wide[:, 1::2] | jnp.uint64(0x3FF << 52)
    return lax.bitcast_convert_type(raw, jnp.float64) - jnp.float64(1)


def _uniforms(bits: Any, *, dtype: np.dtype) -> Any:
    """`u32[blocks, 4] -> dtype[blocks, n]` in [0, 1)."""
    if dtype == np.float64:
        return _doubles(bits)
    if dtype == np.float32:
        return _floats(bits)
    if dtype == np.float16:
        raw = (bits.astype(jnp.uint16) & jnp.uint16(0x3FF)) | jnp.uint16(15 << 10)
    else:
        raw = (bits.astype(jnp.uint16) & jnp.uint16(0x7F)) | jnp.uint16(127 << 7)
    return lax.bitcast_convert_type(raw, dtype) - jnp.asarray(1, dtype)


def _wholes(bits: Any, *, dtype: np.dtype) -> Any:
    """`u32[blocks, 4] -> dtype[blocks, n]`: raw integers, four of 32 bits or two of 64."""
    if np.dtype(dtype).itemsize == 4:
        return lax.bitcast_convert_type(bits, dtype)
    wide = bits.astype(jnp.uint64)
    return lax.bitcast_convert_type(wide[:, 0::2] | wide[:, 1::2] << jnp.uint64(32), dtype)


bits_op = Op.unregistered("tf.philox_bits", _bits)
key_counter_op = Op.unregistered("tf.philox_key_counter", _key_counter)
normals_op = Op.unregistered("tf.philox_normals", _normals)
uniforms_op = Op.unregistered("tf.philox_uniforms", _uniforms)
wholes_op = Op.unregistered("tf.philox_wholes", _wholes)


def _draw(name: str, target: Op, key: Expr, counter: Expr, shape: tuple[int, ...], alg: int, dtype: np.dtype) -> Expr:
    if alg not in _PHILOX:
        raise UnsupportedError(f"{name}: algorithm {alg}; only Philox (1) is implemented")
    if key.shape.dims != (1,) or counter.shape.dims != (2,):
        raise ShapeError(f"{name}: a key of {key.shape} and a counter of {counter.shape}; expected u64[1] and u64[2]")
    size = math.prod(shape)
    width = 2 if np.dtype(dtype).itemsize == 8 else 4
    drawn = target(bits_op(key, counter, blocks=-(-size // width)), dtype=dtype)
    flat = ops.reshape(drawn, dims=(drawn.shape.size,))
    if drawn.shape.size != size:
        flat = ops.slice_(flat, starts=(0,), limits=(size,), strides=(1,))
    return ops.reshape(flat, dims=shape)


@lower("StatelessRandomGetKeyCounter")
def _get_key_counter(seed: Expr) -> tuple[Expr, Expr]:
    if seed.shape.dims != (2,):
        raise ShapeError(f"StatelessRandomGetKeyCounter: a seed of {seed.shape}; it must have two numbers")
    made: tuple[Expr, Expr] = key_counter_op(seed)
    return made


@lower("StatelessRandomUniformV2")
def _uniform(key: Expr, counter: Expr, *, shape: tuple[int, ...], alg: int, dtype: np.dtype) -> Expr:
    return _draw("StatelessRandomUniformV2", uniforms_op, key, counter, shape, alg, dtype)


@lower("StatelessRandomNormalV2")
def _normal(key: Expr, counter: Expr, *, shape: tuple[int, ...], alg: int, dtype: np.dtype) -> Expr:
    return _draw("StatelessRandomNormalV2", normals_op, key, counter, shape, alg, dtype)


@lower("StatelessRandomUniformFullIntV2")
def _uniform_full_int(key: Expr, counter: Expr, *, shape: tuple[int, ...], alg: int, dtype: np.dtype) -> Expr:
    return _draw("StatelessRandomUniformFullIntV2", wholes_op, key, counter, shape, alg, dtype)


@lower("StatelessRandomUniformIntV2")
def _uniform_int(key: Expr, counter: Expr, minval: Expr, maxval: Expr, *, shape: tuple[int, ...], alg: int, dtype: np.dtype) -> Expr:
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    raw = _draw("StatelessRandomUniformIntV2", wholes_op, key, counter, shape, alg, unsigned)
    span = ops.bitcast(ops.sub(maxval, minval), dtype=unsigned)
    return ops.add(minval, ops.bitcast(ops.remainder(raw, span), dtype=dtype))


# ------------------------------------------------------------------ operations with a hidden state


@composite("tf.stateful_random")
def _stateful(state: Expr, *, kind: str, shape: tuple[int, ...], dtype: np.dtype) -> Expr:
    """`u64[3]` (key and counter) to the numbers of a kernel that keeps a generator."""
    key = ops.slice_(state, starts=(0,), limits=(1,), strides=(1,))
    counter = ops.slice_(state, starts=(1,), limits=(3,), strides=(1,))
    return _draw(kind, normals_op if kind == "normal" else uniforms_op, key, counter, shape, _PHILOX[0], dtype)


class Generators:
    """The generators that TensorFlow's CPU kernels would hold: one for each set of attributes, until the global seed is set anew.

    A kernel skips 256 blocks for each number that it draws, so that the next draw is independent.
    """

    _WORD = 1 << 64

    def __init__(self) -> None:
        self._seeding: Any = None
        self._states: dict[Signature, tuple[int, int]] = {}
        self._fresh = np.random.default_rng()

    def advance(self, signature: Signature, count: int) -> np.ndarray:
        """The key and counter of the next draw of `count` numbers."""
        seeding = capi.seeding()
        if seeding is not self._seeding:
            self._seeding = seeding
            self._states.clear()
        key, counter = self._states.get(signature) or self._first(signature)
        self._states[signature] = key, counter + 256 * count
        return np.array([key, counter % self._WORD, counter // self._WORD % self._WORD], np.uint64)

    def _first(self, signature: Signature) -> tuple[int, int]:
        first, second = signature.values["seed"] % self._WORD, signature.values["seed2"] % self._WORD
        if not first and not second:
            first, second = (int(x) for x in self._fresh.integers(0, self._WORD, 2, np.uint64))
        return first, second * self._WORD


_generators = Generators()


def _drawn_on_cpu(name: str, state: np.ndarray, inputs: list[Any], attributes: dict[str, Any]) -> list[Entry]:
    """The numbers of a generator in this state, from the CPU's kernel without one: a shape, and what else it takes after the algorithm."""
    unsigned, algorithm = capi.TF_DTYPES[np.dtype(np.uint64)], of_host(np.array(_PHILOX[0], np.int32), capi.TF_DTYPES[np.dtype(np.int32)])
    key, counter = of_host(state[:1], unsigned), of_host(state[1:], unsigned)
    info = op_info(name)
    (made,) = fallback.execute(info.by_protos(attributes), [inputs[0], key, counter, algorithm, *inputs[1:]], 1)
    assert isinstance(made, Foreign)
    return [fallback.cpu_tensor(made)]


def _stateful_handler(kind: str) -> Any:
    def draw(signature: Signature, inputs: list[Any]) -> list[Entry]:
        shape, dtype = inputs[0].static(), signature.values["dtype"]
        if not all(d >= 0 for d in shape):
            raise capi.StatusError(capi.INVALID_ARGUMENT, f"shape must have non-negative dimensions, got {list(shape)}")
        state = _generators.advance(signature, math.prod(shape))
        if EXTENSION is not None and EXTENSION.immediate():
            name = "StatelessRandomNormalV2" if kind == "normal" else "StatelessRandomUniformV2"
            return _drawn_on_cpu(name, state, inputs[:1], {"dtype": signature.protos["dtype"], "Tshape": signature.protos["T"]})
        attributes = ir.attrs(kind=kind, shape=shape, dtype=dtype)
        return [of_value(values.record(_stateful, (values.from_array(state),), attributes), signature.outputs[0])]

    return draw


@composite("tf.stateful_random_int")
def _stateful_int(state: Expr, minval: Expr, maxval: Expr, *, shape: tuple[int, ...]) -> Expr:
    """`u64[3]` (key and counter) and the limits to the numbers of a kernel that keeps a generator."""
    key = ops.slice_(state, starts=(0,), limits=(1,), strides=(1,))
    counter = ops.slice_(state, starts=(1,), limits=(3,), strides=(1,))
    return _uniform_int(key, counter, minval, maxval, shape=shape, alg=_PHILOX[0], dtype=minval.shape.dtype)


def _random_uniform_int(signature: Signature, inputs: list[Any]) -> list[Entry]:
    shape, low, high = inputs
    if low.dims or high.dims:
        raise capi.StatusError(capi.INVALID_ARGUMENT, f"minval must be 0-D, got shape {list(low.dims or high.dims)}")
    if low.host is not None and high.host is not None and low.host >= high.host:
        raise capi.StatusError(capi.INVALID_ARGUMENT, f"Need minval < maxval, got {low.host} >= {high.host}")
    dims = shape.static()
    state = _generators.advance(signature, math.prod(dims))
    if EXTENSION is not None and EXTENSION.immediate():
        attributes = {"dtype": signature.protos["Tout"], "Tshape": signature.protos["T"]}
        return _drawn_on_cpu("StatelessRandomUniformIntV2", state, [shape, low, high], attributes)
    drawn = values.record(_stateful_int, (values.from_array(state), low.operand(), high.operand()), ir.attrs(shape=dims))
    return [of_value(drawn, signature.outputs[0])]


def _algorithm(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [of_host(np.array(_PHILOX[0], np.int32), signature.outputs[0])]


@composite("tf.RngReadAndSkip")
def _skipped(state: Expr, *, delta: int) -> Expr:
    """`s64[3] -> s64[3]`: the 128-bit counter in the first two words, 256 blocks for each of `delta` draws further."""
    made: Expr = skip_op(state, delta=delta)
    return made


def _skip(state: Any, *, delta: int) -> Any:
    """`s64[3] -> s64[3]`: the state of a generator after `delta` draws of 256 blocks."""
    words = lax.bitcast_convert_type(state, jnp.uint64)
    low = words[0] + jnp.uint64(256 * delta)
    high = words[1] + (low < words[0]).astype(jnp.uint64)
    return lax.bitcast_convert_type(jnp.stack([low, high, words[2]]), jnp.int64)


skip_op = Op.unregistered("tf.philox_skip", _skip)


def _read_and_skip(signature: Signature, inputs: list[Any]) -> list[Entry]:
    variable, alg, delta = inputs
    if variable.__class__ is not Variable or alg.static() not in _PHILOX or contents(variable).dims != (3,):
        return fallback.run(signature, inputs, 1, "another algorithm, or a generator on the CPU")
    state = contents(variable)
    following = values.record(_skipped, (state.operand(),), ir.attrs(delta=delta.static()))
    variable.current = of_value(following, state.dtype)
    return [state]


STATEFUL = {
    "RngReadAndSkip": _read_and_skip,
    "RandomStandardNormal": _stateful_handler("normal"),
    "RandomUniform": _stateful_handler("uniform"),
    "RandomUniformInt": _random_uniform_int,
    "StatelessRandomGetAlg": _algorithm,
}
