"""Automatic differentiation on the lazy device: everything that torch builds on it gives what the CPU gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

# torch's own forward mode scripts its decompositions, and says that this is deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def same(program: Callable[[str], Any], **tolerance: float) -> None:
    """What a program returns is equal on both devices."""
    found, expected = tree_leaves(program("lazy")), tree_leaves(program("cpu"))
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        if isinstance(y, Tensor):
            torch.testing.assert_close(x.detach().cpu(), y.detach(), **(tolerance or TOLERANCE))
        else:
            assert x == y


def _inputs(d: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 4).to(d).requires_grad_(), torch.randn(4, 2).to(d).requires_grad_()


# ------------------------------------------------------------------ reverse mode


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (x @ w).tanh(),
        lambda x, w: F.layer_norm(x @ w, (2,)),
        lambda x, w: F.softmax(x @ w, 1) * F.log_softmax(x @ w, 0),
        lambda x, w: F.conv2d(x.view(1, 1, 3, 4), w.view(1, 1, 2, 4)),
        lambda x, w: F.gelu(x) @ F.silu(w),
        lambda x, w: (x.exp() + 1).log().norm() * w.pow(3).sum(0),
        lambda x, w: torch.linalg.solve(x @ x.T + 3 * torch.eye(3, dtype=x.dtype, device=x.device), x @ w),
        lambda x, w: x.cumsum(0)[:, [0, 2]] * w.t().max(1, keepdim=True).values.T,
    ],
    ids=["matmul", "layer_norm", "softmax", "conv", "activations", "norms", "solve", "indexing"],
)
def test_second_derivatives(fn: Callable[[Tensor, Tensor], Tensor]) -> None:
    def go(d: str) -> Any:
        x, w = (t.detach().double().requires_grad_() for t in _inputs(d))  # single precision cancels in second derivatives
        first = torch.autograd.grad(fn(x, w).square().sum(), (x, w), create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in first), (x, w))
        return first, second

    same(go, rtol=1e-7, atol=1e-9)


def test_a_gradient_penalty_trains() -> None:
    def go(d: str) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)).to(d)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        data = torch.randn(6, 4)
        for _ in range(3):
            optimizer.zero_grad()
            x = data.to(d).requires_grad_()
            (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            ((g.norm(dim=1) - 1) ** 2).mean().backward()
            optimizer.step()
        return dict(model.state_dict())

    same(go)


def test_hooks_of_every_kind_see_and_change_gradients() -> None:
    def go(d: str) -> Any:
        seen: list[Tensor] = []
        x, w = _inputs(d)
        y = x @ w
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        y.grad_fn.register_prehook(lambda grads: tuple(g + 1 for g in grads))
        y.grad_fn.register_hook(lambda ins, outs: seen.extend(g for g in ins if g is not None))
        layer = nn.Linear(2, 2).to(d)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        layer.register_full_backward_pre_hook(lambda m, g: (g[0] * 3,))
        layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,))
        layer.register_forward_hook(lambda m, args, out: out + 1)
        layer.register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
        layer(y).square().sum().backward()
        return seen, y.grad, x.grad, w.grad, layer.weight.grad

    same(go)


def test_saved_tensor_hooks_move_what_is_saved() -> None:
    def go(d: str) -> Any:
        x, w = _inputs(d)
        packed: list[str] = []

        def pack(t: Tensor) -> Tensor:
            packed.append(t.device.type)
            return t.cpu()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(d)):
            y = (x @ w).sigmoid()
        y.sum().backward()
        assert set(packed) == {d}
        return x.grad, w.grad

    same(go)


def test_saving_on_the_cpu() -> None:
    def go(d: str) -> Any:
        x, w = _inputs(d)
        with torch.autograd.graph.save_on_cpu():
            y = (x @ w).tanh().sum()
        y.backward()
        return x.grad, w.grad

    same(go)


def test_custom_functions_with_several_outputs_and_twice_differentiable() -> None:
    class Polar(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return (x * x + y * y).sqrt(), torch.atan2(y, x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, gr: Tensor, ga: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            x, y = ctx.saved_tensors
            r = (x * x + y * y).sqrt()
            return gr * x / r - ga * y / r**2, gr * y / r + ga * x / r**2

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            return g * 2

    def go(d: str) -> Any:
        x, y = torch.tensor([1.0, -2]).to(d).requires_grad_(), torch.tensor([0.5, 1]).to(d).requires_grad_()
        r, a = Polar.apply(x, y)
        first = torch.autograd.grad((r * a).sum(), (x, y), create_graph=True)
        second = torch.autograd.grad(first[0].sum() + first[1].square().sum(), (x, y))
        z = x * 1
        Mark.apply(z)
        z.square().sum().backward()
        return r, a, first, second, x.grad

    same(go)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool) -> None:
    def go(d: str) -> Any:
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).to(d)
        x = torch.randn(3, 4).to(d).requires_grad_()
        y = checkpoint_sequential(layers, 2, x, use_reentrant=reentrant)
        z = checkpoint(lambda a, scale: (layers[0](a) * scale).relu(), x, scale=2.0, use_reentrant=False)
        (y.sum() + z.sum()).backward()
        return y, x.grad, [p.grad for p in layers.parameters()]

    same(go)


def test_anomaly_mode_names_the_forward_operation() -> None:
    x = torch.zeros(2, device="lazy", requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            y = x.sqrt() * 0
            with pytest.raises(RuntimeError, match="returned nan values"):
                y.sum().backward()
    assert any("Error detected in SqrtBackward0" in str(w.message) and "y = x.sqrt() * 0" in str(w.message) for w in told)


def test_modes_without_gradients() -> None:
    x = torch.ones(2, device="lazy", requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        x.add_(1)
    with torch.inference_mode():
        y = x * 2
        y += 1
        assert y.is_inference() and y.tolist() == [5, 5]
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        (x * y).sum().backward()
    with torch.enable_grad():
        assert (x * 2).requires_grad
    with torch.set_grad_enabled(False):
        assert not x.exp().requires_grad
    assert torch.autograd.grad((x * x).sum(), x)[0].tolist() == [4, 4]


def test_errors_of_autograd_are_those_of_torch() -> None:
    x = torch.ones(2, device="lazy", requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(2, device="lazy").sum().backward()


def test_gradcheck_accepts_lazy_tensors() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, dtype=torch.float64, device="lazy", requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: (a.sin() * a).cumsum(0), (x,))
    assert torch.autograd.gradgradcheck(lambda a: a.exp().prod().unsqueeze(0), (x,))


# ------------------------------------------------------------------ forward mode and function transforms


def test_forward_mode() -> None:
    def go(d: str) -> Any:
        x, w = (t.detach() for t in _inputs(d))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            value, tangent = forward_ad.unpack_dual(F.layer_norm(dual @ w, (2,)).sigmoid() * F.softmax(dual, 1).sum())
        return value, tangent

    same(go)


def test_jacobians_by_every_road() -> None:
    def go(d: str) -> Any:
        x, w = (t.detach() for t in _inputs(d))

        def f(a: Tensor) -> Tensor:
            return (a @ w).tanh().sum(0)

        return (
            torch.func.jacrev(f)(x),
            torch.func.jacfwd(f)(x),
            torch.autograd.functional.jacobian(f, x),
            torch.func.hessian(lambda a: f(a).prod())(x),
            torch.func.vjp(f, x)[1](torch.ones(2, device=d)),
            torch.func.jvp(f, (x,), (torch.ones_like(x),)),
        )

    same(go, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # torch's tracer speaks to itself
def test_a_linearised_function() -> None:
    def go(d: str) -> Any:
        x, w = (t.detach() for t in _inputs(d))
        value, derivative = torch.func.linearize(lambda a: (a @ w).tanh(), x)
        return value, derivative(torch.ones_like(x)), derivative(x)

    same(go)


def test_vmap_over_what_models_are_made_of() -> None:
    def go(d: str) -> Any:
        torch.manual_seed(0)
        x, w, i = torch.randn(5, 3, 4).to(d), torch.randn(5, 4, 2).to(d), torch.tensor([[0, 2], [1, 0], [2, 2], [0, 1], [1, 1]]).to(d)
        return (
            torch.vmap(lambda a, b: F.softmax(a @ b, -1))(x, w),
            torch.vmap(lambda a: a.sort(0).values.cumsum(0))(x),
            torch.vmap(lambda a, k: a[k])(x, i),
            torch.vmap(lambda a: F.layer_norm(a, (4,)), in_dims=1, out_dims=1)(x),
            torch.vmap(torch.vmap(torch.dot))(x, x + 1),
            torch.vmap(lambda a: torch.where(a > 0, a, a.exp()))(x),
        )

    same(go)


def test_gradients_of_every_sample() -> None:
    def go(d: str) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(d)
        x, y = torch.randn(6, 4).to(d), torch.tensor([0, 1, 1, 0, 1, 0]).to(d)
        parameters = {k: v.detach() for k, v in model.named_parameters()}

        def loss(p: dict[str, Tensor], a: Tensor, t: Tensor) -> Tensor:
            return F.cross_entropy(torch.func.functional_call(model, p, (a.unsqueeze(0),)), t.unsqueeze(0))

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    same(go)


def test_an_ensemble_by_vmap() -> None:
    def go(d: str) -> Any:
        torch.manual_seed(0)
        models = [nn.Linear(4, 2).to(d) for _ in range(3)]
        parameters, buffers = torch.func.stack_module_state(models)
        x = torch.randn(5, 4).to(d)
        return torch.vmap(lambda p, b: torch.func.functional_call(models[0], (p, b), (x,)))(parameters, buffers)

    same(go)
