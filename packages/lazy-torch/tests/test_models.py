"""Models written in plain torch: forward, loss, backward and optimizer steps equal the CPU's.

Tolerances: gradients are sums of some dozens of products in another order through a few layers. `training.py` compares the two devices;
models of other libraries are trained in `ecosystem/`.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

check = runpy.run_path(str(Path(__file__).with_name("training.py")))["check"]


class Block(nn.Module):
    """Two convolutions and what they are added to."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(ins, outs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outs, outs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and ins == outs
            else nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class UNet(nn.Module):
    """One way down and up, with what was on the way down beside what comes up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        beside = self.down(x)
        deep = self.deep(F.avg_pool2d(beside, 2))
        deep = deep + F.interpolate(F.max_pool2d(deep, 2), scale_factor=2, mode="bilinear")
        return self.last(torch.cat([self.up(deep), beside], 1))


class Recurrent(nn.Module):
    """A classifier of sequences."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.body = kind(8, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(x))[0].mean(1))


def _images() -> dict[str, Tensor]:
    return {"x": torch.randn(4, 3, 16, 16)}


def _classes(output: Tensor) -> Tensor:
    return F.cross_entropy(output, torch.tensor([0, 1, 2, 1], device=output.device))


PLAIN: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]], Callable[[Tensor], Tensor]]] = {
    "resnet": (ResNet, _images, _classes),
    "unet": (UNet, lambda: {"x": torch.randn(2, 1, 16, 16)}, lambda y: y.square().mean()),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: {"x": torch.randint(0, 20, (4, 6))}, _classes),
    "gru": (lambda: Recurrent(nn.GRU), lambda: {"x": torch.randint(0, 20, (4, 6))}, _classes),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_model_trains_as_on_the_cpu(name: str) -> None:
    torch.manual_seed(0)
    make, inputs, loss_of = PLAIN[name]
    check(make(), inputs(), loss_of)


def test_channels_last_images_train_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    model = ResNet().to(memory_format=torch.channels_last)
    check(model, {"x": torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)}, _classes)
