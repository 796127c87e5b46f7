"""Least squares by each of LAPACK's drivers, exponentials of half matrices, factors of indefinite ones: as the CPU gives them."""

from __future__ import annotations

import pytest
import torch

import lazy_core

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
DIMS = (
    ((4, 3), (4,)),
    ((4, 3), (4, 2)),
    ((3, 4), (3, 2)),
    ((4, 4), (4, 2)),
    ((2, 4, 3), (2, 4)),
    ((2, 4, 3), (1, 4, 2)),
    ((1, 3, 4), (2, 3, 2)),
    ((3, 0), (3, 2)),
    ((0, 3), (0, 2)),
    ((2, 0, 4, 3), (2, 0, 4, 2)),
)


@pytest.mark.parametrize("driver", [None, *DRIVERS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_all_four_results_are_the_cpus(dtype: torch.dtype, driver: str | None) -> None:
    torch.manual_seed(0)
    for left, right in DIMS:
        if driver == "gelss" and 0 in left:  # the CPU's kernel reads what it has not got
            continue
        A, B = torch.randn(left, dtype=dtype), torch.randn(right, dtype=dtype)
        found, expected = (torch.linalg.lstsq(A.to(d), B.to(d), driver=driver) for d in ("lazy", "cpu"))
        for x, y in zip(found, expected, strict=True):
            # the condition of a random matrix of this size is some tens
            torch.testing.assert_close(x.cpu(), y, rtol=1e-3, atol=1e-4)
    assert lazy_core.report().fallbacks == {}


@pytest.mark.parametrize("driver", DRIVERS[1:])
def test_of_less_than_full_rank_the_shortest_solution_is_found(driver: str) -> None:
    torch.manual_seed(1)
    A, B = torch.randn(5, 2) @ torch.randn(2, 3), torch.randn(5, 2)
    found, expected = (torch.linalg.lstsq(A.to(d), B.to(d), driver=driver) for d in ("lazy", "cpu"))
    assert found.rank.item() == expected.rank.item() == 2
    assert found.residuals.shape == expected.residuals.shape == (0,)
    torch.testing.assert_close(found.solution.cpu(), expected.solution, rtol=1e-4, atol=1e-5)
    coarse = [torch.linalg.lstsq(A.to(d), B.to(d), rcond=0.9, driver=driver) for d in ("lazy", "cpu")]
    assert coarse[0].rank.item() == coarse[1].rank.item() == 1


def test_gradients_are_the_cpus() -> None:
    torch.manual_seed(2)
    A, B, c = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)

    def gradients(device: str) -> tuple[torch.Tensor, ...]:
        a, b = (t.to(device).detach().clone().requires_grad_() for t in (A, B))
        return torch.autograd.grad(torch.linalg.lstsq(a, b).solution, (a, b), c.to(device))

    for x, y in zip(gradients("lazy"), gradients("cpu"), strict=True):
        torch.testing.assert_close(x.cpu(), y)
    assert lazy_core.report().fallbacks == {}


def test_mistakes_are_told_as_the_cpu_tells_them() -> None:
    def told(device: str) -> list[str]:
        A, B = torch.ones(4, 3, device=device), torch.ones(4, 2, device=device)
        lost = A.clone()
        lost[:, 2] = 0
        calls = (
            lambda: torch.linalg.lstsq(lost, B, driver="gels"),
            lambda: torch.linalg.lstsq(A[0], B),
            lambda: torch.linalg.lstsq(A, B[0, 0]),
            lambda: torch.linalg.lstsq(A, B[:3]),
            lambda: torch.linalg.lstsq(A, B.expand(2, 2, 4, 2)),
            lambda: torch.linalg.lstsq(A, B, driver="lu"),
        )
        messages = []
        for call in calls:
            with pytest.raises(RuntimeError) as error:
                call()
            messages.append(f"{type(error.value).__name__}: {error.value}")
        return messages

    assert told("lazy") == told("cpu")
    zero = torch.zeros(4, 3, device="lazy")
    assert torch.linalg.lstsq(zero, torch.ones(4, 2, device="lazy"), driver="gels").solution.abs().max().item() == 0
    with pytest.raises(RuntimeError, match="same device"):
        torch.linalg.lstsq(zero, torch.ones(4, 2))
    with pytest.raises(RuntimeError, match="float, double or complex"):
        torch.linalg.lstsq(zero.half(), torch.ones(4, 2, device="lazy").half())
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.linalg.lstsq(zero, torch.ones(4, 2, device="lazy").double())


def test_results_are_written_to_out() -> None:
    torch.manual_seed(3)
    A, B = torch.randn(4, 3), torch.randn(4, 2)

    def made(device: str) -> list[torch.Tensor]:
        out = [torch.empty(0, dtype=dtype, device=device) for dtype in (torch.float32, torch.float32, torch.int64, torch.float32)]
        torch.linalg.lstsq(A.to(device), B.to(device), driver="gelsd", out=tuple(out))
        return out

    for x, y in zip(made("lazy"), made("cpu"), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-4, atol=1e-5)
    assert lazy_core.report().fallbacks == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_exponentials_of_matrices_of_half_floats_are_those_in_double_precision(dtype: torch.dtype) -> None:
    """Held against f64: torch 2.13's own kernel gives minus 20,896 times the identity for that of the identity."""
    torch.manual_seed(4)
    x = torch.randn(2, 4, 4).to(dtype)
    torch.testing.assert_close(torch.linalg.matrix_exp(x.to("lazy")).cpu(), torch.linalg.matrix_exp(x.double()).to(dtype))
    assert lazy_core.report().fallbacks == {}


# ------------------------------------------------------------------ symmetric and not definite


def _indefinite(dtype: torch.dtype, hermitian: bool) -> torch.Tensor:
    """Pivots of one row and of two, swaps, a diagonal of zeros, and a matrix of zeros."""
    torch.manual_seed(0)
    x = torch.randn(4, 5, 5, dtype=dtype)
    x = x + (x.mH if hermitian else x.mT)
    x[1].diagonal().zero_()
    x[2] *= 0
    return x


@pytest.mark.parametrize(("dtype", "hermitian"), [(torch.float64, False), (torch.complex64, True)], ids=str)
def test_factors_and_pivots_of_indefinite_matrices_are_lapacks(dtype: torch.dtype, hermitian: bool) -> None:
    x = _indefinite(dtype, hermitian)
    x[..., 0, 1] = 100  # above the diagonal nothing is read
    found, expected = (torch.linalg.ldl_factor_ex(t, hermitian=hermitian) for t in (x.to("lazy"), x))
    assert (expected.pivots < 0).any() and (expected.pivots > 0).any() and expected.info[2] == 1
    assert torch.equal(found.pivots.cpu(), expected.pivots) and torch.equal(found.info.cpu(), expected.info)
    torch.testing.assert_close(found.LD.cpu(), expected.LD, rtol=1e-4, atol=1e-5)
    regular = [0, 1, 3]
    right = torch.randn(2, 1, 5, 2, dtype=dtype)  # dims that broadcast, on which torch 2.13's own kernel reads beyond its matrices
    solved = torch.linalg.ldl_solve(found.LD[regular], found.pivots[regular], right.to("lazy"), hermitian=hermitian)
    factors = expected.LD[regular].expand(2, 3, 5, 5).clone(), expected.pivots[regular].expand(2, 3, 5).clone()
    wanted = torch.linalg.ldl_solve(*factors, right.expand(2, 3, 5, 2).clone(), hermitian=hermitian)
    torch.testing.assert_close(solved.cpu(), wanted, rtol=1e-3, atol=1e-4)
    with pytest.raises(RuntimeError, match="ldl_factor"):
        torch.linalg.ldl_factor(x.to("lazy"), hermitian=hermitian)
    assert lazy_core.report().fallbacks == {}


def test_indefinite_matrices_without_rows_and_results_in_given_tensors() -> None:
    assert torch.linalg.ldl_factor(torch.ones(2, 0, 0, device="lazy")).pivots.shape == (2, 0)
    x = _indefinite(torch.float64, False)[0]
    out = tuple(torch.empty(0, dtype=t, device="lazy") for t in (torch.float64, torch.int32))
    torch.linalg.ldl_factor(x.to("lazy"), out=out)
    expected = torch.linalg.ldl_factor(x)
    torch.testing.assert_close(out[0].cpu(), expected.LD)
    assert torch.equal(out[1].cpu(), expected.pivots)
    assert lazy_core.report().fallbacks == {}
