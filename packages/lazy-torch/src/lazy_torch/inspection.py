"""What a debugger is shown of a pending tensor.

Owns: the wrapper around `torch._tensor_str._str`, torch's private function behind `repr`.  Everywhere but in a debugger a tensor prints
its contents, as always.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import build


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
    torch.Tensor._repr_html_ = _html  # type: ignore[attr-defined]
    torch.Tensor._repr_mimebundle_ = _bundle  # type: ignore[attr-defined]


def _html(self: torch.Tensor) -> str | None:
    """What a notebook shows of a pending tensor, which it must not run; None for all others."""
    return (_bundle(self) or {}).get("text/html")


def _bundle(self: torch.Tensor, include: Any = None, exclude: Any = None) -> dict[str, str] | None:
    """The same with the text beside it, so that the notebook does not ask for the `repr`."""
    if self.device.type != "lazy" or not build.native().pending(self):
        return None
    from lazy_core import notebook

    return notebook.bundle(self, include, exclude)
