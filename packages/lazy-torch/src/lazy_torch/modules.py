"""`module.to("lazy")` that keeps Parameter objects, so that tied weights stay tied and optimizers made before stay valid, as on CUDA.

Owns: the wrapper around `torch.nn.Module.to`, `.cpu` and `.lazy`. Torch moves a Parameter between the CPU and an out-of-tree device by
making a new one, unless `torch.__future__.set_swap_module_params_on_conversion(True)`: then it swaps contents and keeps the object. That
switch is turned on for just these calls. A Parameter that something holds a weak reference to cannot be swapped; then the rest of the
module moves in the default way, and weights that were tied are tied again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def install() -> None:
    """Wrap the methods that move a module; once."""
    for name in ("to", "cpu", "lazy"):
        method = getattr(nn.Module, name)
        if not hasattr(method, "__lazy_wrapped__"):
            setattr(nn.Module, name, _keeping_parameters(method))


def _keeping_parameters(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def moved(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        future = torch.__future__
        if future.get_swap_module_params_on_conversion() or not _concerns_lazy(self, method.__name__, args, kwargs):
            return method(self, *args, **kwargs)
        tied = _tied(self)
        future.set_swap_module_params_on_conversion(True)
        try:
            return method(self, *args, **kwargs)
        except RuntimeError as problem:
            if "swap" not in str(problem):
                raise
        finally:
            future.set_swap_module_params_on_conversion(False)
        result = method(self, *args, **kwargs)
        for places in tied:
            first, name = places[0]
            for module, other in places[1:]:
                module._parameters[other] = first._parameters[name]
        return result

    moved.__lazy_wrapped__ = True  # type: ignore[attr-defined]
    return moved


def _concerns_lazy(module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "lazy":
        return True
    target = kwargs.get("device", args[0] if args else None)
    if isinstance(target, torch.Tensor):
        target = target.device
    if isinstance(target, str):
        target = torch.device(target)
    if isinstance(target, torch.device) and target.type == "lazy":
        return True
    first = next(module.parameters(), None)
    return first is not None and first.device.type == "lazy"


def _tied(module: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((part, name))
    return [group for group in places.values() if len(group) > 1]
