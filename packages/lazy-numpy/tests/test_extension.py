"""The extension is built once, by a command or in the background, and changes nothing but the time."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import lazy_core
import lazy_numpy
from lazy_numpy import __main__ as command
from lazy_numpy import extension
from lazy_numpy.proxy import module
from lazy_numpy.recording import mode

LAZY = module()

# ------------------------------------------------------------------ building


def compiler(folder: Path, body: str) -> str:
    """A stand-in for a compiler: a program that runs this Python with the arguments in `sys.argv`."""
    path = folder / "compiler.py"
    path.write_text(body)
    return f"{sys.executable} {path}"


def test_the_command_builds_it_once_and_prints_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAZY_NUMPY_BUILD_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("CXX", compiler(tmp_path, "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('made')"))
    assert command.main(["--build-extension"]) == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()).read_text() == "made"
    assert "building its extension for NumPy" in err
    assert command.main(["--build-extension"]) == 0
    assert capsys.readouterr() == (out, "")


def test_the_command_builds_into_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", compiler(tmp_path, "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('made')"))
    assert command.main(["--build-extension", "--into", str(tmp_path / "out")]) == 0
    assert Path(capsys.readouterr().out.strip()).parent.parent == tmp_path / "out"
    assert command.main(["--build-extension", "--onto", "x"]) == 2
    assert "takes --into FOLDER only" in capsys.readouterr().err


def test_a_build_that_fails_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAZY_NUMPY_BUILD_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("CXX", compiler(tmp_path, "import sys; sys.exit('no such header')"))
    assert command.main(["--build-extension"]) == 1
    assert "no such header" in capsys.readouterr().err


def test_a_program_that_finds_none_has_it_built_once_and_does_not_wait(tmp_path):
    calls = tmp_path / "calls"
    stand_in = compiler(tmp_path, f"import time; open({str(calls)!r}, 'a').write('called\\n'); time.sleep(30)")
    variables = {**os.environ, "LAZY_NUMPY_BUILD_DIR": str(tmp_path / "out"), "CXX": stand_in}
    variables.pop("LAZY_NUMPY_EXTENSION", None)
    for _ in range(2):
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "lazy_numpy", "-c", "import numpy as np; print((np.arange(3000.0) * 2).sum())"],
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout.strip(), done.stderr) == ("8997000.0", "")
        assert time.monotonic() - begin < 25
    for _ in range(100):
        if calls.exists():
            break
        time.sleep(0.1)
    time.sleep(0.5)
    assert calls.read_text() == "called\n"


def test_without_it_programs_do_the_same():
    text = "import numpy as np; a = np.arange(9000.0); a[3:] += a[:-3]; print(a[::3].sum(), np.maximum(a, 7).mean(), a[5])"
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "lazy_numpy", "-c", text],
            env={**os.environ, "LAZY_TIER": "auto", "LAZY_NUMPY_EXTENSION": value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for value in ("off", "")
    ]
    a = np.arange(9000.0)
    a[3:] += a[:-3]
    assert outputs == [f"{a[::3].sum()} {np.maximum(a, 7).mean()} {a[5]}\n"] * 2


# ------------------------------------------------------------------ the short ways do what the Python functions do


@pytest.fixture
def both(native):
    """Runs a function twice, by the short ways and without; returns both results and what the policy was told."""
    found = extension.loaded()
    if found is None:
        pytest.skip("the extension is not built here: python -m lazy_numpy --build-extension")

    def run(function):
        outcomes = []
        for short in (True, False):
            told = []
            found.enable(short)
            mode.note = lambda number, result, told=told: told.append((number, getattr(result, "shape", None)))
            try:
                result = function(*arrays())
            except Exception as error:
                result = (type(error), str(error))
            finally:
                mode.note = None
                found.enable(True)
            outcomes.append((described(result), told))
        return outcomes

    return run


def arrays():
    """A large array, one of the same shape, a view, integers, and NumPy's own."""
    with lazy_core.options(tier="native"):
        a = LAZY.arange(6000.0) - 2999.5
        view = (LAZY.arange(12000.0) + 1.0)[::2]
        whole = (LAZY.arange(6000) % 7).astype(np.int32)
    return a, a + 10.0, view, whole, np.linspace(1.0, 2.0, 6000)


