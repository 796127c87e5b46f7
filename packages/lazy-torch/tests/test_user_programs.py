"""Programs as users write them (`user_programs.py` judges them): values, training, layers, indexing and autograd."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

tools = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("user_programs.py"))))
program, PROGRAMS, TRAINING = tools.program, tools.PROGRAMS, tools.TRAINING


# ------------------------------------------------------------------ values and factories


@program()
def reading_values(d: str) -> Any:
    x = torch.arange(6.0, device=d).view(2, 3)
    return [
        repr(x).replace(", device='lazy:0'", ""),
        x.sum().item(),
        bool((x >= 0).all()),
        x.tolist(),
        f"{x.sum():.2f}",
        len(x),
        [float(r.sum()) for r in x],
        int(x[1, 2]),
        x.max().item() in (5.0,),
        (x == x).all().item(),
    ]


@program()
def factories(d: str) -> Any:
    return [
        torch.zeros(3, device=d),
        torch.ones(2, 2, dtype=torch.int32, device=d),
        torch.full((2,), 3.0, device=d),
        torch.eye(3, device=d),
        torch.linspace(0, 1, 5, device=d),
        torch.logspace(0, 2, 3, device=d),
        torch.arange(0, 10, 3, device=d),
        torch.tensor([[1, 2], [3, 4]], device=d),
        torch.tril_indices(3, 3, device=d),
        torch.as_tensor([1.0], device=d),
        torch.hann_window(5, device=d),
        torch.zeros_like(torch.ones(2, device=d)).new_full((2, 1), 7),
        torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    ]


@program()
def default_device(d: str) -> Any:
    with torch.device(d):
        layer = nn.Linear(2, 3)
        return torch.ones(2), torch.arange(3), layer.weight.shape, layer.weight.device.type == d


@program()
def drawing_random_numbers(d: str) -> Any:
    torch.manual_seed(3)
    draws = [
        torch.rand(100, device=d),
        torch.randn(100, device=d),
        torch.randint(0, 5, (100,), device=d),
        torch.randperm(10, device=d),
        torch.empty(100, device=d).uniform_(-1, 1),
        torch.bernoulli(torch.full((100,), 0.5, device=d)),
        torch.multinomial(torch.ones(5, device=d), 3),
    ]
    inside = [
        (x >= low).all() & (x <= high).all() for x, low, high in zip(draws, (0, -9, 0, 0, -1, 0, 0), (1, 9, 4, 9, 1, 1, 4), strict=True)
    ]
    return [x.shape for x in draws], [x.dtype for x in draws], inside, draws[3].sort().values


# ------------------------------------------------------------------ training


def _network() -> nn.Module:
    # No bias before the normalisation: its gradient is exactly zero, and what rounding leaves of it is all that an adaptive
    # optimizer would scale up to full steps.
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16, bias=False), nn.BatchNorm1d(16))


def _train(d: str, optimizer: Callable[[Any], torch.optim.Optimizer], steps: int = 4) -> Any:
    torch.manual_seed(0)
    model = _network().to(d)
    x, y = torch.randn(8, 16).to(d), torch.randn(8, 16).to(d)
    o = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        o.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        o.step()
        losses.append(loss.item())
    return losses, dict(model.state_dict())


@program(**TRAINING)
def train_with_sgd(d: str) -> Any:
    return _train(d, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True))


@program(**TRAINING)
def train_with_adam(d: str) -> Any:
    return _train(d, lambda p: torch.optim.Adam(p, 1e-3))


@program(**TRAINING)
def train_with_adam_of_single_tensors(d: str) -> Any:
    return _train(d, lambda p: torch.optim.Adam(p, 1e-3, foreach=False))


@program(**TRAINING)
def train_with_fused_adamw(d: str) -> Any:
    return _train(d, lambda p: torch.optim.AdamW(p, 1e-3, fused=True))


@program(**TRAINING)
def train_with_capturable_adam(d: str) -> Any:
    return _train(d, lambda p: torch.optim.Adam(p, 1e-3, capturable=d == "lazy"))


@program(**TRAINING)
def train_with_rmsprop(d: str) -> Any:
    return _train(d, lambda p: torch.optim.RMSprop(p, 1e-3))


@program(**TRAINING)
def train_with_adagrad(d: str) -> Any:
    return _train(d, lambda p: torch.optim.Adagrad(p, 1e-3))


@program(**TRAINING)
def train_with_lbfgs(d: str) -> Any:
    torch.manual_seed(0)
    w = torch.randn(4).to(d).requires_grad_()
    a, b = torch.randn(8, 4).to(d), torch.randn(8).to(d)
    o = torch.optim.LBFGS([w], max_iter=4)

    def closure() -> Tensor:
        o.zero_grad()
        loss = (a @ w - b).square().mean()
        loss.backward()
        return loss

    return o.step(closure), w


@program(**TRAINING)
def gradient_accumulation_and_clipping(d: str) -> Any:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3).to(d), torch.randn(6, 4).to(d)
    o = torch.optim.SGD(model.parameters(), 0.1)
    norms = []
    for _ in range(2):
        for part in x.split(2):
            (model(part).square().mean() / 3).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        o.step()
        o.zero_grad(set_to_none=False)
    return norms, dict(model.state_dict())


@program(**TRAINING)
def averaged_weights_and_schedule(d: str) -> Any:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3).to(d), torch.randn(4, 3).to(d)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    o = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(o, 5)
    for _ in range(4):
        o.zero_grad()
        model(x).square().sum().backward()
        o.step()
        schedule.step()
        average.update_parameters(model)
    return dict(average.module.state_dict()), schedule.get_last_lr()


# ------------------------------------------------------------------ layers


@program(rtol=1e-4, atol=1e-5)
def convolution_and_pooling(d: str) -> Any:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    ]
    model = nn.Sequential(*layers).to(d)
    x = torch.randn(2, 3, 8, 8).to(d).requires_grad_()
    loss = F.cross_entropy(model(x), torch.tensor([1, 2]).to(d))
    loss.backward()
    return loss, x.grad, [p.grad for p in model.parameters()], dict(model.named_buffers())


@program(rtol=1e-4, atol=1e-5)
def recurrent_layers(d: str) -> Any:
    results = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        model, x = kind(4, 5, 2, bidirectional=True).to(d), torch.randn(3, 2, 4).to(d).requires_grad_()
        y, state = model(x)
        y.sum().backward()
        results.append((y, state, x.grad, [p.grad for p in model.parameters()]))
    return results


@program(rtol=1e-4, atol=1e-5)
def packed_sequences(d: str) -> Any:
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4, batch_first=True).to(d), torch.randn(3, 5, 3).to(d)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
    y, lengths = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
    return y, lengths


@program(rtol=1e-4, atol=1e-5)
def transformer_encoder(d: str) -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(d)
    x = torch.randn(2, 5, 16).to(d)
    training = model(x)
    training.sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.eval()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    with torch.no_grad():
        return training, gradients, model(x), model(x, src_key_padding_mask=mask.to(d))


@program(rtol=1e-4, atol=1e-5)
def attention(d: str) -> Any:
    torch.manual_seed(0)
    q = torch.randn(1, 2, 4, 8).to(d).requires_grad_()
    plain = F.scaled_dot_product_attention(q, q, q)
    causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    masked = F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(4, 4, dtype=torch.bool, device=d).tril())
    (plain + causal + masked).square().sum().backward()
    return plain, causal, masked, q.grad, nn.MultiheadAttention(8, 2, batch_first=True).to(d)(*[q.detach()[0]] * 3)


@program()
def dropout(d: str) -> Any:
    x = torch.ones(1000, device=d)
    kept = F.dropout(x, 0.5)
    share = (kept != 0).float().mean()
    return ((kept == 0) | (kept == 2)).all(), (share > 0.4) & (share < 0.6), F.dropout(x, 0.5, training=False)


@program(rtol=1e-4, atol=1e-5)
def reparametrised_layers(d: str) -> Any:
    torch.manual_seed(0)
    weight = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(d)
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).to(d)
    x = torch.randn(2, 3).to(d)
    y = weight(x) + spectral(x)
    y.sum().backward()
    return y, [p.grad for p in (*weight.parameters(), *spectral.parameters())]


@program()
def losses(d: str) -> Any:
    torch.manual_seed(0)
    x, y = torch.randn(4, 3).to(d).requires_grad_(), torch.rand(4, 3).to(d)
    k = torch.tensor([0, 2, 1, -100]).to(d)
    found = [
        F.mse_loss(x, y),
        F.huber_loss(x, y),
        F.cross_entropy(x, k, label_smoothing=0.1),
        F.binary_cross_entropy_with_logits(x, y),
        F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1]).to(d)),
        F.triplet_margin_loss(x, y, y.flip(0)),
    ]
    sum(found).backward()
    return found, x.grad


# ------------------------------------------------------------------ indexing, sorting


@program(rtol=1e-4, atol=1e-6)
def embedding_scatter_sort(d: str) -> Any:
    torch.manual_seed(0)
    e, i, x = nn.Embedding(5, 3).to(d), torch.tensor([1, 2, 1]).to(d), torch.rand(3, 4).to(d)
    e(i).square().sum().backward()
    zero = torch.zeros(1, 4, dtype=torch.long).to(d)
    return [
        e.weight.grad,
        *x.sort(1),
        *x.topk(2),
        x.cumsum(0),
        torch.einsum("ij,kj->ik", x, x),
        x.scatter_add(0, zero, x[:1]),
        x.index_put((i[:1],), x[0]),
        x.gather(1, zero.expand(3, 4)),
        torch.searchsorted(x[0].sort().values, x[1]),
        torch.bucketize(x, torch.tensor([0.2, 0.6]).to(d)),
    ]


@program(may_fall_back=("nonzero", "index", "masked_select", "_unique2", "unique_consecutive"))
def shapes_that_depend_on_values(d: str) -> Any:
    x = torch.tensor([0.0, 1, 2, 0], device=d)
    return (
        x.nonzero(),
        x[x > 0],
        torch.unique(x),
        torch.where(x > 0),
        x.masked_select(x > 0),
        torch.argwhere(x),
        torch.unique_consecutive(x),
    )


@program()
def advanced_indexing(d: str) -> Any:
    x = torch.arange(24).view(2, 3, 4).to(d)
    i, j = torch.tensor([0, 1]).to(d), torch.tensor([2, 0]).to(d)
    y = x.clone()
    y[:, i, j] = -1
    y[..., 3] += 5
    y[i, 1:] *= 2
    return x[i, :, j], x[:, i], x[None, 0, ..., [1, 3]], x[-1, -1], x[torch.tensor([-1]).to(d)], y


# ------------------------------------------------------------------ autograd


@program()
def custom_function_hooks_and_double_backward(d: str) -> Any:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            (a,) = ctx.saved_tensors
            return g * 2 + 0 * a

    x = torch.tensor([1.0, -2, 3]).to(d).requires_grad_()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    first = x.grad.clone()
    x.register_hook(lambda g: g * 2)
    Twice.apply(x).sum().backward()
    return g, first, x.grad


@program(rtol=1e-4, atol=1e-6)
def activation_checkpoints(d: str) -> Any:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(d), torch.randn(2, 4).to(d).requires_grad_()
    for reentrant in (False, True):
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    return x.grad, [p.grad for p in model.parameters()]


@program()
def function_transforms(d: str) -> Any:
    x = torch.tensor([0.5, -1, 2]).to(d)
    m = torch.arange(6.0).view(2, 3).to(d)
    return (
        torch.func.grad(lambda v: (v**2).sum())(x),
        torch.vmap(lambda v: v.sum())(m),
        torch.func.jacrev(torch.sin)(x),
        torch.func.hessian(lambda v: (v**3).sum())(x),
    )


# ------------------------------------------------------------------ the test


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode scripts its decompositions
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_user_program_gives_what_the_cpu_gives(name: str) -> None:
    tools.judge(PROGRAMS[name])
