"""Chebyshev series of functions that XLA lacks, for operands of f64.

Owns: the pieces that each function is cut into, and the variable in which each piece is smooth.  The coefficients are no tables: each
series is fitted once a process, in f64 at Chebyshev's nodes, to SciPy's values of the function (SciPy comes with jax).  Imports jax and
numpy, and scipy where a series is first fitted.

Sources: the forms are the classical ones (Abramowitz and Stegun 9.1, 9.4, 9.8, 10.4; Shepherd and Laframboise 1981 for erfcx): a power
series times a Chebyshev series near the origin, modulus and phase far from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..deferred import jnp, lax


@functools.cache
def _special() -> Any:
    from scipy import special  # takes a quarter of a second, which most programs need not spend

    return special


_EDGE = 8.0  # between the two pieces of J and Y
_NEAR = 2.0  # of K
_LEFT, _RIGHT = -5.0, 2.0  # of Ai


@functools.cache
def _fit(fn: Callable[[Any], Any], low: float, high: float, terms: int) -> tuple[float, ...]:
    """Coefficients of a function between two bounds; nodes never touch the bounds, where forms like 0/0 may stand."""
    found = np.polynomial.chebyshev.Chebyshev.interpolate(fn, terms - 1, domain=[low, high])
    return tuple(float(c) for c in found.coef)


def _series(fn: Callable[[Any], Any], x: Any, low: float, high: float, terms: int) -> Any:
    """The series of a function at x between the bounds, by Clenshaw's recurrence."""
    first, *rest = _fit(fn, low, high, terms)
    t = (x - low) * (2 / (high - low)) - 1
    now, before = jnp.zeros_like(x), jnp.zeros_like(x)
    for c in reversed(rest):
        now, before = 2 * t * now - before + c, now
    return t * now - before + first


def _inner(x: Any, bound: float) -> Any:
    """x where it is at most the bound, elsewhere the bound: what the other piece computes must not overflow."""
    return jnp.minimum(x, bound)


# ------------------------------------------------------------------ J and Y


def _phase(x: Any, order: int) -> Any:
    return x - (2 * order + 1) * (math.pi / 4)


def _modulus(order: int, t: Any) -> tuple[Any, Any]:
    """P and Q of order 0 or 1 as functions of t = (8 / x)^2, by the definition that J = P cos - Q sin and Y = P sin + Q cos."""
    x = _EDGE / np.sqrt(t)
    j, y = ((_special().j0, _special().y0), (_special().j1, _special().y1))[order]
    chi, scale = _phase(x, order), np.sqrt(math.pi * x / 2)
    return scale * (j(x) * np.cos(chi) + y(x) * np.sin(chi)), scale * (y(x) * np.cos(chi) - j(x) * np.sin(chi)) * x / _EDGE


def _p0(t: Any) -> Any:
    return _modulus(0, t)[0]


def _q0(t: Any) -> Any:
    return _modulus(0, t)[1]


def _p1(t: Any) -> Any:
    return _modulus(1, t)[0]


def _q1(t: Any) -> Any:
    return _modulus(1, t)[1]


def _far(x: Any, order: int, second: bool) -> Any:
    """J, or Y where `second`, for x >= 8."""
    t = (_EDGE / x) ** 2
    p, q = ((_p0, _q0), (_p1, _q1))[order]
    big, small = _series(p, t, 0, 1, 18), _series(q, t, 0, 1, 18) * (_EDGE / x)
    cos, sin = jnp.cos(_phase(x, order)), jnp.sin(_phase(x, order))
    wave = big * sin + small * cos if second else big * cos - small * sin
    return jnp.sqrt(2 / (math.pi * x)) * wave


def _j0_near(s: Any) -> Any:
    return _special().j0(np.sqrt(s))


def _j1_near(s: Any) -> Any:
    return _special().j1(np.sqrt(s)) / np.sqrt(s)


def _y0_near(s: Any) -> Any:
    x = np.sqrt(s)
    return _special().y0(x) - 2 / math.pi * np.log(x) * _special().j0(x)


def _y1_near(s: Any) -> Any:
    x = np.sqrt(s)
    return (_special().y1(x) - 2 / math.pi * (np.log(x) * _special().j1(x) - 1 / x)) / x


def _near(fn: Callable[[Any], Any], x: Any) -> Any:
    return _series(fn, x * x, 0, _EDGE**2, 24)


def j0(x: Any) -> Any:
    """J0; NaN at both infinities."""
    size = jnp.abs(x)
    return jnp.where(size <= _EDGE, _near(_j0_near, _inner(size, _EDGE)), _far(jnp.maximum(size, _EDGE), 0, False))


def j1(x: Any) -> Any:
    """J1; NaN at both infinities."""
    size = jnp.abs(x)
    inner = _inner(size, _EDGE)
    return jnp.sign(x) * jnp.where(size <= _EDGE, inner * _near(_j1_near, inner), _far(jnp.maximum(size, _EDGE), 1, False))


def y0(x: Any) -> Any:
    """Y0; -inf at 0, NaN below and at infinity."""
    inner = _inner(x, _EDGE)
    outer = _far(jnp.maximum(x, _EDGE), 0, True)
    close = 2 / math.pi * jnp.log(inner) * _near(_j0_near, inner) + _near(_y0_near, inner)
    return _from_zero(x, jnp.where(x <= _EDGE, close, outer), -jnp.inf)


