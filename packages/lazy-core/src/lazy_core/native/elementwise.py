"""Kernels of one operand, element by element: the families `arithmetic` and `elementwise_unary`.

Owns: NumPy's functions for them, and what those of ml_dtypes' floats and of activations need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Node
from . import special
from .registry import F32, Array, Function, builder, extension, in_pieces, kernel, kind, narrow, ufunc, ufuncs, widening

ufuncs(
    (0,),
    exp=np.exp,
    expm1=np.expm1,
    log=np.log,
    log1p=np.log1p,
    sqrt=np.sqrt,
    cbrt=np.cbrt,
    sin=np.sin,
    cos=np.cos,
    tan=np.tan,
    asin=np.arcsin,
    acos=np.arccos,
    atan=np.arctan,
    sinh=np.sinh,
    cosh=np.cosh,
    tanh=np.tanh,
    asinh=np.arcsinh,
    acosh=np.arccosh,
    atanh=np.arctanh,
    exp2=np.exp2,
    neg=np.negative,
    sign=np.sign,
    square=np.square,
    reciprocal=np.reciprocal,
    bitwise_not=np.invert,
)


def _always(value: bool) -> Function:
    return lambda x: np.full(x.shape, value)


def _of_floats(name: str, function: Any, integers: Any) -> None:
    """Operations that do something to floats only."""

    @builder(name, reuse=(0,))
    def build(node: Node) -> Function:
        dtype = node.inputs[0].shape.dtype
        if kind(dtype) in "biu":
            found: Function = integers
            return found
        return widening(function, dtype) if extension(dtype) else function


def _same(x: Array, out: Any = None) -> Array:
    return x


_of_floats("floor", np.floor, _same)
_of_floats("ceil", np.ceil, _same)
_of_floats("trunc", np.trunc, _same)
_of_floats("round", np.rint, _same)


def _predicate(name: str, function: Any, integers: bool) -> None:
    @builder(name)
    def build(node: Node) -> Function:
        dtype = node.inputs[0].shape.dtype
        if kind(dtype) in "biu":
            return _always(integers)
        return widening(function, dtype) if extension(dtype) else function


_predicate("isnan", np.isnan, False)
_predicate("isinf", np.isinf, False)
_predicate("isfinite", np.isfinite, True)


@kernel("identity")
def identity(x: Array) -> Array:
    """The operand itself: values are never written to."""
    return x


@builder("abs", reuse=(0,))
def absolute(node: Node) -> Function:
    """As NumPy's, whose bools and unsigned numbers stay as they are."""
    dtype = node.inputs[0].shape.dtype
    if kind(dtype) in "bu":
        return _same
    return widening(np.absolute, dtype) if extension(dtype) else np.absolute


@builder("signbit")
def signbit(node: Node) -> Function:
    """NumPy's converts integers to floats first; comparing is direct."""
    dtype = node.inputs[0].shape.dtype
    if kind(dtype) in "bu":
        return _always(False)
    if kind(dtype) == "i":
        zero = dtype.type(0)
        return lambda x: np.less(x, zero)
    return widening(np.signbit, dtype) if extension(dtype) else np.signbit


builder("logical_not")(ufunc(np.logical_not))


@kernel("conj")
def conj(x: Array) -> Array:
    """Real numbers as they are."""
    return np.conjugate(x) if x.dtype.kind == "c" else x


@kernel("real")
def real(x: Array) -> Array:
    """A view."""
    return x.real if x.dtype.kind == "c" else x


@kernel("imag")
def imag(x: Array) -> Array:
    """A view, or zeros of real numbers."""
    return x.imag if x.dtype.kind == "c" else np.zeros(x.shape, x.dtype)


@kernel("complex")
def complex_(re: Array, im: Array) -> Array:
    """Both parts written side by side: adding i times a part would spoil infinities."""
    result = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex64 if re.dtype == F32 else np.complex128)
    result.real = re
    result.imag = im
    return result


