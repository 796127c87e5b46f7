"""The page of covered operations says what is true of this build."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lazy_core
from lazy_torch import coverage

PAGE = Path(__file__).parents[3] / "docs" / "torch-coverage.md"


def test_the_page_is_what_the_registry_says() -> None:
    if not torch.__version__.startswith("2.13.0"):
        pytest.skip("the page is of torch 2.13.0")
    assert PAGE.read_text(encoding="utf-8") == coverage.page(), "run: python -m lazy_torch coverage > docs/torch-coverage.md"


def test_in_place_variants_of_recorded_operations_are_recorded() -> None:
    """Also those that torch overloads under another name than the plain operation."""

    def run(device: str) -> list[torch.Tensor]:
        x, i = torch.tensor([2.0, 3.0, 4.0], device=device), torch.tensor([1, 2, 3], device=device)
        x.pow_(torch.tensor([1.0, 2.0, 0.5], device=device)).floor_divide_(torch.tensor([1.0, 2.0, 3.0], device=device))
        i <<= 2
        i >>= torch.tensor([0, 1, 2], device=device)
        return [x, i]

    for found, expected in zip(run("lazy"), run("cpu"), strict=True):
        assert torch.equal(found.cpu(), expected)
    assert lazy_core.report().counters["fallbacks"] == 0


def test_every_operation_is_counted_once() -> None:
    recorded, rest = coverage.sort_out()
    names = [name for found in (*recorded.values(), *rest.values()) for each in found.values() for name in each]
    assert sorted(names) == coverage.overloads()
    assert "add.Tensor" in recorded["pointwise"]["add"] and "add_.Tensor" in recorded["pointwise"]["add"]
    assert "nonzero" in rest["cpu"] and "view" in rest["storage"] and "randn" in rest["composed"]
