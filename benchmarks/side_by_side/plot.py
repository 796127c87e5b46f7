"""The plot: where each peer stands relative to the eager library, one line a row of the table, and where the target is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .peers import PEERS
from .table import FAMILIES, Line, Results, lines

# role or name -> colour, marker, size; readable without colour and for those who cannot tell red from green.
_STYLES = {
    "lazy": ("#0072b2", "o", 52),
    "xla": ("#d55e00", "D", 30),
    "compiled": ("#56b4e9", "^", 30),
    "native": ("#009e73", "v", 30),
    "other": ("#999999", "s", 26),
}


def draw(results: Results, path: Path) -> bool:
    """Write the plot as SVG, or PNG, by the path's suffix; False if matplotlib is not installed or no row has an eager peer."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot

    shown = {family: [line for line in lines(results) if line.family == family and _eager(line)] for family in FAMILIES}
    shown = {family: made for family, made in shown.items() if made}
    if not shown:
        return False
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.size": 9}):
        counts = [len(made) for made in shown.values()]
        figure, axes = pyplot.subplots(
            len(shown), 1, figsize=(8.5, 1.4 * len(shown) + 0.3 * sum(counts)), height_ratios=counts, squeeze=False, layout="constrained"
        )
        for axis, (family, made) in zip(axes[:, 0], shown.items(), strict=True):
            _draw_family(axis, family, made)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
        pyplot.close(figure)
    return True


def _eager(line: Line) -> float | None:
    """What the line's ratios divide by; None for rows that are no ratio."""
    if line.target.stall is not None:
        return None
    return next((v for p, v in line.values.items() if PEERS[p].role == "eager" and v), None)


def _style(peer: str) -> str:
    found = PEERS[peer]
    return found.role if found.role != "other" else found.environment.get("LAZY_TIER", "other")


def _draw_family(axis: Any, family: str, made: list[Line]) -> None:
    labelled: set[str] = set()
    axis.axvline(1.0, color="black", linewidth=1)
    for y, line in enumerate(made):
        eager = _eager(line)
        assert eager is not None
        if line.target.eager is not None:
            axis.plot([line.target.eager] * 2, [y - 0.38, y + 0.38], color="black", linewidth=2.2, label=_once(labelled, "target for lazy"))
        for peer, amount in line.values.items():
            if amount is None or PEERS[peer].role == "eager":
                continue
            colour, marker, size = _STYLES[_style(peer)]
            front = 4 if PEERS[peer].role == "lazy" else 3
            axis.scatter(amount / eager, y, c=colour, marker=marker, s=size, zorder=front, label=_once(labelled, PEERS[peer].title))
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.45), max(high, 2.3))
    axis.xaxis.set_major_formatter(_ratio_text)
    few = axis.get_xlim()[1] / axis.get_xlim()[0] < 30  # then there is room for numbers between the powers of ten
    axis.xaxis.set_minor_formatter(lambda x, _: _ratio_text(x) if few and f"{x:.0e}"[0] in "235" else "")
    axis.set_yticks(range(len(made)), [line.row.title for line in made])
    axis.set_ylim(len(made) - 0.4, -0.6)
    axis.grid(axis="both", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xlabel(f"time (or memory) relative to {FAMILIES[family]} eager; left is better")
    axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)


def _ratio_text(ratio: float, _position: int | None = None) -> str:
    return f"{ratio:g}x"


def _once(seen: set[str], label: str) -> str | None:
    """The label the first time, None after that, so that the legend names everything once."""
    if label in seen:
        return None
    seen.add(label)
    return label
