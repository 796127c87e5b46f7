"""Core operations written with torch's public API, for the conformance matrix.

Owns: `CONFORMANCE`. Each function takes the operation's sample arguments by position and its attributes by keyword, and works on tensors
of the CPU and of the lazy device alike. Views are cloned, since a view alone records nothing. Factorisations are returned as what does
not depend on the signs of their vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from . import dtypes

Dims = Sequence[int]


def _torch(dtype: np.dtype) -> torch.dtype:
    return dtypes.to_torch(np.dtype(dtype))


def _box(starts: Dims, limits: Dims, strides: Dims) -> tuple[slice, ...]:
    return tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True))


_POLYNOMIALS = {
    **{f"chebyshev_{k}": f"chebyshev_polynomial_{k}" for k in "tuvw"},
    "hermite_h": "hermite_polynomial_h",
    "hermite_he": "hermite_polynomial_he",
    "laguerre_l": "laguerre_polynomial_l",
    "legendre_p": "legendre_polynomial_p",
}

# ------------------------------------------------------------------ shapes


def _expand_dims(x: Tensor, axes: Dims) -> Tensor:
    ndim = x.dim() + len(axes)
    for a in sorted(a % ndim for a in axes):
        x = x.unsqueeze(a)
    return x.clone()


def _pad(x: Tensor, value: Tensor, low: Dims, high: Dims, interior: Dims) -> Tensor:
    spread = [max(d + (d - 1) * i, 0) for d, i in zip(x.shape, interior, strict=True)]
    wide = [max(lo, 0) + d + max(hi, 0) for lo, d, hi in zip(low, spread, high, strict=True)]
    out = value.expand(wide).clone()
    inner = tuple(slice(max(lo, 0), max(lo, 0) + d, i + 1) for lo, d, i in zip(low, spread, interior, strict=True))
    out[inner] = x
    return out[tuple(slice(max(-lo, 0), n - max(-hi, 0)) for lo, n, hi in zip(low, wide, high, strict=True))].clone()


def _update_slice(x: Tensor, update: Tensor, starts: Dims, strides: Dims) -> Tensor:
    out = x.clone()
    out[_box(starts, [a + (n - 1) * s + 1 if n else a for a, n, s in zip(starts, update.shape, strides, strict=True)], strides)] = update
    return out


def _window(x: Tensor, starts: Sequence[Tensor], sizes: Dims) -> tuple[Tensor, ...]:
    rows = []
    for a, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        at = start.clamp(0, x.shape[a] - size) + torch.arange(size, device=x.device)
        rows.append(at.reshape([-1 if i == a else 1 for i in range(x.dim())]))
    return tuple(rows)


def _dynamic_slice(x: Tensor, *starts: Tensor, sizes: Dims) -> Tensor:
    return x[_window(x, starts, sizes)] if starts else x.clone()


def _dynamic_update_slice(x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    return torch.index_put(x, _window(x, starts, update.shape), update) if starts else update.clone()


# ------------------------------------------------------------------ indexing


def _places(indices: Tensor, size: int, mode: str) -> Tensor:
    at = indices.long()
    if mode == "wrap":
        return at % size
    if mode == "fill":
        at = torch.where(at < 0, at + size, at)
    return at.clamp(0, size - 1)


def _take(x: Tensor, indices: Tensor, axis: int, mode: str) -> Tensor:
    axis %= x.dim()
    found = torch.index_select(x, axis, _places(indices, x.shape[axis], mode).reshape(-1))
    return found.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def _key(x: Tensor, indices: Sequence[Tensor], axes: Dims, clamp: bool) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * x.dim()
    for a, i in zip(axes, indices, strict=True):
        n = x.shape[a]
        key[a] = torch.where(i < 0, i + n, i).clamp(0, n - 1).long() if clamp else i.long()
    return tuple(key)


def _index(x: Tensor, *indices: Tensor, axes: Dims, mode: str = "clip") -> Tensor:
    return x[_key(x, indices, axes, True)]


def _index_put(x: Tensor, values: Tensor, *indices: Tensor, axes: Dims, accumulate: bool) -> Tensor:
    out = x.clone()
    if not accumulate:
        out[_key(x, indices, axes, False)] = values
        return out
    wide = values.expand(x[_key(x, indices, axes, False)].shape)
    front = list(range(len(axes)))
    if list(axes) == list(range(axes[0], axes[0] + len(axes))):
        rank = torch.broadcast_shapes(*[i.shape for i in indices])
        wide = wide.movedim(list(range(axes[0], axes[0] + len(rank))), list(range(len(rank))))
    moved = out.movedim(list(axes), front)
    return torch.index_put(moved, tuple(i.long() for i in indices), wide, accumulate=True).movedim(front, list(axes)).clone()


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter(x: Tensor, indices: Tensor, updates: Tensor, axis: int, reduce: str) -> Tensor:
    if reduce == "set":
        return torch.scatter(x, axis, indices.long(), updates)
    return torch.scatter_reduce(x, axis, indices.long(), updates, _REDUCE[reduce])


def _segment_sum(data: Tensor, ids: Tensor, num: int) -> Tensor:
    return torch.zeros((num, *data.shape[1:]), dtype=data.dtype, device=data.device).index_add(0, ids.long(), data)


# ------------------------------------------------------------------ reductions


def _prod(x: Tensor, axes: Dims, keepdims: bool) -> Tensor:
    for a in sorted((a % max(x.dim(), 1) for a in axes), reverse=True):
        x = torch.prod(x, a, keepdim=keepdims, dtype=x.dtype)
    return x if axes else x.clone()


def _sum(x: Tensor, axes: Dims, keepdims: bool) -> Tensor:
    return torch.sum(x, tuple(axes), keepdim=keepdims, dtype=x.dtype)


def _topk(x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, k, axis, largest)
    return values, torch.take_along_dim(x, places, axis)  # which of equal elements comes first is not defined


# ------------------------------------------------------------------ linear algebra


def _dot_general(x: Tensor, y: Tensor, contract: tuple[Dims, Dims], batch: tuple[Dims, Dims]) -> Tensor:
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left: list[str] = ["" for _ in x.shape]
    right: list[str] = ["" for _ in y.shape]
    out = []
    for pairs, kept in ((batch, True), (contract, False)):
        for i, j in zip(*pairs, strict=True):
            left[i] = right[j] = next(letters)
            out += [left[i]] if kept else []
    for side in (left, right):
        for i, name in enumerate(side):
            if not name:
                side[i] = next(letters)
                out.append(side[i])
    return torch.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y)


def _svd(x: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor]:
    u, s, vh = torch.linalg.svd(x, full_matrices)
    k = s.shape[-1]
    return s, (u[..., :k] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :k, :]


def _eigh(x: Tensor) -> tuple[Tensor, Tensor]:
    w, v = torch.linalg.eigh(x)
    return w, (v * w.unsqueeze(-2).to(v.dtype)) @ v.mH


def _eig(x: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eig(x)
    return values, vectors.abs()


def _triangular_solve(a: Tensor, b: Tensor, lower: bool, unit: bool, transpose: bool) -> Tensor:
    return torch.linalg.solve_triangular(a.mT if transpose else a, b, upper=lower == transpose, unitriangular=unit)


def _qr(x: Tensor, mode: str) -> Any:
    q, r = torch.linalg.qr(x, mode)
    return r if mode == "r" else (q, r)


def _fft(x: Tensor, kind: str, lengths: Dims) -> Tensor:
    dim = tuple(range(-len(lengths), 0))
    call = {"fft": torch.fft.fftn, "ifft": torch.fft.ifftn, "rfft": torch.fft.rfftn, "irfft": torch.fft.irfftn}[kind]
    return call(x, s=tuple(lengths), dim=dim)


# ------------------------------------------------------------------ convolution


def _conv(
    x: Tensor,
    w: Tensor,
    strides: Dims,
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Dims,
    rhs_dilation: Dims,
    groups: int,
    spec: tuple[str, str, str],
) -> Tensor:
    space = [c for c in spec[0] if c not in "NC"]
    x = x.permute([spec[0].index(c) for c in ("N", "C", *space)])
    w = w.permute([spec[1].index(c) for c in ("O", "I", *space)])
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    x = _pad(x, zero, (0, 0, *(p[0] for p in padding)), (0, 0, *(p[1] for p in padding)), (0, 0, *(d - 1 for d in lhs_dilation)))
    call = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(space)]
    y = call(x, w, stride=tuple(strides), dilation=tuple(rhs_dilation), groups=groups)
    return y.permute([("N", "C", *space).index(c) for c in spec[2]]).clone()


def _gradient(call: Callable[..., Tensor], dims: Dims, g: Tensor) -> Tensor:
    x = torch.zeros(tuple(dims), dtype=g.dtype, device=g.device, requires_grad=True)
    return torch.autograd.grad(call(x), x, g)[0]


def _conv_input_grad(g: Tensor, w: Tensor, input_dims: Dims, **kw: Any) -> Tensor:
    return _gradient(lambda x: _conv(x, w, **kw), input_dims, g)


def _conv_filter_grad(x: Tensor, g: Tensor, filter_dims: Dims, **kw: Any) -> Tensor:
    return _gradient(lambda w: _conv(x, w, **kw), filter_dims, g)


# ------------------------------------------------------------------ pooling


def _spatial(
    x: Tensor, window: Dims, strides: Dims, padding: Sequence[tuple[int, int]], fill: float
) -> tuple[Tensor, list[int], list[int]]:
    """Pad x, and move the dims that are pooled to the end, as exactly three after two others."""
    zeros = [0] * x.dim()
    value = torch.full((), fill, dtype=x.dtype, device=x.device)
    x = _pad(x, value, [p[0] for p in padding], [p[1] for p in padding], zeros)
    pooled = [i for i in range(x.dim()) if window[i] != 1 or strides[i] != 1]
    if len(pooled) > 3:
        raise NotImplementedError("torch pools at most three dims")
    order = [i for i in range(x.dim()) if i not in pooled] + pooled
    y = x.permute(order)
    lead = x.dim() - len(pooled)
    return y.reshape(1, math.prod(y.shape[:lead]), *[1] * (3 - len(pooled)), *y.shape[lead:]), pooled, order


def _restored(y: Tensor, x: Tensor, pooled: list[int], order: list[int]) -> Tensor:
    dims = [x.shape[i] for i in order if i not in pooled] + list(y.shape[5 - len(pooled) :] if pooled else [])
    return y.reshape(dims).permute([order.index(i) for i in range(x.dim())]).clone()


def _three(values: Dims, pooled: list[int]) -> tuple[int, ...]:
    return (*[1] * (3 - len(pooled)), *[values[i] for i in pooled])


def _max_pool(x: Tensor, window: Dims, strides: Dims, padding: Sequence[tuple[int, int]], dilation: Dims) -> Tensor:
    lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    y, pooled, order = _spatial(x, window, strides, padding, lowest)
    return _restored(F.max_pool3d(y, _three(window, pooled), _three(strides, pooled), 0, _three(dilation, pooled)), x, pooled, order)


def _max_pool_grad(x: Tensor, g: Tensor, **kw: Any) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad(_max_pool(leaf, **kw), leaf, g)[0]


def _batched(x: Tensor, rank: int) -> Tensor:
    return x.reshape(1, math.prod(x.shape[: x.dim() - rank]), *x.shape[x.dim() - rank :])


def _max_pool_with_indices(
    x: Tensor, window: Dims, strides: Dims, padding: Sequence[tuple[int, int]], dilation: Dims
) -> tuple[Tensor, Tensor]:
    if any(lo != hi for lo, hi in padding):
        raise NotImplementedError("torch pads both sides alike")
    rank = len(window)
    call = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[rank]
    found = call(_batched(x, rank), tuple(window), tuple(strides), tuple(p[0] for p in padding), tuple(dilation), return_indices=True)
    lead = x.shape[: x.dim() - rank]
    values, places = (f.reshape(*lead, *f.shape[2:]) for f in found)
    return values, places


def _max_pool_with_indices_grad(g: Tensor, indices: Tensor, input_dims: Dims, window: Dims, **kw: Any) -> Tensor:
    rank = len(window)
    lead, n = math.prod(input_dims[: len(input_dims) - rank]), math.prod(input_dims[len(input_dims) - rank :])
    flat = torch.zeros((lead, n), dtype=g.dtype, device=g.device)
    return flat.scatter_add(1, indices.reshape(lead, -1), g.reshape(lead, -1)).reshape(tuple(input_dims))


def _avg_pool(x: Tensor, window: Dims, strides: Dims, padding: Sequence[tuple[int, int]], count_include_pad: bool) -> Tensor:
    y, pooled, order = _spatial(x, window, strides, padding, 0)
    sizes = _three(window, pooled), _three(strides, pooled)
    total = F.avg_pool3d(y, *sizes, divisor_override=1)
    if count_include_pad:
        return _restored(total / math.prod(window), x, pooled, order)
    ones, _, _ = _spatial(torch.ones_like(x), window, strides, padding, 0)
    return _restored(total / F.avg_pool3d(ones, *sizes, divisor_override=1), x, pooled, order)


def _avg_pool_grad(g: Tensor, input_dims: Dims, **kw: Any) -> Tensor:
    return _gradient(lambda x: _avg_pool(x, **kw), input_dims, g)


# ------------------------------------------------------------------ creation


def _iota(dims: Dims, axis: int, dtype: np.dtype) -> Tensor:
    row = torch.arange(dims[axis], dtype=_torch(dtype))
    return row.reshape([-1 if i == axis else 1 for i in range(len(dims))]).expand(tuple(dims)).clone()


def _eye(n: int, m: int, k: int, dtype: np.dtype) -> Tensor:
    if k == 0:
        return torch.eye(n, m, dtype=_torch(dtype))
    return (torch.arange(n).unsqueeze(1) + k == torch.arange(m)).to(_torch(dtype))


def _full(value: Tensor, dims: Dims) -> Tensor:
    return torch.empty(tuple(dims), dtype=value.dtype, device=value.device).fill_(value)


CONFORMANCE: dict[str, Callable[..., Any]] = {
    # arithmetic
    "identity": torch.clone,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sgn,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "conj": lambda x: torch.conj(x).resolve_conj().clone(),
    "real": lambda x: torch.real(x).clone(),
    "imag": lambda x: torch.imag(x).clone(),
    "complex": torch.complex,
    "relu": torch.relu,
    "silu": F.silu,
    "softplus": lambda x, beta, threshold: F.softplus(x, beta, threshold),
    "gelu": lambda x, approximate: F.gelu(x, approximate="tanh" if approximate else "none"),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "floor_div": torch.floor_divide,
    "trunc_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "hypot": torch.hypot,
    "atan2": torch.atan2,
    "logaddexp": torch.logaddexp,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    # transcendental
    **{
        name: getattr(torch, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan",
            "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma",
        )
    },
    "gcd": torch.gcd,
    # special functions
    "zeta": torch.special.zeta,
    "igamma": torch.special.gammainc,
    "igammac": torch.special.gammaincc,
    "ndtri": torch.special.ndtri,
    "erfcx": torch.special.erfcx,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1e": torch.special.i1e,
    "bessel_k0e": torch.special.scaled_modified_bessel_k0,
    "bessel_k1e": torch.special.scaled_modified_bessel_k1,
    **{name: getattr(torch.special, name) for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")},
    "orthogonal_polynomial": lambda x, n, kind: getattr(torch.special, _POLYNOMIALS[kind])(x, n),
    "cbrt": lambda x: torch.sgn(x) * torch.abs(x) ** (1 / 3),
    # logic and bits
    "logical_not": torch.logical_not,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_not": torch.bitwise_not,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "where": lambda pred, x, y: torch.where(pred, x, y),
    "clip": torch.clamp,
    "convert": lambda x, dtype: x.to(_torch(dtype), copy=True),
    "bitcast": lambda x, dtype: x.view(_torch(dtype)).clone(),
    # reductions
    "sum": _sum,
    "prod": _prod,
    "max": lambda x, axes, keepdims: torch.amax(x, tuple(axes), keepdim=keepdims),
    "min": lambda x, axes, keepdims: torch.amin(x, tuple(axes), keepdim=keepdims),
    "any": lambda x, axes, keepdims: torch.any(x, tuple(axes), keepdim=keepdims),
    "all": lambda x, axes, keepdims: torch.all(x, tuple(axes), keepdim=keepdims),
    "mean": lambda x, axes, keepdims: torch.mean(x, tuple(axes), keepdim=keepdims),
    "var": lambda x, axes, keepdims, correction: torch.var(x, tuple(axes), correction=correction, keepdim=keepdims),
    "logsumexp": lambda x, axes, keepdims: torch.logsumexp(x, tuple(axes), keepdim=keepdims),
    "argmax": lambda x, axis, keepdims, dtype: torch.argmax(x, axis, keepdim=keepdims).to(_torch(dtype)),
    "argmin": lambda x, axis, keepdims, dtype: torch.argmin(x, axis, keepdim=keepdims).to(_torch(dtype)),
    "cumsum": lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype),
    "cumprod": lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype),
    "reduce_xor": lambda x, axes, keepdims: torch.hash_tensor(x, tuple(axes), keepdim=keepdims).to(x.dtype) if axes else x.clone(),
    "logcumsumexp": lambda x, axis: torch.logcumsumexp(x, axis),
    "cummax": lambda x, axis: tuple(torch.cummax(x, axis)),
    "cummin": lambda x, axis: tuple(torch.cummin(x, axis)),
    "softmax": lambda x, axis: torch.softmax(x, axis),
    "log_softmax": lambda x, axis: torch.log_softmax(x, axis),
    # shapes
    "reshape": lambda x, dims: torch.reshape(x, tuple(dims)).clone(),
    "transpose": lambda x, perm: torch.permute(x, tuple(perm)).clone(),
    "broadcast_to": lambda x, dims: torch.broadcast_to(x, tuple(dims)).clone(),
    "expand_dims": _expand_dims,
    "squeeze": lambda x, axes: torch.squeeze(x, tuple(axes)).clone(),
    "concatenate": lambda *xs, axis: torch.cat(xs, axis),
    "stack": lambda *xs, axis: torch.stack(xs, axis),
    "pad": _pad,
    "reverse": lambda x, axes: torch.flip(x, tuple(axes)),
    "tile": lambda x, reps: torch.tile(x, tuple(reps)),
    "roll": lambda x, shifts, axes: torch.roll(x, tuple(shifts), tuple(axes)),
    "slice": lambda x, starts, limits, strides: x[_box(starts, limits, strides)].clone(),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "update_slice": _update_slice,
    "triu": lambda x, k: torch.triu(x, k),
    "tril": lambda x, k: torch.tril(x, k),
    "diagonal": lambda x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).clone(),
    # indexing
    "take": _take,
    "take_along_axis": lambda x, indices, axis: torch.take_along_dim(x, indices.long(), axis),
    "index": _index,
    "index_put": _index_put,
    "scatter": _scatter,
    "one_hot": lambda indices, depth, dtype: F.one_hot(indices.long(), depth).to(_torch(dtype)),
    "segment_sum": _segment_sum,
    # sorting
    "sort": lambda x, axis, descending, stable: torch.sort(x, dim=axis, descending=descending, stable=True).values,
    "argsort": lambda x, axis, descending, stable, dtype: torch.argsort(x, dim=axis, descending=descending, stable=True).to(_torch(dtype)),
    "sort_with_indices": lambda x, axis, descending, stable: tuple(torch.sort(x, dim=axis, descending=descending, stable=True)),
    "topk": _topk,
    "searchsorted": lambda ordered, v, side: torch.searchsorted(ordered, v, side=side),
    # linear algebra
    "matmul": torch.matmul,
    "dot_general": _dot_general,
    "einsum": lambda *xs, equation: torch.einsum(equation, *xs),
    "cholesky": torch.linalg.cholesky,
    "qr": _qr,
    "svd": _svd,
    "eigh": _eigh,
    "solve": torch.linalg.solve,
    "triangular_solve": _triangular_solve,
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": lambda x: tuple(torch.linalg.slogdet(x)),
    "lu": lambda x: tuple(torch.linalg.lu_factor(x)),
    "ctc_forward": lambda x, t, n, m, blank: torch._ctc_loss(x, t, n, m, blank)[0],
    "ctc_backward": lambda g, x, t, n, m, nll, a, **kw: torch.ops.aten._ctc_loss_backward(
        g, x, t, n.tolist(), m.tolist(), nll, a, *kw.values()
    ),
    "geqrf": lambda x: tuple(torch.geqrf(x)),
    "householder_product": torch.linalg.householder_product,
    "ormqr": lambda x, tau, y, left, transpose: torch.ormqr(x, tau, y, left, transpose),
    "ldl": lambda x, hermitian: tuple(torch.linalg.ldl_factor_ex(x, hermitian=hermitian)),
    "ldl_solve": lambda x, pivots, y, hermitian: torch.linalg.ldl_solve(x, pivots, y, hermitian=hermitian),
    "eig": _eig,
    "matrix_exp": torch.linalg.matrix_exp,
    "fft": _fft,
    # convolution and pooling
    "conv": _conv,
    "conv_input_grad": _conv_input_grad,
    "conv_filter_grad": _conv_filter_grad,
    "max_pool": _max_pool,
    "max_pool_grad": _max_pool_grad,
    "max_pool_with_indices": _max_pool_with_indices,
    "max_pool_with_indices_grad": _max_pool_with_indices_grad,
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
    # creation
    "full": _full,
    "iota": _iota,
    "eye": _eye,
}  # fmt: skip
