"""The libraries' own words for each other's tensors: which share a value within the trace, which read it, and which refuse.

The table here is the one in docs/mixed-graphs.md: a test compares them.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest

import lazy_core

torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")
lazy_numpy = pytest.importorskip("lazy_numpy")
lazy_tf = pytest.importorskip("lazy_tf")
lazy_torch = pytest.importorskip("lazy_torch")

PAGE = Path(__file__).parents[1] / "docs" / "mixed-graphs.md"
CONTENTS = np.arange(6, dtype=np.float32).reshape(2, 3) * 2 + 1


def numpy_in_scope(name):
    """A function of NumPy's as a module sees it where NumPy is lazy."""
    return lambda x: getattr(lazy_numpy.proxy.module(), name)(x)


def of_tensorflow(x):
    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


SCOPES = {
    "torch": ('with torch.device("lazy")', lambda: torch.device("lazy")),
    "numpy": ("where NumPy is lazy", contextlib.nullcontext),
    "tf": ("with lazy_tf.device()", lazy_tf.device),
    "": ("anywhere else", contextlib.nullcontext),
}
# Word -> the call, and in which scope what becomes of a lazy tensor of (NumPy, torch, TensorFlow).
SHARES, READS, REFUSES, NOT = "shares", "reads", "refuses", "-"
WORDS = {
    ("torch.as_tensor(x)", "torch"): (torch.as_tensor, (SHARES, NOT, SHARES)),
    ("torch.tensor(x)", "torch"): (torch.tensor, (SHARES, NOT, SHARES)),
    ("torch.from_dlpack(x)", "torch"): (torch.from_dlpack, (SHARES, NOT, SHARES)),
    ("np.asarray(x)", "numpy"): (numpy_in_scope("asarray"), (NOT, SHARES, SHARES)),
    ("np.array(x)", "numpy"): (numpy_in_scope("array"), (NOT, SHARES, SHARES)),
    ("np.from_dlpack(x)", "numpy"): (numpy_in_scope("from_dlpack"), (NOT, SHARES, SHARES)),
    ("tf.convert_to_tensor(x)", "tf"): (tf.convert_to_tensor, (SHARES, SHARES, NOT)),
    ("tf.constant(x)", "tf"): (tf.constant, (READS, REFUSES, NOT)),
    ("torch.as_tensor(x)", ""): (torch.as_tensor, (READS, NOT, READS)),
    ('torch.as_tensor(x, device="lazy")', ""): (lambda x: torch.as_tensor(x, device="lazy"), (READS, NOT, READS)),
    ("torch.from_dlpack(x)", ""): (torch.from_dlpack, (READS, NOT, READS)),
    ("torch.from_numpy(x)", ""): (torch.from_numpy, (REFUSES, NOT, REFUSES)),
    ("np.asarray(x)", ""): (np.asarray, (NOT, REFUSES, READS)),
    ("np.from_dlpack(x)", ""): (np.from_dlpack, (NOT, READS, READS)),
    ("tf.convert_to_tensor(x)", ""): (tf.convert_to_tensor, (READS, REFUSES, NOT)),
    ("tf.experimental.dlpack.from_dlpack(x.__dlpack__())", ""): (of_tensorflow, (READS, READS, NOT)),
}
LIBRARIES = ("numpy", "torch", "tf")


def lazy(library):
    """A pending tensor of a library with CONTENTS."""
    half = CONTENTS - 1
    made = {"numpy": lazy_numpy.asarray, "torch": lambda a: torch.from_numpy(a).to("lazy"), "tf": lazy_tf.from_numpy}[library](half)
    lazy_core.barrier()
    return made + 1


def contents(x):
    return x.cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x.numpy() if isinstance(x, tf.Tensor) else x)


def is_lazy(x):
    kinds = (isinstance(x, torch.Tensor) and x.device.type == "lazy", lazy_tf.is_lazy(x), isinstance(x, lazy_numpy.ndarray))
    return any(kinds)


