"""The Trainer of transformers on the lazy device: a few steps with evaluation, clipping, a schedule and a checkpoint to go on from.

Accelerate, which chooses the device for it, takes one that it does not know from the variable ACCELERATE_TORCH_DEVICE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lazy_core

transformers = pytest.importorskip("transformers", reason="`nox -s ecosystem` installs it")
accelerate_state = pytest.importorskip("accelerate.state", reason="`nox -s ecosystem` installs it")

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers and accelerate announce what they deprecate


class Sentences(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Random token numbers; the label is what the first of them says."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        ids = torch.randint(3, 60, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[0] % 3}


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the libraries choose a device, as they do once a process."""

    def choose(device: str) -> None:
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", device)
        accelerate_state.AcceleratorState._reset_state(reset_partial_state=True)

    yield choose
    accelerate_state.AcceleratorState._reset_state(reset_partial_state=True)


def _trainer(folder: Path, device: str, **how: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=device == "cpu",
        **how,
    )
    model = transformers.BertForSequenceClassification(config)
    return transformers.Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())


def _history(trainer: Any) -> list[float]:
    wanted = ("loss", "eval_loss", "grad_norm")
    return [float(entry[name]) for entry in trainer.state.log_history for name in wanted if name in entry]


def test_a_few_steps_follow_the_cpu_and_a_checkpoint_goes_on(on: Any, tmp_path: Path) -> None:
    on("cpu")
    expected = _trainer(tmp_path / "cpu", "cpu", max_steps=4)
    expected.train()
    on("lazy")
    trainer = _trainer(tmp_path / "lazy", "lazy", max_steps=4)
    with lazy_core.options(tier="auto"):
        trainer.train()
    assert {p.device.type for p in trainer.model.parameters()} == {"lazy"}
    assert _history(trainer) == pytest.approx(_history(expected), rel=1e-3, abs=1e-4)
    assert lazy_core.report().counters["fallbacks"] == 0
    again = _trainer(tmp_path / "lazy", "lazy", max_steps=4)
    with lazy_core.options(tier="auto"):
        again.train(resume_from_checkpoint=str(tmp_path / "lazy" / "checkpoint-2"))
    for (name, x), y in zip(again.model.state_dict().items(), trainer.model.state_dict().values(), strict=True):
        torch.testing.assert_close(x.cpu(), y.cpu(), rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
