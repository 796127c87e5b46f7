"""The benchmark kit: its workloads compute what they should, and its table says what the results say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "run.py"

sys.path.insert(0, str(RUN.parent))
try:
    from side_by_side import page, plot, runner, table
    from side_by_side.models import MODELS, batch_sizes, loss_error
    from side_by_side.peers import PEERS
    from side_by_side.scenarios import SCENARIOS, Scenario, combine
finally:
    sys.path.pop(0)


def _summary(seconds):
    return {"median": seconds, "min": seconds, "max": seconds, "samples": 1}


def _trained(seconds, **more):
    return {"step": _summary(seconds), "loss_error": 0.0, "losses_right": True, "other_cores": 0.0, **more}


def _results(**by_peer):
    return {"train-mlp": {peer.replace("_", "-"): found for peer, found in by_peer.items()}}


def test_a_quick_run_trains_rightly_and_writes_its_results(tmp_path):
    """One scenario from the command line: torch and lazy-torch find the losses that are written down, and the table has both."""
    output = tmp_path / "results.json"
    chosen = ["--scenario", "train-mlp", "--peer", "torch", "lazy-torch-compiled"]
    command = [sys.executable, str(RUN), "--quick", *chosen, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(output.read_text())["results"]["train-mlp"]
    assert {peer: result["losses_right"] for peer, result in found.items()} == {"torch": True, "lazy-torch-compiled": True}
    assert found["torch"]["step"]["median"] > 0
    assert found["lazy-torch-compiled"]["counters"]["compiles"] > 0
    assert "mlp training step (ms)" in done.stdout


def test_a_peer_that_fails_is_a_row_that_says_so():
    """The run goes on; the table says "failed", the remark says why, and no target counts as met."""

    def fail(_run):
        raise AssertionError("never called here: the process fails to find the scenario")

    lost = Scenario("no such scenario", "", ("jax",), fail, ())
    error = runner.run_side_by_side(lost, [PEERS["jax"]], runner.Settings(quick=True, patience=0))["jax"]["error"]
    assert "no such scenario" in error
    results = _results(torch=_trained(0.001), lazy_torch={"error": error}, jax=_trained(0.001))
    (line,) = table.lines(results)
    assert line.met is False
    assert table.faults(results) == [f"train-mlp: lazy-torch failed: {error}"]
    assert "failed" in table.text(results)


def test_a_peer_that_hangs_is_ended():
    """A process that takes longer than it may is a result too."""
    settings = runner.Settings(quick=True, patience=0)
    found = runner.run_side_by_side(SCENARIOS["train-mlp"], [PEERS["jax"], PEERS["torch"]], settings, timeout_seconds=0.01)
    assert found == {peer: {"error": "took longer than 0 s"} for peer in ("jax", "torch")}


@pytest.mark.parametrize(("lazy", "jax", "met"), [(1.0, 1.0, True), (1.09, 1.0, True), (1.12, 1.0, False), (1.05, 0.9, False)])
def test_verdict_needs_every_ratio(lazy, jax, met):
    """The MLP step is to be within 1.10 of eager and within 1.15 of jax."""
    (line,) = table.lines(_results(torch=_trained(1.0), lazy_torch=_trained(lazy), jax=_trained(jax)))
    assert (line.met, line.eager, line.xla) == (met, pytest.approx(lazy), pytest.approx(lazy / jax))


def test_wrong_results_are_faults_and_rounding_is_not():
    """Losses that differ, tokens that differ, values that differ beyond rounding."""
    wrong = _trained(1.0) | {"losses_right": False, "loss_error": 0.25}
    assert table.faults(_results(torch=_trained(1.0), lazy_torch=wrong)) == [
        "train-mlp: lazy-torch: losses differ by 2.5e-01 from what they should be"
    ]
    assert table.agrees(100.0, 100.01)
    assert not table.agrees(100.0, 101.0)
    assert not table.agrees([1, 2], [1, 3])


def test_loss_error_is_relative_and_infinite_for_missing_or_not_finite_losses():
    right = list(MODELS["mlp"].losses)
    assert loss_error(MODELS["mlp"], right) == 0
    assert loss_error(MODELS["mlp"], [*right[:4], right[4] * 1.5]) == pytest.approx(0.5)
    assert loss_error(MODELS["mlp"], right[:4]) == float("inf")
    assert loss_error(MODELS["mlp"], [*right[:4], float("nan")]) == float("inf")


def test_rounds_are_combined_by_medians():
    """Medians of medians, the least of the least, and losses are right only if they always were."""
    runs = [_trained(seconds, total=seconds) | {"losses_right": seconds < 3} for seconds in (1.0, 2.0, 9.0)]
    whole = combine(runs)
    assert whole["step"] == {"median": 2.0, "min": 1.0, "max": 9.0, "samples": 3}
    assert (whole["total"], whole["total_min"], whole["losses_right"]) == (2.0, 1.0, False)


def test_batch_sizes_are_the_62_of_the_target():
    assert len(batch_sizes(200)) == 200
    assert len(set(batch_sizes(200))) == 62


def test_page_names_what_is_missed_and_what_is_slower(tmp_path):
    """The page does not hide losses; the plot is drawn if it can be."""
    results = _results(torch=_trained(1.0), lazy_torch=_trained(1.05), jax=_trained(0.5))
    machine = runner.machine(())
    settings = {"rounds": 1, "seconds": 1.0, "processor_time": False}
    plotted = plot.draw(results, tmp_path / "plot.svg")
    assert plotted == (importlib.util.find_spec("matplotlib") is not None)
    assert (tmp_path / "plot.svg").exists() == plotted
    said = page.text({"machine": machine, "settings": settings, "results": results}, plotted)
    assert "0 of 1 targets met" in said
    assert "torch, train-mlp, mlp training step: 1.05x eager, 2.10x jit (target <= 1.10x eager, <= 1.15x jit)" in said
    assert ("benchmarks.svg" in said) == plotted


def test_a_stall_is_measured_against_eager():
    """The longest step may take 100 ms more than eager's, whatever the ratio."""

    def sequence(longest):
        return {"total": 1.0, "again": 1.0, "longest": longest, "other_cores": 0.0}

    for longest, met in ((0.10, True), (0.12, False)):
        results = {"batch-sizes": {"torch": sequence(0.01), "lazy-torch": sequence(longest)}}
        assert [line.met for line in table.lines(results)] == [True, True, met]
