"""Capsules: what goes in comes out, for any graph and attribute; strangers' files are data; replaying tells what is wrong."""

import contextlib
import json
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

import lazy_core
from lazy_core import capsule, cli, encoding, errors, history, ir, ops, rerun, statistics, values
from lazy_core.capsule import CapsuleError
from lazy_core.capture import replay
from lazy_core.native import registry as kernels
from lazy_core.ops import REGISTRY, registry
from lazy_core.shape import Shape


@pytest.fixture(autouse=True)
def nothing_pending():
    lazy_core.barrier()
    yield
    lazy_core.barrier()


def array(*dims, seed=0, dtype=np.float32):
    return values.from_host(np.random.default_rng(seed).standard_normal(dims).astype(dtype))


def same(a, b):
    """Equal to the last bit, dtype and dims included."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ------------------------------------------------------------------ attributes

NAMES = ["f2", "f4", "f8", "i1", "i8", "u8", "?", "c8", "c16", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
DTYPES = st.sampled_from([np.dtype(t) for t in NAMES])
BITS = st.binary(min_size=16, max_size=16)
INTEGERS = st.none() | st.integers()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 80), 1 << 80),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    DTYPES,
    st.builds(slice, INTEGERS, INTEGERS, INTEGERS),
    st.builds(lambda bits, dtype: np.frombuffer(bits, dtype)[0], BITS, DTYPES.filter(lambda t: t.kind != "b")),
    st.builds(Shape.of, st.lists(st.integers(0, 9), max_size=3).map(tuple), DTYPES),
)
ATTRIBUTES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)


@settings(deadline=None, max_examples=100)
@given(ATTRIBUTES)
def test_attributes_come_back_with_type_and_bits(value):
    """1, 1.0 and True, -0.0, NaN of any bits, tuples in tuples, dtypes, shapes, slices: the key is the same."""
    text = json.dumps(encoding.encode(value), allow_nan=False)
    assert ir.freeze(encoding.decode(json.loads(text))) == ir.freeze(value)


NO_ATTRIBUTES = [
    {}, {"float": 1}, {"float": "x"}, {"float": "nan", "bits": "00"}, {"dtype": "object"}, {"dtype": "f4,f4"}, {"complex": [1]}, 1.5,
    {"number": "00", "dtype": "float32"}, {"shape": "f32"}, {"shape": "object[1]"}, {"shape": "void8[1]"}, {"slice": [1]}, {"what": 1},
]  # fmt: skip


@pytest.mark.parametrize("data", NO_ATTRIBUTES)
def test_what_is_no_attribute_is_refused(data):
    """With an error of the capsule's own."""
    with pytest.raises(CapsuleError):
        encoding.decode(data)


def test_an_attribute_that_no_capsule_can_hold_is_refused():
    """It is written by its value, never pickled."""
    with pytest.raises(CapsuleError, match="of type list cannot be in a capsule"):
        encoding.encode([1])


# ------------------------------------------------------------------ graphs

UNARY = ["sin", "neg", "tanh", "abs", "exp", "isnan"]
BINARY = ["add", "mul", "sub", "maximum"]


@st.composite
def programs(draw):
    """Instructions for `run_program`."""
    count = draw(st.integers(1, 12))
    return [
        (draw(st.sampled_from(["unary", "binary", "number", "sum", "convert", "split", "reshape"])), draw(st.integers(0, 99)),
         draw(st.integers(0, 99)), draw(st.floats(-3, 3)))
        for _ in range(count)
    ]  # fmt: skip


def run_program(instructions, pool):
    """Values of a random program of operations with attributes, constants, several results, and numbers that are fed at run time."""
    f32 = np.dtype(np.float32)
    for kind, a, b, number in instructions:
        x, y = pool[a % len(pool)], pool[b % len(pool)]
        if kind == "unary":
            made = [REGISTRY[UNARY[b % len(UNARY)]](x)]
        elif kind == "binary":
            made = [REGISTRY[BINARY[b % len(BINARY)]](x, y)]
        elif kind == "number":
            made = [values.record(ops.mul, (x, ir.const(number, f32)))]
        elif kind == "sum":
            made = [ops.sum(x, axes=(-1,), keepdims=True)]
            made = [ops.broadcast_to(made[0], dims=x.shape.dims)]
        elif kind == "convert":
            made = [ops.convert(ops.convert(x, dtype=np.dtype(ml_dtypes.bfloat16)), dtype=f32)]
        elif kind == "split":
            made = list(ops.sort_with_indices(x, axis=-1, descending=False, stable=True))[:1]
        else:
            made = [ops.reshape(ops.reshape(x, dims=(6,)), dims=(2, 3))]
        pool += [m if m.shape.dtype == f32 else ops.convert(m, dtype=f32) for m in made]
    return pool


