"""Automatic mixed precision: autocast by torch's lists of operations, and gradient scaling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lazy_core

LOWER = {
    "linear": lambda x: F.linear(x, x),
    "matmul": lambda x: x @ x,
    "mm": lambda x: torch.mm(x, x),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "addmm": lambda x: torch.addmm(x, x, x),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "conv1d": lambda x: F.conv1d(x[None], x[None, :, :2].transpose(0, 1)[:, :1].expand(-1, 4, -1)),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "prelu": lambda x: F.prelu(x, x[0, :1]),
}
FP32 = {
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "group_norm": lambda x: F.group_norm(x[None], 2),
    "exp": torch.exp,
    "log": lambda x: x.abs().log(),
    "pow": lambda x: x**2,
    "sum": torch.sum,
    "prod": torch.prod,
    "cumsum": lambda x: x.cumsum(0),
    "norm": torch.norm,
    "norm along a dim": lambda x: torch.norm(x, 2, 1),
    "vector norm": torch.linalg.vector_norm,
    "mse_loss": lambda x: F.mse_loss(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=x.device)),
    "logits": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x, eps=0.1),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
}
KEEPING = {"relu": F.relu, "add": lambda x: x + x, "max_pool": lambda x: F.max_pool2d(x[None, None], 2), "view": lambda x: x.view(2, 8)}


def _matrix(dtype: torch.dtype) -> Tensor:
    return (torch.arange(16.0).view(4, 4) / 16 - 0.4).to("lazy", dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOWER)
def test_products_are_computed_in_the_lower_precision(name: str, dtype: torch.dtype) -> None:
    x = _matrix(torch.float32)
    with torch.autocast("lazy", dtype=dtype):
        y = LOWER[name](x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float().cpu(), LOWER[name](x).cpu(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", FP32)
def test_what_needs_range_or_precision_is_computed_in_single_precision(name: str) -> None:
    x = _matrix(torch.bfloat16)
    with torch.autocast("lazy", dtype=torch.bfloat16):
        y = FP32[name](x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.cpu(), FP32[name](x.float()).cpu(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", KEEPING)
def test_everything_else_keeps_its_dtype(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("lazy", dtype=torch.bfloat16):
            assert KEEPING[name](_matrix(dtype)).dtype == dtype


def test_mixed_operands_are_promoted_to_the_widest() -> None:
    a, b = _matrix(torch.float32), _matrix(torch.bfloat16)
    with torch.autocast("lazy", dtype=torch.bfloat16):
        assert torch.cat([a, b]).dtype == torch.stack([a, b]).dtype == torch.addcmul(a, b, b).dtype == torch.float32
        assert torch.cat([b, b]).dtype == torch.bfloat16
        assert torch.atan2(b, a).dtype == torch.float32


def test_regions_nest_and_end() -> None:
    x = _matrix(torch.float32)
    with torch.autocast("lazy", dtype=torch.bfloat16):
        with torch.autocast("lazy", enabled=False):
            assert (x @ x).dtype == torch.float32
        with torch.autocast("lazy", dtype=torch.float16):
            assert (x @ x).dtype == torch.float16
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32
    assert not torch.is_autocast_enabled("lazy")

    @torch.autocast("lazy", dtype=torch.bfloat16)
    def product(a: Tensor) -> Tensor:
        return a @ a

    assert product(x).dtype == torch.bfloat16


def test_64_bit_integers_and_other_devices_are_left_alone() -> None:
    with torch.autocast("lazy", dtype=torch.bfloat16):
        assert (_matrix(torch.float64) @ _matrix(torch.float64)).dtype == torch.float64
        i = torch.ones(2, 2, dtype=torch.int64, device="lazy")
        assert (i @ i).dtype == torch.int64
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_binary_cross_entropy_of_probabilities_is_refused() -> None:
    x = _matrix(torch.float32).sigmoid()
    with torch.autocast("lazy", dtype=torch.float16), pytest.raises(RuntimeError, match="unsafe in a region of autocast"):
        F.binary_cross_entropy(x, x)


def test_an_unsupported_dtype_is_told() -> None:
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("lazy", dtype=torch.float64):
        assert not torch.is_autocast_enabled("lazy")


def test_custom_functions_choose_their_precision() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="lazy", cast_inputs=torch.float32)
        def forward(ctx: object, x: Tensor) -> Tensor:
            assert x.dtype == torch.float32
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="lazy")
        def backward(ctx: object, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return g @ x.T + x.T @ g

    x = _matrix(torch.bfloat16).requires_grad_()
    with torch.autocast("lazy", dtype=torch.bfloat16):
        y = Square.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16


def _train(d: str, dtype: torch.dtype, scaled: bool, steps: int = 4) -> tuple[list[float], dict[str, Tensor], float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).to(d)
    x, y = torch.randn(8, 8).to(d), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]).to(d)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(d, enabled=scaled, init_scale=1024.0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(d, dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, model.state_dict(), scaler.get_scale()


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_training_in_mixed_precision_follows_the_cpu(dtype: torch.dtype, scaled: bool) -> None:
    losses, weights, scale = _train("lazy", dtype, scaled)
    expected_losses, expected, expected_scale = _train("cpu", dtype, scaled)
    assert losses == pytest.approx(expected_losses, rel=2e-2)
    assert scale == expected_scale
    for key, value in expected.items():
        assert weights[key].dtype == torch.float32
        torch.testing.assert_close(weights[key].cpu(), value, rtol=5e-2, atol=5e-3)


def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_halved() -> None:
    p = nn.Parameter(torch.ones(2, device="lazy"))
    optimizer = torch.optim.SGD([p], 0.1)
    scaler = torch.amp.GradScaler("lazy", init_scale=4.0, growth_interval=2)
    for factor, value, scale in ((float("inf"), 1.0, 2.0), (1.0, 0.9, 2.0), (1.0, 0.8, 4.0)):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert p.tolist() == pytest.approx([value, value])
        assert scaler.get_scale() == scale
    state = scaler.state_dict()
    other = torch.amp.GradScaler("lazy")
    other.load_state_dict(state)
    assert other.get_scale() == 4.0


@pytest.mark.parametrize("step", [lambda x: (x @ x).sum(), lambda x: F.softmax(x @ x, 1).sum()], ids=["product", "softmax"])
def test_a_region_compiles_once(step: Callable[[Tensor], Tensor]) -> None:
    x = _matrix(torch.float32).requires_grad_()

    def run() -> None:
        with torch.autocast("lazy", dtype=torch.bfloat16):
            step(x).backward()
        x.grad = None

    for _ in range(2):
        run()
        lazy_core.barrier()
    lazy_core.reset_report()
    for _ in range(3):
        run()
        lazy_core.barrier()
    assert lazy_core.report().counters["compiles"] == 0
