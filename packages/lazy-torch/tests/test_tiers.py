"""Native and compiled execution of the same programs: the same values, errors and random numbers, and no stall where nothing repeats."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lazy_core
from lazy_core import compiling, tiers, trials
from lazy_core.allowance import allowance
from lazy_core.disk import disk
from lazy_core.testing import first_verdict
from lazy_torch import _native, awake
from lazy_torch.source import SOURCE

LAZY = "lazy"


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording can begin at once, and measuring takes a few runs of each tier, however short they are."""
    awake.finish()
    monkeypatch.setattr(trials, "_WARM_SECONDS", 0.0)


@pytest.fixture(params=["auto", "native", "compiled"])
def tier(request: pytest.FixtureRequest) -> Any:
    """The tiers in turn; in "auto" learning is not rationed, so that every test learns."""
    with lazy_core.options(tier=request.param, learn_percent=10_000):
        allowance.restart()
        yield request.param
        lazy_core.barrier()
        compiling.wait(60)


def train(
    device: str, make: Callable[[], nn.Module], optimizer: Callable[..., torch.optim.Optimizer], steps: int, settle: bool = False
) -> Any:
    """Losses and parameters of a small training run."""
    torch.manual_seed(0)
    model = make().to(device)
    opt = optimizer(model.parameters())
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(steps):
        x = torch.randn(8, 12, generator=generator).to(device)
        y = torch.randint(0, 5, (8,), generator=generator).to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
        if settle and step % 4 == 3:
            lazy_core.barrier()
            assert compiling.wait(60)
    return torch.stack(losses).cpu(), [p.detach().cpu() for p in model.parameters()]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))


def broad() -> nn.Module:
    """Of which a step takes longer than a trace has to, to be recorded, on any machine."""
    return nn.Sequential(nn.Linear(12, 377), nn.Tanh(), nn.Linear(377, 377), nn.Tanh(), nn.Linear(377, 5))


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, 1e-2),
    lambda p: torch.optim.AdamW(p, 1e-2, foreach=False),
])  # fmt: skip
def test_training_is_the_same_on_every_tier_and_across_the_change(tier: str, optimizer: Any) -> None:
    """Natively, recorded and run natively, compiled in turns, and compiled: forty steps pass through all of it in auto."""
    expected = train("cpu", mlp, optimizer, 40)
    found = train(LAZY, mlp, optimizer, 40, settle=True)
    torch.testing.assert_close(found[0], expected[0], rtol=2e-5, atol=2e-5)
    for mine, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=5e-4, atol=5e-5)


def test_what_repeats_is_compiled_and_what_is_compiled_was_measured() -> None:
    with lazy_core.options(tier="auto", learn_percent=10_000):
        lazy_core.reset_report()
        known = tiers.trials()
        decided: list[tiers.Trial] = []
        for _ in range(20):  # a trial lasts some time, however short the runs
            train(LAZY, broad, lambda p: torch.optim.SGD(p, 0.1), 80, settle=True)
            decided = [t for t in tiers.trials() if t.verdict is not None and not any(t is k for k in known)]
            if decided:
                break
        assert lazy_core.report().counters["compiles"] >= 1
        assert decided
        for trial in decided:
            assert trial.native_runs > 0
            assert trial.reason


