"""A step compiled by hand, and beside it the eager library's own Python for it: the same step on a tiny model.

What comes out is how long a training step takes whose program is compiled as well as by hand and whose Python, tape and optimizer are the
library's, as they are in any program that a lazy system runs unchanged. A tiny model's kernels take next to nothing.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .models import MODELS, Batch, Model
from .peers import PEERS, Peer

# By family: the peer that compiles by hand, and the eager one.
_PAIRS = {"torch": ("jax", "torch"), "tf": ("tf-xla", "tf")}

_compiled: ModuleType


def start(peer: Peer) -> None:
    """Import both libraries; torch's kernels keep to the calling thread, since the other cores are the compiled program's."""
    global _compiled
    _compiled = PEERS[_PAIRS[peer.family][0]].workloads()
    if peer.family == "torch":
        import torch

        torch.set_num_threads(1)


def prepare(model: Model) -> Any:
    """The parameters on the host."""
    return _compiled.prepare(model)


class Training:
    """A model in training, compiled, and a tiny one that takes an eager step whenever it does."""

    def __init__(self, model: Model, prepared: Any, peer: Peer) -> None:
        compiled, eager = (PEERS[name] for name in _PAIRS[peer.family])
        own, tiny = eager.workloads(), MODELS["tiny"]
        self._compiled = _compiled.Training(model, prepared, compiled)
        self._own = own.Training(tiny, own.prepare(tiny), eager)
        self._batch = self._own.place(tiny.batch(tiny.batch_size, 1))

    def place(self, batch: Batch) -> tuple[Any, Any]:
        """A batch on the device."""
        placed: tuple[Any, Any] = self._compiled.place(batch)
        return placed

    def step(self, batch: tuple[Any, Any]) -> Any:
        """Start the compiled step; while it runs, if the library lets it, take the eager one."""
        loss = self._compiled.step(batch)
        self._own.step(self._batch)
        return loss


def read(value: Any) -> np.ndarray:
    """The value on the host, computed."""
    found: np.ndarray = _compiled.read(value)
    return found
