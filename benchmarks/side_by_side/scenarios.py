"""What is timed, and what its ratios should be: each scenario runs in a process of its own for each peer.

Owns the list of scenarios and their targets.  Imports `models` and `measure`, never a library: a scenario reaches that through its `Run`.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from . import measure
from .models import MODELS, batch_sizes, last_batches, loss_error, text_lengths
from .peers import Peer

Found = dict[str, Any]


@dataclass
class Run:
    """What a scenario works with.

    Attributes:
        peer: who runs.
        launched: when the process was launched, in seconds of `time.monotonic`.
        clock: the clock.
        seconds: how long a measurement lasts, and how long nothing may have been compiled before it.
        quick: whether to do as little as shows that it works.
        processor_time: whether the clock counts this process's processor time.
    """

    peer: Peer
    launched: float
    clock: measure.Clock
    seconds: float
    quick: bool
    processor_time: bool = False
    _module: ModuleType | None = None

    @property
    def workloads(self) -> ModuleType:
        """The peer's workloads; the first use imports its library."""
        if self._module is None:
            self._module = self.peer.workloads()
        return self._module

    def training(self, name: str) -> Any:
        """A model in training, on the peer's device."""
        return self.workloads.Training(MODELS[name], self.workloads.prepare(MODELS[name]), self.peer)

    def read(self, value: Any) -> float:
        """A number, on the host."""
        return float(self.workloads.read(value))

    def awake(self) -> None:
        """Have the library run something small, so that what is timed next does not include its start."""
        tiny, model = self.training("tiny"), MODELS["tiny"]
        for seed in range(3):
            self.read(tiny.step(tiny.place(model.batch(model.batch_size, seed))))

    def progress(self) -> Hashable:
        """Changes when a lazy peer compiles something, measures or decides on a tier; None while it compiles or imports what that takes.

        Others do nothing in the background.
        """
        if not self.peer.lazy:
            return 0
        awake = sys.modules.get("lazy_torch.awake")
        if awake is not None and awake.importing():
            return None
        import lazy_core
        from lazy_core import compiling

        report = lazy_core.report()
        if not compiling.wait(timeout=0):
            return None
        measured = (row.compiled_runs for row in report.traces if row.tier == "undecided")
        return (report.counters["compiles"], *(row.tier for row in report.traces), *measured)

    def lazy_report(self) -> Found:
        """The counters of a lazy peer, and which tier runs its latest traces, and why; empty for others."""
        if not self.peer.lazy or self._module is None:
            return {}
        import lazy_core

        report = lazy_core.report()
        traces = [{"operations": row.operations, "tier": row.tier, "why": row.reason} for row in report.traces[-8:]]
        return {"counters": report.counters, "traces": traces}

    def warm_up(self, run: Callable[[], Any]) -> None:
        """Call `run` until what it needs is compiled and caches are warm."""
        quiet = _LEARNS_SECONDS if self.peer.lazy else _WARM_SECONDS
        measure.warm_up(run, self.progress, 0.0 if self.quick else quiet)

    def timed(self, call: Callable[[], Any], parts: int = 1) -> Found:
        """How long a call takes, measured in turn with the other peers; divided by `parts`."""
        return self.measured(lambda: measure.timed(call) / parts)

    def measured(self, once: Callable[[], float]) -> Found:
        """What `once` measures, again and again in turn with the other peers."""
        return measure.summary(self.clock.in_turns(lambda seconds: measure.repeated(once, seconds), self.seconds))


# A lazy peer that has nothing to compile or to measure for so long has learned what there is: between importing what that takes and
# recording a long step whole, a portion at a time, some seconds pass.
_LEARNS_SECONDS = 10.0
# For the others so long is enough to have their caches warm.
_WARM_SECONDS = 3.0


