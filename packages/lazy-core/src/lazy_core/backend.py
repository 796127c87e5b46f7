"""The backend: XLA through JAX's ahead-of-time interface.

Owns: the only uses of `jax.jit`, devices and transfers.  64-bit types are kept by entering JAX's thread-local 64-bit
context around lowering, compiling and transfers, so that the process-wide JAX configuration is left to its owner.  May
import `allocator`, `background`, `config`, `deferred`, `interrupts`, `errors`, `ir` and `shape`.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

from . import allocator, background, deferred, interrupts
from .config import config
from .deferred import jax, jaxlib_version, lapack, xla_bridge, xla_client
from .errors import DeviceError, DtypeError
from .ir import Attrs
from .shape import Shape

_EXTENSION_DTYPES = frozenset({np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)})


def x64(enabled: bool) -> Any:
    """JAX's context manager for 64-bit types in this thread."""
    return jax.enable_x64(enabled)


def supports(dtype: Any) -> bool:
    """Whether the device has this dtype: bool, integers, floats of 16 to 64 bits, bfloat16, float8, complex."""
    dtype = np.dtype(dtype)
    return (dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8) and dtype.isnative) or dtype in _EXTENSION_DTYPES


_forked = False


def _after_fork_in_child() -> None:
    global _forked
    _forked = device_started()


def device_started() -> bool:
    """Whether the process has started XLA's client, whose threads do not survive a fork."""
    return deferred.imported() and bool(xla_bridge.backends_are_initialized())


