"""torch.optim on the lazy device: every optimizer in every variant, schedules, clipping, averaging."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils

import lazy_core

Make = Callable[..., torch.optim.Optimizer]

OPTIMIZERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "asgd": (torch.optim.ASGD, {"lr": 0.01}),
    "adafactor": (torch.optim.Adafactor, {"lr": 0.01}),
    "muon": (torch.optim.Muon, {"lr": 0.01}),
}
FUSED = {"sgd", "adam", "adamw", "adagrad"}
CAPTURABLE = {"adam", "adamw", "adamax", "nadam", "radam", "adadelta", "rmsprop", "rprop", "asgd"}
UNLISTED = {"muon"}  # has no foreach

# It wants gradients that are sparse tensors, which do not exist on the device; LBFGS takes a closure and has a test of its own.
ELSEWHERE = {"sparseadam", "lbfgs"}

VARIANTS = [
    *[(name, {}) for name in OPTIMIZERS],
    *[(name, {"foreach": flag}) for name in OPTIMIZERS if name not in UNLISTED for flag in (False, True)],
    *[(name, {"fused": True}) for name in sorted(FUSED)],
    *[(name, {"capturable": True}) for name in sorted(CAPTURABLE)],
]


class Model(nn.Module):
    """Matrices only: Muon takes nothing else, and a bias whose gradient is rounding noise would be scaled to full steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8, bias=False), nn.Linear(8, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def _setup(d: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    # Double precision: adaptive optimizers divide by what is small at first.
    return Model().double().to(d), torch.randn(8, 6).double().to(d), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]).to(d)


def _train(d: str, make: Make, options: dict[str, Any], steps: int = 5) -> tuple[list[float], dict[str, Tensor], dict[str, Any]]:
    model, x, y = _setup(d)
    optimizer = make(model.parameters(), **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(v) for v in losses], model.state_dict(), optimizer.state_dict()


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=[f"{n}{''.join(f'-{k}={v}' for k, v in o.items())}" for n, o in VARIANTS])
def test_an_optimizer_does_what_it_does_on_the_cpu(name: str, variant: dict[str, Any]) -> None:
    make, options = OPTIMIZERS[name]
    lazy_core.reset_report()
    losses, weights, state = _train("lazy", make, {**options, **variant})
    assert lazy_core.report().counters["fallbacks"] == 0
    on_cpu = {k: v for k, v in variant.items() if k != "capturable"}
    expected_losses, expected, expected_state = _train("cpu", make, {**options, **on_cpu})
    if name == "muon":  # it orthogonalises in bfloat16, of which sums in another order change the last places
        tolerance = {"rtol": 2e-2, "atol": 1e-2}
    elif "capturable" in variant:  # the number of steps is a tensor then, of single precision
        tolerance = {"rtol": 1e-4, "atol": 1e-6}
    else:
        tolerance = {"rtol": 1e-6, "atol": 1e-9}
    assert losses == pytest.approx(expected_losses, rel=tolerance["rtol"])
    for key, value in expected.items():
        torch.testing.assert_close(weights[key].cpu(), value, **tolerance)
    assert state["state"].keys() == expected_state["state"].keys()


def _classes(module: Any, base: type) -> set[str]:
    return {n.lower() for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, base) and c is not base and n[0] != "_"}


def test_no_optimizer_is_left_out() -> None:
    assert _classes(torch.optim, torch.optim.Optimizer) == OPTIMIZERS.keys() | ELSEWHERE
    with pytest.raises(NotImplementedError, match="sparse"):
        F.embedding(torch.tensor([1], device="lazy"), nn.Parameter(torch.ones(3, 2, device="lazy")), sparse=True).sum().backward()


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_new_learning_rate_every_step_compiles_nothing_in_the_long_run(name: str) -> None:
    make, options = OPTIMIZERS[name]
    model, x, y = _setup("lazy")
    optimizer = make(model.parameters(), **options)
    rates = lr_scheduler.LambdaLR(optimizer, lambda step: 0.97**step)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        rates.step()

    for _ in range(8):  # RAdam rectifies from its sixth step on
        step()
    lazy_core.barrier()
    lazy_core.reset_report()
    for _ in range(5):
        step()
    lazy_core.barrier()
    assert lazy_core.report().counters["compiles"] == 0