@settings(deadline=None, max_examples=25)
@given(programs(), st.integers(1, 3))
def test_a_graph_comes_back_as_it_was(tmp_path_factory, instructions, runs):
    """Structure, constants, numbers fed at run time, inputs and lines; and so its results to the last bit."""
    path = tmp_path_factory.mktemp("capsule") / "random.lzt"
    lazy_core.barrier()
    for run in range(runs):  # numbers that change are fed from the second run on
        pool = run_program([(k, a, b, n + run) for k, a, b, n in instructions], [array(2, 3), array(2, 3, seed=1)])
        if run < runs - 1:
            lazy_core.barrier()
    wanted = [v for v in pool if v.pending]
    if not wanted:
        return
    lazy_core.capture(path, *wanted)
    kept = history.pending([v.expr for v in wanted])
    (back,) = capsule.load(path).traces
    assert back.graph.key == kept.graph.key
    assert [n.site for n in back.graph.nodes] == [n.site for n in kept.graph.nodes]
    for a, b in zip(back.inputs.arrays.values(), kept.inputs.arrays.values(), strict=True):
        assert same(a, np.asarray(b))
    for a, b in zip(rerun.natively(back.graph.outputs, back.inputs), rerun.natively(kept.graph.outputs, kept.inputs), strict=True):
        assert same(a, b)
    assert all(v.pending for v in wanted)


@pytest.mark.parametrize("dtype", [*registry.ANY, np.dtype(ml_dtypes.float8_e4m3fn)], ids=lambda d: d.name)
def test_inputs_of_every_dtype_come_back(dtype, tmp_path):
    """By value to the last bit; from statistics with the same dtype, dims and range."""
    host = registry.numbers(np.random.default_rng(0), (3, 4), dtype)
    for dims in ((3, 4), (), (0, 4)):
        x = values.from_host(host if dims == (3, 4) else host[0, 0] if not dims else host[:0])
        y = ops.reshape(ops.identity(x), dims=(*dims, 1))
        for whole in (True, False):
            lazy_core.capture(tmp_path / "x.lzt", y, values=whole)
            (back,) = capsule.load(tmp_path / "x.lzt").traces
            (read,) = back.inputs.arrays.values()
            assert (read.dtype, read.shape) == (dtype, dims)
            if whole:
                assert same(read, values.to_host(x))
            assert back.generated == (frozenset() if whole else {0})
    lazy_core.barrier()


def test_made_up_inputs_have_the_statistics():
    """Range, mean, zeros, NaN and infinities; the same numbers for the same seed; integers stay where indices must."""
    odd = [[np.nan] * 7, [np.inf] * 3, [-np.inf]]
    x = np.concatenate([np.random.default_rng(0).normal(5, 2, 5000), np.zeros(500), *odd]).astype(np.float32)
    told = statistics.describe(x)
    made = statistics.generate(Shape.of(x.shape, x.dtype), told, 1)
    again = statistics.describe(made)
    assert same(made, statistics.generate(Shape.of(x.shape, x.dtype), told, 1))
    assert [again[k] for k in ("nan", "inf", "-inf")] == [7, 3, 1]
    assert again["zeros"] == pytest.approx(500, abs=5)
    assert again["mean"] == pytest.approx(told["mean"], rel=0.2)
    assert told["min"] <= again["min"] <= again["max"] <= told["max"]
    indices = np.array([3, 9, 9, 200], np.uint8)
    assert set(statistics.generate(Shape.of((1000,), np.uint8), statistics.describe(indices), 0)) <= set(range(3, 201))
    assert statistics.text(told) == f"{told['min']:.6g} to {told['max']:.6g}, mean {told['mean']:.6g}, 7 NaN, 3 inf, 1 -inf"


# ------------------------------------------------------------------ capturing what runs


