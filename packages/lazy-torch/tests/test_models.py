"""Real models with small random configurations: forward, loss, backward, optimizer steps and generation equal the CPU's.

Models of transformers are its own code, unchanged. Dropout is off, since random streams of devices differ. Tolerances: logits and gradients
are sums of some dozens of products in another order through a few layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lazy_core

transformers = pytest.importorskip("transformers")

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


def tokens(batch: int, length: int, low: int = 3) -> Tensor:
    return torch.randint(low, 90, (batch, length))


# ------------------------------------------------------------------ language


def _bert() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    return transformers.BertForSequenceClassification(config), {
        "input_ids": tokens(2, 7),
        "attention_mask": mask,
        "labels": torch.tensor([0, 2]),
    }


def _gpt2() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.GPT2Config(
        vocab_size=100,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    ids = tokens(2, 7)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def _llama() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    ids = tokens(2, 7)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def _mixtral() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.MixtralConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=48,
        num_local_experts=4,
        num_experts_per_tok=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    ids = tokens(2, 6)
    return transformers.MixtralForCausalLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def _t5() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0, dropout_rate=0.0
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": tokens(2, 7), "labels": tokens(2, 4)}


# ------------------------------------------------------------------ vision, sound


def _vit() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    return transformers.ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 2])}


def _whisper() -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.WhisperConfig(
        vocab_size=100,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=20,
        max_target_positions=16,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config), {"input_features": torch.randn(2, 16, 40), "labels": tokens(2, 5)}


def _clip() -> tuple[nn.Module, dict[str, Tensor]]:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**size, "vocab_size": 100, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "projection_dim": 24},
        vision_config={**size, "image_size": 32, "patch_size": 8, "projection_dim": 24},
        projection_dim=24,
    )
    ids = tokens(2, 7)
    return transformers.CLIPModel(config), {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(2, 3, 32, 32),
    }


def _clip_loss(output: Any) -> Tensor:
    logits = output.logits_per_text
    target = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


HUGGING_FACE = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "mixtral": _mixtral,
    "t5": _t5,
    "vit": _vit,
    "whisper": _whisper,
    "clip": _clip,
}
GENERATING = {"gpt2", "llama", "mixtral", "t5"}


@pytest.mark.filterwarnings("ignore")  # transformers announces what it deprecates
@pytest.mark.parametrize("name", HUGGING_FACE)
def test_a_model_of_transformers_trains_and_generates_as_on_the_cpu(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = HUGGING_FACE[name]()
    model.train()
    twin = check(model, inputs, _clip_loss if name == "clip" else lambda output: output.loss)
    if name in GENERATING:
        model.eval()
        twin.eval()
        ask = {"input_ids": inputs["input_ids"][:, :4], "attention_mask": torch.ones(2, 4, dtype=torch.long)}
        expected = model.generate(**ask, max_new_tokens=3, do_sample=False)
        found = twin.generate(**{k: v.to("lazy") for k, v in ask.items()}, max_new_tokens=3, do_sample=False)
        assert torch.equal(found.cpu(), expected)


# ------------------------------------------------------------------ written plainly


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