@dataclass(frozen=True)
class Target:
    """What is asked of the lazy peer in a row.

    Attributes:
        eager: the greatest ratio to the eager library.
        xla: the greatest ratio to jax.jit, or to TensorFlow's jit_compile.
        stall: by how much more than the eager library it may take, in the row's unit.
    """

    eager: float | None = None
    xla: float | None = None
    stall: float | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        key: which number of what the scenario found.
        title: what the line is called.
        unit: "us", "ms", "s" or "MiB".
        targets: by family; a family that is not named has none.
    """

    key: str
    title: str
    unit: str
    targets: dict[str, Target] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Something to time.

    Attributes:
        name: what the command line calls it.
        what: a sentence for readers of the page.
        libraries: who can run it.
        run: does it; gives numbers by the keys of `rows`, and `value`, which all peers must agree on.
        rows: how it is shown.
        processes: in how many processes a round runs it.
    """

    name: str
    what: str
    libraries: tuple[str, ...]
    run: Callable[[Run], Found]
    rows: tuple[Row, ...]
    processes: int = 1


# What is done --------------------------------------------------------------------------------------------------------


def _train(name: str) -> Callable[[Run], Found]:
    def run(r: Run) -> Found:
        model, training = MODELS[name], r.training(name)
        batch = training.place(model.batch(model.batch_size, 1))
        losses = [r.read(training.step(batch)) for _ in model.losses]
        error = loss_error(model, losses)
        block = measure.block_of(lambda: training.step(batch), r.read)
        r.warm_up(block)
        found = r.measured(block)
        return {"step": found, "losses": losses, "loss_error": error, "losses_right": error <= model.tolerance}

    return run


def _memory(r: Run) -> Found:
    r.awake()
    model, before = MODELS["bert"], measure.peak_mebibytes()
    training = r.training("bert")
    batch = training.place(model.batch(model.batch_size, 1))
    for _ in range(2 if r.quick else 30):
        loss = r.read(training.step(batch))
    return {"growth": measure.peak_mebibytes() - before, "value": loss if r.quick else None}


def _infer(r: Run) -> Found:
    model = MODELS["mlp"]
    inputs = [model.batch(1, seed)[0] for seed in range(8)]
    answer = r.workloads.inference(model, r.peer)
    value = float(sum(answer(x).sum() for x in inputs))
    turn = iter(range(1_000_000_000))
    call = lambda: answer(inputs[next(turn) % 8])  # noqa: E731
    r.warm_up(call)
    return {"call": r.timed(call), "value": value}


def _cold(name: str) -> Callable[[Run], Found]:
    def run(r: Run) -> Found:
        model = MODELS[name]
        with measure.Others() as others:
            training = r.training(name)
            value = r.read(training.step(training.place(model.batch(model.batch_size, 1))))
        seconds = measure.now() if r.processor_time else time.monotonic() - r.launched
        r.clock.others.append(others.cores or 0.0)
        return {"first": seconds, "value": value}

    return run


def _new(name: str) -> Callable[[Run], Found]:
    def run(r: Run) -> Found:
        model = MODELS[name]
        batch = model.batch(model.batch_size, 1)
        r.awake()
        prepared = r.workloads.prepare(model)

        def first() -> tuple[float, float]:
            begin = measure.now()
            training = r.workloads.Training(model, prepared, r.peer)
            value = r.read(training.step(training.place(batch)))
            return measure.now() - begin, value

        seconds, value = r.clock.once(first)
        return {"first": seconds, "value": value}

    return run


def _chain(backward: bool) -> Callable[[Run], Found]:
    def run(r: Run) -> Found:
        operations = 40 if r.quick else 1000
        once = r.workloads.chain(operations, backward, r.peer)
        value = float(once().sum())
        r.warm_up(once)
        return {"operation": r.timed(once, operations), "value": value}

    return run


