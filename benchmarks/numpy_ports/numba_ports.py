"""Ports to numba: explicit loops, compiled by `njit`; single-threaded, without fast math."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

njit = numba.njit

WITHOUT = {"spectrum": "numba has no FFT"}


def convert(array: Any) -> Any:
    """An input as the ports take it."""
    return array


@njit
def jacobi_2d(grid):
    a, b = grid.copy(), grid.copy()
    for _ in range(20):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        a, b = b, a
    return a


@njit
def heat_3d(cube):
    a, b = cube.copy(), cube.copy()
    for _ in range(20):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                for k in range(1, a.shape[2] - 1):
                    x = a[i, j, k]
                    b[i, j, k] = (
                        0.125 * (a[i + 1, j, k] - 2.0 * x + a[i - 1, j, k])
                        + 0.125 * (a[i, j + 1, k] - 2.0 * x + a[i, j - 1, k])
                        + 0.125 * (a[i, j, k + 1] - 2.0 * x + a[i, j, k - 1])
                        + x
                    )
        a, b = b, a
    return a


@njit
def fdtd_2d(source):
    n, m = 600, 700
    ex, ey, hz = np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m))
    for t in range(30):
        ey[0, :] = source[t]
        for i in range(n):
            for j in range(m):
                if i > 0:
                    ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
                if j > 0:
                    ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(n - 1):
            for j in range(m - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return hz


@njit
def advection():
    u = np.exp(-((np.linspace(0, 1, 400_000) - 0.3) ** 2) / 0.002)
    for _ in range(60):
        behind = u[0]
        for i in range(1, u.shape[0]):
            here = u[i]
            u[i] = here - 0.4 * (here - behind)
            behind = here
    return u


@njit
def n_body(where, speed, mass):
    pos, vel = where.copy(), speed.copy()
    n = pos.shape[0]
    for _ in range(10):
        for i in range(n):
            fx = fy = fz = 0.0
            for j in range(n):
                x, y, z = pos[j, 0] - pos[i, 0], pos[j, 1] - pos[i, 1], pos[j, 2] - pos[i, 2]
                weight = mass[j, 0] * (x * x + y * y + z * z + 0.01) ** -1.5
                fx += x * weight
                fy += y * weight
                fz += z * weight
            vel[i, 0] += 0.01 * fx
            vel[i, 1] += 0.01 * fy
            vel[i, 2] += 0.01 * fz
        pos += 0.01 * vel
    return pos


@njit
def k_means(points, centres):
    c = centres.copy()
    for _ in range(3):
        sums, counts = np.zeros_like(c), np.zeros(c.shape[0])
        for p in range(points.shape[0]):
            best, nearest = np.inf, 0
            for k in range(c.shape[0]):
                distance = 0.0
                for d in range(c.shape[1]):
                    distance += (points[p, d] - c[k, d]) ** 2
                if distance < best:
                    best, nearest = distance, k
            counts[nearest] += 1.0
            for d in range(c.shape[1]):
                sums[nearest, d] += points[p, d]
        for k in range(c.shape[0]):
            c[k] = sums[k] / counts[k]
    return c


@njit
def _normal(d):
    k = 1.0 / (1.0 + 0.2316419 * abs(d))
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    r = 0.39894228040143267 * math.exp(-0.5 * d * d) * tail
    return 1.0 - r if d > 0 else r


@njit
def black_scholes(spot, strike, years):
    out = np.empty_like(spot)
    for i in range(spot.shape[0]):
        root = math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (0.02 + 0.5 * 0.3 * 0.3) * years[i]) / (0.3 * root)
        n1, n2 = _normal(d1), _normal(d1 - 0.3 * root)
        owed = strike[i] * math.exp(-0.02 * years[i])
        out[i] = spot[i] * n1 - owed * n2 + owed * (1.0 - n2) - spot[i] * (1.0 - n1)
    return out


@njit
def mandelbrot():
    x, y = np.linspace(-2, 0.6, 500), np.linspace(-1.2, 1.2, 400)
    count = np.zeros((400, 500), np.int64)
    for i in range(400):
        for j in range(500):
            c = complex(x[j], y[i])
            z = 0j
            for _ in range(20):
                if abs(z) < 2:
                    z = z * z + c
                if abs(z) < 2:
                    count[i, j] += 1
    return count


@njit
def softmax(logits):
    out = np.empty_like(logits)
    for i in range(logits.shape[0]):
        row = np.exp(logits[i] - logits[i].max())
        out[i] = row / row.sum()
    return out


@njit
def convolution(image, kernel):
    out = np.zeros((1000, 1000))
    for i in range(5):
        for j in range(5):
            for r in range(1000):
                for c in range(1000):
                    out[r, c] += kernel[i, j] * image[r + i, c + j]
    return np.maximum(out, 0.0)


@njit
def lu(square):
    a = square.copy()
    n = a.shape[0]
    for k in range(n - 1):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return a


@njit
def cholesky(positive):
    a = positive.copy()
    n = a.shape[0]
    for j in range(n):
        for i in range(j, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = math.sqrt(total) if i == j else total / a[j, j]
    return a


@njit
def scalar_recurrence(series):
    out = np.zeros(series.shape[0])
    for i in range(1, series.shape[0]):
        out[i] = 0.9 * out[i - 1] + series[i]
    return out


@njit
def scalar_arithmetic():
    x, total = 0.3, 0.0
    for _ in range(100_000):
        x = 3.7 * x * (1.0 - x)
        total = total + x
    return np.array([total, x])


@njit
def tiny_chain(small):
    v = np.ones(4)
    for _ in range(5_000):
        v = small @ v
        v = v / np.sqrt((v * v).sum())
        v = np.maximum(v, -1.0) + 0.1
    return v


@njit
def middle_chain(middle):
    v = middle.copy()
    for _ in range(1_000):
        v = np.maximum(v * 0.99 + middle, -1.0)
        v = v - v.mean()
    return v


@njit
def element_loop(plate):
    b = np.zeros((300, 300))
    for i in range(300):
        for j in range(300):
            b[i, j] = plate[i, j] * 2.0
    return b


@njit
def gradient_descent(design, answers):
    w = np.zeros(40)
    for _ in range(40):
        residual = design @ w - answers
        w = w - 0.1 * (design.T @ residual / 20_000 + 0.01 * w)
    return w


@njit
def converge():
    a = np.zeros((400, 400))
    a[0, :] = 1.0
    for _ in range(60):
        old = a.copy()
        change = 0.0
        for i in range(1, 399):
            for j in range(1, 399):
                a[i, j] = 0.25 * (old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1])
                change = max(change, abs(a[i, j] - old[i, j]))
        if change < 1e-6:
            break
    return a
