"""Sums of exponentials, hashes and losses whose values or dims torch defines in a way of its own."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import lazy_core

PARTS = (0.0, 1.5, -2.0, math.inf, -math.inf, math.nan)
LEADS = torch.tensor([complex(a, b) for a in PARTS for b in (0.0, 1.5, -2.0)])


def test_complex_sums_of_exponentials_are_counted_from_the_operand_with_the_larger_real_part() -> None:
    x, y = LEADS[:, None].expand(len(LEADS), len(LEADS)), LEADS.expand(len(LEADS), len(LEADS))
    ahead = x.real != y.real  # of two infinite real parts both directions count, and C's functions find none of them
    found, expected = torch.logaddexp(x.to("lazy"), y.to("lazy")).cpu(), torch.logaddexp(x, y)
    torch.testing.assert_close(found[ahead], expected[ahead], equal_nan=True)
    finite = torch.tensor([complex(1.0, a) for a in (0.5, 3.0, -3.0, 6.0)])
    torch.testing.assert_close(
        torch.logaddexp(finite[:, None].to("lazy"), finite.to("lazy")).cpu(), torch.logaddexp(finite[:, None], finite)
    )
    assert lazy_core.report().fallbacks == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
def test_running_sums_of_exponentials_follow_the_cpu_far_beyond_pi_and_through_infinities(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 200, dtype=torch.complex128) * 20
    x = x.to(dtype) if dtype.is_complex else x.real.to(dtype)
    x[0, :3] = -math.inf
    x[1, 40] = math.inf
    x[2, 30] = math.nan
    if dtype.is_complex:
        x[3] = 0.1j  # all of one length: the angles of the sums add up
        x[3] += torch.arange(200) * 0.3j
    for dim in (0, 1):
        torch.testing.assert_close(torch.logcumsumexp(x.to("lazy"), dim).cpu(), torch.logcumsumexp(x, dim), equal_nan=True)
    assert torch.logcumsumexp(x.to("lazy")[:, :0], 1).shape == (4, 0)
    assert lazy_core.report().fallbacks == {}


def test_a_long_running_sum_of_exponentials_takes_no_square_of_memory() -> None:
    """Two hundred thousand numbers; a table of all pairs would take 160 GB."""
    x = torch.linspace(-5, 5, 200_000)
    torch.testing.assert_close(torch.logcumsumexp(x.to("lazy"), 0).cpu(), torch.logcumsumexp(x, 0))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_hashes_are_the_cpus_bit_for_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    x = (torch.randn(3, 4, 5) * 50).to(dtype)
    lazy = x.to("lazy")
    for found, expected in (
        (torch.hash_tensor(lazy), torch.hash_tensor(x)),
        (torch.hash_tensor(lazy, 1), torch.hash_tensor(x, 1)),
        (torch.hash_tensor(lazy, (0, 2), keepdim=True), torch.hash_tensor(x, (0, 2), keepdim=True)),
        (torch.hash_tensor(lazy[0, 0, 0]), torch.hash_tensor(x[0, 0, 0])),
    ):
        assert found.dtype == torch.uint64
        assert torch.equal(found.cpu(), expected)
    assert lazy_core.report().fallbacks == {}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_of_a_single_row_has_the_dims_it_has_on_the_cpu(reduction: str) -> None:
    """torch's shape function says otherwise."""
    torch.manual_seed(3)
    x, target = torch.randn(10), torch.tensor([3, 1, 7, -1, 2, 2, 2, 2, 2, 2])

    def losses(device: str) -> list[torch.Tensor]:
        one, many = (t.clone().to(device).detach().requires_grad_() for t in (x, x.expand(2, 10)))
        found = [
            F.multilabel_margin_loss(one, target.to(device), reduction=reduction),
            F.multilabel_margin_loss(many, target.expand(2, 10).to(device), reduction=reduction),
        ]
        (found[0].sum() + found[1].sum()).backward()
        return [*found, one.grad, many.grad]

    for a, b in zip(losses("lazy"), losses("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)
    assert lazy_core.report().fallbacks == {}
