"""What `import torch` runs, through the entry point `torch.backends`: the device is registered if a binary for this torch is there.

Owns: `register` and `activate`. `register` never compiles, prints or fails, and imports neither jax nor the core: those come with the
first operation.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

import torch

from . import build

DEVICE = "lazy"
_active = False
error: BaseException | None = None  # what went wrong in `register`, for `python -m lazy_torch`


def register() -> None:
    """Register the device if that takes no building and harms no other; otherwise leave everything to an explicit `import lazy_torch`."""
    global error
    try:
        if other_accelerator() is None and build.find() is not None:
            activate()
            return
    except Exception as problem:
        error = problem
    _forget_package()


def other_accelerator() -> str | None:
    """The accelerator that this torch can use already, or None.

    Torch's autograd engine knows one accelerator a process, and prefers one from outside: while the device "lazy" is registered, a
    backward pass on CUDA fails (`opt_ready_stream && opt_parent_stream`). So nobody gets it who did not import this package.
    """
    # Counting asks the driver's management library, so that CUDA is not started and a later fork stays possible.
    return "cuda" if torch.backends.cuda.is_built() and torch.cuda.device_count() > 0 else None


def activate() -> None:
    """Load the extension, and register device, hooks and torch.lazy; once.

    Raises:
        BuildError: the extension has to be built and cannot be.
        RuntimeError: another extension has taken torch's PrivateUse1 device already.
    """
    global _active
    if _active:
        return
    path = build.find() or build.build()
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", DEVICE):
        raise RuntimeError(
            f"torch allows one extra device a process, and it is taken by {taken!r}; lazy_torch cannot register {DEVICE!r} beside it"
        )
    torch.utils.rename_privateuse1_backend(DEVICE)
    native = build.load(path)
    from . import composed

    composed.install()  # before the recorder takes every operation that is left
    native.register()
    native.set_tier({"compiled": 1, "native": 2}.get(os.environ.get("LAZY_TIER", ""), int(_accelerated())))
    from . import awake, device, dlpack, inspection, modules, optim

    native.set_wake_after(awake.delay())
    torch._register_device_module(DEVICE, device)
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True)
    inspection.install()
    modules.install()
    dlpack.install()
    optim.install()
    torch.Tensor.__lazy_core_value__ = _value  # type: ignore[attr-defined]
    _active = True


def _accelerated() -> bool:
    """Whether the device will be an accelerator, on which everything is compiled at once; asking does not import jax."""
    wanted = os.environ.get("JAX_PLATFORMS", "")
    if wanted:
        return wanted.split(",")[0] != "cpu"
    return any(find_spec(name) is not None for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin", "libtpu"))


def _value(tensor: torch.Tensor) -> Any:
    """What `lazy_core.explain(x)` and `lazy_core.graph(x)` ask of a tensor."""
    from .convert import to_lazy

    return to_lazy(tensor)


def importing_torch() -> bool:
    """Whether torch's own import is running, so that this is autoload and not an explicit import."""
    return bool(getattr(torch.__spec__, "_initializing", False))


def _forget_package() -> None:
    """Let an explicit `import lazy_torch` later run the package's `__init__` again, which then builds."""
    package = sys.modules.get("lazy_torch")
    if package is None or not importing_torch() or getattr(package.__spec__, "_initializing", False):
        return
    for name in [n for n in sys.modules if n == "lazy_torch" or n.startswith("lazy_torch.")]:
        del sys.modules[name]