def test_lbfgs_with_line_search() -> None:
    def go(d: str) -> list[Tensor]:
        model, x, y = _setup(d)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return [optimizer.step(closure).detach().cpu(), *[p.detach().cpu() for p in model.parameters()]]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.PolynomialLR(o, 4)], [2]
    ),
    "several steps": lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.3),
    "factors": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 1 - 0.1 * step),
    "any function": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.8)]),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # SequentialLR's own call of its parts
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    def go(d: str) -> tuple[list[float], list[Tensor]]:
        model, x, y = _setup(d)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        schedule = SCHEDULES[name](optimizer)
        rates = []
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates, [p.detach().cpu() for p in model.parameters()]

    (rates, weights), (expected_rates, expected) = go("lazy"), go("cpu")
    assert rates == expected_rates
    for a, b in zip(weights, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_no_schedule_is_left_out() -> None:
    made = inspect.getsource(sys.modules[__name__]).lower()
    assert not [name for name in _classes(lr_scheduler, lr_scheduler.LRScheduler) - {"lrscheduler"} if f"lr_scheduler.{name}(" not in made]


def test_a_schedule_that_looks_at_the_loss() -> None:
    def go(d: str) -> list[float]:
        model, x, y = _setup(d)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.02)
        rates = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step(loss.detach())
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    rates = go("cpu")
    assert go("lazy") == rates and len(set(rates)) > 1


def test_a_learning_rate_that_is_a_tensor() -> None:
    def go(d: str) -> list[Tensor]:
        model, x, y = _setup(d)
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01).to(d), capturable=d == "lazy", foreach=d == "lazy")
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"].mul_(0.9)
        return [p.detach().cpu() for p in model.parameters()]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)  # the rate and the number of steps are tensors of single precision


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_of_norms_and_values(foreach: bool) -> None:
    def go(d: str) -> list[Tensor]:
        model, x, y = _setup(d)
        F.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05, foreach=foreach)
        largest = nn.utils.clip_grad_norm_(model.parameters(), 0.02, norm_type=float("inf"), foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
        total = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        return [norm, largest, total, *[p.grad for p in model.parameters()]]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-7, atol=1e-9)


def test_a_norm_that_is_not_finite_is_an_error_on_demand() -> None:
    p = nn.Parameter(torch.ones(2, device="lazy"))
    p.grad = torch.tensor([float("inf"), 1.0], device="lazy")
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averaged_weights(kind: str) -> None:
    def go(d: str) -> list[Tensor]:
        model, x, y = _setup(d)
        model.register_buffer("scale", torch.ones(3, dtype=torch.float64, device=d))
        chosen = {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)} if kind == "ema" else {}
        average = swa_utils.AveragedModel(model, use_buffers=True, **chosen)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        schedule = swa_utils.SWALR(optimizer, 0.01)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
        return [v.cpu() for v in average.state_dict().values()]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_groups_frozen_weights_and_added_groups() -> None:
    def go(d: str) -> list[Tensor]:
        model, x, y = _setup(d)
        model.first.weight.requires_grad_(False)
        optimizer = torch.optim.AdamW([{"params": [model.second.weight], "lr": 0.02, "weight_decay": 0.1}], lr=0.01)
        for step in range(4):
            if step == 2:
                model.first.weight.requires_grad_(True)
                optimizer.add_param_group({"params": [model.first.weight]})
            optimizer.zero_grad(set_to_none=bool(step % 2))
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    for a, b in zip(go("lazy"), go("cpu"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_state_moves_between_devices() -> None:
    model, x, y = _setup("lazy")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    twin, x_cpu, y_cpu = _setup("cpu")
    other = torch.optim.Adam(twin.parameters(), 0.01)

    def step(m: nn.Module, o: torch.optim.Optimizer, a: Tensor, b: Tensor) -> None:
        o.zero_grad()
        F.cross_entropy(m(a), b).backward()
        o.step()

    step(model, optimizer, x, y)
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert all(v.device.type == "cpu" for s in other.state.values() for v in s.values())
    step(model, optimizer, x, y)
    step(twin, other, x_cpu, y_cpu)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-7, atol=1e-9)
