"""Small programs as users write them, on the lazy device."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def test_embedding_scatter_sort_einsum() -> None:
    def go(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        e = nn.Embedding(5, 3).to(d)
        i = torch.tensor([1, 2, 1]).to(d)
        e(i).square().sum().backward()
        x = torch.rand(3, 4).to(d)
        return [
            e.weight.grad,
            *x.sort(1),
            *x.topk(2),
            x.cumsum(0),
            torch.einsum("ij,kj->ik", x, x),
            x.scatter_add(0, torch.zeros(1, 4, dtype=torch.long).to(d), x[:1]),
            x.index_put((i[:1],), x[0]),
            x[i][:, [0, 2]],
            x[torch.tensor([0, 2])],
        ]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_losses() -> None:
    def go(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x, y = torch.randn(4, 3).to(d).requires_grad_(), torch.rand(4, 3).to(d)
        k = torch.tensor([0, 2, 1, 1]).to(d)
        losses = [
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.cross_entropy(x, k, label_smoothing=0.1),
            F.nll_loss(F.log_softmax(x, 1), k),
            F.binary_cross_entropy_with_logits(x, y),
            F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        ]
        sum(losses).backward()
        return [v.detach() for v in (*losses, x.grad)]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_scaled_dot_product_attention() -> None:
    q = torch.randn(1, 2, 4, 8)
    torch.testing.assert_close(
        F.scaled_dot_product_attention(*[q.to("lazy")] * 3, is_causal=True).cpu(), F.scaled_dot_product_attention(q, q, q, is_causal=True)
    )


def test_transformer_encoder_in_eval_mode() -> None:
    torch.manual_seed(0)
    m = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 16)
    mm = copy.deepcopy(m).to("lazy")
    with torch.no_grad():
        torch.testing.assert_close(mm(x.to("lazy")).cpu(), m(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode scripts its decompositions
def test_function_transforms() -> None:
    x = torch.randn(3, device="lazy")
    torch.testing.assert_close(torch.func.grad(lambda v: (v**2).sum())(x).cpu(), 2 * x.cpu())
    assert torch.vmap(lambda v: v.sum())(torch.ones(2, 3, device="lazy")).tolist() == [3, 3]
    value, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent.cpu(), x.cpu().cos())
    assert value.device.type == "lazy"


def test_clipping_and_weight_norm() -> None:
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to("lazy")
    m(torch.randn(2, 3, device="lazy")).sum().backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    assert norm.item() > 0
    total = sum(float(p.grad.square().sum()) for p in m.parameters()) ** 0.5
    assert total == pytest.approx(0.1, rel=1e-3)


def test_data_loader_with_pinned_memory() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(8.0).view(4, 2)), batch_size=2)
    assert [x.to("lazy", non_blocking=True).sum().item() for (x,) in loader] == [6, 22]


def test_autocast_does_not_disturb_plain_code() -> None:
    m = nn.Linear(4, 4).to("lazy")
    with torch.autocast("lazy", dtype=torch.bfloat16):
        y = m(torch.randn(2, 4, device="lazy"))
    assert torch.isfinite(y.float()).all().item()


def test_numbers_keep_their_type_in_promotion() -> None:
    makers: list[Callable[[str], torch.Tensor]] = [
        lambda d: torch.tensor([1, 2], device=d) * 2.5,
        lambda d: torch.ones(2, dtype=torch.float16, device=d) + 1,
        lambda d: torch.ones(2, dtype=torch.bool, device=d) + 1,
        lambda d: torch.ones(2, dtype=torch.int8, device=d) * torch.tensor(3),
        lambda d: torch.ones(2, device=d) * torch.tensor(2.0, dtype=torch.float64),
    ]
    for make in makers:
        lazy, cpu = make("lazy"), make("cpu")
        assert lazy.dtype == cpu.dtype and torch.equal(lazy.cpu(), cpu)


def test_numbers_that_change_every_step_keep_their_meaning() -> None:
    x = torch.tensor([1, 2], device="lazy")
    y = torch.ones(2, dtype=torch.float16, device="lazy")
    for step in range(4):
        assert (x * step).dtype == torch.int64 and (x * step).tolist() == [step, 2 * step]
        assert (x * (step + 0.5)).dtype == torch.float32 and (x * (step + 0.5)).tolist() == [step + 0.5, 2 * step + 1]
        assert (y * (step + 0.5)).dtype == torch.float16 and (y + step).tolist() == [1 + step, 1 + step]
        assert torch.add(y, y, alpha=step).tolist() == [1 + step, 1 + step]


def test_numbers_that_change_every_step_become_tensors_of_their_dtype() -> None:
    x = torch.arange(4.0, dtype=torch.float64)
    for step in range(4):
        q = torch.quantile(x.to("lazy"), 0.1 * step)
        made = torch.scalar_tensor(step + 0.5, dtype=torch.float64, device="lazy")
        assert q.dtype == (made * 2).dtype == torch.float64
        torch.testing.assert_close(q.cpu(), torch.quantile(x, 0.1 * step))
        assert (made * 2).item() == 2 * step + 1
