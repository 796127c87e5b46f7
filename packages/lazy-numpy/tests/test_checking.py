"""`python -m lazy_numpy --check`: a program by NumPy and lazily, held against each other line by line."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from lazy_numpy.checking import DIFFERS, Note, compare, names_by_line

AGREES = """
import numpy as np

class Model:
    pass

model = Model()
u = np.zeros((30, 30))
u[15, 15] = 1.0

def step(u):
    change = (u[2:, 1:-1] + u[:-2, 1:-1] +
              u[1:-1, 2:] - 3 * u[1:-1, 1:-1])
    u[1:-1, 1:-1] += 0.1 * change
    return change.sum()

for k in range(40):
    total = step(u)
model.w = u.mean(axis=0) + np.random.rand(30)
order = np.argsort(-model.w)[:5]
print(round(float(total), 6), u[u > 0.01].size)
"""


def check(*arguments, cwd=None):
    done = subprocess.run(
        [sys.executable, "-m", "lazy_numpy", "--check", *arguments],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_a_program_that_gives_what_numpy_gives_agrees_and_runs_as_ever(tmp_path):
    """Functions, attributes, statements of several lines, draws without a seed; what it prints is printed once."""
    path = tmp_path / "program.py"
    path.write_text(AGREES + "raise SystemExit(5)\n")
    status, printed, told = check(str(path))
    plain = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False).stdout
    assert printed == plain
    assert told[-1].startswith("check: ")
    assert told[-1].endswith(" agree")
    assert int(told[-1].split()[1]) > 50
    assert status == 5


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("x = np.array([1.0, 2.0, 3.0])\ny = x * 1e-308\nz = y * 1e-3\nw = z + 1", 4, "`z` differs: NumPy has 1e-311, the lazy run 0.0"),
        ("x = np.zeros((20, 30)).copy(order='F')\ny = x\nif x.flags.f_contiguous:\n    y = y + 1\nz = y", 5, "NumPy's run came to"),
        (
            "x = np.ones(3)\nif isinstance(x.sum(), np.float64) and type(x.sum()) is not np.float64:\n    x[:] = 2\ny = x",
            4,
            "the lazy one to",
        ),
        (
            "x = np.ones(9)\nif type(x.sum()) is not np.float64:\n    raise SystemExit(7)",
            1,
            "NumPy's run ended with status 0, the lazy one with 7",
        ),
    ],
)
def test_the_first_line_that_differs_is_told(code, line, said):
    """A value, a way taken, and how the program ends."""
    status, _, told = check("-c", "import numpy as np\n" + code)
    text = "\n".join(told)
    assert status == DIFFERS
    assert said in text
    assert f"<string>:{line}" in text or "status" in text


def test_names_are_those_of_the_statement():
    found = names_by_line("for i in range(n):\n    a.b[i] = (c +\n        d)\ndef f(x):\n    return x\nif e:\n    pass\nelse:\n    g = 1\n")
    assert set(found[1]) == {"i", "range", "n"}
    assert set(found[2]) == set(found[3]) == {"a.b", "a", "i", "c", "d"}
    assert set(found[5]) == {"x"}
    assert set(found[6]) == {"e"}
    assert set(found[9]) == {"g"}


def note(elements, line=1, name="x", dtype=float, dims=None):
    array = np.asarray(elements, dtype)
    return Note("p.py", line, 1, name, array.dtype, array.shape if dims is None else dims, array, float(np.abs(array).max(initial=0)))


@pytest.mark.parametrize(
    ("want", "got", "agree"),
    [
        ([note([1.0, 2.0])], [note([1.0, 2.0 + 1e-12])], True),
        ([note([1.0, 2.0])], [note([1.0, 2.0 + 1e-6])], False),
        ([note([1e-17]), note([3.0], name="y")], [note([-2e-16]), note([3.0], name="y")], True),  # what cancels
        ([note([np.nan, np.inf])], [note([np.nan, np.inf])], True),
        ([note([np.nan])], [note([0.0])], False),
        ([note([1], dtype=int)], [note([2], dtype=int)], False),
        ([note([1.0])], [note([1.0], dtype="f4")], False),
        ([note([1.0])], [note([1.0], dims=(1, 1))], False),
        ([note([1.0])], [note([1.0], line=2)], False),
        ([note([1.0])], [], False),
        ([note([1.0])], [note([1.0], name="y")], False),
        ([], [], True),
    ],
)
def test_what_agrees(want, got, agree):
    assert compare(iter(want), iter(got))[1] is agree
