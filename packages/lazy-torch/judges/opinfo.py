"""torch's own operator database as a judge: every OpInfo on the lazy device against the CPU, values and gradients.

Owns: what a cell (operator, dtype) is, how its samples are run on both devices, and what of a result is determined at all.

Run as a program, it judges many cells and prints a table: `python opinfo.py --dtypes float32,int64 --samples 8 --match softmax`.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import SEED, Verdict, compare, main, settle, short, spread
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own test modules use some of what torch deprecates
    from torch.testing._internal.common_methods_invocations import op_db

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "bool", "complex64")}

# Their elements are whatever memory holds.
UNWRITTEN = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())

# torch wants every tensor but the first on the CPU, on any device.
ON_HOST = frozenset({"tensor_split"})

# By operator, where more is needed: for 32-bit floats, for 64-bit floats, and why.
_BESSEL = "torch's own values are off by up to 9e-7; SciPy's agree with ours to 1e-14"
_ONE = "with one element in a row gradients are differences of equal numbers, divided by the square root of epsilon"
LOOSER: dict[str, tuple[tuple[float, float], tuple[float, float], str]] = {
    **{f"special.bessel_{k}": ((5e-5, 2e-5), (2e-5, 1e-6), _BESSEL) for k in ("j0", "j1", "y0", "y1")},
    # Against f64 the CPU's own gradients in f32 are off by 2.8e-5, these by 3.3e-5 (six random batches of 50 frames).
    "nn.functional.ctc_loss": ((5e-3, 1e-4), (1e-7, 1e-8), "logarithms of some hundred are added up and cancel"),
    # Against f64 the CPU's own gradients in f32 are off by 2.6e-5, these by 3.0e-5 (all samples, the solution's gradient alone).
    "linalg.lstsq": ((5e-4, 2e-4), (1e-7, 1e-8), "the gradient is a product with pseudoinverses twice"),
    "linalg.householder_product": ((5e-4, 2e-5), (1e-7, 1e-8), "the gradient is a long chain of products of reflectors"),
    "native_layer_norm": ((5e-5, 1e-3), (1e-7, 1e-8), _ONE),
    "nn.functional.layer_norm": ((5e-5, 1e-3), (1e-7, 1e-8), _ONE),
    "grid_sampler_2d": ((5e-4, 2e-4), (1e-7, 1e-8), "the gradient by the grid is a sum of differences over all channels"),
    "grid_sampler_3d": ((5e-4, 2e-4), (1e-7, 1e-8), "the gradient by the grid is a sum of differences over all channels"),
    "matrix_exp": (
        (5e-3, 1e-3),
        (1e-7, 1e-8),
        "torch works in single precision, and squares its errors too; ours is exact to the last place",
    ),
}


def _up_to_phase(result: Any, sample: Any, op: str) -> Any:
    """Eigenvectors have a free phase."""
    values, vectors = result
    return values, vectors.abs()


def _product(result: Any, sample: Any, op: str) -> Any:
    """Singular vectors have free phases, and those of no singular value are free."""
    u, s, v = result
    k = s.shape[-1]
    vh = v.mH if sample.kwargs.get("full_matrices") is None else v
    return s, (u[..., :k] * s.to(u.dtype).unsqueeze(-2)) @ vh[..., :k, :]


def _up_to_ties(result: Any, sample: Any, op: str) -> Any:
    """Which of several equal elements is meant is free: an index stands for the element."""
    values, indices = result
    source = sample.input.detach().to(values.device)
    given = sample.args[0 if op == "mode" else 1 :]
    dim = sample.kwargs.get("dim", given[0] if given else -1)
    kept = indices.dim() == source.dim()
    if source.dim():
        indices = source.gather(dim, indices if kept else indices.unsqueeze(dim))
    return values, indices if kept or not source.dim() else indices.squeeze(dim)


# What of a result is determined at all.
DETERMINED: dict[str, Any] = {
    "linalg.eigh": _up_to_phase,
    "linalg.eig": _up_to_phase,
    "topk": _up_to_ties,
    "kthvalue": _up_to_ties,
    "mode": _up_to_ties,
    "svd": _product,
    "linalg.svd": _product,
}
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


def cells(match: str = "", dtypes: Sequence[str] = tuple(DTYPES)) -> list[Cell]:
    """Every cell of the database whose name matches; names are unique."""
    named = [(op, op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")) for op in op_db]
    return [Cell(op, name, dtype) for op, name in named if re.search(match, name) for dtype in dtypes if DTYPES[dtype] in op.dtypes]


def inputs(op: str, sample: Any, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of a sample's arguments on a device, by position and by keyword."""

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
    args, kwargs = inputs(op, sample, device)
    torch.manual_seed(SEED)
    before = torch.get_rng_state() if device == "cpu" else None
    result = cell.op(*args, **kwargs)
    random = before is not None and not torch.equal(before, torch.get_rng_state())
    processed = sample.output_process_fn_grad(result)
    leaves, structure = tree_flatten(DETERMINED[op](result, sample, op) if op in DETERMINED else result)
    outputs = [t for t in tree_leaves(processed) if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    if cotangents is None:
        cotangents = [torch.randn_like(t.detach()) for t in outputs]
    gradients: list[Any] = []
    if outputs and wanted:
        gradients = list(torch.autograd.grad(outputs, wanted, [c.to(device) for c in cotangents], allow_unused=True))
    return Outcome([*leaves, *gradients], structure, cotangents, random or op in UNWRITTEN)


def strided(sample: Any) -> bool:
    """Whether none of a sample's tensors is sparse or nested."""
    return all(t.layout == torch.strided for t in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor))


def looser(op: str, dtype: torch.dtype) -> tuple[float, float] | None:
    """What results of an operator may differ by, where that is more than usual."""
    if op not in LOOSER or not (dtype.is_floating_point or dtype.is_complex):
        return None
    return LOOSER[op][int(dtype in (torch.float64, torch.complex128))]


def judge(cell: Cell, samples: int | None = None, turn: int = 0) -> Verdict:
    """Run a cell's samples on both devices and compare.

    Args:
        cell: what to judge.
        samples: at most so many of them, evenly spread; all by default.
        turn: which of the many possible choices.
    """
    dtype = DTYPES[cell.dtype]
    allowed = functools.partial(looser, cell.op.name)
    with settle(cell) as verdict:
        differentiable = cell.op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        torch.manual_seed(0)
        pairs = []
        for sample in spread([s for s in cell.op.sample_inputs("cpu", dtype, requires_grad=differentiable) if strided(s)], samples, turn):
            try:
                expected = _run(cell, sample, "cpu", None)
            except Exception:  # a sample that the CPU cannot run judges nothing
                continue
            pairs.append((sample, told(verdict, sample, lambda s=sample, e=expected: _run(cell, s, "lazy", e.cotangents)), expected))
            verdict.samples += 1
        for sample, found, expected in pairs:  # recorded one after the other, compiled as one program
            if found.structure != expected.structure:
                raise AssertionError(f"the result's structure is {found.structure} where the CPU's is {expected.structure}")
            told(verdict, sample, lambda f=found, e=expected: compare(f.values, e.values, e.random, allowed))
    return verdict


def told(verdict: Verdict, sample: Any, action: Any) -> Any:
    """Run an action; what it raises is described with its sample."""
    try:
        return action()
    except Exception as error:
        verdict.detail = short(((sample.input, *sample.args), sample.kwargs), error)
        raise


if __name__ == "__main__":
    sys.exit(main("opinfo", cells, judge, tuple(DTYPES)))
