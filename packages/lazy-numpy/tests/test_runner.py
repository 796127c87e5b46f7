"""`python -m lazy_numpy` runs a program as Python does: arguments, paths, exit codes, tracebacks; libraries keep NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest


def run(*arguments, cwd=None, stdin=None):
    environment = {**os.environ, "LAZY_TIER": "compiled"}  # so that the smallest arrays are lazy too
    command = [sys.executable, "-m", "lazy_numpy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=stdin, timeout=300, env=environment)


@pytest.fixture
def script(tmp_path):
    def write(text, name="prog.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def test_script_sees_its_arguments_folder_and_name(script, tmp_path):
    script("import numpy as np\nx = np.ones(3)\n", "helper.py")
    path = script(
        f"""
        import sys, numpy as np, helper
        from numpy.random import default_rng
        from numpy import zeros
        print(sys.argv[1:], __name__, __file__ == sys.argv[0], sys.path[0] == {str(tmp_path)!r})
        print(type(helper.x + 1).__module__, type(zeros(2)).__module__, type(default_rng(0).normal(size=2)).__module__)
        print(isinstance(np.arange(3), np.ndarray), sys.modules["__main__"].np is np)
        """
    )
    done = run(path, "--flag", "value")
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "['--flag', 'value'] __main__ True True",
        "lazy_numpy.tensor lazy_numpy.tensor lazy_numpy.tensor",
        "True True",
    ]


def test_libraries_keep_the_real_numpy(script):
    path = script(
        """
        import sys, json, numpy as np, dataclasses
        import numpy.testing
        x = np.arange(4.0)
        np.testing.assert_allclose(x, [0, 1, 2, 3])
        real = sys.modules["numpy"]
        assert real is not np and type(real.ones(2)).__module__ == "numpy"
        import numpy.lib.format as f
        assert "lazy" not in repr(f)
        print("ok")
        """
    )
    done = run(path)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_an_error_exits_with_one_and_a_traceback_from_the_users_line(script):
    path = script("import numpy as np\n\ndef f():\n    return np.ones(3) + np.ones(4)\n\nf()\n")
    done = run(path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip() == f'File "{path}", line 6, in <module>'
    assert lines[-1] == "ValueError: operands could not be broadcast together with shapes (3,) (4,) "


def test_exit_codes_are_the_programs(script):
    assert run(script("import sys; sys.exit(7)")).returncode == 7
    assert run(script("raise SystemExit")).returncode == 0
    done = run(script("raise SystemExit('no')"))
    assert (done.returncode, done.stderr) == (1, "no\n")


def test_syntax_errors_and_missing_files_are_told_as_python_tells_them(script):
    done = run(script("x = = 1\n"))
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    done = run("no-such-file.py")
    assert done.returncode == 2
    assert "can't open file" in done.stderr


def test_code_module_and_standard_input(script, tmp_path):
    done = run("-c", "import sys, numpy as np; print(sys.argv, type(np.ones(2)).__name__, type(np.ones(2)).__module__)", "a")
    assert done.stdout == "['-c', 'a'] ndarray lazy_numpy.tensor\n"
    script("", "pack/__init__.py")
    script("import sys, numpy as np\nfrom . import part\nprint(__name__, sys.argv[1:], type(part.x).__module__)\n", "pack/__main__.py")
    script("import numpy as np\nx = np.ones(2)\n", "pack/part.py")
    done = run("-m", "pack", "b", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("__main__ ['b'] lazy_numpy.tensor\n", "")
    done = run("-", "c", stdin="import sys, numpy as np\nprint(sys.argv, type(np.ones(1)).__module__)\n")
    assert done.stdout == "['-', 'c'] lazy_numpy.tensor\n"


def test_help_report_and_unknown_options(script):
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m lazy_numpy")
    done = run("--report", script("import numpy as np\nprint(np.ones(3).sum())\n"))
    assert done.stdout == "3.0\n"
    assert "recorded" in done.stderr
    done = run("--no-such-option")
    assert done.returncode == 2
    assert "unknown option" in done.stderr


def test_pickling_what_main_defines(script):
    done = run(
        script(
            """
            import pickle, numpy as np
            class Model:
                def __init__(self): self.w = np.arange(3.0)
            m = pickle.loads(pickle.dumps(Model()))
            print(type(m).__module__, m.w)
            """
        )
    )
    assert (done.stdout, done.stderr) == ("__main__ [0. 1. 2.]\n", "")


UNMARKED = """
    import resource
    import numpy as np
    import sys

    u = np.zeros(16)
    u[4:9] = 1.0
    for k in range(int(sys.argv[1])):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        if len(sys.argv) > 3 and k % 10 == 9:
            float(u[3])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(u.tolist())
    if sys.argv[2] == "lazy":
        import lazy_core

        counters = lazy_core.report().counters
        print(counters["compiles"], counters["barriers"])
