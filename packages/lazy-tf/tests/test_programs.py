"""Small programs as people write them give plain TensorFlow's results on the lazy device, with the fallbacks that are known."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf
from lazy_core import events

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 4)).astype("f")
W = RNG.standard_normal((4, 3)).astype("f")
SQUARE = RNG.standard_normal((4, 4)).astype("f") + 3 * np.eye(4, dtype="f")
IMAGE = RNG.standard_normal((2, 8, 8, 3)).astype("f")
KERNEL = RNG.standard_normal((3, 3, 3, 4)).astype("f")

PROGRAMS = {}


def program(*fallbacks, tolerance=1e-5):
    """Register a program; `fallbacks` are the operations that run on the CPU by design."""

    def register(function):
        PROGRAMS[function.__name__] = (function, frozenset(f"tf:{f}" for f in fallbacks), tolerance)
        return function

    return register


@program()
def arithmetic_with_python_numbers_and_arrays():
    x = tf.constant(X)
    return (2 * x + 1.0) / 3 - x**2 + X, 1 - x, x @ W, -x, abs(x), x // 0.5, x % 0.3


@program()
def reductions_with_negative_axes_and_kept_dimensions():
    x = tf.constant(X)
    return (
        tf.reduce_mean(x, -1, keepdims=True),
        tf.reduce_max(x, [0, 1]),
        tf.math.reduce_std(x, 0),
        tf.math.reduce_logsumexp(x, 1),
        tf.reduce_any(x > 2, 0),
        tf.math.reduce_euclidean_norm(x, 1),
        tf.argmax(x, 1),
        tf.math.count_nonzero(x > 0, 0),
    )


@program()
def branches_on_values():
    x = tf.constant([1.0, -2.0, 3.0])
    sign = "positive" if tf.reduce_sum(x) > 0 else "negative"
    return [sign == "positive", int(tf.constant(3) + 1), len(x), [float(a) for a in x], bool(tf.constant(0.0))]


@program()
def slices_of_every_kind():
    x = tf.constant(X)
    i = tf.constant(2)
    return x[1:3, ::2], x[-1], x[..., tf.newaxis, 0], x[i], x[::-2, 1:], x[i:, -2], x[:, None, 1:4:2], tf.slice(x, [1, 0], [3, -1])


@program()
def casts_between_kinds():
    x = tf.constant(X * 3)
    return (
        tf.cast(x, tf.int32),
        tf.cast(x > 0, tf.float64),
        tf.cast(x, tf.complex64),
        tf.bitcast(x, tf.int32),
        tf.saturate_cast(x * 100, tf.int8),
    )


@program()
def stacking_and_splitting():
    x = tf.constant(X)
    a, b = tf.split(x, 2, 1)
    return (
        tf.stack([a, b], 1),
        tf.concat([b, a], 0),
        tf.unstack(x, axis=1)[2],
        tf.tile(a, [1, 3]),
        tf.repeat(x, 2, axis=0),
        tf.roll(x, 1, 1),
    )


@program()
def padding_and_transposing():
    x = tf.constant(X)
    return (
        tf.pad(x, [[1, 2], [0, 1]], constant_values=5.0),
        tf.pad(x, [[1, 1], [2, 2]], "REFLECT"),
        tf.pad(x, [[1, 1], [2, 2]], "SYMMETRIC"),
        tf.transpose(tf.constant(IMAGE), [0, 3, 1, 2]),
        tf.nn.space_to_depth(tf.constant(IMAGE), 2),
        tf.reverse(x, [0, 1]),
        tf.meshgrid(x[0], x[:, 0]),
    )


@program()
def gathering_and_scattering():
    x = tf.constant(X)
    return (
        tf.gather(x, [[0, 1], [3, 3]]),
        tf.gather(x, [1, 0], axis=1),
        tf.gather_nd(x, [[0, 1], [7, 3]]),
        tf.scatter_nd([[1], [3], [1]], x[:3], [5, 4]),
        tf.tensor_scatter_nd_update(x, [[0], [2]], x[4:6]),
        tf.tensor_scatter_nd_max(x, [[0]], [[9.0, -9.0, 9.0, -9.0]]),
        tf.math.unsorted_segment_sum(x, [0, 1, 0, 2, 2, 2, 1, 0], 3),
        tf.math.unsorted_segment_mean(x, [0, 1, 0, 2, 2, 2, 1, 0], 4),
    )


@program()
def segments_in_order():
    x, ids = tf.constant(X), tf.constant([0, 0, 1, 1, 1, 2, 2, 2])
    return tf.math.segment_sum(x, ids), tf.math.segment_max(x, ids), tf.math.segment_mean(x, ids)


@program("Where", "Unique", "UniqueWithCounts")
def results_whose_size_depends_on_contents():
    x = tf.constant(X[0])
    unique = tf.unique(tf.constant([1, 1, 2, 5, 2]))
    counted = tf.unique_with_counts(tf.constant([1, 1, 2, 5, 2]))
    return tf.boolean_mask(x, x > 0), tf.where(x > 0), unique.y, unique.idx, counted.count, tf.where(x > 0, x, 0.0)


@program("Where", "DynamicPartition")
def masks_and_dynamic_partitions():
    x = tf.constant(X)
    parts = tf.dynamic_partition(x, [0, 1, 0, 1, 1, 0, 0, 1], 2)
    joined = tf.dynamic_stitch([[0, 2], [1, 3]], [x[:2], x[2:4]])
    return [p for p in parts] + [joined, tf.ragged.boolean_mask(x, x > 0).values]


@program(
    "TruncatedNormal",
    "StatelessTruncatedNormalV2",
    "Multinomial",
    "RandomShuffle",
    "StatelessRandomGammaV3",
    "RandomGamma",
    "RandomPoissonV2",
)
def random_numbers_from_seeds():
    tf.random.set_seed(1)
    g = tf.random.Generator.from_seed(1)
    return (
        tf.random.normal([3]),
        tf.random.uniform([2, 2], -1, 2),
        tf.random.uniform([5], 0, 9, tf.int32),
        tf.random.truncated_normal([40]),
        tf.random.stateless_truncated_normal([40], [1, 2]),
        tf.random.stateless_uniform([2], seed=[1, 2]),
        tf.random.stateless_normal([3, 3], seed=[1, 2], dtype=tf.float64),
        tf.random.shuffle(tf.range(5)),
        tf.random.categorical(tf.constant(X), 3),
        tf.random.gamma([3], 2.0),
        tf.random.stateless_gamma([3], [1, 2], 2.0),
        tf.random.poisson([3], 4.0),
        g.normal([2]),
        g.uniform([3], 0, 5, tf.int64),
        g.truncated_normal([9]),
        g.split(2)[1].normal([2]),
        tf.nn.dropout(tf.ones([20]), 0.5, seed=3),
        tf.random.experimental.stateless_shuffle(tf.range(6), [3, 4]),
    )


@program(tolerance=1e-4)
def gradients_of_a_small_network():
    x, w, v = tf.constant(X), tf.constant(W), tf.constant(W.T[:, :2])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, w, v])
        hidden = tf.nn.tanh(x @ w)
        loss = tf.reduce_sum((hidden @ v) ** 2)
    return tape.gradient(loss, [x, w, v]), tape.gradient(hidden, w), tape.gradient(loss, w, output_gradients=tf.constant(2.0))


@program()
def second_order_and_higher():
    x = tf.constant([3.0, -1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = x**3 + tf.sin(x)
        first = inner.gradient(y, x)
    return first, outer.gradient(first, x)


@program()
def jacobians_and_hessians():
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.stack([tf.reduce_sum(x**2), x[0] * x[1], tf.exp(x[2])])
    forward = tf.autodiff.ForwardAccumulator(x, tf.ones_like(x))
    with forward:
        z = tf.sin(x) * x
    return (
        tape.jacobian(y, x),
        tape.jacobian(y, x, experimental_use_pfor=False),
        forward.jvp(z),
    )


@program()
def batch_jacobians():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tanh(x @ tf.constant(W))
    return tape.batch_jacobian(y, x)


@program()
def custom_gradients():
    @tf.custom_gradient
    def clipped(x):
        return tf.identity(x), lambda dy: tf.clip_by_value(dy, -0.1, 0.1)

    @tf.custom_gradient
    def recomputed(x):
        y = tf.nn.softplus(x)

        def back(dy, variables=None):
            return dy * tf.sigmoid(x)

        return y, back

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(clipped(x) * 5 + recomputed(x))
    remade = tf.recompute_grad(lambda a: tf.tanh(a) ** 2)
    with tf.GradientTape() as second:
        second.watch(x)
        z = tf.reduce_sum(remade(x))
    return tape.gradient(y, x), second.gradient(z, x), tf.stop_gradient(x) + 1


@program()
def variables():
    v = tf.Variable(W)
    v.assign_add(tf.ones_like(v))
    v.assign(v * 2)
    before = v.read_value()
    v.assign_sub(tf.ones([4, 3]))
    v[1].assign(tf.zeros([3]))
    v[:2, 1:].assign(tf.ones([2, 2]))
    v.scatter_nd_add([[0], [3]], tf.ones([2, 3]))
    v.scatter_update(tf.IndexedSlices(tf.ones([1, 3]) * 7, [2]))
    v.scatter_mul(tf.IndexedSlices(tf.ones([1, 3]) * 2, [2]))
    v.scatter_max(tf.IndexedSlices(tf.ones([1, 3]) * 3, [1]))
    v.batch_scatter_update(tf.IndexedSlices(tf.ones([4, 1]), [[0], [1], [2], [0]]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    scalar = tf.Variable(3, dtype=tf.int64)
    scalar.assign_add(4)
    return before, v, tape.gradient(loss, v), scalar, v.gather_nd([[0, 1]]), tf.shape(v), v.sparse_read([1, 1])


@program()
def control_flow_in_eager_code():
    counted = tf.while_loop(lambda i, s: i < 5, lambda i, s: [i + 1, s + tf.cast(i, tf.float32)], [tf.constant(0), tf.constant(0.0)])
    chosen = tf.cond(tf.constant(X).shape[0] > 3, lambda: tf.constant(1.0), lambda: tf.constant(2.0))
    return (
        counted,
        chosen,
        tf.case([(tf.constant(False), lambda: tf.constant(1))], default=lambda: tf.constant(3)),
        tf.switch_case(tf.constant(1), [lambda: tf.constant(5), lambda: tf.constant(6)]),
    )


@program()
def functions_with_autograph():
    @tf.function
    def f(x):
        steps = 0
        while tf.reduce_sum(x) < 100.0:
            x = x * 2.0
            steps += 1
        if steps > 2:
            return x, steps
        return x + 1.0, steps

    @tf.function(reduce_retracing=True)
    def g(x, flag=True):
        total = tf.zeros([])
        for row in x:
            if tf.reduce_sum(row) > 0:
                total += tf.reduce_max(row)
            else:
                continue
        return total if flag else -total

    return f(tf.constant([1.0, 2.0])), g(tf.constant(X)), g(tf.constant(X[:3]), flag=False)


@program()
def functions_compiled_by_request():
    v = tf.Variable(2.0)

    @tf.function(jit_compile=True)
    def f(x):
        v.assign_add(1.0)
        return tf.nn.relu(x) * v

    with tf.GradientTape() as tape:
        y = tf.reduce_sum(f(tf.constant(X)) + f(tf.constant(X)))
    return y, v, tape.gradient(y, v)


@program()
def functions_run_eagerly():
    tf.config.run_functions_eagerly(True)
    try:
        v = tf.Variable(1.0)

        @tf.function
        def f(x):
            v.assign_add(1.0)
            return x * v

        return f(tf.constant(2.0)), v
    finally:
        tf.config.run_functions_eagerly(False)


@program()
def functions_of_functions():
    @tf.function
    def square(x):
        return x * x

    @tf.function
    def outer(x):
        return square(x) + square(x + 1)

    concrete = outer.get_concrete_function(tf.TensorSpec([None, 4], tf.float32))
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        y = outer(x)
    return concrete(tf.constant(X)), tape.gradient(y, x)


@program()
def maps_and_scans():
    x = tf.constant(X)
    return (
        tf.map_fn(lambda row: tf.reduce_sum(row) * row, x),
        tf.vectorized_map(lambda row: row[0] * row, x),
        tf.scan(lambda a, row: a * 0.5 + row, x),
        tf.foldl(lambda a, row: a + row, x),
        tf.foldr(lambda a, row: a - row, x),
    )


@program("EagerPyFunc", "PyFunc")
def python_callbacks():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.py_function(lambda a: a**2, [x], tf.float32)
    return y, tape.gradient(y, x), tf.numpy_function(lambda a: np.sort(a), [x], tf.float32)


@program()
def indexed_slices():
    v = tf.Variable(np.ones((5, 2), "f"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(v, [1, 1, 3]) ** 2)
    slices = tape.gradient(loss, v)
    return tf.convert_to_tensor(slices), slices.values, slices.indices


@program("SparseTensorDenseMatMul", "Where", "SparseReorder", "SparseToDense", "SparseAdd", "SparseReduceSum")
def sparse_tensors():
    dense = tf.constant([[1.0, 0.0], [0.0, 2.0]])
    sparse = tf.sparse.from_dense(dense)
    return (
        tf.sparse.sparse_dense_matmul(sparse, tf.ones([2, 1])),
        tf.sparse.to_dense(sparse),
        tf.sparse.reduce_sum(sparse),
        tf.sparse.to_dense(tf.sparse.add(sparse, sparse)),
    )


@program("RaggedTensorToTensor", "RaggedRange", "RaggedGather", "Where", "RaggedTensorToVariant", "SparseReorder")
def ragged_tensors():
    rows = tf.ragged.constant([[1.0, 2.0], [3.0], []])
    doubled = rows * 2
    return (
        tf.reduce_sum(rows, 1),
        doubled.to_tensor(),
        doubled.row_lengths(),
        tf.concat([rows, rows], 1).values,
        rows[0],
        tf.reduce_max(rows),
    )


@program("StringJoin", "AsString", "StringToNumber", "StringLength", "StringSplitV2", "StringLower", "Substr", "StringFormat", "ReduceJoin")
def strings():
    joined = tf.strings.join(["a", "b"])
    return [
        joined.numpy(),
        tf.strings.as_string(tf.constant([1.5]) * 2).numpy().tolist(),
        tf.strings.to_number("2.5"),
        tf.strings.length(joined),
    ]


@program()
def data_sets():
    rows = tf.data.Dataset.from_tensor_slices((X, np.arange(8))).map(lambda a, b: (a * 2, b)).batch(3).prefetch(1)
    total = tf.zeros([4])
    for a, b in rows:
        total += tf.reduce_sum(a, 0) * tf.cast(b[0], tf.float32)
    return total, rows.reduce(np.float32(0), lambda s, ab: s + tf.reduce_sum(ab[0]))


@program()
def pooling_with_indices():
    results = []
    for padding in ("SAME", "VALID"):
        for batch in (True, False):
            x = tf.constant(IMAGE)
            with tf.GradientTape() as tape:
                tape.watch(x)
                values, indices = tf.nn.max_pool_with_argmax(x, 3, 2, padding, include_batch_in_index=batch)
                loss = tf.reduce_sum(values**2)
            results += [values, indices, tape.gradient(loss, x)]
    return results


@program("CropAndResize", "ResizeBicubic", tolerance=1e-4)
def image_operations():
    image = tf.constant(np.abs(IMAGE))
    return (
        tf.image.resize(image, [5, 6]),
        tf.image.resize(image, [16, 16], "nearest"),
        tf.image.resize(image, [5, 6], "bicubic"),
        tf.image.flip_left_right(image),
        tf.image.rgb_to_grayscale(image),
        tf.image.adjust_contrast(image, 2.0),
        tf.image.adjust_hue(image, 0.1),
        tf.image.rot90(image),
        tf.image.per_image_standardization(image),
        tf.image.total_variation(image),
        tf.image.crop_and_resize(image, [[0.0, 0.0, 1.0, 1.0]], [0], [4, 4]),
        tf.image.sobel_edges(image),
        tf.image.extract_patches(image, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
    )


@program("Lu", "Eig", "MatrixSquareRoot", "MatrixExponential", "MatrixLogarithm", "BandedTriangularSolve", tolerance=1e-3)
def linear_algebra():
    a = tf.constant(SQUARE)
    spd = a @ tf.transpose(a)
    return (
        tf.linalg.inv(a),
        tf.linalg.det(a),
        tf.linalg.slogdet(a),
        tf.linalg.cholesky(spd),
        tf.linalg.solve(a, tf.ones([4, 1])),
        tf.linalg.lstsq(tf.constant(X), tf.ones([8, 1])),
        tf.linalg.svd(a, compute_uv=False),
        tf.linalg.eigvalsh(spd),
        tf.abs(tf.linalg.qr(a)[1]),
        tf.linalg.trace(a),
        tf.linalg.band_part(a, 1, 0),
        tf.linalg.diag([1.0, 2.0]),
        tf.linalg.diag_part(a),
        tf.linalg.set_diag(a, [0.0, 1.0, 2.0, 3.0]),
        tf.linalg.expm(a / 10),
        tf.linalg.norm(a, axis=0),
        tf.linalg.triangular_solve(tf.linalg.band_part(a, -1, 0), tf.ones([4, 1])),
        tf.linalg.tensor_diag([1.0, 2.0]),
        tf.linalg.cross(a[0, :3], a[1, :3]),
        tf.linalg.lu(a)[0],
        tf.linalg.matrix_transpose(a),
        tf.linalg.global_norm([a, spd]),
    )


@program("DenseBincount", "Expint", tolerance=1e-4)
def mathematics():
    x = tf.constant(np.abs(X) + 0.1)
    return (
        tf.math.cumsum(x, 1, exclusive=True),
        tf.math.cumulative_logsumexp(x, 1),
        tf.math.top_k(x, 2),
        tf.sort(x, direction="DESCENDING"),
        tf.argsort(x, 1),
        tf.math.lgamma(x),
        tf.math.igamma(x, x),
        tf.math.betainc(x, x, tf.clip_by_value(x, 0.0, 1.0)),
        tf.math.polygamma(tf.ones_like(x), x),
        tf.math.zeta(x + 1.1, x),
        tf.math.bessel_i0(x),
        tf.math.special.expint(x),
        tf.math.erfinv(tf.clip_by_value(x, 0.0, 0.9)),
        tf.math.in_top_k([0, 1, 2, 3, 0, 1, 2, 3], x, 2),
        tf.math.bincount([1, 1, 3]),
        tf.math.confusion_matrix([0, 1, 1], [0, 1, 0]),
        tf.math.xlogy(x, x),
        tf.math.divide_no_nan(x, x * 0),
        tf.math.nextafter(x, x + 1),
        tf.searchsorted(tf.sort(x[:, 0]), x[:3, 1]),
        tf.histogram_fixed_width(x, [0.0, 3.0], 5),
        tf.einsum("ij,kj->ik", x, x),
        tf.tensordot(x, x, [[1], [1]]),
        tf.clip_by_norm(x, 1.0),
        tf.clip_by_global_norm([x, x * 2], 1.0),
        tf.math.is_strictly_increasing([1, 2, 3]),
        tf.nn.moments(x, [0]),
        tf.one_hot([0, 2, -1], 3),
        tf.sequence_mask([1, 3], 4),
        tf.linspace(0.0, 1.0, 5),
        tf.eye(3, batch_shape=[2]),
        tf.range(1.0, 2.0, 0.25),
    )


@program(tolerance=1e-4)
def complex_numbers_and_transforms():
    z = tf.complex(tf.constant(X), tf.constant(X[::-1].copy()))
    return (
        tf.math.conj(z) * z,
        tf.abs(z),
        tf.math.angle(z),
        tf.signal.fft(z),
        tf.signal.ifft2d(z),
        tf.signal.rfft(tf.constant(X)),
        tf.signal.irfft(tf.signal.rfft(tf.constant(X))),
        tf.signal.rfft(tf.constant(X), [6]),
        tf.signal.rfft2d(tf.constant(X)),
        tf.signal.stft(tf.constant(X.reshape(-1)), 8, 4),
        tf.signal.dct(tf.constant(X)),
        tf.signal.frame(tf.constant(X.reshape(-1)), 8, 4),
        tf.signal.overlap_and_add(tf.constant(X), 2),
        tf.signal.hann_window(6),
        tf.linalg.adjoint(z),
    )


@program(tolerance=1e-3)
def convolutions_and_losses():
    image = tf.constant(IMAGE)
    kernel = tf.Variable(KERNEL)
    with tf.GradientTape() as tape:
        y = tf.nn.conv2d(image, kernel, 2, "SAME")
        y = tf.nn.bias_add(tf.nn.relu(y), tf.ones([4]))
        y = tf.nn.avg_pool2d(y, 2, 2, "VALID")
        logits = tf.reduce_mean(y, [1, 2])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1, 3], logits=logits))
    return loss, logits, tf.shape(tape.gradient(loss, kernel))


@program("CTCGreedyDecoder", tolerance=1e-4)
def losses_of_sequences():
    logits = tf.constant(np.arange(60, dtype="f").reshape(6, 2, 5) % 7)
    loss = tf.nn.ctc_loss([[1, 2], [3, 0]], logits, [2, 1], [6, 6], blank_index=-1)
    decoded, scores = tf.nn.ctc_greedy_decoder(logits, [6, 6])
    return loss, decoded[0].values, scores


@program()
def small_floats():
    a = tf.cast(tf.constant([1.0, 2.5, -3.25]), tf.bfloat16)
    h = tf.cast(a, tf.float16)
    return (
        tf.cast(a * a, tf.float32),
        h + 1,
        tf.reduce_sum(h),
        tf.cast(tf.matmul(a[None], a[:, None]), tf.float32),
        tf.cast(h, tf.float8_e5m2 if hasattr(tf, "float8_e5m2") else tf.float16) is not None,
    )


@program()
def whole_numbers_of_every_width():
    results = []
    for dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64, tf.uint32, tf.uint64):
        x = tf.cast(tf.constant([1, 7, 120]), dtype)
        results += [x + x, x * x, x // tf.cast(2, dtype), tf.bitwise.bitwise_xor(x, x + x), tf.reduce_max(x), tf.cast(x, tf.float32)]
    return results


@program()
def the_numpy_interface():
    import tensorflow.experimental.numpy as tnp

    x = tnp.asarray(X)
    return tnp.sum(tnp.ones([2, 3]) * 2), tnp.mean(x, axis=0), tnp.dot(x, tnp.asarray(W)), tnp.where(x > 0, x, 0.0), tnp.linspace(0, 1, 3)


@program("StridedSlice")
def copies_and_pickles():
    x = tf.constant([1.0, 2.0]) * 3
    v = tf.Variable(x)
    other = copy.deepcopy(v)
    other.assign_add([1.0, 1.0])
    return (
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x.numpy())),
        v,
        other,
        np.asarray(x).tolist(),
        np.array(x + 1),
        x.numpy().tolist(),
        list(x),
    )


@program()
def moves_between_devices():
    x = tf.constant([1.0, 2.0]) * 2
    with tf.device("CPU:0"):
        z = tf.identity(x)
        w = z + 1
    return z, w, x + w, tf.identity(w)


@program()
def modules_and_name_scopes():
    class Scaled(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(W, name="w")
            self.b = tf.Variable(tf.zeros([3]), name="b", trainable=False)

        @tf.Module.with_name_scope
        def __call__(self, x):
            return x @ self.w + self.b

    module = Scaled()
    with tf.name_scope("outer"), tf.GradientTape() as tape:
        loss = tf.reduce_sum(module(tf.constant(X)) ** 2)
    return loss, tape.gradient(loss, module.trainable_variables), len(module.variables)


@program()
def debugging_assertions():
    x = tf.constant(X)
    tf.debugging.assert_equal(tf.constant([1, 2]), tf.constant([1, 2]))
    tf.debugging.assert_shapes([(x, ("N", 4))])
    tf.debugging.assert_non_negative(tf.abs(x))
    tf.Assert(tf.reduce_all(x < 100), [x])
    return tf.debugging.check_numerics(x, "finite"), tf.ensure_shape(x, [None, 4])


@program()
def structures():
    x = {"a": tf.constant(X), "b": [tf.constant(W), (tf.constant(1.0),)]}
    doubled = tf.nest.map_structure(lambda t: t * 2, x)
    return doubled, tf.nest.flatten(doubled)[0] + 1


@program()
def quantised_training():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0)
    return y, tape.gradient(y, x)


def flat(result):
    return [t.numpy() if isinstance(t, (tf.Tensor, tf.Variable)) else np.asarray(t) for t in tf.nest.flatten(result)]


@pytest.mark.filterwarnings("ignore")  # TensorFlow's own
@pytest.mark.parametrize("tier", ["compiled", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_equals_plain_tensorflow(name, tier):
    function, expected, tolerance = PROGRAMS[name]
    lazy_core.barrier()
    lazy_core.reset_report()
    with lazy_core.options(tier=tier), lazy_tf.device():
        mine = flat(function())
    fallbacks = {n for n in events.fallback_names if n.startswith("tf:")}
    plain = flat(function())
    assert len(mine) == len(plain)
    for a, b in zip(mine, plain, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fc" or a.dtype.name in ("bfloat16", "float8_e5m2"):
            np.testing.assert_allclose(a.astype("c16"), b.astype("c16"), rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)
    assert fallbacks <= expected, f"fell back: {fallbacks - expected}"