def described(result):
    """What a user can tell of a result."""
    if isinstance(result, tuple | list):
        return [described(r) for r in result]
    if type(result) is lazy_numpy.ndarray or isinstance(result, np.ndarray):
        host = np.asarray(result)
        return type(result).__name__, host.dtype, host.shape, host.strides, result.flags.writeable, host.tobytes()
    return type(result), repr(result)


OPERATORS = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge".split()
OPERANDS = {
    "array": lambda a, b, v, k, n: b,
    "view": lambda a, b, v, k, n: v,
    "integers": lambda a, b, v, k, n: k,
    "numpy's": lambda a, b, v, k, n: n,
    "float": lambda a, b, v, k, n: 2.5,
    "int": lambda a, b, v, k, n: 2,
    "bool": lambda a, b, v, k, n: True,
    "complex": lambda a, b, v, k, n: 1j,
    "scalar": lambda a, b, v, k, n: np.float32(0.5),
    "list": lambda a, b, v, k, n: [1.0] * 6000,
    "none": lambda a, b, v, k, n: None,
    "text": lambda a, b, v, k, n: "x",
    "wrong": lambda a, b, v, k, n: b[:7],
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(both, name, operand):
    operate, other = getattr(operator, name), OPERANDS[operand]
    with np.errstate(all="ignore"):
        for left in range(4):
            for swapped in (False, True):

                def function(*xs, left=left, swapped=swapped):
                    x, y = xs[left], other(*xs)
                    return operate(y, x) if swapped else operate(x, y)

                short, longer = both(function)
                assert short == longer


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize(
    "name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"]
)
def test_operators_in_place(both, name, operand):
    operate, other = getattr(operator, name), OPERANDS[operand]
    with np.errstate(all="ignore"):
        for left in range(4):

            def function(*xs, left=left):
                result = operate(xs[left], other(*xs))
                return result is xs[left], result, xs[left], xs[2].base

            short, longer = both(function)
            assert short == longer


