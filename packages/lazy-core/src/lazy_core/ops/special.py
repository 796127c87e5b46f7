"""Special functions: the gamma and zeta families, error functions, Bessel and Airy functions, orthogonal polynomials.

Owns: functions of floats that are neither elementary nor in `elementwise_unary`.  Those that XLA lacks are computed in f64, by Chebyshev
series (`chebyshev`), and rounded once.  Imports the registry, `chebyshev` and jax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..deferred import jax, jnp, lax
from ..errors import DtypeError
from . import chebyshev
from .registry import WIDE_FLOAT, Dtypes, Sample, align, binary_samples, describe, numbers, op, same_dtype, unary_samples

# 16-bit floats are a frontend's to widen: most libraries have none of these functions for them.
_DTYPES: Dtypes = WIDE_FLOAT


def _float(name: str, x: Any) -> Any:
    if x.dtype not in (np.float32, np.float64):
        raise DtypeError(f"{name}({describe(x)}): expected f32 or f64")
    return x


def _in_f64(fn: Callable[[Any], Any], name: str, x: Any) -> Any:
    return lax.convert_element_type(fn(lax.convert_element_type(_float(name, x), np.float64)), x.dtype)


# ------------------------------------------------------------------ gamma and zeta


def _zeta_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    yield from binary_samples(1.5, 8, special=False)(dtype, rng)
    yield Sample((np.array([2, 3, 1, 0.5, 2.5, 2], dtype), np.array([-2.5, -1, 3, 3, -0.5, 0], dtype)), {})


@op(samples=_zeta_samples, dtypes=_DTYPES)
def zeta(x: Any, q: Any) -> Any:
    """Hurwitz's zeta function, the sum of (k + q)^-x over k >= 0: f32[*dims], f32[*dims] -> f32[*dims] (f64 too).  XLA: Zeta, While.

    It is inf where x is 1, and at q = 0, -1, ...; NaN where x is less than 1, and for negative q where x is no whole number.

    Raises:
        DtypeError: the dtypes differ, or are not f32 or f64.
        ShapeError: the dims cannot be broadcast.
    """
    same_dtype("zeta", _float("zeta", x), q)
    x, q = align("zeta", x, q)
    whole = q == jnp.floor(q)
    pole = (q <= 0) & whole
    known = (x > 1) & ((q > 0) | ((x == jnp.floor(x)) & ~whole))
    safe = jnp.where(known, q, jnp.ones_like(q))  # what XLA has takes positive q only: the sum's first terms are added here

    def step(state: Any) -> Any:
        total, at = state
        below = at <= 0
        term = lax.pow(jnp.abs(jnp.where(below, at, 1)), -x)
        odd = jnp.where(jnp.remainder(x, 2) == 1, -term, term)
        return jnp.where(below, total + odd, total), jnp.where(below, at + 1, at)

    total, at = lax.while_loop(lambda state: jnp.any(state[1] <= 0), step, (jnp.zeros_like(q), safe))
    value = total + lax.zeta(x, at)
    return jnp.where(x == 1, jnp.inf, jnp.where((x > 1) & pole, jnp.inf, jnp.where(known, value, jnp.nan))).astype(x.dtype)


@op(samples=binary_samples(0.2, 8, special=False), dtypes=_DTYPES)
def igamma(a: Any, x: Any) -> Any:
    """The lower incomplete gamma function, regularised: f32[*dims], f32[*dims] -> f32[*dims] (f64 too).  XLA: While.

    Raises:
        DtypeError: the dtypes differ, or are not f32 or f64.
        ShapeError: the dims cannot be broadcast.
    """
    same_dtype("igamma", _float("igamma", a), x)
    return lax.igamma(*align("igamma", a, x))


@op(samples=binary_samples(0.2, 8, special=False), dtypes=_DTYPES)
def igammac(a: Any, x: Any) -> Any:
    """The upper incomplete gamma function, 1 - igamma(a, x): f32[*dims], f32[*dims] -> f32[*dims] (f64 too).  XLA: While.

    Raises:
        DtypeError: the dtypes differ, or are not f32 or f64.
        ShapeError: the dims cannot be broadcast.
    """
    same_dtype("igammac", _float("igammac", a), x)
    return lax.igammac(*align("igammac", a, x))


# ------------------------------------------------------------------ error functions


@op(samples=unary_samples(0.05, 0.95, special=False), dtypes=_DTYPES)
def ndtri(p: Any) -> Any:
    """The quantile of the standard normal distribution; -inf at 0, inf at 1, NaN outside: f32[*dims] -> f32[*dims] (f64 too).

    XLA: Log, Sqrt.

    Raises:
        DtypeError: p is not f32 or f64.
    """
    found = jax.scipy.special.ndtri(_float("ndtri", p))
    outside = (p < 0) | (p > 1)
    return jnp.where(outside, jnp.nan, found).astype(p.dtype)


@op(samples=unary_samples(-3, 8), dtypes=_DTYPES)
def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), which does not underflow: f32[*dims] -> f32[*dims] (f64 too).  XLA: Exp, Div.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.erfcx, "erfcx", x)


# ------------------------------------------------------------------ Bessel functions


@op(samples=unary_samples(-8, 8), dtypes=_DTYPES)
def bessel_i0e(x: Any) -> Any:
    """exp(-|x|) I0(x), with the modified Bessel function of order 0: f32[*dims] -> f32[*dims] (f64 too).  XLA: BesselI0e.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return lax.bessel_i0e(_float("bessel_i0e", x))


