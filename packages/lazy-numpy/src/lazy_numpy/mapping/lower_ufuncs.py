"""What each NumPy ufunc is in core operations, on operands already in the dtype of NumPy's loop.

Owns: the tables `PLAIN` (one core operation), `BUILT` (several), `BOOL` and `COMPLEX` (where these dtypes differ).
Dtypes and promotion are not decided here.  May import lazy_core's ops and ir.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ops
from lazy_core.ir import Expr, const

Build = Callable[..., Any]


def k(x: Expr, value: Any) -> Expr:
    """A constant of x's dtype."""
    return const(value, x.shape.dtype)


def kind(x: Expr) -> str:
    """The kind of x's dtype."""
    return x.shape.dtype.kind


# ufunc: core operation, the same on every dtype of its loops
PLAIN: dict[str, Any] = {
    "add": ops.add,
    "subtract": ops.sub,
    "multiply": ops.mul,
    "divide": ops.div,
    "floor_divide": ops.floor_div,
    "remainder": ops.remainder,
    "fmod": ops.fmod,
    "power": ops.pow,
    "float_power": ops.pow,
    "negative": ops.neg,
    "absolute": ops.abs,
    "fabs": ops.abs,
    "sign": ops.sign,
    "rint": ops.round,
    "floor": ops.floor,
    "ceil": ops.ceil,
    "trunc": ops.trunc,
    "exp": ops.exp,
    "exp2": ops.exp2,
    "expm1": ops.expm1,
    "log": ops.log,
    "log2": ops.log2,
    "log10": ops.log10,
    "log1p": ops.log1p,
    "sqrt": ops.sqrt,
    "cbrt": ops.cbrt,
    "square": ops.square,
    "reciprocal": ops.reciprocal,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": ops.tan,
    "arcsin": ops.asin,
    "arccos": ops.acos,
    "arctan": ops.atan,
    "sinh": ops.sinh,
    "cosh": ops.cosh,
    "tanh": ops.tanh,
    "arcsinh": ops.asinh,
    "arccosh": ops.acosh,
    "arctanh": ops.atanh,
    "arctan2": ops.atan2,
    "hypot": ops.hypot,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "fmax": ops.fmax,
    "fmin": ops.fmin,
    "logaddexp": ops.logaddexp,
    "copysign": ops.copysign,
    "nextafter": ops.nextafter,
    "isnan": ops.isnan,
    "isinf": ops.isinf,
    "isfinite": ops.isfinite,
    "signbit": ops.signbit,
    "logical_not": ops.logical_not,
    "logical_and": ops.logical_and,
    "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor,
    "bitwise_and": ops.bitwise_and,
    "bitwise_or": ops.bitwise_or,
    "bitwise_xor": ops.bitwise_xor,
    "invert": ops.bitwise_not,
    "left_shift": ops.shift_left,
    "right_shift": ops.shift_right,
    "equal": ops.eq,
    "not_equal": ops.ne,
    "less": ops.lt,
    "less_equal": ops.le,
    "greater": ops.gt,
    "greater_equal": ops.ge,
    "conjugate": ops.conj,
    "matmul": ops.matmul,
}

# Ufuncs of scipy.special.
SCIPY: dict[str, Any] = {
    "scipy.erf": ops.erf,
    "scipy.erfc": ops.erfc,
    "scipy.erfinv": ops.erfinv,
    "scipy.gammaln": ops.lgamma,
    "scipy.psi": ops.digamma,
    "scipy.expit": ops.sigmoid,
}

# The loops on bools that are not the operation of the same name.
BOOL: dict[str, Build] = {
    "add": ops.logical_or,
    "multiply": ops.logical_and,
    "maximum": ops.logical_or,
    "minimum": ops.logical_and,
    "fmax": ops.logical_or,
    "fmin": ops.logical_and,
    "absolute": lambda x: x,
    "invert": ops.logical_not,
    "bitwise_and": ops.logical_and,
    "bitwise_or": ops.logical_or,
    "bitwise_xor": ops.logical_xor,
    "greater": lambda x, y: ops.logical_and(x, ops.logical_not(y)),
    "less": lambda x, y: ops.logical_and(ops.logical_not(x), y),
    "greater_equal": lambda x, y: ops.logical_or(x, ops.logical_not(y)),
    "less_equal": lambda x, y: ops.logical_or(ops.logical_not(x), y),
    "matmul": lambda x, y: ops.ne(ops.matmul(_to(x, np.int32), _to(y, np.int32)), const(0, np.int32)),
    "isnan": lambda x: ops.logical_and(x, ops.logical_not(x)),
    "isinf": lambda x: ops.logical_and(x, ops.logical_not(x)),
    "isfinite": lambda x: ops.logical_or(x, ops.logical_not(x)),
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "trunc": lambda x: x,
}


def _to(x: Expr, dtype: Any) -> Expr:
    return x if x.shape.dtype == dtype else ops.convert(x, dtype=np.dtype(dtype))


def _scaled(factor: float) -> Build:
    return lambda x: ops.mul(x, k(x, factor))


def _modf(x: Expr) -> Any:
    whole = ops.trunc(x)
    part = ops.where(ops.isinf(x), k(x, 0.0), ops.sub(x, whole))
    return ops.copysign(part, x), whole


