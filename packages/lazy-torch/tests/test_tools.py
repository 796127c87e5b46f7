"""torch's own tools around a program: torch.compile, the profiler and its ranges."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lazy_core


@pytest.mark.filterwarnings("ignore")  # torch's compiler announces what it deprecates
def test_torch_compile_runs_through_on_lazy_tensors() -> None:
    """A compiled module and a compiled function, forward and backward, and again with another shape."""

    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(device)
        compiled = torch.compile(model) if device == "lazy" else model
        scale = (lambda x: x * 2 + x.shape[0]) if device == "cpu" else torch.compile(lambda x: x * 2 + x.shape[0])
        found = []
        for rows in (3, 3, 5):
            model.zero_grad()
            x = torch.randn(rows, 4).to(device)
            loss = scale(compiled(x)).square().mean()
            loss.backward()
            found += [loss.detach(), *[p.grad.clone() for p in model.parameters()]]
        return [x.cpu() for x in found]

    for x, y in zip(run("lazy"), run("cpu"), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    assert lazy_core.report().counters["fallbacks"] == 0


@pytest.mark.parametrize("tier", ["compiled", "native"])
def test_ranges_that_a_program_names_are_in_the_report(tier: str) -> None:
    """In order, nested and by decorator; what torch names itself at every step of an optimizer is left out."""

    @torch.profiler.record_function("decorated")
    def part(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    with lazy_core.options(tier=tier):
        weight = torch.ones(3, device="lazy", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
            part(weight).sum().backward()
        optimizer.step()
        weight.sum().item()
    ranges = [event for event in lazy_core.report().events if event.kind == "range"]
    assert [event.cause for event in ranges] == ["decorated", "inner", "outer"]
    assert all(0 < event.seconds < 60 for event in ranges)
    assert "decorated, " in lazy_core.report().to_html()
    lazy_core.reset_report()
    assert not [event for event in lazy_core.report().events if event.kind == "range"]


def test_the_profiler_sees_operations_of_the_device() -> None:
    x = torch.ones(3, device="lazy")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, torch.profiler.record_function("mine"):
        (x + x).exp().sum().item()
    names = {event.key for event in profile.key_averages()}
    assert {"aten::add", "aten::exp", "aten::item", "mine"} <= names