@op(samples=unary_samples(-8, 8), dtypes=_DTYPES)
def bessel_i1e(x: Any) -> Any:
    """exp(-|x|) I1(x), with the modified Bessel function of order 1: f32[*dims] -> f32[*dims] (f64 too).  XLA: BesselI1e.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return lax.bessel_i1e(_float("bessel_i1e", x))


@op(samples=unary_samples(-20, 20, special=False), dtypes=_DTYPES)
def bessel_j0(x: Any) -> Any:
    """The Bessel function of the first kind and order 0: f32[*dims] -> f32[*dims] (f64 too).  XLA: Cos, Sin, Sqrt.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.j0, "bessel_j0", x)


@op(samples=unary_samples(-20, 20, special=False), dtypes=_DTYPES)
def bessel_j1(x: Any) -> Any:
    """The Bessel function of the first kind and order 1: f32[*dims] -> f32[*dims] (f64 too).  XLA: Cos, Sin, Sqrt.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.j1, "bessel_j1", x)


@op(samples=unary_samples(0.1, 20, special=False), dtypes=_DTYPES)
def bessel_y0(x: Any) -> Any:
    """The Bessel function of the second kind and order 0; NaN below zero, -inf at zero: f32[*dims] -> f32[*dims] (f64 too).  XLA: Cos, Log.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.y0, "bessel_y0", x)


@op(samples=unary_samples(0.1, 20, special=False), dtypes=_DTYPES)
def bessel_y1(x: Any) -> Any:
    """The Bessel function of the second kind and order 1; NaN below zero, -inf at zero: f32[*dims] -> f32[*dims] (f64 too).  XLA: Cos, Log.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.y1, "bessel_y1", x)


@op(samples=unary_samples(0.1, 20, special=False), dtypes=_DTYPES)
def bessel_k0e(x: Any) -> Any:
    """exp(x) K0(x), with the modified Bessel function; NaN below zero, inf at zero: f32[*dims] -> f32[*dims] (f64 too).  XLA: Log, Exp.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.k0e, "bessel_k0e", x)


