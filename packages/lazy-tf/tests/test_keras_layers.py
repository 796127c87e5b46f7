"""Every layer of `keras.layers` gives CPU TensorFlow's outputs and gradients on the lazy device, in training and in inference."""

from __future__ import annotations

import contextlib
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import lazy_core
import lazy_tf

L = keras.layers
RNG = np.random.default_rng(0)


def normal(*dims):
    return RNG.standard_normal(dims).astype("f")


LINE, PLANE, SPACE = normal(2, 6, 3), normal(2, 6, 6, 3), normal(1, 4, 4, 4, 2)
FRAMES = normal(1, 3, 5, 3), normal(1, 2, 4, 4, 2), normal(1, 2, 3, 3, 3, 2)
ROWS = normal(4, 6)
IMAGES = RNG.integers(0, 256, (2, 8, 8, 3)).astype("f")
TOKENS = RNG.integers(0, 9, (2, 5))
SOUND = normal(2, 400)
WORDS = np.array([["a cat"], ["the dog"]])

# The layer, and what it is called with.
CASES = {
    "Activation": (lambda: L.Activation("gelu"), ROWS),
    "ActivityRegularization": (lambda: L.ActivityRegularization(0.1, 0.2), ROWS),
    "AdaptiveAveragePooling1D": (lambda: L.AdaptiveAveragePooling1D(4), LINE),
    "AdaptiveAveragePooling2D": (lambda: L.AdaptiveAveragePooling2D((4, 3)), PLANE),
    "AdaptiveAveragePooling3D": (lambda: L.AdaptiveAveragePooling3D(3), SPACE),
    "AdaptiveMaxPooling1D": (lambda: L.AdaptiveMaxPooling1D(4), LINE),
    "AdaptiveMaxPooling2D": (lambda: L.AdaptiveMaxPooling2D((4, 3)), PLANE),
    "AdaptiveMaxPooling3D": (lambda: L.AdaptiveMaxPooling3D(3), SPACE),
    "Add": (L.Add, [ROWS, ROWS * 2]),
    "AdditiveAttention": (L.AdditiveAttention, [LINE, LINE * 2]),
    "AlphaDropout": (lambda: L.AlphaDropout(0.3, seed=1), ROWS),
    "Attention": (lambda: L.Attention(use_scale=True, dropout=0.2, seed=1), [LINE, LINE * 2]),
    "AugMix": (lambda: L.AugMix(seed=1), IMAGES),
    "AutoContrast": (L.AutoContrast, IMAGES),
    "Average": (L.Average, [ROWS, ROWS * 2]),
    "AveragePooling1D": (lambda: L.AveragePooling1D(2, padding="same"), LINE),
    "AveragePooling2D": (lambda: L.AveragePooling2D(3, strides=2, padding="same"), PLANE),
    "AveragePooling3D": (lambda: L.AveragePooling3D(2), SPACE),
    "BatchNormalization": (lambda: L.BatchNormalization(momentum=0.5), PLANE),
    "Bidirectional": (lambda: L.Bidirectional(L.GRU(3, return_sequences=True)), LINE),
    "CategoryEncoding": (lambda: L.CategoryEncoding(9, output_mode="count"), TOKENS),
    "CenterCrop": (lambda: L.CenterCrop(4, 5), IMAGES),
    "Concatenate": (lambda: L.Concatenate(axis=1), [ROWS, ROWS[:, :2]]),
    "ContrastLimitedAdaptiveHistogramEqualization": (lambda: L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)), IMAGES),
    "Conv1D": (lambda: L.Conv1D(4, 3, dilation_rate=2, padding="causal"), LINE),
    "Conv1DTranspose": (lambda: L.Conv1DTranspose(4, 3, strides=2), LINE),
    "Conv2D": (lambda: L.Conv2D(4, 3, strides=2, padding="same"), PLANE),
    "Conv2DTranspose": (lambda: L.Conv2DTranspose(4, 3, strides=2, padding="same"), PLANE),
    "Conv3D": (lambda: L.Conv3D(3, 2), SPACE),
    "Conv3DTranspose": (lambda: L.Conv3DTranspose(3, 2, strides=2), SPACE),
    "ConvLSTM1D": (lambda: L.ConvLSTM1D(2, 2), FRAMES[0]),
    "ConvLSTM2D": (lambda: L.ConvLSTM2D(2, 2), FRAMES[1]),
    "ConvLSTM3D": (lambda: L.ConvLSTM3D(2, 2), FRAMES[2]),
    "Cropping1D": (lambda: L.Cropping1D((1, 2)), LINE),
    "Cropping2D": (lambda: L.Cropping2D(((1, 2), (0, 1))), PLANE),
    "Cropping3D": (L.Cropping3D, SPACE),
    "CutMix": (lambda: L.CutMix(seed=1), {"images": IMAGES, "labels": np.eye(2, dtype="f")}),
    "Dense": (lambda: L.Dense(5, activation="relu", kernel_regularizer="l2"), ROWS),
    "DepthwiseConv1D": (lambda: L.DepthwiseConv1D(3, depth_multiplier=2), LINE),
    "DepthwiseConv2D": (lambda: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same"), PLANE),
    "Discretization": (lambda: L.Discretization(bin_boundaries=[-1.0, 0.0, 1.0]), ROWS),
    "Dot": (lambda: L.Dot(axes=1, normalize=True), [ROWS, ROWS * 2 + 1]),
    "Dropout": (lambda: L.Dropout(0.4, seed=1), ROWS),
    "ELU": (L.ELU, ROWS),
    "EinsumDense": (lambda: L.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d"), LINE),
    "Embedding": (lambda: L.Embedding(9, 4), TOKENS),
    "Equalization": (L.Equalization, IMAGES),
    "Flatten": (L.Flatten, PLANE),
    "GRU": (lambda: L.GRU(4, return_state=True), LINE),
    "GRUCell": (lambda: Stepped(L.GRUCell(4), 1), ROWS),
    "GaussianDropout": (lambda: L.GaussianDropout(0.3, seed=1), ROWS),
    "GaussianNoise": (lambda: L.GaussianNoise(0.3, seed=1), ROWS),
    "GlobalAveragePooling1D": (L.GlobalAveragePooling1D, LINE),
    "GlobalAveragePooling2D": (L.GlobalAveragePooling2D, PLANE),
    "GlobalAveragePooling3D": (L.GlobalAveragePooling3D, SPACE),
    "GlobalMaxPooling1D": (L.GlobalMaxPooling1D, LINE),
    "GlobalMaxPooling2D": (L.GlobalMaxPooling2D, PLANE),
    "GlobalMaxPooling3D": (L.GlobalMaxPooling3D, SPACE),
    "GroupNormalization": (lambda: L.GroupNormalization(3), PLANE),
    "GroupQueryAttention": (lambda: L.GroupQueryAttention(2, 4, 2), [LINE, LINE]),
    "HashedCrossing": (lambda: L.HashedCrossing(5), (TOKENS[:, :1], TOKENS[:, 1:2])),
    "Hashing": (lambda: L.Hashing(5), TOKENS),
    "Identity": (L.Identity, ROWS),
    "IntegerLookup": (lambda: L.IntegerLookup(vocabulary=[1, 3, 5]), TOKENS),
    "LSTM": (lambda: L.LSTM(4, return_sequences=True, dropout=0.2, seed=1), LINE),
    "LSTMCell": (lambda: Stepped(L.LSTMCell(4), 2), ROWS),
    "Lambda": (lambda: L.Lambda(lambda x: x * 2 + 1), ROWS),
    "LayerNormalization": (L.LayerNormalization, LINE),
    "LeakyReLU": (L.LeakyReLU, ROWS),
    "Masking": (L.Masking, LINE * (LINE > 0)),
    "MaxNumBoundingBoxes": (
        lambda: L.MaxNumBoundingBoxes(3, bounding_box_format="xyxy"),
        {"images": IMAGES, "bounding_boxes": {"boxes": normal(2, 5, 4), "labels": TOKENS}},
    ),
    "MaxPooling1D": (L.MaxPooling1D, LINE),
    "MaxPooling2D": (lambda: L.MaxPooling2D(3, strides=2, padding="same"), PLANE),
    "MaxPooling3D": (L.MaxPooling3D, SPACE),
    "Maximum": (L.Maximum, [ROWS, -ROWS]),
    "MelSpectrogram": (lambda: L.MelSpectrogram(64, 32, num_mel_bins=8), SOUND),
    "Minimum": (L.Minimum, [ROWS, -ROWS]),
    "MixUp": (lambda: L.MixUp(seed=1), {"images": IMAGES, "labels": np.eye(2, dtype="f")}),
    "MultiHeadAttention": (lambda: L.MultiHeadAttention(2, 4, dropout=0.2, seed=1), [LINE, LINE]),
    "Multiply": (L.Multiply, [ROWS, ROWS * 2]),
    "Normalization": (lambda: L.Normalization(mean=0.5, variance=2.0), ROWS),
    "PReLU": (L.PReLU, ROWS),
    "Permute": (lambda: L.Permute((3, 1, 2)), PLANE),
    "Pipeline": (lambda: L.Pipeline([L.Rescaling(0.1), L.RandomFlip(seed=1)]), IMAGES),
    "RMSNormalization": (L.RMSNormalization, ROWS),
    "RNN": (lambda: L.RNN([L.LSTMCell(3), L.GRUCell(4)], go_backwards=True), LINE),
    "RandAugment": (lambda: L.RandAugment(seed=1), IMAGES),
    "RandomBrightness": (lambda: L.RandomBrightness(0.3, seed=1), IMAGES),
    "RandomColorDegeneration": (lambda: L.RandomColorDegeneration(0.5, seed=1), IMAGES),
    "RandomColorJitter": (lambda: L.RandomColorJitter(brightness_factor=0.2, hue_factor=0.1, seed=1), IMAGES),
    "RandomContrast": (lambda: L.RandomContrast(0.3, seed=1), IMAGES),
    "RandomCrop": (lambda: L.RandomCrop(5, 6, seed=1), IMAGES),
    "RandomElasticTransform": (lambda: L.RandomElasticTransform(1.0, seed=1), IMAGES),
    "RandomErasing": (lambda: L.RandomErasing(1.0, seed=1), IMAGES),
    "RandomFlip": (lambda: L.RandomFlip(seed=1), IMAGES),
    "RandomGaussianBlur": (lambda: L.RandomGaussianBlur(1.0, seed=1), IMAGES),
    "RandomGrayscale": (lambda: L.RandomGrayscale(0.5, seed=1), IMAGES),
    "RandomHue": (lambda: L.RandomHue(0.3, seed=1), IMAGES),
    "RandomInvert": (lambda: L.RandomInvert(1.0, seed=1), IMAGES),
    "RandomPerspective": (lambda: L.RandomPerspective(1.0, seed=1), IMAGES),
    "RandomPosterization": (lambda: L.RandomPosterization(3, seed=1), IMAGES),
    "RandomRotation": (lambda: L.RandomRotation(0.2, seed=1), IMAGES),
    "RandomSaturation": (lambda: L.RandomSaturation(0.4, seed=1), IMAGES),
    "RandomSharpness": (lambda: L.RandomSharpness(0.4, seed=1), IMAGES),
    "RandomShear": (lambda: L.RandomShear(0.3, 0.2, seed=1), IMAGES),
    "RandomTranslation": (lambda: L.RandomTranslation(0.2, 0.3, seed=1), IMAGES),
    "RandomZoom": (lambda: L.RandomZoom(0.3, seed=1), IMAGES),
    "ReLU": (lambda: L.ReLU(max_value=1.0, negative_slope=0.1), ROWS),
    "RepeatVector": (lambda: L.RepeatVector(3), ROWS),
    "Rescaling": (lambda: L.Rescaling(0.1, 0.5), IMAGES),
    "Reshape": (lambda: L.Reshape((2, -1)), ROWS),
    "Resizing": (lambda: L.Resizing(5, 7), IMAGES),
    "ReversibleEmbedding": (lambda: L.ReversibleEmbedding(9, 4), TOKENS),
    "STFTSpectrogram": (lambda: L.STFTSpectrogram(frame_length=32, frame_step=16, fft_length=32), SOUND[..., None]),
    "SeparableConv1D": (lambda: L.SeparableConv1D(4, 3), LINE),
    "SeparableConv2D": (lambda: L.SeparableConv2D(4, 3), PLANE),
    "SimpleRNN": (lambda: L.SimpleRNN(4, recurrent_dropout=0.2, seed=1), LINE),
    "SimpleRNNCell": (lambda: Stepped(L.SimpleRNNCell(4), 1), ROWS),
    "Softmax": (L.Softmax, ROWS),
    "Solarization": (lambda: L.Solarization(0.2, seed=1), IMAGES),
    "SpatialDropout1D": (lambda: L.SpatialDropout1D(0.5, seed=1), LINE),
    "SpatialDropout2D": (lambda: L.SpatialDropout2D(0.5, seed=1), PLANE),
    "SpatialDropout3D": (lambda: L.SpatialDropout3D(0.5, seed=1), SPACE),
    "SpectralNormalization": (lambda: L.SpectralNormalization(L.Dense(4)), ROWS),
    "StackedRNNCells": (lambda: L.RNN(L.StackedRNNCells([L.SimpleRNNCell(3), L.GRUCell(2)])), LINE),
    "StringLookup": (lambda: L.StringLookup(vocabulary=["a cat", "x"]), WORDS),
    "Subtract": (L.Subtract, [ROWS, ROWS * 2]),
    "TextVectorization": (lambda: L.TextVectorization(vocabulary=["cat", "dog"], output_sequence_length=3), WORDS),
    "TimeDistributed": (lambda: L.TimeDistributed(L.Dense(4)), LINE),
    "UnitNormalization": (L.UnitNormalization, ROWS),
    "UpSampling1D": (L.UpSampling1D, LINE),
    "UpSampling2D": (lambda: L.UpSampling2D(2, interpolation="bilinear"), PLANE),
    "UpSampling3D": (L.UpSampling3D, SPACE),
    "ZeroPadding1D": (lambda: L.ZeroPadding1D((1, 2)), LINE),
    "ZeroPadding2D": (lambda: L.ZeroPadding2D(((1, 0), (2, 1))), PLANE),
    "ZeroPadding3D": (L.ZeroPadding3D, SPACE),
}

NO_LAYERS = {
    "FlaxLayer": "wraps a Flax module, on the JAX backend only",
    "InputLayer": "a placeholder of functional models, which test_keras.py builds",
    "InputSpec": "no layer",
    "JaxLayer": "wraps a JAX function, on the JAX backend only",
    "Layer": "the base class",
    "TFSMLayer": "wraps a SavedModel; see test_saving.py",
    "TorchModuleWrapper": "wraps a torch module, on the torch backend only",
    "Wrapper": "the base class of wrappers",
}


class Stepped(L.Layer):
    """One step of a recurrent cell from a state of ones."""

    def __init__(self, cell, states):
        super().__init__()
        self.cell, self.states = cell, states

    def build(self, shape):
        self.cell.build(shape)

    def call(self, x, training=False):
        states = [keras.ops.ones((4, 4)) for _ in range(self.states)]
        return self.cell(x, states if self.states > 1 else states[0], training=training)


def test_every_layer_has_a_case_or_a_reason():
    classes = {n: c for n, c in inspect.getmembers(L, inspect.isclass)}
    covered = {classes[n] for n in (*CASES, *NO_LAYERS)}
    assert sorted(n for n, c in classes.items() if c not in covered) == []


def outcome(name):
    """Outputs in training and inference, gradients, and the layer's variables after both."""
    make, data = CASES[name]
    keras.utils.set_random_seed(7)
    layer = make()
    inputs = tf.nest.map_structure(tf.constant, data)
    floats = [t for t in tf.nest.flatten(inputs) if t.dtype.is_floating]
    spread = name in ("MultiHeadAttention", "GroupQueryAttention")
    with tf.GradientTape() as tape:
        tape.watch(floats)
        trained = layer(*inputs, training=True) if spread else layer(inputs, **training(layer, True))
        parts = [p for p in tf.nest.flatten(trained) if p.dtype.is_floating]
        loss = tf.add_n([tf.reduce_mean(p**2) for p in parts] + layer.losses) if parts else None
    gradients = [] if loss is None else tape.gradient(loss, [*[v.value for v in layer.trainable_variables], *floats])
    applied = layer(*inputs) if spread else layer(inputs, **training(layer, False))
    found = [*tf.nest.flatten((trained, applied)), *[g for g in gradients if g is not None], *[v.value for v in layer.variables]]
    return [tf.convert_to_tensor(t).numpy() for t in found]


def training(layer, flag):
    return {"training": flag} if "training" in inspect.signature(layer.call).parameters else {}


@pytest.mark.filterwarnings("ignore")  # the libraries' own
@pytest.mark.parametrize("name", CASES)
def test_a_layer_equals_cpu_tensorflow(name):
    lazy_core.barrier()
    with lazy_tf.device():
        mine = outcome(name)
    with contextlib.nullcontext():
        plain = outcome(name)
    assert len(mine) == len(plain)
    for a, b in zip(mine, plain, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":  # sums are taken in another order, so errors are as large as the largest terms allow
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(b).max(initial=0))))
        else:
            np.testing.assert_array_equal(a, b)
