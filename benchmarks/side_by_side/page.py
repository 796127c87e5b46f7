"""docs/benchmarks.md, made from results."""

from __future__ import annotations

from typing import Any

from .models import MODELS
from .scenarios import SCENARIOS
from .table import FAMILIES, Line, lines, markdown, remarks, summary

_HEAD = """\
<!-- Made by `python benchmarks/run.py --save`; do not edit. -->

# Benchmarks

The same programs on the lazy frontends, on the eager libraries under them, and compiled by hand. All figures of a row come from
one run on one machine, so ratios say more than times; on another machine `nox -s bench` makes the table anew.
"""

_METHOD = """\
## How it was measured

- Every peer runs every scenario in a process of its own. One process works at a time: all are made ready, and then they measure in turns of
  a third of a second, so that a drift of the machine meets all alike. A figure is the median of all turns, and over rounds the median of
  those. Single events (a first result, a sequence of steps) are medians over processes.
- The disk cache of the lazy system starts empty in each process. The lazy programs are the eager ones with the device's name changed: no
  barrier, no hint.
- A training step is timed in blocks that end with a read of the loss, after a warm-up by such blocks that lasts until nothing has been
  compiled or measured for ten seconds, or five minutes. What compiling costs meanwhile is in the rows about first results, sequences and
  stalls.
- The longest step is that of a sequence but for its first, which is a first result. A stall is one that takes 100 ms more than eager's.
- Before each measurement a process waits until other processes leave the machine alone; turns that they disturbed are left out.
- `jax.jit` is jax as one would write it by hand, with donated state, and a scan for the LSTM. `TF jit_compile` is the same TensorFlow code
  in a `tf.function`.
- *jit beside torch* and *jit beside TF* are that compiled step, and while it runs the eager library's own Python takes the same step on a
  tiny model (16-8-8-4). A program whose Python, tape and optimizer are the library's can hardly take less, whoever compiles its kernels:
  the cores that run a compiled step are the ones that run the Python for the next.
- *compiled only* and *native only* are the lazy frontend with `LAZY_TIER` set; the column before them is the default, which chooses.
"""


def text(data: dict[str, Any], plotted: bool) -> str:
    """The page.

    Args:
        data: machine, settings and results, as `run.py` writes them.
        plotted: whether there is a plot beside the page.
    """
    results, made = data["results"], lines(data["results"])
    parts = [_HEAD, _machine(data), summary(made) + ".\n"]
    if plotted:
        parts.append("![Time of each peer relative to the eager library](benchmarks.svg)\n")
    for family in FAMILIES:
        if table := markdown(results, family):
            parts.append(f"## {FAMILIES[family]}\n\n{table}\n")
    parts += [_losses(made), _check(results)]
    if said := remarks(made):
        parts.append("## Remarks of the run\n\n" + "\n".join(f"- {remark}" for remark in said) + "\n")
    parts += [_scenarios(results), _METHOD]
    return "\n".join(parts)


def _machine(data: dict[str, Any]) -> str:
    machine, settings = data["machine"], data["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    how = f"{settings['rounds']} round{'s' * (settings['rounds'] != 1)}, {settings['seconds']:g} s a measurement"
    if settings["processor_time"]:
        how += "; times are processor time of the process, all its threads together, since other programs shared the machine"
    return f"Measured on {machine['date']} at commit {machine['commit']}: {where}; {versions}; {how}.\n"


def _losses(made: list[Line]) -> str:
    """The rows that miss their target, and those where the lazy system is slower than eager though that is allowed."""
    missed = [line for line in made if line.met is False]
    slower = [line for line in made if line.met is not False and (line.eager or 0) > 1]
    said = ["## Where it loses\n"]
    if missed:
        said += ["Targets that are missed:\n", *(f"- {_place(line)}: {_missing(line)}" for line in missed), ""]
    else:
        said.append("No target is missed.\n")
    if slower:
        said += ["Slower than eager, within the target or without one:\n", *(f"- {_place(line)}: {line.eager:.2f}x" for line in slower), ""]
    return "\n".join(said)


def _place(line: Line) -> str:
    return f"{FAMILIES[line.family]}, {line.scenario.name}, {line.row.title}"


def _missing(line: Line) -> str:
    mine = next((value for peer, value in line.values.items() if peer == f"lazy-{line.family}"), None)
    if mine is None:
        return "failed"
    if line.target.stall is not None:
        return f"{mine:.0f} {line.row.unit} (target {line.asked})"
    shown = [f"{line.eager:.2f}x eager"] if line.eager is not None else []
    shown += [f"{line.xla:.2f}x jit"] if line.xla is not None and line.target.xla is not None else []
    return f"{', '.join(shown)} (target {line.asked})"


def _check(results: dict[str, Any]) -> str:
    rows = []
    for name, by_peer in results.items():
        errors = {peer: found["loss_error"] for peer, found in by_peer.items() if "loss_error" in found}
        if errors:
            model = MODELS[name.removeprefix("train-")]
            worst = max(errors, key=lambda peer: errors[peer])
            verdict = "right" if errors[worst] <= model.tolerance else "WRONG"
            losses = ", ".join(f"{loss:g}" for loss in model.losses)
            rows.append(f"| {model.name} | {losses} | {errors[worst]:.1e} ({worst}) | {model.tolerance:g} | {verdict} |")
    if not rows:
        return ""
    head = "| model | losses of the first five steps | greatest relative difference of a peer | tolerance | |\n|---|---|---|---|---|"
    return "## All compute the same\n\n" + "\n".join([head, *rows]) + "\n"


def _scenarios(results: dict[str, Any]) -> str:
    said = (f"- `{name}`: {SCENARIOS[name].what}." for name in results)
    return "## The scenarios\n\n" + "\n".join(said) + "\n"