def program(path, tier="auto", **options):
    with lazy_core.options(tier=tier), lazy_core.capture(path, **options):
        x = array(4, 4)
        for _ in range(3):
            x = ops.tanh(ops.matmul(x, x))  # the line
            lazy_core.barrier()
    return x


@pytest.mark.parametrize("tier", ["auto", "compiled", "native"])
def test_a_block_captures_every_trace(tier, tmp_path):
    """Oldest first, with causes, lines, the statistics of what came out; the tier of the block is restored."""
    before = lazy_core.config.tier
    x = program(tmp_path / "x.lzt", tier)
    assert lazy_core.config.tier == before
    found = capsule.load(tmp_path / "x.lzt")
    assert len(found.traces) == 3
    last = found.traces[-1]
    assert last.cause == "barrier()"
    assert [n.op.name for n in last.graph.nodes] == ["matmul", "tanh"]
    assert "# the line" in found.lines[last.graph.nodes[0].site]
    assert last.results[0]["mean"] == pytest.approx(float(values.to_host(x).mean()), abs=1e-5)
    assert found.versions["lazytensor-core"] == lazy_core.__version__
    again = replay(last)
    assert again.agrees
    np.testing.assert_allclose(again.native[0], values.to_host(x), rtol=1e-5)


def test_a_block_keeps_the_latest_traces(tmp_path):
    """So many as are asked for."""
    program(tmp_path / "x.lzt", traces=2)
    assert len(capsule.load(tmp_path / "x.lzt").traces) == 2


def test_what_is_pending_at_the_end_of_a_block_is_captured(tmp_path):
    """The block ends with a barrier."""
    with lazy_core.capture(tmp_path / "x.lzt"):
        y = ops.sin(array(3))
    assert not y.pending
    assert [n.op.name for n in capsule.load(tmp_path / "x.lzt").traces[0].graph.nodes] == ["sin"]


def test_buffers_that_a_later_trace_takes_over_are_captured_before(tmp_path):
    """Large ones, which are reused as soon as nobody holds them: in the block the capsule does."""
    x = values.from_host(np.ones((200, 200), np.float32))
    for _ in range(4):
        x = ops.add(x, x)
        lazy_core.barrier()
    with lazy_core.options(tier="compiled"), lazy_core.capture(tmp_path / "x.lzt"):
        for _ in range(3):
            x = ops.add(x, x)
            lazy_core.barrier()
    for k, found in enumerate(capsule.load(tmp_path / "x.lzt").traces):
        (read,) = found.inputs.arrays.values()
        assert np.all(read == 2 ** (4 + k))


def test_a_failure_is_captured_with_its_error(tmp_path):
    """And raised; replaying meets it again."""

    @contextlib.contextmanager
    def breaking():
        def lowering(x):
            """Breaks: f32[*dims]."""
            if not shapes_only:
                raise RuntimeError("it broke")
            return x

        registry.op(samples=registry.unary_samples(), name="breaking")(lowering)
        try:
            yield REGISTRY["breaking"]
        finally:
            del REGISTRY["breaking"]

    shapes_only = [1]
    path = tmp_path / "x.lzt"
    with breaking() as op:
        y = op(array(3))
        shapes_only.clear()
        with lazy_core.options(tier="compiled"), pytest.raises(errors.ExecutionError, match="it broke"), lazy_core.capture(path):
            lazy_core.barrier()
        shapes_only.append(1)
        (found,) = capsule.load(path).traces
        assert "it broke" in found.error
        shapes_only.clear()
        again = replay(found)
        assert "it broke" in again.compiled_error
        assert not again.agrees
        del y


def test_there_must_be_something_to_capture(tmp_path):
    """Neither nothing in a block nor values that are there already."""
    with pytest.raises(errors.LazyError, match="nothing was recorded"), lazy_core.capture(tmp_path / "x.lzt"):
        pass
    with pytest.raises(errors.LazyError, match="none of these tensors is pending"):
        lazy_core.capture(tmp_path / "x.lzt", array(3))
    assert list(tmp_path.iterdir()) == []


