"""Where kernels could differ from compiled operations: indices outside, empty arrays, ties and NaN, odd windows, layouts."""

import functools
import runpy
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lazy_core.ops.convolution import _output_dims
from lazy_core.ops.pooling import _Windows
from lazy_core.ops.registry import REGISTRY, Sample
from lazy_core.testing import assert_close, tolerance

tools = runpy.run_path(str(Path(__file__).with_name("native_tools.py")))
interpreted, compiled, where = tools["interpreted"], tools["compiled"], tools["where"]

F32, I32, I64 = (np.dtype(t) for t in ("f4", "i4", "i8"))
BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)
CASES = {}


def case(op_name, *args, **attributes):
    CASES.setdefault(op_name, []).append(Sample(tuple(np.asarray(a) for a in args), attributes))


def floats(*dims, dtype=np.float32):
    return RNG.standard_normal(dims).astype(dtype)


def indexing():
    """Negative indices, and ones that are outside in either direction, of narrow, unsigned and wide dtypes."""
    x, deep = floats(4, 5), floats(3, 4, 5)
    for dtype in ("i8", "i1", "u1"):
        at = np.array([0, 3, 9, 4, 127, *((-1, -4, -5, -100) if dtype[0] == "i" else (255,))]).astype(dtype)
        grid, one, n = np.array([[0], [1]], dtype), np.array(2, dtype), len(at)
        for mode in ("clip", "wrap", "fill"):
            case("take", x, at, axis=0, mode=mode)
            case("take", floats(3, 200), at, axis=1, mode=mode)
            case("take", x, at[3], axis=1, mode=mode)
        case("take_along_axis", x, at[None, :5], axis=0)
        case("take_along_axis", x, np.stack([at] * 4), axis=1)
        case("take_along_axis", floats(1, 5), np.stack([at] * 4), axis=1)
        for mode in ("clip", "fill"):
            case("index", x, at, axes=(1,), mode=mode)
            case("index", x, at, grid, axes=(0, 1), mode=mode)
            case("index", deep, at, one, axes=(0, 2), mode=mode)
            case("index", deep, at, grid, axes=(2, 0), mode=mode)
            case("index", deep, at, grid, axes=(2, 1), mode=mode)
        for accumulate in (False, True):
            case("index_put", x, floats(n, 5), at, axes=(0,), accumulate=accumulate)
            case("index_put", x, floats(4, n), at, axes=(1,), accumulate=accumulate)
            case("index_put", x, floats(2, n), at, grid, axes=(0, 1), accumulate=accumulate)
            case("index_put", deep, floats(n, 4), at, one, axes=(0, 2), accumulate=accumulate)
            case("index_put", x, floats(), at, axes=(0,), accumulate=accumulate)
            case("index_put", x, floats(0, 5), np.zeros(0, dtype), axes=(0,), accumulate=accumulate)
            case("index_put", x, floats(1, 1, 5), at[:1], axes=(0,), accumulate=accumulate)
        for reduce in ("set", "add", "mul", "max", "min"):
            case("scatter", x, np.stack([at[:5]] * 2), floats(2, 5), axis=0, reduce=reduce)
            case("scatter", x, np.stack([at] * 2), floats(2, n), axis=1, reduce=reduce)
        for depth in (5, 300):
            case("one_hot", at, depth=depth, dtype=F32)
        case("segment_sum", floats(n, 3), at, num=4)
        case("segment_sum", floats(n), at, num=4)
        case("dynamic_slice", x, at[2], at[-1], sizes=(2, 3))
        case("dynamic_slice", x, at[-2], at[1], sizes=(2, 5))
        case("dynamic_update_slice", x, floats(2, 3), at[2], at[-1])
        case("dynamic_update_slice", x, floats(2, 3), at[-2], at[1])
        case("dynamic_update_slice", x, floats(0, 3), at[2], at[-1])
    for values in ([True, False], np.array([1, 2], np.uint8), np.array([1j, 2], np.complex64), np.array([1, 2], BF16)):
        case("take", values, np.array([0, 5, -1]), axis=0, mode="fill")
    case("take", floats(0, 3), np.zeros(0, np.int64), axis=0, mode="clip")
    case("take", floats(0, 3), np.array([0, 1]), axis=1, mode="wrap")
    case("scatter", np.zeros(3, np.float16), np.zeros(40, np.int64), np.ones(40, np.float16), axis=0, reduce="add")
    case("segment_sum", np.ones(3000, np.float16), np.zeros(3000, np.int64), num=2)


