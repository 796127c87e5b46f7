"""What a floating-point result may differ by, per operation, and how results are compared.

Owns: the table of tolerances, each with its reason; `assert_close` for tests, and `difference`, which measures.  The conformance kit, the
native tier's tests and shadow runs (see `shadow`) share it.  May import `ops`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .ops.registry import REGISTRY


class Tolerance(NamedTuple):
    """What a result may differ by.

    Attributes:
        ulps: units in the last place, relative to each element.
        scaled: units in the last place, relative to the largest magnitude of the result: for sums that may cancel.
        reason: why.
    """

    ulps: float
    scaled: float
    reason: str


_EXACT = Tolerance(0, 0, "the same operation of the processor")
_FAMILIES: dict[str, Tolerance] = {
    "elementwise_unary": Tolerance(64, 4, "XLA's polynomials: up to 16 units off for sinh, more near zeros of the function"),
    "reductions": Tolerance(16, 16, "sums in another order"),
    "cumulative": Tolerance(16, 16, "sums in another order"),
    "linalg": Tolerance(64, 256, "sums in another order, and pivots in another blocking"),
    "matrices": Tolerance(64, 256, "sums in another order, and another blocking"),
    "indefinite": Tolerance(64, 256, "sums in another order, and another blocking"),
    "convolution": Tolerance(16, 64, "sums in another order"),
    "fourier": Tolerance(16, 64, "another factorisation of the transform"),
    "nn": Tolerance(64, 8, "exponentials of XLA, sums in another order"),
    "pooling": Tolerance(8, 8, "sums in another order"),
    "ctc": Tolerance(256, 64, "long chains of sums of exponentials in another order"),
    "special": Tolerance(256, 64, "other approximations than the library's; zeros of the function cancel"),
}
_OPS: dict[str, Tolerance] = {
    "div": Tolerance(2, 0, "XLA may multiply by a reciprocal; complex division is another formula"),
    "mul": Tolerance(2, 2, "complex products may be fused"),
    "square": Tolerance(2, 2, "complex products may be fused"),
    "reciprocal": Tolerance(2, 0, "complex division is another formula"),
    "abs": Tolerance(4, 0, "the hypotenuse of a complex number is another formula"),
    "sign": Tolerance(8, 0, "a complex number over its own size is another formula"),
    "pow": Tolerance(64, 4, "XLA's polynomials against the library's"),
    "hypot": Tolerance(4, 0, "another formula"),
    "atan2": Tolerance(16, 0, "XLA's polynomials against the library's"),
    "logaddexp": Tolerance(32, 4, "XLA's polynomials against the library's"),
    "logcumsumexp": Tolerance(32, 16, "XLA's polynomials, and sums in another order"),
    "floor_div": _EXACT,
    "gelu": Tolerance(64, 4, "erf and tanh of XLA"),
    "silu": Tolerance(32, 2, "exponentials of XLA"),
    "softplus": Tolerance(32, 4, "exponentials of XLA"),
    "lgamma": Tolerance(256, 64, "a Lanczos approximation with a few terms less, cancelling near 1 and 2"),
    "digamma": Tolerance(256, 64, "a series with a few terms less, cancelling near its zero"),
    "erfinv": Tolerance(256, 16, "a rational approximation in single precision"),
    "airy_ai": Tolerance(1024, 64, "torch's own series is that far off"),
    "segment_sum": Tolerance(4, 4, "sums in another order"),
    "index_put": Tolerance(4, 4, "sums in another order"),
    "scatter": Tolerance(4, 4, "sums in another order"),
    "random_normal": Tolerance(32, 2, "logarithms of two libraries, and products that XLA fuses with sums"),
    "max": _EXACT,
    "min": _EXACT,
}


def tolerance(op: str) -> Tolerance:
    """What a floating-point result of an operation may differ by; integers and bools never may."""
    found = _OPS.get(op)
    return found if found is not None else _FAMILIES.get(REGISTRY[op].family, _EXACT)


# ------------------------------------------------------------------ comparing


def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of a dtype are rounded: real and complex floats, those of ml_dtypes included."""
    return dtype.kind in "fc" or dtype.num >= 256


class Difference(NamedTuple):
    """How an array differs from what was expected, where it does by more than is allowed.

    Attributes:
        wrong: how many elements do.
        size: of how many.
        place: the index of the first of them.
        got: the number there.
        expected: the number that was expected there.
        absolute: the largest difference of any element; infinite where only one of the two is finite.
        ulps: the same in units in the last place of the expected number.
    """

    wrong: int
    size: int
    place: tuple[int, ...]
    got: Any
    expected: Any
    absolute: float
    ulps: float

    def __str__(self) -> str:
        return f"{self.wrong} of {self.size} elements differ, first at {self.place}: {self.got!r} for {self.expected!r}"


def difference(got: np.ndarray, expected: np.ndarray, allowed: Tolerance, extra: Any = 0.0) -> Difference | None:
    """How arrays of the same dims and dtype differ; None if they do by no more than is allowed.

    Args:
        got: the array that is held against the other.
        expected: what it should be.
        allowed: for floats; integers and bools must be equal.
        extra: an absolute difference that is allowed besides, a number or an array of these dims.
    """
    if not expected.size:
        return None
    if not is_float(expected.dtype):
        wrong = np.asarray(got != expected)
        if not wrong.any():
            return None
        a, b = (x.astype(np.float64) for x in (got, expected))
        largest = float(np.abs(a - b).max())
        return _difference(got, expected, wrong, largest, largest)
    info = ml_dtypes.finfo(expected.dtype)
    eps, tiny = float(info.eps), float(info.tiny)  # subnormal numbers may be flushed to zero
    a, b = _wide(got), _wide(expected)
    with np.errstate(all="ignore"):
        size = np.abs(b)
        finite = np.isfinite(b)
        scale = float(size[finite].max()) if finite.any() else 0.0
        slack = eps * (allowed.ulps * size + allowed.scaled * scale) + tiny + extra
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        wrong = np.asarray(~(same | ((finite | np.isinf(extra)) & (np.abs(a - b) <= slack))))
        if not wrong.any():
            return None
        off = np.where(same, 0.0, np.abs(a - b))
        off = np.where(np.isnan(off), np.inf, off)
        unit = eps * np.exp2(np.floor(np.log2(np.where(finite, np.maximum(size, tiny), 1.0))))
        return _difference(got, expected, wrong, float(off.max()), float((off / unit).max()))


def _difference(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, absolute: float, ulps: float) -> Difference:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Difference(int(np.sum(wrong)), expected.size, place, got[place], expected[place], absolute, ulps)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def assert_close(got: np.ndarray, expected: np.ndarray, allowed: Tolerance, where: str) -> None:
    """Check dtype, dims and values.

    Raises:
        AssertionError: they differ by more than is allowed; the message names the first element.
    """
    assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, but the library gives {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: dims {got.shape}, but the library gives {expected.shape}"
    found = difference(got, expected, allowed)
    if found is not None:
        units = f"; allowed {allowed.ulps} + {allowed.scaled} units ({allowed.reason})" if is_float(expected.dtype) else ""
        raise AssertionError(f"{where}: {found}{units}")
