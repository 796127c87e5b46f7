"""Operations that NumPy has no function for, held by what defines them: transposes, factorisations, windows."""

import itertools

import jax
import numpy as np
import pytest

from lazy_core import ops
from lazy_core.testing import samples

F64 = np.dtype(np.float64)
RNG = np.random.default_rng(0)


def run(op, *args, **attributes):
    with jax.enable_x64(True):
        result = jax.jit(lambda *xs: op.fn(*xs, **attributes))(*args)
    return tuple(map(np.asarray, result)) if isinstance(result, (tuple, list)) else np.asarray(result)


CONVOLUTIONS = [
    # spatial, strides, padding, lhs dilation, rhs dilation, groups
    ((7, 6), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1),
    ((7, 6), (2, 3), ((0, 1), (2, 0)), (1, 1), (1, 2), 2),
    ((9,), (2,), ((3, 0),), (2,), (1,), 1),
    ((8,), (3,), ((0, 0),), (1,), (2,), 4),  # the last elements of the input are in no window
    ((4, 5, 3), (1, 2, 1), ((1, 0), (0, 0), (1, 1)), (1, 1, 2), (1, 1, 1), 2),
    ((6,), (1,), ((-1, 2),), (1,), (1,), 1),  # negative padding crops
]


@pytest.mark.parametrize(("spatial", "strides", "padding", "lhs", "rhs", "groups"), CONVOLUTIONS)
def test_convolution_gradients_are_its_transposes(spatial, strides, padding, lhs, rhs, groups):
    """<conv(x, w), g> = <x, input_grad(g, w)> = <w, filter_grad(x, g)>, and both are what automatic differentiation gives."""
    letters = "DHW"[-len(spatial) :]
    spec = ("NC" + letters, "OI" + letters, "NC" + letters)
    attributes = {"strides": strides, "padding": padding, "lhs_dilation": lhs, "rhs_dilation": rhs, "groups": groups, "spec": spec}
    x = RNG.standard_normal((2, 4, *spatial))
    w = RNG.standard_normal((4, 4 // groups, *(2,) * len(spatial)))
    y = run(ops.conv, x, w, **attributes)
    g = RNG.standard_normal(y.shape)
    dx = run(ops.conv_input_grad, g, w, input_dims=x.shape, **attributes)
    dw = run(ops.conv_filter_grad, x, g, filter_dims=w.shape, **attributes)
    np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, g))
    np.testing.assert_allclose(np.vdot(w, dw), np.vdot(y, g))
    with jax.enable_x64(True):
        _, pull = jax.vjp(lambda a, b: ops.conv.fn(a, b, **attributes), x, w)
        for got, wanted in zip((dx, dw), pull(jax.numpy.asarray(g)), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_convolution_is_the_sum_over_windows():
    """Against loops."""
    x, w = RNG.standard_normal((1, 2, 5, 4)), RNG.standard_normal((3, 2, 2, 3))
    both = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1), "groups": 1}
    got = run(ops.conv, x, w, spec=("NCHW", "OIHW", "NCHW"), **both)
    for o, i, j in np.ndindex(3, 4, 2):
        np.testing.assert_allclose(got[0, o, i, j], np.sum(x[0, :, i : i + 2, j : j + 3] * w[o]))


def _pool_by_hand(x, window, strides, padding, dilation):
    """Values and flat indices of the largest in each window: the first of equals, the last NaN."""
    sizes = x.shape[-len(window) :]
    out = [(n + lo + hi - d * (w - 1) - 1) // s + 1 for n, w, s, (lo, hi), d in zip(sizes, window, strides, padding, dilation, strict=True)]
    values, places = np.empty((*x.shape[: -len(window)], *out)), np.empty((*x.shape[: -len(window)], *out), np.int64)
    for lead in np.ndindex(x.shape[: -len(window)]):
        for at in np.ndindex(*out):
            best, place = -np.inf, None
            for offset in itertools.product(*map(range, window)):
                p = tuple(a * s - lo + k * d for a, s, (lo, _), k, d in zip(at, strides, padding, offset, dilation, strict=True))
                if any(not 0 <= i < n for i, n in zip(p, sizes, strict=True)):
                    continue
                flat = int(np.ravel_multi_index(p, sizes))
                if place is None or x[lead][p] > best or np.isnan(x[lead][p]):
                    best, place = x[lead][p], flat
            values[(*lead, *at)], places[(*lead, *at)] = best, place
    return values, places


POOLS = [
    ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 2)),
    ((3, 3), (1, 2), ((1, 1), (1, 1)), (2, 1)),
]


