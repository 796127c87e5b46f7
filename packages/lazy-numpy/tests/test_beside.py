"""Beside other libraries: they keep the real NumPy, take lazy arrays, and dispatch on them through the array API standard."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import lazy_numpy


def printed(program, tmp_path, **environment):
    """What a script under the runner prints."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(program), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "lazy_numpy", str(path)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_the_namespace_of_the_array_api_is_versioned():
    x = lazy_numpy.arange(3.0)
    xp = x.__array_namespace__(api_version="2024.12")
    assert xp.__array_api_version__ == np.__array_api_version__
    assert isinstance(xp.asarray([1.0, 2.0]), xp.ndarray)
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.01")


@pytest.mark.parametrize("tier", ["auto", "compiled"])
def test_scipy_takes_lazy_arrays_with_and_without_dispatch(tier, tmp_path):
    pytest.importorskip("scipy")
    program = """
        import numpy as np
        import scipy.linalg, scipy.optimize, scipy.signal, scipy.special, scipy.stats
        x = np.linspace(0.1, 2.0, 400).reshape(20, 20)
        real = x.copy().tolist()
        for f in (
            scipy.special.expit, scipy.special.logsumexp, scipy.stats.zscore, scipy.stats.skew, scipy.signal.detrend,
            lambda a: scipy.special.softmax(a, axis=1), lambda a: scipy.linalg.inv(a + 100 * np.eye(20)),
            lambda a: scipy.stats.ttest_1samp(a, 0.5).statistic,
            lambda a: scipy.optimize.minimize(lambda p: float(((a[0] - p[0]) ** 2).sum()), [0.0]).x.round(5),
        ):
            found = np.asarray(f(x)).tolist()
            import sys
            want = f(sys.modules["numpy"].array(real)).tolist()
            print(np.testing.assert_allclose(found, want, rtol=1e-9))
    """
    for dispatch in ("0", "1"):
        assert printed(program, tmp_path, LAZY_TIER=tier, SCIPY_ARRAY_API=dispatch) == ["None"] * 9


def test_scikit_learn_dispatches_on_lazy_arrays(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is installed in the environment of all packages only")
    program = """
        import numpy as np
        from sklearn import config_context
        from sklearn.metrics import r2_score
        x = np.linspace(0.0, 1.0, 500)
        with config_context(array_api_dispatch=True):
            print(round(float(r2_score(x, x * 1.1)), 12))
    """
    x = np.linspace(0.0, 1.0, 500)
    want = 1 - ((x - x * 1.1) ** 2).sum() / ((x - x.mean()) ** 2).sum()
    assert printed(program, tmp_path, SCIPY_ARRAY_API="1") == [str(round(float(want), 12))]


def test_pandas_keeps_the_real_numpy_and_takes_lazy_arrays(tmp_path):
    pytest.importorskip("pandas", reason="too large for the test environment")
    program = """
        import numpy as np, pandas as pd
        frame = pd.DataFrame({"a": np.arange(1000.0), "b": np.arange(1000) % 3})
        print(frame.groupby("b")["a"].sum().tolist(), float(np.sqrt(frame["a"]).sum()) > 0)
    """
    assert printed(program, tmp_path) == ["[166833.0, 166167.0, 166500.0] True"]


def test_matplotlib_draws_lazy_arrays(tmp_path):
    pytest.importorskip("matplotlib", reason="too large for the test environment")
    program = """
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        import numpy as np
        x = np.linspace(0, 1, 1000)
        figure, (left, right) = plt.subplots(1, 2)
        left.plot(x, np.sin(x))
        right.imshow(np.outer(x[:200], x[:200]))
        figure.savefig("figure.png")
        print(left.lines[0].get_ydata().shape)
    """
    assert printed(program, tmp_path) == ["(1000,)"]
    assert (tmp_path / "figure.png").stat().st_size > 1000
