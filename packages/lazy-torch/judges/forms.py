"""torch's own operator database once more, in other forms than the plain one: values against the CPU's, without gradients.

Owns: what a form is, and which cells have it. *in-place* and *out* call the operator's variant that writes; *strided*, *conj* and *neg*
call it on views that show the same elements: every second one of a larger tensor, or transposed; a conjugate and a negative that are not
yet carried out. Operators with a declared gap are left out: what is missing of them is missing in every form.

Run as a program, it judges many cells and prints a table: `python forms.py --dtypes float32 --samples 2 --match kron`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import opinfo
import torch
from common import SEED, Verdict, compare, gaps, main, settle, spread
from torch.utils._pytree import tree_leaves, tree_map

DTYPES = opinfo.DTYPES
FORMS = ("in-place", "out", "strided", "conj", "neg")

# What these give is a matter of the storage, which is another one here and there once tensors have moved.
OF_STORAGE = frozenset({"as_strided", "as_strided_copy", "as_strided_scatter"})


@dataclass(frozen=True)
class Cell:
    """One operator, dtype and form."""

    op: Any
    name: str
    dtype: str
    form: str

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{self.form}"


def _has(cell: opinfo.Cell, form: str) -> bool:
    dtype = DTYPES[cell.dtype]
    if form == "in-place":
        return cell.op.inplace_variant is not None
    if form == "out":
        return bool(cell.op.supports_out)
    if cell.op.name in OF_STORAGE:
        return False
    return form == "strided" or dtype.is_complex or (form == "neg" and dtype.is_floating_point)


def cells(match: str = "", dtypes: Sequence[str] = tuple(DTYPES)) -> list[Cell]:
    """Every cell whose operator's name matches, which has a form, and no declared gap."""
    gap_of = gaps("opinfo")
    found = [c for c in opinfo.cells(match, dtypes) if c.op.name not in opinfo.UNWRITTEN and gap_of(c) is None]
    return [Cell(c.op, c.name, c.dtype, form) for form in FORMS for c in found if _has(c, form)]


def _shown(x: torch.Tensor, form: str) -> torch.Tensor:
    """A view of the same elements, made on the tensor's own device."""
    if form == "conj":
        return torch.conj(torch.conj_physical(x)) if x.is_complex() else x
    if form == "neg":
        return torch._neg_view(-x) if x.is_floating_point() or x.is_complex() else x
    if x.dim() == 0:
        return torch.stack([x, x])[1]
    if x.dim() % 2 == 0:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    wider = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    wider[..., 1::2].copy_(x)
    return wider[..., 1::2]


def _run(cell: Cell, sample: Any, device: str) -> tuple[list[Any], bool]:
    """The results, written ones first; whether random numbers were drawn on the CPU."""
    op = cell.op.name
    args, kwargs = opinfo.inputs(op, sample, device)
    if cell.form not in ("in-place", "out") and op not in opinfo.ON_HOST:
        args, kwargs = tree_map(lambda x: _shown(x, cell.form) if isinstance(x, torch.Tensor) else x, (args, kwargs))
    torch.manual_seed(SEED)
    before = torch.get_rng_state()
    written: list[Any] = []
    if cell.form == "in-place":
        result = cell.op.inplace_variant(*args, **kwargs)
        written = tree_leaves(args[0])
    else:
        result = cell.op(*args, **kwargs)
        if cell.form == "out":
            full = result.numel() % 2 if isinstance(result, torch.Tensor) else False  # else it is resized
            written = [x.new_zeros(x.shape if full else 0) for x in tree_leaves(result)]
            result = cell.op(*args, **kwargs, out=written[0] if isinstance(result, torch.Tensor) else tuple(written))
    random = not torch.equal(before, torch.get_rng_state())
    if op in opinfo.DETERMINED:
        return tree_leaves(opinfo.DETERMINED[op](tuple(written) or result, sample, op)), random
    return [*written, *tree_leaves(result)], random


def judge(cell: Cell, samples: int | None = None, turn: int = 0) -> Verdict:
    """Run a cell's samples on both devices and compare.

    Args:
        cell: what to judge.
        samples: at most so many of them, evenly spread; all by default.
        turn: which of the many possible choices.
    """
    with settle(cell) as verdict:
        torch.manual_seed(0)
        pairs = []
        every = [s for s in cell.op.sample_inputs("cpu", DTYPES[cell.dtype]) if opinfo.strided(s)]
        for sample in spread([s for s in every if not (cell.form == "in-place" and s.broadcasts_input)], samples, turn):
            try:
                expected, random = _run(cell, sample, "cpu")
            except Exception:  # a sample that the CPU cannot run judges nothing
                continue
            pairs.append((sample, opinfo.told(verdict, sample, lambda s=sample: _run(cell, s, "lazy")[0]), expected, random))
            verdict.samples += 1
        allowed = functools.partial(opinfo.looser, cell.op.name)
        for sample, found, expected, random in pairs:
            opinfo.told(verdict, sample, lambda f=found, e=expected, r=random: compare(f, e, r, allowed))
    return verdict


if __name__ == "__main__":
    sys.exit(main("forms", cells, judge, tuple(DTYPES)))
