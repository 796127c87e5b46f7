"""Values go from one frontend to another without leaving the trace: one graph, one program, and no transfer until a result is read."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import lazy_core
from lazy_core import cache

torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")
lazy_numpy = pytest.importorskip("lazy_numpy")
lazy_tf = pytest.importorskip("lazy_tf")
lazy_torch = pytest.importorskip("lazy_torch")

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(0, 255, (16, 12)).astype(np.float32)
LABELS = RNG.integers(0, 4, 16).astype(np.int64)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def plain_pipeline():
    x = (IMAGES - IMAGES.mean(axis=0)) / (IMAGES.std(axis=0) + np.float32(1e-3))
    with torch.no_grad():
        logits = model()(torch.from_numpy(x)).numpy()
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=logits).numpy()
    return np.array([losses.mean(), losses.std(), losses.max()])


def lazy_pipeline(net, images, labels):
    x = (images - images.mean(axis=0)) / (images.std(axis=0) + np.float32(1e-3))  # NumPy
    with torch.no_grad():
        logits = net(lazy_torch.from_lazy(x))  # torch
    with lazy_tf.device():
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=lazy_tf.from_lazy(labels), logits=lazy_tf.from_lazy(logits))
    losses = lazy_numpy.from_lazy(losses)
    return np.stack([losses.mean(), losses.std(), losses.max()])  # NumPy again


@pytest.mark.parametrize("tier", ["compiled", "auto", "native"])
def test_a_pipeline_through_three_libraries_gives_what_they_give(tier):
    with lazy_core.options(tier=tier):
        net = model().to("lazy")
        for _ in range(4):
            found = lazy_pipeline(net, lazy_numpy.asarray(IMAGES), lazy_numpy.asarray(LABELS))
            np.testing.assert_allclose(np.array(found.tolist()), plain_pipeline(), rtol=1e-5)


def test_a_pipeline_through_three_libraries_is_one_program_and_transfers_nothing_before_it_is_read():
    with lazy_core.options(tier="compiled"):
        net, images, labels = model().to("lazy"), lazy_numpy.asarray(IMAGES), lazy_numpy.asarray(LABELS)
        lazy_core.barrier()
        gc.collect()
        lazy_core.reset_report()
        found = lazy_pipeline(net, images, labels)
        before = lazy_core.report()
        assert before.counters["barriers"] == before.counters["compiles"] == 0
        assert not [e for e in before.events if e.kind == "host_read"]
        assert found.tolist() == pytest.approx(plain_pipeline().tolist(), rel=1e-5)
        after = lazy_core.report()
        assert sum(after.counters[k] for k in ("compiles", "cache_hits", "canonical_hits", "disk_hits")) == 1
        assert after.counters["barriers"] == 1
        assert after.counters["fallbacks"] == 0


def test_the_libraries_own_words_share_too():
    with lazy_core.options(tier="compiled"):
        x = torch.arange(6, dtype=torch.float32, device="lazy").reshape(2, 3)
        lazy_core.barrier()
        lazy_core.reset_report()
        y = lazy_numpy.asarray(x * 2)
        assert isinstance(y, (np.ndarray, lazy_numpy.ndarray))
        z = lazy_numpy.asarray([[1.0, 1.0, 1.0]]) + y
        assert lazy_core.report().counters["barriers"] == 0
        np.testing.assert_array_equal(np.array(z.tolist()), np.arange(6).reshape(2, 3) * 2.0 + 1)


@pytest.mark.parametrize("tier", ["compiled", "auto", "native"])
def test_writes_on_one_side_are_not_seen_on_the_other(tier):
    """Sharing takes what a tensor holds at that moment; afterwards each side goes its own way, in every direction."""
    with lazy_core.options(tier=tier):
        a = lazy_numpy.asarray(np.arange(4, dtype=np.float32))
        t = lazy_torch.from_lazy(a)
        v = lazy_tf.from_lazy(t)
        a[0] = 100
        t.add_(10)
        assert a.tolist() == [100, 1, 2, 3]
        assert t.tolist() == [10, 11, 12, 13]
        assert v.numpy().tolist() == [0, 1, 2, 3]
        b = lazy_numpy.from_lazy(t)
        t.zero_()
        b[1] = -1
        assert b.tolist() == [10, -1, 12, 13]
        assert t.tolist() == [0, 0, 0, 0]


def test_what_is_no_tensor_is_refused():
    for library in (lazy_numpy, lazy_torch, lazy_tf):
        with pytest.raises(TypeError, match="list is not a lazy tensor"):
            library.from_lazy([1, 2])
        with pytest.raises(lazy_core.LazyError):
            library.from_lazy(np.array([object()]))


def test_bfloat16_goes_round():
    with lazy_core.options(tier="compiled"):
        half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, device="lazy")
        back = lazy_torch.from_lazy(lazy_tf.from_lazy(lazy_numpy.from_lazy(half)))
        assert back.dtype == torch.bfloat16
        assert back.tolist() == [1.5, -2.0]


def test_the_documents_words_for_a_host_array_are_the_same():
    """Small NumPy arrays may be plain ones, where NumPy runs at once: `from_lazy` takes those too."""
    x = np.arange(3, dtype=np.float32)
    for made in (lazy_numpy.from_lazy(x).tolist(), lazy_torch.from_lazy(x).tolist(), lazy_tf.from_lazy(x).numpy().tolist()):
        assert made == [0, 1, 2]


def test_gradients_flow_within_torch_around_what_numpy_made():
    with lazy_core.options(tier="compiled"):
        x = lazy_torch.from_lazy(lazy_numpy.asarray(IMAGES[:, :3]) / 255)
        w = torch.ones(3, device="lazy", requires_grad=True)
        (x @ w).sum().backward()
        np.testing.assert_allclose(np.array(w.grad.tolist()), (IMAGES[:, :3] / 255).sum(axis=0), rtol=1e-5)


def as_they_stand():
    """For each program since the cache was cleared whether every division, sum and product in it is computed as it stands."""
    return [plan.graph.exact for plan in cache.cache.plans.entries() if plan.graph is not None]


def test_numpys_rounding_is_asked_for_by_numpys_arrays_and_not_by_the_import():
    """Programs of torch and TensorFlow alone are compiled as if lazy_numpy were not there; what reads or gives NumPy's arrays is exact."""
    with lazy_core.options(tier="compiled"), lazy_tf.device():
        alone = {
            "torch": lambda: torch.tensor(IMAGES, device="lazy") / 3.0,
            "torch, no array read": lambda: torch.arange(300, dtype=torch.float32, device="lazy") / 3.0,
            "TensorFlow": lambda: tf.constant(IMAGES) / 3.0,
            "TensorFlow, no array read": lambda: tf.range(300.0) / 3.0,
        }
        a, t, v = lazy_numpy.asarray(IMAGES), torch.tensor(IMAGES, device="lazy"), tf.constant(IMAGES)
        mixed = {
            "NumPy alone": lambda: a / 3.0,
            "torch reads": lambda: lazy_torch.from_lazy(a + 1) / 3.0,
            "TensorFlow reads": lambda: lazy_tf.from_lazy(a) / 3.0,
            "NumPy reads torch": lambda: lazy_numpy.from_lazy(t) / 3.0,
            "NumPy reads TensorFlow": lambda: lazy_numpy.from_lazy(v / 2.0) / 3.0,
        }
        lazy_core.barrier()
        for name, program in {**alone, **mixed}.items():
            gc.collect()
            lazy_core.barrier()
            cache.cache.clear()
            result = program()
            lazy_core.barrier()
            assert result is not None
            assert as_they_stand() == [name in mixed], name
