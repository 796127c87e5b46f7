"""Compiled programs of arrays that are large enough for XLA's libraries of kernels give what NumPy gives, dims of one element included."""

from __future__ import annotations

import numpy as np
import pytest

import lazy_numpy


def distances(points, centres):
    """Squared distances; the operands are broadcast along dims of their own."""
    return ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)


def test_distances_and_the_nearest_of_them():
    rng = np.random.default_rng(3)
    points, centres = rng.standard_normal((60_000, 16)), rng.standard_normal((8, 16))
    want = distances(points, centres)
    got = distances(lazy_numpy.array(points), centres)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(distances(lazy_numpy.array(points), centres).argmin(axis=1)), want.argmin(axis=1))


def draw(rng):
    """Leaves, and statements on the first of them: reshapes, broadcasts, arithmetic and reductions."""
    dtype = rng.choice([np.float32, np.float64])
    dims = tuple(rng.choice([1, 2, 7, 16, 64, 200], rng.integers(2, 4)).tolist())
    leaves, statements = [rng.uniform(0.5, 2.0, dims).astype(dtype)], []
    for kind in rng.choice(["unary", "scalar", "leaf", "insert", "remove", "broadcast", "reduce", "flatten", "transpose"], 8).tolist():
        axis = int(rng.integers(0, len(dims))) if dims else 0
        if kind == "unary":
            name = rng.choice(["exp", "sqrt", "negative", "square"])
            statements.append(lambda xs, x, name=name: getattr(np, name)(-x if name == "exp" else abs(x)))
        elif kind == "scalar":
            value = float(rng.uniform(0.5, 2.0))
            statements.append(lambda xs, x, value=value: (x + value) / 3.0)
        elif kind == "leaf":
            leaves.append(rng.uniform(0.5, 2.0, [n if rng.random() < 0.6 else 1 for n in dims]).astype(dtype))
            last = len(leaves) - 1
            statements.append(lambda xs, x, last=last: x - xs[last])
        elif kind == "insert" and len(dims) < 4:
            dims = (*dims[:axis], 1, *dims[axis:])
            statements.append(lambda xs, x, dims=dims: x.reshape(dims))
        elif kind == "remove" and 1 in dims:
            axis = dims.index(1)
            dims = (*dims[:axis], *dims[axis + 1 :])
            statements.append(lambda xs, x, dims=dims: x.reshape(dims))
        elif kind == "broadcast" and 1 in dims and np.prod(dims) < 100_000:
            axis = dims.index(1)
            dims = (*dims[:axis], 8, *dims[axis + 1 :])
            statements.append(lambda xs, x, dims=dims: np.broadcast_to(x, dims) * 1.0)
        elif kind == "reduce" and dims:
            name, keep = rng.choice(["sum", "max", "mean"]), bool(rng.random() < 0.5)
            dims = (*dims[:axis], *((1,) if keep else ()), *dims[axis + 1 :])
            statements.append(lambda xs, x, name=name, axis=axis, keep=keep: getattr(x, name)(axis=axis, keepdims=keep))
        elif kind == "flatten" and len(dims) > 1:
            dims = (int(np.prod(dims)),)
            statements.append(lambda xs, x: x.reshape(-1))
        elif kind == "transpose":
            dims = dims[::-1]
            statements.append(lambda xs, x: x.transpose())
    return leaves, statements


def run(leaves, statements):
    x = leaves[0]
    for statement in statements:
        x = statement(leaves, x)
    return x


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_reshapes_broadcasts_and_reductions(seed):
    leaves, statements = draw(np.random.default_rng(seed))
    want = run(leaves, statements)
    got = run([lazy_numpy.array(x) for x in leaves], statements)
    tolerance = 1e-4 if leaves[0].dtype == np.float32 else 1e-11
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance * float(np.abs(want).max(initial=1.0)))
