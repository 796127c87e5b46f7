"""Exchange of tensors with other libraries by DLPack: a lazy tensor is handed out as a copy on the CPU.

Owns: the wrappers around torch's export. A lazy tensor's storage is no memory that another library could read, and what it holds may be
pending; a buffer of the backend must not be written to by others either. So a capsule holds a fresh copy of the values, on the CPU, and a
consumer that insists on not copying is refused. The way back needs nothing: `torch.from_dlpack(x).to("lazy")` copies.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_CPU = (1, 0)  # kDLCPU


def install() -> None:
    """Wrap `Tensor.__dlpack__`, `Tensor.__dlpack_device__` and `torch.utils.dlpack.to_dlpack`; once."""
    if hasattr(torch.Tensor.__dlpack__, "__lazy_wrapped__"):
        return
    export, where, legacy = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__, torch.utils.dlpack.to_dlpack

    @functools.wraps(export)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        return export(_copied(self, kwargs.pop("copy", None)), **kwargs) if self.device.type == "lazy" else export(self, **kwargs)

    @functools.wraps(where)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        return _CPU if self.device.type == "lazy" else where(self)

    @functools.wraps(legacy)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return legacy(_copied(tensor, None) if tensor.device.type == "lazy" else tensor)

    __dlpack__.__lazy_wrapped__ = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack


def _copied(tensor: torch.Tensor, copy: bool | None) -> torch.Tensor:
    """A copy on the CPU that nothing else refers to.

    Raises:
        BufferError: the consumer asked for no copy, or the tensor requires a gradient.
    """
    if copy is False:
        raise BufferError("a tensor on the lazy device can only be exported as a copy; use copy=None or copy=True")
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return tensor.resolve_conj().resolve_neg().cpu().clone()
