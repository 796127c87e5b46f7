"""Building the native extension for the torch that is installed, once, and finding it again.

Owns: the compiler call, the key that a binary is filed under, the lock against concurrent builds. The extension speaks libtorch's C++
ABI, so a binary belongs to one torch version, one Python ABI and one state of the sources. Imports torch for its version and paths; never
jax or `lazy_core`, since autoload must be quick.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SOURCES = Path(__file__).parent / "csrc"
PREBUILT = Path(__file__).parent / "_prebuilt"
NAME = "_native"
_FLAGS = ("-O2", "-g0", "-std=c++20", "-fPIC", "-fvisibility=hidden")


class BuildError(RuntimeError):
    """The native extension cannot be built here; the message says what to install."""


@functools.cache
def key() -> str:
    """The name of the folder that a fitting binary lies in: torch version, Python ABI, and a digest of sources and flags."""
    digest = hashlib.sha256(repr((_FLAGS, _abi_flag())).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"torch-{torch.__version__}-{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:16]}"


def cache_folder() -> Path:
    """Where binaries built for this user lie; `LAZY_TORCH_BUILD_DIR` overrides it."""
    chosen = os.environ.get("LAZY_TORCH_BUILD_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lazytensor" / "torch"


def find() -> Path | None:
    """A binary for this torch and Python: the one inside the package, else one built before, else None."""
    for folder in (PREBUILT, cache_folder()):
        path = folder / key() / f"{NAME}.so"
        if path.is_file():
            return path
    return None


def build(into: Path | None = None) -> Path:
    """Compile the extension unless a binary is there, and return its path; says so in one line on stderr.

    Args:
        into: the folder to build in; the user's cache folder by default.

    Raises:
        BuildError: there is no C++ compiler, or compiling failed.
    """
    folder = (into or cache_folder()) / key()
    path = folder / f"{NAME}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if path.is_file():
            return path
        made = find()
        if made is not None:
            shutil.copyfile(made, path)
            return path
        begin = time.perf_counter()
        compiler = _compiler()
        print(
            f"lazy_torch: building the native extension for torch {torch.__version__} (once, about a minute) ...",
            file=sys.stderr,
            flush=True,
        )
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = _compile(compiler, Path(scratch))
            os.replace(made, path)
        print(f"lazy_torch: built in {time.perf_counter() - begin:.0f} s: {path}", file=sys.stderr, flush=True)
    return path


def load(path: Path) -> ModuleType:
    """Import a built extension as `lazy_torch._native`."""
    name = f"lazy_torch.{NAME}"
    found = sys.modules.get(name)
    if found is not None:
        return found
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def native() -> Any:
    """The loaded extension.

    Raises:
        BuildError: it has not been loaded, since `import lazy_torch` has not run or has failed.
    """
    module = sys.modules.get(f"lazy_torch.{NAME}")
    if module is None:
        raise BuildError("the native extension of lazy_torch is not loaded; `import lazy_torch` builds and loads it")
    return module


# ------------------------------------------------------------------ the compiler


def _abi_flag() -> int:
    return int(torch._C._GLIBCXX_USE_CXX11_ABI)


def _compiler() -> list[str]:
    if not sys.platform.startswith("linux"):
        raise BuildError(f"lazy_torch runs on Linux; this is {sys.platform}")
    chosen = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(chosen[0]) is None and not os.environ.get("CXX"):
        chosen = ["clang++"]
    if shutil.which(chosen[0]) is None:
        raise BuildError(
            f"lazy_torch has no binary for torch {torch.__version__} and found no C++ compiler to build one. Install g++ 11 or later "
            "(Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; conda: conda install -c conda-forge gxx), "
            "or set CXX to a compiler, or install a lazy-torch wheel built for this torch."
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        raise BuildError(
            f"lazy_torch needs Python's headers to build its extension, and {header} does not exist. Install them (Debian, Ubuntu: "
            "apt-get install python3-dev; Fedora: dnf install python3-devel)."
        )
    return chosen


def _compile(compiler: list[str], scratch: Path) -> Path:
    root = Path(torch.__file__).parent
    includes = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"])]
    flags = [*_FLAGS, "-w", f"-D_GLIBCXX_USE_CXX11_ABI={_abi_flag()}", *(x for i in includes for x in ("-isystem", str(i)))]
    sources = sorted(SOURCES.glob("*.cpp"))
    objects = [scratch / f"{s.stem}.o" for s in sources]
    jobs = max(1, int(os.environ.get("MAX_JOBS") or min(len(sources), len(os.sched_getaffinity(0)))))
    pairs = list(zip(sources, objects, strict=True))
    for at in range(0, len(pairs), jobs):
        running = [_start([*compiler, *flags, "-c", str(s), "-o", str(o)]) for s, o in pairs[at : at + jobs]]
        for process in running:
            _finish(process)
    target = scratch / f"{NAME}.so"
    libraries = [f"-L{root / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
    _finish(_start([*compiler, "-shared", *map(str, objects), "-o", str(target), *libraries]))
    return target


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        command = process.args if isinstance(process.args, list) else [str(process.args)]
        raise BuildError(f"building lazy_torch's extension failed:\n$ {shlex.join(map(str, command))}\n{errors[-4000:]}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
