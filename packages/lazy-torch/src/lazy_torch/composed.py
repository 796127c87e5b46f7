"""Operations that are written with other torch operations, because they need what a lowering does not see: strides, or a value on the host.

Owns: kernels in Python for the lazy device. They are registered before the native recorder takes all operations that are left, and torch's
autograd stands above them as above any kernel. Imports torch only: this module is imported with the device.

torch's derivatives of determinants take the LU factors to be those of the matrix or of its transpose, depending on the matrix's strides; so
must these be. Those of `solve` take the factors of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_library: torch.library.Library | None = None
_KERNELS: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Register the kernels; once."""
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")
        for name, kernel in _KERNELS.items():
            _library.impl(name, kernel, "PrivateUse1")


def _kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _KERNELS[name] = fn
        return fn

    return register


@_kernel("equal")
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal dims and elements: one bool is read by the host."""
    if self.device != other.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {self.device} and {other.device}!"
        )
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"Expected object of data type {self.dtype} but got data type {other.dtype} for argument 'other' in call to equal"
        )
    return self.size() == other.size() and bool((self == other).all().item())


def _factors(A: Tensor) -> tuple[Tensor, Tensor]:
    LU, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(A.mT if A.is_contiguous() and not A.is_complex() else A)
    return LU, pivots


def _parity(pivots: Tensor) -> Tensor:
    """-1 where the rows were swapped an odd number of times, else 1: i32[.., n] -> i64[..]."""
    swapped = pivots != torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    return 1 - 2 * (swapped.sum(-1) % 2)


@_kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Each index as often as it says, i64 or i32[n] -> the same [sum]; the sum is read by the host unless it is given."""
    if output_size is None:
        output_size = int(repeats.sum().item())
    places = torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(repeats.cumsum(0), places, right=True).to(repeats.dtype)


@_kernel("_linalg_det")
def linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(determinant, LU factors, pivots) of f[.., n, n]."""
    LU, pivots = _factors(A)
    return LU.diagonal(0, -2, -1).prod(-1) * _parity(pivots), LU, pivots


@_kernel("_linalg_slogdet")
def linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(sign, logarithm of the determinant's size, LU factors, pivots) of f[.., n, n]."""
    LU, pivots = _factors(A)
    diagonal = LU.diagonal(0, -2, -1)
    return diagonal.sgn().prod(-1) * _parity(pivots), diagonal.abs().log().sum(-1), LU, pivots


@_kernel("_linalg_solve_ex")
def linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution, LU factors, pivots, LAPACK's report) of A x = B, or of x A = B."""
    LU, pivots, info = torch.ops.aten.linalg_lu_factor_ex(A)
    if check_errors:
        torch.ops.aten._linalg_check_errors(info, "torch.linalg.solve_ex", is_matrix=A.dim() == 2)
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    found = torch.ops.aten.linalg_lu_solve(LU, pivots, right, left=left)
    return found.squeeze(-1) if vector else found, LU, pivots, info
