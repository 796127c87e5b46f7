"""Operations that the core's matrix does not reach, and their gradients, give plain TensorFlow's numbers without a fallback."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

RNG = np.random.default_rng(0)


def normal(*dims):
    return RNG.standard_normal(dims).astype("f")


IMAGE, FILTER, MATRIX = normal(2, 9, 8, 3), normal(3, 3, 3, 4) * 0.3, normal(6, 5)
VOLUME, KERNEL = normal(1, 5, 6, 4, 2), normal(2, 3, 2, 2, 3) * 0.3
SQUARE = normal(4, 4) + 4 * np.eye(4, dtype="f")
LABELS = np.array([0, 4, 2, 1, 3, 3] * 12)[:6]
SCALE, SHIFT = np.array([1.0, 0.5, 2.0], "f"), np.array([0.1, -0.2, 0.3], "f")


def batch_norm(training):
    def run(x, scale, shift):
        if training:
            return tf.compat.v1.nn.fused_batch_norm(x, scale, shift, epsilon=1e-3)[0]
        return tf.compat.v1.nn.fused_batch_norm(x, scale, shift, SHIFT, SCALE, epsilon=1e-3, is_training=False)[0]

    return run


CASES = {
    "fused_batch_norm training": (batch_norm(True), IMAGE, SCALE, SHIFT),
    "fused_batch_norm inference": (batch_norm(False), IMAGE, SCALE, SHIFT),
    "conv2d same": (lambda x, w: tf.nn.conv2d(x, w, 2, "SAME"), IMAGE, FILTER),
    # The CPU has no gradient of it.
    "conv2d dilated": (lambda x, w: tf.stop_gradient(tf.nn.conv2d(x, w, 1, "VALID", dilations=2)), IMAGE, FILTER),
    "conv2d explicit": (lambda x, w: tf.nn.conv2d(x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), IMAGE, FILTER),
    "conv2d_transpose": (lambda x, w: tf.nn.conv2d_transpose(x, w, [2, 18, 16, 3], 2), normal(2, 9, 8, 4), FILTER),
    "depthwise": (lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), IMAGE, normal(3, 3, 3, 2)),
    "conv3d": (lambda x, w: tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "SAME"), VOLUME, KERNEL),
    "conv1d": (lambda x, w: tf.nn.conv1d(x, w, 1, "SAME"), normal(2, 7, 3), normal(3, 3, 5)),
    "max_pool": (lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), IMAGE),
    "avg_pool": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), IMAGE),
    "max_pool3d": (lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID"), VOLUME),
    "avg_pool3d": (lambda x: tf.nn.avg_pool3d(x, 2, 1, "SAME"), VOLUME),
    "sparse cross entropy": (lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=x), MATRIX),
    "cross entropy": (lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(LABELS, 5), x), MATRIX),
    "sigmoid cross entropy": (lambda x: tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(x), x), MATRIX),
    "log_softmax": (tf.nn.log_softmax, MATRIX),
    "softmax axis": (lambda x: tf.nn.softmax(x, axis=0), MATRIX),
    "elu": (tf.nn.elu, MATRIX),
    "selu": (tf.nn.selu, MATRIX),
    "relu6": (lambda x: tf.nn.relu6(x * 5), MATRIX),
    "leaky_relu": (tf.nn.leaky_relu, MATRIX),
    "softplus": (lambda x: tf.math.softplus(x * 10), MATRIX),
    "softsign": (tf.math.softsign, MATRIX),
    "gelu": (tf.nn.gelu, MATRIX),
    "l2_loss": (tf.nn.l2_loss, MATRIX),
    "l2_normalize": (lambda x: tf.math.l2_normalize(x, 1), MATRIX),
    "moments": (lambda x: tf.stack(tf.nn.moments(x, [0])), MATRIX),
    "local response": (tf.nn.local_response_normalization, IMAGE),
    "gather batch": (lambda x: tf.gather(x, [[0, 1], [2, 2], [3, 0], [1, 1], [0, 4], [2, 3]], batch_dims=1), MATRIX),
    "gather axis": (lambda x: tf.gather(x, [1, 1, 3], axis=1), MATRIX),
    "gather_nd": (lambda x: tf.gather_nd(x, [[0, 1], [5, 4]]), MATRIX),
    "scatter_nd": (lambda x: tf.scatter_nd([[0], [0], [1], [2], [9], [4]], x, [10, 5]), MATRIX),
    "tensor_scatter_update": (lambda x: tf.tensor_scatter_nd_update(x, [[1], [3]], tf.ones([2, 5])), MATRIX),
    "tensor_scatter_add": (lambda x: tf.tensor_scatter_nd_add(x, [[1, 1], [1, 1]], [2.0, 3.0]), MATRIX),
    "cumsum exclusive": (lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True), MATRIX),
    "cumulative_logsumexp": (lambda x: tf.math.cumulative_logsumexp(x, 0, reverse=True), MATRIX),
    "cumprod": (lambda x: tf.math.cumprod(x, 1), MATRIX),
    "reverse roll tile": (lambda x: tf.tile(tf.roll(tf.reverse(x, [1]), 2, 0), [2, 1]), MATRIX),
    "pad": (lambda x: tf.pad(x, [[1, 2], [0, 3]]), MATRIX),
    "pad reflect": (lambda x: tf.pad(x, [[1, 2], [0, 3]], "REFLECT"), MATRIX),
    "split": (lambda x: tf.concat(tf.split(x, [1, 4], 1)[::-1], 1), MATRIX),
    "unstack": (lambda x: tf.add_n(tf.unstack(x, axis=1)), MATRIX),
    "strided": (lambda x: x[::-2, 1:4:2], MATRIX),
    "band_part": (lambda x: tf.linalg.band_part(x, 1, 2), MATRIX),
    "diag": (lambda x: tf.linalg.diag(tf.linalg.diag_part(x)), SQUARE),
    "segment_sum": (lambda x: tf.math.unsorted_segment_sum(x, LABELS, 5), MATRIX),
    "segment_max": (lambda x: tf.math.unsorted_segment_max(x, LABELS, 5), MATRIX),
    "top_k": (lambda x: tf.math.top_k(x, 3).values, MATRIX),
    "sort": (lambda x: tf.sort(x, direction="DESCENDING"), MATRIX),
    "where": (lambda x: tf.where(x > 0, x * 2, tf.exp(x)), MATRIX),
    "clip": (lambda x: tf.clip_by_value(x, -0.5, 0.5), MATRIX),
    "clip_by_norm": (lambda x: tf.clip_by_norm(x, 1.0), MATRIX),
    "reduce_max": (lambda x: tf.reduce_max(x, 1), MATRIX),
    "reduce_prod": (lambda x: tf.reduce_prod(x, 1), MATRIX),
    "logsumexp": (lambda x: tf.reduce_logsumexp(x, 1), MATRIX),
    "reduce_std": (lambda x: tf.math.reduce_std(x, 0), MATRIX),
    "norm": (tf.norm, MATRIX),
    "einsum": (lambda x: tf.einsum("ij,kj->ik", x, x), MATRIX),
    "tensordot": (lambda x: tf.tensordot(x, x, [[0], [0]]), MATRIX),
    "matmul transposed": (lambda x: tf.matmul(x, x, transpose_a=True), MATRIX),
    "cholesky": (lambda x: tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True)), SQUARE),
    "solve": (lambda x: tf.linalg.solve(x, x[:, :2]), SQUARE),
    "triangular_solve": (lambda x: tf.linalg.triangular_solve(x, x[:, :2]), SQUARE),
    "slogdet": (lambda x: tf.linalg.slogdet(x).log_abs_determinant, SQUARE),
    "inverse": (tf.linalg.inv, SQUARE),
    "expm": (lambda x: tf.linalg.expm(x * 0.1), SQUARE),
    "resize": (lambda x: tf.image.resize(x, [5, 12]), IMAGE),
    "space_to_depth": (lambda x: tf.nn.space_to_depth(x[:, :8], 2), IMAGE),
    "igamma": (lambda x: tf.math.igamma(tf.abs(x) + 0.5, 1.5), MATRIX),
    "lbeta": (lambda x: tf.math.lbeta(tf.abs(x) + 0.5), MATRIX),
    "bessel": (tf.math.bessel_i0e, MATRIX),
    "pow": (lambda x: (tf.abs(x) + 0.1) ** 2.5, MATRIX),
    "xlogy": (lambda x: tf.math.xlogy(x, tf.abs(x) + 0.1), MATRIX),
    "div_no_nan": (lambda x: tf.math.divide_no_nan(x, tf.nn.relu(x)), MATRIX),
    "atan2": (lambda x: tf.atan2(x, x[::-1]), MATRIX),
    "squared_difference": (lambda x: tf.math.squared_difference(x, x[:1]), MATRIX),
    "broadcast gradients": (lambda x: x * tf.reduce_mean(x, 0) + tf.reduce_mean(x, 1, keepdims=True), MATRIX),
    "complex": (lambda x: tf.abs(tf.complex(x, x * 2)) + tf.math.angle(tf.complex(x, x + 1)), MATRIX),
    "fft": (lambda x: tf.math.real(tf.signal.fft2d(tf.cast(x, tf.complex64))), MATRIX),
    "rfft": (lambda x: tf.abs(tf.signal.rfft(x)), normal(3, 8)),
    "linspace and range": (lambda x: x * tf.linspace(0.0, 1.0, 5) + tf.range(5.0), MATRIX),
    "meshgrid": (lambda x: tf.add_n(tf.meshgrid(x[:, 0], x[:, 1])), MATRIX),
    "half": (lambda x: tf.cast(tf.cast(x, tf.bfloat16) * 2, tf.float32), MATRIX),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_equal_plain_tensorflow(no_fallback, name):
    call, *arrays = CASES[name]

    def run():
        tensors = [tf.constant(a) for a in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = call(*tensors)
            loss = tf.reduce_sum(y * tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), y.dtype) * 0.01)
        return [y, *[g for g in tape.gradient(loss, tensors) if g is not None]]

    mine = [np.asarray(tf.convert_to_tensor(t)) for t in run()]
    with tf.device("CPU:0"):
        plain = [np.asarray(tf.convert_to_tensor(t)) for t in run()]
    assert len(mine) == len(plain)
    for a, b in zip(mine, plain, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
