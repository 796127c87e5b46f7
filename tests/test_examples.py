"""The examples, lazily and natively, each in a process of its own: same numbers, and nothing compiled in the steady state."""

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("lazy_demo", Path(__file__).parents[1] / "examples" / "demo.py")
demo = importlib.util.module_from_spec(_spec)
sys.modules["lazy_demo"] = demo
_spec.loader.exec_module(demo)


@pytest.mark.parametrize("program", demo.PROGRAMS, ids=lambda p: p.name)
def test_example_equals_native_and_stops_compiling(program):
    """The curve and the result are the native library's within the program's tolerance; no compile in a step after the second."""
    assert demo.faults(program, demo.run(program, lazy=False), demo.run(program, lazy=True)) == []


def test_a_wrong_curve_is_noticed():
    """The comparison would not pass over a difference, a shorter run, a run that was not lazy, or a late compile."""
    program = demo.PROGRAMS[0]
    native = demo.Run("loss", 1.0, [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], {})
    report = {"counters": {"recorded": 5}, "events": [{"kind": "compile", "when": 2.5, "cause": "a new graph", "site": "x.py:1"}]}
    assert [f.split()[0] for f in demo.faults(program, native, native)] == ["nothing"]
    assert len(demo.faults(program, native, demo.Run("loss", 1.1, [3.0, 2.0], [1.0, 2.0, 3.0], report))) == 3
    late = demo.Run("loss", 1.0, [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], report)
    assert demo.faults(program, native, late) == ["compiled in a step after the second: a new graph at x.py:1"]
