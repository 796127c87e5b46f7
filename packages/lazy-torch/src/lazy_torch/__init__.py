"""PyTorch programs, recorded and compiled as whole graphs: the device "lazy".

    import torch                          # finds the device where the extension has been built; `import lazy_torch` builds it
    model = Model().to("lazy")
    x = torch.randn(8, 16, device="lazy")

Operations on lazy tensors are recorded, and run as one compiled program when a value is read (`print`, `.item()`, `.cpu()`), at an
optimizer's step, or at `lazy_core.barrier()`. `to_lazy` and `from_lazy` share a value with another frontend without a copy.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch  # noqa: F401 (may import this package through the `torch.backends` entry point, before the next line)

from . import autoload

if not autoload.importing_torch() and sys.orig_argv[1:3] != ["-m", "lazy_torch"]:
    autoload.activate()

if TYPE_CHECKING:
    from .convert import from_lazy, is_pending, to_lazy

__version__ = "0.1.0"
__all__ = ["__version__", "from_lazy", "is_pending", "to_lazy"]


def __getattr__(name: str) -> Any:
    if name in ("from_lazy", "is_pending", "to_lazy"):
        from . import convert

        return getattr(convert, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
