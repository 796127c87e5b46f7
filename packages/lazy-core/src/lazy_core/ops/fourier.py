"""Discrete Fourier transforms.

Owns: fft.  Imports the registry and jax's lax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .registry import COMPLEX, WIDE_FLOAT, Sample, describe, numbers, op

_KINDS = ("fft", "ifft", "rfft", "irfft")


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    if dtype.kind == "c":
        yield Sample((numbers(rng, (3, 8), dtype),), {"kind": "fft", "lengths": (8,)})
        yield Sample((numbers(rng, (2, 4, 6), dtype),), {"kind": "ifft", "lengths": (4, 6)})
        yield Sample((numbers(rng, (3, 5), dtype),), {"kind": "irfft", "lengths": (8,)})
    else:
        yield Sample((numbers(rng, (3, 8), dtype),), {"kind": "rfft", "lengths": (8,)})


@op(samples=_samples, dtypes=WIDE_FLOAT + COMPLEX)
def fft(x: Any, *, kind: str, lengths: Sequence[int]) -> Any:
    """The transform over the last dims: c64[..,*lengths] -> c64[..,*lengths]; rfft f32[..,n] -> c64[..,n//2+1], and irfft back.

    Attributes: kind, "fft", "ifft", "rfft" or "irfft" (the inverse ones divide by the number of elements); lengths, of the last 1 to 3
    dims in the untransformed domain.  XLA: Fft.

    Raises:
        ShapeError: the lengths do not fit, or the kind is another.
        DtypeError: rfft of complex numbers, or the others of real ones.
    """
    if kind not in _KINDS or not 1 <= len(lengths) <= 3:
        raise ShapeError(
            f"fft({describe(x)}): kind {kind!r} over {len(lengths)} dims; expected one of {', '.join(_KINDS)} over 1 to 3 dims"
        )
    if (_is_complex(x)) == (kind == "rfft"):
        raise DtypeError(f"fft({describe(x)}): {kind} takes {'f32 or f64' if kind == 'rfft' else 'c64 or c128'}; convert first")
    return lax.fft(x, lax.FftType[kind.upper()], tuple(lengths))


def _is_complex(x: Any) -> bool:
    return kind(x) == "c"
