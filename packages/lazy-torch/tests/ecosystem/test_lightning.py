"""The Trainer of PyTorch Lightning on the lazy device, through an Accelerator as its own documentation has users write them."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lazy_core

if find_spec("pytorch_lightning") is None:
    pytest.skip("`nox -s ecosystem` installs pytorch-lightning", allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pytorch_lightning as lightning
    from pytorch_lightning.accelerators import Accelerator
    from pytorch_lightning.strategies import SingleDeviceStrategy

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning announces what it deprecates, and recommends more workers


class Lazy(Accelerator):
    """One device, nothing to set up."""

    def setup_device(self, device: torch.device) -> None:
        pass

    def teardown(self) -> None:
        pass

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [torch.device("lazy")]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "lazy"


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.losses: list[Tensor] = []
        self.devices: set[str] = set()

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        self.losses.append(loss.detach())
        self.devices.add(loss.device.type)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("validation", nn.functional.mse_loss(self.net(x), y))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def _fit(**how: Any) -> tuple[Regression, list[float]]:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    module = Regression()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(devices=1, max_epochs=3, gradient_clip_val=1.0, **quiet, **how)
    trainer.fit(module, DataLoader(data, 8), DataLoader(data, 32))
    return module, [*map(float, module.losses), float(trainer.callback_metrics["validation"])]


def test_fitting_follows_the_cpu_and_logging_recompiles_nothing() -> None:
    _, expected = _fit(accelerator="cpu")
    module, found = _fit(strategy=SingleDeviceStrategy(torch.device("lazy"), accelerator=Lazy()))
    assert module.devices == {"lazy"}
    assert found == pytest.approx(expected, rel=1e-3)
    counters = lazy_core.report().counters
    assert counters["fallbacks"] == 0
    # What ends differently is compiled once: the first steps, steps after a validation, sums at the end of an epoch.
    assert counters["compiles"] <= 12
