"""Random numbers: every builder takes the generator's state first and returns the next state last.

Owns: uniform, normal and other fills, dropout, bernoulli, randperm, multinomial. Streams are core's (Philox), so they differ from CPU
torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from lazy_core import ops
from lazy_core.ir import Expr, const

from . import aten
from .promotion import BOOL, F32, F64, I64, DType, Scalar, broadcast_dims, cast, filled, float_type, is_float, num, operand, real_of
from .shapes import cut
from .sorting import sorted_with_indices

Drawn = tuple[Expr, Expr]


def _draw_type(kind: DType) -> DType:
    return F64 if kind == F64 else F32


def _unit(state: Expr, dims: tuple[int, ...], kind: DType) -> Drawn:
    """Uniform numbers in [0, 1), in f32 or f64."""
    x, state = ops.random_uniform(state, dims=dims, dtype=_draw_type(kind))
    return x, state


def _gauss(state: Expr, dims: tuple[int, ...], kind: DType) -> Drawn:
    x, state = ops.random_normal(state, dims=dims, dtype=_draw_type(kind))
    return x, state


# ------------------------------------------------------------------ continuous fills


@aten("uniform", random=True)
def uniform(state: Expr, self: Expr, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Drawn:
    kind = self.shape.dtype
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    u, state = _unit(state, self.shape.dims, kind)
    x = ops.add(ops.mul(u, num(high - low, u)), num(low, u))
    rounded = cast(x, kind)
    if kind not in (F32, F64):  # rounding must not reach the open end
        rounded = ops.where(ops.ge(rounded, num(high, rounded)), num(low, rounded), rounded)
    return rounded, state


@aten("normal_", "normal_functional", random=True)
def normal(state: Expr, self: Expr, mean: float = 0.0, std: float = 1.0, *, generator: None = None) -> Drawn:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if self.shape.dtype.kind == "c":  # the variance is shared by the real and the imaginary part
        part = filled(0, self.shape.dims, real_of(self.shape.dtype))
        real, state = normal(state, part, mean, std * math.sqrt(0.5))
        imag, state = normal(state, part, 0.0, std * math.sqrt(0.5))
        return ops.REGISTRY["complex"](real, imag), state
    z, state = _gauss(state, self.shape.dims, self.shape.dtype)
    return cast(ops.add(ops.mul(z, num(std, z)), num(mean, z)), self.shape.dtype), state


def _normal_of(state: Expr, mean: Scalar, std: Scalar, like: Expr, dims: tuple[int, ...]) -> Drawn:
    kind = like.shape.dtype
    z, state = _gauss(state, dims, kind)
    wide = z.shape.dtype
    return cast(ops.add(ops.mul(z, operand(std, wide)), operand(mean, wide)), kind), state


@aten("normal.Tensor_float", random=True)
def normal_mean(state: Expr, mean: Expr, std: float = 1.0, *, generator: None = None) -> Drawn:
    return _normal_of(state, mean, std, mean, mean.shape.dims)


@aten("normal.float_Tensor", random=True)
def normal_std(state: Expr, mean: float, std: Expr, *, generator: None = None) -> Drawn:
    return _normal_of(state, mean, std, std, std.shape.dims)


@aten("normal.Tensor_Tensor", random=True)
def normal_both(state: Expr, mean: Expr, std: Expr, *, generator: None = None) -> Drawn:
    return _normal_of(state, mean, std, mean, broadcast_dims(mean.shape.dims, std.shape.dims))


def _inverse(name: str, body: Callable[..., Expr]) -> None:
    @aten(name, random=True)
    def build(state: Expr, self: Expr, *parameters: float, generator: None = None) -> Drawn:
        u, state = _unit(state, self.shape.dims, self.shape.dtype)
        return cast(body(u, *parameters), self.shape.dtype), state


def _minus_log(u: Expr) -> Expr:
    """Standard exponential numbers: -log(1 - u) of u in [0, 1)."""
    return ops.neg(ops.log1p(ops.neg(u)))


def _geometric(u: Expr, p: float) -> Expr:
    return ops.maximum(ops.ceil(ops.div(_minus_log(u), num(-math.log1p(-p), u))), num(1, u))


_inverse("exponential", lambda u, lambd=1.0: ops.div(_minus_log(u), num(lambd, u)))
_inverse("cauchy", lambda u, median=0.0, sigma=1.0: ops.add(
    ops.mul(ops.tan(ops.mul(ops.sub(u, num(0.5, u)), num(math.pi, u))), num(sigma, u)), num(median, u)))  # fmt: skip
_inverse("geometric", _geometric)


@aten("log_normal", random=True)
def log_normal(state: Expr, self: Expr, mean: float = 1.0, std: float = 2.0, *, generator: None = None) -> Drawn:
    z, state = _gauss(state, self.shape.dims, self.shape.dtype)
    return cast(ops.exp(ops.add(ops.mul(z, num(std, z)), num(mean, z))), self.shape.dtype), state


# ------------------------------------------------------------------ integers


def _integers(state: Expr, like: Expr, low: int, high: int) -> Drawn:
    """Integers in [low, high) in the dtype of `like`."""
    x, state = ops.random_randint(state, const(low, I64), const(high, I64), dims=like.shape.dims, dtype=I64)
    return cast(x, like.shape.dtype), state


def _limit(kind: DType) -> int:
    """One past the largest integer that random_() draws for a dtype."""
    if kind == BOOL:
        return 2
    if is_float(kind):
        return 2 ** (int(ml_dtypes.finfo(kind).nmant) + 1) + 1
    return min(int(np.iinfo(kind).max) + 1, 2**63 - 1)


@aten("random", random=True)
def random_any(state: Expr, self: Expr, *, generator: None = None) -> Drawn:
    return _integers(state, self, 0, _limit(self.shape.dtype))


@aten("random.to", random=True)
def random_to(state: Expr, self: Expr, to: int, *, generator: None = None) -> Drawn:
    return random_from(state, self, 0, to)


@aten("random.from", random=True)
def random_from(state: Expr, self: Expr, low: int, to: int | None, *, generator: None = None) -> Drawn:
    high = _limit(self.shape.dtype) if to is None else to
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _integers(state, self, low, high)


@aten("randperm", "randperm.generator", random=True)
def randperm(state: Expr, n: int, *, generator: None = None, dtype: DType | None = I64, **_: Any) -> Drawn:
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    kind = dtype or I64
    order, state = ops.random_permutation(state, n=n, dtype=I64)
    return cast(order, kind), state


# ------------------------------------------------------------------ bernoulli and dropout


def _flags(state: Expr, p: Scalar, dims: tuple[int, ...]) -> Drawn:
    u, state = ops.random_uniform(state, dims=dims, dtype=F32 if not isinstance(p, Expr) else _draw_type(p.shape.dtype))
    return ops.lt(u, operand(p, u.shape.dtype)), state


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")


@aten("bernoulli", random=True)
def bernoulli(state: Expr, self: Expr, *, generator: None = None) -> Drawn:
    hit, state = _flags(state, self, self.shape.dims)
    return cast(hit, self.shape.dtype), state


@aten("bernoulli.p", "bernoulli_.float", random=True)
def bernoulli_p(state: Expr, self: Expr, p: float = 0.5, *, generator: None = None) -> Drawn:
    _check_probability(p)
    hit, state = _flags(state, p, self.shape.dims)
    return cast(hit, self.shape.dtype), state


@aten("bernoulli.Tensor", random=True)
def bernoulli_tensor(state: Expr, self: Expr, p: Expr, *, generator: None = None) -> Drawn:
    hit, state = _flags(state, p, self.shape.dims)
    return cast(hit, self.shape.dtype), state


@aten("native_dropout", random=True)
def native_dropout(state: Expr, input: Expr, p: float, train: bool | None) -> tuple[Expr, Expr, Expr]:
    dims, kind = input.shape.dims, input.shape.dtype
    if train is False or p == 0:
        return input, filled(True, dims, BOOL), state
    if p == 1:
        return filled(0, dims, kind), filled(False, dims, BOOL), state
    kept, state = _flags(state, 1 - p, dims)
    scaled = ops.mul(input, num(1 / (1 - p), input))
    return ops.where(kept, scaled, num(0, input)), kept, state


@aten("native_dropout_backward")
def native_dropout_backward(grad_output: Expr, mask: Expr, scale: float) -> Expr:
    g = cast(grad_output, float_type(grad_output.shape.dtype))
    return ops.where(mask, ops.mul(g, num(scale, g)), num(0, g))


@aten("rrelu_with_noise", random=True, static=("lower", "upper"))
def rrelu_with_noise(
    state: Expr, self: Expr, noise: Expr, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: None = None
) -> tuple[Expr, Expr | None, Expr]:
    negative = ops.le(self, num(0, self))
    if not training:
        slope = num((lower + upper) / 2, self)
        return ops.where(negative, ops.mul(self, slope), self), None, state
    drawn, state = uniform(state, self, lower, upper)
    new_noise = ops.where(negative, drawn, num(1, self))
    return ops.mul(self, new_noise), new_noise, state


# ------------------------------------------------------------------ multinomial


@aten("multinomial", random=True)
def multinomial(state: Expr, self: Expr, num_samples: int, replacement: bool = False, *, generator: None = None) -> Drawn:
    a = self.shape.ndim - 1
    n = self.shape.dims[a]
    if num_samples <= 0 or (not replacement and num_samples > n):
        raise RuntimeError(f"cannot sample {num_samples} times from {n} categories {'with' if replacement else 'without'} replacement")
    p = cast(self, _draw_type(self.shape.dtype))
    if not replacement or num_samples == 1:
        u, state = _unit(state, p.shape.dims, p.shape.dtype)
        waiting = ops.maximum(_minus_log(u), num(1e-37, u))
        _, order = sorted_with_indices(ops.div(p, waiting), a, True)
        return cut(order, a, 0, num_samples), state
    total = ops.cumsum(p, axis=a)
    u, state = _unit(state, (*self.shape.dims[:-1], num_samples), p.shape.dtype)
    mark = ops.mul(u, cut(total, a, n - 1, n))
    below = ops.le(ops.expand_dims(total, axes=(a,)), ops.expand_dims(mark, axes=(a + 1,)))
    found = ops.sum(ops.convert(below, dtype=I64), axes=(a + 1,), keepdims=False)
    return ops.minimum(found, num(n - 1, found)), state
