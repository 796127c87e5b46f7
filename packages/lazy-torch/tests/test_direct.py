"""What runs without boxing is what the boxed kernel gives: values to the last bit, strides, what is written to, and errors."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import defaultdict

import pytest
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import lazy_core
from lazy_torch import build

NATIVE = build.native()
NAMES = sorted(NATIVE.direct_names())
# Functions that torch composes of others, by how their names begin.
COMPOSED = ("nn.functional", "cross", "linalg.multi", "__r", "norm", "native_")
MOST_CALLS = 24  # of an operation


@pytest.fixture(autouse=True)
def natively():
    with lazy_core.options(tier="native"):
        yield
        NATIVE.set_direct(True)


class Calls(TorchDispatchMode):
    """Keeps the calls of the operations that have a direct kernel, with copies of what they were given."""

    def __init__(self):
        super().__init__()
        self.found = defaultdict(list)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::") + ("." + function._overloadname if function._overloadname != "default" else "")
        if name in NAMES and len(self.found[name]) < MOST_CALLS:
            self.found[name].append((function, *tree_map(kept, (args, kwargs or {}))))
        return function(*args, **(kwargs or {}))


def kept(x):
    """A copy of a tensor in the same strides, unless it shows elements more than once."""
    if not isinstance(x, torch.Tensor):
        return x
    if any(stride == 0 for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1):
        return x.detach().clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


def samples():
    """Let torch's own samples run, forwards and backwards."""
    wanted = {name.partition(".")[0].strip("_") for name in NAMES}
    words = {part for name in wanted for part in (name, name.removesuffix("_backward"), name.removesuffix("_forward"))}
    for info in op_db:
        names = {info.name.rpartition(".")[2], info.aten_name, *(alias.name for alias in info.aliases)}
        composed = info.name.startswith(COMPOSED) or info.name in ("mean", "select", "narrow", "matmul")
        if not composed and not names & words:
            continue
        for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
            if dtype not in info.supported_dtypes("cpu") or (composed and dtype != torch.float32):
                continue
            gradients = dtype == torch.float32 and info.supports_autograd
            for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=gradients), 4):
                try:
                    out = info(sample.input, *sample.args, **sample.kwargs)
                    for tensor in tree_flatten(out)[0]:
                        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                            tensor.sum().backward(retain_graph=True)
                except (RuntimeError, NotImplementedError):  # what torch's CPU cannot do either
                    continue


def training():
    """Optimizers, for what they do to lists of tensors."""
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, foreach=False),
        lambda p: torch.optim.RMSprop(p, lr=0.1, foreach=True),
    ):
        model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(4, 3))
        optimizer = make(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(torch.randn(6, 5)), torch.randint(0, 3, (6,))).backward()
            optimizer.step()
    a = torch.randn(3, 4)
    a.mul_(2.0).addcmul_(a, a, value=0.5).addcdiv_(a, a.abs() + 1.0).lerp_(torch.ones(3, 4), 0.25)
    torch.ops.aten.mul_.Scalar(a, 3.0)
    torch.clamp(a, 0.2, 0.8)
    torch.nn.functional.batch_norm(torch.randn(2, 3, 4, requires_grad=True), torch.zeros(3), torch.ones(3), training=True).sum().backward()
    for function in (torch.ops.aten.add.Scalar, torch.ops.aten.sub.Scalar, torch.ops.aten.mul.Scalar, torch.ops.aten.div.Scalar):
        function(a, 2)
    tensors = [torch.randn(3), torch.randn(2, 2).t()]
    torch._foreach_add_(tensors, 1.0)
    torch._foreach_addcdiv_(tensors, tensors, [t.abs() + 1.0 for t in tensors], 0.5)
    torch._foreach_addcmul_(tensors, tensors, tensors, 0.5)
    torch._foreach_lerp_(tensors, [t * 2.0 for t in tensors], 0.5)
    torch._foreach_div_(tensors, [2.0, 3.0])
    torch._foreach_sqrt([t.abs() for t in tensors])


@pytest.fixture(scope="module")
def calls():
    torch.manual_seed(0)
    with Calls() as mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its samples
        samples()
        training()
    return mode.found


def on_lazy(x):
    if not isinstance(x, torch.Tensor) or (x.dim() == 0 and x.dtype == torch.float64):  # a number that became a tensor stays on the CPU
        return x
    if not x.is_contiguous():
        base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to("lazy")
        return base.as_strided(x.shape, x.stride(), x.storage_offset())
    return x.to("lazy")


