"""Importing what recording takes, in the background: it rests, but not while somebody waits for a module that it has begun."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from lazy_core import importing
from lazy_torch import awake


def wait_until(condition, seconds: float = 20.0) -> bool:
    end = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < end:
        time.sleep(0.001)
    return condition()


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The name of a module whose import ends when it is let, and the event that lets it."""
    (tmp_path / "slow_to_import.py").write_text(
        "import slow_to_import_gate\nslow_to_import_gate.begun.set()\nslow_to_import_gate.open.wait(60)\n"
    )
    gate = type(sys)("slow_to_import_gate")
    gate.begun, gate.open = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "slow_to_import_gate", gate)
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_to_import", gate
    gate.open.set()
    sys.modules.pop("slow_to_import", None)


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped can be read on Linux only")
def test_the_backends_library_is_mapped_before_it_is_imported():
    script = """
        import sys
        import torch
        from lazy_torch import awake
        awake._tools().map_library()
        assert "libjax_common" in open("/proc/self/maps").read()
        assert "jaxlib._jax" not in sys.modules
        awake.finish()
        assert torch.ones(3, device="lazy").sum().item() == 3
        assert "jaxlib._jax" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_a_thread_that_waits_for_a_module_is_seen(slow_module):
    name, gate = slow_module
    seen = []

    def imports():
        rests = importing.Rests(0.2, threading.Event())
        seen.append(rests._awaited)
        importlib.import_module(name)

    importer = threading.Thread(target=imports)
    importer.start()
    assert gate.begun.wait(60)
    awaited = seen[0]
    assert not awaited()
    waiter = threading.Thread(target=importlib.import_module, args=(name,))
    waiter.start()
    assert wait_until(awaited)
    gate.open.set()
    waiter.join(60)
    importer.join(60)
    assert not awaited()


def test_it_rests_until_its_share_of_the_time_is_small_enough():
    spent = []

    def works():
        rests = importing.Rests(0.25, threading.Event())
        begin, had = time.perf_counter(), time.thread_time()
        while time.thread_time() - had < 0.05:
            pass
        rests.find_spec("anything", None, None)
        spent.append((time.thread_time() - had) / (time.perf_counter() - begin))

    thread = threading.Thread(target=works)
    thread.start()
    thread.join(60)
    assert spent[0] <= 0.3


def test_importing_ends_and_says_so():
    awake.finish()
    assert not awake.importing()
