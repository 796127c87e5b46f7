"""How much of the system all libraries share, as the page docs/reuse.md: `python tools/reuse.py` (needs every package installed).

Counts lines of code, and runs the first f32 sample of every operation that several frontends can express through each of them in turn:
whoever comes second should find the program that the first one compiled.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "torch", "numpy", "tf")


def lines(folder: Path, *suffixes: str) -> int:
    """Lines of source that are neither blank nor comments."""
    marks = ("#", "//", "/*", "*")
    files = [path for suffix in suffixes for path in folder.rglob(f"*{suffix}")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return sum(1 for text in texts for line in text.splitlines() if line.strip() and not line.strip().startswith(marks))


def code_table() -> list[str]:
    """Lines of each package."""
    rows = ["| package | Python | C++ |", "|---|---|---|"]
    for package in PACKAGES:
        source = ROOT / "packages" / f"lazy-{package}" / "src"
        rows.append(f"| lazy-{package} | {lines(source, '.py'):,} | {lines(source, '.cpp', '.h'):,} |")
    rows.append(f"| the template of a third party's frontend | {lines(ROOT / 'template', '.py'):,} | 0 |")
    return rows


def run_one(frontend, op, sample):
    """Record one sample through a frontend and run it; returns (compiled, found), or None where the frontend cannot record it."""
    import lazy_core

    lazy_core.barrier()
    gc.collect()
    lazy_core.reset_report()
    try:
        arguments = [frontend.from_numpy(a) for a in sample.args]
        result = frontend.conformance[op](*arguments, **sample.attrs)
        lazy_core.barrier()
    except Exception:
        return None
    del result
    counters = lazy_core.report().counters
    if counters["fallbacks"] or counters["barriers"] != 1:
        return None
    return counters["compiles"], counters["canonical_hits"] + counters["cache_hits"]


def shared_programs(frontends) -> list[str]:
    """The table of operations by how many frontends met at one program."""
    import numpy as np

    from lazy_core import ops, testing
    from lazy_core.cache import cache

    per_frontend = {f.name: 0 for f in frontends}
    met, apart = 0, []
    for op in sorted(ops.REGISTRY):
        samples = testing.samples(op, np.dtype("float32"))
        if not samples:
            continue
        cache.clear()
        ran = {f.name: run_one(f, op, samples[0]) for f in frontends if op in f.conformance}
        ran = {name: found for name, found in ran.items() if found is not None}
        for name in ran:
            per_frontend[name] += 1
        if len(ran) >= 2:
            _, *others = ran.values()
            if all(compiled == 0 for compiled, _ in others):
                met += 1
            else:
                apart.append(op)
    total = met + len(apart)
    return [
        f"Of the core's {len(ops.REGISTRY)} operations, these can be recorded through a frontend's own words without a fallback (one f32 "
        "sample of each): " + ", ".join(f"{count} through lazy-{name}" for name, count in per_frontend.items()) + ".",
        "",
        f"{total} of them through two or three frontends. For **{met} of these {total}** whoever came second and third compiled nothing, "
        "because their graphs met the first one's program. "
        f"The others record something slightly different: {', '.join(f'`{op}`' for op in apart) or 'none'}.",
    ]


def main() -> int:
    """Write the page."""
    os.environ.update(LAZY_TIER="compiled", LAZY_CACHE_DIR="off")
    from lazy_core import frontend

    frontends = [frontend.load(name) for name in PACKAGES[1:]]
    text = [
        "# What the libraries share",
        "",
        "Made by `python tools/reuse.py`. The claim of LazyTensor is that one implementation serves several tensor libraries; here is how "
        "much of it does.",
        "",
        "## Code",
        "",
        "Lines that are neither blank nor comments.",
        "",
        *code_table(),
        "",
        "## Programs",
        "",
        *shared_programs(frontends),
        "",
    ]
    (ROOT / "docs" / "reuse.md").write_text("\n".join(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
