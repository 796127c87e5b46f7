"""Convolutions of any number of spatial dims, and their exact transposes.

Owns: conv and its gradients, with layouts, strides, padding, dilations and groups as attributes.  The gradients are the linear transposes
of conv itself, so they agree with it for every combination.  Imports the registry and jax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..deferred import jax, lax
from ..errors import DtypeError, ShapeError
from .arithmetic import kind
from .linalg import FULL, accumulator
from .registry import COMPLEX, FLOAT, Sample, abstract, describe, numbers, op, same_dtype

Dims = Sequence[int]
Padding = Sequence[tuple[int, int]]
Spec = tuple[str, str, str]

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]


def _case(dims: Any, filter_dims: Any, strides: Any, padding: Any, lhs: Any, rhs: Any, groups: int, spec: Spec) -> Case:
    """Input dims, filter dims and attributes of a sample."""
    names = {"strides": strides, "padding": padding, "lhs_dilation": lhs, "rhs_dilation": rhs, "groups": groups, "spec": spec}
    return dims, filter_dims, names


_NCHW = ("NCHW", "OIHW", "NCHW")
_CASES = (
    _case((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, _NCHW),
    _case((2, 7, 8, 4), (3, 2, 2, 6), (2, 3), ((0, 1), (2, 0)), (1, 1), (1, 2), 2, ("NHWC", "HWIO", "NHWC")),
    _case((1, 2, 9), (2, 2, 3), (2,), ((0, 0),), (2,), (1,), 1, ("NCW", "OIW", "NCW")),
    _case((1, 4, 5, 5), (4, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 4, _NCHW),
)


def _samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, filter_dims, attributes in _CASES:
        yield Sample((numbers(rng, dims, dtype, -1, 1), numbers(rng, filter_dims, dtype, -1, 1)), attributes)


def _output_dims(dims: tuple[int, ...], filter_dims: tuple[int, ...], attributes: dict[str, Any]) -> tuple[int, ...]:
    x, w = (abstract(d, np.dtype(np.float32)) for d in (dims, filter_dims))
    return tuple(jax.eval_shape(lambda a, b: _conv(a, b, **attributes), x, w).shape)


def _input_grad_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, filter_dims, attributes in _CASES:
        g = numbers(rng, _output_dims(dims, filter_dims, attributes), dtype, -1, 1)
        yield Sample((g, numbers(rng, filter_dims, dtype, -1, 1)), {"input_dims": dims, **attributes})


def _filter_grad_samples(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
    for dims, filter_dims, attributes in _CASES:
        g = numbers(rng, _output_dims(dims, filter_dims, attributes), dtype, -1, 1)
        yield Sample((numbers(rng, dims, dtype, -1, 1), g), {"filter_dims": filter_dims, **attributes})


def _conv(x: Any, w: Any, *, strides: Dims, padding: Padding, lhs_dilation: Dims, rhs_dilation: Dims, groups: int, spec: Spec) -> Any:
    result = lax.conv_general_dilated(
        x,
        w,
        tuple(strides),
        [(lo, hi) for lo, hi in padding],
        tuple(lhs_dilation),
        tuple(rhs_dilation),
        dimension_numbers=spec,
        feature_group_count=groups,
        precision=FULL,
        preferred_element_type=accumulator(x),
    )
    return lax.convert_element_type(result, x.dtype)


def _check(name: str, first: Any, second: Any, ndim: int, attributes: dict[str, Any]) -> None:
    same_dtype(name, first, second)
    if kind(first) not in "fc":
        raise DtypeError(f"{name}({describe(first, second)}): expected float or complex; convert first")
    spatial = ndim - 2
    sizes = [len(attributes[k]) for k in ("strides", "padding", "lhs_dilation", "rhs_dilation")]
    if (
        spatial < 0
        or any(n != spatial for n in sizes)
        or first.ndim != ndim
        or second.ndim != ndim
        or any(len(s) != ndim for s in attributes["spec"])
    ):
        raise ShapeError(
            f"{name}({describe(first, second)}) with layouts {attributes['spec']}: "
            f"strides, padding and dilations must have {spatial} entries each"
        )


@op(samples=_samples, dtypes=FLOAT + COMPLEX)
def conv(x: Any, w: Any, *, strides: Dims, padding: Padding, lhs_dilation: Dims, rhs_dilation: Dims, groups: int, spec: Spec) -> Any:
    """Convolution (a correlation: the filter is not flipped): float[n,c,*spatial], float[o,c/groups,*window] -> float[n,o,*out].

    Attributes: strides; padding, (before, after) a dim; lhs_dilation, rhs_dilation, steps between elements of x and of w; groups of
    features; spec, the layouts of x, w and the result, such as ("NCHW", "OIHW", "NCHW").  XLA: Convolution.

    Raises:
        DtypeError: the dtypes differ, or are not float or complex.
        ShapeError: features, groups or the number of dims do not fit.
    """
    attributes: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "groups": groups,
        "spec": spec,
    }
    _check("conv", x, w, len(spec[0]), attributes)
    return _conv(x, w, **attributes)


@op(samples=_input_grad_samples, dtypes=FLOAT + COMPLEX)
def conv_input_grad(
    g: Any, w: Any, *, input_dims: Dims, strides: Dims, padding: Padding, lhs_dilation: Dims, rhs_dilation: Dims, groups: int, spec: Spec
) -> Any:
    """The transpose of conv in its input: float[*out], float[*filter] -> float[*input_dims].

    Attributes: input_dims, of conv's x; the others as conv's.  Also a transposed convolution.  XLA: Convolution.

    Raises:
        DtypeError: the dtypes differ, or are not float or complex.
        ShapeError: g has not the dims of conv's result.
    """
    attributes: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "groups": groups,
        "spec": spec,
    }
    _check("conv_input_grad", g, w, len(input_dims), attributes)
    return _transposed("conv_input_grad", lambda x: _conv(x, w, **attributes), tuple(input_dims), g)


@op(samples=_filter_grad_samples, dtypes=FLOAT + COMPLEX)
def conv_filter_grad(
    x: Any, g: Any, *, filter_dims: Dims, strides: Dims, padding: Padding, lhs_dilation: Dims, rhs_dilation: Dims, groups: int, spec: Spec
) -> Any:
    """The transpose of conv in its filter: float[*input], float[*out] -> float[*filter_dims].

    Attributes: filter_dims, of conv's w; the others as conv's.  XLA: Convolution.

    Raises:
        DtypeError: the dtypes differ, or are not float or complex.
        ShapeError: g has not the dims of conv's result.
    """
    attributes: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "groups": groups,
        "spec": spec,
    }
    _check("conv_filter_grad", x, g, len(filter_dims), attributes)
    return _transposed("conv_filter_grad", lambda w: _conv(x, w, **attributes), tuple(filter_dims), g)


def _transposed(name: str, forward: Any, dims: tuple[int, ...], g: Any) -> Any:
    target = abstract(dims, g.dtype)
    out = jax.eval_shape(forward, target)
    if out.shape != g.shape:
        raise ShapeError(f"{name}: the gradient {describe(g)} must have the dims of the convolution's result, {tuple(out.shape)}")
    return jax.linear_transpose(forward, target)(g)[0]
