"""What a frontend must supply, and how installed frontends are found.

Owns: the `Frontend` protocol and discovery through the entry-point group `lazy_core.frontends`.  Core never imports a
frontend by name. May import `errors`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .config import watch
from .errors import LazyError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ENTRY_POINT_GROUP = "lazy_core.frontends"


class Frontend(Protocol):
    """A tensor library that records into the core.

    Attributes:
        name: what users select it by, such as "torch".
        library: the import name of the library that it adapts.
        conformance: core operation name -> function over the library's tensors, written with the library's public API only, taking the
            operation's sample arguments by position and its attributes by keyword.
        dtypes: the dtypes that its tensors can have.

    It may also have `creating()`, a context in which the library's factories make lazy tensors, and `programs`, a mapping from the names of
    `lazy_core.whole.PROGRAMS` to functions over the library's tensors with a keyword `middle`: each is called once, halfway through, with a
    tensor that it returns.
    """

    name: str
    library: str
    conformance: Mapping[str, Callable[..., Any]]
    dtypes: Sequence[np.dtype]

    def from_numpy(self, array: np.ndarray) -> Any:
        """A lazy tensor with these contents."""
        ...

    def native(self, array: np.ndarray) -> Any:
        """The library's own eager tensor with these contents."""
        ...

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """The contents of either kind of tensor."""
        ...

    def is_lazy(self, tensor: Any) -> bool:
        """Whether a tensor is recorded by this frontend."""
        ...


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # it takes long to import, and is seldom needed

    return entry_points(group=ENTRY_POINT_GROUP)


def names() -> list[str]:
    """The names of the installed frontends, sorted; nothing is imported."""
    return sorted(point.name for point in _entry_points())


def load(name: str) -> Frontend:
    """Import an installed frontend.

    Raises:
        LazyError: no frontend of that name is installed, or its library is missing.
    """
    points = list(_entry_points().select(name=name))
    if not points:
        raise LazyError(f"no frontend named {name!r} is installed; there are {', '.join(names()) or 'none'}")
    try:
        frontend: Frontend = points[0].load()
    except Exception as error:  # a frontend's import may fail in any way, and the others must go on
        raise LazyError(f"frontend {name!r} is installed but cannot be imported: {error}") from error
    return frontend


def finish_imports() -> None:
    """Import the rest of each frontend that is in use: one that runs natively so far may not have told the core of itself yet."""
    for point in _entry_points():
        if point.module.partition(".")[0] in sys.modules:
            with contextlib.suppress(Exception):  # what is broken is told by whoever uses it
                point.load()


_told = False


def _tier_was_set() -> None:
    """A frontend that runs natively so far reads the tier from the environment only: let it hear of another one."""
    global _told
    if _told:
        finish_imports()
    _told = True  # the first call is `watch` itself, while the core is being imported


watch("tier", _tier_was_set)
