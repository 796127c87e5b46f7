"""NumPy programs, run unchanged on the lazy tensor core.

    python -m lazy_numpy script.py args...

or, within a program,

    import lazy_numpy
    with lazy_numpy.enabled():
        main()

or by handing lazy arrays to code that is written against NumPy: `lazy_numpy.asarray(x)`.
"""

from __future__ import annotations

import os as _os

from lazy_core import events as _events

__version__ = "0.1.0"

_events.hide_package(_os.path.dirname(_os.path.abspath(__file__)))

from . import methods as _methods  # noqa: E402 (after the package's frames are hidden)
from . import operators as _operators  # noqa: E402
from .mapping import dispatch as _dispatch  # noqa: E402
from .tensor import ndarray, scalar  # noqa: E402

_operators.install()
_methods.install()

from .mapping.creation import arange, array, asarray, empty, eye, full, identity, linspace, ones, zeros  # noqa: E402
from .proxy import enabled  # noqa: E402

__all__ = [
    "__version__",
    "arange",
    "array",
    "asarray",
    "empty",
    "enabled",
    "eye",
    "full",
    "identity",
    "linspace",
    "ndarray",
    "ones",
    "scalar",
    "zeros",
]
