"""Ports to jax.numpy: compiled whole, loops as `fori_loop`, `scan` and `while_loop`, in 64 bits."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

jax.config.update("jax_enable_x64", True)

WITHOUT: dict[str, str] = {}


def convert(array: Any) -> Any:
    """An input as the ports take it."""
    return jnp.asarray(array)


@jax.jit
def jacobi_2d(grid: Any) -> Any:
    def step(_: int, both: Any) -> Any:
        a, b = both
        return b.at[1:-1, 1:-1].set(0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])), a

    return lax.fori_loop(0, 20, step, (grid, grid))[0]


def _heat(x: Any, y: Any) -> Any:
    return y.at[1:-1, 1:-1, 1:-1].set(
        0.125 * (x[2:, 1:-1, 1:-1] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1])
        + 0.125 * (x[1:-1, 2:, 1:-1] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1])
        + 0.125 * (x[1:-1, 1:-1, 2:] - 2.0 * x[1:-1, 1:-1, 1:-1] + x[1:-1, 1:-1, :-2])
        + x[1:-1, 1:-1, 1:-1]
    )


@jax.jit
def heat_3d(cube: Any) -> Any:
    def step(_: int, both: Any) -> Any:
        a, b = both
        b = _heat(a, b)
        return _heat(b, a), b

    return lax.fori_loop(0, 10, step, (cube, cube))[0]


@jax.jit
def fdtd_2d(source: Any) -> Any:
    def step(t: int, fields: Any) -> Any:
        ex, ey, hz = fields
        ey = ey.at[0, :].set(source[t])
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return ex, ey, hz

    return lax.fori_loop(0, 30, step, (jnp.zeros((600, 700)),) * 3)[2]


@jax.jit
def advection() -> Any:
    u = jnp.exp(-((jnp.linspace(0, 1, 400_000) - 0.3) ** 2) / 0.002)
    return lax.fori_loop(0, 60, lambda _, u: u.at[1:].set(u[1:] - 0.4 * (u[1:] - u[:-1])), u)


@jax.jit
def n_body(where: Any, speed: Any, mass: Any) -> Any:
    def step(_: int, state: Any) -> Any:
        pos, vel = state
        apart = pos[None, :, :] - pos[:, None, :]
        inverse = ((apart**2).sum(axis=2) + 0.01) ** -1.5
        vel = vel + 0.01 * (apart * (mass[None, :, :] * inverse[:, :, None])).sum(axis=1)
        return pos + 0.01 * vel, vel

    return lax.fori_loop(0, 10, step, (where, speed))[0]


@jax.jit
def k_means(points: Any, centres: Any) -> Any:
    def step(_: int, c: Any) -> Any:
        nearest = ((points[:, None, :] - c[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        one_hot = jax.nn.one_hot(nearest, 8, dtype=points.dtype)
        return (one_hot.T @ points) / one_hot.sum(axis=0)[:, None]

    return lax.fori_loop(0, 3, step, centres)


def _normal(d: Any) -> Any:
    k = 1.0 / (1.0 + 0.2316419 * jnp.abs(d))
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    r = 0.39894228040143267 * jnp.exp(-0.5 * d * d) * tail
    return jnp.where(d > 0, 1.0 - r, r)


@jax.jit
def black_scholes(spot: Any, strike: Any, years: Any) -> Any:
    root = jnp.sqrt(years)
    d1 = (jnp.log(spot / strike) + (0.02 + 0.5 * 0.3 * 0.3) * years) / (0.3 * root)
    d2 = d1 - 0.3 * root
    n1, n2, discount = _normal(d1), _normal(d2), jnp.exp(-0.02 * years)
    return spot * n1 - strike * discount * n2 + strike * discount * (1.0 - n2) - spot * (1.0 - n1)


@jax.jit
def mandelbrot() -> Any:
    c = jnp.linspace(-2, 0.6, 500)[None, :] + 1j * jnp.linspace(-1.2, 1.2, 400)[:, None]

    def step(_: int, state: Any) -> Any:
        z, count = state
        z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
        return z, count + (jnp.abs(z) < 2)

    return lax.fori_loop(0, 20, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int64)))[1]


@jax.jit
def softmax(logits: Any) -> Any:
    return jax.nn.softmax(logits, axis=1)


@jax.jit
def convolution(image: Any, kernel: Any) -> Any:
    out = jnp.zeros((1000, 1000))
    for i in range(5):
        for j in range(5):
            out += kernel[i, j] * image[i : i + 1000, j : j + 1000]
    return jnp.maximum(out, 0.0)


@jax.jit
def lu(square: Any) -> Any:
    rows = jnp.arange(square.shape[0])

    def step(k: int, a: Any) -> Any:
        below = rows > k
        column = jnp.where(below, a[:, k] / a[k, k], a[:, k])
        a = a.at[:, k].set(column)
        return a - jnp.outer(jnp.where(below, column, 0.0), jnp.where(below, a[k], 0.0))

    return lax.fori_loop(0, 499, step, square)


@jax.jit
def cholesky(positive: Any) -> Any:
    rows = jnp.arange(positive.shape[0])

    def step(j: int, a: Any) -> Any:
        row = jnp.where(rows < j, a[j], 0.0)
        a = a.at[j, j].set(jnp.sqrt(a[j, j] - row @ row))
        return a.at[:, j].set(jnp.where(rows > j, (a[:, j] - a @ row) / a[j, j], a[:, j]))

    return lax.fori_loop(0, positive.shape[0], step, positive)


@jax.jit
def scalar_recurrence(series: Any) -> Any:
    def step(last: Any, x: Any) -> Any:
        new = 0.9 * last + x
        return new, new

    return jnp.concatenate([jnp.zeros(1), lax.scan(step, 0.0, series[1:])[1]])


@jax.jit
def scalar_arithmetic() -> Any:
    def step(_: int, state: Any) -> Any:
        x, total = state
        x = 3.7 * x * (1.0 - x)
        return x, total + x

    x, total = lax.fori_loop(0, 100_000, step, (0.3, 0.0))
    return jnp.array([total, x])


@jax.jit
def tiny_chain(small: Any) -> Any:
    def step(_: int, v: Any) -> Any:
        v = small @ v
        return jnp.maximum(v / jnp.sqrt((v * v).sum()), -1.0) + 0.1

    return lax.fori_loop(0, 5_000, step, jnp.ones(4))


@jax.jit
def middle_chain(middle: Any) -> Any:
    def step(_: int, v: Any) -> Any:
        v = jnp.maximum(v * 0.99 + middle, -1.0)
        return v - v.mean()

    return lax.fori_loop(0, 1_000, step, middle)


@jax.jit
def element_loop(plate: Any) -> Any:
    return plate * 2.0


@jax.jit
def spectrum(signal: Any) -> Any:
    power = jnp.abs(jnp.fft.rfft(signal * jnp.hanning(8192), axis=1)) ** 2
    return jnp.log10(power.mean(axis=0) + 1e-12)


@jax.jit
def gradient_descent(design: Any, answers: Any) -> Any:
    def step(_: int, w: Any) -> Any:
        return w - 0.1 * (design.T @ (design @ w - answers) / 20_000 + 0.01 * w)

    return lax.fori_loop(0, 40, step, jnp.zeros(40))


@jax.jit
def converge() -> Any:
    def step(state: Any) -> Any:
        a, _, rounds = state
        new = a.at[1:-1, 1:-1].set(0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]))
        return new, jnp.abs(new - a).max(), rounds + 1

    start = jnp.zeros((400, 400)).at[0, :].set(1.0), jnp.inf, 0
    return lax.while_loop(lambda s: (s[1] >= 1e-6) & (s[2] < 60), step, start)[0]
