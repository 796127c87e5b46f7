"""What CPU kernels raise because of contents, the device raises when somebody reads."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import lazy_core

TABLE = np.arange(10, dtype="f").reshape(5, 2)
WIDE = np.tile(np.arange(70), 2)  # more numbers than the host keeps


def indices(*wrong):
    """Indices below 5, pending on the device, of which the last are these."""
    return tf.constant(np.array([*(WIDE % 5), *wrong])) * 1


def variable():
    return tf.Variable(TABLE)


CASES = {
    "gather": lambda: tf.gather(tf.constant(TABLE), indices(9)),
    "gather negative": lambda: tf.gather(tf.constant(TABLE), indices(-1)),
    "gather axis": lambda: tf.gather(tf.constant(TABLE.T), indices(2, 7), axis=1),
    "gather batch": lambda: tf.gather(tf.constant(TABLE[None]), indices(9)[None], batch_dims=1, axis=1),
    "gather_nd": lambda: tf.gather_nd(tf.constant(TABLE), tf.stack([indices(9), indices(0) * 0], 1)),
    "embedding": lambda: tf.nn.embedding_lookup(variable(), indices(9)),
    "scatter_nd": lambda: tf.scatter_nd(indices(9)[:, None], tf.ones([141]), [5]),
    "tensor_scatter": lambda: tf.tensor_scatter_nd_update(tf.zeros([5]), indices(9)[:, None], tf.ones([141])),
    "segment": lambda: tf.math.unsorted_segment_sum(tf.ones([141]), indices(7), 5),
    "floor division": lambda: indices(3) // indices(0),
    "remainder": lambda: indices(3) % indices(0),
    "truncated division": lambda: tf.truncatediv(indices(3), indices(0)),
    "power": lambda: tf.pow(indices(3), indices(-2)),
    "nan": lambda: tf.debugging.check_numerics(tf.constant(TABLE) * 1 + tf.math.log(tf.zeros([5, 2]) - 1), "here"),
    "infinite": lambda: tf.debugging.check_numerics(tf.constant(TABLE) * 1 / 0, "there"),
    "inverse": lambda: tf.linalg.inv(tf.ones([9, 9]) * 1),
    "solve": lambda: tf.linalg.solve(tf.zeros([9, 9]) * 1, tf.ones([9, 1])),
}


def message(error):
    """Without the place where it happened."""
    return re.sub(r"\{\{.*?\}\} ?|,? node name.*| \[Op:.*", "", str(error).replace("\n", " ")).strip()


@pytest.mark.parametrize("name", CASES)
def test_a_read_raises_what_the_cpu_raises(lazy, name):
    result = CASES[name]()
    assert lazy_core.report().counters["barriers"] == 0
    with pytest.raises(tf.errors.OpError) as mine:
        result.numpy()
    with tf.device("CPU:0"), pytest.raises(tf.errors.OpError) as plain:
        CASES[name]()
    assert type(mine.value) is type(plain.value) and message(mine.value) == message(plain.value)
    assert float(tf.constant(1.0) * 2 + 1) == 3.0  # the device goes on


NOTHING = {
    "gather": lambda zero: tf.gather(tf.zeros([3, 0]), indices(9)),
    "gather of known indices": lambda zero: tf.gather(tf.zeros([0, 3]), [9], axis=1),
    "segment": lambda zero: tf.math.unsorted_segment_sum(tf.zeros([141, 0]), indices(7), 5),
    "floor division": lambda zero: tf.zeros([0, 141], tf.int64) // zero,
    "remainder": lambda zero: tf.zeros([0, 141], tf.int64) % zero,
    "truncated division": lambda zero: tf.truncatediv(tf.zeros([0, 141], tf.int64), zero),
    "power": lambda zero: tf.pow(tf.zeros([0, 141], tf.int64), zero - 1),
}


@pytest.mark.parametrize("name", NOTHING)
def test_kernels_that_compute_nothing_look_at_nothing(lazy, name):
    result = NOTHING[name](indices(0))
    with tf.device("CPU:0"):
        plain = NOTHING[name](indices(0))
    assert result.numpy().shape == plain.numpy().shape


@pytest.mark.parametrize("index", [9, -1])
def test_kernels_that_look_at_indices_of_nothing_raise(lazy, index):
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.gather_nd(tf.zeros([3, 0]), indices(index)[:, None]).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.Variable(tf.zeros([3, 0])).sparse_read(indices(index)).numpy()


def test_labels_out_of_range_raise(lazy):
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=indices(7), logits=tf.zeros([141, 5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"label value of 7 which is outside the valid range of \[0, 5\)"):
        loss.numpy()


@pytest.mark.parametrize("method", ["scatter_update", "scatter_add", "scatter_sub"])
def test_updates_of_rows_out_of_range_raise(lazy, method):
    v = variable()
    getattr(v, method)(tf.IndexedSlices(tf.ones([141, 2]), indices(9)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[140\] = 9 is not in \[0, 5\)"):
        v.numpy()


def test_what_is_right_is_not_touched_and_costs_no_barrier(no_fallback):
    rows = tf.gather(tf.constant(TABLE), indices(4))
    ids = tf.math.unsorted_segment_sum(rows, indices(-1), 5)  # TensorFlow ignores negative ones
    halves = indices(3) // 2
    checked = tf.debugging.check_numerics(ids, "fine")
    assert lazy_core.report().counters["barriers"] == 0
    assert checked.shape == (5, 2) and halves.numpy()[-1] == 1 and np.isfinite(checked.numpy()).all()
    assert lazy_core.report().counters["barriers"] == 1


def test_of_several_violations_the_first_is_told_and_later_traces_are_not_forgotten(lazy):
    table = tf.constant(TABLE)
    first, second = tf.gather(table, indices(6)), tf.gather(table, indices(7))
    lazy_core.barrier()
    third = tf.gather(table, indices(8))
    lazy_core.barrier()
    with pytest.raises(tf.errors.InvalidArgumentError, match="= 6 is not"):
        second.numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="= 8 is not"):
        first.numpy()
    assert third.numpy().shape == (141, 2)


def test_many_unread_traces_are_looked_at_in_the_end(lazy):
    table = tf.constant(TABLE)

    def loop():
        for k in range(80):
            tf.gather(table, indices(6 if k == 0 else 4))
            lazy_core.barrier()

    with pytest.raises(tf.errors.InvalidArgumentError, match="= 6 is not"):
        loop()
