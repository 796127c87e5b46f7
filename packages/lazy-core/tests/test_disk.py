"""The disk cache: reuse, verification, safety, bounds."""

import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import lazy_core
from lazy_core import disk, ops, values
from lazy_core.cache import cache


@pytest.fixture
def folder(tmp_path):
    """An empty disk cache, empty tables in memory, and no counts."""
    lazy_core.barrier()
    cache.clear()
    lazy_core.reset_report()
    with lazy_core.options(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    cache.clear()


def program(n=3):
    """A small program's value."""
    x = values.from_host(np.arange(n, dtype=np.float32))
    return values.to_host(ops.add(ops.mul(x, x), x)).tolist()


def entries(folder):
    """Files of the cache by kind."""
    files = [p for p in folder.glob("*/*")]
    return [p for p in files if p.name.startswith("index-")], [p for p in files if p.name.startswith("program-")]


def test_forgotten_program_is_loaded_from_disk_and_not_compiled(folder):
    """What memory forgot, the disk knows; the values are the same."""
    assert program() == program() == [0, 2, 6]
    index, programs = entries(folder)
    assert (len(index), len(programs)) == (1, 1)
    cache.clear()
    lazy_core.reset_report()
    assert program() == [0, 2, 6]
    counters = lazy_core.report().counters
    assert (counters["compiles"], counters["disk_hits"]) == (0, 1)


def test_index_prevents_lowering(folder, monkeypatch):
    """A known structure is not even traced."""
    program()
    cache.clear()
    monkeypatch.setattr(lazy_core.barrier.__globals__["backend"], "lower", lambda *a: pytest.fail("lowered"))
    assert program() == [0, 2, 6]


def test_folder_belongs_to_the_user_alone(folder):
    """Mode 0700, and a folder that others can write to is refused with a reason."""
    program()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert next(folder.glob("*")).stat().st_mode & 0o777 == 0o700
    os.chmod(folder, 0o777)
    cache.clear()
    other = disk.DiskCache()
    assert other.folder() is None
    assert any("chmod 700" in e.cause for e in lazy_core.report().events)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_entries_are_removed_and_compiled_anew(folder, damage):
    """A torn or altered file is a miss."""
    program()
    for path in folder.glob("*/*"):
        blob = bytearray(path.read_bytes())
        if damage == "flip":
            blob[len(blob) // 2] ^= 1
        path.write_bytes({"truncate": blob[:-7], "flip": blob, "empty": b""}[damage])
    cache.clear()
    lazy_core.reset_report()
    assert program() == [0, 2, 6]
    assert lazy_core.report().counters["compiles"] == 1
    cache.clear()
    assert program() == [0, 2, 6]
    assert lazy_core.report().counters["disk_hits"] == 1


def test_the_whole_text_is_compared_not_its_hash(folder, monkeypatch):
    """Two programs whose names collide never run each other."""
    monkeypatch.setattr(disk, "_name", lambda kind, text: f"{kind}-collision")
    assert program(3) == [0, 2, 6]
    cache.clear()
    assert program(4) == [0, 2, 6, 12]


def test_size_is_bounded_and_the_oldest_entries_go(folder):
    """Least recently used first."""
    with lazy_core.options(cache_bytes=60_000):
        for n in range(1, 12):
            program(n)
            time.sleep(0.01)
    size = sum(p.stat().st_size for p in folder.glob("*/*"))
    assert 0 < size <= 60_000
    cache.clear()
    lazy_core.reset_report()
    program(11)
    assert lazy_core.report().counters["disk_hits"] == 1


def test_an_unusable_folder_is_an_event_and_not_an_error(tmp_path):
    """A path that cannot be a folder costs the cache, not the program."""
    (tmp_path / "file").write_text("x")
    lazy_core.barrier()
    cache.clear()
    lazy_core.reset_report()
    with lazy_core.options(cache_dir=str(tmp_path / "file" / "cache")):
        assert program() == [0, 2, 6]
    assert any(e.kind == "cache" for e in lazy_core.report().events)


def test_off_writes_nothing(tmp_path, monkeypatch):
    """`cache_dir="off"` touches no disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with lazy_core.options(cache_dir="off"):
        cache.clear()
        program()
    assert list(tmp_path.iterdir()) == []


SCRIPT = textwrap.dedent(
    """
    import json
    import numpy as np
    import lazy_core
    from lazy_core import ops, values
    x = values.from_host(np.arange(5.0))
    for _ in range(20):
        x = ops.sin(ops.add(x, x))
    total = float(values.to_host(x).sum())
    print(json.dumps([total, lazy_core.report().counters["compiles"], lazy_core.report().counters["disk_hits"]]))
    """
)


def run(folder):
    """The script in a process of its own: (sum, compiles, disk hits)."""
    import json

    env = {**os.environ, "LAZY_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_second_process_compiles_nothing(tmp_path):
    """The same program in another process is one disk hit."""
    first, second = run(tmp_path / "c"), run(tmp_path / "c")
    assert first[0] == second[0]
    assert first[1:] == [1, 0]
    assert second[1:] == [0, 1]


WRITER = """
import sys
import lazy_core
from lazy_core import disk
store = disk.DiskCache()
with lazy_core.options(cache_dir=sys.argv[1]):
    k = 0
    while True:
        store.put("program", f"text {k % 50}", bytes([k % 50]) * 20_000)
        k += 1
"""


def test_concurrent_writers_and_kills_leave_no_half_entries(tmp_path):
    """Writers are killed at random moments; whoever reads sees whole entries only."""
    folder = str(tmp_path / "c")
    lazy_core.reset_report()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, folder]) for _ in range(2)]
    reader = disk.DiskCache()
    deadline = time.time() + 60
    found = 0
    with lazy_core.options(cache_dir=folder):
        while found < 200 and time.time() < deadline:
            for k in range(50):
                payload = reader.get("program", f"text {k}")
                if payload is not None:
                    found += 1
                    assert payload == bytes([k]) * 20_000
        for w in writers:
            w.kill()
            w.wait()
        for k in range(50):
            payload = reader.get("program", f"text {k}")
            assert payload is None or payload == bytes([k]) * 20_000
    assert found >= 200
    assert not any("damaged" in e.cause for e in lazy_core.report().events)


def test_a_program_that_calls_back_into_python_is_not_stored(folder):
    """It holds addresses of this process: another one that loaded it would crash."""
    import jax

    from lazy_core.ops.registry import Op

    op = Op.unregistered("test_calls_back", lambda v: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(v.shape, v.dtype), v))
    assert values.to_host(values.record(op, (values.from_host(np.ones(3, np.float32)),))).tolist() == [1, 1, 1]
    assert entries(folder) == ([], [])