def _sequence(name: str, batches: Callable[[bool], list[Any]], again: bool = False) -> Callable[[Run], Found]:
    """Steps over batches that differ, each step's loss read; `again` goes through them a second time."""

    def run(r: Run) -> Found:
        r.awake()
        training, made = r.training(name), batches(r.quick)
        loss = 0.0

        def step(batch: Any) -> float:
            nonlocal loss
            begin = measure.now()
            loss = r.read(training.step(training.place(batch)))
            return measure.now() - begin

        first = r.clock.once(lambda: [step(batch) for batch in made])
        found = {"total": sum(first), "step": measure.summary(first), "longest": measure.longest(first), "value": loss}
        if again:
            found["again"] = sum(r.clock.once(lambda: [step(batch) for batch in made]))
        return found

    return run


def _sizes(quick: bool) -> list[Any]:
    return [MODELS["mlp"].batch(size, size) for size in batch_sizes(10 if quick else 200)]


def _epochs(quick: bool) -> list[Any]:
    return [MODELS["mlp"].batch(size, 1 + k % 10) for k, size in enumerate(last_batches(1 if quick else 20))]


def _lengths(quick: bool) -> list[Any]:
    return [MODELS["bert"].batch(8, k, length) for k, length in enumerate(text_lengths(3 if quick else 60))]


def _logging(r: Run) -> Found:
    model, training = MODELS["mlp"], r.training("mlp")
    batch = training.place(model.batch(model.batch_size, 1))
    step = lambda: r.read(training.step(batch))  # noqa: E731
    early = [measure.timed(step) for _ in range(10 if r.quick else 300)]
    r.warm_up(step)
    return {"step": r.timed(step), "longest": measure.longest(early)}


def _generate(cache: str) -> Callable[[Run], Found]:
    def run(r: Run) -> Found:
        r.awake()
        write = r.workloads.generation(cache, 4 if r.quick else 50, r.peer)
        tokens, times = r.clock.once(write)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        r.warm_up(write)
        return {"first": times[-1], "longest": measure.longest(gaps), "again": r.timed(write), "value": tokens}

    return run


# The list, and what is asked -----------------------------------------------------------------------------------------

_WORKLOAD = Target(eager=1.10)
_HAND = Target(eager=1.10, xla=1.15)
_TWICE = {"torch": Target(eager=2.0), "tf": Target(eager=2.0)}
_NO_STALL = {"torch": Target(stall=100), "tf": Target(stall=100)}
_ALL = ("torch", "jax", "tf")


def _training_scenario(name: str, what: str, libraries: tuple[str, ...], target: Target) -> Scenario:
    row = Row("step", f"{name} training step", "ms", {"torch": target, "tf": _WORKLOAD})
    return Scenario(f"train-{name}", what, libraries, _train(name), (row,))


