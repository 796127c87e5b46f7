"""One call of TensorFlow's public API for each core operation, for the conformance matrix.

A call takes the operation's sample arguments by position and its attributes by keyword, over TensorFlow tensors on either device.  What
TensorFlow cannot say with a call or two is missing here and stands in the matrix's file of gaps.  Imports TensorFlow only; arrays and
networks are in `conformance_arrays`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import numpy as tnp

from .conformance_arrays import ARRAYS

Call = Callable[..., Any]


def _bool(x: Any) -> Any:
    return x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros_like(x))


def _softplus(x: Any, *, beta: float, threshold: float) -> Any:
    scaled = x * tf.cast(beta, x.dtype)
    return tf.where(scaled > tf.cast(threshold, x.dtype), x, tf.math.softplus(scaled) / tf.cast(beta, x.dtype))


def _erf(x: Any) -> Any:
    """TensorFlow's own kernel gives NaN for infinities of float64, so they are kept out."""
    return tf.math.erf(tf.clip_by_value(x, tf.cast(-30, x.dtype), tf.cast(30, x.dtype)))


def _fmax(x: Any, y: Any) -> Any:
    return tf.where(tf.math.is_nan(x), y, tf.where(tf.math.is_nan(y), x, tf.maximum(x, y)))


def _remainder(x: Any, y: Any) -> Any:
    """The core's remainder of an integer by zero is 0; TensorFlow raises."""
    if not x.dtype.is_integer:
        return tf.math.floormod(x, y)
    zero = tf.equal(y, tf.zeros_like(y))
    found = tf.math.floormod(x, tf.where(zero, tf.ones_like(y), y))
    return tf.where(zero, tf.zeros_like(found), found)


def _fmin(x: Any, y: Any) -> Any:
    return tf.where(tf.math.is_nan(x), y, tf.where(tf.math.is_nan(y), x, tf.minimum(x, y)))


UNARY: dict[str, Call] = {
    "abs": tf.abs,
    "acos": tf.acos,
    "acosh": tf.acosh,
    "asin": tf.asin,
    "asinh": tf.asinh,
    "atan": tf.atan,
    "atanh": tf.atanh,
    "bitwise_not": tf.bitwise.invert,
    "cbrt": tnp.cbrt,
    "ceil": tf.math.ceil,
    "conj": tf.math.conj,
    "cos": tf.cos,
    "cosh": tf.cosh,
    "digamma": tf.math.digamma,
    "erf": _erf,
    "erfc": tf.math.erfc,
    "erfinv": tf.math.erfinv,
    "exp": tf.exp,
    "exp2": tnp.exp2,
    "expm1": tf.math.expm1,
    "floor": tf.floor,
    "gelu": lambda x, *, approximate: tf.nn.gelu(x, approximate),
    "identity": tf.identity,
    "imag": tf.math.imag,
    "isfinite": tf.math.is_finite,
    "isinf": tf.math.is_inf,
    "isnan": tf.math.is_nan,
    "lgamma": tf.math.lgamma,
    "log": tf.math.log,
    "log10": tnp.log10,
    "log1p": tf.math.log1p,
    "log2": tnp.log2,
    "logical_not": lambda x: tf.logical_not(_bool(x)),
    "neg": tf.negative,
    "real": tf.math.real,
    "reciprocal": tf.math.reciprocal,
    "relu": tf.nn.relu,
    "round": tf.round,
    "rsqrt": tf.math.rsqrt,
    "sigmoid": tf.sigmoid,
    "sign": tf.sign,
    "signbit": tnp.signbit,
    "silu": tf.nn.silu,
    "sin": tf.sin,
    "sinh": tf.sinh,
    "softplus": _softplus,
    "sqrt": tf.sqrt,
    "square": tf.square,
    "tan": tf.tan,
    "tanh": tf.tanh,
    "trunc": lambda x: tf.where(x < 0, tf.math.ceil(x), tf.floor(x)),
}

BINARY: dict[str, Call] = {
    "add": tf.add,
    "atan2": tf.atan2,
    "bitwise_and": tf.bitwise.bitwise_and,
    "bitwise_or": tf.bitwise.bitwise_or,
    "bitwise_xor": tf.bitwise.bitwise_xor,
    "complex": tf.complex,
    "copysign": lambda x, y: tf.where(tnp.signbit(y), -tf.abs(x), tf.abs(x)),
    "div": tf.divide,
    "floor_div": tf.math.floordiv,
    "fmax": _fmax,
    "fmin": _fmin,
    "fmod": tf.truncatemod,
    "hypot": tnp.hypot,
    "logaddexp": tnp.logaddexp,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "mul": tf.multiply,
    "nextafter": tf.math.nextafter,
    "pow": tf.pow,
    "remainder": _remainder,
    "shift_left": tf.bitwise.left_shift,
    "shift_right": tf.bitwise.right_shift,
    "sub": tf.subtract,
    "trunc_div": tf.truncatediv,
}

COMPARE: dict[str, Call] = {
    "bitcast": lambda x, *, dtype: tf.bitcast(x, dtype),
    "clip": tf.clip_by_value,
    "convert": lambda x, *, dtype: tf.cast(x, dtype),
    "eq": tf.equal,
    "ge": tf.greater_equal,
    "gt": tf.greater,
    "le": tf.less_equal,
    "logical_and": lambda x, y: tf.logical_and(_bool(x), _bool(y)),
    "logical_or": lambda x, y: tf.logical_or(_bool(x), _bool(y)),
    "logical_xor": lambda x, y: tf.math.logical_xor(_bool(x), _bool(y)),
    "lt": tf.less,
    "ne": tf.not_equal,
    "where": tf.where,
}