@pytest.mark.parametrize(("window", "strides", "padding", "dilation"), POOLS)
def test_max_pool_and_its_gradients_by_hand(window, strides, padding, dilation):
    """Equal elements, NaN and windows of nothing but -inf included."""
    x = RNG.integers(-2, 3, (2, 7, 6)).astype(np.float64)
    x[0, 3, 2] = np.nan
    x[1, :4, :4] = -np.inf
    attributes = {"window": window, "strides": strides, "padding": padding, "dilation": dilation}
    values, places = run(ops.max_pool_with_indices, x, **attributes)
    expected_values, expected_places = _pool_by_hand(x, **attributes)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(places, expected_places)
    full = {
        "window": (1, *window),
        "strides": (1, *strides),
        "padding": ((0, 0), *padding),
        "dilation": (1, *dilation),
    }
    np.testing.assert_array_equal(run(ops.max_pool, x, **full), expected_values)
    g = RNG.standard_normal(values.shape)
    wanted = np.zeros((2, 42))
    for lead in range(2):
        np.add.at(wanted[lead], expected_places[lead].ravel(), g[lead].ravel())
    wanted = wanted.reshape(x.shape)
    np.testing.assert_allclose(run(ops.max_pool_with_indices_grad, g, places, input_dims=x.shape, **attributes), wanted, atol=1e-12)
    np.testing.assert_allclose(run(ops.max_pool_grad, x, g, **full), wanted, atol=1e-12)


@pytest.mark.parametrize("include", [True, False])
def test_average_pool_gradient_is_its_transpose(include):
    """<avg_pool(x), g> = <x, avg_pool_grad(g)>."""
    both = {"window": (1, 3, 2), "strides": (1, 2, 1), "padding": ((0, 0), (1, 1), (0, 1)), "count_include_pad": include}
    x = RNG.standard_normal((2, 7, 6))
    y = run(ops.avg_pool, x, **both)
    g = RNG.standard_normal(y.shape)
    np.testing.assert_allclose(np.vdot(x, run(ops.avg_pool_grad, g, input_dims=x.shape, **both)), np.vdot(y, g))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_factorisations_give_back_their_matrix(dtype):
    """qr, svd, eigh and lu multiply to what was factored, what ldl solves is a solution; columns are orthonormal."""
    for sample in samples("qr", np.dtype(dtype)):
        if sample.attrs["mode"] != "r":
            q, r = run(ops.qr, *sample.args, **sample.attrs)
            np.testing.assert_allclose(q @ r, sample.args[0], atol=1e-12)
            np.testing.assert_allclose(
                np.conj(np.swapaxes(q, -1, -2)) @ q, np.broadcast_to(np.eye(q.shape[-1]), q.shape[:-2] + (q.shape[-1],) * 2), atol=1e-12
            )
    for sample in samples("svd", np.dtype(dtype)):
        u, s, vh = run(ops.svd, *sample.args, **sample.attrs)
        k = s.shape[-1]
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], sample.args[0], atol=1e-12)
    for sample in samples("eigh", np.dtype(dtype)):
        w, v = run(ops.eigh, *sample.args)
        np.testing.assert_allclose(sample.args[0] @ v, v * w[..., None, :], atol=1e-12)
        assert np.all(np.diff(w) >= 0)
    for sample in samples("lu", np.dtype(dtype)):
        packed, _, permutation = run(ops.lu, *sample.args)
        lower = np.tril(packed, -1) + np.eye(packed.shape[-1])
        permuted = np.take_along_axis(sample.args[0], permutation[..., None].astype(np.int64), -2)
        np.testing.assert_allclose(lower @ np.triu(packed), permuted, atol=1e-12)
    for sample in samples("ldl", np.dtype(dtype)):
        (x,) = sample.args
        packed, pivots, _ = run(ops.ldl, x, **sample.attrs)
        np.testing.assert_allclose(x @ run(ops.ldl_solve, packed, pivots, x, **sample.attrs), x, atol=1e-12)
    for sample in samples("triangular_solve", np.dtype(dtype)):
        a, b = sample.args
        triangle = np.tril(a) if sample.attrs["lower"] else np.triu(a)
        if sample.attrs["unit"]:
            triangle = triangle - np.diag(np.diag(triangle)) + np.eye(3)
        triangle = triangle.T if sample.attrs["transpose"] else triangle
        np.testing.assert_allclose(triangle @ run(ops.triangular_solve, a, b, **sample.attrs), b, atol=1e-12)


def test_fourier_transforms_are_those_of_numpy():
    """All kinds, over one and two dims."""
    x, c = RNG.standard_normal((3, 8)), RNG.standard_normal((2, 4, 6)) + 1j * RNG.standard_normal((2, 4, 6))
    np.testing.assert_allclose(run(ops.fft, x, kind="rfft", lengths=(8,)), np.fft.rfft(x), atol=1e-12)
    np.testing.assert_allclose(run(ops.fft, np.fft.rfft(x), kind="irfft", lengths=(8,)), x, atol=1e-12)
    np.testing.assert_allclose(run(ops.fft, c, kind="fft", lengths=(4, 6)), np.fft.fft2(c), atol=1e-12)
    np.testing.assert_allclose(run(ops.fft, c, kind="ifft", lengths=(6,)), np.fft.ifft(c), atol=1e-12)


