"""What is said of an array's contents in a few numbers, and arrays made up from such numbers.

Owns: `describe`, `generate` and `text`.  May import `shape`, `tolerances`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .shape import Shape
from .tolerances import is_float


def describe(array: np.ndarray) -> dict[str, Any]:
    """The statistics of an array as plain data: min, max, mean, std of what is finite; how many zeros, NaN and infinities."""
    if array.dtype.kind == "c":
        return {"real": describe(array.real), "imag": describe(array.imag)}
    found: dict[str, Any] = {"size": array.size}
    if not array.size:
        return found
    found["zeros"] = int(np.count_nonzero(array == 0))
    if is_float(array.dtype):
        wide = array.astype(np.float64)
        found["nan"] = int(np.isnan(wide).sum())
        found["inf"], found["-inf"] = int((wide == np.inf).sum()), int((wide == -np.inf).sum())
        wide = wide[np.isfinite(wide)]
        numbers: Any = float
    else:
        wide, numbers = array, int
    if wide.size:
        found["min"], found["max"] = numbers(wide.min()), numbers(wide.max())
        with np.errstate(all="ignore"):
            mean, std = wide.mean(dtype=np.float64), wide.std(dtype=np.float64)
        if np.isfinite(mean) and np.isfinite(std):
            found["mean"], found["std"] = float(mean), float(std)
    return found


def text(found: dict[str, Any] | None) -> str:
    """Statistics for people."""
    if found is None:
        return "unknown"
    if "real" in found:
        return f"real {text(found['real'])}; imag {text(found['imag'])}"
    if "min" not in found:
        parts = ["empty" if not found.get("size") else "nothing finite"]
    elif found["min"] == found["max"]:
        parts = [f"all {found['min']:.6g}"]
    else:
        mean = f", mean {found['mean']:.6g}" if "mean" in found else ""
        parts = [f"{found['min']:.6g} to {found['max']:.6g}{mean}"]
    return ", ".join([*parts, *[f"{found[k]} {name}" for k, name in (("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf")) if found.get(k)]])


def generate(shape: Shape, found: dict[str, Any], seed: int) -> np.ndarray:
    """An array of these statistics, the same for the same seed: clipped normal numbers, whole ones from the range; NaN and so on at random.

    Raises:
        ValueError, TypeError, KeyError: the statistics are none.
    """
    rng = np.random.default_rng(seed)
    dtype = shape.dtype
    if dtype.kind == "c":
        part = Shape.of(shape.dims, np.float32 if dtype.itemsize == 8 else np.float64)
        real, imag = (generate(part, found[name], seed + k) for k, name in enumerate(("real", "imag")))
        return np.asarray(real + 1j * imag, dtype)
    if not shape.size:
        return np.zeros(shape.dims, dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape.dims) >= found["zeros"] / found["size"])
    if not is_float(dtype):
        return rng.integers(found["min"], found["max"], shape.dims, dtype, endpoint=True)
    low, high = float(found.get("min", 0.0)), float(found.get("max", 0.0))
    mean = float(found.get("mean", low / 2 + high / 2))
    flat = np.clip(rng.normal(mean, float(found.get("std", 0.0)), shape.size), low, high)
    places = rng.permutation(shape.size)
    start = 0
    for name, value in (("zeros", 0.0), ("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        count = int(found.get(name, 0))
        flat[places[start : start + count]] = value
        start += count
    with np.errstate(all="ignore"):
        return flat.reshape(shape.dims).astype(dtype)
