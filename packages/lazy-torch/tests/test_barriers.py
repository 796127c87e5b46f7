"""Loops without any marker or hook, schedules, shared buffers, forks, interrupts and exits, all through torch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as torch_optimizer

import lazy_core
import lazy_torch
from lazy_core import causes, ops, values
from lazy_core.cache import cache
from lazy_torch.source import SOURCE


def programs() -> float:
    """How many programs were compiled or loaded."""
    counters = lazy_core.report().counters
    return counters["compiles"] + counters["disk_hits"]


@pytest.fixture(autouse=True)
def clean() -> None:
    """Each test starts with empty caches and no loop known."""
    lazy_core.barrier()
    cache.clear()
    causes.forget()
    SOURCE.cutter.period = None
    lazy_core.barrier()
    lazy_core.reset_report()


@pytest.fixture
def without_hooks() -> Iterator[None]:
    """Torch's global hooks after optimizer steps are gone for a while."""
    hooks = torch_optimizer._global_optimizer_post_hooks
    before = dict(hooks)
    hooks.clear()
    yield
    hooks.update(before)


def loop(device: str, steps: int, adam: bool, mark: bool = False, log_every: int = 0) -> tuple[torch.Tensor, list[float]]:
    """A training loop; the first weight at the end, and how many programs there were at each logging line."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).to(device)
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 4).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3) if adam else None
    seen = []
    for k in range(steps):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if optimizer:
            optimizer.step()
        else:
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
        if mark:
            lazy_core.barrier()
        if log_every and k % log_every == log_every - 1:
            loss.item()
            seen.append(programs())
    return model[0].weight.detach().cpu(), seen


@pytest.mark.usefixtures("without_hooks")
@pytest.mark.parametrize("adam", [False, True])
def test_a_training_loop_without_any_hook_compiles_its_body_a_bounded_number_of_times(adam: bool) -> None:
    """Steps without hook, barrier or read: at most four programs, many barriers, the values of a marked loop and of the CPU."""
    unmarked, _ = loop("lazy", 200, adam)
    counters = lazy_core.report().counters
    assert programs() <= 4
    assert counters["barriers"] >= 10
    marked, _ = loop("lazy", 200, adam, mark=True)
    torch.testing.assert_close(unmarked, marked, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(unmarked, loop("cpu", 200, adam)[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_logging_line_every_tenth_step_recompiles_nothing_once_seen(hooked: bool, request: pytest.FixtureRequest) -> None:
    """With the optimizer's hook and without it."""
    if not hooked:
        request.getfixturevalue("without_hooks")
    _, seen = loop("lazy", 120, adam=True, log_every=10)
    assert seen[-1] == seen[3] <= 5, seen


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.Adam(p, 0.1, capturable=False)])
def test_a_schedule_over_a_thousand_values_compiles_at_most_twice_after_the_first_step(make: Any) -> None:
    """Adam's bias corrections are numbers that change every step, too."""
    p = nn.Parameter(torch.ones(3, device="lazy"))
    q = nn.Parameter(torch.ones(3))
    seen = []
    optimizers = make([p]), make([q])
    for k in range(1000):
        for parameter, optimizer in zip((p, q), optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
            optimizer.zero_grad()
            (parameter * parameter).sum().backward()
            optimizer.step()
        lazy_core.barrier()
        seen.append(programs())
    assert seen[-1] - seen[0] <= 2
    assert seen[-1] == seen[3], seen[:6]
    torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-4, atol=1e-6)


SIZE = 300_000  # over a megabyte: a variant that donates is compiled for this


def test_values_shared_with_the_core_outlive_training() -> None:
    """A buffer that another frontend holds is never given to an update in place."""
    w = torch.full((SIZE,), 2.0, device="lazy")
    lazy_core.barrier()
    shared = lazy_torch.to_lazy(w)
    back = lazy_torch.from_lazy(shared)
    for _ in range(4):
        w.mul_(0.5)
        lazy_core.barrier()
    assert w[0].item() == 0.125
    assert (values.to_host(shared) == 2).all()
    assert back[-1].item() == 2
    assert values.to_host(ops.add(shared, shared))[0] == 4


