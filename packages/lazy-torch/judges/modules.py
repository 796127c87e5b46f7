"""torch's own module database as a judge: every nn.Module on the lazy device against the CPU, outputs and gradients.

Owns: what a cell (module, dtype, mode) is, and how its inputs are run on both devices.

Run as a program, it judges many cells and prints a table: `python modules.py --match Norm`.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import SEED, Verdict, compare, main, settle, short, spread
from torch.utils._pytree import tree_leaves, tree_map

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own test modules use some of what torch deprecates
    from torch.testing._internal.common_modules import module_db

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64")}

# By module, where more is needed: sums of many terms through several layers.
LOOSER = {
    "nn.Transformer": (1e-3, 1e-4),
    "nn.TransformerEncoder": (1e-3, 1e-4),
    "nn.TransformerEncoderLayer": (1e-3, 1e-4),
    "nn.TransformerDecoderLayer": (1e-3, 1e-4),
    "nn.MultiheadAttention": (1e-3, 1e-4),
}


@dataclass(frozen=True)
class Cell:
    """One module and dtype, training or not."""

    info: Any
    name: str
    dtype: str
    training: bool

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{'train' if self.training else 'eval'}"


def cells(match: str = "", dtypes: Sequence[str] = tuple(DTYPES)) -> list[Cell]:
    """Every cell of the database whose name matches."""
    return [
        Cell(info, info.name, dtype, training)
        for info in module_db
        if re.search(match, info.name)
        for dtype in dtypes
        if DTYPES[dtype] in info.dtypes
        for training in ((True, False) if info.train_and_eval_differ else (True,))
    ]


def _moved(tree: Any, device: str) -> Any:
    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.detach().clone().to(device).requires_grad_(x.requires_grad)
        return x

    return tree_map(one, tree)


def _run(
    module: torch.nn.Module, call: Any, device: str, cotangents: list[torch.Tensor] | None
) -> tuple[list[Any], list[torch.Tensor], bool]:
    """Outputs, buffers and gradients; the cotangents; whether random numbers were drawn on the CPU."""
    args, kwargs = _moved((call.args, call.kwargs), device)
    torch.manual_seed(SEED)
    before = torch.get_rng_state()
    result = module(*args, **kwargs)
    random = not torch.equal(before, torch.get_rng_state())
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in (*tree_leaves((args, kwargs)), *module.parameters()) if isinstance(t, torch.Tensor) and t.requires_grad]
    if cotangents is None:
        cotangents = [torch.randn_like(t.detach()) for t in outputs]
    gradients: list[Any] = []
    if outputs and wanted:
        gradients = list(torch.autograd.grad(outputs, wanted, [c.to(device) for c in cotangents], allow_unused=True))
    return [*tree_leaves(result), *module.buffers(), *gradients], cotangents, random


def judge(cell: Cell, samples: int | None = None, turn: int = 0) -> Verdict:
    """Run a module on both devices and compare outputs, buffers and gradients.

    Args:
        cell: what to judge.
        samples: at most so many inputs, evenly spread; all by default.
        turn: which of the many possible choices.
    """
    with settle(cell) as verdict:
        torch.manual_seed(0)
        inputs = cell.info.module_inputs_func(cell.info, device="cpu", dtype=DTYPES[cell.dtype], requires_grad=True, training=cell.training)
        pairs = []
        for given in spread([i for i in inputs if i.forward_input is not None], samples, turn):
            built = given.constructor_input
            try:
                module = cell.info.module_cls(*built.args, **built.kwargs).to(DTYPES[cell.dtype]).train(cell.training)
                if cell.info.is_lazy:  # parameters take their shapes from the first input
                    module(*_moved(given.forward_input.args, "cpu"), **given.forward_input.kwargs)
                twin = copy.deepcopy(module).to("lazy")
                expected, cotangents, random = _run(module, given.forward_input, "cpu", None)
            except Exception:  # an input that the CPU cannot run judges nothing
                continue
            call = (built.args, built.kwargs, given.forward_input.args, given.forward_input.kwargs)
            try:
                found, _, _ = _run(twin, given.forward_input, "lazy", cotangents)
            except Exception as error:
                verdict.detail = short(call, error)
                raise
            pairs.append((call, found, expected, random))
            verdict.samples += 1
        for call, found, expected, random in pairs:
            try:
                compare(found, expected, random, lambda dtype: LOOSER.get(cell.name) if dtype == torch.float32 else None)
            except Exception as error:
                verdict.detail = short(call, error)
                raise
    return verdict


if __name__ == "__main__":
    sys.exit(main("modules", cells, judge, tuple(DTYPES)))
