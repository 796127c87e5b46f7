"""Native extensions that frontends build once, for what is installed, and find again.

Owns: `Extension`: the compiler call, the key that a binary is filed under, the lock against concurrent builds, and loading.  What is built,
and what to do where it cannot be, is the frontend's business.  May import nothing of the package.
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

NAME = "_native"
_FLAGS = ("-O2", "-g0", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-shared")


class BuildError(RuntimeError):
    """An extension cannot be built here; the message says why."""


@dataclass(frozen=True)
class Extension:
    """An extension of a frontend's package, made of the C++ files in its folder `csrc`.

    Attributes:
        package: the name of the package; the module is `PACKAGE._native`.
        folder: the package's folder.
        built_for: what a binary belongs to besides Python's ABI and the sources: `tf-2.21.0`, say.
        includes: folders of headers.
        libraries: what to link with, as the linker's arguments.

    `PACKAGE_BUILD_DIR`, in capitals, chooses the folder for binaries.
    """

    package: str
    folder: Path
    built_for: str
    includes: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = field(default=())

    @functools.cached_property
    def key(self) -> str:
        """The name of the folder that a fitting binary lies in."""
        digest = hashlib.sha256(repr(_FLAGS).encode())
        for path in sorted((self.folder / "csrc").iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return f"{self.built_for}-{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:16]}"

    def cache_folder(self) -> Path:
        """Where binaries built for this user lie."""
        chosen = os.environ.get(f"{self.package.upper()}_BUILD_DIR")
        if chosen:
            return Path(chosen)
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return Path(base) / "lazytensor" / self.package.removeprefix("lazy_")

    def find(self) -> Path | None:
        """A fitting binary: the one inside the package, else one built before, else None."""
        for folder in (self.folder / "_prebuilt", self.cache_folder()):
            path = folder / self.key / f"{NAME}.so"
            if path.is_file():
                return path
        return None

    def build(self, into: Path | None = None, say: str = "") -> Path:
        """Compile it unless a binary is there, and return the path.

        Args:
            into: the folder to build in; the user's cache folder by default.
            say: a line for standard error, written if there is something to compile.

        Raises:
            BuildError: there is no C++ compiler, or compiling failed, or the folder cannot be written to.
        """
        folder = (into or self.cache_folder()) / self.key
        path = folder / f"{NAME}.so"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / ".lock"):
                if not path.is_file():
                    if say:
                        print(say, file=sys.stderr, flush=True)
                    with tempfile.TemporaryDirectory(dir=folder) as scratch:
                        made = Path(scratch) / path.name
                        self._compile(made)
                        os.replace(made, path)
        except OSError as error:
            raise BuildError(f"{folder} cannot be written to: {error}") from error
        return path

    def _compile(self, target: Path) -> None:
        compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
        if shutil.which(compiler[0]) is None and not os.environ.get("CXX"):
            compiler = ["clang++"]
        if shutil.which(compiler[0]) is None:
            raise BuildError("there is no C++ compiler: install g++, or set CXX")
        python = Path(sysconfig.get_paths()["include"])
        if not (python / "Python.h").is_file():
            raise BuildError(
                f"Python's headers are missing: {python / 'Python.h'} does not exist (Debian, Ubuntu: apt-get install python3-dev)"
            )
        undefined = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
        includes = [argument for folder in (*self.includes, python) for argument in ("-isystem", str(folder))]
        sources = map(str, sorted((self.folder / "csrc").glob("*.cpp")))
        command = [*compiler, *_FLAGS, *undefined, *includes, *sources, "-o", str(target), *self.libraries]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise BuildError(f"compiling failed:\n$ {shlex.join(command)}\n{done.stderr[-4000:]}")

    def load(self, path: Path) -> ModuleType:
        """Import a binary.

        Raises:
            ImportError: it does not fit after all.
        """
        name = f"{self.package}.{NAME}"
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[name] = module
        return module

    def is_off(self) -> bool:
        """Whether the user wants to do without: `PACKAGE_EXTENSION=off`."""
        return os.environ.get(f"{self.package.upper()}_EXTENSION", "").lower() in ("off", "0", "no")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
