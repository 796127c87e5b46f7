"""What torch's databases are judged with: outcomes, comparison, declared gaps, and the run of many cells.

Owns: `Verdict`, `settle`, `compare`, `gaps`, `main`. A cell passes if it gives what the CPU gives, in structure, dims, dtype and value,
forward and backward, and no operation fell back to the CPU. What does not pass stands in `gaps.toml` with a kind and a reason, and nowhere
else: an undeclared failure fails a judge, and so does a declared gap that passes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("LAZY_CACHE_DIR", "off")
os.environ.setdefault("LAZY_TIER", "compiled")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own test modules use some of what torch deprecates
    import torch
    import torch._lazy
    import torch.testing._internal.common_utils
    import torch.testing._internal.opinfo.core
    from torch.utils._pytree import tree_map

import lazy_core
from lazy_torch import awake

# Whoever imports this may have imported torch before, which found the device: it knows of no tier then, and would run the first cells by
# the CPU's own kernels while it imports the rest.
lazy_core.config.tier = os.environ["LAZY_TIER"]
awake.finish()
# torch's samples take a device of this name for torch's own unfinished one, and ask it for a barrier before they restore random states.
torch._lazy.mark_step = lambda *_, **__: lazy_core.barrier()
# Samples that draw random numbers seed the generators with 42 and restore their states, which would hide that they draw any.
torch.testing._utils.freeze_rng_state = contextlib.nullcontext
# Before each sample the sources of all frames on the stack are read, to find a test case of torch's own: slow, and there is none.
torch.testing._internal.common_utils.extract_test_fn = torch.testing._internal.opinfo.core.extract_test_fn = lambda: None
SEED = 42

KINDS = ("notimpl", "notyet", "never")
GAPS = Path(__file__).with_name("gaps.toml")
DEFAULT_SAMPLES = 8

# (rtol, atol). Sums and products are evaluated in another order and elementary functions by other polynomials than the CPU's, both to
# some units in the last place, which cancellation then magnifies; the samples have numbers up to about 10 and some dozens of terms.
TOLERANCE = {
    torch.float32: (5e-5, 2e-5),
    torch.complex64: (5e-5, 2e-5),
    torch.float64: (1e-7, 1e-8),
    torch.complex128: (1e-7, 1e-8),
}


class Cell(Protocol):
    """What is judged as one: its str names it."""

    name: str
    dtype: str


@dataclass
class Verdict:
    """What came of a cell.

    Attributes:
        cell, dtype: which.
        status: passed, fallback (right, but not without the CPU), wrong, error, or skipped (the CPU itself has no usable sample).
        samples: how many were compared.
        fallbacks: the operations that ran on the CPU, with the reason.
        detail: the first difference or error.
        seconds: what it took.
    """

    cell: str
    dtype: str
    status: str = "passed"
    samples: int = 0
    fallbacks: list[str] = field(default_factory=list)
    detail: str = ""
    seconds: float = 0.0

    @property
    def fine(self) -> bool:
        """Whether no gap has to say why."""
        return self.status in ("passed", "skipped")

    def __str__(self) -> str:
        return f"{self.cell}: {self.status}: {self.detail} {'; '.join(self.fallbacks)}"


def gaps(judge: str) -> Callable[[Cell], dict[str, Any] | None]:
    """The declared gap of a cell, if there is one.

    It has `names` (regular expressions of whole names), `dtypes` (all by default), a kind, a reason, and is `rare` if the samples that are
    taken by default need not meet it.

    Raises:
        ValueError: a gap without names, without a known kind, or without a reason.
    """
    declared = tomllib.loads(GAPS.read_text()).get(judge, [])
    for gap in declared:
        if gap.get("kind") not in KINDS or not gap.get("reason") or not gap.get("names"):
            raise ValueError(f"{GAPS.name}: {gap} needs names, a kind of {KINDS} and a reason")

    def find(cell: Cell) -> dict[str, Any] | None:
        for gap in declared:
            if cell.dtype in gap.get("dtypes", [cell.dtype]) and any(re.fullmatch(pattern, cell.name) for pattern in gap["names"]):
                return gap
        return None

    return find


def spread(items: list[Any], count: int | None, turn: int) -> list[Any]:
    """Some of many samples, evenly spread; other ones at another turn.

    Fewer than by default are some of those that are judged by default, so that what passes as a whole passes at every turn.
    """
    if count is not None and count < DEFAULT_SAMPLES:
        items = spread(items, DEFAULT_SAMPLES, 0)
    if count is None or len(items) <= count:
        return items
    step = len(items) / count
    return [items[(int(k * step) + turn) % len(items)] for k in range(count)]


def compare(found: list[Any], expected: list[Any], random: bool, looser: Callable[[torch.dtype], tuple[float, float] | None]) -> None:
    """Hold results against the CPU's; of random ones dims and dtypes only.

    Raises:
        AssertionError: they differ.
    """
    if len(found) != len(expected):
        raise AssertionError(f"{len(found)} results where the CPU gives {len(expected)}")
    for place, (x, y) in enumerate(zip(found, expected, strict=True)):
        if isinstance(y, torch.Tensor):
            y, x = y.detach().resolve_conj().resolve_neg(), x.detach().cpu()
            if random:
                if (x.shape, x.dtype) != (y.shape, y.dtype):
                    raise AssertionError(f"result {place}: {x.dtype}{list(x.shape)} where the CPU gives {y.dtype}{list(y.shape)}")
                continue
            rtol, atol = looser(y.dtype) or TOLERANCE.get(y.dtype, (0.0, 0.0))
            if atol:
                atol = max(atol, _rounding(y))
            torch.testing.assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, p=place: f"result {p}: {m}")
        elif isinstance(y, (float, complex)) and not random:
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        elif not random and x != y:
            raise AssertionError(f"result {place}: {x!r} where the CPU gives {y!r}")


def _rounding(y: torch.Tensor) -> float:
    """Two units in the last place of the largest element: where large terms cancel, as in a convolution, their error stays."""
    finite = y[y.isfinite()].abs()
    return 2 * torch.finfo(y.dtype).eps * finite.max().item() if finite.numel() else 0.0


def short(call: Any, error: Exception) -> str:
    """An error and the call that it came from, in a line."""

    def one(x: Any) -> Any:
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, torch.Tensor) else x

    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}  [{str(tree_map(one, call))[:300]}]"


@contextlib.contextmanager
def settle(cell: Cell) -> Iterator[Verdict]:
    """A verdict to fill in: what is raised inside decides its status, and so do the fallbacks that were counted."""
    verdict = Verdict(str(cell), cell.dtype)
    begin = time.perf_counter()
    lazy_core.barrier()
    lazy_core.reset_report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield verdict
        except Exception as error:
            verdict.status = "wrong" if isinstance(error, AssertionError) else "error"
            verdict.detail = verdict.detail or short((), error)
    fallen = [e.cause for e in lazy_core.report().events if e.kind == "fallback"]
    verdict.fallbacks = sorted({c.removeprefix("torch: ").removeprefix("aten::") for c in fallen})
    if verdict.status == "passed":
        verdict.status = "fallback" if fallen else "passed" if verdict.samples else "skipped"
    verdict.seconds = time.perf_counter() - begin


def main(name: str, every: Callable[[str], Sequence[Cell]], judge: Callable[[Any, int | None, int], Verdict], dtypes: Sequence[str]) -> int:
    """Judge cells, print a table and what no gap explains; the exit status says whether there is any.

    Args:
        name: of the judge, as in gaps.toml.
        every: all cells whose name matches a regular expression.
        judge: cell, most samples or None, turn.
        dtypes: those that exist.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--dtypes", default=",".join(dtypes))
    parser.add_argument("--samples", type=int, default=DEFAULT_SAMPLES, help="of each cell, evenly spread; 0 means all")
    parser.add_argument("--turn", type=int, default=0, help="which samples, where not all are taken")
    parser.add_argument("--match", default="", help="a regular expression of names")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th cell, beginning with the k-th")
    parser.add_argument("--json", help="write verdicts to this file, one a line; those that it has already are not judged again")
    options = parser.parse_args()
    k, n = map(int, options.part.split("/"))
    gap_of = gaps(name)
    settled = options.turn == 0 and options.samples == DEFAULT_SAMPLES  # other samples may not meet what a gap is about
    verdicts, surprises = [], []
    known = _known(options.json)
    with open(options.json, "a") if options.json else contextlib.nullcontext() as file:
        for cell in [c for c in every(options.match) if c.dtype in options.dtypes.split(",")][k::n]:
            verdict = known.get(str(cell)) or judge(cell, options.samples or None, options.turn)
            verdicts.append(verdict)
            gap = gap_of(cell)
            if gap is None and not verdict.fine:
                surprises.append(str(verdict))
            elif gap is not None and verdict.status == "passed" and settled and not gap.get("rare"):
                surprises.append(f"{verdict.cell}: a declared gap that passes: {gap['reason']}")
            if file and str(cell) not in known:
                print(json.dumps(asdict(verdict)), file=file, flush=True)
    print("\n".join(surprises))
    print(table(verdicts))
    return 1 if surprises else 0


def _known(path: str | None) -> dict[str, Verdict]:
    """What a run that was stopped has found already."""
    if not path or not Path(path).exists():
        return {}
    return {v.cell: v for v in (Verdict(**json.loads(line)) for line in Path(path).read_text().splitlines())}


def table(verdicts: Sequence[Verdict]) -> str:
    """Counts by dtype and status, and the share that passed without any fallback, of those that could be judged."""
    statuses = ("passed", "fallback", "wrong", "error", "skipped")
    lines = [f"{'dtype':12}" + "".join(f"{s:>10}" for s in statuses) + f"{'share':>9}"]
    for dtype in [*dict.fromkeys(v.dtype for v in verdicts), "all"]:
        counts = Counter(v.status for v in verdicts if dtype in (v.dtype, "all"))
        judged = sum(counts.values()) - counts["skipped"]
        lines.append(f"{dtype:12}" + "".join(f"{counts[s]:10}" for s in statuses) + f"{counts['passed'] / max(judged, 1):9.1%}")
    return "\n".join(lines)
