"""Bad input raises what torch users expect, says what was wrong, and leaves the trace usable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import lazy_core
from lazy_core.errors import StrictError


@pytest.fixture(autouse=True)
def usable_afterwards() -> Iterator[None]:
    x = torch.ones(3, device="lazy") * 2
    yield
    assert (x + 1).tolist() == [3, 3, 3]


def test_another_device_index() -> None:
    with pytest.raises(RuntimeError, match="lazy:1"):
        torch.ones(2, device="lazy:1")
    with pytest.raises(RuntimeError, match="one lazy device"):
        torch.ones(2).to("lazy:3")


def test_mixed_devices() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3) + torch.ones(3, device="lazy")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, 2, device="lazy") @ torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3).add_(torch.ones(3, device="lazy"))
    assert (torch.ones(2, device="lazy") * torch.tensor(3.0)).tolist() == [3, 3]  # zero-dim CPU tensors are numbers


def test_shapes_and_dtypes_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"broadcast|must match"):
        torch.ones(3, device="lazy") + torch.ones(4, device="lazy")
    with pytest.raises(RuntimeError, match=r"2x3|mat1 and mat2|reduction dim"):
        torch.ones(2, 3, device="lazy") @ torch.ones(2, 3, device="lazy")
    with pytest.raises(RuntimeError, match=r"can't be cast|not possible"):
        torch.ones(3, dtype=torch.int64, device="lazy").add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3, device="lazy").add_(torch.ones(2, 3, device="lazy"))
    with pytest.raises(IndexError):
        torch.ones(3, device="lazy").sum(2)


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_sparse_and_unknown_dtypes() -> None:
    with pytest.raises(NotImplementedError, match="sparse"):
        torch.eye(3).to_sparse().to("lazy")
    with pytest.raises(TypeError, match="does not exist on the lazy device"):
        torch.zeros(2, dtype=torch.complex32).to("lazy")


def test_nan_to_integer_is_what_the_cpu_gives() -> None:
    x = torch.tensor([float("nan"), 1.5, -2.5])
    assert torch.equal(x.to("lazy").to(torch.int32).cpu(), x.to(torch.int32))


def test_fallbacks_are_counted_named_and_right() -> None:
    x = torch.tensor([0.0, 1, 2, 0])
    y = x.to("lazy")
    assert torch.equal(y.nonzero().cpu(), x.nonzero())
    assert torch.equal(y[y > 0].cpu(), x[x > 0])
    report = lazy_core.report()
    assert report.fallbacks.get("torch:aten::nonzero", 0) >= 1
    assert report.counters["fallbacks"] >= 1
    assert any(e.kind == "fallback" and __file__ in (e.site or "") for e in report.events)


def test_fallbacks_write_back_what_they_change() -> None:
    x = torch.tensor([[4.0, 0], [1, 3]])
    out = torch.empty(0, dtype=torch.int64, device="lazy")
    assert torch.nonzero(x.to("lazy"), out=out) is out
    assert torch.equal(out.cpu(), x.nonzero())


def test_strict_forbids_fallbacks() -> None:
    with lazy_core.strict("fallback"), pytest.raises(StrictError, match="nonzero"):
        torch.ones(3, device="lazy").nonzero()


def test_a_failed_barrier_leaves_everything_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, device="lazy") * 2
    y = x.view(3, 1)
    y += 1

    def fail(self: object) -> list[object]:
        raise MemoryError("no room")

    monkeypatch.setattr("lazy_torch.source.TensorSource.leaves", fail)
    with pytest.raises(MemoryError):
        x.sum().item()
    monkeypatch.undo()
    assert x.tolist() == [3, 3, 3] and y.shape == (3, 1)


def test_a_barrier_in_a_hook_of_the_backward_pass_is_harmless() -> None:
    x = torch.ones(3, device="lazy", requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: (lazy_core.barrier(), g * 3)[1])
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6, 6]