CALLS = {
    "neg": lambda a, b, v, k, n: [-a, +v, abs(k), ~k],
    "invert": lambda a, b, v, k, n: ~a,
    "divmod": lambda a, b, v, k, n: divmod(a, v),
    "ufunc": lambda a, b, v, k, n: [np.exp(-abs(a)), np.maximum(a, 0), np.maximum(a, -1.0), np.hypot(n, a), np.add(2, v), np.add(a, n)],
    "several": lambda a, b, v, k, n: [np.modf(a), np.frexp(v), np.divmod(k, 2)],
    "reduce": lambda a, b, v, k, n: [
        np.add.reduce(a),
        np.multiply.outer(k[:80], k[:70]),
        np.add.accumulate(v),
        np.maximum.at(a, [1], 9.0),
        a,
    ],
    "out": lambda a, b, v, k, n: [np.add(a, b, out=v), v, np.sqrt(v, out=b), b, np.sum(a, out=None)],
    "where": lambda a, b, v, k, n: [np.add(a, b, where=k > 2, out=b), np.where(k > 2, a, v)],
    "power": lambda a, b, v, k, n: [np.power(v, 2), np.power(k, 2), v**2, v**0.5, v**-1, k**2, 2**k],
    "power with a modulus": lambda a, b, v, k, n: pow(a, 2, 3),
    "functions": lambda a, b, v, k, n: [
        np.sum(a),
        np.sum(a, axis=0, keepdims=True),
        np.cumsum(v),
        np.dot(a, v),
        np.concatenate([a, v]),
        np.stack((a, v)),
        np.sort(v),
        np.reshape(a, (60, 100)),
        np.reshape(a, -1),
        np.transpose(np.reshape(a, (60, 100)), (1, 0)),
        np.broadcast_to(a, (2, 6000)),
        np.split(a, 2),
        np.diff(a),
        np.clip(a, -1.0, 1.0),
        np.ravel(a),
        np.nonzero(k > 5),
        np.histogram(v, 5),
        np.atleast_2d(a),
        np.asarray(a).dtype,
        np.shape(a),
        np.unique(k),
        np.copyto(b, v),
        b,
    ],
    "methods": lambda a, b, v, k, n: [
        a.sum(),
        a.mean(keepdims=True),
        a.reshape(60, 100),
        a.reshape((60, -1)),
        a.astype(np.float32),
        a.astype(float, copy=False) is a,
        k.astype("i8"),
        a.copy(),
        v.copy(order="F"),
        a.clip(0, None),
        a.ravel(),
        a.flatten(),
        a.take([1, 2]),
        a.dot(n),
        a.argsort(),
        a.sort(),
        a,
        k.max(),
        a.all(),
        a.std(),
        a.reshape(60, 100).diagonal(),
        a.reshape(60, 100).swapaxes(0, 1),
        a.reshape(60, 100).transpose(),
        a.squeeze(),
        a.repeat(2),
        a.round(1),
        a.searchsorted(3.0),
        a.nonzero(),
        a.fill(2.0),
        a,
        a.item(3),
        a.tolist()[:2],
        k.view(np.uint32),
        a.cumsum(out=b),
        b,
    ],
    "attributes": lambda a, b, v, k, n: [
        *(getattr(x, name) for x in (a, v, k) for name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "T")),
        a.reshape(60, 100).T,
        a.reshape(2, 30, 100).mT,
        a.mT,
    ],
    "set attributes": lambda a, b, v, k, n: [setattr(a, "shape", (60, 100)), a],
    "wrong attributes": lambda a, b, v, k, n: setattr(a, "shape", (7,)),
    "elements": lambda a, b, v, k, n: [a[3], a[-1], v[2], k[5]],
    "wrong element": lambda a, b, v, k, n: a[6000],
    "keys": lambda a, b, v, k, n: [
        *(
            x[key]
            for x in (a, v, k)
            for key in (slice(None), slice(1, 5000), slice(1, 5), slice(None, None, -1), ..., None, [1, 2], np.int64(3))
        ),
        a[k > 3],
        a[n > 1.5],
        a[k],
        a.reshape(60, 100)[3],
        a.reshape(60, 100)[:, 3],
        a.reshape(60, 100)[1:, 3:],
        a.reshape(60, 100)[3, 4],
    ],
    "wrong key": lambda a, b, v, k, n: a["x"],
    "writes": lambda a, b, v, k, n: [
        operator.setitem(a, 3, 1.0),
        operator.setitem(a, slice(10, 5000), b[10:5000]),
        operator.setitem(v, slice(None, None, 3), n[::3]),
        operator.setitem(a, k > 5, 0),
        operator.setitem(k, [1, 2], [3, 4]),
        operator.setitem(k, 7, np.int32(9)),
        a,
        v,
        v.base,
        k,
    ],
    "wrong element written": lambda a, b, v, k, n: operator.setitem(a, 6000, 1.0),
    "wrong writes": lambda a, b, v, k, n: operator.setitem(a, slice(None), b[:7]),
    "delete": lambda a, b, v, k, n: operator.delitem(a, 0),
    "read-only": lambda a, b, v, k, n: [a.setflags(write=False), a[1:5], a[1:5000].flags.writeable],
    "write to read-only": lambda a, b, v, k, n: [a.setflags(write=False), operator.setitem(a, 0, 1.0)],
    "read-only in place": lambda a, b, v, k, n: [a.setflags(write=False), operator.iadd(a, 1.0)],
    "makers": lambda a, b, v, k, n: [
        LAZY.zeros(6000),
        LAZY.zeros((60, 100), np.float32),
        LAZY.ones(3),
        LAZY.full((80, 80), 2.5),
        LAZY.empty_like(a).shape,
        LAZY.zeros_like(k),
        LAZY.arange(6000),
        LAZY.linspace(0.0, 1.0, 6000),
        LAZY.array(a),
        LAZY.array(n),
        LAZY.asarray(n),
        LAZY.asarray(a) is a,
        LAZY.ascontiguousarray(v),
        LAZY.eye(80),
    ],
    "wrong maker": lambda a, b, v, k, n: LAZY.zeros("x"),
    "protocols": lambda a, b, v, k, n: [
        a.__getitem__(3),
        a.__setitem__(3, 7.0),
        a[3],
        a.__array_ufunc__(np.add, "__call__", a, b),
        a.__add__(1),
    ],
    "temporaries": lambda a, b, v, k, n: [(a + b) * 2.0 - v, (a + b) ** 2, (v * 2.0) / (b + 1.0), a, b, v],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(both, name):
    with np.errstate(all="ignore"):
        short, longer = both(CALLS[name])
    assert short[0] == longer[0]
    assert short[1] == longer[1]


