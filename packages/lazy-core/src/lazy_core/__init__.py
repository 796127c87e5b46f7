"""The lazy tensor core: record operations, compile them with XLA at a barrier, run them asynchronously.

    import lazy_core
    lazy_core.barrier()          # materialise everything live
    print(lazy_core.report())    # what was recorded, compiled, reused, and why

Frontends (lazy-torch, lazy-numpy, lazy-tf) adapt tensor libraries to it; see `docs/architecture.md`.
"""

from __future__ import annotations

__version__ = "0.1.0"

from . import errors, events, frontend, ir, ops, storage, trace, values
from .barrier import barrier
from .capture import capture
from .config import config, options, strict
from .dump import explain, graph
from .errors import LazyError
from .nans import first_nan
from .notebook import attach as _attach
from .report import report, reset_report
from .shape import Shape

_attach(values.Value)

__all__ = [
    "LazyError",
    "Shape",
    "__version__",
    "barrier",
    "capture",
    "config",
    "errors",
    "events",
    "explain",
    "first_nan",
    "frontend",
    "graph",
    "ir",
    "ops",
    "options",
    "report",
    "reset_report",
    "storage",
    "strict",
    "trace",
    "values",
]
