"""Saving, loading, copying, exchange with other libraries, data loading: storages keep their identity, values their bits."""

from __future__ import annotations

import copy
import io
import pickle
import queue
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import lazy_core


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_every_kind_of_dtype_goes_through_files_and_pickles(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(dtype)
    for copied in (through_file(x.to("lazy")), pickle.loads(pickle.dumps(x.to("lazy"))), copy.deepcopy(x.to("lazy"))):
        assert copied.device.type == "lazy" and copied.dtype == dtype and torch.equal(copied.cpu(), x)


def test_old_files_and_mapped_files(tmp_path: Path) -> None:
    x = torch.arange(6.0, device="lazy")
    old = tmp_path / "old.pt"
    torch.save({"a": x, "b": x[2:4]}, old, _use_new_zipfile_serialization=False)
    loaded = torch.load(old)
    loaded["a"][2] = 50
    assert loaded["b"].tolist() == [50, 3]
    assert torch.load(old, map_location={"lazy:0": "cpu"})["a"].device.type == "cpu"
    new = tmp_path / "new.pt"
    torch.save({"a": torch.arange(3.0)}, new)
    assert torch.load(new, mmap=True, map_location="lazy")["a"].tolist() == [0, 1, 2]


def test_a_pending_value_is_saved_as_it_is_then() -> None:
    x = torch.zeros(3, device="lazy")
    x += 1
    file = io.BytesIO()
    torch.save(x, file)
    x += 1
    file.seek(0)
    assert torch.load(file).tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2]


def test_a_whole_training_state_is_restored() -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).to("lazy")
        return model, torch.optim.Adam(model.parameters(), 0.01)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(5, 3, device="lazy").cumsum(0)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    model, optimizer = make()
    step(model, optimizer)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.lazy.get_rng_state()}
    state = through_file(saved, map_location="cpu")
    expected = [step(model, optimizer) for _ in range(2)]
    other, again = make()
    other.load_state_dict(state["model"])
    again.load_state_dict(state["optimizer"])
    torch.lazy.set_rng_state(state["random"])
    assert [step(other, again) for _ in range(2)] == pytest.approx(expected, rel=1e-5)


def test_models_made_without_memory() -> None:
    empty = nn.Linear(3, 2, device="meta")
    assert empty.to_empty(device="lazy").weight.device.type == "lazy"
    assigned = nn.Linear(3, 2, device="meta")
    weights = {"weight": torch.ones(2, 3, device="lazy"), "bias": torch.zeros(2, device="lazy")}
    assigned.load_state_dict(weights, assign=True)
    assert assigned(torch.ones(1, 3, device="lazy")).tolist() == [[3, 3]]


def test_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Linear(3, 2).to("lazy")
    file = tmp_path / "model.safetensors"
    safetensors.save_file(model.state_dict(), file)
    loaded = safetensors.load_file(file)
    assert torch.equal(loaded["weight"], model.weight.detach().cpu())
    other = nn.Linear(3, 2).to("lazy")
    safetensors.load_model(other, file)
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    assert torch.equal(safetensors.load(safetensors.save({"b": model.bias.detach()}))["b"], model.bias.detach().cpu())


# ------------------------------------------------------------------ other libraries


def test_other_libraries_get_a_copy() -> None:
    x = torch.arange(6.0, device="lazy").view(2, 3).t()
    shared = np.from_dlpack(x)
    assert shared.shape == (3, 2) and shared.tolist() == x.tolist()
    x += 1
    assert shared.tolist() == [[0, 3], [1, 4], [2, 5]], "an export does not see later writes"
    other = torch.from_dlpack(x)
    other.zero_()
    assert x.tolist() == [[1, 4], [2, 5], [3, 6]], "writing to an export does not change the tensor"
    capsule = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert capsule.device.type == "cpu" and capsule.tolist() == x.tolist()
    assert np.array_equal(x.numpy(force=True), np.from_dlpack(x))


def test_exports_that_would_have_to_share_are_refused() -> None:
    x = torch.ones(2, device="lazy")
    with pytest.raises(BufferError, match="only be exported as a copy"):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="require gradient"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(ValueError, match="can't alias"):
        torch.asarray(np.ones(2), device="lazy", copy=False)
    assert torch.ones(2).__dlpack_device__() == (1, 0), "tensors of other devices are exported as ever"


def test_imports_are_copies() -> None:
    a = np.arange(3.0)
    for x in (
        torch.from_dlpack(a).to("lazy"),
        torch.asarray(a, device="lazy"),
        torch.from_numpy(a).to("lazy"),
        torch.tensor(a, device="lazy"),
    ):
        x += 1
        assert x.tolist() == [1, 2, 3] and a.tolist() == [0, 1, 2]
        y = x * 1
        a += 10
        assert y.tolist() == [1, 2, 3]
        a -= 10


# ------------------------------------------------------------------ data loading


class Squares(Dataset):
    """Numbers and their squares."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(i)), i * i


@pytest.mark.filterwarnings("ignore:.*os.fork:RuntimeWarning")  # jax warns of its threads; workers touch CPU tensors only
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_loader_with_workers_and_pinned_memory_feeds_the_device(workers: int, pinned: bool) -> None:
    loader = DataLoader(Squares(), batch_size=4, num_workers=workers, pin_memory=pinned, persistent_workers=workers > 0)
    for _ in range(2):
        total = torch.zeros((), device="lazy")
        for x, y in loader:
            assert x.is_pinned() == y.is_pinned() == pinned
            total += (x.to("lazy", non_blocking=True).sum(1) * y.to("lazy", non_blocking=True)).sum()
        assert total.item() == 2 * sum(i**3 for i in range(8))


def test_pinned_memory_is_told_from_other_memory() -> None:
    """As with CUDA: pinning twice copies once, and only tensors of the CPU can be pinned."""
    x = torch.arange(4.0)
    y = x.pin_memory()
    assert not x.is_pinned() and y.is_pinned() and y[2:].is_pinned() and not y.clone().is_pinned()
    assert y.pin_memory().data_ptr() == y.data_ptr() != x.data_ptr()
    assert torch.empty(3, pin_memory=True).is_pinned() and torch.zeros(2).untyped_storage().pin_memory().is_pinned()
    assert y.to("lazy", non_blocking=True).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        y.to("lazy").pin_memory()


def test_a_dataset_on_the_device() -> None:
    data = TensorDataset(torch.arange(8.0, device="lazy").view(4, 2), torch.arange(4, device="lazy"))
    batches = list(DataLoader(data, batch_size=2))
    assert [x.device.type for x, _ in batches] == ["lazy", "lazy"]
    assert [(x.sum().item(), y.tolist()) for x, y in batches] == [(6, [0, 1]), (22, [2, 3])]


def _ahead(batches: Iterable[Any], depth: int) -> Iterator[Any]:
    """What a thread has put on the device while earlier batches were used."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)

    def fill() -> None:
        for batch in batches:
            ready.put([t.to("lazy", non_blocking=True) for t in batch])
        ready.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    while (batch := ready.get()) is not None:
        yield batch
    thread.join()


def test_batches_that_a_thread_puts_on_the_device_ahead_train_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
    model = torch.nn.Linear(4, 1)
    twin = copy.deepcopy(model).to("lazy")

    def train(m: torch.nn.Module, batches: Iterable[Any]) -> list[float]:
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(m(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [float(v) for v in losses]

    expected = train(model, DataLoader(data, batch_size=4))
    assert train(twin, _ahead(DataLoader(data, batch_size=4), 3)) == pytest.approx(expected, rel=1e-5)
    assert lazy_core.report().counters["compiles"] <= 4
