"""The repository's own rules: one version, pins, metadata, and the checks in tools/ noticing what they are for."""

import importlib.metadata
import importlib.util
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "torch", "numpy", "tf")
FRONTENDS = PACKAGES[1:]


def _project(package):
    return tomllib.loads((ROOT / "packages" / f"lazy-{package}" / "pyproject.toml").read_text())["project"]


def _tool(name):
    spec = importlib.util.spec_from_file_location(f"lazy_tool_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_all_packages_share_one_version():
    """The four pyproject files, what is installed, and `lazy_core.__version__` say the same version."""
    import lazy_core

    declared = {_project(p)["version"] for p in PACKAGES}
    installed = {importlib.metadata.version(_project(p)["name"]) for p in PACKAGES}
    assert declared == installed == {lazy_core.__version__}


@pytest.mark.parametrize("package", FRONTENDS)
def test_frontend_pins_the_core_of_its_own_version(package):
    """A frontend depends on `lazytensor-core` of exactly its version, and on nothing called lazy-core."""
    project = _project(package)
    assert f"lazytensor-core=={project['version']}" in project["dependencies"]
    assert not any(re.match(r"lazy[-_.]core\b", d) for d in project["dependencies"])


@pytest.mark.parametrize("package", FRONTENDS)
def test_frontend_is_found_by_its_entry_point(package):
    """Each frontend declares itself in the group that core looks through."""
    entries = {e.name: e.value for e in importlib.metadata.entry_points(group="lazy_core.frontends")}
    assert entries[package] == f"lazy_{package}.frontend:FRONTEND"


def test_torch_finds_the_device_by_itself():
    """The `torch.backends` entry point is what lets a plain `import torch` know the device."""
    assert {e.name: e.value for e in importlib.metadata.entry_points(group="torch.backends")}["lazy"] == "lazy_torch.autoload:register"


def test_torch_is_not_a_build_requirement():
    """Pip would fetch a second torch into the build environment."""
    text = (ROOT / "packages" / "lazy-torch" / "pyproject.toml").read_text()
    assert not any("torch" in r for r in tomllib.loads(text)["build-system"]["requires"])


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_typed_and_licensed(package):
    """Each package ships `py.typed`, the licence text and a README."""
    folder = ROOT / "packages" / f"lazy-{package}"
    assert (folder / "src" / f"lazy_{package}" / "py.typed").exists()
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (folder / "README.md").exists()


def test_constraints_lie_within_the_declared_ranges():
    """What is tested with is what a user may install: `pip check` would agree."""
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    canonical = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for package in PACKAGES:
        project = _project(package)
        extras = [d for group in project.get("optional-dependencies", {}).values() for d in group]
        for requirement in map(Requirement, [*project["dependencies"], *extras]):
            if requirement.name in canonical:
                assert requirement.specifier.contains(canonical[requirement.name]), str(requirement)


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.jit(f)",
        "import jax as j\nj.devices()",
        "from jax import device_put",
        "import jax.sharding",
        "from jax.sharding import Mesh",
    ],
)
def test_check_backend_notices(source):
    """However it is spelt, a use of the compiler or of devices outside backend.py is found."""
    assert list(_tool("check_backend").uses(source))


def test_check_backend_lets_lowerings_be():
    """Lowerings may use jax.numpy and lax, and `jit` as a name of something else."""
    assert list(_tool("check_backend").uses("import jax\nfrom jax import lax\nimport jax.numpy as jnp\njnp.jit\nlax.add\nself.jit")) == []


def test_prove_wheel_notices_a_file_from_elsewhere(tmp_path):
    """A file that is missing, or was installed with another hash, is named."""
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.dist-info/RECORD", "x/a.py,sha256=AA,1\nx/b.py,sha256=BB,1\nx-1.dist-info/RECORD,,\n")
    differing = _tool("prove_wheel").differing_files
    assert differing(wheel, "x/a.py,sha256=AA,1\nx/b.py,sha256=BB,1\n") == []
    assert differing(wheel, "x/a.py,sha256=ZZ,1\n") == ["x/a.py", "x/b.py"]
