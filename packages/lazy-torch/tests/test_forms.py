"""Other forms of an operation than the plain one: in place, with `out=`, and on views whose elements are not side by side."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lazy_core


def test_arguments_that_the_form_in_place_orders_otherwise() -> None:
    x = torch.rand(4) + 1
    for n in range(3):
        found, expected = (t.polygamma_(n) for t in (x.clone().to("lazy"), x.clone()))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert lazy_core.report().fallbacks == {}


def test_what_torch_writes_through_a_view_that_it_hides_arrives() -> None:
    """torch.kron writes its result through `_unsafe_view`."""
    a, b = torch.rand(2, 3), torch.rand(4, 5)
    out = torch.zeros(8, 15, device="lazy")
    assert torch.kron(a.to("lazy"), b.to("lazy"), out=out) is out
    torch.testing.assert_close(out.cpu(), torch.kron(a, b))
    x = torch.zeros(6, device="lazy")
    torch.ops.aten._unsafe_view(x, [2, 3]).add_(1)
    assert x.tolist() == [1.0] * 6
    assert lazy_core.report().fallbacks == {}


def _views(device: str) -> list[torch.Tensor]:
    base = torch.arange(24.0).to(device)
    return [base[1::2], base.view(4, 6).t(), base[5:6], base.view(2, 3, 4).transpose(0, 2)[1:]]


def test_copies_of_strided_views_read_the_storage_and_not_the_tensor() -> None:
    def made(device: str) -> list[torch.Tensor]:
        found = []
        for x in _views(device):
            found += [torch.as_strided_copy(x, (2, 2), (3, 1), 1), torch.as_strided_copy(x, (2,), (1,))]
            found.append(torch.as_strided_scatter(x, torch.tensor([-1.0, -2.0], device=device), (2,), (4,), 1))
            found.append(torch.as_strided_copy(x, (2, 2), (3, 1), 1, out=torch.empty(0, device=device)))
            found += [torch.view_copy(x, (x.numel(),)), torch.view_copy(x, (x.numel(),), out=torch.empty(0, device=device)), x]
        return found

    for x, y in zip(made("lazy"), made("cpu"), strict=True):
        assert torch.equal(x.cpu(), y)
        assert x.stride() == y.stride()
    assert lazy_core.report().fallbacks == {}


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_that_are_looked_up_are_kept_short(dtype: torch.dtype, norm: float) -> None:
    torch.manual_seed(0)
    weight, at = (torch.randn(6, 4) * 3).to(dtype), torch.tensor([[0, 2], [2, 5]])
    tables = weight.to("lazy"), weight.clone()
    found, expected = (F.embedding(at.to(w.device), w, max_norm=1.5, norm_type=norm) for w in tables)
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close(tables[0].cpu(), tables[1])
    assert torch.equal(tables[0].cpu()[[1, 3, 4]], weight[[1, 3, 4]])
    assert lazy_core.report().fallbacks == {}
