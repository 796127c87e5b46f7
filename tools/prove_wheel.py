"""Prove that a frontend installs from a wheel folder with our core: `python tools/prove_wheel.py lazy-torch [--dist dist]`.

Makes an empty environment, says `pip install --find-links dist NAME` as a user would, with the index reachable, and holds
what was installed against the wheels: every file of ours has the wheel's hash, versions are equal, no distribution that
is called `lazy-core` (a stranger's) is there, and `lazy_core` is provided by one distribution only. Then a small program
runs in that environment with no compiler to be found: the extensions of lazy-torch and lazy-numpy must have come in their wheels.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What `pip install NAME` is followed by: TensorFlow is the user's to choose, here by the extra.
REQUESTS = {"lazy-torch": "lazy-torch", "lazy-numpy": "lazy-numpy", "lazy-tf": "lazy-tf[cpu]"}
PROGRAMS = {
    "lazy-torch": """
import torch
x = torch.arange(6.0).reshape(2, 3).to("lazy")
assert (x @ x.T).sum().item() == 83.0
""",
    "lazy-numpy": """
import numpy as np
import lazy_numpy
from lazy_numpy import extension
x = lazy_numpy.array(np.arange(6.0).reshape(2, 3))
assert float((x @ x.T).sum()) == 83.0
assert extension.is_on()
""",
    "lazy-tf": """
import tensorflow as tf
import lazy_tf
with lazy_tf.device():
    x = tf.reshape(tf.range(6.0), [2, 3])
    assert float(tf.reduce_sum(x @ tf.transpose(x))) == 83.0
""",
}
FACTS = """
import importlib.metadata as m, json
print(json.dumps({
    "distributions": sorted([d.name, d.version] for d in m.distributions()),
    "providers": m.packages_distributions().get("lazy_core", []),
    "records": {name: m.distribution(name).read_text("RECORD") for name in %r},
}))
"""


def fail(message: str) -> None:
    """End with a message."""
    sys.exit(f"prove_wheel: {message}")


def wheel_of(dist: Path, name: str) -> Path:
    """The one wheel of a distribution in a folder."""
    found = sorted(dist.glob(f"{name.replace('-', '_')}-*.whl"))
    if len(found) != 1:
        fail(f"expected one wheel of {name} in {dist}, found {[p.name for p in found]}")
    return found[0]


def hashes(record: str) -> dict[str, str]:
    """The hash of each file that a RECORD lists with one."""
    return {path: digest for path, digest, _ in csv.reader(io.StringIO(record)) if digest}


def differing_files(wheel: Path, installed_record: str) -> list[str]:
    """Files of a wheel that were not installed with the same hash."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
        ours = hashes(archive.read(name).decode())
    theirs = hashes(installed_record)
    return [path for path, digest in ours.items() if theirs.get(path) != digest]


def main() -> None:
    """Install, compare, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(REQUESTS))
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    args = parser.parse_args()
    ours = ("lazytensor-core", args.name)
    wheels = {name: wheel_of(args.dist, name) for name in ours}

    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        request = ["--find-links", str(args.dist), "-c", str(ROOT / "constraints.txt"), REQUESTS[args.name]]
        subprocess.run([*pip, *request], check=True, cwd=folder)

        told = subprocess.run([python, "-c", FACTS % (ours,)], check=True, cwd=folder, stdout=subprocess.PIPE, text=True)
        facts = json.loads(told.stdout)
        versions = {name.lower().replace("_", "-"): version for name, version in facts["distributions"]}
        if "lazy-core" in versions:
            fail(f"a stranger's lazy-core {versions['lazy-core']} was installed")
        if facts["providers"] != ["lazytensor-core"]:
            fail(f"lazy_core is provided by {facts['providers']}, not by lazytensor-core alone")
        if len({versions[name] for name in ours}) != 1:
            fail(f"versions differ: { {name: versions[name] for name in ours} }")
        for name, wheel in wheels.items():
            if wrong := differing_files(wheel, facts["records"][name]):
                fail(f"the installed {name} is not {wheel.name}: {', '.join(wrong[:5])}")
        subprocess.run([python, "-m", "pip", "check", "--disable-pip-version-check"], check=True, cwd=folder)

        # Only the environment's own programs: no compiler, so nothing can be built where it should have been shipped.
        alone = {"PATH": str(Path(folder, "bin")), "HOME": folder, "CC": "", "CXX": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        kept = {k: v for k, v in os.environ.items() if k not in alone and not k.startswith(("LAZY_", "PYTHON"))}
        subprocess.run([python, "-c", PROGRAMS[args.name]], check=True, cwd=folder, env={**kept, **alone})
        count = len(versions)
    print(f"{args.name} {versions[args.name]}: installed with our core, {count} distributions, no stranger among them; its program ran")


if __name__ == "__main__":
    main()
