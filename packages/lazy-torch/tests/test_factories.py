"""Factories that write to a tensor that is there: `out=` has the dtype, is resized, and nothing falls back to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import lazy_core

FACTORIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "eye": lambda out: torch.eye(3, out=out),
    "eye of two sizes": lambda out: torch.eye(3, 5, out=out),
    "linspace": lambda out: torch.linspace(-2, 5, 7, out=out),
    "linspace of one step": lambda out: torch.linspace(2, 5, 1, out=out),
    "logspace": lambda out: torch.logspace(0, 4, 5, base=2, out=out),
    "range": lambda out: torch.range(1, 8, 1.5, out=out),
    "arange": lambda out: torch.arange(6, out=out),
    "arange with a step": lambda out: torch.arange(1, 9, 3, out=out),
    "arange of fractions": lambda out: torch.arange(0.5, 4, 0.75, out=out),
    "full": lambda out: torch.full((2, 3), 7, out=out),
    "zeros": lambda out: torch.zeros(2, 3, out=out),
    "ones": lambda out: torch.ones((4,), out=out),
    "tril_indices": lambda out: torch.ops.aten.tril_indices.out(3, 4, -1, out=out),
    "triu_indices": lambda out: torch.ops.aten.triu_indices.out(3, 4, 1, out=out),
    "zeros_like": lambda out: torch.ops.aten.zeros_like.out(torch.ones(2, 2, device=out.device), out=out),
    "new_full": lambda out: torch.ops.aten.new_full.out(torch.ones(2, device=out.device), [3], 4, out=out),
}
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32)
WHOLE = [(50, 1, 50), (0, 98, 50), (-41, 41, 83), (7, 107, 26), (4.3, 53.9, 50)]
# torch refuses others there.
ONLY = {"arange of fractions": FLOATS, "tril_indices": INTEGERS, "triu_indices": INTEGERS}


@pytest.mark.filterwarnings("ignore:torch.range is deprecated", "ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_writes_to_out_as_on_the_cpu(name: str) -> None:
    found, expected = [], []
    for dtype in ONLY.get(name, (*FLOATS, *INTEGERS, torch.uint8)):
        for device, results in (("lazy", found), ("cpu", expected)):
            fresh = torch.empty(0, dtype=dtype, device=device)
            same = FACTORIES[name](fresh)
            assert same is fresh
            # Its own layout is kept where it fits: here the last of two columns.
            column = torch.zeros(*fresh.shape, 2, dtype=dtype, device=device)
            FACTORIES[name](column[..., 1])
            results += [fresh, column]
    assert lazy_core.report().fallbacks == {}
    for x, y in zip(found, expected, strict=True):
        # The CPU adds up steps in bfloat16 itself; ours are rounded once.
        torch.testing.assert_close(x.cpu(), y, rtol=2e-2 if x.dtype == torch.bfloat16 else 2e-6, atol=0)


def test_a_permutation_is_written_to_out() -> None:
    for dtype in (torch.int64, torch.int32, torch.float32):
        out = torch.empty(20, dtype=dtype, device="lazy")
        torch.manual_seed(3)
        assert torch.randperm(20, out=out) is out
        torch.manual_seed(3)
        assert torch.equal(out, torch.randperm(20, device="lazy").to(dtype))
        assert sorted(out.tolist()) == list(range(20))
    generator = torch.Generator("lazy").manual_seed(5)
    drawn = torch.randperm(9, generator=generator, out=torch.empty(9, dtype=torch.int64, device="lazy"))
    assert torch.equal(drawn, torch.randperm(9, generator=generator.manual_seed(5), device="lazy"))
    assert lazy_core.report().fallbacks == {}


def test_bounds_that_are_tensors_are_written_to_out() -> None:
    def made(device: str) -> list[torch.Tensor]:
        a, b = torch.tensor(1.5, device=device), torch.tensor(4.0, device=device)
        out = [torch.empty(5, device=device) for _ in range(3)]
        torch.linspace(a, b, 5, out=out[0])
        torch.linspace(a, 9, 5, out=out[1])
        torch.logspace(0, b, 5, out=out[2])
        return out

    for x, y in zip(made("lazy"), made("cpu"), strict=True):
        torch.testing.assert_close(x.cpu(), y)
    assert lazy_core.report().fallbacks == {}


def test_integers_between_bounds_that_are_tensors_are_the_cpus() -> None:
    """Where the step is whole every number is, whatever the compiler makes of a division."""

    def made(device: str) -> list[torch.Tensor]:
        bounds = [(torch.tensor(a, device=device), torch.tensor(b, device=device), n) for a, b, n in WHOLE]
        return [torch.linspace(a, b, n, dtype=torch.int64, device=device) for a, b, n in bounds]

    for x, y in zip(made("lazy"), made("cpu"), strict=True):
        assert torch.equal(x.cpu(), y)


def test_what_is_composed_of_several_operations_is_written_to_out() -> None:
    torch.manual_seed(0)
    matrix, right = torch.randn(3, 3), torch.randn(3, 2)
    image, volume = torch.randn(1, 2, 5, 5), torch.randn(1, 2, 4, 5, 6)

    def made(d: str) -> list[torch.Tensor]:
        a, b, x, y = (t.to(d) for t in (matrix, right, image, volume))

        def out(dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(0, dtype=dtype, device=d)

        values = torch.linalg.eigvals(a, out=out(torch.complex64))
        return [
            torch.linalg.det(a, out=out()),
            *torch.linalg.slogdet(a, out=(out(), out())),
            torch.linalg.solve(a, b, out=out()),
            torch.linalg.inv(a, out=out()),
            values[values.abs().argsort(stable=True)].abs(),
            torch.linalg.eigvals(a).abs().sort().values,
            torch.special.multigammaln(a.abs() + 2, 2, out=out()),
            torch.ops.aten.adaptive_avg_pool2d.out(x, [2, 3], out=out()),
            torch.ops.aten.adaptive_avg_pool3d.out(y, [2, 3, 2], out=out()),
        ]

    found = made("lazy")
    assert lazy_core.report().fallbacks == {}
    for x, y in zip(found, made("cpu"), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-5, atol=1e-6)


def test_out_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.eye(3, out=torch.empty(3, 3, device="lazy"), device="cpu")