def test_native_rounds_are_timed_as_they_run_when_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while the step runs as it comes, and the median round that the extension tells is what a clock beside it says."""
    tried: list[list[Any]] = []
    begin, end = SOURCE.try_natively, SOURCE.tried

    def now() -> list[Any]:
        return [time.perf_counter(), _native.counters()["immediate_traces"]]

    def try_natively(seconds: float) -> bool:
        tried.append([seconds, *now()])
        return begin(seconds)

    def ended() -> float | None:
        found = end()
        tried[-1] += [*now(), found]
        return found

    monkeypatch.setattr(SOURCE, "try_natively", try_natively)
    monkeypatch.setattr(SOURCE, "tried", ended)

    def timed() -> list[list[Any]]:
        return [t for t in tried if len(t) == 6 and t[5] is not None]

    x, y = torch.randn(8, 12), torch.randint(0, 5, (8,))

    def trained(device: str, seed: int, most: int) -> tuple[torch.Tensor, int]:
        """The last loss, and after how many steps: until native rounds were timed, if that comes first."""
        torch.manual_seed(seed)
        layers = [nn.Linear(12, 389 + seed), nn.Tanh(), nn.Linear(389 + seed, 389 + seed), nn.Tanh(), nn.Linear(389 + seed, 5)]
        model, here = nn.Sequential(*layers).to(device), (x.to(device), y.to(device))  # no other test's trace: that was judged
        opt = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(1, most + 1):
            opt.zero_grad()
            loss = F.cross_entropy(model(here[0]), here[1])
            loss.backward()
            opt.step()
            if step % 100 == 0 and device == LAZY and timed():
                break
        return loss.detach().cpu(), step

    with lazy_core.options(tier="auto", learn_percent=10_000):
        for seed in range(10):  # a trial compares no rounds where the machine was busy
            mine, steps = trained(LAZY, seed, 6000)
            torch.testing.assert_close(mine, trained("cpu", seed, steps)[0], rtol=1e-3, atol=1e-3)
            if timed():
                break
    assert timed()
    for seconds, began, traces, until, traces_then, median in timed():
        assert 0.1 <= seconds <= 0.5
        assert until - began >= 0.9 * seconds
        mean = (until - began) / (traces_then - traces)
        assert 0.1 * mean < median < 1.5 * mean


def products(size: int) -> Callable[[int], None]:
    """A function that runs a trace: so many products of a matrix with others, and a read."""
    x, w = torch.randn(64, size).to(LAZY), (torch.randn(size, size) / 20).to(LAZY)

    def trace(rounds: int) -> None:
        y = x
        for _ in range(rounds):
            y = (y @ w).tanh()
        y.sum().item()

    return trace


@pytest.mark.parametrize(("other", "found"), [("none", True), ("shorter", False), ("unlike", False)])
def test_rounds_are_timed_only_from_one_trace_to_the_next_that_is_like_it(other: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace that begins alike and has fewer operations, and one that comes between, are no rounds of the one that is timed."""
    trace, unlike = products(300), torch.randn(300, 300).to(LAZY)

    def step() -> None:
        trace(6)
        if other == "shorter":
            trace(2)
        elif other == "unlike":
            unlike.sum().item()

    begun: list[bool] = []
    finish = SOURCE.finish

    def begin(arrays: list[Any], epoch: int) -> None:
        if not any(begun):
            begun.append(SOURCE.try_natively(0.3))  # False where nothing of the trace was recorded
        finish(arrays, epoch)

    monkeypatch.setattr(SOURCE, "finish", begin)
    monkeypatch.setattr(trials.Trial, "try_natively", lambda self: None)  # the test does
    with lazy_core.options(tier="auto", learn_percent=10_000):
        for _ in range(5000):
            trace(6)
            if any(begun):
                break
        assert any(begun)
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            step()
        median = SOURCE.tried()
    assert (median is not None) == found