@op(samples=unary_samples(0.1, 20, special=False), dtypes=_DTYPES)
def bessel_k1e(x: Any) -> Any:
    """exp(x) K1(x), with the modified Bessel function; NaN below zero, inf at zero: f32[*dims] -> f32[*dims] (f64 too).  XLA: Log, Exp.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.k1e, "bessel_k1e", x)


@op(samples=unary_samples(-12, 8, special=False), dtypes=_DTYPES)
def airy_ai(x: Any) -> Any:
    """The Airy function Ai: f32[*dims] -> f32[*dims] (f64 too).  XLA: Exp, Cos, Sin.

    Raises:
        DtypeError: x is not f32 or f64.
    """
    return _in_f64(chebyshev.airy_ai, "airy_ai", x)


# ------------------------------------------------------------------ orthogonal polynomials

# For each kind the polynomial of degree 1, as (constant, slope), and the recurrence p[k+1] = ((a + b x) p[k] - c p[k-1]) / d.
_Recurrence = tuple[tuple[float, float], Callable[[Any], tuple[Any, Any, Any, Any]]]
RECURRENCES: dict[str, _Recurrence] = {
    "chebyshev_t": ((0, 1), lambda k: (0, 2, 1, 1)),
    "chebyshev_u": ((0, 2), lambda k: (0, 2, 1, 1)),
    "chebyshev_v": ((-1, 2), lambda k: (0, 2, 1, 1)),
    "chebyshev_w": ((1, 2), lambda k: (0, 2, 1, 1)),
    "hermite_h": ((0, 2), lambda k: (0, 2, 2 * k, 1)),
    "hermite_he": ((0, 1), lambda k: (0, 1, k, 1)),
    "laguerre_l": ((1, -1), lambda k: (2 * k + 1, -1, k, k + 1)),
    "legendre_p": ((0, 1), lambda k: (0, 2 * k + 1, k, k + 1)),
}


def _polynomial_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for kind in RECURRENCES:
        yield Sample((numbers(rng, (3, 1), dtype, -1, 1), np.array([0, 1, 2, 5, -1, 12], np.int64)), {"kind": kind})
    yield Sample((numbers(rng, (0, 2), dtype), np.zeros(2, np.int64)), {"kind": "legendre_p"})


@op(samples=_polynomial_samples, dtypes=_DTYPES)
def orthogonal_polynomial(x: Any, n: Any, *, kind: str) -> Any:
    """The polynomial of degree n at x, 0 where n is negative: f32[*dims], s64[*dims] -> f32[*dims] (f64 too).  XLA: While.

    Attributes:
        kind: chebyshev_t, _u, _v or _w, hermite_h (physicists') or hermite_he (probabilists'), laguerre_l, legendre_p.

    Raises:
        DtypeError: x is not f32 or f64, or n is not s64.
        ShapeError: the dims cannot be broadcast.
        ValueError: there is no such kind.
    """
    if n.dtype != np.int64:
        raise DtypeError(f"orthogonal_polynomial({describe(x, n)}): degrees are s64")
    if kind not in RECURRENCES:
        raise ValueError(f"orthogonal_polynomial: kind {kind!r}; expected one of {', '.join(RECURRENCES)}")
    at, degree = align("orthogonal_polynomial", _float("orthogonal_polynomial", x), n)
    (constant, slope), coefficients = RECURRENCES[kind]
    zero = jnp.zeros_like(at)
    first = constant + slope * at
    highest = jnp.max(degree, initial=1)

    def step(state: Any) -> Any:
        k, before, now = state
        a, b, c, d = coefficients(lax.convert_element_type(k, at.dtype))
        following = ((a + b * at) * now - c * before) / d
        going = k < degree
        return k + 1, jnp.where(going, now, before), jnp.where(going, following, now)

    start = (jnp.asarray(1, np.int64), jnp.ones_like(at), first)
    _, _, value = lax.while_loop(lambda state: state[0] < highest, step, start)
    return jnp.where(degree < 0, zero, jnp.where(degree == 0, jnp.ones_like(at), value))
