"""Derivatives and losses for which torch selects elements by value, so that sizes depend on data: here all of it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import lazy_core

# torch's own forward mode scripts its decompositions, and says that this is deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

ORDERS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "gradient": lambda f, x: torch.func.grad(lambda a: f(a).square().sum())(x),
    "second": lambda f, x: torch.func.hessian(lambda a: f(a).sum())(x),
    "forward": lambda f, x: torch.func.jvp(f, (x,), (x + 1,))[1],
    "every sample's": lambda f, x: torch.vmap(torch.func.grad(lambda a: f(a).sum()))(torch.stack([x, x + 1])),
}
PRODUCTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": torch.prod,
    "rows": lambda x: x.prod(1),
    "columns": lambda x: x.prod(-2, keepdim=True),
    "another dtype": lambda x: x.prod(0, dtype=torch.float64).to(x.dtype) + x.float().prod(dtype=torch.float64),
}


def equal(run: Callable[[str], Sequence[Tensor]]) -> None:
    """What a program gives is the CPU's, and nothing fell back or was read before it ended."""
    expected, found = run("cpu"), run("lazy")
    assert lazy_core.report().fallbacks == {} and lazy_core.report().counters["barriers"] == 0
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-6, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize("product", PRODUCTS)
def test_derivatives_of_products_with_zeros_need_no_look_at_the_values(product: str) -> None:
    """None, one and several zeros in a row; even and odd numbers of elements."""

    def run(d: str) -> list[Tensor]:
        torch.manual_seed(0)
        found = []
        for rows, columns in ((3, 4), (5, 3), (1, 1)):
            x = torch.randn(rows, columns, dtype=torch.float64)
            x[:1, :2], x[1:2, :1] = 0, 0
            found += [derivative(PRODUCTS[product], x.to(d)) for derivative in ORDERS.values()]
        return found

    equal(run)


def test_products_of_single_numbers_of_none_and_of_half_precision() -> None:
    def run(d: str) -> list[Tensor]:
        x = torch.tensor(3.0, dtype=torch.float64).to(d).requires_grad_()
        small = torch.full((40,), 1.5, dtype=torch.float16).to(d).requires_grad_()
        y = (small * 0.5).prod(dtype=torch.float16)  # 1e-5: the products of halves on the way to it are of many sizes
        none = torch.ones(2, 0).to(d).requires_grad_()
        empty = [none.prod(1).detach(), *torch.autograd.grad(none.prod(1).sum() + none.prod(), none)]
        return [*empty, *torch.autograd.grad(x.prod() + x.prod(0), x), y.detach(), *torch.autograd.grad(small[:1].prod(), small)]

    expected, found = run("cpu"), run("lazy")
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y)
    alone = torch.ones(1, device="lazy", requires_grad=True)
    product = alone.prod()
    with torch.no_grad():
        alone.add_(1)
    assert product.item() == 1, "a product of one number is a number of its own"
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones((), device="lazy", requires_grad=True).prod(1)


FILLS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "mask": lambda x, mask, index, value: x.masked_fill(mask, value),
    "mask in place": lambda x, mask, index, value: (x * 2).masked_fill_(mask, value),
    "wider mask": lambda x, mask, index, value: x[0].masked_fill(mask.expand(3, 4), value),
    "index": lambda x, mask, index, value: x.index_fill(0, index, value),
    "index in place": lambda x, mask, index, value: (x * 2).index_fill_(-1, index, value),
    "index of one number": lambda x, mask, index, value: x[0, 0].index_fill(0, index[:1] * 0, value),
}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_derivatives_of_fills_by_what_they_fill_with(fill: str, dtype: torch.dtype) -> None:
    """An index that occurs twice counts once; the value may be of another dtype."""

    def run(d: str) -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(3, 4, dtype=torch.float64).to(d).requires_grad_()
        value = torch.tensor(2.5, dtype=dtype).to(d).requires_grad_()
        rest = torch.tensor([True, False, True, True]).to(d), torch.tensor([2, 0, 2]).to(d)
        y = FILLS[fill](x, *rest, value)
        first = torch.autograd.grad(y.pow(3).sum(), (x, value), create_graph=True)
        second = torch.autograd.grad(first[1] + first[0].sum(), (x, value))
        tangent = torch.func.jvp(lambda v: FILLS[fill](x.detach(), *rest, v), (value.detach(),), (torch.ones_like(value),))[1]
        return [y.detach(), *(g.detach() for g in first), *second, tangent]

    equal(run)


def test_fills_by_a_tensor_of_the_cpu_and_what_torch_forbids() -> None:
    value = torch.tensor(2.0, requires_grad=True)
    torch.ones(3, device="lazy").masked_fill(torch.tensor([True, False, True], device="lazy"), value).sum().backward()
    assert value.grad == 2
    leaf = torch.ones(3, device="lazy", requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.masked_fill_(leaf > 0, torch.ones((), device="lazy", requires_grad=True))
    with pytest.raises(RuntimeError, match="0-dimensional"):
        leaf.masked_fill(leaf > 0, leaf)


def test_smoothed_labels_with_weights_of_classes_and_ignored_targets() -> None:
    """Also without a gradient, and without any target that counts."""

    def run(d: str) -> list[Tensor]:
        torch.manual_seed(0)
        x, weight = torch.randn(4, 3, 2, dtype=torch.float64).to(d).requires_grad_(), torch.rand(3, dtype=torch.float64).to(d)
        found = []
        for target, ignored in ((torch.tensor([[0, 2], [1, -100], [-100, 2], [0, 0]]), -100), (torch.ones(4, 2, dtype=torch.int64), 1)):
            loss = F.cross_entropy(x, target.to(d), weight, label_smoothing=0.2, ignore_index=ignored)
            found += [loss.detach(), *torch.autograd.grad(loss, x)]
        with torch.inference_mode():
            found.append(F.cross_entropy(x[0].T, torch.tensor([0, 1]).to(d), weight, label_smoothing=0.2))
        return found

    equal(run)


@pytest.mark.parametrize("tier", ["compiled", "native"])
def test_a_learned_token_in_place_of_masked_ones_trains(tier: str) -> None:
    """As masked autoencoders do it, with one number; and a likelihood that is a product of probabilities."""

    def train(d: str) -> list[float]:
        torch.manual_seed(0)
        x, mask = torch.randn(4, 6).to(d), (torch.rand(4, 6) > 0.5).to(d)
        token, weight = torch.zeros((), device=d, requires_grad=True), (torch.randn(6, 3) / 3).to(d).requires_grad_()
        optimizer = torch.optim.SGD([token, weight], 0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = -F.softmax(x.masked_fill(mask, token) @ weight, 1)[:, 0].prod().sqrt()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [float(v) for v in losses]

    with lazy_core.options(tier=tier):
        assert train("lazy") == pytest.approx(train("cpu"), rel=1e-4)
    assert lazy_core.report().counters["fallbacks"] == 0
