"""The C++ extension: short ways through calls that NumPy runs as they come.

Owns: what it is built from, and when.  Without it everything works, and a call on lazy arrays takes some half a microsecond longer.  A
wheel may carry a binary; otherwise the first program that finds none has it built in the background, for the next.  May import lazy_core.

`LAZY_NUMPY_EXTENSION=off` does without, `LAZY_NUMPY_BUILD_DIR` chooses the folder for binaries.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from lazy_core.extensions import BuildError, Extension

__all__ = ["BuildError", "build", "build_in_background", "find", "is_on", "loaded"]

# NumPy's headers make binaries for every release of one major version.
_EXTENSION = Extension("lazy_numpy", Path(__file__).parent, f"numpy-{np.__version__.split('.')[0]}", (Path(np.get_include()),))


def find() -> Path | None:
    """A binary for this NumPy and Python: the one inside the package, else one built before, else None."""
    return _EXTENSION.find()


def build(into: Path | None = None) -> Path:
    """Compile the extension unless a binary is there, and return its path.

    Args:
        into: the folder to build in; the user's cache folder by default.

    Raises:
        BuildError: there is no C++ compiler, or compiling failed.
    """
    return _EXTENSION.build(into, f"lazy_numpy: building its extension for NumPy {np.__version__} (once, some seconds) ...")


@functools.cache
def loaded() -> ModuleType | None:
    """The extension, if there is a binary; None otherwise, and where it is off."""
    if _EXTENSION.is_off() or sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    path = find()
    if path is None:
        build_in_background()
        return None
    try:
        return _EXTENSION.load(path)
    except ImportError:  # the binary of a NumPy that has been replaced meanwhile
        return None


def is_on() -> bool:
    """Whether calls take its short ways."""
    module = loaded()
    return module is not None and module.is_on()


def build_in_background() -> None:
    """Have another process build it, unless one has tried before: nobody waits, and this program goes on without."""
    folder = _EXTENSION.cache_folder() / _EXTENSION.key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tried").touch(exist_ok=False)
    except OSError:
        return
    subprocess.Popen(
        [sys.executable, "-m", "lazy_numpy", "--build-extension"],
        env={**os.environ, "LAZY_NUMPY_EXTENSION": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
