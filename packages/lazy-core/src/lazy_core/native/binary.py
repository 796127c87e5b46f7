"""Kernels of two operands of one dtype, element by element: the family `binary`.

Owns: NumPy's functions for them.  NumPy divides integers by zero to zero as the operations do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Const, Node
from .registry import Array, Function, builder, extension, kind, narrow, ufuncs, widening

ufuncs(
    (0, 1),
    add=np.add,
    sub=np.subtract,
    mul=np.multiply,
    div=np.divide,
    floor_div=np.floor_divide,
    remainder=np.remainder,
    fmod=np.fmod,
    atan2=np.arctan2,
    maximum=np.maximum,
    minimum=np.minimum,
    fmax=np.fmax,
    fmin=np.fmin,
    copysign=np.copysign,
    nextafter=np.nextafter,
    bitwise_and=np.bitwise_and,
    bitwise_or=np.bitwise_or,
    bitwise_xor=np.bitwise_xor,
    shift_left=np.left_shift,
    shift_right=np.right_shift,
)


def _in_single(name: str, function: Any) -> None:
    """Operations that round more than once: narrow floats go through f32."""

    @builder(name, reuse=(0, 1))
    def build(node: Node) -> Function:
        dtype = node.inputs[0].shape.dtype
        return widening(function, dtype) if narrow(dtype) else function


_in_single("hypot", np.hypot)


def logaddexp_complex(x: Array, y: Array, out: Any = None) -> Any:
    """Counted from the operand with the larger real part, x of equal ones."""
    less = x.real < y.real
    small: Array = np.where(less, x, y)
    big: Array = np.where(less, y, x)
    with np.errstate(all="ignore"):
        result = np.log1p(np.exp(small - big)) + big
        result = np.where(small.real - big.real == -np.inf, big, result)
        both = np.where(small.real < 0, small, np.log(np.exp(small) + np.exp(big)))
    result = np.where((small.real == big.real) & np.isinf(small.real), both, result)
    result = np.where(np.isnan(x) | np.isnan(y), x.dtype.type(complex(np.nan, np.nan)), result).astype(x.dtype, copy=False)
    if out is None:
        return result
    np.copyto(out, result)
    return out


@builder("logaddexp", reuse=(0, 1))
def logaddexp(node: Node) -> Function:
    """Of complex numbers NumPy has none."""
    dtype = node.inputs[0].shape.dtype
    if kind(dtype) == "c":
        return logaddexp_complex
    return widening(np.logaddexp, dtype) if narrow(dtype) else np.logaddexp


@builder("trunc_div", reuse=(0, 1))
def trunc_div(node: Node) -> Function:
    """The quotient rounded to zero: of integers the one rounded down, corrected where signs differ."""
    dtype = node.inputs[0].shape.dtype
    if kind(dtype) == "u":
        return np.floor_divide
    if kind(dtype) == "i":
        return _trunc_div_signed

    def floats(x: Array, y: Array, out: Any = None) -> Any:
        ratio = np.divide(x, y, out=out)
        return np.trunc(ratio, out=ratio if ratio.__class__ is np.ndarray else None)

    if extension(dtype):  # rounded before it is truncated, as the operation's lowering does
        divide, trunc = widening(np.divide, dtype), widening(np.trunc, dtype)
        return lambda x, y, out=None: trunc(divide(x, y, out=out), out=out)
    return floats


def _trunc_div_signed(x: Array, y: Array, out: Any = None) -> Any:
    up = np.less(x, 0) != np.less(y, 0)
    up &= np.remainder(x, y) != 0
    return np.add(np.floor_divide(x, y), up, out=out, dtype=x.dtype)


@builder("pow", reuse=(0,))
def power(node: Node) -> Function:
    """Constant exponents as the operation lowers them; integers wrap and negative exponents count as 0."""
    dtype = node.inputs[0].shape.dtype
    exponent = node.inputs[1]
    function: Function
    constant = exponent.value.item() if isinstance(exponent, Const) else None
    if constant == 1 and node.inputs[0].shape is node.outputs[0].shape:
        return lambda x, y, out=None: x
    if constant in _PRODUCTS and node.inputs[0].shape is node.outputs[0].shape:
        function = _PRODUCTS[constant]
    elif kind(dtype) in "fc" and constant == -1:
        function = lambda x, y, out=None: np.reciprocal(x, out=out)  # noqa: E731
    elif kind(dtype) in "fc" and constant == 0.5:
        function = lambda x, y, out=None: np.sqrt(x, out=out)  # noqa: E731
    elif kind(dtype) == "i":
        function = lambda x, y, out=None: np.power(x, np.maximum(y, dtype.type(0)), out=out)  # noqa: E731
    else:
        function = np.power
    return widening(function, dtype) if extension(dtype) else function


def _cube(x: Array, y: Array, out: Any = None) -> Any:
    squared = np.multiply(x, x)
    return np.multiply(squared, x, out=squared if squared.__class__ is np.ndarray else None)


_PRODUCTS: dict[Any, Function] = {2: lambda x, y, out=None: np.multiply(x, x, out=out), 3: _cube}
