"""Saving, loading, copying: storages keep their identity, values their bits."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import nn


def through_file(x: object, **kwargs: object) -> object:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **kwargs)  # type: ignore[arg-type]


def test_state_dict_both_ways() -> None:
    model = nn.Linear(3, 2).to("lazy")
    kept = {k: v.cpu() + 1 for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    assert torch.equal(model.weight.cpu(), kept["weight"])
    cpu = nn.Linear(3, 2)
    cpu.load_state_dict(model.state_dict())
    assert torch.equal(cpu.weight, kept["weight"])


def test_save_and_load_on_either_device() -> None:
    model = nn.Linear(3, 2).to("lazy")
    loaded = through_file(model.state_dict())
    assert loaded["weight"].device.type == "lazy" and torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
    on_cpu = through_file(model.state_dict(), map_location="cpu")
    assert on_cpu["weight"].device.type == "cpu" and torch.equal(on_cpu["weight"], model.weight.detach().cpu())
    moved = through_file({"w": torch.arange(4.0)}, map_location="lazy")
    assert moved["w"].device.type == "lazy" and (moved["w"] * 2).tolist() == [0, 2, 4, 6]


def test_shared_storages_stay_shared() -> None:
    x = torch.arange(6.0, device="lazy")
    loaded = through_file({"a": x, "b": x[2:4]})
    loaded["a"][2] = 50
    assert loaded["b"].tolist() == [50, 3]


def test_transposed_tensors_keep_values_and_strides() -> None:
    x = torch.arange(6.0, device="lazy").view(2, 3).t() + 0
    y = through_file(x)
    assert y.stride() == x.stride() and torch.equal(y.cpu(), x.cpu())


def test_deepcopy_and_pickle() -> None:
    model = nn.Linear(3, 2).to("lazy")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.add_(1)
    assert torch.equal(twin.weight.cpu(), model.weight.cpu() + 1)
    again = pickle.loads(pickle.dumps(model.weight))
    assert again.device.type == "lazy" and torch.equal(again.cpu(), model.weight.cpu())


def test_untyped_storage_copies() -> None:
    x = torch.arange(4.0, device="lazy")
    storage = x.untyped_storage().cpu()
    assert torch.tensor([], dtype=torch.float32).set_(storage).tolist() == [0, 1, 2, 3]
    y = torch.empty(4, device="lazy")
    y.untyped_storage().copy_(torch.arange(4.0, 8.0).untyped_storage())
    assert y.tolist() == [4, 5, 6, 7]
