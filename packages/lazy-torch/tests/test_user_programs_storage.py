"""Programs as users write them (`user_programs.py` judges them): storages, views, files, devices; and errors of what there is not."""

from __future__ import annotations

import copy
import io
import pickle
import runpy
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

tools = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("user_programs.py"))))
program, PROGRAMS = tools.program, tools.PROGRAMS


# ------------------------------------------------------------------ storages, views, in-place operations


@program(may_fall_back=("nonzero",))
def writes_through_views(d: str) -> Any:
    x = torch.arange(24.0, device=d).view(2, 3, 4).clone()
    x[0].add_(1)
    x[:, 1].mul_(2)
    x.transpose(0, 2)[1:3].sub_(3)
    x.diagonal(0, 1, 2).zero_()
    a, b = x.split([1, 2], 1)
    b.copy_(a.expand_as(b))
    x.flatten()[5:7] = 9
    x.unfold(2, 2, 1)[0, 0, 0].fill_(-1)
    x.permute(2, 0, 1).select(0, 1).exp_()
    x[x > 10] = 0
    x[[0, 1], [1, 2]] = 7
    x.as_strided((2, 2), (3, 1), 1).add_(100)
    x.detach().add_(1)
    return x, x.view(torch.int32)


@program()
def views_and_writes_under_autograd(d: str) -> Any:
    p = torch.arange(6.0).to(d).requires_grad_()
    x = p * 2
    x[1:3].mul_(3)
    x.view(2, 3)[1].mul_(4)
    v = x[::2]
    v += 1
    x.sigmoid().sum().backward()
    return p.grad


@program()
def writing_to_a_saved_tensor(d: str) -> Any:
    x = torch.ones(3, device=d, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@program()
def complex_numbers(d: str) -> Any:
    z = torch.arange(4.0).view(2, 2).to(d)
    c = torch.view_as_complex(z)
    product = c.conj() * c + c.abs()
    torch.view_as_real(c)[0].mul_(5)
    return torch.view_as_real(product.resolve_conj()), z, c.real, c.imag, torch.fft.ifft(torch.fft.fft(c)), c.angle()


@program()
def results_in_given_tensors(d: str) -> Any:
    out = torch.empty(0, device=d)
    torch.add(torch.ones(3, device=d), 1, out=out)
    x = torch.ones(2, device=d)
    x.resize_(4)
    y = torch.zeros(3, device=d)
    y.set_(torch.ones(5, device=d))
    return out, x[:2], x.shape, y


@program()
def assigning_data(d: str) -> Any:
    p = nn.Parameter(torch.ones(2, device=d))
    old = p.detach()
    p.data = torch.zeros(2, device=d)
    p.data.add_(3)
    p.grad = torch.ones(2, device=d)
    return p, old, p.grad


@program()
def storages_and_addresses(d: str) -> Any:
    x = torch.zeros(4, device=d)
    y = x[1:]
    return (
        x.untyped_storage()._cdata == y.untyped_storage()._cdata,
        y.data_ptr() - x.data_ptr(),
        torch.empty(3, device=d).data_ptr() != x.data_ptr(),
        y.is_set_to(x[1:]),
        x.untyped_storage().nbytes(),
    )


# ------------------------------------------------------------------ devices, files, processes


@program()
def copies_and_pickles(d: str) -> Any:
    torch.manual_seed(0)
    m = nn.Linear(3, 2).to(d)
    twin = copy.deepcopy(m)
    with torch.no_grad():
        twin.weight.add_(1)
    return m.weight, twin.weight, pickle.loads(pickle.dumps(m.weight)), pickle.loads(pickle.dumps(m)).bias


@program()
def saving_and_loading(d: str) -> Any:
    torch.manual_seed(0)
    m = nn.Linear(3, 2).to(d)
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    on_cpu = torch.load(file, map_location="cpu")
    file.seek(0)
    back = torch.load(file)
    m.load_state_dict({k: v + 1 for k, v in on_cpu.items()})
    return on_cpu, back["weight"].device.type == d, dict(m.state_dict())


@program()
def saving_shared_storages(d: str) -> Any:
    x = torch.arange(6.0, device=d)
    file = io.BytesIO()
    torch.save({"a": x, "b": x[2:4]}, file)
    file.seek(0)
    loaded = torch.load(file)
    loaded["a"][2] = 50
    return loaded["b"]


@program()
def loading_data(d: str) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(16.0).view(8, 2)), batch_size=4)
    return [x.to(d, non_blocking=True).sum() for (x,) in loader]


@program()
def numbers_and_host_tensors_mixed(d: str) -> Any:
    x = torch.ones(3, device=d)
    return x + 1, x * torch.tensor(2.5, dtype=torch.float64), 3 - x, x.double() / 3, x.to(torch.int8) + True


@program()
def another_thread(d: str) -> Any:
    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append((torch.ones(3, device=d) * 2).sum().item()))
    thread.start()
    thread.join()
    return results


@program()
def moving_a_module_keeps_its_parameters(d: str) -> Any:
    m = nn.Linear(2, 2)
    p = m.weight
    m.to(d)
    return p is m.weight, p.device.type == d, m.to(torch.float64).weight.dtype


@program()
def generators(d: str) -> Any:
    g = torch.Generator(device=d).manual_seed(3)
    a = torch.randn(3, device=d, generator=g)
    state = g.get_state()
    b = torch.randn(3, device=d, generator=g)
    g.set_state(state)
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0] if d == "lazy" else [], device_type=d if d == "lazy" else "cuda"):
        torch.rand(3, device=d)
    first = torch.rand(3, device=d)
    torch.manual_seed(5)
    return g.initial_seed(), torch.equal(b, torch.randn(3, device=d, generator=g)), torch.equal(first, torch.rand(3, device=d)), a.shape


@program(rtol=1e-2, atol=1e-2)
def autocast_and_gradient_scaling(d: str) -> Any:
    torch.manual_seed(0)
    m, x = nn.Linear(4, 4).to(d), torch.randn(2, 4).to(d)
    o = torch.optim.SGD(m.parameters(), 0.1)
    scaler = torch.amp.GradScaler(d)
    with torch.autocast(d, dtype=torch.bfloat16):
        y = m(x)
        loss = F.mse_loss(y, x)
    scaler.scale(loss).backward()
    scaler.step(o)
    scaler.update()
    return y, loss, y.dtype, loss.dtype, scaler.get_scale(), dict(m.state_dict())


@program()
def compiled_functions(d: str) -> Any:
    torch._dynamo.reset()
    eager = torch.compile(lambda x: (x * 2).relu() + 1, backend="eager")
    x = torch.tensor([1.0, -2, 3]).to(d).requires_grad_()
    y = eager(x)
    y.sum().backward()
    return y, x.grad


# ------------------------------------------------------------------ the test


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode scripts its decompositions
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_user_program_gives_what_the_cpu_gives(name: str) -> None:
    tools.judge(PROGRAMS[name])


def test_what_a_device_cannot_do_is_a_clear_error() -> None:
    x = torch.ones(2, device="lazy")
    with pytest.raises(TypeError, match="can't convert lazy:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match=r"same device.*lazy:0 and cpu"):
        (x + torch.ones(2)).sum().item()
    with pytest.raises(NotImplementedError, match="sparse tensors do not exist on the lazy device"):
        torch.eye(3).to_sparse().to("lazy")
    with pytest.raises(RuntimeError, match="one lazy device"):
        torch.ones(2, device="lazy:1")
