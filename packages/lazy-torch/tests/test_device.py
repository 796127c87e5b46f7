"""The device as torch sees it: factories, properties, printing, the module torch.lazy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import lazy_core
import lazy_torch
from lazy_torch import dtypes
from lazy_torch.frontend import FRONTEND


def test_factories_make_lazy_tensors_with_the_values_of_the_cpu() -> None:
    def make(device: str) -> list[torch.Tensor]:
        return [
            torch.zeros(2, 3, device=device),
            torch.ones(3, device=device, dtype=torch.int64),
            torch.full((2,), 3.5, device=device),
            torch.eye(3, device=device),
            torch.arange(1, 10, 2, device=device),
            torch.linspace(0, 1, 5, device=device),
            torch.tensor([[1, 2], [3, 4]], device=device),
            torch.tril_indices(3, 3, device=device),
            torch.zeros(0, 3, device=device),
        ]

    for lazy, cpu in zip(make("lazy"), make("cpu"), strict=True):
        assert lazy.device == torch.device("lazy", 0)
        assert lazy.dtype == cpu.dtype
        assert lazy.stride() == cpu.stride()
        assert torch.equal(lazy.cpu(), cpu)


def test_default_device_context() -> None:
    with torch.device("lazy"):
        assert torch.ones(2).device.type == "lazy"
        assert nn.Linear(2, 2).weight.device.type == "lazy"


@pytest.mark.parametrize("dtype", [dtypes.to_torch(d) for d in dtypes.DTYPES], ids=str)
def test_every_dtype_survives_the_round_trip(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 2, 3]).to(dtype)
    y = x.to("lazy")
    assert y.dtype == dtype
    assert torch.equal(y.cpu().view(torch.uint8), x.view(torch.uint8))
    assert y.to(torch.complex64).tolist() == x.to(torch.complex64).tolist()


def test_dtype_table_agrees_with_torch() -> None:
    for dtype in dtypes.DTYPES:
        t = torch.empty(2, dtype=dtypes.to_torch(dtype), device="lazy").zero_()
        assert lazy_torch.to_lazy(t).shape.dtype == dtype


def test_conversion_after_the_move_holds() -> None:
    model = nn.Linear(2, 2).to("lazy").to(torch.bfloat16)
    assert model.weight.dtype == torch.bfloat16
    assert torch.ones(2, dtype=torch.float64, device="lazy").dtype == torch.float64
    assert torch.tensor([2**40], device="lazy").add(1).item() == 2**40 + 1
    assert torch.tensor([-3], dtype=torch.int32, device="lazy").to(torch.int64).item() == -3


def test_printing_and_host_reads() -> None:
    x = torch.arange(6.0, device="lazy").view(2, 3)
    assert "lazy:0" in repr(x) and "5." in repr(x)
    assert x.sum().item() == 15
    assert x.tolist()[1][2] == 5
    assert bool((x >= 0).all())
    assert f"{x.sum():.2f}" == "15.00"
    assert [row.sum().item() for row in x] == [3.0, 12.0]
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()


def test_a_read_flushes_everything_live_once() -> None:
    x = torch.ones(3, device="lazy")
    y, z = x + 1, x * 3
    lazy_core.reset_report()
    y.sum().item()
    z.sum().item()
    assert lazy_torch.is_pending(x + 1)
    counters = lazy_core.report().counters
    assert counters["barriers"] == 2  # the second read is of a new sum, of a z that is there already
    assert not lazy_torch.is_pending(z)


def test_device_module() -> None:
    assert torch.lazy.is_available() and torch.lazy.device_count() == 1 and torch.lazy.current_device() == 0
    assert torch.accelerator.current_accelerator().type == "lazy"
    with torch.lazy.device(0):
        torch.lazy.synchronize()
    torch.lazy.synchronize("lazy:0")
    assert not torch.lazy._is_in_bad_fork()
    assert torch.ones(2).lazy().device.type == "lazy"


def test_addresses_follow_storage_and_offset() -> None:
    x = torch.zeros(4, device="lazy")
    y = x[1:]
    assert x.untyped_storage()._cdata == y.untyped_storage()._cdata
    assert y.data_ptr() - x.data_ptr() == 4
    assert torch.empty(3, device="lazy").data_ptr() != x.data_ptr()
    assert x.is_set_to(x) and not x.is_set_to(y)


def test_values_are_shared_with_the_core_without_a_copy() -> None:
    x = torch.arange(4.0, device="lazy")
    value = lazy_torch.to_lazy(x)
    y = lazy_torch.from_lazy(value)
    x.add_(1)
    assert y.tolist() == [0, 1, 2, 3] and x.tolist() == [1, 2, 3, 4]
    lazy_core.barrier()
    assert lazy_torch.to_lazy(x).array is not None
    assert lazy_torch.to_lazy(x[1:]).shape.dims == (3,)
    with pytest.raises(TypeError):
        lazy_torch.to_lazy(torch.ones(2))


def test_frontend_object() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = FRONTEND.from_numpy(a)
    assert FRONTEND.is_lazy(t) and not FRONTEND.is_lazy(FRONTEND.native(a))
    assert np.array_equal(FRONTEND.to_numpy(t * 2), a * 2)
    assert FRONTEND.to_numpy(FRONTEND.from_numpy(np.float32(3))).shape == ()


def test_a_pending_tensor_can_be_explained_without_running_anything() -> None:
    x = torch.ones(2, device="lazy") + 1
    assert "add" in lazy_core.graph(x)
    assert "f32[2]" in lazy_core.explain(x)
    assert lazy_torch.is_pending(x)


def test_the_default_dtype_is_part_of_what_is_recorded() -> None:
    """A call that was recorded under one default dtype is not repeated under another."""

    def dtypes() -> list[torch.dtype]:
        one = torch.ones(2, dtype=torch.int64, device="lazy")
        made = [torch.arange(0.0, 3.0, device="lazy"), torch.full((2,), 1.5, device="lazy"), torch.linspace(0, 1, 3, device="lazy")]
        return [t.dtype for t in (*made, one / 2, one.sqrt(), one * 1.5, torch.ones(2, device="lazy"), torch.eye(2, device="lazy"))]

    for default in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            assert set(dtypes()) == {default}
            assert (torch.ones(2, dtype=torch.int64, device="lazy") / 3)[0].item() == (torch.ones(2, dtype=torch.int64) / 3)[0].item()
        finally:
            torch.set_default_dtype(torch.float32)