@builder("rsqrt", reuse=(0,))
def rsqrt(node: Node) -> Function:
    """1 / sqrt(x); narrow floats are rounded once."""
    dtype = node.inputs[0].shape.dtype

    def run(x: Array, out: Any = None) -> Array:
        root = np.sqrt(x, out=out)
        return np.reciprocal(root, out=root if root.__class__ is np.ndarray else None)

    return widening(run, dtype) if narrow(dtype) else run


def _scaled_log(name: str, function: Any, base: float) -> None:
    """Logarithms to a base: NumPy's are exact at the base's powers; of complex numbers they are quotients."""

    @builder(name, reuse=(0,))
    def build(node: Node) -> Function:
        dtype = node.inputs[0].shape.dtype
        if dtype.kind == "c":
            divisor = dtype.type(math.log(base))
            return lambda x, out=None: np.divide(np.log(x), divisor)
        return widening(function, dtype) if narrow(dtype) else function


_scaled_log("log2", np.log2, 2.0)
_scaled_log("log10", np.log10, 10.0)


# ------------------------------------------------------------------ activations and special functions


@builder("relu", reuse=(0,))
def relu(node: Node) -> Function:
    """max(x, 0), NaN staying NaN."""
    dtype = node.inputs[0].shape.dtype
    zero = dtype.type(0)
    if extension(dtype):
        return widening(lambda x: np.maximum(x, F32.type(0)), dtype)

    def run(x: Array, out: Any = None) -> Any:
        return np.maximum(x, zero, out=out)

    return run


def _pieces(name: str) -> Callable[[Function], Function]:
    """Register a function `fill(out, x, **attributes)` of pieces of wide floats."""

    def add(fill: Function) -> Function:
        @builder(name)
        def build(node: Node) -> Function:
            dtype = node.inputs[0].shape.dtype
            attributes = node.attrs.kwargs

            def piece(out: Array, x: Array) -> None:
                fill(out, x, **attributes)

            run = in_pieces(piece)
            return widening(run, dtype) if narrow(dtype) else run

        return fill

    return add


def _logistic(out: Array, x: Array) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, out.dtype.type(1), out=out)
    np.reciprocal(out, out=out)


@_pieces("sigmoid")
def sigmoid(out: Array, x: Array) -> None:
    """1 / (1 + exp(-x))."""
    _logistic(out, x)


@_pieces("silu")
def silu(out: Array, x: Array) -> None:
    """Times x."""
    _logistic(out, x)
    np.multiply(out, x, out=out)


@_pieces("gelu")
def gelu(out: Array, x: Array, approximate: bool) -> None:
    """x times the normal distribution function, by erf or by tanh of a cubic."""
    number = x.dtype.type
    if approximate:
        np.multiply(x, x, out=out)
        np.multiply(out, x, out=out)
        np.multiply(out, number(0.044715), out=out)
        np.add(out, x, out=out)
        np.multiply(out, number(math.sqrt(2 / math.pi)), out=out)
        np.tanh(out, out=out)
        np.add(out, number(1), out=out)
    else:
        np.add(special.erf(x * number(math.sqrt(0.5))), number(1), out=out)
    np.multiply(out, number(0.5), out=out)
    np.multiply(out, x, out=out)


@_pieces("softplus")
def softplus(out: Array, x: Array, beta: float, threshold: float) -> None:
    """log(1 + exp(beta x)) / beta, and x past the threshold."""
    number = x.dtype.type
    scaled = x * number(beta)
    np.abs(scaled, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.add(out, np.maximum(scaled, number(0)), out=out)
    np.divide(out, number(beta), out=out)
    np.copyto(out, x, where=scaled > number(threshold))


def _special(name: str, function: Any) -> None:
    @_pieces(name)
    def fill(out: Array, x: Array) -> None:
        out[...] = function(x)


_special("erf", special.erf)
_special("erfc", special.erfc)
_special("erfinv", special.erfinv)
_special("lgamma", special.lgamma)
_special("digamma", special.digamma)
