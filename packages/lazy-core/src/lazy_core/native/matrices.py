"""Kernels of more factorisations: the family `matrices`, as far as NumPy has it.

Owns: eigenvectors of general matrices and reflectors; products of reflectors and the exponential are run by XLA.
"""

from __future__ import annotations

import numpy as np

from .linalg import lapack
from .registry import Array


def _eig(x: Array) -> tuple[Array, Array]:
    dtype = np.dtype(np.complex64 if x.dtype in (np.float32, np.complex64) else np.complex128)
    values, vectors = np.linalg.eig(x)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _geqrf(x: Array) -> tuple[Array, Array]:
    packed, tau = np.linalg.qr(x, "raw")
    return packed.swapaxes(-1, -2), tau


lapack("eig", lambda: _eig)
lapack("geqrf", lambda: _geqrf)