def reductions():
    """Of nothing, of 0-d arrays, over no dims; scans and sorts of ties, signed zeros and NaN."""
    for name in ("sum", "prod", "all", "any", "mean"):
        for axes in ((0,), (1,), (0, 1), ()):
            case(name, floats(0, 3), axes=axes, keepdims=len(axes) == 1)
    for name in ("max", "min", "logsumexp"):
        case(name, floats(0, 3), axes=(1,), keepdims=False)
        case(name, floats(), axes=(), keepdims=False)
    for dims, axes, correction in (((0, 3), (0,), 1.0), ((0, 3), (1,), 0.0), ((3,), (0,), 5.0), ((), (), 0.0)):
        case("var", floats(*dims), axes=axes, keepdims=True, correction=correction)
    for name in ("argmax", "argmin"):
        case(name, floats(0, 3), axis=1, keepdims=False, dtype=I32)
        case(name, np.array([[1, 1], [np.nan, 0], [0, np.nan]], BF16), axis=-1, keepdims=True, dtype=I32)
    zeros = np.array([0.0, -0.0, 0.0, np.nan, -0.0, 1, np.nan, -np.inf], np.float32)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        for dims, axis in (((0, 3), 0), ((0, 3), 1), ((2, 0), 1)):
            case(name, floats(*dims), axis=axis)
        case(name, zeros, axis=0)
    for name in ("softmax", "log_softmax"):
        case(name, floats(0, 3), axis=0)
        case(name, floats(0, 3), axis=1)
        for row in ([-np.inf, 1, 2], [-np.inf, -np.inf], [1000, 0], [np.nan, 1], [np.inf, 1]):
            case(name, np.array(row, np.float32), axis=0)
    for descending in (False, True):
        for name, more in (("sort", {}), ("argsort", {"dtype": I32}), ("sort_with_indices", {})):
            for values in (
                floats(0, 3),
                zeros,
                np.array([1 + 1j, 1 - 1j, 0, 1 + 1j, complex(np.nan, 0)], np.complex64),
                np.array([True, False, True]),
                np.array([5, 5, 1], BF16),
            ):
                case(name, values, axis=0, descending=descending, stable=True, **more)
            case(name, floats(2, 0), axis=-1, descending=descending, stable=False, **more)
        case("topk", zeros, k=3, axis=0, largest=descending)
        case("topk", floats(3, 0), k=0, axis=1, largest=descending)
        case("topk", floats(3, 200), k=7, axis=1, largest=descending)
        case("topk", RNG.integers(0, 9, (3, 200)), k=7, axis=-1, largest=descending)
        case("topk", np.where(RNG.random((200, 3)) < 0.05, np.nan, floats(200, 3)), k=25, axis=0, largest=descending)
    for side in ("left", "right"):
        case("searchsorted", np.sort(zeros), np.array([np.nan, -0.0, 0, 5, np.inf, -np.inf], np.float32), side=side)
        case("searchsorted", floats(0), floats(3), side=side)
        case("searchsorted", np.sort(floats(4)), floats(), side=side)


