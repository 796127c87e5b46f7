"""Random numbers: reproducible, never merged, never constant, and without recompilation."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import lazy_core


def draw() -> list[torch.Tensor]:
    return [
        torch.rand(5, device="lazy"),
        torch.randn(5, device="lazy"),
        torch.randint(0, 10, (5,), device="lazy"),
        torch.randperm(5, device="lazy"),
        torch.empty(5, device="lazy").uniform_(2, 3),
        torch.bernoulli(torch.full((5,), 0.5, device="lazy")),
        F.dropout(torch.ones(5, device="lazy"), 0.5),
    ]


def test_a_seed_reproduces_every_kind_of_draw() -> None:
    torch.manual_seed(7)
    first = [t.cpu() for t in draw()]
    torch.manual_seed(7)
    second = [t.cpu() for t in draw()]
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert sorted(first[3].tolist()) == list(range(5))
    assert (first[4] >= 2).all() and (first[4] < 3).all()


def test_two_equal_draws_differ() -> None:
    a, b = torch.rand(100, device="lazy"), torch.rand(100, device="lazy")
    assert not torch.equal(a.cpu(), b.cpu())


def test_barriers_do_not_change_what_is_drawn() -> None:
    torch.manual_seed(1)
    a, b = torch.rand(4, device="lazy"), torch.rand(4, device="lazy")
    together = torch.cat([a, b]).cpu()
    torch.manual_seed(1)
    a = torch.rand(4, device="lazy")
    lazy_core.barrier()
    b = torch.rand(4, device="lazy")
    lazy_core.barrier()
    assert torch.equal(torch.cat([a, b]).cpu(), together)


def test_dropout_draws_a_new_mask_each_step_and_compiles_once() -> None:
    x = torch.ones(64, device="lazy")
    masks, compiles = [], []
    for _ in range(5):
        masks.append(F.dropout(x, 0.5).cpu())
        counters = lazy_core.report().counters
        compiles.append(counters["compiles"] + counters["disk_hits"])
    assert all(not torch.equal(masks[0], m) for m in masks[1:])
    assert compiles[-1] == compiles[1]


def test_generators_are_independent_and_restorable() -> None:
    g = torch.Generator(device="lazy").manual_seed(3)
    assert g.device.type == "lazy" and g.initial_seed() == 3
    a = torch.randn(3, device="lazy", generator=g)
    state = g.get_state()
    b = torch.randn(3, device="lazy", generator=g)
    g.set_state(state)
    assert torch.equal(torch.randn(3, device="lazy", generator=g).cpu(), b.cpu())
    g.manual_seed(3)
    assert torch.equal(torch.randn(3, device="lazy", generator=g).cpu(), a.cpu())
    torch.manual_seed(0)
    torch.rand(2, device="lazy")
    g2 = torch.Generator(device="lazy").manual_seed(3)
    assert torch.equal(torch.randn(3, device="lazy", generator=g2).cpu(), a.cpu())


def test_device_state_is_saved_and_restored_without_a_host_read() -> None:
    torch.manual_seed(5)
    torch.rand(3, device="lazy")
    state = torch.lazy.get_rng_state()
    a = torch.rand(3, device="lazy")
    torch.lazy.set_rng_state(state)
    b = torch.rand(3, device="lazy")
    assert lazy_core.report().counters["barriers"] == 0
    assert torch.equal(a.cpu(), b.cpu())
    torch.lazy.set_rng_state(state.cpu())
    assert torch.equal(torch.rand(3, device="lazy").cpu(), b.cpu())


def test_fork_rng_restores_the_state() -> None:
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type="lazy"):
        torch.manual_seed(5)
        torch.rand(3, device="lazy")
    inside = torch.rand(3, device="lazy").cpu()
    torch.manual_seed(2)
    assert torch.equal(torch.rand(3, device="lazy").cpu(), inside)


def test_normal_draws_have_the_right_moments() -> None:
    torch.manual_seed(0)
    x = torch.randn(20000, device="lazy").cpu()
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03
