"""One call of every public callable of `numpy`, `numpy.linalg` and `numpy.fft`, and of every method and attribute of an array.

Owns: the expressions that `coverage` evaluates once with NumPy and once with lazy arrays.  A name without an expression stands in
`NOT_ARRAYS` with the reason; the audit fails where a public name stands in neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def arrays(np_: Any) -> dict[str, Any]:
    """The names that the expressions use, made by whichever NumPy is given."""
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal((3, 4)), rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
    square = rng.standard_normal((3, 3))
    made = {
        "x": x,
        "y": rng.standard_normal((3, 4)),
        "v": rng.standard_normal(6),
        "u": np.sort(rng.standard_normal(6)),
        "z": z,
        "n": rng.integers(1, 9, (3, 4)),
        "i": rng.integers(0, 6, 7),
        "bits": rng.integers(0, 2, 16).astype(np.uint8),
        "b": x > 0,
        "square": square,
        "spd": square @ square.T + 3 * np.eye(3),
        "rhs": rng.standard_normal((3, 2)),
        "t": rng.standard_normal((2, 3, 4)),
        "three": rng.standard_normal((5, 3)),
        "cube": np.eye(4).reshape(2, 2, 2, 2) + 0.1,
        "nans": np.where(x > 0.5, np.nan, x),
    }
    return {name: np_.array(a) for name, a in made.items()}


# Names of `numpy` that are no functions of numeric arrays.
NOT_ARRAYS: dict[str, str] = {
    "text, formats and printing": (
        "array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific get_printoptions "
        "printoptions set_printoptions typename mintypecode"
    ),
    "dates": "busday_count busday_offset busdaycalendar datetime64 datetime_as_string datetime_data is_busday timedelta64",
    "files and foreign memory": (
        "fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed from_dlpack frombuffer fromstring"
    ),
    "settings and information": (
        "errstate get_include getbufsize geterr geterrcall info setbufsize seterr seterrcall show_config show_runtime test"
    ),
    "classes and dtypes": (
        "broadcast character chararray complexfloating dtype finfo flatiter flexible floating generic iinfo inexact integer matrix ndarray "
        "ndenumerate ndindex nditer number object_ poly1d recarray record signedinteger str_ bytes_ ufunc unsignedinteger vectorize void "
        "asmatrix bmat nested_iters frompyfunc bool bool_ byte cdouble clongdouble complex64 complex128 complex256 csingle double float16 "
        "float32 float64 float128 half int8 int16 int32 int64 int_ intc intp long longdouble longlong short single ubyte uint uint8 uint16 "
        "uint32 uint64 uintc uintp ulong ulonglong ushort in1d row_stack trapz"
    ),
    "questions about dtypes alone": "can_cast issubdtype isdtype min_scalar_type promote_types iterable",
}

_ONE = "x"
_PLAIN_ONE = (
    "all amax amin angle any argmax argmin argsort argwhere around array asanyarray asarray asarray_chkfinite ascontiguousarray "
    "asfortranarray atleast_1d atleast_2d atleast_3d copy corrcoef count_nonzero cov cumprod cumsum diag diagflat diagonal diff ediff1d "
    "empty_like fix flatnonzero flip fliplr flipud i0 imag iscomplex iscomplexobj isfortran isneginf isposinf isreal isrealobj "
    "isscalar matrix_transpose max mean median min nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin "
    "nanprod nanstd nansum nanvar ndim nonzero ones_like prod ptp ravel real real_if_close rot90 round shape sinc size sort sort_complex "
    "squeeze std sum trace transpose tril triu unique unique_all unique_counts unique_inverse unique_values unstack unwrap var zeros_like"
).split()

FUNCTIONS: dict[str, str] = {
    **{name: f"np.{name}({'nans' if name.startswith('nan') else _ONE})" for name in _PLAIN_ONE},
    "empty_like": "np.empty_like(x).shape",
    "allclose": "np.allclose(x, y)",
    "append": "np.append(x, y, axis=0)",
    "apply_along_axis": "np.apply_along_axis(lambda r: r * 2, 1, x)",
    "apply_over_axes": "np.apply_over_axes(np.sum, t, [0, 2])",
    "arange": "np.arange(3, 11, 0.5)",
    "argpartition": "np.sort(np.argpartition(v, 2)[:2])",
    "array_equal": "np.array_equal(x, x)",
    "array_equiv": "np.array_equiv(x, x)",
    "array_split": "np.array_split(v, 4)",
    "astype": "np.astype(x, np.float32)",
    "average": "np.average(x, axis=1, weights=n)",
    "bartlett": "np.bartlett(7)",
    "bincount": "np.bincount(i, minlength=9)",
    "blackman": "np.blackman(7)",
    "block": "np.block([[x, y], [y, x]])",
    "broadcast_arrays": "np.broadcast_arrays(x, x[:1])",
    "broadcast_shapes": "np.broadcast_shapes(x.shape, (1, 4))",
    "broadcast_to": "np.broadcast_to(x, (2, 3, 4))",
    "choose": "np.choose(n % 2, [x, y])",
    "clip": "np.clip(x, -0.5, 0.5)",
    "column_stack": "np.column_stack([v, u])",
    "common_type": "np.common_type(x, z)",
    "compress": "np.compress([True, False, True], x, axis=0)",
    "concat": "np.concat([x, y])",
    "concatenate": "np.concatenate([x, y], axis=1)",
    "convolve": "np.convolve(v, u[:3])",
    "copyto": "(lambda a: (np.copyto(a, y, where=b), a)[1])(x.copy())",
    "correlate": "np.correlate(v, u[:3])",
    "cross": "np.cross(three, three[::-1])",
    "cumulative_prod": "np.cumulative_prod(v)",
    "cumulative_sum": "np.cumulative_sum(v, include_initial=True)",
    "delete": "np.delete(x, 1, axis=1)",
    "diag_indices": "np.diag_indices(3)",
    "diag_indices_from": "np.diag_indices_from(square)",
    "digitize": "np.digitize(v, u)",
    "dot": "np.dot(x, y.T)",
    "dsplit": "np.dsplit(t, 2)",
    "dstack": "np.dstack([x, y])",
    "einsum": "np.einsum('ij,kj->ik', x, y)",
    "einsum_path": "np.einsum_path('ij,kj->ik', x, y)[0]",
    "empty": "np.empty((2, 3)).shape",
    "expand_dims": "np.expand_dims(x, 1)",
    "extract": "np.extract(b, x)",
    "eye": "np.eye(3, 4, 1)",
    "fill_diagonal": "(lambda a: (np.fill_diagonal(a, 5.0), a)[1])(square.copy())",
    "fromfunction": "np.fromfunction(lambda a, c: a + c, (3, 4))",
    "fromiter": "np.fromiter(range(5), float)",
    "full": "np.full((2, 3), 2.5)",
    "full_like": "np.full_like(x, 2.5)",
    "geomspace": "np.geomspace(1, 100, 5)",
    "gradient": "np.gradient(x)",
    "hamming": "np.hamming(7)",
    "hanning": "np.hanning(7)",
    "histogram": "np.histogram(v, bins=4)",
    "histogram2d": "np.histogram2d(v, u, bins=3)",
    "histogram_bin_edges": "np.histogram_bin_edges(v, bins=4)",
    "histogramdd": "np.histogramdd(three, bins=2)",
    "hsplit": "np.hsplit(x, 2)",
    "hstack": "np.hstack([x, y])",
    "identity": "np.identity(3)",
    "indices": "np.indices((2, 3))",
    "inner": "np.inner(x, y)",
    "insert": "np.insert(x, 1, 7.0, axis=0)",
    "interp": "np.interp(v, u, v)",
    "intersect1d": "np.intersect1d(i, i[:3])",
    "isclose": "np.isclose(x, y)",
    "isin": "np.isin(n, [1, 2])",
    "ix_": "np.ix_(i[:2], i[2:4])",
    "kaiser": "np.kaiser(7, 14.0)",
    "kron": "np.kron(square, x)",
    "lexsort": "np.lexsort((v, u))",
    "linspace": "np.linspace(0, 1, 7)",
    "logspace": "np.logspace(0, 2, 5)",
    "mask_indices": "np.mask_indices(3, np.triu)",
    "may_share_memory": "np.may_share_memory(x, x[1:])",
    "meshgrid": "np.meshgrid(v, u)",
    "moveaxis": "np.moveaxis(t, 0, -1)",
    "nanpercentile": "np.nanpercentile(nans, 30)",
    "nanquantile": "np.nanquantile(nans, 0.3)",
    "ones": "np.ones((2, 3))",
    "outer": "np.outer(v, u)",
    "packbits": "np.packbits(bits)",
    "pad": "np.pad(x, 1)",
    "partition": "np.partition(v, 2)[2]",
    "percentile": "np.percentile(x, 30)",
    "permute_dims": "np.permute_dims(t, (2, 0, 1))",
    "piecewise": "np.piecewise(v, [v < 0, v >= 0], [-1, 1])",
    "place": "(lambda a: (np.place(a, a > 0, [9.0, 8.0]), a)[1])(x.copy())",
    "poly": "np.poly(v[:3])",
    "polyadd": "np.polyadd(v, u[:3])",
    "polyder": "np.polyder(v)",
    "polydiv": "np.polydiv(v, u[:3])",
    "polyfit": "np.polyfit(u, v, 2)",
    "polyint": "np.polyint(v)",
    "polymul": "np.polymul(v, u[:3])",
    "polysub": "np.polysub(v, u[:3])",
    "polyval": "np.polyval(v, u)",
    "put": "(lambda a: (np.put(a, [0, 5], [7.0, 8.0]), a)[1])(x.copy())",
    "put_along_axis": "(lambda a: (np.put_along_axis(a, n[:, :1] % 4, 9.0, 1), a)[1])(x.copy())",
    "putmask": "(lambda a: (np.putmask(a, b, y), a)[1])(x.copy())",
    "quantile": "np.quantile(x, 0.3, axis=1)",
    "ravel_multi_index": "np.ravel_multi_index((i % 3, i % 4), (3, 4))",
    "repeat": "np.repeat(x, 2, axis=1)",
    "require": "np.require(x, np.float32)",
    "reshape": "np.reshape(x, (2, 6))",
    "resize": "np.resize(x, (2, 9))",
    "result_type": "np.result_type(x, n)",
    "roll": "np.roll(x, 2)",
    "rollaxis": "np.rollaxis(t, 2)",
    "roots": "np.sort_complex(np.roots(v))",
    "searchsorted": "np.searchsorted(u, v)",
    "select": "np.select([b, x < -1], [x, y])",
    "setdiff1d": "np.setdiff1d(i, i[:2])",
    "setxor1d": "np.setxor1d(i, i[:2])",
    "shares_memory": "np.shares_memory(x, x[1:])",
    "split": "np.split(v, 3)",
    "stack": "np.stack([x, y], axis=1)",
    "swapaxes": "np.swapaxes(t, 0, 2)",
    "take": "np.take(x, i, axis=None)",
    "take_along_axis": "np.take_along_axis(x, n % 3, 0)",
    "tensordot": "np.tensordot(x, y, axes=([1], [1]))",
    "tile": "np.tile(x, (2, 1))",
    "trapezoid": "np.trapezoid(v, u)",
    "tri": "np.tri(3, 4)",
    "tril_indices": "np.tril_indices(3)",
    "tril_indices_from": "np.tril_indices_from(square)",
    "trim_zeros": "np.trim_zeros(np.concatenate([v * 0, v]))",
    "triu_indices": "np.triu_indices(3)",
    "triu_indices_from": "np.triu_indices_from(square)",
    "union1d": "np.union1d(i, i[:2])",
    "unpackbits": "np.unpackbits(bits)",
    "unravel_index": "np.unravel_index(i, (3, 4))",
    "vander": "np.vander(v, 3)",
    "vdot": "np.vdot(z, z)",
    "vsplit": "np.vsplit(x, 3)",
    "vstack": "np.vstack([x, y])",
    "where": "np.where(b, x, y)",
    "zeros": "np.zeros((2, 3))",
}

LINALG: dict[str, str] = {
    "cholesky": "np.linalg.cholesky(spd)",
    "cond": "np.linalg.cond(spd)",
    "cross": "np.linalg.cross(three, three[::-1])",
    "det": "np.linalg.det(spd)",
    "diagonal": "np.linalg.diagonal(t)",
    "eig": "np.sort_complex(np.linalg.eig(square)[0])",
    "eigh": "np.linalg.eigh(spd)[0]",
    "eigvals": "np.sort_complex(np.linalg.eigvals(square))",
    "eigvalsh": "np.linalg.eigvalsh(spd)",
    "inv": "np.linalg.inv(spd)",
    "lstsq": "np.linalg.lstsq(three, three[:, 0])[0]",
    "matmul": "np.linalg.matmul(x, y.T)",
    "matrix_norm": "np.linalg.matrix_norm(t)",
    "matrix_power": "np.linalg.matrix_power(square, 3)",
    "matrix_rank": "np.linalg.matrix_rank(x)",
    "matrix_transpose": "np.linalg.matrix_transpose(t)",
    "multi_dot": "np.linalg.multi_dot([x, y.T, rhs])",
    "norm": "np.linalg.norm(x, axis=1)",
    "outer": "np.linalg.outer(v, u)",
    "pinv": "np.linalg.pinv(x)",
    "qr": "abs(np.linalg.qr(three)[1])",
    "slogdet": "np.linalg.slogdet(spd)",
    "solve": "np.linalg.solve(spd, rhs)",
    "svd": "np.linalg.svd(x)[1]",
    "svdvals": "np.linalg.svdvals(x)",
    "tensordot": "np.linalg.tensordot(x, y, axes=([1], [1]))",
    "tensorinv": "np.linalg.tensorinv(cube + np.eye(4).reshape(2, 2, 2, 2))",
    "tensorsolve": "np.linalg.tensorsolve(cube + np.eye(4).reshape(2, 2, 2, 2), spd[:2, :2])",
    "trace": "np.linalg.trace(t)",
    "vecdot": "np.linalg.vecdot(x, y)",
    "vector_norm": "np.linalg.vector_norm(x, axis=1)",
}

FFT: dict[str, str] = {
    **{name: f"np.fft.{name}({'x' if name.startswith('r') else 'z'})" for name in np.fft.__all__ if name not in ("fftfreq", "rfftfreq")},
    "fftfreq": "np.fft.fftfreq(7, 0.1)",
    "rfftfreq": "np.fft.rfftfreq(7, 0.1)",
}

METHODS: dict[str, str] = {
    **{
        name: f"x.{name}()"
        for name in (
            "all any argmax argmin argsort conj conjugate copy cumprod cumsum diagonal flatten item max mean min nonzero prod ravel "
            "round squeeze std sum tobytes tolist trace transpose var"
        ).split()
    },
    **{name: f"x.{name}" for name in "T dtype imag itemsize mT nbytes ndim real shape size strides device".split()},
    "argpartition": "v.argpartition(2)[2]",
    "astype": "x.astype(np.int32)",
    "base": "x[1:].base is None",
    "byteswap": "n.byteswap()",
    "choose": "(n % 2).choose([x, y])",
    "clip": "x.clip(-0.5, 0.5)",
    "compress": "x.compress([True, False, True], axis=0)",
    "ctypes": "x.ctypes.data > 0",
    "data": "x.data.shape",
    "dot": "x.dot(y.T)",
    "dump": "len(x.dumps()) > 0",
    "dumps": "len(x.dumps()) > 0",
    "fill": "(lambda a: (a.fill(3.0), a)[1])(x.copy())",
    "flags": "x.flags.c_contiguous",
    "flat": "x.flat[3:7]",
    "getfield": "x.getfield(np.float64)",
    "item": "x[:1, :1].item()",
    "partition": "(lambda a: (a.partition(2), a[2])[1])(v.copy())",
    "put": "(lambda a: (a.put([0, 5], [7.0, 8.0]), a)[1])(x.copy())",
    "repeat": "x.repeat(2, axis=1)",
    "reshape": "x.reshape(2, 6)",
    "resize": "(lambda a: (a.resize((2, 3), refcheck=False), a)[1])(x.copy())",
    "searchsorted": "u.searchsorted(v)",
    "setfield": "(lambda a: (a.setfield(2.0, np.float64), a)[1])(x.copy())",
    "setflags": "(lambda a: (a.setflags(write=False), a.flags.writeable)[1])(x.copy())",
    "sort": "(lambda a: (a.sort(axis=0), a)[1])(x.copy())",
    "swapaxes": "t.swapaxes(0, 2)",
    "take": "x.take(i)",
    "to_device": "x.to_device('cpu')",
    "tofile": "x.tofile(__import__('os').devnull)",
    "view": "x.view(np.int64)",
}