def test_an_operation_that_only_a_frontend_has_is_run_when_captured(tmp_path):
    """Its result is an input of the capsule; what only it needed is left out."""
    own = registry.Op.unregistered("mine.twice", lambda x: x * 2)
    x = array(3)
    y = ops.sin(own(ops.cos(x)))
    lazy_core.capture(tmp_path / "x.lzt", y)
    (found,) = capsule.load(tmp_path / "x.lzt").traces
    assert [n.op.name for n in found.graph.nodes] == ["sin"]
    assert found.computed == {0: "mine.twice"}
    np.testing.assert_allclose(replay(found).native[0], np.sin(2 * np.cos(values.to_host(x))), rtol=1e-6)
    del y


def test_replaying_names_the_operation_to_blame(tmp_path):
    """As a shadow run does."""

    def lowering(x):
        """A sine that is wrong: f32[*dims]."""
        return jnp.sin(x) + 1

    registry.op(samples=registry.unary_samples(), name="wrong_sin")(lowering)
    kernels.kernel("wrong_sin")(np.sin)
    try:
        y = ops.exp(REGISTRY["wrong_sin"](ops.cos(array(5))))
        lazy_core.capture(tmp_path / "x.lzt", y)
        (fault,) = replay(capsule.load(tmp_path / "x.lzt").traces[0]).faults
        assert fault.op == "wrong_sin"
        assert "test_capsule.py" in fault.site
        del y
        lazy_core.barrier()
    finally:
        del REGISTRY["wrong_sin"], kernels._TABLE["wrong_sin"]


# ------------------------------------------------------------------ files of strangers


@pytest.fixture
def good(tmp_path):
    """A capsule, and a function that writes it with a changed manifest or members."""
    path = tmp_path / "good.lzt"
    y = ops.sum(ops.mul(array(2, 3), array(3, seed=1)), axes=(0,), keepdims=False)
    lazy_core.capture(path, y)
    del y

    def changed(change=lambda manifest: None, members=None):
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(files[capsule.MANIFEST])
        made = change(manifest)
        files[capsule.MANIFEST] = json.dumps(manifest if made is None else made).encode()
        files.update(members or {})
        target = tmp_path / "changed.lzt"
        with zipfile.ZipFile(target, "w") as archive:
            for name, data in files.items():
                if data is not None:
                    archive.writestr(name, data)
        return target

    assert len(capsule.load(changed()).traces) == 1
    return changed


def deep(manifest, *path):
    for step in path:
        manifest = manifest[step]
    return manifest


