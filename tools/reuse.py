"""How much of the system all libraries share, as the page docs/reuse.md: `python tools/reuse.py` (needs every package installed).

Counts lines of code, and which operations each frontend's own words come down to. Then it runs programs through each frontend in turn:
whoever comes second should find the program that the first one compiled. These are the first f32 sample of every operation, and the
conformance kit's whole programs, once in one piece and once with a barrier after each operation, where the parts may meet.
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


def run_one(frontend, call, given, **attributes):
    """Record a call on lazy tensors and run it; returns the report's counters, or None where the frontend cannot record it."""
    import lazy_core

    lazy_core.barrier()
    gc.collect()
    lazy_core.reset_report()
    try:
        arguments = [frontend.from_numpy(a) for a in given]
        result = call(*arguments, **attributes)
        lazy_core.barrier()
    except Exception:
        return None
    del result
    counters = lazy_core.report().counters
    return None if counters["fallbacks"] or not counters["barriers"] else counters


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
        args, attributes = samples[0]
        ran = {f.name: run_one(f, f.conformance[op], args, **attributes) for f in frontends if op in f.conformance}
        ran = {name: found for name, found in ran.items() if found is not None and found["barriers"] == 1}
        for name in ran:
            per_frontend[name] += 1
        if len(ran) >= 2:
            _, *others = ran.values()
            if all(found["compiles"] == 0 for found in others):
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


def whole_programs(frontends) -> list[str]:
    """The table of whole programs: what each frontend compiled when it came after the ones before it."""
    import numpy as np

    import lazy_core
    from lazy_core import whole
    from lazy_core.cache import cache

    orders = [frontends[k:] + frontends[:k] for k in range(len(frontends))]
    rows = []
    totals = [0, 0]
    for name in whole.PROGRAMS:
        given = whole.inputs(name, np.dtype("float32"))
        in_one = []
        for order in orders:  # each frontend once first
            cache.clear()
            ran = [run_one(f, f.programs[name], given, middle=lambda x: x) for f in order]
            in_one.append(sum(found["compiles"] == 0 for found in ran[1:]))
        cache.clear()
        with lazy_core.options(max_trace=1):
            parts = [run_one(f, f.programs[name], given, middle=lambda x: x) for f in frontends]
        cells = []
        for k, found in enumerate(parts):
            cells.append(f"{found['compiles']:.0f} of {found['barriers']:.0f}")
            if k:
                totals[0] += found["barriers"] - found["compiles"]
                totals[1] += found["barriers"]
        rows.append(f"| `{name}` | {sum(in_one)} of {len(orders) * (len(frontends) - 1)} | {' | '.join(cells)} |")
    first, *others = [f"lazy-{f.name}" for f in frontends]
    share = 100 * totals[0] / totals[1]
    return [
        "A whole program is written in each library's own words, so its graph as a whole is seldom the same: torch's loss, TensorFlow's",
        "and a softmax by hand differ by an operation somewhere. Its parts are. With a barrier after each operation every part is a",
        f"program of its own; here is how many of them each frontend compiled, when {first} came first and then {' and '.join(others)}.",
        "Parts that come again within one program are found too, which is why the first one's numbers are below its barriers.",
        "",
        "| program | whole graphs found by second and third | " + " | ".join(f"compiled by {f}" for f in (first, *others)) + " |",
        "|---|---|" + "---|" * len(frontends),
        *rows,
        "",
        f"Of the parts that came second and third, **{totals[0]:.0f} of {totals[1]:.0f}** ({share:.0f} %) ran as a program that was there.",
    ]


def rules(frontends) -> list[str]:
    """The share of operations that the core's own rules serve: the rest have lowerings in a frontend."""
    from lazy_core import ops, testing

    lines = ["| frontend | recorded by its table | lowered by core | lowered by itself |", "|---|---|---|---|"]
    for f in frontends:
        used = recorded_operations(f, ops, testing)
        own = {op for op in used if not op[1].startswith("lazy_core")}
        share = 100 * (len(used) - len(own)) / len(used)
        lines.append(f"| lazy-{f.name} | {len(used)} | {len(used) - len(own)} ({share:.1f} %) | {len(own)} |")
    return lines


def recorded_operations(frontend, ops, testing) -> set[tuple[str, str]]:
    """Every (operation, module of its lowering) that the frontend's table records, one f32 sample each."""
    import numpy as np

    import lazy_core
    from lazy_core import dump, ir

    found: set[tuple[str, str]] = set()
    for name, call in frontend.conformance.items():
        for args, attributes in testing.samples(name, np.dtype("float32"))[:1]:
            try:
                results = call(*[frontend.from_numpy(a) for a in args], **attributes)
            except Exception:
                continue
            for result in results if isinstance(results, (tuple, list)) else (results,):
                if frontend.is_lazy(result):
                    value = dump.value_of(result)
                    if value.array is None:
                        nodes = [n for n in ir.post_order((value.expr,)) if isinstance(n, ir.Node)]
                        found |= {(n.op.name, n.op.fn.__module__) for n in nodes}
        lazy_core.barrier()
    return found


def main() -> int:
    """Write the page."""
    os.environ.update(LAZY_TIER="compiled", LAZY_CACHE_DIR="off", LAZY_FAST="1")
    from lazy_core import frontend

    frontends = [frontend.load(name) for name in PACKAGES[1:]]
    text = [
        "# What the libraries share",
        "",
        "Made by `python tools/reuse.py`. The claim of LazyTensor is that one implementation serves several tensor libraries; here is how "
        "much of it does. Programs are compared with `LAZY_FAST=1`: by default what reads NumPy's arrays is compiled to NumPy's",
        "rounding, and shared with lazy-torch only then.",
        "",
        "## Code",
        "",
        "Lines that are neither blank nor comments.",
        "",
        *code_table(),
        "",
        "## Rules",
        "",
        "A frontend decides dtypes and composes; what is lowered to XLA are operations. Those that the conformance tables come down to",
        "(one f32 sample of each entry), by where their lowering and shape rule stand:",
        "",
        *rules(frontends),
        "",
        "## Operations",
        "",
        *shared_programs(frontends),
        "",
        "## Whole programs",
        "",
        *whole_programs(frontends),
        "",
    ]
    (ROOT / "docs" / "reuse.md").write_text("\n".join(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
