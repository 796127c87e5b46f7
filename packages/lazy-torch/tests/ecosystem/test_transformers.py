"""Models of transformers with small random configurations train and generate as on the CPU.

They are the library's own code, unchanged. Dropout is off, since random streams of devices differ. Tolerances: logits and gradients
are sums of some dozens of products in another order through a few layers.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

transformers = pytest.importorskip("transformers", reason="`nox -s ecosystem` installs it")
check = runpy.run_path(str(Path(__file__).parents[1] / "training.py"))["check"]


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
GENERATING = {"gpt2", "llama", "mixtral", "t5", "whisper"}


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
        if name == "whisper":
            ask = {"input_features": inputs["input_features"]}
        else:
            ask = {"input_ids": inputs["input_ids"][:, :4], "attention_mask": torch.ones(2, 4, dtype=torch.long)}
        how = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
        expected = model.generate(**ask, **how)
        found = twin.generate(**{k: v.to("lazy") for k, v in ask.items()}, **how)
        assert torch.equal(found.sequences.cpu(), expected.sequences)
        for x, y in zip(found.logits, expected.logits, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=2e-3, atol=1e-4)  # as the weights after training
