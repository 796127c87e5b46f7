"""Every operation in both tiers: its NumPy kernel against the program that XLA compiles for it."""

import functools
import runpy
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lazy_core import native
from lazy_core.ops.registry import ANY, REGISTRY, Sample
from lazy_core.testing import assert_close, samples, tolerance

tools = runpy.run_path(str(Path(__file__).with_name("native_tools.py")))
interpreted, compiled, where = tools["interpreted"], tools["compiled"], tools["where"]

KERNELS = frozenset(native.kernels())
# Of operations that compute element by element all dtypes are tested at special values below; those that only move elements know of
# a dtype no more than its width and whether NumPy has it.  Compiling them for every dtype would take as long as all the rest.
ELEMENTWISE = ("arithmetic", "binary", "compare", "elementwise_unary")
FEW = {
    **dict.fromkeys(ELEMENTWISE, "float32 bfloat16 int32 uint8 bool complex64".split()),
    **dict.fromkeys(("shapes", "strided", "indexing", "sorting"), "float32 bfloat16 int8 uint64 bool complex128".split()),
    "special": ["float32"],
}
CELLS = [
    (name, dtype)
    for name, found in sorted(REGISTRY.items())
    if name in KERNELS
    for dtype in found.dtypes
    if dtype.name in FEW.get(found.family, [dtype.name])
]


def test_nearly_every_operation_has_a_kernel(capsys):
    """What has none is compiled by itself; that list stays short, and is shown."""
    missing = sorted(set(REGISTRY) - set(native.kernels()))
    with capsys.disabled():
        print(f" [run by XLA one at a time: {', '.join(missing)}] ", end="")
    assert len(missing) <= 0.1 * len(REGISTRY)
    assert set(native.kernels()) <= set(REGISTRY)


@functools.cache
def family_results(family, dtype):
    """What XLA computes for all samples of a family for one dtype."""
    todo = [
        (name, sample)
        for name, found in sorted(REGISTRY.items())
        if name in KERNELS and found.family == family and dtype in found.dtypes
        for sample in samples(name, dtype)
    ]
    grouped = {}
    for (name, sample), results in zip(todo, compiled(todo), strict=True):
        grouped.setdefault(name, []).append((sample, results))
    return grouped


def _product(name, results):
    """A decomposition as what it is made of, for the signs of its vectors are anybody's."""
    if name == "svd":
        u, s, vh = results
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :].astype(u.dtype)) @ vh[..., :k, :]]
    if name == "eigh":
        w, v = results
        return [w, (v * w[..., None, :].astype(v.dtype)) @ np.conj(np.swapaxes(v, -1, -2))]
    if name == "eig":
        w, v = results
        return [w, (v * w[..., None, :]) @ np.linalg.inv(v)]
    return results


def compare(name, sample, got, expected):
    assert len(got) == len(expected)
    allowed = tolerance(name)
    for a, b in zip(got, expected, strict=True):
        assert type(a) is np.ndarray
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where(name, sample)
    for a, b in zip(_product(name, got), _product(name, expected), strict=True):
        assert_close(np.asarray(a), np.asarray(b), allowed, where(name, sample))


@pytest.mark.parametrize(("name", "dtype"), CELLS, ids=lambda p: getattr(p, "name", p))
def test_kernel_equals_compiled_operation(name, dtype):
    """Same dtypes, dims and values, within the declared tolerance; integers and bools exactly."""
    for sample, expected in family_results(REGISTRY[name].family, dtype)[name]:
        compare(name, sample, interpreted(name, sample), expected)


# ------------------------------------------------------------------ values at the edges of their dtypes