def check_process() -> None:
    """Refuse to use a device whose threads were lost in a fork.

    Raises:
        DeviceError: this process was forked from one that had used the device.
    """
    if _forked:
        raise DeviceError(
            "the lazy device cannot be used in a process forked from one that has used it; "
            "start workers with multiprocessing's 'spawn' method, or use the device in the parent only"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def accelerated() -> bool:
    """Whether the device is an accelerator and not the host's own cores; asking does not start the device."""
    if device_started():
        return jax.default_backend() != "cpu"
    return _accelerator_expected()


@functools.cache
def _accelerator_expected() -> bool:
    wanted = os.environ.get("JAX_PLATFORMS", "") or (deferred.imported() and getattr(jax.config, "jax_platforms", None)) or ""
    if wanted:
        return wanted.split(",")[0] != "cpu"
    return any(find_spec(name) is not None for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin", "libtpu"))


# What a thread of XLA's client must have worked for during one compile to be one that compiles, at least, and as a part of what the busiest
# one did: others only wake up for some microseconds, or have just been started.
_COMPILES_NANOSECONDS, _COMPILES_SHARE = 1_000_000, 0.25
# What XLA calls the threads that share the work of an operation: these run programs, whatever else they did.
_RUNS = "tf_XLAEigen"
# The threads that came with the client; empty where that is not known.
_client_threads: frozenset[int] = frozenset()


def start_client() -> None:
    """Start XLA's client on this process's CPUs, if nobody has, and remember which threads came with it."""
    global _client_threads
    if not device_started() and not accelerated():
        before = background.threads()
        with interrupts.held():
            jax.devices()
        _client_threads = frozenset(background.threads().keys() - before.keys())


# The threads that compile and have stepped back.
_back: tuple[int, ...] = ()


def compiled_for() -> float:
    """Seconds of processor time that the threads have had which compile and have stepped back; 0 where none is known."""
    if not _back:
        return 0.0
    times = background.threads()
    return sum(times.get(thread, 0) for thread in _back) / 1e9


@functools.cache
def compile_in_back() -> int:
    """Lower the priority of the threads that XLA compiles with, so that they cost the program at most `learn_percent`; returns how many.

    They are XLA's and have no names. Some start with the client, and the first compile sets them to work and starts the rest: so this
    must be called after `start_client` and before anything was compiled. Where somebody else started the client, it does nothing.
    """
    global _back
    if not _client_threads:
        return 0
    before = background.threads()
    lower(lambda: (jax.numpy.zeros(()),), ()).compile()
    after = background.threads()
    ours = {thread.native_id for thread in threading.enumerate()}
    worked = {t: after.get(t, 0) - before.get(t, 0) for t in _client_threads if background.name(t) != _RUNS}
    least = max(_COMPILES_NANOSECONDS, _COMPILES_SHARE * max(worked.values(), default=0))
    found = [t for t, nanoseconds in worked.items() if nanoseconds >= least]
    found += [t for t in after.keys() - before.keys() if t not in ours]
    levels = background.nicer(config.learn_percent)
    for thread in found:
        background.step_back(thread, levels)
    _back = tuple(found)
    return len(found)


def device_name() -> str:
    """The platform that programs run on: "cpu", "gpu" or "tpu"."""
    return jax.default_backend()


def versions() -> dict[str, str]:
    """The versions of what programs are compiled with."""
    return {"jax": jax.__version__, "jaxlib": jaxlib_version.__version__, "numpy": np.__version__, "platform": jax.default_backend()}


def topology() -> str:
    """The devices that programs are compiled for."""
    return f"{jax.default_backend()} {jax.local_devices()[0].device_kind} {jax.device_count()} {jax.process_count()}"


def from_host(array: np.ndarray, copy: bool = True) -> Any:
    """A device array with the contents of a host array.

    Raises:
        DtypeError: the dtype does not exist on the device.
    """
    if not supports(array.dtype):
        raise DtypeError(
            f"dtype {array.dtype} of an array of shape {array.shape} does not exist on the device; "
            "it has bool, integers, floating point of 16 to 64 bits, bfloat16 and complex"
        )
    check_process()
    with x64(True):
        # The device may alias an aligned host buffer, so a buffer that somebody may still write to is copied first.
        return jax.device_put(np.array(array, order="C", copy=True) if copy else array)


def copy(array: Any) -> Any:
    """The same contents in a buffer of their own."""
    with x64(True):
        return array.copy()


def to_host(array: Any) -> np.ndarray:
    """A read-only host view of a device array; waits until it has been computed."""
    found = np.asarray(array)
    allocator.keep_as_usual()
    return found


def wait(arrays: Sequence[Any]) -> None:
    """Wait until these arrays have been computed."""
    jax.block_until_ready(list(arrays))  # type: ignore[no-untyped-call]
    allocator.keep_as_usual()


# XLA's algebraic simplifier divides by multiplying with a reciprocal, and folds constants out of sums that round.  Without it broadcasts
# that change nothing stay in the program, which YNNPACK's kernels compute wrongly where a reshape follows (jaxlib 0.10.2), so these do not
# take part.
_EXACT = {"xla_disable_hlo_passes": "algsimp", "xla_cpu_experimental_ynn_fusion_type": ""}


class Program:
    """A lowered program: its StableHLO text without locations, with the options that it is compiled with, and how to compile it."""

    def __init__(self, lowered: Any, exact: bool = False) -> None:
        self._lowered = lowered
        self._options = _EXACT if exact else None
        self.text: str = lowered.as_text() + (f"// {_EXACT}\n" if exact else "")

    def compile(self) -> Executable:
        """Compile with XLA."""
        with x64(True):
            compiled = self._lowered.compile(compiler_options=self._options)
        return Executable(compiled, compiled.runtime_executable())


def _memory_of(raw: Any) -> int:
    """How many bytes of the host's memory a program asks for each time it runs: for its results, and while it runs."""
    if accelerated():
        return 0
    try:
        stats = raw.get_compiled_memory_stats()
    except (RuntimeError, NotImplementedError, ValueError):  # the client does not say
        return 0
    return int(stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes)


class Executable:
    """A compiled program; calling it is asynchronous."""

    __slots__ = ("_call", "_raw", "_size")

    def __init__(self, call: Callable[..., Sequence[Any]], raw: Any) -> None:
        self._call = call
        self._raw = raw
        self._size = _memory_of(raw)

    def __call__(self, arrays: Sequence[Any], packed: Sequence[np.ndarray] = ()) -> Sequence[Any]:
        """Run on device arrays, then packed vectors of scalars from the host."""
        if allocator.is_kept(self._size):
            allocator.keep_all()  # until somebody waits: another thread asks for the memory when the arguments are there
        if packed:
            with x64(True):
                return self._call(*arrays, *[jax.device_put(p) for p in packed])
        return self._call(*arrays)

    def serialise(self) -> bytes | None:
        """XLA's own serialised form, or None where the platform has none."""
        try:
            return bytes(self._raw.serialize())
        except (RuntimeError, NotImplementedError, ValueError):
            return None


def deserialise(payload: bytes) -> Executable | None:
    """The executable of a serialised form that this machine and these versions made, or None if XLA refuses it."""
    device = jax.local_devices()[0]
    if b"lapack_" in payload:  # it calls LAPACK through pointers that jaxlib fills in only when it lowers a decomposition
        lapack.prepare_lapack_call("geqrf", np.dtype(np.float32))
    try:
        raw = device.client.deserialize_executable(payload, xla_client.DeviceList((device,)), None)
    except Exception:  # XLA raises several types for a form that it cannot load; the program is then compiled
        return None

    def call(*arrays: Any) -> Sequence[Any]:
        results = raw.execute_sharded(arrays)
        return [shards[0] for shards in results.disassemble_into_single_device_arrays()]

    return Executable(call, raw)


def lower(function: Callable[..., Any], shapes: Sequence[Shape], donated: Sequence[int] = (), exact: bool = False) -> Program:
    """Trace and lower a function of arrays of these shapes.

    Args:
        function: computes arrays from arrays.
        shapes: of its arguments.
        donated: arguments whose memory goes to outputs of the same shape.
        exact: whether every division, sum and product is to be computed as it stands.
    """
    with x64(True), interrupts.held():  # jax imports what it lowers to as it goes, and half of that is of no use for ever
        structs = [jax.ShapeDtypeStruct(s.dims, s.dtype) for s in shapes]  # type: ignore[no-untyped-call]
        return Program(jax.jit(function, keep_unused=True, donate_argnums=tuple(donated)).lower(*structs), exact)


_MOST_SINGLE = 1024


def op_by_op(op: Any, attributes: Attrs, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One operation on host arrays, compiled by itself; the program is kept for the next call with these dims and dtypes.

    Returns:
        Its outputs, read-only.

    Raises:
        DtypeError: a dtype does not exist on the device.
        DeviceError: see `check_process`.
    """
    program: Executable = _single(op, attributes, tuple([Shape.of(a.shape, a.dtype) for a in arrays]))
    return [to_host(r) for r in program([from_host(a, copy=False) for a in arrays])]


@functools.lru_cache(maxsize=_MOST_SINGLE)
def _single(op: Any, attributes: Attrs, shapes: tuple[Shape, ...]) -> Executable:
    def run(*operands: Any) -> tuple[Any, ...]:
        result = op.fn(*operands, **attributes.kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    return lower(run, shapes).compile()