def test_powers_of_the_base_have_whole_logarithms():
    """log10(1000) is 3, so that floor and int of it are right."""
    tens = 10.0 ** np.arange(-20, 21)
    np.testing.assert_array_equal(run(ops.log10, tens), np.arange(-20, 21))
    twos = 2.0 ** np.arange(-300, 301)
    np.testing.assert_array_equal(run(ops.log2, twos), np.arange(-300, 301))


FLOATS = np.array([0.0, 1.9, -1.9, 127.5, 128.0, -129.0, 300.7, 3e9, -3e9, 4.3e9, 1e15, 9.3e18, 1.7e19, -1e19, np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("to", ["int32", "int64", "int16", "uint16", "int8", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("of", ["float64", "float32"])
def test_float_to_integer_casts_are_those_of_the_processor(of, to):
    """In range truncated; out of range what NumPy gives on x86 for one element at a time."""
    x = FLOATS.astype(of)
    if to == "uint64":
        x = x[(x >= 0) & (x < 1.8e19)]  # beyond that C promises nothing, and compilers differ
    with np.errstate(all="ignore"):
        expected = np.array([v.astype(to) for v in x])
    np.testing.assert_array_equal(run(ops.convert, x, dtype=np.dtype(to)), expected)


def test_integer_powers_wrap_and_use_every_bit_of_the_exponent():
    """Exponents above 63 too."""
    x, y = np.array([3, -2, 7, 0, 2]), np.array([100, 63, 0, 0, 64])
    np.testing.assert_array_equal(run(ops.pow, x, y), x**y)


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0])
def test_constant_exponents_are_products_and_roots(exponent):
    """The same values, without a call of pow for each element."""
    x = np.array([0.5, 2.0, 3.0])
    with jax.enable_x64(True):
        traced = jax.jit(lambda a: ops.pow.fn(a, np.float64(exponent)))
        assert "power" not in traced.lower(x).as_text()
        np.testing.assert_allclose(traced(x), x**exponent)


def test_signed_zeros_are_kept():
    """Remainders and truncations have the sign that Python gives them."""
    x, y = np.array([-0.0, 0.0, -4.0, 4.0]), np.array([2.0, -2.0, 2.0, -2.0])
    np.testing.assert_array_equal(np.signbit(run(ops.remainder, x, y)), np.signbit(np.remainder(x, y)))
    assert np.signbit(run(ops.trunc, np.array([-0.5, -0.0]))).all()
    assert not np.signbit(run(ops.sign, np.array([-0.0]))).any()


def test_half_precision_sums_are_accumulated_in_single():
    """3000 ones are 3000, which a half-precision accumulator cannot count to."""
    ones = np.ones(3000, np.float16)
    assert run(ops.sum, ones, axes=(0,), keepdims=False) == 3000
    assert run(ops.mean, ones, axes=(0,), keepdims=False) == 1


def test_updates_lower_without_scatter():
    """Static and 0-d updates are dynamic-update-slices and selects, which a CPU does in one pass."""
    x = np.zeros((8, 8), np.float32)
    lowered = {
        "unit": lambda a: ops.update_slice.fn(a, a[:3, :3], starts=(1, 1), strides=(1, 1)),
        "strided": lambda a: ops.update_slice.fn(a, a[:3, :3], starts=(1, 1), strides=(2, 2)),
        "scalar": lambda a: ops.index_put.fn(a, a[0], np.int64(3), axes=(0,), accumulate=True),
        "read": lambda a: ops.index.fn(a, np.int64(3), np.int64(-1), axes=(0, 1)),
        "pool": lambda a: ops.max_pool_grad.fn(a, a[:4, :4], window=(2, 2), strides=(2, 2), padding=((0, 0),) * 2, dilation=(1, 1)),
    }
    for name, function in lowered.items():
        with jax.enable_x64(True):
            text = jax.jit(function).lower(x).as_text()
        assert "scatter" not in text, name
        assert "gather" not in text, name


@pytest.mark.parametrize("length", [4, 16, 33])
@pytest.mark.parametrize("scan", ["cumsum", "cumprod", "cummax", "cummin"])
def test_integer_scans_compile_under_narrowing_casts_and_bitwise_operations(scan, length):
    """A case that XLA's compiler dies of where the scan is a reduce-window: cast down, then or."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (length, 4)).astype(np.int64)
    y = rng.integers(-3, 4, (length, 4)).astype(np.int32)

    def program(a, b):
        scanned = getattr(ops, scan).fn(a, axis=0)
        scanned = scanned[0] if isinstance(scanned, tuple) else scanned
        return ops.bitwise_or.fn(ops.convert.fn(scanned, dtype=np.dtype(np.int32)), b)

    with jax.enable_x64(True):
        found = np.asarray(jax.jit(program)(x, y))
    native = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}[scan]
    np.testing.assert_array_equal(found, native(x, axis=0).astype(np.int32) | y)