def special_values(dtype):
    """The extremes, zeros, infinities and NaN of a dtype, and ordinary numbers."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        signed = {-1, -2, -3, -7} if dtype.kind == "i" else set()
        return np.array(sorted({info.min, info.min + 1, 0, 1, 2, 3, 7, info.max // 2, info.max - 1, info.max} | signed), dtype)
    if dtype.kind == "c":
        parts = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 3.0])
        return (parts[:, None] + 1j * parts).ravel().astype(dtype)
    info = ml_dtypes.finfo(dtype)
    ordinary = [1, 0.5, 1.5, 2, 2.5, 3, 7, 100, 0.1, 1e-3, 1 + float(info.eps), float(info.tiny), float(info.max)]
    return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *ordinary, *[-v for v in ordinary]]).astype(dtype)


def special_samples(name, dtype):
    values = special_values(dtype)
    model = samples(name, dtype)[0]
    if name == "convert":
        return [Sample((values,), {"dtype": to}) for to in ANY]
    if name == "bitcast":
        return [Sample((values,), model.attrs)]
    if name == "pow" and dtype.kind == "c":
        return [Sample((values[values != 0][:, None], values), {})]  # a power of zero is NaN in XLA, and zero in NumPy
    if name == "where":
        return [Sample((np.arange(len(values)) % 2 == 0, values, values[::-1]), {})]
    if len(model.args) == 3:
        return [Sample((values[:, None, None], values[:, None], values), model.attrs)]
    # Pairs are spelled out: XLA divides by a row of divisors by multiplying with reciprocals, which underflow.
    pairs = (np.repeat(values, len(values)), np.tile(values, len(values)))
    return [Sample(pairs if len(model.args) == 2 else (values,), model.attrs)]


SIGNED_ZEROS = set("neg trunc round ceil floor sign mul floor_div remainder fmod copysign where sqrt abs".split())


@pytest.mark.parametrize("dtype", ANY, ids=lambda d: d.name)
@pytest.mark.parametrize("family", ELEMENTWISE)
def test_kernel_equals_compiled_operation_at_special_values(family, dtype):
    """Extremes of integers, infinities, NaN; and the signs of zeros where the operation says what they are."""
    todo = [
        (name, sample)
        for name, found in sorted(REGISTRY.items())
        if found.family == family and dtype in found.dtypes
        for sample in special_samples(name, dtype)
    ]
    if not todo:
        return
    for (name, sample), expected in zip(todo, compiled(todo), strict=True):
        got = interpreted(name, sample)
        compare(name, sample, got, expected)
        if name in SIGNED_ZEROS and dtype.kind not in "biuc":
            for a, b in zip(got, expected, strict=True):
                zero = np.asarray(a == 0)
                np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), err_msg=name)


@pytest.mark.parametrize("name", "erf erfc erfinv lgamma digamma gelu silu sigmoid softplus log2 log10 tanh".split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_function_on_its_whole_domain(name, dtype):
    """Approximations have pieces, and long arrays are computed piece by piece: no seam shows."""
    low, high = {"erfinv": (-1.0, 1.0), "lgamma": (0.01, 60.0), "digamma": (1.6, 60.0)}.get(name, (-8.0, 8.0))
    if name in ("log2", "log10"):
        low, high = 1e-3, 1e3
    x = np.linspace(low, high, 70_001).astype(dtype)
    sample = Sample((x,), samples(name, np.dtype(dtype))[0].attrs)
    compare(name, sample, interpreted(name, sample), compiled([(name, sample)])[0])


@pytest.mark.parametrize("dims", [(), (0, 3), (70_001,)])
def test_draws_have_the_same_bits(dims):
    """Any seed and counter, carries between words of the counter included."""
    float_dtypes = [np.dtype(t) for t in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)]

    def todo(state):
        each = [("random_bits", Sample((state,), {"dims": dims, "dtype": np.dtype(f"u{w}")})) for w in (1, 8)]
        each += [(n, Sample((state,), {"dims": dims, "dtype": t})) for n in ("random_uniform", "random_normal") for t in float_dtypes]
        each.append(("random_bernoulli", Sample((state, np.array(0.3, np.float32)), {"dims": dims})))
        for low, high, dtype in ((0, 10, "i4"), (7, 3, "i1"), (-(2**63), 2**63 - 1, "i8")):
            bounds = (np.array(low, np.int64), np.array(high, np.int64))
            each.append(("random_randint", Sample((state, *bounds), {"dims": dims, "dtype": np.dtype(dtype)})))
        return each

    call = tools["program"](todo(np.zeros(2, np.uint64)))
    for state in ((0, 0), (2**64 - 1, 2**64 - 2), (12345, 2**32 - 1)):
        pairs = todo(np.array(state, np.uint64))
        for (name, sample), expected in zip(pairs, call([sample for _, sample in pairs]), strict=True):
            compare(name, sample, interpreted(name, sample), expected)
