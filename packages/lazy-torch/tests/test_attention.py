"""Scaled dot-product attention: the CPU's fused kernel natively, a lowering compiled; values and gradients against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import lazy_core
from lazy_torch import build

B, H, T, S, E = 2, 4, 5, 7, 8
FUSED = ("ScaledDotProductFlashAttentionForCpuBackward0",)
DEAD_ROW = torch.zeros(T, S)
DEAD_ROW[1] = -math.inf
DEAD_ROW[2, 3:] = -math.inf

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "mask": {"attn_mask": DEAD_ROW},
    "mask of bools": {"attn_mask": torch.arange(B * T * S).reshape(B, 1, T, S) % 3 > 0},
    "padding": {"attn_mask": torch.arange(S).lt(4)[None]},
    "groups": {"enable_gqa": True, "is_causal": True},
}


def _run(device: str, case: str, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    how = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in CASES[case].items()}
    mask = how.get("attn_mask")
    if mask is not None and mask.dtype != torch.bool:
        how["attn_mask"] = mask.to(dtype)
    heads = 2 if how.get("enable_gqa") else H
    q, k, v = (torch.randn(B, n, h, E).to(dtype).to(device).transpose(1, 2).requires_grad_() for n, h in ((T, H), (S, heads), (S, heads)))
    out = F.scaled_dot_product_attention(q, k, v, **how)
    assert type(out.grad_fn).__name__ in FUSED
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), torch.randn(B, H, T, E).to(dtype).to(device))]


@pytest.mark.parametrize("tier", ["compiled", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention_and_its_gradients_equal_the_cpu(tier: str, dtype: torch.dtype) -> None:
    """Causal, scaled, masks of floats and bools, rows that see nothing, groups of heads."""
    with lazy_core.options(tier=tier):
        found = {case: _run("lazy", case, dtype) for case in CASES}
        found = {case: [x.cpu() for x in results] for case, results in found.items()}
    rtol, atol = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-10), torch.bfloat16: (2e-2, 2e-2)}[dtype]
    for case, results in found.items():
        for x, y in zip(results, _run("cpu", case, dtype), strict=True):
            torch.testing.assert_close(x, y, rtol=rtol, atol=atol, msg=lambda m, c=case: f"{c}: {m}")
    assert lazy_core.report().counters["fallbacks"] == 0


def test_natively_attention_is_one_kernel_that_holds_no_scores() -> None:
    """The kernel of the CPU, not its parts: scores of 64 MB would show."""
    with lazy_core.options(tier="native"):
        q = torch.randn(1, 1, 4096, 8, device="lazy")
        before = build.native().counters()["immediate"]
        F.scaled_dot_product_attention(q, q, q)
        assert build.native().counters()["immediate"] == before + 1


def test_dropout_takes_attention_apart() -> None:
    """As on the CPU, whose kernel has no dropout; the mask is drawn from the device's stream."""
    q = torch.randn(B, H, T, E, device="lazy").requires_grad_()
    torch.manual_seed(1)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert type(out.grad_fn).__name__ not in FUSED
    torch.manual_seed(1)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), out)
    out.sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_the_mathematical_form_can_be_chosen_and_differentiated_twice() -> None:
    """`sdpa_kernel` works as on the CPU."""

    def run(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        q = torch.randn(1, 2, T, E).to(device).requires_grad_()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = F.scaled_dot_product_attention(q, q, q)
        (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), q)[0].cpu()

    torch.testing.assert_close(run("lazy"), run("cpu"), rtol=1e-3, atol=1e-4)
