"""The frontend object that lazy_core finds through its entry point.

Owns: `FRONTEND`.  May import `convert`, `conformance`, `conformance_programs`, `dtypes`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import lazy_numpy

from . import conformance, conformance_programs, convert, dtypes, proxy


class NumpyFrontend:
    """NumPy on the lazy core (see `lazy_core.frontend.Frontend`)."""

    name = "numpy"
    library = "numpy"
    conformance: Mapping[str, Callable[..., Any]] = conformance.CONFORMANCE
    programs: Mapping[str, Callable[..., Any]] = conformance_programs.PROGRAMS
    dtypes = dtypes.NUMERIC

    def from_numpy(self, array: np.ndarray) -> Any:
        """A lazy array with these contents."""
        return lazy_numpy.array(array)

    def native(self, array: np.ndarray) -> np.ndarray:
        """NumPy's own array."""
        return np.array(array)

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """The contents of either kind of array."""
        return convert.to_numpy(tensor)

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """In this block the table's functions that make arrays make lazy ones, as in a user's module."""
        conformance.np = proxy.module()
        try:
            yield
        finally:
            conformance.np = np

    def is_lazy(self, tensor: Any) -> bool:
        """Whether an array (or scalar) is lazy."""
        return convert.is_lazy(tensor)

    def run_script(self, script: str, arguments: Sequence[str]) -> int:
        """Run an unchanged script lazily, for `lazy run`; returns its exit status."""
        from .__main__ import main

        return main([script, *arguments])


FRONTEND = NumpyFrontend()
