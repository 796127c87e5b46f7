"""How far compiled ufuncs may be from NumPy's values, in units in the last place; measured, and written to docs/numpy-numerics.md.

    python packages/lazy-numpy/judges/numerics.py [--measure]

Owns: `DECLARED`, the table of bounds, and how a difference is counted.  NaN, infinities and the sign of zeros must agree whatever the
bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

import numpy as np

import lazy_core
from lazy_numpy.proxy import module

PAGE = Path(__file__).resolve().parents[3] / "docs" / "numpy-numerics.md"
DTYPES = {"f8": np.dtype("f8"), "f4": np.dtype("f4")}

# By ufunc, for float64 and float32: the greatest error for 500 seeds, and half as much again. XLA computes `exp2`, `cosh` and `sinh` of
# large numbers from `exp` of a product or sum that is rounded, so that their error grows with the number. Every other ufunc has NumPy's
# value to the last bit.
DECLARED: dict[str, tuple[int, int]] = {
    "arccos": (4, 4),
    "arccosh": (6, 6),
    "arcsin": (4, 4),
    "arcsinh": (4, 4),
    "arctan": (4, 4),
    "arctan2": (4, 4),
    "arctanh": (200, 4),
    "cbrt": (4, 4),
    "cos": (2, 2),
    "cosh": (700, 32),
    "deg2rad": (2, 2),
    "degrees": (2, 3),
    "exp": (4, 6),
    "exp2": (1000, 100),
    "expm1": (9, 9),
    "hypot": (4, 4),
    "log": (4, 5),
    "log10": (6, 9),
    "log1p": (200, 4),
    "log2": (4, 11),
    "logaddexp": (5, 6),
    "logaddexp2": (6, 6),
    "power": (4, 4),
    "float_power": (4, 4),
    "rad2deg": (2, 3),
    "radians": (2, 2),
    "sin": (2, 2),
    "sinh": (700, 32),
    "tan": (4, 4),
    "tanh": (10, 8),
}


def _is_floating(ufunc: np.ufunc) -> bool:
    return ufunc.signature is None and "d" * ufunc.nin in [t.split("->")[0] for t in ufunc.types]


UFUNCS = {n: u for n in sorted(dir(np)) if isinstance(u := getattr(np, n), np.ufunc) and u.__name__ in (n, "absolute") and _is_floating(u)}


def specials(dtype: np.dtype) -> np.ndarray:
    """Zeros, ones, bounds, and what is no number; without subnormal numbers."""
    info = np.finfo(dtype)
    positive = [0.0, info.tiny, info.eps, 0.5, 1 - info.epsneg, 1.0, 1 + info.eps, 2.0, np.pi, 88.0, 709.0, 1e6, info.max, np.inf]
    return np.array([*positive, *[-p for p in positive], np.nan], dtype)


def samples(dtype: np.dtype, seed: int = 0, size: int = 4000) -> np.ndarray:
    """Special values, then numbers of all magnitudes and numbers near one."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    low, high = np.log(float(info.tiny)) * 0.8, np.log(float(info.max)) * 0.99  # remainders of the smallest numbers are subnormal
    wide = np.exp(rng.uniform(low, high, size // 2)) * rng.choice([-1, 1], size // 2)
    return np.concatenate([specials(dtype), wide.astype(dtype), rng.uniform(-10, 10, size // 2).astype(dtype)])


def operands(ufunc: np.ufunc, x: np.ndarray) -> list[np.ndarray]:
    """The operands for a ufunc: of two, the second is the first in another order, and special values meet each other."""
    if ufunc.nin == 1:
        return [x]
    s = specials(x.dtype)
    a, b = np.meshgrid(s, s)
    return [np.concatenate([x, a.ravel()]), np.concatenate([np.roll(x[::-1], 7), b.ravel()])]


def evaluate(dtype: np.dtype, names: list[str], x: np.ndarray) -> dict[str, tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]]:
    """Operands, NumPy's results and compiled results of each ufunc, from one program."""
    lazy = module()
    with lazy_core.options(tier="compiled"), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        pending = {}
        for name in names:
            given = operands(UFUNCS[name], x)
            pending[name] = given, UFUNCS[name](*[lazy.array(g) for g in given])
        lazy_core.barrier()
        found = {}
        for name, (given, result) in pending.items():
            want = UFUNCS[name](*given)
            several = lambda r: list(r) if type(r) is tuple else [r]  # noqa: E731
            found[name] = given, [np.asarray(w) for w in several(want)], [np.asarray(g) for g in several(result)]
    return found


def _ordered(x: np.ndarray) -> np.ndarray:
    bits = x.view(f"i{x.itemsize}").astype(np.int64)
    return np.where(bits < 0, np.int64(-(2 ** (8 * x.itemsize - 1))) - bits, bits)


# Of zeros of both signs NumPy takes either, depending on where they stand in the array.
EITHER_ZERO = frozenset(("maximum", "minimum", "fmax", "fmin"))
# Their error is one of the larger operand, which is what counts where the result is nearly zero.
OF_OPERANDS = frozenset(("logaddexp", "logaddexp2"))


def worst(name: str, given: list[np.ndarray], wants: list[np.ndarray], gots: list[np.ndarray]) -> tuple[float, str]:
    """The largest distance over all results of a ufunc, and a difference in kind, or ""."""
    if name in EITHER_ZERO:
        wants, gots = [w + 0.0 for w in wants], [g + 0.0 for g in gots]
    if name in OF_OPERANDS:
        large = np.maximum(np.abs(given[0]), np.abs(given[1]))
        counts = np.isfinite(large) & np.isfinite(wants[0]) & np.isfinite(gots[0])
        spacing = np.spacing(np.minimum(np.maximum(large, np.abs(wants[0]))[counts], np.finfo(large.dtype).max / 2))
        return float((np.abs(gots[0][counts] - wants[0][counts]) / spacing).max()), ""
    found = [distance(g, w) for g, w in zip(gots, wants, strict=True)]
    return max(f[0] for f in found), next((f[1] for f in found if f[1]), "")


def distance(got: np.ndarray, want: np.ndarray) -> tuple[float, str]:
    """The largest distance in units in the last place, and a difference in kind, or ""."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return np.inf, f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return (0.0, "") if np.array_equal(got, want) else (np.inf, "other values")
    tiny = np.finfo(want.dtype).tiny
    flushed = (np.abs(want) <= tiny) & (want != 0)  # subnormal results may be zero or stay
    kind = (
        (np.isnan(got) != np.isnan(want))
        | ((np.isinf(got) | np.isinf(want)) & (got != want) & ~np.isnan(want))
        | ((want == 0) & ~flushed & ((got != 0) | (np.signbit(got) != np.signbit(want))))
    )
    if kind.any():
        k = int(np.flatnonzero(kind)[0])
        return np.inf, f"{got.ravel()[k]!r} instead of {want.ravel()[k]!r} at element {k}"
    finite = np.isfinite(want) & ~flushed & (want != 0)
    if not finite.any():
        return 0.0, ""
    return float(np.abs(_ordered(got[finite]) - _ordered(want[finite])).max()), ""


def bound(name: str, key: str) -> int:
    """The declared bound of a ufunc for a dtype."""
    declared = DECLARED.get(name, (0, 0))
    return declared[list(DTYPES).index(key)]


def page() -> str:
    """The page, from the table."""
    exact = [f"`{n}`" for n in UFUNCS if DECLARED.get(n, (0, 0)) == (0, 0)]
    lines = [
        "# Numerics: how close to NumPy",
        "",
        "Made by `python packages/lazy-numpy/judges/numerics.py`, from the table that the tests hold compiled programs to.",
        "",
        "Where NumPy runs a call, the value is NumPy's. Where a compiled program does, a result never differs in kind: dtype, NaN,",
        "infinities, the sign of zeros, integer overflow and division by zero are NumPy's (of zeros of both signs `maximum` and",
        "`minimum` take either, in NumPy too). It may differ in the last digits, by at most so many units in the last place for one",
        "operation:",
        "",
        "| ufunc | float64 | float32 |",
        "|---|---|---|",
        *[f"| `{n}` | {d[0]} | {d[1]} |" for n, d in sorted(DECLARED.items()) if d != (0, 0)],
        "",
        f"To the last bit ({len(exact)}): {', '.join(exact)}.",
        "",
        "Bounds are for single operations; those of `logaddexp` and `logaddexp2` count in units of the larger operand.",
        "",
        "## Whole expressions",
        "",
        "Arithmetic is computed as it stands: `a / 3.0` is a division and no product with a reciprocal, `(a + c) - c` rounds twice,",
        "`a * 0.1 * 0.3` are two products. XLA's algebraic simplifier, which would change that, is disabled in programs that read or",
        "give NumPy's arrays (`xla_disable_hlo_passes=algsimp`), and in no other. In a short trial stencils and matrix",
        "products took as long as with it, and a softmax, which divides, a quarter to a half longer. `LAZY_FAST=1`, or",
        "`with lazy_core.options(fast=True):`, enables it again.",
        "",
        "Two things remain. A product that is an operand of a sum may be rounded once with it, where the processor has the instruction",
        "(a fused multiply-add): XLA has no option for a single program. `XLA_FLAGS=--xla_cpu_max_isa=AVX`, set before the program",
        "starts, leaves that instruction out; it cost nothing to a half there. And sums and products of many elements are added in",
        "another order than NumPy's. So a chain of operations may differ by more than the sum of its bounds where values cancel.",
        "",
        "## Subnormal numbers",
        "",
        "Compiled programs flush subnormal results to zero and take subnormal operands for zero, as XLA's CPU backend has it; calls that",
        "NumPy runs keep them. Set `LAZY_TIER=native` for programs that depend on them.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or measure; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="print what is measured beside what is declared")
    args = parser.parse_args()
    if not args.measure:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    wrong = 0
    for key, dtype in DTYPES.items():
        for name, outcome in evaluate(dtype, list(UFUNCS), samples(dtype)).items():
            units, kind = worst(name, *outcome)
            over = units > bound(name, key)
            wrong += over
            if over or units:
                print(f"{name:14} {key} {units:8.0f} declared {bound(name, key):3} {kind}")
    return int(bool(wrong))


if __name__ == "__main__":
    os.environ.setdefault("LAZY_CACHE_DIR", "off")
    sys.exit(main())
