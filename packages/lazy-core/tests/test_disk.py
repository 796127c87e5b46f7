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


def test_nothing_is_ever_unpickled(folder, monkeypatch):
    """Files that somebody else could have written are never run: what is read back is texts, checksums and XLA's own form."""
    import _pickle
    import ast
    import marshal
    import pickle
    from pathlib import Path

    program()
    cache.clear()
    lazy_core.reset_report()
    for module in (pickle, _pickle, marshal):
        for name in {"load", "loads", "Unpickler"} & set(dir(module)):
            monkeypatch.setattr(module, name, lambda *a, **k: pytest.fail("unpickled"))
    assert program() == [0, 2, 6]
    assert lazy_core.report().counters["disk_hits"] == 1
    monkeypatch.undo()
    imported = set()
    for source in Path(lazy_core.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    assert "json" in imported
    assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} & imported


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


@pytest.fixture
def no_inference(folder):
    """A function after which only remembered shapes are found, as in another process."""
    from lazy_core.ops.registry import REGISTRY, Op

    def forget(monkeypatch):
        disk.shape_memory.write()
        monkeypatch.setattr(disk.shape_memory, "_setting", None)
        for op in REGISTRY.values():
            op.forget_shapes()
        monkeypatch.setattr(Op, "_infer", lambda op, *rest: pytest.fail(f"the shape of {op.name} was inferred"))

    return forget


def test_second_process_infers_no_shapes(no_inference, monkeypatch):
    """What an operation's result looks like is on disk: one value, several, another dtype."""
    from lazy_core.ir import attrs

    operands = (lazy_core.Shape.of((3, 4), np.float32),)

    def shapes():
        convert = ops.convert.infer(operands, attrs(dtype=np.dtype("complex64")))
        return convert, ops.qr.infer(operands, attrs(mode="reduced"))

    # Forgotten before too: other tests of this process have inferred some of these.
    ops.convert.forget_shapes()
    ops.qr.forget_shapes()
    before = shapes()
    no_inference(monkeypatch)
    assert shapes() == before
    assert before[0] == ((lazy_core.Shape.of((3, 4), np.complex64),), False)
    assert before[1][1] and len(before[1][0]) == 2


@pytest.mark.parametrize("damage", ["truncate", "flip", "nonsense"])
def test_damaged_shapes_are_inferred_anew(folder, no_inference, monkeypatch, damage):
    """A torn line is not found, and the lines after it are."""
    from lazy_core.ir import NO_ATTRS
    from lazy_core.ops.registry import Op

    operands = (lazy_core.Shape.of((7,), np.float32),)
    real = Op._infer
    for op in (ops.sin, ops.cos):
        op.forget_shapes()
        op.infer(operands, NO_ATTRS)
    disk.shape_memory.write()
    (path,) = folder.glob("*/shapes")
    first, second, end = path.read_bytes().split(b"\n")[-3:]
    assert end == b""
    damaged = {"truncate": first[:-4], "flip": first.replace(b"[7]", b"[9]", 2), "nonsense": b"\xff" * 9}[damage]
    path.write_bytes(damaged + b"\n" + second + b"\n")
    no_inference(monkeypatch)
    ops.cos.infer(operands, NO_ATTRS)
    with pytest.raises(pytest.fail.Exception, match="sin"):
        ops.sin.infer(operands, NO_ATTRS)
    monkeypatch.setattr(Op, "_infer", real)
    assert ops.sin.infer(operands, NO_ATTRS) == (operands, False)


def test_remembered_shapes_depend_on_versions_and_source_and_are_bounded(folder, monkeypatch):
    """Another jax, another source of the operations: another file; and no file grows without end."""
    now = disk.shapes_digest()
    monkeypatch.setattr(disk, "_own_source", lambda: b"edited")
    assert disk.shapes_digest() != now
    monkeypatch.undo()
    monkeypatch.setattr(disk.jax, "__version__", "0.0.1")
    assert disk.shapes_digest() != now
    monkeypatch.undo()
    monkeypatch.setattr(disk, "_MOST_SHAPE_BYTES", 5_000)
    memory = disk.ShapeMemory()
    sizes = []
    for n in range(1, 500):
        operands = (lazy_core.Shape.of((n,), np.float32),)
        memory.put(ops.sin, operands, lazy_core.ir.NO_ATTRS, (operands, False))
        sizes.append(sum(p.stat().st_size for p in folder.glob("*/shapes")))
    assert 0 < max(sizes) <= 5_000


def test_shapes_of_operations_from_elsewhere_are_not_remembered(folder):
    """The folder's name covers the source of core operations only."""
    from lazy_core.ir import NO_ATTRS
    from lazy_core.ops.registry import Op

    operands = (lazy_core.Shape.of((5,), np.float32),)
    op = Op.unregistered("test_elsewhere", lambda x: x)
    op.infer(operands, NO_ATTRS)
    disk.shape_memory.write()
    assert not any(b"test_elsewhere" in p.read_bytes() for p in folder.glob("*/shapes"))


@pytest.mark.parametrize("text", ["f32[]", "f32[8,128]", "pred[0]", "s64[3]", "bf16[2]", "c128[1,1]", "float8_e4m3fn[4]"])
def test_a_shape_is_read_back_from_its_text(text):
    """`Shape.parse` is the inverse of printing."""
    assert str(lazy_core.Shape.parse(text)) == text
    for wrong in (text[:-1], "x" + text, text.replace("]", "]]"), text.replace("[", "[-1,")):
        with pytest.raises(ValueError, match="is not a shape"):
            lazy_core.Shape.parse(wrong)