def test_exported_buffers_and_views_outlive_training() -> None:
    """DLPack, NumPy and a view of an old storage, while the parameter goes on in place."""
    w = torch.full((SIZE,), 2.0, device="lazy")
    lazy_core.barrier()
    array = lazy_torch.to_lazy(w).array
    exported, seen = torch.from_dlpack(array), np.from_dlpack(array)
    del array
    copy = w.cpu()
    view = w[10:20]
    kept = w.clone()
    for _ in range(4):
        w.mul_(0.5)
        lazy_core.barrier()
    del w
    assert view.tolist() == [0.125] * 10
    assert (exported == 2).all()
    assert (seen == 2).all()
    assert (copy == 2).all()
    assert (kept.cpu() == 2).all()


def test_saved_tensors_and_data_swaps_survive_donation() -> None:
    """What autograd saved is needed by backward though its tensor is gone; a swapped `.data` keeps the old storage for who holds it."""
    w = torch.full((SIZE,), 3.0, device="lazy", requires_grad=True)
    lazy_core.barrier()
    y = (w * w).sum()
    lazy_core.barrier()
    old = w.data
    w.data = w.data * 0 + 1
    lazy_core.barrier()
    y.backward()
    assert w.grad is not None
    assert old[0].item() == 3
    assert w[5].item() == 1


def test_eight_threads_train_at_the_same_time() -> None:
    """Each with torch's backward thread; some read, some leave barriers to the system."""
    results: dict[int, torch.Tensor] = {}
    errors: list[BaseException] = []

    def train(device: str, k: int) -> torch.Tensor:
        w = torch.randn(4, 4, generator=torch.Generator().manual_seed(k)).to(device).requires_grad_()
        for step in range(12):
            (w @ w).tanh().sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad  # type: ignore[operator]
            w.grad = None
            if k % 3 == 0 and step % 4 == 0:
                w.sum().item()
        return w.detach().cpu()

    def work(k: int) -> None:
        try:
            results[k] = train("lazy", k)
        except BaseException as error:  # raised in the main thread below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # a barrier of one thread while another one drops a tensor
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join(timeout=120)
            assert not t.is_alive(), "deadlock"
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors
    for k in range(8):
        torch.testing.assert_close(results[k], train("cpu", k), rtol=1e-4, atol=1e-5)


PREAMBLE = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, lazy_core, lazy_torch
from torch import nn
x = torch.ones(3, device="lazy")
"""


def run(body: str, status: int = 0, **env: str) -> str:
    """Run a program in a process of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(body)],
        capture_output=True, text=True, timeout=180, env={**os.environ, "LAZY_CACHE_DIR": "off", **env},
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout


def test_a_data_loader_with_forked_workers_feeds_lazy_training() -> None:
    """Workers are forked with pending work in the parent; they handle CPU tensors only, as with CUDA."""
    out = run(
        """
        from torch.utils.data import DataLoader, TensorDataset
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        model = nn.Linear(4, 1).to("lazy")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for epoch in range(2):
            for a, b in DataLoader(data, batch_size=16, num_workers=2, multiprocessing_context="fork"):
                optimizer.zero_grad()
                loss = ((model(a.to("lazy")) - b.to("lazy")) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        print(len(losses), all(torch.isfinite(l).item() for l in losses))
        """
    )
    assert out.strip() == "8 True"


def test_a_forked_child_that_uses_pending_tensors_gets_a_clear_error() -> None:
    """And the parent goes on."""
    out = run(
        """
        y = x + 1
        (x * 3).sum().item()
        z = y * 2
        child = os.fork()
        if child == 0:
            try:
                z.tolist()
            except Exception as error:
                print("child:", "spawn" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", z.tolist(), flush=True)
        """
    )
    assert out.splitlines() == ["child: True", "parent: [4.0, 4.0, 4.0]"]


def test_exit_with_pending_work_is_silent() -> None:
    """Pending tensors, gradients and a module that outlive the interpreter's modules."""
    assert (
        run(
            """
            import builtins
            model = nn.Linear(3, 3).to("lazy")
            (model(x) + x).sum().backward()
            sys.keep, builtins.keep, torch.keep = x + 1, model, model.weight.grad
            """
        )
        == ""
    )