def test_a_trace_that_runs_compiled_often_is_recorded_though_one_that_begins_like_it_runs_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a step whose loss is read now and then; and if the native one is what comes often, it runs as it comes."""
    trace = products(310)

    def turns(count: int) -> None:
        for _ in range(count):
            for rounds in (7, 7, 7, 2):
                trace(rounds)

    def note(trial: trials.Trial, *_: Any, **__: Any) -> bool:
        trial.decide("compiled" if trial.operations > 10 else "native", "the test says so")
        return False

    monkeypatch.setattr(trials.Trial, "note", note)
    known = tiers.trials()

    def found() -> dict[str, trials.Trial]:
        return {t.verdict: t for t in tiers.trials() if t.verdict and not any(t is k for k in known)}

    with lazy_core.options(tier="auto", learn_percent=10_000):
        for _ in range(400):
            turns(1)
            if len(found()) == 2:
                break
            compiling.wait(60)
        assert set(found()) == {"compiled", "native"}
        turns(20)  # the native one may take a round until that is known
        before = found()["compiled"].compiled_runs
        turns(20)
        assert found()["compiled"].compiled_runs - before >= 55
        for _ in range(100):
            trace(2)
        at_once = _native.counters()["immediate_traces"]
        for _ in range(20):
            trace(2)
        assert _native.counters()["immediate_traces"] - at_once >= 19


@pytest.mark.parametrize("earlier", [False, True])
def test_a_wrong_verdict_does_not_last(earlier: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in this process or in an earlier one, it is looked at again after a while, though its traces run as they come."""
    x = torch.rand(100_000).to(LAZY)

    def step() -> float:
        y = x
        for _ in range(11 + earlier):
            y = torch.tanh(y) * 0.9 + 0.1
        return y.sum().item()

    get, put, kept = disk.get, disk.put, []
    monkeypatch.setattr(disk, "put", lambda kind, key, data: kept.append(data) if kind == "verdict" else put(kind, key, data))
    with lazy_core.options(tier="auto", learn_percent=10_000):
        with monkeypatch.context() as wrong:
            if earlier:
                wrong.setattr(disk, "get", lambda kind, key: b"native" if kind == "verdict" else get(kind, key))
            else:
                wrong.setattr(trials.Trial, "decide_by_times", lambda self, now=None: self.decide_as_before("native", now))
            found = first_verdict(step)
        assert (found.verdict, found.reopened) == ("native", False)
        for _ in range(50):
            step()
        assert (found.verdict, found.reopened) == ("native", False)
        found._again = 0.0
        for _ in range(4000):
            step()
            if found.verdict == "compiled":
                break
            if found.reopened:
                compiling.wait(60)
        assert found.verdict == "compiled"
        assert kept[-1] == b"compiled"
        before = found.compiled_runs
        for _ in range(100):
            step()
        assert found.compiled_runs - before >= 95


def test_traces_that_are_only_known_in_part_run_as_they_come_until_they_are_known() -> None:
    """As a generation step that ends with an array of another length each time: its beginning is recorded once in a while, and no more."""
    x, w = torch.rand(64, 320).to(LAZY), (torch.rand(320, 320) / 320).to(LAZY)

    def step(length: int = 0) -> float:
        y = x
        for _ in range(6):
            y = (y @ w).tanh()
        total = y.sum()
        return (total * torch.ones(length, device=LAZY)).sum().item() if length else total.item()

    with lazy_core.options(tier="native"):
        once = step()
    with lazy_core.options(tier="auto", learn_percent=10_000):
        for _ in range(3000):
            before = _native.counters()
            step()
            after = _native.counters()
            if after["recorded"] - before["recorded"] > after["immediate"] - before["immediate"]:
                break
        assert after["recorded"] - before["recorded"] > after["immediate"] - before["immediate"], "it never became known"
        for length in range(1000, 1400):
            assert step(length) == pytest.approx(length * once, rel=1e-3)
        before = _native.counters()
        for length in range(2000, 2200):
            assert step(length) == pytest.approx(length * once, rel=1e-3)
        after = _native.counters()
        recorded, as_they_came = (after[what] - before[what] for what in ("recorded", "immediate"))
        assert as_they_came >= 0.9 * recorded > 0


def test_shapes_that_never_repeat_compile_nothing() -> None:
    w = torch.randn(6, 6).to(LAZY)
    assert compiling.wait(60)  # what other tests have left in the background would be counted here
    with lazy_core.options(tier="auto"):
        lazy_core.reset_report()
        for n in range(1, 40):
            x = torch.ones(n, 6, device=LAZY)
            assert (x @ w).relu().sum(1).shape == (n,)
            assert (x @ w)[0, 0].item() == pytest.approx(w.cpu().sum(0)[0].item(), rel=1e-5)
        assert compiling.wait(30)
        assert lazy_core.report().counters["compiles"] == 0


