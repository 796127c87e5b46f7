"""Special functions that NumPy has not: the error function and its relatives, and the logarithm of the gamma function.

Owns: approximations in NumPy arithmetic.  Those of erf and erfc are Chebyshev and rational fits made for this file; relative errors are
below 4 units in the last place.  erfinv is Giles' "Approximating the erfinv function" (GPU Computing Gems, 2010), as in XLA, so that
random normal numbers agree between tiers; lgamma and digamma are Lanczos' approximation with g = 7.  Imports NumPy only.

Functions of f32 compute in f32 where that is accurate enough, else in f64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any


def horner(x: Array, coefficients: Sequence[float], out: Array | None = None) -> Array:
    """A polynomial, highest power first, in x's own dtype."""
    first, second, *rest = coefficients
    result = np.multiply(x, x.dtype.type(first), out=out)
    np.add(result, x.dtype.type(second), out=result)
    for c in rest:
        np.multiply(result, x, out=result)
        np.add(result, x.dtype.type(c), out=result)
    return result


# erf(x) / x as a polynomial in x * x on [0, 1]
_ERF_SMALL = (
    -7.795898827002142e-10, 1.3720064546777686e-08, -1.6208483801871705e-07, 1.6447424703317362e-06, -1.492473690741966e-05,
    0.00012055294904839707, -0.0008548325975389692, 0.0052239776071164225, -0.02686617064323777, 0.11283791670945006,
    -0.37612638903183543, 1.1283791670955126,
)  # fmt: skip
# exp(x * x) erfc(x) (1 + 2 x) as a polynomial in (x - 4) / (x + 4), for x >= 0
_ERFCX = (
    9.655408225482863e-10, 1.5712153638319064e-09, -1.2544825403855518e-08, -1.6357383982124768e-08, 1.0683442926744586e-07,
    7.111912428010423e-08, -8.218020654813044e-07, 2.980596055322769e-07, 5.707239573693257e-06, -1.1225140354449658e-05,
    -2.439811794207995e-05, 0.0001506231178516207, -0.00019925700412184815, -0.0007577737141838885, 0.005031970032548695,
    -0.01619773397992426, 0.0371675155318432, -0.06633036582050367, 0.09373283499865172, -0.10103906603585294, 0.0680970542546862,
    0.015379652102610162, -0.1396211168405625, 1.2329951186255526,
)  # fmt: skip
# erf(x) / x as a quotient of polynomials in x * x, for |x| < 3.95
_ERF_TOP = (
    2.0291642563747777e-06,
    0.00028427638951476926,
    0.003789610207303575,
    0.0528173593046453,
    0.19111737487628122,
    1.128379146509494,
)
_ERF_BOTTOM = (3.784434143819119e-05, 0.001166257308968758, 0.015017616897120157, 0.1143799920535161, 0.5027061040509463, 1.0)


def _erfc_positive(a: Array) -> Array:
    """The complement of erf of f64 numbers that are not negative."""
    a = np.minimum(a, 30.0)
    head = a.astype(np.float32).astype(np.float64)  # its square is exact, so that exp gets the square of a to the last digit
    return np.exp(-head * head) * np.exp((head - a) * (head + a)) * horner((a - 4.0) / (a + 4.0), _ERFCX) / (1.0 + 2.0 * a)


def erf(x: Array) -> Array:
    """The error function of f32 or f64."""
    if x.dtype == np.float32:
        limit = np.float32(3.95)
        clipped = np.minimum(np.maximum(x, -limit), limit)
        squared = clipped * clipped
        result = horner(squared, _ERF_TOP)
        result *= clipped
        result /= horner(squared, _ERF_BOTTOM)
        one = np.float32(1)
        return np.minimum(np.maximum(result, -one, out=result), one, out=result)
    a = np.abs(x)
    small = a < 1.0
    near = np.where(small, x, 0.0)
    found: Array = np.where(small, x * horner(near * near, _ERF_SMALL), np.copysign(1.0 - _erfc_positive(a), x))
    return found


