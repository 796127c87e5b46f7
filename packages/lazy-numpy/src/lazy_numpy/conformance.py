"""Core operations written with NumPy's public API, for the conformance matrix.

Owns: `CONFORMANCE`.  Each function takes the operation's sample arguments by position and its attributes by keyword,
and must work on NumPy's arrays and on lazy ones alike.  What NumPy has no counterpart of (convolution, pooling, random
streams, gradients) is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _update_slice(x: Any, update: Any, starts: Any, strides: Any) -> Any:
    x = x.copy()
    x[tuple([slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in zip(starts, update.shape, strides, strict=True)])] = update
    return x


def _box(starts: Any, sizes: Any, dims: Any) -> tuple[slice, ...]:
    """A box at starts that are clamped so that it fits."""
    clamped = [min(max(int(a), 0), d - n) for a, n, d in zip(starts, sizes, dims, strict=True)]
    return tuple([slice(a, a + n) for a, n in zip(clamped, sizes, strict=True)])


def _dynamic_update(x: Any, update: Any, *starts: Any) -> Any:
    x = x.copy()
    x[_box(starts, update.shape, x.shape)] = update
    return x


def _pad(x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    if any(interior) or min(*low, *high, 0) < 0:
        raise NotImplementedError("numpy.pad has neither gaps nor negative edges")
    dims = [d + a + b for d, a, b in zip(x.shape, low, high, strict=True)]
    padded = np.broadcast_to(value, dims).copy()
    padded[tuple([slice(a, a + d) for a, d in zip(low, x.shape, strict=True)])] = x
    return padded


def _key(ndim: int, axes: Any, indices: Any) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * ndim
    for axis, index in zip(axes, indices, strict=True):
        key[axis] = index
    return tuple(key)


def _index_put(x: Any, values: Any, *indices: Any, axes: Any, accumulate: bool) -> Any:
    x = x.copy()
    if accumulate:
        np.add.at(x, _key(x.ndim, axes, indices), values)
    else:
        x[_key(x.ndim, axes, indices)] = values
    return x


def _scatter(x: Any, indices: Any, updates: Any, axis: int, reduce: str) -> Any:
    x = x.copy()
    key = list(np.ix_(*[np.arange(n) for n in indices.shape]))
    key[axis] = indices
    if reduce == "set":
        x[tuple(key)] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduce].at(x, tuple(key), updates)
    return x


def _segment_sum(data: Any, ids: Any, num: int) -> Any:
    total = np.zeros_like(data, shape=(num, *data.shape[1:]))
    np.add.at(total, ids, data)
    return total


def _sort_flipped(x: Any, axis: int) -> Any:
    return np.flip(np.sort(x, axis=axis, stable=True), axis)


def _argsort(x: Any, axis: int, descending: bool, dtype: Any = np.int64) -> Any:
    """Positions in stable order: of a descending one, equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis=axis, stable=True).astype(dtype)
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, stable=True), axis).astype(dtype)


def _sort_with_indices(x: Any, axis: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    positions = _argsort(x, axis, descending)
    return np.take_along_axis(x, positions, axis), positions


def _topk(x: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    positions = np.take(_argsort(x, axis, largest), range(k), axis=axis)
    return np.take_along_axis(x, positions, axis), positions


def _dot_general(x: Any, y: Any, contract: Any, batch: Any) -> Any:
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [""] * x.ndim, [""] * y.ndim
    for i, j in (*zip(*batch, strict=True), *zip(*contract, strict=True)):
        left[i] = right[j] = next(letters)
    left = [c or next(letters) for c in left]
    right = [c or next(letters) for c in right]
    out = [left[i] for i in batch[0]] + [c for c in left if c not in right] + [c for c in right if c not in left]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y)


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: int) -> Any:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _iota(dims: Any, axis: int, dtype: Any) -> Any:
    steps = np.arange(dims[axis]).reshape([-1 if a == axis else 1 for a in range(len(dims))])
    return np.broadcast_to(steps, dims).astype(dtype)


def _fft(x: Any, kind: str, lengths: Any) -> Any:
    return getattr(np.fft, f"{kind}n")(x, s=lengths, axes=tuple(range(-len(lengths), 0)))


