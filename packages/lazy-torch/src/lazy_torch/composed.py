"""Operations that are written with other torch operations, because they need what a lowering does not see: strides, or a value on the host.

Owns: kernels in Python for the lazy device. They are registered before the native recorder takes all operations that are left, and torch's
autograd stands above them as above any kernel. Imports torch only: this module is imported with the device.

torch's derivatives of determinants take the LU factors to be those of the matrix or of its transpose, depending on the matrix's strides; so
must these be. Those of `solve` take the factors of the matrix.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
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


def names() -> frozenset[str]:
    """The overloads that have a kernel here."""
    return frozenset(_KERNELS)


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


# ------------------------------------------------------------------ copies of views


@_kernel("as_strided_copy")
def as_strided_copy(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A copy of what a view shows of the storage, whatever of it the tensor shows."""
    return self.as_strided(size, stride, storage_offset).clone()


@_kernel("as_strided_scatter")
def as_strided_scatter(self: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A tensor on a copy of the storage, in which what a view shows is replaced."""
    reach = sum((n - 1) * s for n, s in zip(self.shape, self.stride(), strict=True)) + 1 if self.numel() else 0
    storage = self.as_strided((self.storage_offset() + reach,), (1,), 0).clone()
    storage.as_strided(size, stride, storage_offset or 0).copy_(src)
    return storage.as_strided(self.shape, self.stride(), self.storage_offset())


@_kernel("view_copy")
def view_copy(self: Tensor, size: Sequence[int]) -> Tensor:
    """A copy with other dims; the CPU's kernel takes strides that no view could keep, torch's shape function does not."""
    return self.reshape(size).clone(memory_format=torch.contiguous_format)


# ------------------------------------------------------------------ linear systems


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


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether right sides are vectors and not matrices."""
    return B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])


@_kernel("_linalg_solve_ex")
def linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution, LU factors, pivots, LAPACK's report) of A x = B, or of x A = B."""
    LU, pivots, info = torch.ops.aten.linalg_lu_factor_ex(A)
    if check_errors:
        torch.ops.aten._linalg_check_errors(info, "torch.linalg.solve_ex", is_matrix=A.dim() == 2)
    vector = _is_vector(A, B)
    right = B.unsqueeze(-1) if vector else B
    found = torch.ops.aten.linalg_lu_solve(LU, pivots, right, left=left)
    return found.squeeze(-1) if vector else found, LU, pivots, info


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _check_least_squares(A: Tensor, B: Tensor, driver: str) -> None:
    name = "torch.linalg.lstsq"
    if A.dim() < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if B.dim() < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if A.dtype != B.dtype:
        raise RuntimeError(f"{name}: Expected input and other to have the same dtype, but got {A.dtype} and {B.dtype}")
    if A.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise RuntimeError(f"{name}: expected a float, double or complex tensor, but got {A.dtype}")
    if not 0 <= A.dim() - B.dim() <= 1:
        raise RuntimeError(f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1")
    if A.shape[-2] != B.shape[-1 if _is_vector(A, B) else -2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)")
    if driver not in _DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of ({', '.join(_DRIVERS)})")


def _least_squares_of_full_rank(A: Tensor, B: Tensor) -> Tensor:
    """By QR factors. A pivot of zero raises, as from LAPACK, unless the whole matrix is zero."""
    wide = A.shape[-2] < A.shape[-1]
    Q, R = torch.linalg.qr(A.mH if wide else A)
    empty = (A == 0).all(-1).all(-1)
    lost = (R.diagonal(0, -2, -1) == 0) & ~empty.unsqueeze(-1)
    info = torch.where(lost.any(-1), lost.to(torch.int32).argmax(-1) + 1, 0).to(torch.int32)
    torch.ops.aten._linalg_check_errors(info, "torch.linalg.lstsq", is_matrix=A.dim() == 2)
    solve = torch.linalg.solve_triangular
    return torch.where(empty[..., None, None], 0, Q @ solve(R.mH, B, upper=False) if wide else solve(R, Q.mH @ B, upper=True))


@_kernel("linalg_lstsq")
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution, squared errors, rank, singular values) of A x = b by least squares; which of them are empty depends on the driver.

    All but gels drop small singular values; gelsy of LAPACK estimates them, which may count another rank where one is close to the limit.
    """
    driver = driver or "gelsy"
    _check_least_squares(self, b, driver)
    m, n = self.shape[-2:]
    vector = _is_vector(self, b)
    right = b.unsqueeze(-1) if vector else b
    real = self.dtype.to_real()
    # Four tensors even where they are empty: of one that is returned twice autograd would take both for differentiable.
    errors, rank, values = (self.new_empty(0, dtype=dtype) for dtype in (real, torch.int64, real))
    determined = m > n and driver != "gelsy"
    if driver == "gels" and min(m, n):
        found = _least_squares_of_full_rank(self, right)
    else:
        U, S, Vh = torch.linalg.svd(self, full_matrices=False)
        limit = torch.finfo(real).eps * (max(m, n) if rcond is None else 1) if rcond is None or rcond < 0 else rcond
        kept = S.gt(limit * S[..., :1])
        inverse = torch.where(kept, torch.where(kept, S, 1).reciprocal(), 0)
        found = Vh.mH @ (inverse.unsqueeze(-1) * (U.mH @ right))
        if driver == "gels":
            right = torch.zeros_like(right)  # of nothing to solve LAPACK leaves no errors
        else:
            rank = kept.sum(-1)
        if driver in ("gelsd", "gelss"):
            values = S
            determined = determined and bool((rank == n).all().item())
    if determined:
        errors = (self @ found - right).abs().square().sum(-2)
    return found.squeeze(-1) if vector else found, errors, rank, values


@_kernel("multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """(losses, which classes are labels): of a single row torch's shape function gives f[1], where the CPU's kernel gives f[]."""
    loss, is_target = self.new_empty(0), self.new_empty(0)
    torch.ops.aten.multilabel_margin_loss_forward.output(self, target, reduction, output=loss, is_target=is_target)
    return loss.view(self.shape[:-1]) if reduction == 0 else loss, is_target


# ------------------------------------------------------------------ results in given tensors, of what is composed otherwise


def _into(name: str, plain: Callable[..., Any]) -> None:
    """Register an `out=` overload: what `plain` gives for the other arguments is written to the tensors given, which are resized to it."""
    base, _, overload = name.partition(".")
    arguments = torch._C._get_schema(f"aten::{base}", overload).arguments
    written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]

    @_kernel(name)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = [kwargs.pop(n) for n in written]
        made = plain(*args, **kwargs)
        for out, value in zip(given, made if isinstance(made, tuple) else (made,), strict=True):
            (out if out.shape == value.shape else out.resize_(value.shape)).copy_(value)
        return given[0] if len(given) == 1 else tuple(given)


_into("as_strided_copy.out", as_strided_copy)
_into("as_strided_scatter.out", as_strided_scatter)
_into("view_copy.out", view_copy)
_into("_linalg_det.result", linalg_det)
_into("_linalg_slogdet.sign", linalg_slogdet)
_into("_linalg_solve_ex.result", linalg_solve_ex)
_into("linalg_lstsq.out", linalg_lstsq)
_into("linalg_eigvals.out", lambda A: torch.ops.aten.linalg_eig(A)[0])
_into("mvlgamma.out", lambda x, p: torch.ops.aten.mvlgamma(x, p))
_into("adaptive_avg_pool2d.out", lambda x, size: torch.ops.aten._adaptive_avg_pool2d(x, size))
_into("adaptive_avg_pool3d.out", lambda x, size: torch.ops.aten._adaptive_avg_pool3d(x, size))
_into("adaptive_avg_pool3d_backward.grad_input", lambda grad, x: torch.ops.aten._adaptive_avg_pool3d_backward(grad, x))


# ------------------------------------------------------------------ sequences whose lengths are known on the host


def _padded(targets: Tensor, target_lengths: Sequence[int]) -> Tensor:
    """Labels as [N, S]: torch also takes all of them one after the other."""
    if targets.dim() == 2:
        return targets
    longest = max(target_lengths, default=0)
    begin = torch.tensor([0, *itertools.accumulate(target_lengths)][:-1] or [0])[: len(target_lengths)]
    at = begin.unsqueeze(1) + torch.arange(longest)
    if not targets.numel():
        return targets.new_zeros(at.shape)
    return targets[at.clamp(max=targets.numel() - 1).to(targets.device)]


def _on_device(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Lengths as values, so that a batch of other lengths is the same program."""
    return torch.tensor(lengths, dtype=torch.int64).to(like.device)


