"""Builders against CPU torch, family by family: `shadowing.py` builds, lowers and compares every ATen call of a snippet."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lazy_core import trace
from lazy_core.ir import Expr
from lazy_core.shape import Shape
from lazy_torch.mapping import promotion

tools = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("shadowing.py"))))
BUILDERS, DTYPES, f32, i64, every = tools.BUILDERS, tools.DTYPES, tools.f32, tools.i64, tools.every
attempt, backward, shadowed = tools.attempt, tools.backward, tools.shadowed
Snippet = Callable[[], Any]


# ------------------------------------------------------------------ promotion


def test_result_type_is_torchs() -> None:
    """Every pair of dtypes in every class of operand (dimensioned, 0-d, number) gives torch.result_type."""
    numbers = (True, 2, 2.5)
    for a in DTYPES:
        for b in DTYPES:
            for x in (torch.ones(2, dtype=a), torch.ones((), dtype=a)):
                for y in (torch.ones(2, dtype=b), torch.ones((), dtype=b), *numbers):
                    try:
                        want = promotion.NUMPY_OF[torch.result_type(x, y)]
                    except KeyError:  # half complex, which XLA has not
                        continue
                    operands = [_operand(v) if isinstance(v, torch.Tensor) else v for v in (x, y)]
                    assert promotion.result_type(*operands) == want, f"{x} {y}"


def _operand(t: torch.Tensor) -> Expr:
    return trace.current().leaf(1000, 0, Shape.of(tuple(t.shape), promotion.NUMPY_OF[t.dtype]))


# ------------------------------------------------------------------ families

UNARY = """abs neg sign sgn floor ceil trunc round frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh
tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma reciprocal isnan isinf isposinf isneginf signbit logical_not
bitwise_not nan_to_num deg2rad rad2deg angle conj_physical relu sinc""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or
bitwise_xor bitwise_left_shift bitwise_right_shift maximum minimum fmax fmin atan2 hypot copysign logaddexp xlogy heaviside""".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_elementwise_operations(dtype: torch.dtype) -> None:
    """Unary and binary operations on every dtype, with broadcast and special values; dtypes that the CPU refuses are left out."""
    calls: list[Snippet] = []
    for name in UNARY:
        calls += [lambda name=name, x=x: attempt(lambda: getattr(torch, name)(x)) for x in every(dtype)]
    exact = dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)
    for name in BINARY:
        f = getattr(torch, name)
        x, y, z = every(dtype)[:3]
        if exact and name in ("floor_divide", "remainder", "fmod", "div"):
            y, z = torch.where(y == 0, 1, y).to(dtype), torch.where(z == 0, 1, z).to(dtype)
        if exact and name == "pow":
            y, z = (y, z) if dtype == torch.bool else (y.abs(), z.abs())
        calls += [lambda f=f, x=x, y=y: attempt(lambda: f(x, y)), lambda f=f, x=x, z=z: attempt(lambda: f(x, z))]
        if name not in (
            "atan2",
            "hypot",
            "logaddexp",
            "heaviside",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "logical_and",
            "logical_or",
            "logical_xor",
        ):
            calls += [lambda f=f, x=x: attempt(lambda: f(x, 2)), lambda f=f, x=x: attempt(lambda: f(x, 2.5))]
    loose = {torch.float32: 1e-4, torch.complex64: 1e-4}.get(dtype)
    names = shadowed(*calls, rtol=loose, atol=loose)
    assert len(names) > 40


def test_numbers_and_zero_dim_operands_promote_as_torch() -> None:
    """Python numbers, 0-d tensors and alpha decide dtypes and values as on the CPU."""
    x, i, z = f32(3), i64(3), torch.tensor(2.5, dtype=torch.float64)
    shadowed(
        lambda: [
            x + 1,
            x * 2.5,
            i + 1,
            i * 2.5,
            i / 2,
            1 - x,
            2 ** x.abs(),
            x + z,
            i + z,
            x.half() + z,
            torch.add(x, x, alpha=2),
            torch.sub(i, i, alpha=3),
        ],
        lambda: [
            torch.div(i, 2, rounding_mode="floor"),
            torch.div(x, 0.3, rounding_mode="trunc"),
            i.clamp(-2, 2),
            x.clamp(min=0.1),
            i.clamp(max=1.5),
        ],
        lambda: [
            torch.lerp(x, x * 2, 0.3),
            torch.addcmul(x, x, x, value=2),
            torch.addcdiv(x, x, x.abs() + 1, value=0.5),
            x.pow(3),
            x.abs().pow(0.5),
        ],
        lambda: [torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, 3), torch.isin(i, torch.tensor([1, 2]))],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.uint8], ids=str)
def test_reductions_and_scans(dtype: torch.dtype) -> None:
    """Result dtypes, kept dims, several dims, 0-d and scans."""
    x, s = every(dtype)[0], every(dtype)[2]
    calls: list[Snippet] = [
        lambda: [x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.prod(), x.prod(1), s.sum(), x.sum(dtype=torch.float64)]
    ]
    calls += [lambda: [x.amax(1), x.amin((0, 1)), x.max(), x.min(), x.any(1), x.all(0, keepdim=True), torch.aminmax(x), x.count_nonzero(1)]]
    calls += [
        lambda: [
            attempt(lambda: [x.argmax(), x.argmin(1)]),
            x.max(1),
            x.min(0, keepdim=True),
            x.cumsum(1),
            torch.sort(x, dim=1, stable=True),
            s.max(),
            s.cumsum(0),
        ]
    ]
    if dtype.is_floating_point:
        calls += [lambda: [x.mean(), x.mean(1), x.var(), x.std(1, correction=0), torch.var_mean(x, 0), x.logsumexp(1), x.cumprod(1)]]
        calls += [lambda: [torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3.5, float("inf"), -float("inf"))]]
        calls += [
            lambda: [x.cummax(1), x.cummin(0), x.logcumsumexp(1), x.median(), x.median(1), x.nansum(), x.nanmedian(1), x.kthvalue(2, 1)]
        ]
    shadowed(*calls)


def test_shapes() -> None:
    """Joining, padding, reordering, triangles, copies of views."""
    x, v = f32(3, 4, 5), f32(2, 3, 4, 6)
    shadowed(
        lambda: [
            torch.cat([x, x.double()], 1),
            torch.stack([x, x], -1),
            x.flip(0, 2),
            x.roll(2),
            x.roll((1, -2), (0, 1)),
            torch.rot90(x, 1, (0, 2)),
        ],
        lambda: [
            x.repeat(2, 1, 1, 3),
            x.tril(1),
            x.triu(-1),
            torch.block_diag(x[0], x[1]),
            torch.diag_embed(x, 1),
            torch.cat([x, torch.empty(0)]),
        ],
        lambda: [
            F.pad(x, (1, 2, -1, 0), value=3),
            *[F.pad(v, (1, 2, 2, 1), mode=m) for m in ("reflect", "replicate")],
            F.pixel_shuffle(f32(1, 8, 2, 3), 2),
        ],
        lambda: [torch.slice_scatter(x, x[:, 1:3], 1, 1, 3), torch.select_scatter(x, x[0], 0, 1), torch.diagonal_scatter(x, f32(5, 3), 1)],
    )


def test_gradients_of_views() -> None:
    """select, slice, diagonal, unfold, pad and index backward."""
    calls: list[Snippet] = []
    for view in (
        lambda x: x[1],
        lambda x: x[:, 1:4:2],
        lambda x: x.diagonal(1),
        lambda x: x.unfold(1, 3, 2),
        lambda x: x.unfold(1, 2, 2),
        lambda x: x[[0, 2], [1, 1]],
        lambda x: F.pad(x[None], (2, 1), mode="reflect"),
        lambda x: F.pad(x[None], (2, 1), mode="replicate"),
        lambda x: x.gather(1, torch.tensor([[0, 0], [1, 2]])),
        lambda x: x.index_select(1, torch.tensor([2, 2, 0])),
        lambda x: x.cumsum(1),
        lambda x: x.prod(1),
        lambda x: x.amax(1),
        lambda x: x.norm(dim=1),
    ):
        calls.append(lambda view=view: backward(view(f32(3, 5, grad=True))))
    shadowed(*calls)


def test_indexing() -> None:
    """Advanced indexing, scatter and its reductions, masks, searching."""
    x, i = f32(4, 5), torch.tensor([[0, 3, 1], [2, -1, 2]])
    j, w = i64(2, 3, low=0, high=4), f32(2, 3)
    shadowed(
        lambda: [
            x[i],
            x[:, i],
            x[i, i],
            x[None, i],
            x.index_put((i, i), torch.tensor(1.0)),
            x.index_put((j,), f32(2, 3, 5), accumulate=True),
        ],
        lambda: [x.scatter(1, j, w), x.scatter(0, j, 2.0), x.scatter_add(0, j, w)],
        lambda: [x.scatter_reduce(0, j, w, r, include_self=s) for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)],
        lambda: [
            x.index_add(1, j[0], f32(4, 3), alpha=2),
            x.index_copy(1, j[0], f32(4, 3)),
            x.index_fill(0, j[0], 2.0),
            x.take(j),
            x.put(j, w),
        ],
        lambda: [
            x.masked_scatter(x > 0, f32(20)),
            torch.searchsorted(x.sort(1)[0], w.repeat(2, 1)),
            torch.bucketize(x, torch.tensor([-1.0, 0, 1]), right=True),
        ],
        lambda: F.embedding(j, f32(5, 3), padding_idx=1),
        lambda: backward(F.embedding(j, f32(5, 3, grad=True), padding_idx=1, scale_grad_by_freq=True)),
    )


def test_linear_algebra() -> None:
    """Products with bias and scale, half floats accumulated in f32, factorisations, transforms."""
    a, b, c, batch = f32(3, 4), f32(4, 5), f32(3, 5), f32(2, 3, 4)
    spd = a @ a.mT + torch.eye(3)
    shadowed(
        lambda: [
            a @ b,
            torch.addmm(c, a, b, beta=0.5, alpha=2),
            torch.addmm(c, a, b, beta=0),
            batch @ b,
            torch.baddbmm(f32(2, 3, 5), batch, b.expand(2, 4, 5)),
        ],
        lambda: [a @ b[:, 0], torch.dot(a[0], a[1]), torch.outer(a[0], a[1]), (a.bfloat16() @ b.bfloat16()), i64(3, 4) @ i64(4, 2)],
        lambda: [
            torch.linalg.cholesky_ex(spd),
            torch.linalg.inv_ex(spd),
            torch.linalg.lu_factor(spd),
            torch.linalg.solve_triangular(spd, c, upper=True),
        ],
        lambda: [torch.cdist(a, f32(6, 4), p) for p in (1.0, 2.0, 3.0)],
        lambda: [
            torch.fft.fft(a),
            torch.fft.rfft2(batch),
            torch.fft.irfft(torch.fft.rfft(b, dim=0), dim=0),
            torch.fft.ifftn(a.to(torch.complex64), norm="ortho"),
        ],
        rtol=1e-4,
        atol=1e-4,
    )


ACTIVATIONS = """relu hardtanh leaky_relu elu celu selu gelu silu mish softplus softsign hardsigmoid hardswish hardshrink softshrink
logsigmoid
tanhshrink relu6 sigmoid tanh""".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations_and_their_gradients(dtype: torch.dtype) -> None:
    """Every activation forward and backward, softmax along dims, glu, prelu."""
    calls: list[Snippet] = [lambda n=n: backward(getattr(F, n)(f32(3, 4).mul(3).to(dtype).requires_grad_())) for n in ACTIVATIONS]
    calls += [
        lambda: backward(F.softmax(f32(3, 4).to(dtype).requires_grad_(), 1)),
        lambda: backward(F.log_softmax(f32(3, 4).to(dtype).requires_grad_(), 0)),
        lambda: backward(F.gelu(f32(3, 4).to(dtype).requires_grad_(), approximate="tanh")),
        lambda: backward(F.glu(f32(3, 4).to(dtype).requires_grad_(), 1)),
        lambda: backward(F.prelu(f32(3, 4).to(dtype).requires_grad_(), torch.full((4,), 0.2, dtype=dtype))),
        lambda: backward(F.threshold(f32(3, 4).to(dtype).requires_grad_(), 0.1, 2)),
    ]
    shadowed(*calls)


def test_normalisations() -> None:
    """Batch, layer and group normalisation, forward and backward, in training and evaluation."""

    def batch(training: bool) -> None:
        x = f32(4, 3, 5, grad=True)
        backward(F.batch_norm(x, torch.zeros(3), torch.ones(3), f32(3, grad=True), f32(3, grad=True), training))

    shadowed(
        lambda: batch(True),
        lambda: batch(False),
        lambda: backward(F.layer_norm(f32(4, 3, 5, grad=True), (3, 5), f32(3, 5, grad=True), f32(3, 5, grad=True))),
        lambda: backward(F.layer_norm(f32(4, 5, grad=True), (5,))),
        lambda: backward(F.group_norm(f32(2, 6, 5, grad=True), 3, f32(6, grad=True), f32(6, grad=True))),
        lambda: backward(F.instance_norm(f32(2, 3, 5, grad=True))),
        rtol=1e-4,
        atol=1e-4,
    )


def test_convolutions_and_pools() -> None:
    """Strides, padding, dilation, groups, transposed ones, ceil_mode, uneven adaptive windows and interpolation, with gradients."""

    def conv(rank: int, transposed: bool, **kw: Any) -> None:
        name = f"conv{'_transpose' if transposed else ''}{rank}d"
        groups = kw.get("groups", 1)
        out = 6 // groups if transposed else 6
        weight = f32(4, out, *[3] * rank, grad=True) if transposed else f32(6, 4 // groups, *[3] * rank, grad=True)
        backward(getattr(F, name)(f32(2, 4, *[7] * rank, grad=True), weight, f32(6, grad=True), **kw))

    calls: list[Snippet] = [
        lambda t=t, kw=kw, r=r: conv(r, t, **kw)
        for r in (1, 2, 3)
        for t in (False, True)
        for kw in ({}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2})
    ]
    calls += [
        lambda: backward(F.max_pool2d(f32(2, 3, 7, 7, grad=True), 3, 2, 1)),
        lambda: backward(F.max_pool2d(f32(2, 3, 7, 8, grad=True), 2, ceil_mode=True)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 7, 7, grad=True), 3, 2, 1)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 7, 8, grad=True), 3, 2, 1, ceil_mode=True, count_include_pad=False)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 6, 6, grad=True), 2, divisor_override=3)),
        lambda: backward(F.adaptive_avg_pool2d(f32(2, 3, 7, 5, grad=True), (3, 2))),
        lambda: backward(F.adaptive_avg_pool2d(f32(2, 3, 7, 5, grad=True), 1)),
        lambda: backward(F.unfold(f32(2, 3, 7, 8, grad=True), (3, 2), padding=1, stride=2, dilation=(1, 2))),
        lambda: backward(F.adaptive_max_pool2d(f32(2, 3, 6, 4, grad=True), (3, 2))),
    ]
    for mode, corners in (("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True), ("bicubic", False)):
        for size in ((7, 5), (2, 3)):
            calls.append(lambda m=mode, c=corners, s=size: backward(F.interpolate(f32(1, 2, 4, 6, grad=True), s, None, m, c)))
    shadowed(*calls, rtol=1e-4, atol=1e-4)


def test_losses_and_their_gradients() -> None:
    """Every reduction, class weights, ignored targets, images as targets."""
    calls: list[Snippet] = []
    for r in ("none", "mean", "sum"):
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
            calls.append(lambda name=name, r=r: backward(getattr(F, name)(f32(3, 4, grad=True), f32(3, 4).sigmoid(), reduction=r)))
        calls.append(lambda r=r: backward(F.binary_cross_entropy(torch.rand(3, 4, requires_grad=True), torch.rand(3, 4), reduction=r)))
        calls.append(lambda r=r: backward(F.soft_margin_loss(f32(3, 4, grad=True), f32(3, 4).sign(), reduction=r)))
        t = torch.tensor([1, 3, -100])
        calls.append(lambda r=r, t=t: backward(F.cross_entropy(f32(3, 4, grad=True), t, f32(4).abs(), reduction=r)))
        calls.append(lambda r=r: backward(F.nll_loss(f32(2, 4, 3, 5, grad=True), i64(2, 3, 5, low=0, high=4), reduction=r)))
    calls.append(lambda: backward(F.cross_entropy(f32(3, 4, grad=True), torch.tensor([1, 3, 0]), label_smoothing=0.1)))
    shadowed(*calls)


def test_factories() -> None:
    """Sizes, dtypes and values of tensors made from numbers."""
    x = f32(2, 3)
    shadowed(
        lambda: [
            torch.arange(5),
            torch.arange(1, 9, 2),
            torch.arange(0, 1, 0.3),
            torch.arange(5, 0, -2),
            torch.linspace(0, 1, 7),
            torch.logspace(0, 2, 5),
        ],
        lambda: [
            torch.eye(3),
            torch.eye(2, 4, dtype=torch.int64),
            torch.full((2,), 3),
            torch.full((2,), 2.5),
            torch.full((2,), True),
            torch.scalar_tensor(3),
        ],
        lambda: [
            torch.tril_indices(3, 4, 1),
            torch.triu_indices(4, 3, -1),
            x.new_full((2,), 7),
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int32),
        ],
    )


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_optimizers_in_lists(name: str) -> None:
    """The multi-tensor steps of torch's optimizers, in place and functional."""

    def step() -> None:
        p = [torch.nn.Parameter(f32(3, 2)), torch.nn.Parameter(f32(4))]
        kw = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1} if name == "SGD" else {"weight_decay": 0.1}
        o = getattr(torch.optim, name)(p, lr=0.1, foreach=True, **kw)
        for _ in range(2):
            for q in p:
                q.grad = f32(*q.shape)
            torch.nn.utils.clip_grad_norm_(p, 1.0, foreach=True)
            o.step()

    assert any(n.startswith("_foreach") for n in shadowed(step))


def test_random_builders_return_the_next_state() -> None:
    """Draws have the right dims and dtypes, and the state comes back last and changed."""
    leaf = trace.current().leaf(1000, 0, Shape.of((2,), np.dtype(np.uint64)))
    like = trace.current().leaf(1000, 1, Shape.of((3, 4), promotion.F32))
    cases: dict[str, tuple[Any, ...]] = {
        "uniform": (like, 0.0, 1.0),
        "normal_": (like, 0.0, 1.0),
        "exponential": (like, 1.0),
        "bernoulli": (like,),
        "bernoulli.p": (like, 0.5),
        "random": (like,),
        "random.from": (like, 2, 9),
        "native_dropout": (like, 0.5, True),
        "randperm": (7,),
        "multinomial": (like, 2),
        "normal.Tensor_float": (like, 1.0),
        "geometric": (like, 0.3),
        "log_normal": (like,),
        "cauchy": (like,),
    }
    for name, args in cases.items():
        *out, state = BUILDERS[name].fn(leaf, *args)
        assert BUILDERS[name].random
        assert state.shape is leaf.shape, name
        assert state is not leaf, name
        assert all(isinstance(e, Expr) for e in out), name