def test_an_interrupt_during_a_compile_leaves_everything_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while XLA compiles: the next read starts over."""
    y = torch.full((7,), 0.5, device="lazy").sin().cos()

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lazy_core.backend.Program.compile", interrupted)
    monkeypatch.setattr("lazy_core.backend.deserialise", lambda payload: None)
    with pytest.raises(KeyboardInterrupt):
        y.tolist()
    monkeypatch.undo()
    assert lazy_torch.is_pending(y)
    torch.testing.assert_close(y.cpu(), torch.full((7,), 0.5).sin().cos())


def test_a_real_interrupt_ends_in_a_consistent_state() -> None:
    """A signal at any moment of a loop that compiles all the time: KeyboardInterrupt, and then everything works."""
    out = run(
        """
        import signal, threading, time
        done = threading.Event()
        def interrupt():
            while not done.wait(1.5):  # one that arrives in a destructor or in jax's garbage callback is swallowed there
                os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        y = x
        try:
            n = 0
            while True:
                n += 1
                y = torch.ones(n, device="lazy").sin() + 1
                y.sum().item()
        except KeyboardInterrupt:
            done.set()
            print("interrupted")
        y = torch.ones(5, device="lazy") + x[0]
        print(y.tolist(), (x + 1).tolist())
        """
    )
    assert out.splitlines() == ["interrupted", "[2.0, 2.0, 2.0, 2.0, 2.0] [2.0, 2.0, 2.0]"]


def test_interrupts_at_any_moment_of_training_lose_no_step() -> None:
    """Some hundred signals at random moments: each is raised once, and the parameter is what some number of steps made of it."""
    out = run(
        """
        from lazy_core.testing import interrupt_at_random
        p = torch.nn.Parameter(torch.zeros(30, 30, device="lazy"))
        optimizer = torch.optim.SGD([p], lr=1.0)
        def step(k):
            optimizer.zero_grad()
            p.sum().backward()
            optimizer.step()
            torch.ones(k % 40 + 1, device="lazy").sin().sum().item()
        print(interrupt_at_random(step, lambda: -p.detach().cpu()) > 5)
        """
    )
    assert out == "True\n"


def test_garbage_cycles_recompile_nothing() -> None:
    """Tensors in reference cycles stay alive until the collector comes by, at another step each time."""
    import gc

    class Node:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor, self.me = tensor, self

    w = torch.ones(4, device="lazy")
    seen = []
    gc.disable()
    try:
        for k in range(60):
            y = (w * 0.5).sin()
            Node(y)
            w = (y + 1) * 0.9
            del y
            if k % 7 == 3:
                gc.collect()
            lazy_core.barrier()
            seen.append(programs())
    finally:
        gc.enable()
    assert seen[-1] <= 3, seen


def test_a_failing_execution_surfaces_at_reads_of_what_depends_on_it_and_nowhere_else() -> None:
    """Tensors of the same program that do not depend on the failure are there; using a failed one raises the first error again."""
    import jax

    from lazy_core.errors import ExecutionError
    from lazy_core.ops.registry import Op

    def explode(x: Any) -> Any:
        raise ValueError("out of luck")

    op = Op.unregistered("test_torch_explodes", lambda v: jax.pure_callback(explode, jax.ShapeDtypeStruct(v.shape, v.dtype), v))
    x = torch.ones(3, device="lazy")
    broken = lazy_torch.from_lazy(values.record(op, (lazy_torch.to_lazy(x),))) * 2
    fine = x * 5
    with pytest.raises((ExecutionError, RuntimeError), match="out of luck"):
        lazy_core.barrier()
    for _ in range(2):
        with pytest.raises((ExecutionError, RuntimeError), match="out of luck"):
            broken.tolist()
    later, other = broken + 1, fine + 1
    with pytest.raises((ExecutionError, RuntimeError), match="out of luck"):
        later.tolist()
    assert fine.tolist() == [5, 5, 5]
    assert other.tolist() == [6, 6, 6]
