"""The frontend's face towards the core: the entry point `lazy_core.frontends` (see `lazy_core.frontend`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import lazy_torch

from . import convert, dtypes, tensor

assert lazy_torch.__version__


class TorchFrontend:
    """PyTorch on the device "lazy"."""

    name = "torch"
    library = "torch"
    dtypes: Sequence[np.dtype] = dtypes.DTYPES

    @property
    def conformance(self) -> Mapping[str, Callable[..., Any]]:
        """Core operation name -> the same through torch's public API."""
        from .conformance import CONFORMANCE

        return CONFORMANCE

    @property
    def programs(self) -> Mapping[str, Callable[..., Any]]:
        """Whole program's name -> the same through torch's public API."""
        from .conformance_programs import PROGRAMS

        return PROGRAMS

    def from_numpy(self, array: np.ndarray) -> torch.Tensor:
        """A lazy tensor with these contents."""
        return convert.from_numpy(array)

    def native(self, array: np.ndarray) -> torch.Tensor:
        """A CPU tensor with these contents."""
        return tensor.numpy_to_cpu(np.array(array, copy=True))

    def to_numpy(self, x: Any) -> np.ndarray:
        """The contents of either kind of tensor."""
        return convert.to_numpy(x)

    def creating(self) -> Any:
        """A context in which factories make lazy tensors."""
        return torch.device("lazy")

    def is_lazy(self, x: Any) -> bool:
        """Whether a tensor is on the lazy device."""
        return isinstance(x, torch.Tensor) and x.device.type == "lazy"


FRONTEND = TorchFrontend()
