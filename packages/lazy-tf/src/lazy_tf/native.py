"""Building the C++ extension of the device for the TensorFlow that is installed, once, and loading it.

Owns: the compiler call, the key that a binary is filed under, and the decision to do without: the extension only makes recording
cheaper (some 3 us an operation against 9 through ctypes), so where there is no compiler `callbacks` serves instead. May import `capi`.

`LAZY_TF_EXTENSION=off` does without, `LAZY_TF_BUILD_DIR` chooses the folder for binaries.
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
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf

SOURCES = Path(__file__).parent / "csrc"
PREBUILT = Path(__file__).parent / "_prebuilt"
NAME = "_native"
_FLAGS = ("-O2", "-g0", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-shared")
_LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")


class BuildError(RuntimeError):
    """The extension cannot be built here; the message says why."""


@functools.cache
def key() -> str:
    """The name of the folder that a fitting binary lies in: TensorFlow's version, Python's ABI, and a digest of sources and flags."""
    digest = hashlib.sha256(repr((_FLAGS, np.__version__.split(".")[0])).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"tf-{tf.__version__}-{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:16]}"


def cache_folder() -> Path:
    """Where binaries built for this user lie."""
    chosen = os.environ.get("LAZY_TF_BUILD_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lazytensor" / "tf"


def find() -> Path | None:
    """A binary for this TensorFlow and Python: the one inside the package, else one built before, else None."""
    for folder in (PREBUILT, cache_folder()):
        path = folder / key() / f"{NAME}.so"
        if path.is_file():
            return path
    return None


def build(into: Path | None = None) -> Path:
    """Compile the extension unless a binary is there, and return its path.

    Args:
        into: the folder to build in; the user's cache folder by default.

    Raises:
        BuildError: there is no C++ compiler, or compiling failed.
    """
    folder = (into or cache_folder()) / key()
    path = folder / f"{NAME}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock"):
            if not path.is_file():
                print(
                    f"lazy_tf: building its extension for TensorFlow {tf.__version__} (once, some seconds) ...", file=sys.stderr, flush=True
                )
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    made = Path(scratch) / path.name
                    _compile(made)
                    os.replace(made, path)
    except OSError as error:
        raise BuildError(f"{folder} cannot be written to: {error}") from error
    return path


def _compile(target: Path) -> None:
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(compiler[0]) is None and not os.environ.get("CXX"):
        compiler = ["clang++"]
    if shutil.which(compiler[0]) is None:
        raise BuildError("there is no C++ compiler: install g++, or set CXX")
    root = Path(tf.__file__).parent
    includes = (Path(tf.sysconfig.get_include()), Path(np.get_include()), Path(sysconfig.get_paths()["include"]))
    if not (includes[2] / "Python.h").is_file():
        raise BuildError(
            f"Python's headers are missing: {includes[2] / 'Python.h'} does not exist (Debian, Ubuntu: apt-get install python3-dev)"
        )
    command = [*compiler, *_FLAGS, *(x for i in includes for x in ("-isystem", str(i))), *map(str, sorted(SOURCES.glob("*.cpp")))]
    command += ["-o", str(target), f"-L{root}", *(f"-l:{library}" for library in _LIBRARIES)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BuildError(f"compiling failed:\n$ {shlex.join(command)}\n{done.stderr[-4000:]}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _load(path: Path) -> ModuleType:
    name = f"lazy_tf.{NAME}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


@functools.cache
def extension() -> ModuleType | None:
    """The loaded extension, built if need be; None, after a warning, where it cannot be, and where `LAZY_TF_EXTENSION` is off."""
    if os.environ.get("LAZY_TF_EXTENSION", "").lower() in ("off", "0", "no"):
        return None
    try:
        return _load(find() or build())
    except (BuildError, ImportError) as error:
        warnings.warn(
            f"lazy_tf records operations more slowly, without its extension: {error}. LAZY_TF_EXTENSION=off accepts that in silence.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
