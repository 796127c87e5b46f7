"""torch's own operator database as a judge: every OpInfo on the lazy device against the CPU, values and gradients.

Owns: what a cell (operator, dtype) is, how its samples are run on both devices and compared, and what counts as passed. A cell passes if
every sample gives what the CPU gives, in structure, dims, dtype and value, forward and backward, and no operation fell back to the CPU.
What does not pass stands in `gaps.toml` with a kind and a reason, and nowhere else: an undeclared failure fails the judge, and so does
a declared gap that passes.

Run as a program, it judges many cells and prints a table: `python opinfo.py --dtypes float32,int64 --samples 8 --match softmax`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own test modules build some deprecated samples while they are imported
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

import torch._lazy
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

import lazy_core
import lazy_torch

assert lazy_torch.__version__
# torch's samples take a device of this name for torch's own unfinished one, and ask it for a barrier before they restore random states.
torch._lazy.mark_step = lambda *_, **__: lazy_core.barrier()
# Its samples that draw random numbers seed the generators with 42 and restore their states, which would hide that they draw any.
torch.testing._utils.freeze_rng_state = contextlib.nullcontext
SEED = 42

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "bool", "complex64")}
KINDS = ("notimpl", "notyet", "never")
GAPS = Path(__file__).with_name("gaps.toml")

# Their elements are whatever memory holds.
UNWRITTEN = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())

# torch wants every tensor but the first on the CPU, on any device.
ON_HOST = frozenset({"tensor_split"})

# (rtol, atol). Sums and products are evaluated in another order and elementary functions by other polynomials than the CPU's, both to
# some units in the last place, which cancellation then magnifies; the samples have numbers up to about 10 and some dozens of terms.
TOLERANCE = {
    torch.float32: (5e-5, 2e-5),
    torch.complex64: (5e-5, 2e-5),
    torch.float64: (1e-7, 1e-8),
    torch.complex128: (1e-7, 1e-8),
}
# By operator, where more is needed: for 32-bit floats, for 64-bit floats, and why.
_BESSEL = "torch's own values are off by up to 9e-7; SciPy's agree with ours to 1e-14"
LOOSER: dict[str, tuple[tuple[float, float], tuple[float, float], str]] = {
    **{f"special.bessel_{k}": ((5e-5, 2e-5), (2e-5, 1e-6), _BESSEL) for k in ("j0", "j1", "y0", "y1")},
    "linalg.householder_product": ((5e-4, 2e-5), (1e-7, 1e-8), "the gradient is a long chain of products of reflectors"),
    "grid_sampler_2d": ((5e-4, 2e-4), (1e-7, 1e-8), "the gradient by the grid is a sum of differences over all channels"),
    "grid_sampler_3d": ((5e-4, 2e-4), (1e-7, 1e-8), "the gradient by the grid is a sum of differences over all channels"),
    "matrix_exp": (
        (5e-3, 1e-3),
        (1e-7, 1e-8),
        "torch works in single precision, and squares its errors too; ours is exact to the last place",
    ),
}


def _up_to_phase(result: Any, sample: Any) -> Any:
    """Eigenvectors have a free phase."""
    values, vectors = result
    return values, vectors.abs()


def _up_to_ties(result: Any, sample: Any) -> Any:
    """Which of several equal elements is meant is free: an index stands for the element."""
    values, indices = result
    source = sample.input.detach().to(values.device)
    dim = sample.kwargs.get("dim", sample.args[1] if len(sample.args) > 1 else -1)
    return values, source.gather(dim, indices) if source.dim() else indices


# What of a result is determined at all.
DETERMINED: dict[str, Any] = {"linalg.eigh": _up_to_phase, "topk": _up_to_ties, "kthvalue": _up_to_ties}
# Arguments that determine the rest.
ADDED: dict[str, dict[str, Any]] = {"sort": {"stable": True}, "argsort": {"stable": True}}


@dataclass(frozen=True)
class Cell:
    """One operator and dtype."""

    op: Any
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}"


@dataclass
class Verdict:
    """What came of a cell.

    Attributes:
        name, dtype: the cell.
        status: passed, fallback (right, but not without the CPU), wrong, error, or skipped (the CPU itself has no usable sample).
        samples: how many were compared.
        fallbacks: the operations that ran on the CPU, with the reason.
        detail: the first difference or error.
        seconds: what it took.
    """

    name: str
    dtype: str
    status: str = "passed"
    samples: int = 0
    fallbacks: list[str] = field(default_factory=list)
    detail: str = ""
    seconds: float = 0.0


def cells(dtypes: Sequence[str] = tuple(DTYPES), match: str = "") -> Iterator[Cell]:
    """Every cell of the database, in its order; names are unique."""
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if re.search(match, name):
            for dtype in dtypes:
                if DTYPES[dtype] in op.dtypes:
                    yield Cell(op, name, dtype)


def gaps() -> dict[tuple[str, str], dict[str, str]]:
    """The declared gaps by (operator, dtype).

    Raises:
        ValueError: a gap without a known kind, or without a reason.
    """
    found = {}
    for gap in tomllib.loads(GAPS.read_text()).get("opinfo", []):
        if gap.get("kind") not in KINDS or not gap.get("reason"):
            raise ValueError(f"{GAPS.name}: {gap} needs a kind of {KINDS} and a reason")
        for name in gap["names"]:
            for dtype in gap.get("dtypes", DTYPES):
                found[name, dtype] = gap
    return found


def _spread(items: list[Any], count: int | None, turn: int) -> list[Any]:
    """Some of many samples, evenly spread; other ones at another turn."""
    if count is None or len(items) <= count:
        return items
    step = len(items) / count
    return [items[int((k + (turn % 7) / 7) * step) % len(items)] for k in range(count)]


def _inputs(op: str, sample: Any, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def moved(x: Any, to: str) -> Any:
        if isinstance(x, torch.Tensor):
            copy = x.detach().clone() if to == "cpu" else x.detach().to(to)
            return copy.requires_grad_(x.requires_grad)
        return torch.device(to) if isinstance(x, torch.device) else to if isinstance(x, str) and x == "cpu" else x

    rest = "cpu" if op in ON_HOST else device
    args = (tree_map(lambda x: moved(x, device), sample.input), *tree_map(lambda x: moved(x, rest), tuple(sample.args)))
    return args, tree_map(lambda x: moved(x, rest), {**ADDED.get(op, {}), **sample.kwargs})


@dataclass
class Outcome:
    """What one call gave.

    Attributes:
        values: its results, flattened, and gradients.
        structure: of the results.
        cotangents: what the gradients were taken with.
        random: it drew random numbers (known on the CPU only).
    """

    values: list[Any]
    structure: Any
    cotangents: list[torch.Tensor]
    random: bool


def _run(cell: Cell, sample: Any, device: str, cotangents: list[torch.Tensor] | None) -> Outcome:
    op = cell.op.name
    args, kwargs = _inputs(op, sample, device)
    torch.manual_seed(SEED)
    before = torch.get_rng_state() if device == "cpu" else None
    result = cell.op(*args, **kwargs)
    random = before is not None and not torch.equal(before, torch.get_rng_state())
    processed = sample.output_process_fn_grad(result)
    leaves, structure = tree_flatten(DETERMINED[op](result, sample) if op in DETERMINED else result)
    outputs = [t for t in tree_leaves(processed) if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    if cotangents is None:
        cotangents = [torch.randn_like(t.detach()) for t in outputs]
    gradients: list[Any] = []
    if outputs and wanted:
        gradients = list(torch.autograd.grad(outputs, wanted, [c.to(device) for c in cotangents], allow_unused=True))
    return Outcome([*leaves, *gradients], structure, cotangents, random or op in UNWRITTEN)


def _compare(op: str, found: list[Any], expected: list[Any], random: bool) -> None:
    if len(found) != len(expected):
        raise AssertionError(f"{len(found)} results where the CPU gives {len(expected)}")
    for place, (x, y) in enumerate(zip(found, expected, strict=True)):
        if isinstance(y, torch.Tensor):
            y, x = y.detach().resolve_conj().resolve_neg(), x.detach().cpu()
            if random:
                if (x.shape, x.dtype) != (y.shape, y.dtype):
                    raise AssertionError(f"result {place}: {x.dtype}{list(x.shape)} where the CPU gives {y.dtype}{list(y.shape)}")
                continue
            rtol, atol = TOLERANCE.get(y.dtype, (0.0, 0.0))
            if op in LOOSER and rtol:
                rtol, atol = LOOSER[op][int(y.dtype in (torch.float64, torch.complex128))]
            torch.testing.assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, p=place: f"result {p}: {m}")
        elif isinstance(y, (float, complex)) and not random:
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        elif not random and x != y:
            raise AssertionError(f"result {place}: {x!r} where the CPU gives {y!r}")


def _strided(sample: Any) -> bool:
    return all(t.layout == torch.strided for t in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor))


def judge(cell: Cell, samples: int | None = None, turn: int = 0) -> Verdict:
    """Run a cell's samples on both devices and compare.

    Args:
        cell: what to judge.
        samples: at most so many of them, evenly spread; all by default.
        turn: which of the many possible choices.
    """
    verdict = Verdict(cell.name, cell.dtype)
    begin = time.perf_counter()
    dtype = DTYPES[cell.dtype]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        differentiable = cell.op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        torch.manual_seed(0)
        chosen = _spread([s for s in cell.op.sample_inputs("cpu", dtype, requires_grad=differentiable) if _strided(s)], samples, turn)
        lazy_core.barrier()
        lazy_core.reset_report()
        pairs = []
        for sample in chosen:
            try:
                expected = _run(cell, sample, "cpu", None)
            except Exception:  # a sample that the CPU cannot run judges nothing
                continue
            try:
                found = _run(cell, sample, "lazy", expected.cotangents)
                if found.structure != expected.structure:
                    raise AssertionError(f"the result's structure is {found.structure} where the CPU's is {expected.structure}")
                pairs.append((sample, found, expected))
            except Exception as error:
                verdict.status, verdict.detail = "error", _short(sample, error)
                break
            verdict.samples += 1
        if verdict.status == "passed":
            try:
                for sample, found, expected in pairs:  # noqa: B007 (told below)
                    _compare(cell.op.name, found.values, expected.values, expected.random)
            except Exception as error:
                verdict.status, verdict.detail = "wrong" if isinstance(error, AssertionError) else "error", _short(sample, error)
        pairs.clear()
        verdict.fallbacks = sorted({e.cause.removeprefix("torch: ").removeprefix("aten::") for e in _fallbacks()})
        if verdict.status == "passed":
            verdict.status = "fallback" if verdict.fallbacks else "passed" if verdict.samples else "skipped"
    verdict.seconds = time.perf_counter() - begin
    return verdict


def _fallbacks() -> list[Any]:
    return [e for e in lazy_core.report().events if e.kind == "fallback"]


def _short(sample: Any, error: Exception) -> str:
    def one(x: Any) -> Any:
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, torch.Tensor) else x

    call = tree_map(one, (sample.input, *sample.args)), tree_map(one, sample.kwargs)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}  [{str(call)[:300]}]"


def main() -> int:
    """Judge cells, print a table and the failures that no gap declares; the exit status says whether there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=8, help="of each cell, evenly spread; 0 means all")
    parser.add_argument("--turn", type=int, default=0, help="which samples, where not all are taken")
    parser.add_argument("--match", default="", help="a regular expression of operator names")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th cell, beginning with the k-th")
    parser.add_argument("--json", help="write verdicts to this file, one a line")
    options = parser.parse_args()
    k, n = map(int, options.part.split("/"))
    declared = gaps()
    verdicts, surprises = [], []
    file = open(options.json, "w") if options.json else None  # noqa: SIM115 (open until the end)
    for cell in list(cells(options.dtypes.split(","), options.match))[k::n]:
        verdict = judge(cell, options.samples or None, options.turn)
        verdicts.append(verdict)
        gap = declared.get((cell.name, cell.dtype))
        if (verdict.status in ("passed", "skipped")) == (gap is not None):
            surprises.append(verdict)
        if file:
            print(json.dumps(asdict(verdict)), file=file, flush=True)
    for verdict in surprises:
        why = (
            "a declared gap that passes" if verdict.status in ("passed", "skipped") else f"{verdict.detail} {'; '.join(verdict.fallbacks)}"
        )
        print(f"{verdict.name}-{verdict.dtype}: {verdict.status}: {why}")
    print(table(verdicts))
    return 1 if surprises else 0


def table(verdicts: Sequence[Verdict]) -> str:
    """Counts by dtype and status, and the share that passed without any fallback, of those that could be judged."""
    statuses = ("passed", "fallback", "wrong", "error", "skipped")
    lines = [f"{'dtype':12}" + "".join(f"{s:>10}" for s in statuses) + f"{'share':>9}"]
    for dtype in [*dict.fromkeys(v.dtype for v in verdicts), "all"]:
        counts = Counter(v.status for v in verdicts if dtype in (v.dtype, "all"))
        judged = sum(counts.values()) - counts["skipped"]
        lines.append(f"{dtype:12}" + "".join(f"{counts[s]:10}" for s in statuses) + f"{counts['passed'] / max(judged, 1):9.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
