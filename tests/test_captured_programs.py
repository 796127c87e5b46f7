"""Each library's programs in capsules, shadow runs, NaN provenance and notebooks: one implementation serves them all."""

import os
import subprocess
import sys

import numpy as np
import pytest

import lazy_core
from lazy_core import capsule
from lazy_core.capture import replay

HOST = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def torch_steps(count):
    """Training steps with dropout and Adam."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("lazy_torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)]
    model = torch.nn.Sequential(*layers).to("lazy")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.from_numpy(HOST).to("lazy")
    for _ in range(count):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()  # the last forward line
        loss.backward()
        optimizer.step()
        lazy_core.barrier()
    return float(loss.detach())


def numpy_steps(count):
    """Sums, in-place writes and random numbers."""
    lazy_numpy = pytest.importorskip("lazy_numpy")
    x = lazy_numpy.array(HOST)
    with lazy_numpy.enabled():
        for _ in range(count):
            x[1:-1] = 0.5 * (x[:-2] + x[2:])
            x = np.tanh(x - x.mean(axis=0))
            lazy_core.barrier()
    return float(x.sum())


def tf_steps(count):
    """Gradients and a random mask."""
    tf = pytest.importorskip("tensorflow")
    lazy_tf = pytest.importorskip("lazy_tf")
    with lazy_tf.device():
        w = tf.Variable(tf.ones([8, 2]))
        x = tf.constant(HOST) * 1.0
        for _ in range(count):
            with tf.GradientTape() as tape:
                kept = tf.random.stateless_uniform([16, 8], seed=[1, 2]) < 0.8
                loss = tf.reduce_mean(tf.square(tf.where(kept, x, 0.0) @ w))
            w.assign_sub(0.1 * tape.gradient(loss, w))
            lazy_core.barrier()
        return float(loss)


PROGRAMS = {"torch": torch_steps, "numpy": numpy_steps, "tf": tf_steps}


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]


def test_a_program_is_captured_and_replayed_without_its_library(program, tmp_path):
    """`lazy run` in a process in which neither torch nor TensorFlow nor a frontend can be imported; both tiers agree."""
    path = tmp_path / "program.lzt"
    with lazy_core.capture(path, traces=2):
        program(3)
    found = capsule.load(path)
    assert found.traces
    assert any("test_captured_programs.py" in site for site in found.lines)
    assert all(replay(trace).agrees for trace in found.traces)
    alone = (
        "import sys\n"
        "for name in ('torch', 'tensorflow', 'keras', 'lazy_torch', 'lazy_tf', 'lazy_numpy'): sys.modules[name] = None\n"
        "from lazy_core.cli import main\n"
        f"sys.exit(main(['run', {str(path)!r}]))\n"
    )
    env = {**os.environ, "LAZY_CACHE_DIR": "off"}
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("native and compiled results agree") == len(found.traces)


def test_the_command_shadows_a_program_that_ran_natively_so_far(tmp_path):
    """`lazy run --shadow --frontend none`, and `capture`, reach a frontend that has not told the core of itself yet."""
    pytest.importorskip("lazy_torch")
    lines = ["import torch", "x = torch.ones(3, device='lazy')", "for _ in range(3): print(torch.sin(x).sum().item())"]
    captured = ["import lazy_core", f"with lazy_core.capture({str(tmp_path / 'x.lzt')!r}):", *["  " + line for line in lines[1:]]]
    env = {**os.environ, "LAZY_CACHE_DIR": "off"}
    del env["LAZY_TIER"]
    script = tmp_path / "program.py"
    script.write_text("\n".join(lines))
    run = [sys.executable, "-m", "lazy_core.cli", "run", "--shadow", "--frontend", "none", str(script)]
    shown = subprocess.run(run, capture_output=True, text=True, env=env, timeout=300)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "shadow_runs      3" in shown.stderr, shown.stderr[-2000:]
    script.write_text("\n".join([lines[0], *captured]))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert capsule.load(tmp_path / "x.lzt").traces


def test_a_program_in_shadow_has_no_false_alarm(program):
    """Training with dropout, stencils, guards: what differs is rounding."""
    before = lazy_core.report().counters
    with lazy_core.options(shadow="every", tier="compiled"), lazy_core.strict("shadow"):
        program(4)
    after = lazy_core.report().counters
    assert after["shadow_runs"] - before["shadow_runs"] >= 3
    assert after["shadow_differences"] == before["shadow_differences"]


def negative_log(name):
    """A pending tensor with a NaN that log made, two operations ago."""
    data = np.array([1.0, -2.0], np.float32)
    if name == "torch":
        torch = pytest.importorskip("torch")
        pytest.importorskip("lazy_torch")
        return torch.exp(torch.log(torch.from_numpy(data).to("lazy")) + 1)  # here
    if name == "numpy":
        lazy_numpy = pytest.importorskip("lazy_numpy")
        return np.exp(np.log(lazy_numpy.array(data)) + 1)  # here
    tf = pytest.importorskip("tensorflow")
    lazy_tf = pytest.importorskip("lazy_tf")
    with lazy_tf.device():
        return tf.exp(tf.math.log(tf.constant(data) * 1.0) + 1.0)  # here


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_nan_is_traced_in_each_library(name):
    """Pending, and after it has run."""
    with lazy_core.options(tier="compiled", keep_traces=3):
        x = negative_log(name)
        origin = lazy_core.first_nan(x)
        assert (origin.op, origin.place) == ("log", (1,))
        file, _, line = origin.site.rpartition(":")
        with open(file) as opened:
            assert "# here" in opened.readlines()[int(line) - 1]
        lazy_core.barrier()
        assert lazy_core.first_nan(x).op == "log"


@pytest.mark.parametrize("name", PROGRAMS)
def test_notebooks_show_a_pending_tensor_of_each_library(name):
    """HTML and text, and nothing runs; what has run is shown as always."""
    with lazy_core.options(tier="compiled"):
        x = negative_log(name)
        before = lazy_core.report().counters["barriers"]
        shown = x._repr_mimebundle_(include=None, exclude=None)
        assert "f32[2]" in shown["text/html"]
        assert "pending" in x._repr_html_()
        assert lazy_core.report().counters["barriers"] == before
        lazy_core.barrier()
        assert not x._repr_mimebundle_()
        assert x._repr_html_() is None