def products():
    """Of empty, stacked and broadcast matrices; contractions whose layouts need copies; matrices that LAPACK refuses."""
    stacks = (
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((0,), (0,)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((2, 2, 3), (3,)),
        ((3,), (4, 3, 2)),
        ((0, 2, 3), (3, 2)),
    )
    for left, right in stacks:
        case("matmul", floats(*left), floats(*right))
        case("matmul", RNG.random(left) < 0.5, RNG.random(right) < 0.5)
        case("matmul", RNG.integers(-99, 99, left).astype(np.int8), RNG.integers(-99, 99, right).astype(np.int8))
    for left, right, contract, batch in (
        ((2, 3, 4, 5), (5, 3, 2, 6), ((1, 3), (1, 0)), ((0,), (2,))),
        ((2, 3, 4), (4, 3, 2), ((0, 1, 2), (2, 1, 0)), ((), ())),
        ((2, 3), (4, 5), ((), ()), ((), ())),
        ((2, 3), (2, 3), ((), ()), ((0, 1), (0, 1))),
        ((3, 2), (3, 4), ((0,), (0,)), ((), ())),
        ((0, 2), (0, 4), ((0,), (0,)), ((), ())),
        ((2,), (), ((), ()), ((), ())),
        ((4, 3, 2), (2, 3, 5), ((1, 2), (1, 0)), ((), ())),
    ):
        case("dot_general", floats(*left), floats(*right), contract=contract, batch=batch)
    for equation, *dims in (
        ("ij,jk", (2, 3), (3, 4)),
        ("ij, kj -> ki", (2, 3), (4, 3)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("i,j->ji", (2,), (3,)),
        ("ij->j", (2, 3)),
        ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
        ("ij,ij->", (2, 3), (2, 3)),
        ("ij,j->ij", (2, 3), (3,)),
        ("ii,i->i", (3, 3), (3,)),
        ("ijk,k->", (2, 3, 4), (4,)),
        ("ij,jk->ik", (2, 0), (0, 3)),
        ("ij,jk->ik", (2, 1), (3, 4)),
    ):
        case("einsum", *[floats(*d) for d in dims], equation=equation)
    singular, nan = np.array([[1, 2], [2, 4]], np.float32), np.full((2, 2), np.nan, np.float32)
    identity = np.eye(2, dtype=np.float32)
    for matrix in (-identity, np.stack([identity, -identity]), np.array([[4, 99], [2, 5]], np.float32), floats(0, 0)):
        case("cholesky", matrix)
    for name in ("inv", "det", "slogdet"):
        for matrix in (singular, np.stack([singular, identity]), floats(0, 3, 3), floats(4, 4)):
            case(name, matrix)
    case("inv", nan)
    for a, b in ((singular, floats(2)), (floats(2, 2), floats(2, 0)), (floats(3, 2, 2), floats(2, 5)), (floats(2, 2), floats(3, 2, 5))):
        case("solve", a, b)
    for lower, unit, transpose in ((True, True, True), (False, True, False), (True, False, True)):
        case(
            "triangular_solve",
            floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32),
            floats(2, 3, 2),
            lower=lower,
            unit=unit,
            transpose=transpose,
        )
    case("triangular_solve", np.tril(singular) * [1, 0], floats(2, 1, dtype=np.float64), lower=True, unit=False, transpose=False)
    case("eigh", nan)
    case("eigh", floats(0, 0))
    case("qr", floats(0, 3), mode="reduced")
    case("qr", floats(3, 0), mode="complete")
    case("svd", nan, full_matrices=False)
    case("svd", floats(0, 3), full_matrices=False)
    for kind, lengths, dims in (
        ("fft", (0,), (3, 0)),
        ("ifft", (4,), (0, 4)),
        ("irfft", (4, 6), (2, 4, 4)),
        ("irfft", (4, 7), (2, 4, 4)),
        ("fft", (2, 4, 4), (3, 2, 4, 4)),
    ):
        case("fft", (floats(*dims) + 1j * floats(*dims)).astype(np.complex64), kind=kind, lengths=lengths)
    case("fft", floats(2, 4, 6), kind="rfft", lengths=(4, 6))


def shapes():
    """Pads that cut, gaps, diagonals outside, widths that change, numbers that wrap."""
    for low, high, gap in ((-1, -1, 0), (-5, 1, 0), (2, -6, 1), (-2, 3, 2), (0, 0, 3), (-1, 0, 1), (1, -2, 2)):
        case("pad", floats(4), floats(), low=(low,), high=(high,), interior=(gap,))
    case("pad", floats(0, 2), floats(), low=(1, 0), high=(2, 1), interior=(1, 1))
    case("pad", floats(), floats(), low=(), high=(), interior=())
    for k in (-9, -1, 2, 9, 2**40, -(2**40)):
        case("triu", floats(3, 4), k=k)
        case("tril", floats(2, 3, 4), k=k)
    case("diagonal", floats(3, 4), offset=7, axis1=0, axis2=1)
    case("diagonal", floats(0, 4), offset=0, axis1=0, axis2=1)
    case("roll", floats(3, 4), shifts=(1, 2, -7), axes=(0, 0, -1))
    case("tile", floats(2), reps=(0,))
    case("tile", floats(), reps=(2, 3))
    case("reverse", floats(0, 3), axes=(1, -2))
    case("stack", floats(0), floats(0), axis=-1)
    case("concatenate", floats(2, 0), floats(2, 3), floats(2, 0), axis=-1)
    case("slice", floats(5, 6), starts=(0, 5), limits=(5, 6), strides=(7, 1))
    case("update_slice", floats(5, 6), floats(2, 0), starts=(1, 2), strides=(1, 1))
    case("update_slice", floats(5), floats(5), starts=(0,), strides=(1,))
    case("update_slice", floats(5, 3), floats(1, 3), starts=(4, 0), strides=(3, 1))
    case("broadcast_to", floats(1, 3), dims=(0, 3))
    case("broadcast_to", floats(), dims=())
    case("broadcast_to", np.ones((3, 1), BF16), dims=(2, 3, 4))
    case("full", np.array(True), dims=(2, 0))
    case("full", np.array(1.5, BF16), dims=(2, 3))
    for n, m, k in ((0, 3, 0), (3, 3, 9), (2, 2, -5)):
        case("eye", n=n, m=m, k=k, dtype=F32)
    for dtype in ("i1", "u1", BF16, "f2"):
        case("iota", dims=(2, 300), axis=-1, dtype=np.dtype(dtype))
    case("where", np.array([True, False]), floats(3, 1), floats())
    case("clip", np.array([1, np.nan, 3], np.float32), np.array([np.nan, 0, 5], np.float32), np.array([2, 1, 4], np.float32))
    case("complex", np.array([np.inf, np.nan], np.float32), np.array([np.inf, 1], np.float32))
    case("pow", np.array([2, -3, 0, 5]), np.array([-1, 2, 0, 70]))
    case("pow", np.array([2, 3], np.uint64), np.array([70, 2**63], np.uint64))
    for values, dtype in (
        (floats(2, 3), "u1"),
        (np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "f4"),
        (np.arange(4, dtype=np.uint8), "f4"),
        (floats(), "u2"),
        (floats(0, 2), "i8"),
    ):
        case("bitcast", values, dtype=np.dtype(dtype))


def windows():
    """Windows that overlap, skip, cut, or see nothing but padding; NaN and equal elements in them."""
    x = floats(2, 3, 7, 6)
    x[0, 0, 2, 2], x[1, 1] = np.nan, -np.inf
    for window, strides, padding, dilation in (
        ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
        ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 2)),
        ((3, 3), (1, 2), ((1, 1), (1, 1)), (2, 1)),
        ((2, 3), (3, 4), ((0, 0), (2, 2)), (1, 1)),
        ((9, 9), (1, 1), ((0, 0), (0, 0)), (1, 1)),
        ((2, 2), (1, 1), ((-1, 0), (0, -2)), (1, 1)),
        ((1, 1), (2, 3), ((0, 0), (0, 0)), (1, 1)),
    ):
        some = {"window": window, "strides": strides, "padding": padding, "dilation": dilation}
        every = {"window": (1, 1, *window), "strides": (1, 1, *strides), "padding": ((0, 0), (0, 0), *padding)}
        out = (2, 3, *_Windows((7, 6), window, strides, padding, dilation).out)
        case("max_pool_with_indices", x, **some)
        case("max_pool", x, **every, dilation=(1, 1, *dilation))
        case("max_pool", RNG.integers(0, 9, x.shape).astype(np.uint8), **every, dilation=(1, 1, *dilation))
        if 0 in out:
            continue
        case("max_pool_grad", x, floats(*out), **every, dilation=(1, 1, *dilation))
        case("max_pool_with_indices_grad", floats(*out), RNG.integers(-3, 50, out), input_dims=x.shape, **some)
        for include in (True, False) if dilation == (1, 1) else ():
            case("avg_pool", floats(*x.shape), **every, count_include_pad=include)
            case("avg_pool_grad", floats(*out), input_dims=x.shape, **every, count_include_pad=include)


