"""What a debugger is shown of a pending tensor.

Owns: the wrapper around `torch._tensor_str._str`, torch's private function behind `repr`.  Everywhere but in a debugger a tensor prints
its contents, as always.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Wrap the function behind `repr`; once."""
    shown = torch._tensor_str._str
    if hasattr(shown, "__lazy_wrapped__"):
        return

    @functools.wraps(shown)
    def text(self: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        if self.device.type == "lazy":
            from lazy_core import dump

            found = dump.inspected(self)
            if found is not None:
                return found
        return str(shown(self, *args, **kwargs))

    text.__lazy_wrapped__ = True  # type: ignore[attr-defined]
    torch._tensor_str._str = text