def y1(x: Any) -> Any:
    """Y1; -inf at 0, NaN below and at infinity."""
    inner = _inner(x, _EDGE)
    outer = _far(jnp.maximum(x, _EDGE), 1, True)
    close = 2 / math.pi * (jnp.log(inner) * inner * _near(_j1_near, inner) - 1 / inner) + inner * _near(_y1_near, inner)
    return _from_zero(x, jnp.where(x <= _EDGE, close, outer), -jnp.inf)


def _from_zero(x: Any, value: Any, at_zero: float) -> Any:
    return jnp.where(x > 0, value, jnp.where(x == 0, at_zero, jnp.nan))


# ------------------------------------------------------------------ K


def _k0_near(s: Any) -> Any:
    x = np.sqrt(s)
    return _special().k0(x) + np.log(x / 2) * _special().i0(x)


def _k1_near(s: Any) -> Any:
    x = np.sqrt(s)
    return x * (_special().k1(x) - np.log(x / 2) * _special().i1(x))


def _k0_far(t: Any) -> Any:
    return _special().k0e(_NEAR / t) * np.sqrt(_NEAR / t)


def _k1_far(t: Any) -> Any:
    return _special().k1e(_NEAR / t) * np.sqrt(_NEAR / t)


def _i0_near(s: Any) -> Any:
    return _special().i0(np.sqrt(s))


def _i1_near(s: Any) -> Any:
    return _special().i1(np.sqrt(s)) / np.sqrt(s)


def _scaled(near: Any, far: Callable[[Any], Any], x: Any) -> Any:
    outer = jnp.maximum(x, _NEAR)
    scaled = _series(far, _NEAR / outer, 0, 1, 26) / jnp.sqrt(outer)
    return _from_zero(x, jnp.where(x <= _NEAR, jnp.exp(_inner(x, _NEAR)) * near, scaled), jnp.inf)


def k0e(x: Any) -> Any:
    """exp(x) K0(x); inf at 0, NaN below."""
    inner = _inner(x, _NEAR)
    s = inner * inner
    near = _series(_k0_near, s, 0, _NEAR**2, 16) - jnp.log(inner / 2) * _series(_i0_near, s, 0, _NEAR**2, 16)
    return _scaled(near, _k0_far, x)


def k1e(x: Any) -> Any:
    """exp(x) K1(x); inf at 0, NaN below."""
    inner = _inner(x, _NEAR)
    s = inner * inner
    near = _series(_k1_near, s, 0, _NEAR**2, 16) / inner + jnp.log(inner / 2) * inner * _series(_i1_near, s, 0, _NEAR**2, 16)
    return _scaled(near, _k1_far, x)


# ------------------------------------------------------------------ Ai


def _zeta(x: Any) -> Any:
    return 2 / 3 * x * np.sqrt(x)


def _airy(x: Any) -> Any:
    return _special().airy(x)[0]


def _airy_right(t: Any) -> Any:
    zeta = _zeta(_RIGHT) / t
    x = (1.5 * zeta) ** (2 / 3)
    return _special().airye(x)[0] * 2 * math.sqrt(math.pi) * x**0.25


def _airy_waves(t: Any) -> tuple[Any, Any, Any]:
    """(P, Q, zeta) with t = (zeta(5) / zeta)^2, from Ai and Bi left of -5."""
    zeta = _zeta(-_LEFT) / np.sqrt(t)
    z = (1.5 * zeta) ** (2 / 3)
    ai, _, bi, _ = _special().airy(-z)
    theta, scale = zeta - math.pi / 4, math.sqrt(math.pi) * z**0.25
    return scale * (ai * np.cos(theta) - bi * np.sin(theta)), scale * (ai * np.sin(theta) + bi * np.cos(theta)), zeta


def _airy_p(t: Any) -> Any:
    return _airy_waves(t)[0]


def _airy_q(t: Any) -> Any:
    _, q, zeta = _airy_waves(t)
    return q * zeta / _zeta(-_LEFT)


def airy_ai(x: Any) -> Any:
    """Ai; NaN at both infinities."""
    right = jnp.maximum(x, _RIGHT)
    zeta = 2 / 3 * right * jnp.sqrt(right)
    decaying = jnp.exp(-zeta) * _series(_airy_right, _zeta(_RIGHT) / zeta, 0, 1, 30) / (2 * math.sqrt(math.pi) * lax.pow(right, 0.25))
    middle = _series(_airy, jnp.clip(x, _LEFT, _RIGHT), _LEFT, _RIGHT, 40)
    z = -jnp.minimum(x, _LEFT)
    zeta = 2 / 3 * z * jnp.sqrt(z)
    t = (_zeta(-_LEFT) / zeta) ** 2
    p, q = _series(_airy_p, t, 0, 1, 20), _series(_airy_q, t, 0, 1, 20) * (_zeta(-_LEFT) / zeta)
    theta = zeta - math.pi / 4
    waving = (jnp.cos(theta) * p + jnp.sin(theta) * q) / (math.sqrt(math.pi) * lax.pow(z, 0.25))
    found = jnp.where(x > _RIGHT, decaying, jnp.where(x < _LEFT, waving, middle))
    return jnp.where(jnp.isinf(x), jnp.nan, found)


# ------------------------------------------------------------------ erfcx

_K = 3.75


def _erfcx_right(t: Any) -> Any:
    """(1 + 2 x) erfcx(x) for t = (x - k) / (x + k)."""
    x = _K * (1 + t) / (1 - t)
    return (1 + 2 * x) * _special().erfcx(x)


def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    size = jnp.abs(x)
    t = jnp.where(jnp.isinf(size), 1, (size - _K) / (size + _K))
    right = _series(_erfcx_right, t, -1, 1, 34) / (1 + 2 * size)
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - right, right)
