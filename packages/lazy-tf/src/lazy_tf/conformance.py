"""One call of TensorFlow's public API for each core operation, for the conformance matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CALLS: dict[str, Callable[..., Any]] = {}
