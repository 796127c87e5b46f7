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
from lazy_core import notebook as _notebook

from . import attributes as _attributes
from . import methods as _methods
from . import operators as _operators
from . import selection as _selection
from . import short_ways as _short_ways
from .convert import from_lazy, to_lazy
from .mapping import dispatch as _dispatch
from .mapping.makers import PUBLIC as _PUBLIC
from .proxy import enabled
from .tensor import ndarray, scalar

__version__ = "0.1.0"

_events.hide_package(_os.path.dirname(_os.path.abspath(__file__)))
_operators.install()
_methods.install()
_attributes.install()
_dispatch.install()
_selection.install()
_notebook.attach(ndarray)
_short_ways.install()

arange = _PUBLIC["arange"]
array = _PUBLIC["array"]
asarray = _PUBLIC["asarray"]
empty = _PUBLIC["empty"]
eye = _PUBLIC["eye"]
full = _PUBLIC["full"]
identity = _PUBLIC["identity"]
linspace = _PUBLIC["linspace"]
ones = _PUBLIC["ones"]
zeros = _PUBLIC["zeros"]

__all__ = [
    "__version__",
    "arange",
    "array",
    "asarray",
    "empty",
    "enabled",
    "eye",
    "from_lazy",
    "full",
    "identity",
    "linspace",
    "ndarray",
    "ones",
    "scalar",
    "to_lazy",
    "zeros",
]
