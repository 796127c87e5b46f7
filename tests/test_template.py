"""The template of a third party's frontend: a stranger copies it, renames it, and its tests pass; installed, the core finds it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("array_api_strict", reason="the library that the template adapts")
TEMPLATE = Path(__file__).parents[1] / "template" / "lazy-mylib"
QUICK = "arrays or basics or (float32 and end)"  # the rest takes minutes; `pytest` in the template runs it


@pytest.fixture(scope="module")
def renamed(tmp_path_factory):
    """A copy with another name, made as its README says."""
    folder = tmp_path_factory.mktemp("stranger") / "lazy-yours"
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*cache*", "dist"))
    (folder / "src" / "lazy_mylib").rename(folder / "src" / "lazy_yours")
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text(encoding="utf-8").replace("mylib", "yours"), encoding="utf-8")
    return folder


def python(*arguments, folder, **env):
    env = {**os.environ, "LAZY_CACHE_DIR": "off", **env}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_renamed_copy_passes_its_tests(renamed):
    """The conformance kit and its own tests, before anything is installed."""
    shown = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", QUICK, folder=renamed)
    assert " passed" in shown
    assert "failed" not in shown


def test_an_installed_copy_is_found_by_the_core(renamed, tmp_path):
    """Through its entry point, by its name; its README's program runs."""
    wheels = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site"))
    python(*wheels, str(renamed), folder=tmp_path)
    readme = (renamed / "README.md").read_text(encoding="utf-8")
    (tmp_path / "program.py").write_text(readme.split("```python\n")[1].split("```")[0], encoding="utf-8")
    found = "from lazy_core import frontend; print(frontend.load('yours').library, 'yours' in frontend.names())"
    path = {"PYTHONPATH": str(tmp_path / "site")}
    assert python("-c", found, folder=tmp_path, **path).split() == ["array_api_strict", "True"]
    assert float(python("program.py", folder=tmp_path, **path)) == pytest.approx(8.015237, abs=1e-3)