"""


@pytest.mark.parametrize(("rounds", "logged"), [(20_000, False), (2_000, True)])
def test_an_unmarked_time_loop_compiles_its_body_a_bounded_number_of_times(script, rounds, logged, monkeypatch):
    """In-place slices without a read, or with a line that reads one element every tenth round; NumPy's values in bounded memory."""
    monkeypatch.setenv("LAZY_CACHE_DIR", "off")
    path = script(UNMARKED)
    extra = ["log"] if logged else []
    lazy = run(path, str(rounds), "lazy", *extra)
    assert lazy.returncode == 0, lazy.stderr
    plain = subprocess.run([sys.executable, path, str(rounds), "numpy", *extra], capture_output=True, text=True, check=True, timeout=300)
    memory, found, counts = lazy.stdout.splitlines()
    expected = plain.stdout.splitlines()[1]
    for a, b in zip(json.loads(found), json.loads(expected), strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-300)
    compiles, barriers = (int(n) for n in counts.split())
    assert compiles <= 4
    assert barriers > 100
    assert int(memory) < 1_500_000


def test_exit_with_pending_work_is_silent(script):
    """Arrays that nobody read, also where they outlive the program's module."""
    done = run(script("import sys, builtins\nimport numpy as np\nx = np.ones(3) + 1\nsys.keep, builtins.keep = x * 2, [x + 3]\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interrupt_while_it_compiles_ends_the_program_as_python_does(script):
    """Ctrl-C: KeyboardInterrupt reaches the program, and what was pending is right afterwards."""
    path = script(
        """
        import os, signal, threading
        import numpy as np
        x = np.ones(3) + 1
        float(x.sum())  # something has been compiled by now
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            n = 0
            while True:
                n += 1
                float((np.sin(np.ones(n)) * 2).sum())
        except KeyboardInterrupt:
            print("interrupted")
        print((x * 2).tolist())
        """
    )
    done = run(path)
    assert done.stdout.splitlines() == ["interrupted", "[4.0, 4.0, 4.0]"], done.stderr


SHORT = """
import sys
import numpy as np

rng = np.random.default_rng(0)
x = np.linspace(0.0, 1.0, 20_000)
grid = np.zeros((300, 200))
grid[1:-1, 1:-1] = rng.standard_normal((298, 198))
for _ in range(3):
    grid[1:-1, 1:-1] += 0.2 * (grid[:-2, 1:-1] + grid[2:, 1:-1] - 2 * grid[1:-1, 1:-1])
grid[grid > 1] = 1.0
small = grid[:40, :40] + np.eye(40)
total = sum(float(v) for v in x[:50])
parts = [np.sort(x)[::-1].copy(), np.where(x > 0.5, x, -x), np.fft.rfft(x).real, np.cumsum(x), x.reshape(200, 100).T @ x.reshape(200, 100)]
found = [p.sum() for p in parts] + [np.linalg.solve(small, small[0]).sum(), np.median(x), np.unique(np.round(x, 2)).size, grid.std(), total]
x[np.argsort(-x)[:3]] = 0
print(np.array2string(np.array(found, float), precision=6), x.argmax(), np.einsum("ij->j", grid).shape)
"""


@pytest.mark.parametrize("tier", ["auto", "native"])
@pytest.mark.parametrize("start", [["-m", "lazy_numpy"], ["-m", "lazy_core.cli", "run"]], ids=["runner", "command"])
def test_a_program_whose_calls_all_run_natively_does_without_jax(start, tier, tmp_path):
    """Importing it takes longer than many scripts; the command and its report need none either."""
    path = tmp_path / "short.py"
    path.write_text(SHORT + "print('jax' in sys.modules, file=sys.stderr)\n")
    plain = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LAZY_TIER": tier, "LAZY_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, *start, str(path)], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == plain.stdout
    assert done.stderr.splitlines()[0] == "False"


def test_what_is_compiled_imports_jax_by_itself(script):
    text = "import numpy as np, sys\nx = np.arange(1e5)\nfor _ in range(3):\n    x = x + 1\nprint(x[0], 'jax' in sys.modules)\n"
    assert run(script(text)).stdout == "3.0 True\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are Unix's")
def test_the_prompt_sees_the_lazy_numpy():
    """Without a program, at a terminal."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lazy_numpy"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LAZY_TIER": "auto"}
    )
    os.close(theirs)
    os.write(
        ours,
        b"import numpy as np\nx = np.ones(10_000) * 2\ntype(x)\nprint(x.sum(), np.linalg.inv(np.zeros((2, 2))))\nfloat(x.sum())\nexit()\n",
    )
    shown = process.communicate(timeout=300)[0].decode()
    os.close(ours)
    assert process.returncode == 0
    assert "`import numpy as np` is lazy here" in shown
    assert "<class 'lazy_numpy.tensor.ndarray'>" in shown
    assert "LinAlgError: Singular matrix" in shown  # and it goes on
    assert "20000.0" in shown
