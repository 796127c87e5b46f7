"""From results to lines: values in their units, ratios, targets, verdicts; as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .measure import CALM
from .peers import PEERS, Peer
from .scenarios import SCALES, SCENARIOS, Found, Row, Scenario, Target, middle

FAMILIES = {"torch": "torch", "tf": "TensorFlow"}
DISTURBED = "other processes used up to"
AGREEMENT = 1e-3
"""The greatest relative difference of two peers' results: rounding, grown by at most a few hundred training steps."""

Results = dict[str, dict[str, Found]]


def value(found: Found, row: Row) -> float | None:
    """What a peer found for a row, in the row's unit."""
    return None if "error" in found or found.get(row.key) is None else middle(found[row.key]) * SCALES[row.unit]


def figure(amount: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{amount:.0f}" if abs(amount) >= 99.95 else f"{amount:.1f}" if abs(amount) >= 9.995 else f"{amount:.2f}"


def number(found: Found, row: Row) -> str:
    """A value with its unit, or why there is none."""
    amount = value(found, row)
    return "failed" if amount is None else f"{figure(amount)} {row.unit}"


@dataclass
class Line:
    """A line of the table.

    Attributes:
        scenario: what was run.
        row: which of its numbers.
        family: "torch" or "tf".
        values: by peer name, in the row's unit; None where the peer failed.
        eager: ratio of the lazy peer to the eager one.
        xla: ratio of the lazy peer to jax.jit or jit_compile.
        target: what is asked.
        met: whether it is; None if nothing is asked.
        remarks: what a reader should know about the numbers.
    """

    scenario: Scenario
    row: Row
    family: str
    values: dict[str, float | None]
    eager: float | None
    xla: float | None
    target: Target
    met: bool | None
    remarks: list[str] = field(default_factory=list)

    @property
    def asked(self) -> str:
        """The target in words."""
        parts = []
        if self.target.eager is not None:
            parts.append(f"<= {self.target.eager:.2f}x eager")
        if self.target.xla is not None:
            parts.append(f"<= {self.target.xla:.2f}x jit")
        if self.target.stall is not None:
            parts.append(f"<= eager + {self.target.stall:g} {self.row.unit}")
        return ", ".join(parts)

    @property
    def verdict(self) -> str:
        """Met or not."""
        return {True: "met", False: "NOT MET", None: ""}[self.met]


def _only(peers: Iterable[Peer], role: str) -> str | None:
    return next((peer.name for peer in peers if peer.role == role), None)


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _verdict(target: Target, failed: bool, eager: float | None, xla: float | None, more: float | None) -> bool | None:
    """Whether all that is asked and can be said is so; a lazy peer that failed meets nothing."""
    asked = [(have, bound) for have, bound in ((eager, target.eager), (xla, target.xla), (more, target.stall)) if bound is not None]
    if not asked:
        return None
    known = [have <= bound for have, bound in asked if have is not None]
    return False if failed else all(known) if known else None


def lines(results: Results) -> list[Line]:
    """All lines of all scenarios, first those of torch and then those of TensorFlow."""
    made = []
    for family in FAMILIES:
        for name, by_peer in results.items():
            scenario = SCENARIOS[name]
            peers = [PEERS[p] for p in by_peer if PEERS[p].family == family]
            lazy, eager, xla = (_only(peers, role) for role in ("lazy", "eager", "xla"))
            for row in scenario.rows if peers else ():
                values = {p.name: value(by_peer[p.name], row) for p in peers}
                mine = values.get(lazy or "")
                to_eager, to_xla = _ratio(mine, values.get(eager or "")), _ratio(mine, values.get(xla or ""))
                target = row.targets.get(family, Target())
                more = None if mine is None or values.get(eager or "") is None else mine - values[eager]
                if target.stall is not None:
                    to_eager = to_xla = None  # of the longest steps the difference counts
                met = _verdict(target, mine is None, to_eager, to_xla, more) if lazy else None
                made.append(Line(scenario, row, family, values, to_eager, to_xla, target, met, _remarks(peers, by_peer)))
    return made


def _remarks(peers: list[Peer], by_peer: dict[str, Found]) -> list[str]:
    said = []
    reference = next((by_peer[p.name] for p in peers if p.role == "eager"), {}).get("value")
    for peer in peers:
        found = by_peer[peer.name]
        if "error" in found:
            said.append(f"{peer.name} failed: {found['error']}")
            continue
        if not found.get("losses_right", True):
            said.append(f"{peer.name}: losses differ by {found['loss_error']:.1e} from what they should be")
        if not agrees(found.get("value"), reference):
            said.append(f"{peer.name}: its result differs from the eager one")
    busy = max((found.get("other_cores", 0.0) for found in by_peer.values()), default=0.0)
    return [*said, *([f"{DISTURBED} {busy:.1f} cores"] if busy > CALM else [])]


def agrees(mine: Any, reference: Any) -> bool:
    """Whether two results are the same but for rounding; a missing one agrees with anything."""
    if mine is None or reference is None:
        return True
    if isinstance(reference, list):
        return bool(mine == reference)
    return bool(abs(mine - reference) <= AGREEMENT * max(1.0, abs(reference)))


def _cells(line: Line, peers: list[str]) -> list[str]:
    shown = [f"{line.row.title} ({line.row.unit})"]
    for peer in peers:
        amount = line.values.get(peer)
        shown.append("" if peer not in line.values else "failed" if amount is None else figure(amount))
    return [*shown, *("" if r is None else f"{r:.2f}" for r in (line.eager, line.xla)), line.asked, line.verdict]


def _columns(made: list[Line], family: str) -> tuple[list[str], list[str]]:
    peers = [p for p in PEERS if any(line.family == family and p in line.values for line in made)]
    return peers, [f"{FAMILIES[family]}", *(PEERS[p].title for p in peers), "lazy/eager", "lazy/jit", "target", ""]


def text(results: Results) -> str:
    """The table for a terminal, and remarks below it."""
    made, blocks = lines(results), []
    for family in FAMILIES:
        mine = [line for line in made if line.family == family]
        if not mine:
            continue
        peers, head = _columns(made, family)
        cells = [head, *(_cells(line, peers) for line in mine)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
        last = len(head) - 2
        blocks.append("\n".join("  ".join(_pad(c, widths[k], 0 < k < last) for k, c in enumerate(row)).rstrip() for row in cells))
    return "\n\n".join([*blocks, *(["\n".join(said)] if (said := remarks(made)) else []), summary(made)])


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def remarks(made: Sequence[Line]) -> list[str]:
    """What is to be said about lines, each once, with the scenarios that it is said of."""
    where: dict[str, dict[str, None]] = {}
    for line in made:
        for remark in line.remarks:
            where.setdefault(remark, {})[line.scenario.name] = None
    return [f"{', '.join(scenarios)}: {remark}" for remark, scenarios in where.items()]


def faults(results: Results) -> list[str]:
    """Peers that failed, and results that are wrong; times are never a fault."""
    return [said for said in remarks(lines(results)) if DISTURBED not in said]


def summary(made: Sequence[Line]) -> str:
    """How many targets are met."""
    judged = [line for line in made if line.met is not None]
    return f"{sum(line.met is True for line in judged)} of {len(judged)} targets met"


def markdown(results: Results, family: str) -> str:
    """The lines of a family as a Markdown table; empty if there are none."""
    made = lines(results)
    mine = [line for line in made if line.family == family]
    if not mine:
        return ""
    peers, head = _columns(made, family)
    rule = ["---", *["---:"] * (len(peers) + 2), "---", "---"]
    body = [_cells(line, peers) for line in mine]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])