CELLS = [
    pytest.param(word, scope, call, library, expected, id=f"{word} {SCOPES[scope][0]} of {library}")
    for (word, scope), (call, row) in WORDS.items()
    for library, expected in zip(LIBRARIES, row, strict=True)
    if expected != NOT
]


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize(("word", "scope", "call", "library", "expected"), CELLS)
def test_a_word_does_what_its_row_says(word, scope, call, library, expected):
    """Shared: nothing was read, and the result is pending. Read: one host read. Refused: an error, and nothing was read."""
    with lazy_core.options(tier="compiled"), SCOPES[scope][1]():
        x = lazy(library)
        lazy_core.reset_report()
        if expected == REFUSES:
            with pytest.raises(TypeError, match=r"from_lazy|Use Tensor\.cpu\(\)"):
                call(x)
        else:
            made = call(x)
        report = lazy_core.report()
        reads = [e for e in report.events if e.kind == "host_read"]
        assert len(reads) == report.counters["barriers"] == (1 if expected == READS else 0)
        if expected == SHARES:
            assert is_lazy(made)
        if expected != REFUSES:
            np.testing.assert_array_equal(contents(made), CONTENTS)
        np.testing.assert_array_equal(contents(x), CONTENTS)


@pytest.mark.parametrize("tier", ["compiled", "auto", "native"])
@pytest.mark.parametrize("scope", ["torch", "tf"])
def test_a_word_gives_the_contents_in_every_tier(tier, scope):
    """Sharing is of values: a later write on either side is not seen on the other one."""
    with lazy_core.options(tier=tier):
        x = lazy("numpy")
        with SCOPES[scope][1]():
            made = (torch.as_tensor if scope == "torch" else tf.convert_to_tensor)(x)
        x[0] = -1
        np.testing.assert_array_equal(contents(made), CONTENTS)
        if scope == "torch":
            made.zero_()
            np.testing.assert_array_equal(np.array(x.tolist()), np.concatenate([np.full((1, 3), -1), CONTENTS[1:]]))


def test_a_word_may_name_a_dtype():
    """Floats become other floats within the trace; what the libraries convert by value is left to them."""
    with lazy_core.options(tier="compiled", strict="host_read"):
        x = lazy("numpy")
        with torch.device("lazy"):
            wide = torch.as_tensor(x, dtype=torch.float64)
        with lazy_tf.device():
            half = tf.convert_to_tensor(x, dtype=tf.float16)
            total = half + tf.cast(tf.convert_to_tensor(lazy("torch")), tf.float16)
    assert (wide.dtype, half.dtype, wide.device.type) == (torch.float64, tf.float16, "lazy")
    np.testing.assert_array_equal(contents(wide), CONTENTS)
    np.testing.assert_array_equal(total.numpy(), CONTENTS * 2)
    with lazy_core.options(tier="compiled"), lazy_tf.device(), pytest.raises((TypeError, ValueError)):
        tf.convert_to_tensor(lazy("numpy"), dtype=tf.string)


def test_words_of_libraries_that_stay_on_the_cpu_are_as_ever():
    """Plain arrays and CPU tensors go from library to library as if nothing of this project was there."""
    host = CONTENTS.copy()
    t = torch.from_numpy(host)
    host[0, 0] = 9
    assert t[0, 0] == 9
    assert torch.from_dlpack(host).device.type == "cpu"
    assert np.shares_memory(np.from_dlpack(t), host)
    with torch.device("lazy"):
        assert torch.as_tensor(t, device="cpu").device.type == "cpu"
        assert torch.as_tensor(host).device.type == "lazy"
    with tf.device("CPU:0"):
        assert "CPU" in tf.convert_to_tensor(t).device
    with lazy_tf.device():
        np.testing.assert_array_equal(tf.convert_to_tensor(t).numpy(), host)

    @tf.function
    def graph():
        return tf.convert_to_tensor(host) + 1

    np.testing.assert_array_equal(graph().numpy(), host + 1)


def test_the_documents_table_is_this_one():
    """Every row of docs/mixed-graphs.md, and no other."""
    rows = re.findall(r"^\| `([^|]*)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(word, SCOPES[scope][0], *row) for (word, scope), (_, row) in WORDS.items()]