def convolutions():
    """Strides, paddings that cut, dilations, groups, layouts, single channels, nothing at all."""
    for dims, filters, strides, padding, lhs, rhs, groups, spec in (
        ((2, 4, 7, 6), (4, 4, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, None),
        ((2, 4, 7, 6), (4, 2, 3, 2), (2, 3), ((0, 1), (2, 0)), (1, 1), (1, 2), 2, None),
        ((1, 4, 9), (4, 4, 2), (2,), ((3, 0),), (2,), (1,), 1, None),
        ((2, 4, 8), (4, 1, 2), (3,), ((0, 0),), (1,), (2,), 4, None),
        ((2, 4, 8), (8, 1, 2), (1,), ((1, 0),), (1,), (1,), 4, None),
        ((2, 4, 4, 5, 3), (4, 2, 2, 2, 2), (1, 2, 1), ((1, 0), (0, 0), (1, 1)), (1, 1, 2), (1, 1, 1), 2, None),
        ((2, 4, 6), (4, 4, 2), (1,), ((-1, 2),), (1,), (1,), 1, None),
        ((2, 4, 6), (4, 4, 1), (1,), ((0, 0),), (1,), (1,), 1, None),
        ((2, 4, 6), (4, 4, 1), (2,), ((-2, 0),), (3,), (1,), 1, None),
        ((2, 3), (5, 3), (), (), (), (), 1, None),
        ((2, 7, 8, 4), (3, 2, 2, 6), (2, 3), ((0, 1), (2, 0)), (1, 1), (1, 2), 2, ("NHWC", "HWIO", "NHWC")),
        ((7, 2, 8, 4), (3, 2, 2, 6), (2, 3), ((0, 1), (2, 0)), (1, 1), (1, 2), 2, ("HNWC", "HWIO", "CNHW")),
        ((0, 4, 6), (4, 4, 2), (1,), ((0, 0),), (1,), (1,), 1, None),
        ((2, 4, 1), (4, 4, 3), (1,), ((0, 0),), (1,), (1,), 1, None),
    ):
        letters = "DHW"[5 - len(dims) :]
        more = {"strides": strides, "padding": padding, "lhs_dilation": lhs, "rhs_dilation": rhs, "groups": groups}
        more["spec"] = spec or ("NC" + letters, "OI" + letters, "NC" + letters)
        out = _output_dims(dims, filters, more)
        case("conv", floats(*dims), floats(*filters), **more)
        case("conv_input_grad", floats(*out), floats(*filters), input_dims=dims, **more)
        case("conv_filter_grad", floats(*dims), floats(*out), filter_dims=filters, **more)


def draws():
    """Bounds of any dtypes, broadcast; permutations."""
    state = np.array([2**64 - 5, 2**32 - 1], np.uint64)
    case("random_randint", state, np.int8(-5), np.uint64(7), dims=(4,), dtype=np.dtype(np.int16))
    case("random_randint", state, np.arange(3), np.arange(3)[:, None] * 4, dims=(2, 3, 3), dtype=np.dtype(np.int16))
    case("random_permutation", state, n=100, dtype=I32)
    case("random_bernoulli", state, np.array([0.0, 1.0, 0.5], np.float16), dims=(50, 3))


for make in (indexing, reductions, products, shapes, windows, convolutions, draws):
    make()

FAMILIES = sorted({REGISTRY[name].family for name in CASES})


@functools.cache
def family_results(family):
    todo = [(name, sample) for name, each in sorted(CASES.items()) if REGISTRY[name].family == family for sample in each]
    grouped = {}
    for (name, sample), expected in zip(todo, compiled(todo), strict=True):
        grouped.setdefault(name, []).append((sample, expected))
    return grouped


@pytest.mark.parametrize("name", sorted(CASES))
def test_kernel_equals_compiled_operation_at_the_edges(name):
    """Dtypes, dims, values and the signs of zeros that are sorted or moved."""
    for sample, expected in family_results(REGISTRY[name].family)[name]:
        got = interpreted(name, sample)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, tolerance(name), where(name, sample))
            if REGISTRY[name].family in ("sorting", "shapes", "creation"):
                assert a.tobytes() == b.tobytes() or np.isnan(b.astype(np.complex128)).any(), where(name, sample)


def test_float8_is_computed_in_single_precision():
    """A dtype that no sample is made for: rounded once from f32, on both tiers."""
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = np.array([0.5, -1.5, 3.0, 0.0, 96.0, -0.0, 1.125], dtype)
        todo = [(name, Sample((x, x[::-1].copy()), {})) for name in ("add", "mul", "maximum", "lt")]
        todo += [(name, Sample((x,), {})) for name in ("neg", "abs", "isnan")]
        todo += [("convert", Sample((x,), {"dtype": F32})), ("convert", Sample((x.astype(np.float32) * 1.1,), {"dtype": np.dtype(dtype)}))]
        todo += [("reshape", Sample((x,), {"dims": (7, 1)})), ("broadcast_to", Sample((x,), {"dims": (2, 7)}))]
        for (name, sample), expected in zip(todo, compiled(todo), strict=True):
            (got,) = interpreted(name, sample)
            assert got.dtype == expected[0].dtype
            np.testing.assert_array_equal(got.astype(np.float32), expected[0].astype(np.float32), err_msg=where(name, sample))
