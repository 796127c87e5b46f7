"""The C++ extension of the device for the TensorFlow that is installed.

Owns: what it is built from, and the decision to do without: the extension only makes recording cheaper (some 3 us an operation against 9
through ctypes), so where there is no compiler `callbacks` serves instead.  May import `capi`, lazy_core.

`LAZY_TF_EXTENSION=off` does without, `LAZY_TF_BUILD_DIR` chooses the folder for binaries.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf

from lazy_core.extensions import BuildError, Extension

__all__ = ["BuildError", "build", "extension", "find"]

_ROOT = Path(tf.__file__).parent
_EXTENSION = Extension(
    "lazy_tf",
    Path(__file__).parent,
    f"tf-{tf.__version__}-numpy-{np.__version__.split('.')[0]}",
    (Path(tf.sysconfig.get_include()), Path(np.get_include())),
    (f"-L{_ROOT}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
)


def find() -> Path | None:
    """A binary for this TensorFlow and Python: the one inside the package, else one built before, else None."""
    return _EXTENSION.find()


def build(into: Path | None = None) -> Path:
    """Compile the extension unless a binary is there, and return its path.

    Args:
        into: the folder to build in; the user's cache folder by default.

    Raises:
        BuildError: there is no C++ compiler, or compiling failed.
    """
    return _EXTENSION.build(into, f"lazy_tf: building its extension for TensorFlow {tf.__version__} (once, some seconds) ...")


@functools.cache
def extension() -> ModuleType | None:
    """The loaded extension, built if need be; None, after a warning, where it cannot be, and where `LAZY_TF_EXTENSION` is off."""
    if _EXTENSION.is_off():
        return None
    try:
        return _EXTENSION.load(find() or build())
    except (BuildError, ImportError) as error:
        warnings.warn(
            f"lazy_tf records operations more slowly, without its extension: {error}. LAZY_TF_EXTENSION=off accepts that in silence.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