def _reduction(call: Call) -> Call:
    return lambda x, *, axes, keepdims: call(x, axis=list(axes), keepdims=keepdims)


def _argument(call: Call) -> Call:
    def run(x: Any, *, axis: int, keepdims: bool, dtype: Any) -> Any:
        found = call(x, axis, output_type=dtype)
        return tf.expand_dims(found, axis) if keepdims else found

    return run


def _var(x: Any, *, axes: tuple[int, ...], keepdims: bool, correction: float) -> Any:
    count = 1
    for a in axes:
        count *= x.shape[a]
    raw = tf.math.reduce_variance(x, axis=list(axes), keepdims=keepdims)
    return raw * tf.cast(count / (count - correction), raw.dtype)


REDUCTIONS: dict[str, Call] = {
    "all": lambda x, *, axes, keepdims: tf.reduce_all(_bool(x), axis=list(axes), keepdims=keepdims),
    "any": lambda x, *, axes, keepdims: tf.reduce_any(_bool(x), axis=list(axes), keepdims=keepdims),
    "argmax": _argument(tf.argmax),
    "argmin": _argument(tf.argmin),
    "cumprod": lambda x, *, axis: tf.math.cumprod(x, axis),
    "cumsum": lambda x, *, axis: tf.cumsum(x, axis),
    "logcumsumexp": lambda x, *, axis: tf.math.cumulative_logsumexp(x, axis),
    "logsumexp": _reduction(tf.reduce_logsumexp),
    "max": _reduction(tf.reduce_max),
    "mean": _reduction(tf.reduce_mean),
    "min": _reduction(tf.reduce_min),
    "prod": _reduction(tf.reduce_prod),
    "sum": _reduction(tf.reduce_sum),
    "var": _var,
}


def _qr(x: Any, *, mode: str) -> Any:
    q, r = tf.linalg.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else (q, r)


def _svd(x: Any, *, full_matrices: bool) -> Any:
    """The values, and the product: vectors are free in sign."""
    s, u, v = tf.linalg.svd(x, full_matrices=full_matrices)
    k = s.shape[-1]
    scaled = u[..., :k] * tf.cast(s, u.dtype)[..., tf.newaxis, :]
    return s, tf.matmul(scaled, v[..., :k], adjoint_b=True), tf.matmul(u, u, adjoint_a=True)


def _eigh(x: Any) -> Any:
    """The values, and the product: vectors are free in sign."""
    values, vectors = tf.linalg.eigh(x)
    return values, tf.matmul(vectors * values[..., tf.newaxis, :], vectors, adjoint_b=True)


def _solve(a: Any, b: Any) -> Any:
    return tf.linalg.solve(a, b[:, None])[:, 0] if len(b.shape) == 1 else tf.linalg.solve(a, b)


def _triangular(a: Any, b: Any, *, lower: bool, unit: bool, transpose: bool) -> Any:
    if unit:
        a = tf.linalg.set_diag(a, tf.ones_like(b[..., 0]))
    if not transpose or not a.dtype.is_complex:
        return tf.linalg.triangular_solve(a, b, lower=lower, adjoint=transpose)
    return tf.linalg.triangular_solve(tf.math.conj(a), b, lower=lower, adjoint=True)


def _dot_general(x: Any, y: Any, *, contract: Any, batch: Any) -> Any:
    letters = iter("abcdefghijklmnop")
    left = [next(letters) for _ in x.shape]
    right = [next(letters) for _ in y.shape]
    for i, j in [*zip(*contract, strict=True), *zip(*batch, strict=True)]:
        right[j] = left[i]
    front = [left[i] for i in batch[0]]
    rest = [c for i, c in enumerate(left) if i not in (*contract[0], *batch[0])]
    rest += [c for j, c in enumerate(right) if j not in (*contract[1], *batch[1])]
    return tf.einsum(f"{''.join(left)},{''.join(right)}->{''.join(front + rest)}", x, y)


_TRANSFORMS = {"fft": (tf.signal.fft, tf.signal.fft2d, tf.signal.fft3d), "ifft": (tf.signal.ifft, tf.signal.ifft2d, tf.signal.ifft3d)}


def _fft(x: Any, *, kind: str, lengths: tuple[int, ...]) -> Any:
    if kind == "rfft":
        return tf.signal.rfft(x, [lengths[-1]])
    return tf.signal.irfft(x, [lengths[-1]]) if kind == "irfft" else _TRANSFORMS[kind][len(lengths) - 1](x)


ALGEBRA: dict[str, Call] = {
    "cholesky": tf.linalg.cholesky,
    "det": tf.linalg.det,
    "dot_general": _dot_general,
    "eigh": _eigh,
    "einsum": lambda *xs, equation: tf.einsum(equation, *xs),
    "fft": _fft,
    "inv": tf.linalg.inv,
    "matmul": tnp.matmul,
    "qr": _qr,
    "slogdet": lambda x: tuple(tf.linalg.slogdet(x)),
    "solve": _solve,
    "svd": _svd,
    "triangular_solve": _triangular,
}

CALLS: dict[str, Call] = {**UNARY, **BINARY, **COMPARE, **REDUCTIONS, **ALGEBRA, **ARRAYS}
