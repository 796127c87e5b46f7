"""The module `torch.lazy`: what torch asks of a device's Python module.

Owns: device count, seeds and generator states, synchronisation. There is one lazy device; what it runs on is XLA's choice (see
`lazy_core.config`). Imported while torch is imported, so it imports neither jax nor the core at the top.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from . import build

_import_pid = os.getpid()
_initialized = True  # torch.utils.checkpoint keeps the states of initialised devices only
default_generators: tuple[torch.Generator, ...] = (build.native().default_generator(),)


def is_available() -> bool:
    """Always true: the device is there when this module is."""
    return True


def is_initialized() -> bool:
    """Always true: there is nothing to initialise."""
    return True


def init() -> None:
    """Nothing to do."""


def _lazy_init() -> None:
    """Nothing to do; torch calls this before the first use of a device."""


def _is_in_bad_fork() -> bool:
    """Whether this is a forked child: XLA's threads do not survive a fork."""
    return os.getpid() != _import_pid


def device_count() -> int:
    """One."""
    return 1


def current_device() -> int:
    """Zero."""
    return 0


def _index(which: Any) -> int:
    if which is None:
        return 0
    number = which if isinstance(which, int) else torch.device(which).index
    if number not in (None, 0, -1):
        raise RuntimeError(f"there is one lazy device, lazy:0; got {which!r}")
    return 0


def set_device(which: Any) -> None:
    """Accepts device 0 only.

    Raises:
        RuntimeError: another index.
    """
    _index(which)


class device:
    """`with torch.lazy.device(0):`, for symmetry with other devices."""

    def __init__(self, which: Any) -> None:
        self.idx = _index(which)

    def __enter__(self) -> device:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


def get_device_name(which: Any = None) -> str:
    """The platform that programs run on, such as "lazy (cpu)"."""
    from lazy_core import backend

    _index(which)
    return f"lazy ({backend.device_name()})"


def synchronize(which: Any = None) -> None:
    """A barrier that waits until everything recorded so far has been computed."""
    import lazy_core

    _index(which)
    lazy_core.barrier(wait=True)


def manual_seed(seed: int) -> None:
    """Restart the device's default generator from a seed."""
    default_generators[0].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """The same as `manual_seed`; called by `torch.manual_seed`."""
    manual_seed(seed)


def seed() -> int:
    """Restart the default generator from a random seed, which is returned."""
    return default_generators[0].seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generators[0].initial_seed()


def get_rng_state(which: Any = "lazy") -> torch.Tensor:
    """The default generator's state: a uint8 tensor of 16 elements (seed and counter), on the lazy device: no host read."""
    _index(which)
    state: torch.Tensor = build.native().rng_state()
    return state.view(torch.uint8)


def set_rng_state(new_state: torch.Tensor, which: Any = "lazy") -> None:
    """Restore a state that `get_rng_state` or `Generator.get_state` returned; it may have been moved to the CPU."""
    _index(which)
    if new_state.device.type == "cpu":
        default_generators[0].set_state(new_state)
    else:
        build.native().set_rng_state(new_state.view(torch.uint64))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("lazy")` may compute in."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """True: XLA has bfloat16 everywhere."""
    return True


def empty_cache() -> None:
    """Nothing to do: buffers are freed with the tensors that hold them."""