def test_values_that_are_pending_or_shown_are_left_to_python(native):
    """Arrays whose contents are a value's buffer are read in place and copied before they are written to."""
    with lazy_core.options(tier="compiled"):
        a = LAZY.arange(6000.0) * 2.0
        view = a[1:]
    assert a[1] == 2.0
    a[1] = 5.0
    assert view[0] == 5.0
    view += 1.0
    assert a[1] == 6.0
    np.testing.assert_array_equal(np.asarray(a)[2:], np.arange(2, 6000.0) * 2.0 + 1.0)
    b = LAZY.asarray(a)
    with lazy_core.options(tier="compiled"):
        kept = a + 0.0
        b *= 2.0
    np.testing.assert_array_equal(np.asarray(kept)[2:], np.arange(2, 6000.0) * 2.0 + 1.0)


def test_a_square_is_computed_in_the_memory_of_a_temporary(native):
    import tracemalloc

    x = LAZY.ones(100_000)
    y = (x + x) ** 2
    tracemalloc.start()
    try:
        y = (x + x) ** 2
        assert tracemalloc.get_traced_memory()[1] < 1.5 * y.nbytes
    finally:
        tracemalloc.stop()
    assert float(y[5]) == 4.0


VALUES = [1, -1, 300, 2**70, True, 2.7, float("nan"), float("inf"), 1j, "7", None, [5]]
VALUES += [np.float32(1.5), np.int64(-5), np.complex64(1 + 2j), np.uint64(2**63), np.float16(3.0), np.bool_(True), np.longdouble(2.0)]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_writes_of_elements(both, value):
    def function(*_):
        outcomes = []
        for dtype in "?bBhHiIlLefdFD":
            for x, key in (
                (LAZY.zeros(200, dtype), 150),
                (LAZY.zeros((20, 30), dtype)[::-2, 1:], (2, -3)),
                (LAZY.zeros((2, 100), dtype), 1),
            ):
                with warnings.catch_warnings(record=True) as given:
                    warnings.simplefilter("always")
                    try:
                        x[key] = value
                    except Exception as error:
                        outcomes.append((type(error), str(error)))
                outcomes += [x, [str(w.message) for w in given]]
        return outcomes

    short, longer = both(function)
    assert short == longer


KEYS = [
    0,
    -1,
    19,
    20,
    -20,
    -21,
    2**70,
    -(2**70),
    True,
    np.int64(3),
    (),
    (3,),
    (3, 4),
    (-3, -4),
    (3, 29),
    (3, 30),
    (20, 0),
    (3, 4, 5),
    (3, True),
    1.0,
    (3, 1.0),
]
KEYS += [(3, np.int32(4)), (3, 2**70), (3, None), (3, ...), (..., 4), (3, slice(2, 5))]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reads_of_elements(both, key):
    def function(*_):
        outcomes = []
        for dtype in "?BileD":
            whole = LAZY.arange(600).reshape(20, 30).astype(dtype)
            for x in (whole, whole[::-1, ::2], whole.T, whole[:, 3], LAZY.arange(20 * 30).astype(dtype)):
                try:
                    outcomes.append(x[key])
                except Exception as error:
                    outcomes.append((type(error), str(error)))
        return outcomes

    short, longer = both(function)
    assert short == longer
