"""Ports to numexpr: the elementwise expressions of a program as strings, and NumPy for the rest."""

from __future__ import annotations

from typing import Any

import numexpr
import numpy as np

evaluate = numexpr.evaluate

_NOT_ELEMENTWISE = "the program is no elementwise expression of large arrays"
WITHOUT = dict.fromkeys(
    "lu cholesky scalar_recurrence scalar_arithmetic tiny_chain element_loop gradient_descent".split(), _NOT_ELEMENTWISE
)


def convert(array: Any) -> Any:
    """An input as the ports take it."""
    return array


def jacobi_2d(grid: Any) -> Any:
    a, b = grid.copy(), grid.copy()
    for _ in range(20):
        c, w, e, s, n = a[1:-1, 1:-1], a[1:-1, :-2], a[1:-1, 2:], a[2:, 1:-1], a[:-2, 1:-1]  # noqa: F841
        evaluate("0.2 * (c + w + e + s + n)", out=b[1:-1, 1:-1])
        a, b = b, a
    return a


def heat_3d(cube: Any) -> Any:
    a, b = cube.copy(), cube.copy()
    for _ in range(10):
        for x, y in ((a, b), (b, a)):
            names = {
                "c": x[1:-1, 1:-1, 1:-1],
                "u": x[2:, 1:-1, 1:-1],
                "d": x[:-2, 1:-1, 1:-1],
                "n": x[1:-1, 2:, 1:-1],
                "s": x[1:-1, :-2, 1:-1],
                "e": x[1:-1, 1:-1, 2:],
                "w": x[1:-1, 1:-1, :-2],
            }
            evaluate("0.125*(u - 2.0*c + d) + 0.125*(n - 2.0*c + s) + 0.125*(e - 2.0*c + w) + c", names, out=y[1:-1, 1:-1, 1:-1])
    return a


def fdtd_2d(source: Any) -> Any:
    ex, ey, hz = np.zeros((600, 700)), np.zeros((600, 700)), np.zeros((600, 700))
    for t in range(30):
        ey[0, :] = source[t]
        for target, one, two in ((ey[1:, :], hz[1:, :], hz[:-1, :]), (ex[:, 1:], hz[:, 1:], hz[:, :-1])):
            evaluate("target - 0.5 * (one - two)", {"target": target, "one": one, "two": two}, out=target)
        inner = hz[:-1, :-1]
        names = {"inner": inner, "a": ex[:-1, 1:], "b": ex[:-1, :-1], "c": ey[1:, :-1], "d": ey[:-1, :-1]}
        evaluate("inner - 0.7 * (a - b + c - d)", names, out=inner)
    return hz


def advection() -> Any:
    x = np.linspace(0, 1, 400_000)  # noqa: F841
    u = evaluate("exp(-((x - 0.3) ** 2) / 0.002)")
    for _ in range(60):
        ahead, behind = u[1:], u[:-1].copy()  # noqa: F841
        evaluate("ahead - 0.4 * (ahead - behind)", out=u[1:])
    return u


def n_body(where: Any, speed: Any, mass: Any) -> Any:
    pos, vel = where.copy(), speed.copy()
    for _ in range(10):
        one, other, weight = pos[None, :, :], pos[:, None, :], mass[None, :, :]  # noqa: F841
        apart = evaluate("one - other")  # noqa: F841
        square = evaluate("sum(apart ** 2, axis=2)")[:, :, None]  # noqa: F841
        vel += 0.01 * evaluate("sum(apart * (weight * (square + 0.01) ** -1.5), axis=1)")
        pos += 0.01 * vel
    return pos


def k_means(points: Any, centres: Any) -> Any:
    c = centres
    for _ in range(3):
        p, q = points[:, None, :], c[None, :, :]  # noqa: F841
        nearest = evaluate("sum((p - q) ** 2, axis=2)").argmin(axis=1)
        one_hot = (nearest[:, None] == np.arange(8)[None, :]).astype(np.float64)
        c = (one_hot.T @ points) / one_hot.sum(axis=0)[:, None]
    return c


def _normal(d: Any) -> Any:
    k = evaluate("1.0 / (1.0 + 0.2316419 * abs(d))")  # noqa: F841
    r = evaluate(  # noqa: F841
        "0.39894228040143267 * exp(-0.5 * d * d) * k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978"
        " + k * 1.330274429))))"
    )
    return evaluate("where(d > 0, 1.0 - r, r)")


def black_scholes(spot: Any, strike: Any, years: Any) -> Any:
    d1 = evaluate("(log(spot / strike) + 0.065 * years) / (0.3 * sqrt(years))")
    d2 = evaluate("d1 - 0.3 * sqrt(years)")
    n1, n2 = _normal(d1), _normal(d2)  # noqa: F841
    owed = evaluate("strike * exp(-0.02 * years)")  # noqa: F841
    return evaluate("spot * n1 - owed * n2 + owed * (1.0 - n2) - spot * (1.0 - n1)")


def mandelbrot() -> Any:
    c = np.linspace(-2, 0.6, 500)[None, :] + 1j * np.linspace(-1.2, 1.2, 400)[:, None]
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for _ in range(20):
        z = evaluate("where(abs(z).real < 2, z * z + c, z)", {"z": z, "c": c})
        count += evaluate("abs(z).real < 2", {"z": z})
    return count


def softmax(logits: Any) -> Any:
    top = logits.max(axis=1, keepdims=True)  # noqa: F841
    e = evaluate("exp(logits - top)")
    total = e.sum(axis=1, keepdims=True)  # noqa: F841
    return evaluate("e / total")


def convolution(image: Any, kernel: Any) -> Any:
    names = {f"x{i}{j}": image[i : i + 1000, j : j + 1000] for i in range(5) for j in range(5)}
    out = np.zeros((1000, 1000))
    for i in range(5):
        row = {f"k{j}": kernel[i, j] for j in range(5)}
        parts = {f"x{j}": names[f"x{i}{j}"] for j in range(5)}
        evaluate("out + k0*x0 + k1*x1 + k2*x2 + k3*x3 + k4*x4", {"out": out, **row, **parts}, out=out)
    return np.maximum(out, 0.0)


def middle_chain(middle: Any) -> Any:
    v = middle.copy()
    for _ in range(1_000):
        v = evaluate("where(v * 0.99 + middle > -1.0, v * 0.99 + middle, -1.0)")
        v = v - v.mean()
    return v


def spectrum(signal: Any) -> Any:
    f = np.fft.rfft(signal * np.hanning(8192), axis=1)
    re, im = f.real, f.imag  # noqa: F841
    return np.log10(evaluate("re * re + im * im").mean(axis=0) + 1e-12)


def converge() -> Any:
    a = np.zeros((400, 400))
    a[0, :] = 1.0
    for _ in range(60):
        old = a.copy()
        n, s, w, e = old[:-2, 1:-1], old[2:, 1:-1], old[1:-1, :-2], old[1:-1, 2:]  # noqa: F841
        evaluate("0.25 * (n + s + w + e)", out=a[1:-1, 1:-1])
        if evaluate("max(abs(a - old))") < 1e-6:
            break
    return a
