"""Training on the lazy device: equal to the CPU, compiled twice at most, barriers without markers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lazy_core

OPTIMIZERS: dict[str, Callable[[Iterable[Any]], torch.optim.Optimizer]] = {
    "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 1e-2),
    "adam_single_tensor": lambda p: torch.optim.Adam(p, 1e-2, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
}


def mlp() -> nn.Module:
    # No bias before the batch norm: its gradient is zero but for rounding, which Adam would blow up to a full step.
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16, bias=False), nn.BatchNorm1d(16))


def train(
    device: str, make: Callable[[Iterable[Any]], torch.optim.Optimizer], steps: int, schedule: bool = False
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[float]]:
    torch.manual_seed(0)
    model = mlp().to(device)
    x, y = torch.randn(8, 16).to(device), torch.randn(8, 16).to(device)
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses, compiles = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if schedule:
            scheduler.step()
        losses.append(loss.detach())
        compiles.append(lazy_core.report().counters["compiles"] + lazy_core.report().counters["disk_hits"])
    return [v.cpu() for v in losses], [v.detach().cpu() for v in model.state_dict().values()], compiles


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_the_cpu_and_compiles_nothing_after_the_second_step(name: str) -> None:
    steps = 6
    lazy, cpu = train("lazy", OPTIMIZERS[name], steps, schedule=True), train("cpu", OPTIMIZERS[name], steps, schedule=True)
    torch.testing.assert_close(lazy[0], cpu[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lazy[1], cpu[1], rtol=1e-4, atol=1e-5)
    # Step n is cut when step n + 1 records its first operation.
    assert lazy[2][3] == lazy[2][-1], f"programs by step: {lazy[2]}"
    assert lazy_core.report().counters["fallbacks"] == 0


def test_an_unmarked_loop_is_cut_at_every_optimizer_step() -> None:
    train("lazy", OPTIMIZERS["sgd_momentum"], 5)
    assert lazy_core.report().counters["barriers"] >= 4


def test_an_endless_loop_without_reads_does_not_grow_the_trace() -> None:
    x, y = torch.ones(4, device="lazy"), torch.ones(4, device="lazy")
    for _ in range(4000):
        x = (x * y).clamp(0, 2)
    counters = lazy_core.report().counters
    assert counters["barriers"] >= 2
    assert counters["compiles"] + counters["disk_hits"] <= 3
    assert x.tolist() == [1, 1, 1, 1]


def test_a_learning_rate_schedule_does_not_recompile() -> None:
    p = nn.Parameter(torch.ones(3, device="lazy"))
    optimizer = torch.optim.SGD([p], 1.0)
    seen = []
    for step in range(8):
        optimizer.param_groups[0]["lr"] = 1.0 / (step + 1)
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
        lazy_core.barrier()
        counters = lazy_core.report().counters
        seen.append(counters["compiles"] + counters["disk_hits"])
    assert seen[-1] == seen[1] <= 2


def test_a_schedule_that_a_chain_of_operations_takes_compiles_at_most_twice() -> None:
    """Feeding one number does not make a new site of every operation after it, whatever values were seen before."""
    x = torch.ones(8, device="lazy")
    lazy_core.barrier()
    for _ in range(2):
        lazy_core.reset_report()
        y = x * 1
        for step in range(12):
            for _ in range(6):
                y = torch.sin(y).mul(1 - 0.1 / (step + 1))
            lazy_core.barrier()
        assert lazy_core.report().counters["compiles"] <= 3


def test_conv_batchnorm_pool_cross_entropy() -> None:
    def go(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        m = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 5),
        ).to(d)
        x = torch.randn(2, 3, 8, 8).to(d).requires_grad_()
        loss = F.cross_entropy(m(x), torch.tensor([1, 2]).to(d))
        loss.backward()
        return [v.detach().cpu() for v in (loss, x.grad, *[p.grad for p in m.parameters()], *m.buffers())]

    torch.testing.assert_close(go("lazy"), go("cpu"), rtol=1e-4, atol=1e-5)
    assert lazy_core.report().counters["fallbacks"] == 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: Any) -> None:
    def go(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        m = kind(4, 5, 2).to(d)
        x = torch.randn(3, 2, 4).to(d).requires_grad_()
        out = m(x)[0]
        out.square().sum().backward()
        return [v.detach().cpu() for v in (out, x.grad, *[p.grad for p in m.parameters()])]

    torch.testing.assert_close(go("lazy"), go("cpu"), rtol=1e-4, atol=1e-5)


def test_attention_block_trains() -> None:
    def go(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        m = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(d)
        x = torch.randn(2, 5, 16).to(d)
        out = m(x)
        out.square().mean().backward()
        return [v.detach().cpu() for v in (out, *[p.grad for p in m.parameters()])]

    torch.testing.assert_close(go("lazy"), go("cpu"), rtol=1e-4, atol=1e-5)


def test_autograd_features() -> None:
    x = torch.randn(3, device="lazy", requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 6 * x.detach().cpu())

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x.grad = None
    x.register_hook(lambda grad: grad * 2)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_checkpointing_with_dropout_replays_the_same_mask_on_every_tier() -> None:
    from torch.utils.checkpoint import checkpoint

    masks = []
    for tier in ("compiled", "native"):
        with lazy_core.options(tier=tier):
            torch.manual_seed(0)
            m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to("lazy")
            for reentrant in (False, True):
                x = torch.ones(2, 4, device="lazy", requires_grad=True)
                y = checkpoint(m, x, use_reentrant=reentrant)
                after = torch.lazy.get_rng_state()
                y.sum().backward()
                assert torch.equal(torch.lazy.get_rng_state().cpu(), after.cpu()), "the replay leaves the stream where it was"
                # where the mask dropped an output no gradient may flow
                masks.append((y.detach() != 0).float().cpu())
                torch.testing.assert_close(x.grad.cpu(), 2 * masks[-1] @ m[0].weight.detach().cpu(), rtol=1e-4, atol=1e-5)
    assert torch.equal(masks[0], masks[2]) and torch.equal(masks[1], masks[3]) and not torch.equal(masks[0], masks[1])


def test_module_to_keeps_parameters_tied_and_optimizers_valid() -> None:
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    model = nn.Sequential(a, b)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = a.weight
    model.to("lazy")
    assert a.weight is before and b.weight is a.weight and a.weight.device.type == "lazy"
    old = a.weight.detach().clone()
    model(torch.ones(2, 3, device="lazy")).sum().backward()
    optimizer.step()
    assert not torch.equal(a.weight.cpu(), old.cpu())
    model.to("cpu")
    assert a.weight is before and b.weight is a.weight and a.weight.device.type == "cpu"


def test_threads_record_and_train_at_the_same_time() -> None:
    results: dict[int, list[torch.Tensor]] = {}

    def work(k: int) -> None:
        generator = torch.Generator().manual_seed(k)
        w = torch.randn(4, 4, generator=generator).to("lazy").requires_grad_()
        for _ in range(5):
            loss = (w @ w).tanh().sum()
            (g,) = torch.autograd.grad(loss, w)
            w = (w - 0.1 * g).detach().requires_grad_()
            if k % 2:
                loss.item()
        results[k] = [w.detach().cpu()]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
        assert not t.is_alive(), "deadlock"
    for k in range(4):
        w = torch.randn(4, 4, generator=torch.Generator().manual_seed(k)).requires_grad_()
        for _ in range(5):
            (g,) = torch.autograd.grad((w @ w).tanh().sum(), w)
            w = (w - 0.1 * g).detach().requires_grad_()
        torch.testing.assert_close(results[k][0], w.detach(), rtol=1e-4, atol=1e-5)