def _heaviside(x: Expr, y: Expr) -> Expr:
    step = ops.where(ops.gt(x, k(x, 0.0)), k(x, 1.0), k(x, 0.0))
    return ops.where(ops.eq(x, k(x, 0.0)), y, ops.where(ops.isnan(x), x, step))


def _logaddexp2(x: Expr, y: Expr) -> Expr:
    ln2 = k(x, math.log(2.0))
    return ops.div(ops.logaddexp(ops.mul(x, ln2), ops.mul(y, ln2)), ln2)


def _vecdot(x: Expr, y: Expr) -> Expr:
    product = ops.mul(ops.conj(x) if kind(x) == "c" else x, y)
    return ops.sum(product, axes=(len(product.shape.dims) - 1,), keepdims=False)


def _squeeze(x: Expr, axis: int) -> Expr:
    return ops.squeeze(x, axes=(axis % len(x.shape.dims),))


def _expand(x: Expr, axis: int) -> Expr:
    return ops.expand_dims(x, axes=(axis % (len(x.shape.dims) + 1),))


BUILT: dict[str, Build] = {
    "positive": lambda x: x,
    "degrees": _scaled(180.0 / math.pi),
    "rad2deg": _scaled(180.0 / math.pi),
    "radians": _scaled(math.pi / 180.0),
    "deg2rad": _scaled(math.pi / 180.0),
    "divmod": lambda x, y: (ops.floor_div(x, y), ops.remainder(x, y)),
    "modf": _modf,
    "heaviside": _heaviside,
    "logaddexp2": _logaddexp2,
    "vecdot": _vecdot,
    "matvec": lambda a, x: _squeeze(ops.matmul(a, _expand(x, -1)), -1),
    "vecmat": lambda x, a: _squeeze(ops.matmul(_expand(ops.conj(x) if kind(x) == "c" else x, -2), a), -2),
}


# ------------------------------------------------------------------ complex numbers are ordered by real part, then imaginary


def _ordered(strict: Any, name: str) -> Build:
    last = PLAIN[name]

    def build(x: Expr, y: Expr) -> Expr:
        first = strict(ops.real(x), ops.real(y))
        tie = ops.logical_and(ops.eq(ops.real(x), ops.real(y)), last(ops.imag(x), ops.imag(y)))
        either = ops.logical_or(ops.isnan(ops.imag(x)), ops.isnan(ops.imag(y)))
        return ops.logical_or(ops.logical_and(first, ops.logical_not(either)), tie)

    return build


def _pick(name: str, ignores_nan: bool) -> Build:
    better = _ordered(ops.gt if name == "greater_equal" else ops.lt, name)

    def build(x: Expr, y: Expr) -> Expr:
        if ignores_nan:
            return ops.where(ops.logical_or(better(x, y), ops.isnan(y)), x, y)
        return ops.where(ops.logical_or(better(x, y), ops.isnan(x)), x, y)

    return build


def _complex_sign(x: Expr) -> Expr:
    size = ops.abs(x)
    unit = ops.div(x, ops.complex(size, k(size, 0)))
    return ops.where(ops.eq(size, k(size, 0)), k(x, 0), unit)


COMPLEX: dict[str, Build] = {
    "less": _ordered(ops.lt, "less"),
    "less_equal": _ordered(ops.lt, "less_equal"),
    "greater": _ordered(ops.gt, "greater"),
    "greater_equal": _ordered(ops.gt, "greater_equal"),
    "maximum": _pick("greater_equal", ignores_nan=False),
    "minimum": _pick("less_equal", ignores_nan=False),
    "fmax": _pick("greater_equal", ignores_nan=True),
    "fmin": _pick("less_equal", ignores_nan=True),
    "sign": _complex_sign,
    "reciprocal": lambda x: ops.div(k(x, 1), x),
}


def _mixed_compare(name: str) -> Build:
    """A comparison of a signed with an unsigned 64-bit integer, exact: a negative number is less than any unsigned one."""
    inner = PLAIN[name]

    def build(x: Expr, y: Expr) -> Expr:
        signed, other = (x, y) if kind(x) == "i" else (y, x)
        negative = ops.lt(signed, k(signed, 0))
        as_unsigned = _to(signed, other.shape.dtype)
        plain = inner(as_unsigned, y) if signed is x else inner(x, as_unsigned)
        when_negative = name == "not_equal" or name in (("less", "less_equal") if signed is x else ("greater", "greater_equal"))
        return ops.logical_or(plain, negative) if when_negative else ops.logical_and(plain, ops.logical_not(negative))

    return build


MIXED = {name: _mixed_compare(name) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")}


def builder(name: str, loop: tuple[np.dtype, ...]) -> Build | None:
    """What computes a ufunc on operands of these loop dtypes, or None where only NumPy can."""
    if loop and all(d.kind == "c" for d in loop) and name in COMPLEX:
        return COMPLEX[name]
    if any(d.kind == "c" for d in loop) and name == "floor_divide":
        return None
    if len(loop) == 2 and loop[0] != loop[1] and name in MIXED and {d.kind for d in loop} == {"i", "u"}:
        return MIXED[name]
    if loop and name == "reciprocal" and loop[0].kind in "iu":
        return lambda x: ops.trunc_div(k(x, 1), x)
    if loop and all(d.kind == "b" for d in loop) and name in BOOL:
        return BOOL[name]
    if len(set(loop)) > 1 and name not in ("ldexp",):
        return None
    return PLAIN.get(name) or BUILT.get(name) or SCIPY.get(name)