def _first_scenarios(name: str, libraries: tuple[str, ...]) -> tuple[Scenario, ...]:
    title = name.upper() if name == "mlp" else "BERT-like model"
    return (
        Scenario(
            f"cold-{name}", f"from the launch of a process to the loss of the first training step of the {title}, imports included",
            libraries, _cold(name), (Row("first", f"first result, {name}, cold process", "ms", _TWICE),), 3,
        ),
        Scenario(
            f"new-{name}", f"from the {title} on the host to the loss of its first step, in a process that has trained a tiny model before",
            libraries, _new(name), (Row("first", f"first result, {name}, new model", "ms", _TWICE),), 3,
        ),
    )  # fmt: skip


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _training_scenario(
            "mlp", "MLP 784-256-256-10, 64 rows, SGD with momentum; a block of steps ends with a read", (*_ALL, "beside"), _HAND
        ),
        _training_scenario("cnn", "three convolutions with batch norm, 32 images of 32x32, Adam", ("torch", "jax"), _WORKLOAD),
        _training_scenario("lstm", "LSTM cell in a Python loop over 32 elements, 32 rows, SGD (jax: a scan)", _ALL, _WORKLOAD),
        _training_scenario("bert", "BERT classifier of transformers: 4 layers, 256 wide, 8 x 64 tokens, AdamW", ("torch", "jax"), _HAND),
        Scenario(
            "infer", "the MLP on one row, from a host array to a host array", _ALL, _infer,
            (Row("call", "mlp inference, one row", "us", _TWICE),),
        ),
        *_first_scenarios("mlp", _ALL),
        *_first_scenarios("bert", ("torch", "jax")),
        Scenario(
            "batch-sizes", "200 MLP steps over 62 batch sizes in random order, each loss read; then the same once more", _ALL,
            _sequence("mlp", _sizes, again=True),
            (
                Row("total", "200 steps, 62 batch sizes", "ms", _TWICE),
                Row("again", "the 200 steps again", "ms", _TWICE),
                Row("longest", "longest step meanwhile", "ms", _NO_STALL),
            ),
        ),
        Scenario(
            "last-batch", "20 epochs of 9 batches of 64 rows and a last one of another size each time (MLP), each loss read", _ALL,
            _sequence("mlp", _epochs),
            (Row("total", "20 epochs, last batches differ", "ms", _TWICE), Row("longest", "longest step meanwhile", "ms", _NO_STALL)),
        ),
        Scenario(
            "lengths", "60 steps of the BERT-like model over 12 text lengths in random order, each loss read", ("torch", "jax"),
            _sequence("bert", _lengths),
            (Row("total", "60 steps, 12 text lengths", "ms", _TWICE), Row("longest", "longest step meanwhile", "ms", _NO_STALL)),
        ),
        Scenario(
            "logging", "MLP steps whose loss is read each time", _ALL, _logging,
            (
                Row("step", "mlp step, loss read each time", "ms", {"torch": _WORKLOAD, "tf": _WORKLOAD}),
                Row("longest", "longest of the first 300 steps", "ms", _NO_STALL),
            ),
        ),
        Scenario(
            "chain-forward", "a chain of 1,000 operations on 2x2 matrices and a read; time of one operation", _ALL, _chain(False),
            (Row("operation", "an operation of a chain of 1,000", "us"),),
        ),
        Scenario(
            "chain-backward", "the same with gradients and the backward pass", _ALL, _chain(True),
            (Row("operation", "the same with backward", "us", _TWICE),),
        ),
        *(
            Scenario(
                f"generate-{cache}", f"GPT-2 (4 layers, 256 wide, random weights) writes 50 tokens greedily; {cache} cache", ("torch",),
                _generate(cache),
                (
                    Row("first", f"50 tokens, {cache} cache, first call", "ms", {"torch": Target(eager=1.2)}),
                    Row("again", f"50 tokens, {cache} cache, later calls", "ms", {"torch": Target(eager=1.2)}),
                    Row("longest", "longest token of the first call", "ms", _NO_STALL),
                ),
                processes=3,
            )
            for cache in ("growing", "static")
        ),
        Scenario(
            "memory", "growth of peak resident memory over 30 training steps of the BERT-like model", ("torch", "jax"), _memory,
            (Row("growth", "peak memory growth, bert", "MiB"),),
        ),
    )
}  # fmt: skip

SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0, "MiB": 1.0}
"""What a number that a scenario found is multiplied by to be in a row's unit; times are found in seconds."""


def middle(found: Any) -> float:
    """The number itself, or the median of a summary."""
    return float(found["median"] if isinstance(found, dict) else found)


def combine(runs: list[Found]) -> Found:
    """One result of several processes: the median of the medians, the least of the least; losses are right if all are."""
    whole: Found = dict(runs[0])
    for key, value in runs[0].items():
        column = [run[key] for run in runs]
        if isinstance(value, dict) and "median" in value:
            whole[key] = {
                "median": statistics.median(v["median"] for v in column),
                "min": min(v["min"] for v in column),
                "max": max(v["max"] for v in column),
                "samples": sum(v["samples"] for v in column),
            }
        elif key == "losses_right":
            whole[key] = all(column)
        elif key in ("loss_error", "other_cores", "process_peak"):
            whole[key] = max(column)
        elif isinstance(value, float) and key != "value":
            whole[key] = statistics.median(column)
            whole[f"{key}_min"] = min(column)
    return whole
