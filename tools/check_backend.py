"""Only `lazy_core/backend.py` may touch compiling, devices, sharding and transfers of JAX: `python tools/check_backend.py [folder ...]`.

Reads the sources, imports nothing. A use is `jax.NAME` for a forbidden name, or `from jax import NAME`, under whatever
alias. A line may say `# backend: why` to be let off; there should be very few.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FORBIDDEN = frozenset(
    {
        "block_until_ready",
        "clear_caches",
        "config",
        "default_backend",
        "default_device",
        "device_count",
        "device_get",
        "device_put",
        "devices",
        "distributed",
        "jit",
        "local_devices",
        "make_mesh",
        "pmap",
        "set_mesh",
        "sharding",
        "transfer_guard",
    }
)
ALLOWED = "lazy_core/backend.py"
ROOT = Path(__file__).resolve().parents[1]


def uses(source: str) -> Iterator[tuple[int, str]]:
    """The forbidden uses in a module's source: line and dotted name."""
    tree = ast.parse(source)
    aliases: set[str] = set()
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                top, _, rest = name.name.partition(".")
                if top == "jax":
                    if not rest or name.asname is None:
                        aliases.add(name.asname or top)
                    if rest.split(".")[0] in FORBIDDEN:
                        found.append((node.lineno, name.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            parts = node.module.split(".")
            if parts[0] == "jax":
                if len(parts) > 1 and parts[1] in FORBIDDEN:
                    found.append((node.lineno, node.module))
                elif len(parts) == 1:
                    found += [(node.lineno, f"jax.{name.name}") for name in node.names if name.name in FORBIDDEN]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases and node.attr in FORBIDDEN:
            found.append((node.lineno, f"jax.{node.attr}"))
    lines = source.splitlines()
    yield from sorted({(line, name) for line, name in found if "# backend: " not in lines[line - 1]})


def main(folders: list[str]) -> int:
    """Check the folders (by default the packages' sources); returns the exit status."""
    status = 0
    roots = [Path(f) for f in folders] or sorted(ROOT.glob("packages/*/src"))
    for path in sorted(p for root in roots for p in root.rglob("*.py")):
        if path.as_posix().endswith(ALLOWED):
            continue
        for line, name in uses(path.read_text(encoding="utf-8")):
            print(f"{path}:{line}: {name} belongs in {ALLOWED}; give backend.py a function for what is needed here")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