def test_tiny_work_runs_where_it_was_measured_faster() -> None:
    """A few small operations and a read take most machines longer to hand over than to run; none may be on the slower tier."""
    x = torch.ones(4).to(LAZY)
    with lazy_core.options(tier="auto", learn_percent=10_000):
        lazy_core.reset_report()
        for k in range(200):
            assert (x * k + 1).sum().item() == 4 * (k + 1)
        assert compiling.wait(30)
        for k in range(200):
            assert (x * k + 1).sum().item() == 4 * (k + 1)
        here = [row for row in lazy_core.report().traces if row.operations <= 4 and __file__ in (row.site or "")]
        for row in here:
            if row.tier == "compiled" and row.reason.startswith("measured"):
                assert row.compiled_seconds is not None and row.native_seconds is not None
                assert row.compiled_seconds < row.native_seconds


def test_random_numbers_do_not_depend_on_the_tier() -> None:
    """Every kind of draw, from the same seed, natively and compiled; and the state afterwards."""

    def draws() -> list[torch.Tensor]:
        torch.manual_seed(7)
        made = [torch.rand(5, 3, device=LAZY), torch.randn(7, device=LAZY), torch.rand(3, device=LAZY, dtype=torch.float64)]
        made += [torch.randn(3, device=LAZY, dtype=torch.float64), torch.randint(-3, 90, (11,), device=LAZY)]
        made += [torch.randperm(13, device=LAZY), torch.bernoulli(torch.full((9,), 0.3, device=LAZY))]
        made += [F.dropout(torch.ones(4, 10, device=LAZY), 0.4), torch.empty(6, device=LAZY).exponential_(2.0)]
        made += [torch.empty(6, device=LAZY).bernoulli_(0.6), torch.empty(5, device=LAZY, dtype=torch.bfloat16).uniform_(-1, 1)]
        made += [torch.empty(4, device=LAZY).cauchy_(), torch.multinomial(torch.ones(6, device=LAZY), 3)]
        made += [torch.empty(8, device=LAZY, dtype=torch.int16).random_(), torch.rand(2, device=LAZY)]
        return [t.cpu() for t in made]

    found = {}
    for name in ("compiled", "native"):
        with lazy_core.options(tier=name):
            found[name] = draws()
    for k, (compiled, native) in enumerate(zip(found["compiled"], found["native"], strict=True)):
        torch.testing.assert_close(native, compiled, rtol=1e-5, atol=1e-6, msg=lambda m, k=k: f"draw {k}: {m}")


def test_views_and_writes_across_changes_of_tier() -> None:
    """Storages hold the same bytes whoever wrote them last."""
    x, base = torch.zeros(4, 6, device=LAZY), torch.zeros(4, 6)
    for round_, name in enumerate(["native", "compiled", "auto", "compiled", "native", "native", "compiled"]):
        with lazy_core.options(tier=name):
            for t in (x, base):
                view = t.t()[1:4]
                view.add_(round_)
                t[:, 0] = round_
                t[1].mul_(2)
                view[:, ::2].copy_(view[:, 1::2])
                flat = t.view(-1)
                flat[3:9] += flat[10:16]
            torch.testing.assert_close(x.cpu(), base, rtol=0, atol=0)
            torch.testing.assert_close(x.t()[2:4].contiguous().cpu(), base.t()[2:4], rtol=0, atol=0)


def test_a_cpu_copy_does_not_change_with_the_tensor(tier: str) -> None:
    x = torch.arange(4.0).to(LAZY)
    before, array = x.cpu(), x.cpu().numpy()
    x.add_(1)
    y = x + 1
    lazy_core.barrier()
    assert before.tolist() == array.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [2, 3, 4, 5]


def test_an_uploaded_tensor_is_a_copy(tier: str) -> None:
    host = torch.ones(3)
    x = host.to(LAZY)
    host.add_(1)
    y = x * 2
    host.add_(1)
    x.add_(5)
    assert y.tolist() == [2, 2, 2]
    assert x.tolist() == [6, 6, 6]
    assert host.tolist() == [3, 3, 3]


