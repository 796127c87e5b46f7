"""The array API standard on the lazy tensor core: `import lazy_mylib as xp`.

Calls are recorded; what is read makes everything pending run.  What has no rule runs in the library itself, counted and named.
"""

from __future__ import annotations

from typing import Any

from lazy_core.events import hide_package

from . import array, functions
from .dtypes import DTYPES

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

hide_package(__path__[0])  # our frames are never taken for the user's line
globals().update(functions.NAMESPACE)
globals().update(DTYPES)
array.set_namespace(__name__)


def __getattr__(name: str) -> Any:
    """What the standard has and we have no rule for."""
    return functions.without_a_rule(name)


def __dir__() -> list[str]:
    return sorted({"Array", *functions.NAMESPACE, *DTYPES})
