"""The workloads in torch, for the CPU and for the lazy device alike: the device's name is all that differs.

Every `workloads_*` module offers `start`, `prepare`, `Training`, `inference`, `chain` and `read`; this one also `generation`.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which the first optimizer of a process imports, for over a second
from torch import nn
from torch.nn import functional

from . import measure, models
from .models import CNN_CHANNELS, LSTM_HIDDEN, LSTM_INPUT, MLP_SIZES, TINY_SIZES, Batch, Model
from .peers import Peer

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def start(peer: Peer) -> None:
    """Make the peer's device ready to be named."""
    if peer.lazy:
        import lazy_torch  # noqa: F401  (builds the extension if a plain `import torch` did not find it)
    if peer.compiled:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-")
        torch._dynamo.config.recompile_limit = 256


class Mlp(nn.Module):
    """Three dense layers with ReLU between."""

    def __init__(self, sizes: tuple[int, ...] = MLP_SIZES) -> None:
        super().__init__()
        self.fc0, self.fc1, self.fc2 = (nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[n,sizes[0]] -> f32[n,sizes[3]]."""
        return self.fc2(torch.relu(self.fc1(torch.relu(self.fc0(x)))))


class Cnn(nn.Module):
    """Three convolutions with batch norm and ReLU, the first two followed by pooling; then the mean of each channel and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        for k, (inputs, outputs) in enumerate(CNN_CHANNELS):
            self.add_module(f"conv{k}", nn.Conv2d(inputs, outputs, 3, padding=1))
            self.add_module(f"bn{k}", nn.BatchNorm2d(outputs))
        self.fc = nn.Linear(CNN_CHANNELS[-1][1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[n,3,32,32] -> f32[n,10]."""
        x = functional.max_pool2d(torch.relu(self.bn0(self.conv0(x))), 2)
        x = functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Lstm(nn.Module):
    """An LSTM cell stepped by a Python loop; a dense layer on the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(LSTM_INPUT, LSTM_HIDDEN)
        self.fc = nn.Linear(LSTM_HIDDEN, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[t,n,64] -> f32[n,10]."""
        state = (x.new_zeros(x.shape[1], LSTM_HIDDEN), x.new_zeros(x.shape[1], LSTM_HIDDEN))
        for element in x:
            state = self.cell(element, state)
        return self.fc(state[0])


class Bert(nn.Module):
    """The classifier of the transformers library, small and without dropout."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        whole = BertForSequenceClassification(
            BertConfig(
                vocab_size=models.BERT_VOCABULARY,
                hidden_size=models.BERT_WIDTH,
                num_hidden_layers=models.BERT_LAYERS,
                num_attention_heads=models.BERT_HEADS,
                intermediate_size=models.BERT_INNER,
                max_position_embeddings=models.BERT_LENGTH,
                num_labels=models.BERT_CLASSES,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        self.bert, self.classifier = whole.bert, whole.classifier

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """s64[n,t] -> f32[n,2]."""
        return self.classifier(self.bert(input_ids=tokens).pooler_output)


NETWORKS: dict[str, Callable[[], nn.Module]] = {"tiny": lambda: Mlp(TINY_SIZES), "mlp": Mlp, "cnn": Cnn, "lstm": Lstm, "bert": Bert}


def prepare(model: Model) -> nn.Module:
    """The model on the host with its parameters."""
    network, values = NETWORKS[model.name](), model.parameters()
    named = dict(network.named_parameters())
    if [(name, tuple(value.shape)) for name, value in named.items()] != list(model.shapes):
        raise ValueError(f"the parameters of {model.name} are not those of the torch module")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(torch.from_numpy(values[name]))
    return network


class Training:
    """A model in training: `step(place(batch))` is a training step and gives the loss, on the device."""

    def __init__(self, model: Model, prepared: nn.Module, peer: Peer) -> None:
        self.device = "lazy" if peer.lazy else "cpu"
        network = prepared.to(self.device).train()
        self.optimizer = OPTIMIZERS[model.optimizer](network.parameters(), **model.hyperparameters)
        self._loss: Callable[..., torch.Tensor] = lambda x, y: functional.cross_entropy(network(x), y)
        self._update: Callable[[], Any] = self.optimizer.step
        if peer.compiled:
            self._loss, self._update = torch.compile(self._loss), torch.compile(self._update)

    def place(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch on the device."""
        x, y = batch
        return torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Forward, backward and update."""
        self.optimizer.zero_grad()
        loss = self._loss(*batch)
        loss.backward()
        self._update()
        return loss.detach()


def read(value: torch.Tensor) -> np.ndarray:
    """The value on the host, computed."""
    return value.detach().cpu().numpy()


def inference(model: Model, peer: Peer) -> Callable[[np.ndarray], np.ndarray]:
    """A function from a host array to the model's answer on the host."""
    device = "lazy" if peer.lazy else "cpu"
    network = prepare(model).to(device).eval()
    forward = torch.compile(network) if peer.compiled else network

    def answer(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return read(forward(torch.from_numpy(x).to(device)))

    return answer


def chain(operations: int, backward: bool, peer: Peer) -> Callable[[], np.ndarray]:
    """A function that runs `operations` operations (add, mul, relu, matmul in turn) on f32[2,2] and reads the result, or a gradient."""
    device = "lazy" if peer.lazy else "cpu"
    x = torch.tensor([[0.1, 0.2], [0.3, 0.4]], device=device)
    a = torch.tensor([[0.1, 0.1], [0.1, 0.1]], device=device)
    b = torch.tensor([[0.5, 0.5], [0.5, 0.5]], device=device, requires_grad=backward)
    c = torch.tensor([[0.6, 0.4], [0.4, 0.6]], device=device, requires_grad=backward)

    def forward() -> torch.Tensor:
        y = x
        for _ in range(operations // 4):
            y = torch.relu((y + a) * b) @ c
        return y

    run = torch.compile(forward) if peer.compiled else forward

    def both() -> np.ndarray:
        b.grad = c.grad = None
        run().sum().backward()
        assert b.grad is not None
        return read(b.grad)

    return both if backward else lambda: read(run())


def generation(cache: str, tokens: int, peer: Peer) -> Callable[[], tuple[list[int], list[float]]]:
    """A function that lets a small GPT-2 with random weights write `tokens` tokens, greedily.

    Args:
        cache: "growing" for the library's default, "static" for its preallocated one.
        tokens: how many to write.
        peer: who runs it.

    Returns:
        A function that gives the tokens and the seconds at which each was chosen, counted from the call.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

    device = "lazy" if peer.lazy else "cpu"
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=1000, n_positions=128, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=None, pad_token_id=0
    )
    model = GPT2LMHeadModel(config).to(device).eval()
    if peer.compiled:
        model.forward = torch.compile(model.forward)
    prompt = torch.arange(1, 9)[None].to(device)
    mask = torch.ones_like(prompt)
    extra = {"cache_implementation": "static"} if cache == "static" else {}

    class Clock(LogitsProcessor):
        """Notes when the model is asked for each token; changes nothing."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def __call__(self, _tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.times.append(measure.now())
            return scores

    def write() -> tuple[list[int], list[float]]:
        clock, begin = Clock(), measure.now()
        with torch.no_grad():
            written = model.generate(
                prompt, attention_mask=mask, max_new_tokens=tokens, do_sample=False, logits_processor=LogitsProcessorList([clock]), **extra
            )
        found = written[0, prompt.shape[1] :].tolist()
        return found, [t - begin for t in (*clock.times[1:], measure.now())]

    return write
