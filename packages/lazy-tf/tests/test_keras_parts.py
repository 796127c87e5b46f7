"""Every optimizer, loss and metric of Keras 3 gives CPU TensorFlow's values on the lazy device."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import lazy_tf

O, S, M = keras.optimizers, keras.losses, keras.metrics
RNG = np.random.default_rng(0)


def same(run, rtol=1e-4, atol=1e-5):
    """What runs on the lazy device gives the arrays that it gives on the CPU."""
    with lazy_tf.device():
        mine = [np.asarray(x) for x in run()]
    plain = [np.asarray(x) for x in run()]
    assert len(mine) == len(plain)
    for a, b in zip(mine, plain, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def all_have_cases(module, *cases):
    classes = {n: c for n, c in inspect.getmembers(module, inspect.isclass)}
    covered = {classes[n] for group in cases for n in group}
    assert sorted(n for n, c in classes.items() if c not in covered) == []


# ------------------------------------------------------------------ optimizers

OPTIMIZERS = {
    "Adadelta": lambda: O.Adadelta(0.5),
    "Adafactor": lambda: O.Adafactor(0.1),
    "Adagrad": lambda: O.Adagrad(0.1),
    "Adam": lambda: O.Adam(0.1, amsgrad=True, global_clipnorm=1.0),
    "AdamW": lambda: O.AdamW(O.schedules.CosineDecay(0.1, 5), weight_decay=0.1),
    "Adamax": lambda: O.Adamax(0.1),
    "Ftrl": lambda: O.Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01),
    "Lamb": lambda: O.Lamb(0.1),
    "Lion": lambda: O.Lion(0.01),
    "LossScaleOptimizer": lambda: O.LossScaleOptimizer(O.SGD(0.1), initial_scale=8.0, dynamic_growth_steps=2),
    "MultiOptimizer": lambda: O.MultiOptimizer(O.OptimizerMap(O.SGD(0.1), {"first": O.Adam(0.1)})),
    "Muon": lambda: O.Muon(0.1),
    "Nadam": lambda: O.Nadam(0.1),
    "RMSprop": lambda: O.RMSprop(0.1, momentum=0.5, centered=True),
    "SGD": lambda: O.SGD(0.1, momentum=0.9, nesterov=True, clipvalue=0.5, use_ema=True, ema_overwrite_frequency=2),
    "ScheduleFreeAdamW": lambda: O.ScheduleFreeAdamW(0.1),
}
NO_OPTIMIZERS = {"Optimizer": "the base class", "OptimizerMap": "a part of MultiOptimizer"}
W = RNG.standard_normal((4, 3)).astype("f")
ROWS = RNG.standard_normal((6, 4)).astype("f")


def test_every_optimizer_has_a_case_or_a_reason():
    all_have_cases(O, OPTIMIZERS, NO_OPTIMIZERS)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_takes_the_steps_of_cpu_tensorflow(name):
    def run():
        first, second = keras.Variable(W, name="first"), keras.Variable(W[0], name="second")
        optimizer = OPTIMIZERS[name]()
        x = tf.constant(ROWS)
        for _ in range(4):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ first.value + second.value - 1.0) ** 2)
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, [first.value, second.value])
            optimizer.apply(gradients, [first, second])
        return [v.value.numpy() for v in (first, second, *optimizer.variables)]

    same(run)


@pytest.mark.parametrize("name", ["Adam", "Adagrad", "RMSprop", "SGD", "Ftrl"])
def test_an_optimizer_takes_indexed_slices(name):
    def run():
        table = keras.Variable(np.ones((7, 3), "f"), name="first")
        optimizer = OPTIMIZERS[name]()
        for k in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table.value, [1, 1, 4 + k % 2]) ** 2)
            optimizer.apply([tape.gradient(loss, table.value)], [table])
        return [table.value.numpy()]

    same(run)


# ------------------------------------------------------------------ losses

LABELS = RNG.integers(0, 4, 6)
HOT = np.eye(4, dtype="f")[LABELS]
PROBABILITIES = np.exp(RNG.standard_normal((6, 4))).astype("f")
PROBABILITIES /= PROBABILITIES.sum(1, keepdims=True)
SIGNS = np.sign(RNG.standard_normal((6, 4))).astype("f")
BITS = (SIGNS > 0).astype("f")

LOSSES = {
    "BinaryCrossentropy": (lambda: S.BinaryCrossentropy(label_smoothing=0.1), BITS),
    "BinaryFocalCrossentropy": (lambda: S.BinaryFocalCrossentropy(apply_class_balancing=True), BITS),
    "CTC": (S.CTC, RNG.integers(1, 4, (2, 3))),
    "CategoricalCrossentropy": (S.CategoricalCrossentropy, HOT),
    "CategoricalFocalCrossentropy": (S.CategoricalFocalCrossentropy, HOT),
    "CategoricalGeneralizedCrossEntropy": (S.CategoricalGeneralizedCrossEntropy, LABELS),
    "CategoricalHinge": (S.CategoricalHinge, HOT),
    "Circle": (S.Circle, LABELS),
    "CosineSimilarity": (S.CosineSimilarity, SIGNS),
    "Dice": (S.Dice, BITS),
    "Hinge": (S.Hinge, SIGNS),
    "Huber": (lambda: S.Huber(0.5), SIGNS),
    "KLDivergence": (S.KLDivergence, HOT),
    "LogCosh": (S.LogCosh, SIGNS),
    "MeanAbsoluteError": (S.MeanAbsoluteError, SIGNS),
    "MeanAbsolutePercentageError": (S.MeanAbsolutePercentageError, SIGNS),
    "MeanSquaredError": (lambda: S.MeanSquaredError(reduction="sum"), SIGNS),
    "MeanSquaredLogarithmicError": (S.MeanSquaredLogarithmicError, BITS),
    "Poisson": (S.Poisson, BITS),
    "SparseCategoricalCrossentropy": (lambda: S.SparseCategoricalCrossentropy(ignore_class=2), LABELS),
    "SquaredHinge": (S.SquaredHinge, SIGNS),
    "Tversky": (S.Tversky, BITS),
}


def test_every_loss_has_a_case():
    all_have_cases(S, LOSSES, ["Loss"])


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient_equal_cpu_tensorflow(name):
    make, labels = LOSSES[name]
    predictions = RNG.standard_normal((2, 6, 4)).astype("f") if name == "CTC" else PROBABILITIES

    def run():
        loss_of, x = make(), tf.constant(predictions)
        weight = None if name == "CTC" else np.linspace(0.5, 1.5, len(labels)).astype("f")
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = loss_of(tf.constant(labels), x, sample_weight=None if name == "Dice" else weight)
        return loss.numpy(), tape.gradient(loss, x).numpy()

    same(run)


# ------------------------------------------------------------------ metrics

SCORES = RNG.uniform(0.05, 0.95, (6, 4)).astype("f")
METRICS = {
    "AUC": (lambda: M.AUC(20), BITS, SCORES),
    "Accuracy": (M.Accuracy, LABELS, np.roll(LABELS, 1)),
    "BinaryAccuracy": (M.BinaryAccuracy, BITS, SCORES),
    "BinaryCrossentropy": (M.BinaryCrossentropy, BITS, SCORES),
    "BinaryIoU": (lambda: M.BinaryIoU([0, 1]), BITS, SCORES),
    "CategoricalAccuracy": (M.CategoricalAccuracy, HOT, SCORES),
    "CategoricalCrossentropy": (M.CategoricalCrossentropy, HOT, PROBABILITIES),
    "CategoricalHinge": (M.CategoricalHinge, HOT, SCORES),
    "ConcordanceCorrelation": (M.ConcordanceCorrelation, SIGNS, SCORES),
    "CosineSimilarity": (M.CosineSimilarity, SIGNS, SCORES),
    "F1Score": (lambda: M.F1Score(average="macro"), HOT, SCORES),
    "FBetaScore": (lambda: M.FBetaScore(beta=2.0, threshold=0.5), HOT, SCORES),
    "FalseNegatives": (M.FalseNegatives, BITS, SCORES),
    "FalsePositives": (lambda: M.FalsePositives([0.3, 0.6]), BITS, SCORES),
    "Hinge": (M.Hinge, SIGNS, SCORES),
    "IoU": (lambda: M.IoU(4, [0, 2], sparse_y_pred=False), LABELS, SCORES),
    "KLDivergence": (M.KLDivergence, HOT, PROBABILITIES),
    "LogCoshError": (M.LogCoshError, SIGNS, SCORES),
    "Mean": (M.Mean, SCORES, None),
    "MeanAbsoluteError": (M.MeanAbsoluteError, SIGNS, SCORES),
    "MeanAbsolutePercentageError": (M.MeanAbsolutePercentageError, SIGNS, SCORES),
    "MeanIoU": (lambda: M.MeanIoU(4), LABELS, np.roll(LABELS, 1)),
    "MeanMetricWrapper": (lambda: M.MeanMetricWrapper(S.mean_squared_error), SIGNS, SCORES),
    "MeanSquaredError": (M.MeanSquaredError, SIGNS, SCORES),
    "MeanSquaredLogarithmicError": (M.MeanSquaredLogarithmicError, BITS, SCORES),
    "OneHotIoU": (lambda: M.OneHotIoU(4, [0, 2]), HOT, SCORES),
    "OneHotMeanIoU": (lambda: M.OneHotMeanIoU(4), HOT, SCORES),
    "PearsonCorrelation": (M.PearsonCorrelation, SIGNS, SCORES),
    "Poisson": (M.Poisson, BITS, SCORES),
    "Precision": (lambda: M.Precision(top_k=2), BITS, SCORES),
    "PrecisionAtRecall": (lambda: M.PrecisionAtRecall(0.5, 20), BITS, SCORES),
    "R2Score": (M.R2Score, SIGNS, SCORES),
    "Recall": (lambda: M.Recall(class_id=1), BITS, SCORES),
    "RecallAtPrecision": (lambda: M.RecallAtPrecision(0.5, 20), BITS, SCORES),
    "RootMeanSquaredError": (M.RootMeanSquaredError, SIGNS, SCORES),
    "SensitivityAtSpecificity": (lambda: M.SensitivityAtSpecificity(0.5, 20), BITS, SCORES),
    "SparseCategoricalAccuracy": (M.SparseCategoricalAccuracy, LABELS, SCORES),
    "SparseCategoricalCrossentropy": (M.SparseCategoricalCrossentropy, LABELS, PROBABILITIES),
    "SparseTopKCategoricalAccuracy": (lambda: M.SparseTopKCategoricalAccuracy(2), LABELS, SCORES),
    "SpecificityAtSensitivity": (lambda: M.SpecificityAtSensitivity(0.5, 20), BITS, SCORES),
    "SquaredHinge": (M.SquaredHinge, SIGNS, SCORES),
    "Sum": (M.Sum, SCORES, None),
    "TopKCategoricalAccuracy": (lambda: M.TopKCategoricalAccuracy(2), HOT, SCORES),
    "TrueNegatives": (M.TrueNegatives, BITS, SCORES),
    "TruePositives": (M.TruePositives, BITS, SCORES),
}


def test_every_metric_has_a_case():
    all_have_cases(M, METRICS, ["Metric"])


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_equals_cpu_tensorflow(name):
    make, labels, scores = METRICS[name]

    def run():
        metric = make()
        for k in range(2):
            given = [tf.constant(np.roll(a, k, 0)) for a in (labels, scores) if a is not None]
            metric.update_state(*given)
        result = metric.result()
        return [tf.convert_to_tensor(x).numpy() for x in tf.nest.flatten(result)]

    same(run)
