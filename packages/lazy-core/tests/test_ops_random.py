"""Random streams: the published generator, states that advance, and distributions."""

import jax
import numpy as np
import pytest

import lazy_core
from lazy_core import ops, random, values

# Known answers of Philox4x32-10 from the Random123 distribution: counter words, key words, result words.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def draw(op, *args, seed=0, **attributes):
    with jax.enable_x64(True):
        return [np.asarray(r) for r in op.fn(random.make_state(seed), *args, **attributes)]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    """Bit for bit the generator of the paper."""
    with jax.enable_x64(True):
        words = [jax.numpy.full((1,), w, np.uint32) for w in (*key, *counter)]
        got = random.philox(tuple(words[:2]), tuple(words[2:]))
    assert tuple(int(w[0]) for w in got) == expected


def test_first_block_is_the_encrypted_counter():
    """A draw of four words from a fresh state of seed 0 is the first known answer, and moves the counter by one block."""
    bits, following = draw(ops.random_bits, dims=(4,), dtype=np.dtype(np.uint32))
    assert bits.tolist() == list(KNOWN_ANSWERS[0][2])
    assert following.tolist() == [0, 1]


def test_counter_advances_by_the_blocks_used():
    """Two draws from one stream never share a block."""
    for dims, dtype, blocks in (
        ((5,), np.uint32, 2),
        ((4, 4), np.uint32, 4),
        ((3,), np.uint64, 2),
        ((), np.uint8, 1),
        ((0,), np.uint32, 0),
    ):
        assert draw(ops.random_bits, dims=dims, dtype=np.dtype(dtype))[1].tolist() == [0, blocks]


def test_same_state_gives_the_same_numbers_and_the_next_state_others():
    """A draw is a function of its state."""
    first, state = draw(ops.random_uniform, dims=(100,), dtype=np.dtype(np.float32))
    again, _ = draw(ops.random_uniform, dims=(100,), dtype=np.dtype(np.float32))
    with jax.enable_x64(True):
        second = np.asarray(ops.random_uniform.fn(state, dims=(100,), dtype=np.dtype(np.float32))[0])
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == second)


def test_two_recorded_draws_differ_and_a_loop_compiles_once():
    """The state is a value threaded through the trace: no constant mask, no new program each step."""
    state = values.from_host(random.make_state(7))
    lazy_core.barrier()
    lazy_core.reset_report()
    seen = []
    for _ in range(4):
        a, state = ops.random_uniform(state, dims=(3,), dtype=np.dtype(np.float32))
        b, state = ops.random_uniform(state, dims=(3,), dtype=np.dtype(np.float32))
        lazy_core.barrier()
        seen += [values.to_host(a).tolist(), values.to_host(b).tolist()]
    assert len({tuple(s) for s in seen}) == 8
    assert lazy_core.report().counters["compiles"] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform_is_in_the_half_open_unit_interval(dtype):
    """Mean and variance of a uniform distribution; 1 never occurs."""
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    drawn = draw(ops.random_uniform, dims=(20_000,), dtype=dtype)[0].astype(np.float64)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.var() - 1 / 12) < 0.003


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_has_its_moments(dtype):
    """Mean 0, variance 1, no skew, kurtosis 3; symmetric and finite."""
    drawn = draw(ops.random_normal, dims=(40_000,), dtype=np.dtype(dtype))[0].astype(np.float64)
    assert np.all(np.isfinite(drawn))
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.var() - 1) < 0.03
    assert abs((drawn**3).mean()) < 0.08
    assert abs((drawn**4).mean() - 3) < 0.2


def test_integers_cover_their_range():
    """Every value of [low, high) and no other, about equally often; 64-bit ranges too."""
    drawn = draw(ops.random_randint, np.int64(-3), np.int64(4), dims=(7000,), dtype=np.dtype(np.int64))[0]
    found, counts = np.unique(drawn, return_counts=True)
    assert found.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert counts.min() > 850
    wide = draw(ops.random_randint, np.int64(-(2**62)), np.int64(2**62), dims=(1000,), dtype=np.dtype(np.int64))[0]
    assert wide.min() < -(2**60)
    assert wide.max() > 2**60
    assert draw(ops.random_randint, np.int32(5), np.int32(5), dims=(3,), dtype=np.dtype(np.int32))[0].tolist() == [5, 5, 5]


def test_bernoulli_is_exact_at_the_ends():
    """Never at 0, always at 1, and as often as asked between."""
    drawn = draw(ops.random_bernoulli, np.array([0.0, 1.0, 0.3], np.float32), dims=(5000, 3))[0]
    assert not drawn[:, 0].any()
    assert drawn[:, 1].all()
    assert abs(drawn[:, 2].mean() - 0.3) < 0.03


def test_permutation_is_one():
    """Every index once, in another order for another seed."""
    drawn = draw(ops.random_permutation, n=50, dtype=np.dtype(np.int64))[0]
    assert sorted(drawn.tolist()) == list(range(50))
    assert drawn.tolist() != draw(ops.random_permutation, seed=1, n=50, dtype=np.dtype(np.int64))[0].tolist()