OPERATION = ("traces", 0, "operations", 0)
INPUT = ("traces", 0, "inputs", 0)
CHANGES = {
    "another file": (lambda m: [], "does not say that it is"),
    "another format": (lambda m: m.update(format="x"), "does not say that it is"),
    "a newer version": (lambda m: m.update(version=2), "update it"),
    "no version": (lambda m: m.update(version="1"), "has the version '1'"),
    "no traces": (lambda m: m.update(traces=3), "traces is no array"),
    "an unknown operation": (lambda m: deep(m, *OPERATION).update(op="rm"), "is 'rm', which this version of lazytensor-core does not have"),
    "an operation that is no name": (lambda m: deep(m, *OPERATION).update(op=["add"]), "does not have"),
    "an unknown attribute": (lambda m: deep(m, *OPERATION)["attributes"].update(x=1), r"mul\(f32\[2,3\], f32\[3\]\), cannot be"),
    "another shape": (lambda m: deep(m, *OPERATION).update(results=["f32[9]"]), "gives .* here, and the capsule says"),
    "an operand of later": (lambda m: deep(m, *OPERATION).update(operands=[["operation", 1, 0], ["input", 0]]), "operand .* is none"),
    "an operand before": (lambda m: deep(m, *OPERATION).update(operands=[["input", -1], ["input", 0]]), "operand .* is none"),
    "an operand of no kind": (lambda m: deep(m, *OPERATION).update(operands=["input"]), "operand .* is none"),
    "no outputs": (lambda m: m["traces"][0].update(outputs=[]), "outputs are not results"),
    "a huge input": (lambda m: deep(m, *INPUT).update(shape="f32[99999999999]"), "more than what is left"),
    "a file that is none": (lambda m: deep(m, *INPUT).update(file="../../etc/passwd"), "is no name of an input"),
    "another dtype": (lambda m: deep(m, *INPUT).update(shape="s32[2,3]"), "holds float32"),
    "another size": (lambda m: deep(m, *INPUT).update(shape="f32[2,3000]"), "does not fit"),
    "an object": (lambda m: deep(m, *INPUT).update(shape="object[2,3]"), "no shape"),
    "a number of the wrong kind": (lambda m: m["traces"][0]["numbers"].update(i=[True]), "no number of kind i"),
    "statistics that are none": (lambda m: deep(m, *INPUT).update(file=None, statistics={"size": 1, "mean": "x"}, seed=1), "damaged"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_capsule_is_refused(name, good):
    """With what is wrong, and where; no other error gets out."""
    change, text = CHANGES[name]
    with pytest.raises(CapsuleError, match=text):
        capsule.load(good(change))


def test_results_that_are_too_large_are_refused(good):
    """Before anything is allocated: a small file may ask for much."""

    def change(manifest):
        trace = manifest["traces"][0]
        trace["operations"] = [
            {"op": "broadcast_to", "operands": [["input", 0]], "attributes": {"dims": [1 << 40, 2, 3]}, "results": [f"f32[{1 << 40},2,3]"],
             "site": None}
        ]  # fmt: skip
        trace["outputs"] = [["operation", 0, 0]]

    with pytest.raises(CapsuleError, match=r"the result f32\[1099511627776,2,3\] of operation 0, broadcast_to, of .* bytes is more"):
        capsule.load(good(change))
    with pytest.raises(CapsuleError, match="more than what is left"):
        capsule.load(good(), most_bytes=10)


def test_damaged_members_are_refused(good, tmp_path):
    """Of any kind; a pickle is not even looked at."""
    name = "traces/0/inputs/0.npy"
    for data in (b"", b"\x93NUMPY\x01\x00", b"x" * 100, None, b"\x93NUMPY\x03\x00" + b"x" * 100):
        with pytest.raises(CapsuleError):
            capsule.load(good(members={name: data}))
    for content in (b"", b"PK\x03\x04", b"not a zip file"):
        (tmp_path / "bad.lzt").write_bytes(content)
        with pytest.raises(CapsuleError, match=r"bad\.lzt is no capsule, or is damaged"):
            capsule.load(tmp_path / "bad.lzt")
    with pytest.raises(CapsuleError, match="it is no capsule"):
        capsule.load(good(members={capsule.MANIFEST: None}))
    with pytest.raises(CapsuleError):
        capsule.load(good(members={capsule.MANIFEST: b"[" * 100_000}))
    with pytest.raises(FileNotFoundError):
        capsule.load(tmp_path / "missing.lzt")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_byte_may_be_wrong(tmp_path_factory, data):
    """Loading gives a capsule or a CapsuleError."""
    folder = tmp_path_factory.mktemp("capsule")
    if not hasattr(test_any_byte_may_be_wrong, "content"):
        y = ops.sin(array(2))
        lazy_core.capture(folder / "x.lzt", y)
        test_any_byte_may_be_wrong.content = (folder / "x.lzt").read_bytes()
        del y
    content = bytearray(test_any_byte_may_be_wrong.content)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "y.lzt").write_bytes(bytes(content))
    with contextlib.suppress(CapsuleError):
        capsule.load(folder / "y.lzt")


# ------------------------------------------------------------------ the command


def test_the_command_replays_and_shows(tmp_path, capsys):
    """`lazy run` prints where it comes from, inputs, outputs on both tiers; `lazy graph` the operations with their lines."""
    path = tmp_path / "bug.lzt"
    program(path)
    assert cli.main(["run", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "3 traces" in shown
    assert f"lazytensor-core {lazy_core.__version__}" in shown
    assert "matmul" in shown or "tanh" in shown
    assert "native and compiled results agree" in shown
    assert cli.main(["graph", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "matmul(%0, %0)" in shown
    assert "test_capsule.py" in shown
    for form in ("stablehlo", "dot", "html"):
        assert cli.main(["graph", str(path), "1", "--format", form]) == 0
        assert {"stablehlo": "stablehlo.tanh", "dot": "digraph", "html": "<!doctype html>"}[form] in capsys.readouterr().out
    assert cli.main(["graph", str(path), "9"]) == 2
    assert "there is no trace 9" in capsys.readouterr().err
    path.write_bytes(b"nothing")
    assert cli.main(["run", str(path)]) == 2
    assert "is no capsule, or is damaged" in capsys.readouterr().err
