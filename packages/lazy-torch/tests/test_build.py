"""Finding the device: a plain `import torch`, an explicit import, and a machine without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lazy_torch import build


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False)


def test_plain_import_torch_finds_the_device_and_loads_neither_jax_nor_core() -> None:
    done = run(
        "import torch, sys; x = torch.empty(2, device='lazy'); print(x.device, 'jax' in sys.modules, 'lazy_core' in sys.modules)",
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
    )
    assert done.stdout.split() == ["lazy:0", "False", "False"], done.stderr
    assert done.stderr == ""


def test_autoload_without_a_binary_is_silent_and_an_explicit_import_says_what_is_missing(tmp_path: Path) -> None:
    code = "import torch\ntry:\n    import lazy_torch\nexcept Exception as e:\n    print(type(e).__name__, e)\n"
    done = run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="1", LAZY_TORCH_BUILD_DIR=str(tmp_path / "none"), PATH="/nonexistent", CXX="")
    if any(build.PREBUILT.glob("*/*.so")):
        return  # this installation carries a binary
    assert "BuildError" in done.stdout and "apt-get install g++" in done.stdout, done.stdout + done.stderr
    assert done.stderr == ""


def test_beside_another_accelerator_only_an_explicit_import_registers_the_device() -> None:
    done = run(
        "import torch\n"
        "torch.backends.cuda.is_built, torch.cuda.device_count = lambda: True, lambda: 1\n"
        "torch.__spec__._initializing = True\n"
        "torch._import_device_backends()\n"  # what `import torch` ends with
        "torch.__spec__._initializing = False\n"
        "print(torch._C._get_privateuse1_backend_name())\n"
        "import lazy_torch\n"
        "print(torch.ones(2, device='lazy').device)\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout.split() == ["privateuseone", "lazy:0"], done.stdout + done.stderr


def test_a_built_extension_is_found_again_and_copied() -> None:
    path = build.find()
    assert path is not None and path.is_file()
    assert build.key() in str(path)


def test_build_into_a_folder_reuses_the_binary(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lazy_torch", "build", "--into", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file() and str(tmp_path) in done.stdout
    assert done.stderr == ""


def test_a_broken_compiler_is_reported_with_its_command(tmp_path: Path) -> None:
    done = run("import lazy_torch", TORCH_DEVICE_BACKEND_AUTOLOAD="0", LAZY_TORCH_BUILD_DIR=str(tmp_path), CXX="false", MAX_JOBS="1")
    if any(build.PREBUILT.glob("*/*.so")):
        return
    assert done.returncode != 0 and "BuildError" in done.stderr and "false -O2" in done.stderr
