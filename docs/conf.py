"""Sphinx settings. Pages are Markdown; the table of operations is made from the registry when the pages are built."""

import inspect
from pathlib import Path

import lazy_core
from lazy_core import ops

project = "LazyTensor"
author = "The LazyTensor authors"
copyright = "The LazyTensor authors, Apache-2.0"
version = release = lazy_core.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Eager programs, recorded and compiled", "fixed_sidebar": True}
myst_heading_anchors = 3
autodoc_typehints = "description"
nitpicky = False


def operations_page() -> str:
    """One table a family: the name, its arguments (values, then attributes), and the first line of its documentation."""
    families: dict[str, list[str]] = {}
    for name in sorted(ops.REGISTRY):
        op = ops.REGISTRY[name]
        kinds = inspect.signature(op.fn).parameters.values()
        values = [("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in kinds if p.kind is not p.KEYWORD_ONLY]
        static = [p.name for p in kinds if p.kind is p.KEYWORD_ONLY]
        lines = (op.doc or "").strip().splitlines()
        first = lines[0].replace("|", "\\|") if lines else ""
        families.setdefault(op.family, []).append(f"| `{name}` | {', '.join(values)} | {', '.join(static)} | {first} |")
    text = ["# Operations", "", f"The {len(ops.REGISTRY)} operations of the core, made from the registry.", ""]
    for family, rows in sorted(families.items()):
        text += [f"## {family}", "", "| name | values | attributes | |", "|---|---|---|---|", *rows, ""]
    return "\n".join(text) + "\n"


(Path(__file__).parent / "operations.md").write_text(operations_page(), encoding="utf-8")