def _check_lengths(log_probs: Tensor, input_lengths: Sequence[int], target_lengths: Sequence[int], targets: Tensor, blank: int) -> None:
    frames, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if len(lengths) != batch:
            raise RuntimeError(f"{name} must be of size batch_size")
        if min(lengths, default=0) < 0:
            raise RuntimeError(f"ctc_loss: Expected {name} to have value at least 0, but got value {min(lengths)}")
    if max(input_lengths, default=0) > frames:
        raise RuntimeError(f"ctc_loss: Expected input_lengths to have value at most {frames}, but got value {max(input_lengths)}")
    joined = targets.dim() == 1
    wanted, got = (sum(target_lengths), len(targets)) if joined else (max(target_lengths, default=0), targets.shape[1])
    if got != wanted if joined else got < wanted:
        size = f"{wanted} at dimension 0" if joined else f"at least {wanted} at dimension 1"
        raise RuntimeError(f"ctc_loss: Expected tensor to have size {size}, but got size {got} for argument 'targets'")


@_kernel("_ctc_loss")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """(minus the log likelihoods f[N], forward variables) of f[T, N, C]."""
    _check_lengths(log_probs, input_lengths, target_lengths, targets, blank)
    lengths = _on_device(input_lengths, log_probs), _on_device(target_lengths, log_probs)
    return torch.ops.aten._ctc_loss.Tensor(log_probs, _padded(targets, target_lengths), *lengths, blank, zero_infinity)


@_kernel("_ctc_loss_backward")
def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """The gradient by the scores, f[T, N, C]."""
    lengths = _on_device(input_lengths, log_probs), _on_device(target_lengths, log_probs)
    labels = _padded(targets, target_lengths)
    backward = torch.ops.aten._ctc_loss_backward.Tensor
    return backward(grad, log_probs, labels, *lengths, neg_log_likelihood, log_alpha, blank, zero_infinity)