def test_errors_are_the_librarys_on_every_tier(tier: str) -> None:
    x = torch.ones(3, device=LAZY)
    with pytest.raises(RuntimeError, match=r"size of tensor a|broadcast"):
        x + torch.ones(4, device=LAZY)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(IndexError):
        x.sum(2)
    with pytest.raises(RuntimeError, match=r"can't be cast|not possible"):
        torch.ones(3, dtype=torch.int64, device=LAZY).add_(1.5)
    assert (x + 1).tolist() == [2, 2, 2]


def test_results_that_alias_and_resize(tier: str) -> None:
    """`out=`, `resize_`, `set_`, `.data =`, results with strides of their own."""
    out = torch.empty(0, device=LAZY)
    torch.add(torch.ones(2, 3, device=LAZY), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]
    x = torch.arange(6.0).to(LAZY)
    y = x.view(2, 3)
    x.data = torch.ones(6, device=LAZY)
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]]
    y.t().mul_(2)
    assert y.flatten().tolist() == [0, 2, 4, 6, 8, 10]
    z = torch.ones(2, 3, 4, 4, device=LAZY).to(memory_format=torch.channels_last)
    assert (z * 2).is_contiguous(memory_format=torch.channels_last)
    assert (z * 2).sum().item() == 192


@pytest.mark.parametrize("name", ["compiled", "native", "auto"])
def test_batch_norm_updates_its_statistics(name: str) -> None:
    """Written to although the schema does not say so."""
    with lazy_core.options(tier=name, learn_percent=10_000):
        norm, plain = nn.BatchNorm1d(5).to(LAZY), nn.BatchNorm1d(5)
        generator = torch.Generator().manual_seed(3)
        for _ in range(6):
            x = torch.randn(7, 5, generator=generator)
            torch.testing.assert_close(norm(x.to(LAZY)).cpu(), plain(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(norm.running_var.cpu(), plain.running_var, rtol=1e-5, atol=1e-6)
        assert norm.num_batches_tracked.item() == 6


def run(code: str, **env: str) -> str:
    """The output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=180, env={**os.environ, "LAZY_CACHE_DIR": "off", "LAZY_TIER": "auto", **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_results_wait_for_no_import() -> None:
    """Neither jax nor the core is imported while a program is young; here that lasts for twenty seconds, for slow machines."""
    out = run(
        """
        import sys, torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)).to("lazy")
        opt = torch.optim.Adam(model.parameters())
        loss = model(torch.randn(3, 4, device="lazy")).square().sum()
        loss.backward(); opt.step(); opt.zero_grad()
        print(loss.item() > 0, "jax" in sys.modules, "lazy_core" in sys.modules)
        """,
        LAZY_LEARN_PERCENT="1",
    )
    assert out == "True False False\n"


def test_exit_while_something_is_being_compiled() -> None:
    """The process ends in order, with its own exit status."""
    out = run(
        """
        import torch, lazy_core
        from lazy_core import compiling
        lazy_core.config.set("learn_percent", 10000)
        w = [torch.randn(64, 64, device="lazy") for _ in range(30)]
        for step in range(40):
            x = torch.ones(64, 64, device="lazy")
            for m in w:
                x = torch.tanh(x @ m) + x.sin()
            lazy_core.barrier()
            if compiling._busy:
                break
        print("compiling", compiling._busy)
        """
    )
    assert out.startswith("compiling")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("name", ["native", "auto"])
def test_recurrent_networks_have_native_cells(kind: type[nn.Module], name: str) -> None:
    """The CPU has no fused cells: ours give the values and gradients of its composed ones."""
    with lazy_core.options(tier=name, learn_percent=10_000):
        torch.manual_seed(0)
        plain = kind(6, 5)
        torch.manual_seed(0)
        mine = kind(6, 5).to(LAZY)
        shape = (4, 6) if "Cell" in kind.__name__ else (3, 4, 6)
        for _ in range(5):
            x = torch.randn(*shape)
            first, second = [], []
            for model, data, kept in ((plain, x, first), (mine, x.to(LAZY), second)):
                out = model(data)
                out = out[0] if isinstance(out, tuple) else out
                model.zero_grad()
                out.square().sum().backward()
                kept += [out.detach().cpu(), *[p.grad.cpu() for p in model.parameters()]]
            for a, b in zip(first, second, strict=True):
                torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


def test_equal_values_in_other_strides() -> None:
    """A copy of a transposed tensor is the same expression as the transposed tensor, and must still be laid out as a copy is."""
    with lazy_core.options(tier="auto", learn_percent=10_000):
        x, plain = torch.arange(6.0).reshape(2, 3).to(LAZY), torch.arange(6.0).reshape(2, 3)
        for _ in range(6):
            found = [
                (t.t().contiguous().view(-1) + t.t().reshape(6) * 2).sum() + t.t().clone(memory_format=torch.contiguous_format).view(6)[2]
                for t in (x, plain)
            ]
            torch.testing.assert_close(found[0].cpu(), found[1])
            time.sleep(0.001)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode scripts its decompositions
def test_transforms_and_packed_sequences_run_natively() -> None:
    """Zero tensors without memory become tensors with memory; composed operations may take tensors on the CPU."""
    with lazy_core.options(tier="native"):
        x = torch.tensor([0.5, -1, 2])
        torch.testing.assert_close(
            torch.func.hessian(lambda v: (v**3).sum())(x.to(LAZY)).cpu(), torch.func.hessian(lambda v: (v**3).sum())(x)
        )
        padded, lengths = torch.randn(4, 3, 2), torch.tensor([4, 2, 1])
        expected = nn.utils.rnn.pack_padded_sequence(padded, lengths)
        found = nn.utils.rnn.pack_padded_sequence(padded.to(LAZY), lengths)
        torch.testing.assert_close(found.data.cpu(), expected.data)


@pytest.mark.parametrize("tier", ["native", "auto", "compiled"])
def test_what_the_cpu_has_no_kernel_for_runs_as_recorded(tier: str) -> None:
    """Integer histograms, which libraries ask of any device but the CPU; the call and those after it, in a loop and alone."""
    expected = torch.histc(torch.tensor([0.0, 2.0, 2.0, 3.0, 1.0]), bins=4, min=0, max=3)
    with lazy_core.options(tier=tier):
        for step in range(6):
            x = torch.tensor([0, 2, 2, 3, 1], dtype=torch.int32, device="lazy")
            counts = torch.histc(x * 1, bins=4, min=0, max=3)
            offsets = torch.cumsum(counts, 0, dtype=torch.int32) + step
            assert counts.dtype == torch.int32
            assert torch.equal(offsets.cpu(), expected.cumsum(0).int() + step)
    with pytest.raises(NotImplementedError), lazy_core.options(tier=tier):
        torch.linalg.ldl_factor(torch.ones(2, 2, dtype=torch.float16, device="lazy"))[0].cpu()


@pytest.mark.parametrize(("tier", "compiles"), [("compiled", 1), ("native", 0)])
def test_a_tier_set_in_the_program_holds_before_anything_was_imported_for_recording(tier: str, compiles: int) -> None:
    code = (
        "import torch, lazy_core\n"
        "x = torch.ones(3, device='lazy')\n"
        f"with lazy_core.options(tier={tier!r}):\n"
        "    print((x * 2 + 1).tolist(), lazy_core.report().counters['compiles'])\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "LAZY_TIER"} | {
        "LAZY_CACHE_DIR": "off",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == f"[3.0, 3.0, 3.0] {compiles}\n", done.stdout + done.stderr


def test_a_long_trace_is_recorded_as_a_whole() -> None:
    """All of its beginnings must be found again: none may have taken another one's place."""
    x = torch.ones(64, 64).to(LAZY)
    with lazy_core.options(tier="auto", learn_percent=10_000):
        lazy_core.reset_report()
        for _ in range(8):
            y = x
            for k in range(700):
                y = torch.tanh(y) if k % 2 else y * 1.001
            y.sum().item()
        assert [row for row in lazy_core.report().traces if row.operations >= 700]
        compiling.cancel()
