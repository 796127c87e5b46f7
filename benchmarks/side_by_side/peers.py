"""Who takes part: each peer is a library, a device of it, a way to compile, and the environment that its process gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType


@dataclass(frozen=True)
class Peer:
    """One way to run the workloads.

    Attributes:
        name: what the command line and the results call it.
        title: the head of its column.
        library: "torch", "jax", "tf" or "beside" (two of them at once); `workloads_<library>` is written for it.
        family: "torch" or "tf": whose eager library it is compared with.
        role: "eager" (what ratios divide by), "lazy" (what they are about), "xla" (compiled by hand) or "other".
        lazy: whether it runs on the lazy device.
        compiled: whether functions are handed to the library's own compiler (jax.jit, torch.compile, tf.function(jit_compile=True)).
        environment: variables of its process.
        optional: whether it runs only when named.
    """

    name: str
    title: str
    library: str
    family: str
    role: str
    lazy: bool = False
    compiled: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    optional: bool = False

    def workloads(self) -> ModuleType:
        """Import the library and what is written for it; the peer's device is the default from then on where the library has defaults."""
        from importlib import import_module

        module = import_module(f"{__package__}.workloads_{self.library}")
        module.start(self)
        return module


# Torch would load lazy-torch by itself; a peer without it should not.
_NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def _lazy(library: str, tier: str, optional: bool = False) -> Peer:
    suffix = "" if tier == "auto" else f"-{tier}"
    return Peer(
        f"lazy-{library}{suffix}", f"lazy-{library}" if tier == "auto" else f"{tier} only", library, library,
        "lazy" if tier == "auto" else "other", lazy=True, environment={"LAZY_TIER": tier, **_QUIET}, optional=optional,
    )  # fmt: skip


PEERS = {
    peer.name: peer
    for peer in (
        Peer("torch", "torch eager", "torch", "torch", "eager", environment=_NO_AUTOLOAD),
        _lazy("torch", "auto"),
        _lazy("torch", "compiled"),
        _lazy("torch", "native"),
        Peer("jax", "jax.jit", "jax", "torch", "xla", compiled=True),
        Peer("jit-beside-torch", "jit beside torch", "beside", "torch", "other", environment=_NO_AUTOLOAD),
        Peer("torch-compile", "torch.compile", "torch", "torch", "other", compiled=True, environment=_NO_AUTOLOAD, optional=True),
        Peer("tf", "TF eager", "tf", "tf", "eager", environment=_QUIET),
        _lazy("tf", "auto"),
        _lazy("tf", "compiled", optional=True),
        _lazy("tf", "native", optional=True),
        Peer("tf-xla", "TF jit_compile", "tf", "tf", "xla", compiled=True, environment=_QUIET),
        Peer("jit-beside-tf", "jit beside TF", "beside", "tf", "other", environment=_QUIET),
    )
}


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that are installed, found without importing them."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for name in ("torch", "jax", "jaxlib", "tensorflow-cpu", "tensorflow", "numpy", "transformers", "lazytensor-core"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