def outcome(function, args, kwargs, direct):
    """What a call gives on lazy copies of its arguments, and what the arguments hold afterwards."""
    given = tree_map(on_lazy, (args, kwargs))
    NATIVE.set_direct(direct)
    before = NATIVE.counters()["direct"]
    try:
        result = function(*given[0], **given[1])
    except Exception as error:
        result = (type(error), str(error).partition("\n")[0])
    ran = NATIVE.counters()["direct"] - before
    NATIVE.set_direct(True)
    shown = []
    for x in (*tree_flatten(result)[0], *tree_flatten(given)[0]):
        if isinstance(x, torch.Tensor):
            shown.append((x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x.device.type, x.cpu().numpy().tobytes()))
        else:
            shown.append(repr(x))
    return shown, ran


@pytest.mark.parametrize("name", NAMES)
def test_a_direct_kernel_gives_what_the_boxed_one_gives(name, calls):
    assert calls[name], f"no sample calls {name}"
    took = 0
    for function, args, kwargs in calls[name]:
        boxed, none = outcome(function, args, kwargs, False)
        direct, ran = outcome(function, args, kwargs, True)
        assert direct == boxed
        assert none == 0
        took += ran
    assert took > 0


def pair():
    a = torch.arange(12.0, device="lazy").reshape(3, 4)
    return a, a.clone()


def test_what_is_written_to_keeps_its_views_and_leaves_copies_alone():
    a, b = pair()
    row, shared = a[1], a.detach()
    host = a.cpu()
    a.add_(1.0)
    a.mul_(torch.tensor(2.0))
    assert torch.equal(row.cpu(), (b[1].cpu() + 1.0) * 2.0)
    assert torch.equal(shared.cpu(), (b.cpu() + 1.0) * 2.0)
    assert torch.equal(host, b.cpu())
    row.sub_(5.0)
    assert torch.equal(a.cpu()[1], (b[1].cpu() + 1.0) * 2.0 - 5.0)


def test_a_kept_view_follows_its_tensor():
    a, _ = pair()
    first = (a + 0.0).cpu()
    a.t_()
    assert torch.equal((a + 0.0).cpu(), first.t())
    a.resize_(2, 2)
    assert (a + 0.0).shape == (2, 2)
    a.set_(torch.ones(5, device="lazy"))
    assert torch.equal((a + 0.0).cpu(), torch.ones(5))
    a.data = torch.zeros(3, device="lazy")
    assert torch.equal((a + 1.0).cpu(), torch.ones(3))
    torch.add(a, 2.0, out=a.resize_(0))
    assert a.shape == (0,)


def test_other_devices_and_bits_are_left_to_the_boxed_kernel():
    a, _ = pair()
    with pytest.raises(RuntimeError, match="at least two devices"):
        a + torch.ones(3, 4)
    assert torch.equal((a + torch.tensor(1)).cpu(), a.cpu() + 1)
    z = torch.complex(a, a).conj()
    assert torch.equal((z * 2.0).cpu(), z.cpu() * 2.0)
    assert torch.equal((z.imag + 1.0).cpu(), z.cpu().imag + 1.0)


def test_a_pending_value_is_computed_first():
    with lazy_core.options(tier="compiled"):
        a = torch.arange(4.0, device="lazy") * 2.0
    b = a + 1.0
    assert torch.equal(b.cpu(), torch.arange(4.0) * 2.0 + 1.0)


def test_inference_and_gradients_may_alternate():
    w = torch.ones(3, device="lazy", requires_grad=True)
    with torch.inference_mode():
        inferred = w * 2.0
        assert torch.equal((inferred + w).cpu(), torch.full((3,), 3.0))
        inferred.add_(1.0)
    loss = (w * w).sum()
    loss.backward()
    assert torch.equal(w.grad.cpu(), torch.full((3,), 2.0))
    assert torch.equal(inferred.cpu(), torch.full((3,), 3.0))
    with pytest.raises(RuntimeError, match="inference"):
        inferred.add_(1.0)


def test_backward_runs_in_the_thread_that_asks():
    seen = []
    x = torch.ones(3, device="lazy", requires_grad=True)
    y = x * 2.0
    y.register_hook(lambda _: seen.append(threading.get_ident()))
    y.sum().backward()
    assert seen == [threading.get_ident()]