def erfc(x: Array) -> Array:
    """1 - erf(x) of f32 or f64, without cancellation."""
    wide = x.astype(np.float64)
    tail = _erfc_positive(np.abs(wide))
    near = np.where(np.abs(wide) < 0.5, wide, 0.0)
    close = 1.0 - near * horner(near * near, _ERF_SMALL)
    found: Array = np.where(np.abs(wide) < 0.5, close, np.where(wide < 0, 2.0 - tail, tail)).astype(x.dtype)
    return found


_GILES_SINGLE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727,
    1.50140941,
)  # fmt: skip
_GILES_SINGLE_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
_GILES_DOUBLE = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
    -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
    -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_GILES_DOUBLE_TAIL = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
    0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
)  # fmt: skip
_GILES_DOUBLE_FAR = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
    7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
    2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
    4.8499064014085844221,
)  # fmt: skip


def erfinv(x: Array) -> Array:
    """The inverse of erf of f32 or f64; infinite at -1 and 1, NaN beyond."""
    one = x.dtype.type(1)
    w = np.subtract(one, x * x)  # exact where it is small, so that log needs no log1p
    np.log(w, out=w)
    np.negative(w, out=w)
    middle: tuple[float, float, Sequence[float]]
    tails: tuple[tuple[float, float, Sequence[float]], ...]
    if x.dtype == np.float32:
        middle, tails = (5.0, 2.5, _GILES_SINGLE), ((np.inf, 3.0, _GILES_SINGLE_TAIL),)
    else:
        middle, tails = (6.25, 3.125, _GILES_DOUBLE), ((16.0, 3.25, _GILES_DOUBLE_TAIL), (np.inf, 5.0, _GILES_DOUBLE_FAR))
    result = horner(w - x.dtype.type(middle[1]), middle[2])
    low = middle[0]
    for high, shift, coefficients in tails:  # few numbers are out here
        mask = (w >= low) & (w < high)
        if mask.any():
            result[mask] = horner(np.sqrt(w[mask]) - x.dtype.type(shift), coefficients)
        low = high
    result *= x
    ends = np.abs(x) >= one
    if ends.any():
        result[ends] = np.where(np.abs(x[ends]) == one, x[ends] * x.dtype.type(np.inf), x.dtype.type(np.nan))
    return result


_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def lgamma(x: Array) -> Array:
    """The logarithm of |gamma(x)| of f32 or f64."""
    wide = x.astype(np.float64)
    reflect = wide < 0.5
    z = np.where(reflect, -wide, wide - 1.0)
    series = np.full_like(z, _LANCZOS[0])
    for i, c in enumerate(_LANCZOS[1:], 1):
        series += c / (z + i)
    t = z + 7.5
    log_t = math.log(7.5) + np.log1p(z / 7.5)
    result = (z + 0.5 - t / log_t) * log_t + (0.5 * math.log(2 * math.pi)) + np.log(series)
    rest = np.abs(wide) - np.floor(np.abs(wide))
    sine = np.log(np.sin(math.pi * np.where(rest > 0.5, 1.0 - rest, rest)))
    result = np.where(reflect, math.log(math.pi) - sine - result, result)
    found: Array = np.where(np.isinf(wide) | (np.isinf(sine) & reflect), np.inf, result).astype(x.dtype)
    return found


def digamma(x: Array) -> Array:
    """The derivative of lgamma of f32 or f64; NaN at zero and at negative whole numbers."""
    wide = x.astype(np.float64)
    reflect = wide < 0.5
    z = np.where(reflect, -wide, wide - 1.0)
    series, slope = np.full_like(z, _LANCZOS[0]), np.zeros_like(z)
    for i, c in enumerate(_LANCZOS[1:], 1):
        series += c / (z + i)
        slope -= c / ((z + i) * (z + i))
    t = z + 7.5
    result = math.log(7.5) + np.log1p(z / 7.5) + slope / series - 7.0 / t
    reduced = wide + np.floor(np.abs(wide + 0.5))
    result = np.where(reflect, result - math.pi * np.cos(math.pi * reduced) / np.sin(math.pi * reduced), result)
    whole = (wide <= 0) & (wide == np.floor(wide))
    found: Array = np.where(whole, np.nan, result).astype(x.dtype)
    return found
