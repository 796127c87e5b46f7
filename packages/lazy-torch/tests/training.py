"""Training a model on both devices and comparing losses, all weights and buffers; shared by tests of models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lazy_core

STEPS = 2
LOSS = {"rtol": 1e-4, "atol": 1e-5}
WEIGHTS = {"rtol": 2e-3, "atol": 1e-4}
# SGD: an adaptive optimizer would scale the rounding noise of gradients that are zero in truth to full steps.
OPTIMIZER = {"lr": 0.1}


def fallbacks() -> set[str]:
    """The names of the operations that ran on the CPU since the report was last reset."""
    return {e.cause.split("aten::")[-1].split(":")[0] for e in lazy_core.report().events if e.kind == "fallback"}


def train(model: nn.Module, inputs: dict[str, Tensor], loss_of: Callable[[Any], Tensor]) -> list[float]:
    """Losses of some optimizer steps."""
    optimizer = torch.optim.SGD(model.parameters(), **OPTIMIZER)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(x) for x in losses]


def check(model: nn.Module, inputs: dict[str, Tensor], loss_of: Callable[[Any], Tensor]) -> nn.Module:
    """Train on both devices; losses and all weights agree, nothing falls back. Returns the lazy model."""
    twin = copy.deepcopy(model).to("lazy")
    moved = {k: v.to("lazy") for k, v in inputs.items()}
    lazy_core.reset_report()
    assert train(twin, moved, loss_of) == pytest.approx(train(model, inputs, loss_of), rel=LOSS["rtol"], abs=LOSS["atol"])
    state = model.state_dict()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(value.cpu(), state[name], **WEIGHTS, msg=lambda m, n=name: f"{n}: {m}")
    assert not fallbacks()
    return twin
