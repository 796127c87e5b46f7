"""Exchange of tensors with other libraries in torch's own words: DLPack, `torch.as_tensor`, `torch.from_numpy`.

Owns: the wrappers around torch's export and import. Imported with torch, so it imports neither jax nor the core at the top.

Out: a lazy tensor's storage is no memory that another library could read, and what it holds may be pending; a buffer of the backend must
not be written to by others either. So a capsule holds a fresh copy of the values, on the CPU, and a consumer that insists on not copying
is refused.

In: where torch's default device is the lazy one (`with torch.device("lazy")`), another frontend's lazy tensor becomes a lazy one with the
same value, within the trace: `torch.as_tensor`, `torch.tensor` and `torch.asarray` ask `torch.utils.dlpack.from_dlpack`. Elsewhere torch
reads what it is given, as it does of everything that is not its own: a program whose torch stays on the CPU gets tensors on the CPU.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils import _device

_CPU = (1, 0)  # kDLCPU


def install() -> None:
    """Wrap `Tensor.__dlpack__`, `Tensor.__dlpack_device__`, torch's `to_dlpack`, `from_dlpack` and `from_numpy`; once."""
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
    _install_imports()


def _install_imports() -> None:
    imported, from_host = torch.utils.dlpack.from_dlpack, torch.from_numpy

    @functools.wraps(imported)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        value = _value(ext_tensor) if copy is None and _lazy_by_default(sys._getframe(1)) else None
        if value is None:
            return imported(ext_tensor, device=device, copy=copy)
        from . import convert

        shared = convert.from_lazy(value)
        return shared if device is None else shared.to(device)

    @functools.wraps(from_host)
    def from_numpy(array: Any) -> torch.Tensor:
        if _value(array) is None:
            return from_host(array)
        raise TypeError(
            f"torch.from_numpy makes a tensor on an array's own memory, and a lazy {type(array).__name__} has none to share: "
            "lazy_torch.from_lazy(x) takes its value to the lazy device and computes nothing, torch.as_tensor(x) reads it"
        )

    torch.utils.dlpack.from_dlpack = torch.from_dlpack = from_dlpack
    torch.from_numpy = from_numpy


def _lazy_by_default(caller: Any) -> bool:
    """Whether a function that makes tensors makes lazy ones here; `caller` is the frame that it was called from."""
    if caller.f_code is _device.DeviceContext.__torch_function__.__code__:  # a scope has chosen already, and is off meanwhile
        device = (caller.f_locals.get("kwargs") or {}).get("device")
        return device is not None and torch.device(device).type == "lazy"
    return torch.get_default_device().type == "lazy"


def _value(x: Any) -> Any:
    """The core's value of another frontend's lazy tensor; None for everything else."""
    if isinstance(x, torch.Tensor) or getattr(type(x), "__lazy_core_value__", None) is None:  # the core need not be imported to see that
        return None
    from lazy_core import dump

    from . import dtypes

    value = dump.value_or_none(x)
    return value if value is not None and value.shape.dtype in dtypes.DTYPES else None


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