CONFORMANCE: dict[str, Callable[..., Any]] = {
    # arithmetic
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_div": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "pow": np.power,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "logaddexp": np.logaddexp,
    "clip": np.clip,
    # transcendental
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    # rounding and tests
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    # logic and bits
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_not": np.bitwise_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "where": np.where,
    # dtypes and components
    "convert": lambda x, dtype: x.astype(dtype),
    "bitcast": lambda x, dtype: x.view(dtype),
    "conj": np.conjugate,
    "real": np.real,
    "imag": np.imag,
    "complex": lambda re, im: re + 1j * im,
    "identity": np.copy,
    # written with several functions
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x, beta, threshold: np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, threshold))) / beta),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": lambda x, axes, keepdims: np.log(np.sum(np.exp(x), axis=axes, keepdims=keepdims)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "trunc_div": lambda x, y: np.trunc(x / y) if x.dtype.kind == "f" else np.sign(x) * np.sign(y) * (abs(x) // abs(y)),
    "cummax": lambda x, axis: np.maximum.accumulate(x, axis=axis),
    "cummin": lambda x, axis: np.minimum.accumulate(x, axis=axis),
    # reductions
    "sum": lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    "prod": lambda x, axes, keepdims: np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    "max": lambda x, axes, keepdims: np.max(x, axis=axes, keepdims=keepdims),
    "min": lambda x, axes, keepdims: np.min(x, axis=axes, keepdims=keepdims),
    "reduce_xor": lambda x, axes, keepdims: np.bitwise_xor.reduce(x, axis=axes, keepdims=keepdims),
    "any": lambda x, axes, keepdims: np.any(x, axis=axes, keepdims=keepdims),
    "all": lambda x, axes, keepdims: np.all(x, axis=axes, keepdims=keepdims),
    "mean": lambda x, axes, keepdims: np.mean(x, axis=axes, keepdims=keepdims),
    "var": lambda x, axes, keepdims, correction: np.var(x, axis=axes, keepdims=keepdims, ddof=correction),
    "argmax": lambda x, axis, keepdims, dtype: np.argmax(x, axis=axis, keepdims=keepdims).astype(dtype),
    "argmin": lambda x, axis, keepdims, dtype: np.argmin(x, axis=axis, keepdims=keepdims).astype(dtype),
    "cumsum": lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype),
    "logcumsumexp": lambda x, axis: np.logaddexp.accumulate(x, axis=axis),
    "cumprod": lambda x, axis: np.cumprod(x, axis=axis, dtype=x.dtype),
    # shapes
    "reshape": lambda x, dims: np.reshape(x, dims),
    "transpose": lambda x, perm: np.transpose(x, perm),
    "broadcast_to": lambda x, dims: np.broadcast_to(x, dims),
    "expand_dims": lambda x, axes: np.expand_dims(x, axes),
    "squeeze": lambda x, axes: np.squeeze(x, axes),
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis=axis),
    "stack": lambda *xs, axis: np.stack(xs, axis=axis),
    "reverse": lambda x, axes: np.flip(x, axes),
    "tile": lambda x, reps: np.tile(x, reps),
    "roll": lambda x, shifts, axes: np.roll(x, shifts, axes),
    "triu": lambda x, k: np.triu(x, k),
    "tril": lambda x, k: np.tril(x, k),
    "diagonal": lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    "slice": lambda x, starts, limits, strides: x[tuple([slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True)])],
    # indexing and sorting
    "take_along_axis": lambda x, indices, axis: np.take_along_axis(x, indices, axis),
    "sort": lambda x, axis, descending, stable: _sort_flipped(x, axis) if descending else np.sort(x, axis=axis, stable=True),
    "argsort": lambda x, axis, descending, stable, dtype: _argsort(x, axis, descending, dtype),
    "sort_with_indices": _sort_with_indices,
    "topk": _topk,
    "take": lambda x, indices, axis, mode: np.take(x, indices, axis=axis, mode=mode),
    "index": lambda x, *indices, axes, mode: x[_key(x.ndim, axes, indices)],
    "index_put": _index_put,
    "scatter": _scatter,
    "segment_sum": _segment_sum,
    "one_hot": lambda indices, depth, dtype: (indices[..., None] == np.arange(depth)).astype(dtype),
    "pad": _pad,
    "dynamic_slice": lambda x, *starts, sizes: x[_box(starts, sizes, x.shape)].copy(),
    "dynamic_update_slice": _dynamic_update,
    "update_slice": _update_slice,
    "full": lambda value, dims: np.full_like(value, value, shape=dims),
    "eye": lambda n, m, k, dtype: np.eye(n, m, k, dtype),
    "iota": _iota,
    "searchsorted": lambda a, v, side: np.searchsorted(a, v, side=side),
    # linear algebra
    "matmul": np.matmul,
    "einsum": lambda *xs, equation: np.einsum(equation, *xs),
    "cholesky": np.linalg.cholesky,
    "solve": np.linalg.solve,
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "dot_general": _dot_general,
    "qr": lambda x, mode: tuple(np.linalg.qr(x, mode)),
    "svd": lambda x, full_matrices: tuple([abs(part) for part in np.linalg.svd(x, full_matrices)]),  # vectors are free up to their sign
    "eigh": lambda x: tuple(np.linalg.eigh(x)),
    "fft": _fft,
    "slogdet": lambda x: tuple(np.linalg.slogdet(x)),
}
