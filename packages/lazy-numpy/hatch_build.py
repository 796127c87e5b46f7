"""Wheel hook of lazy-numpy: a wheel that carries a prebuilt extension is tagged for this Python and platform.

Without one the wheel stays `py3-none-any`; everything works, and the extension is built in the background by the first program.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltExtensionHook(BuildHookInterface):
    """Mark the wheel as platform specific when `_prebuilt` holds a shared library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Decide the wheel's tag (see the module docstring)."""
        prebuilt = Path(self.root, "src", "lazy_numpy", "_prebuilt")
        if version == "standard" and any(prebuilt.glob("**/*.so")):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
