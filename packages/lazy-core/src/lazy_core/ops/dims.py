"""The dims of a result, without running the lowering: for the operations that shapes which never repeat meet most.

Owns: one rule a kind of operation. A rule is a shortcut and never decides by itself: dtypes come from the first inference of the same
operand dtypes and attributes, and where a rule has no answer (operands that do not fit, empty reductions) the lowering is traced, which
finds the error. `test_rules_of_dims_agree_with_the_lowerings` holds every rule to its lowering. May import the registry and the families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..shape import Shape
from .registry import REGISTRY, Rule, axes_of, axis_of

Dims = tuple[int, ...]
_ELEMENTWISE = ("arithmetic", "binary", "compare", "elementwise_unary")
_NOT_ELEMENTWISE = ("bitcast",)
_REDUCTIONS = ("sum", "prod", "max", "min", "all", "any", "reduce_xor", "mean", "var", "logsumexp")


def broadcast(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """Operands' dims broadcast as NumPy does."""
    dims = shapes[0].dims
    if all(s.dims == dims for s in shapes):
        return dims
    try:
        return np.broadcast_shapes(*[s.dims for s in shapes])
    except ValueError:
        return None


def _without(dims: Dims, axes: Sequence[int], keepdims: bool) -> Dims | None:
    if 0 in dims:
        return None
    if keepdims:
        return tuple([1 if k in axes else n for k, n in enumerate(dims)])
    return tuple([n for k, n in enumerate(dims) if k not in axes])


def reduced(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The dims that are not reduced, the others as 1 or not at all."""
    dims = shapes[0].dims
    return _without(dims, axes_of("reduction", attributes["axes"], len(dims)), attributes["keepdims"])


def position(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The dims without the one that is searched."""
    dims = shapes[0].dims
    return _without(dims, (axis_of("reduction", attributes["axis"], len(dims)),), attributes["keepdims"])


def product(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """Matrix products: of matrices, or of batches of equal dims."""
    x, y = shapes[0].dims, shapes[1].dims
    if min(len(x), len(y)) < 2 or x[-1] != y[-2] or (len(y) > 2 and x[:-2] != y[:-2]):
        return None
    return (*x[:-1], y[-1])


def contracted(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """Dims of a batch, then what neither side contracts."""
    x, y = shapes[0].dims, shapes[1].dims
    (left, right), (lead, match) = attributes["contract"], attributes["batch"]
    places = [(x, (*left, *lead)), (y, (*right, *match))]
    if any(not 0 <= a < len(dims) for dims, axes in places for a in axes) or any(len(set(axes)) != len(axes) for _, axes in places):
        return None
    if len(left) != len(right) or len(lead) != len(match):
        return None
    if any(x[a] != y[b] for a, b in zip((*left, *lead), (*right, *match), strict=True)):
        return None
    rest = [n for dims, axes in places for k, n in enumerate(dims) if k not in axes]
    return (*[x[a] for a in lead], *rest)


# ------------------------------------------------------------------ operations whose attributes say the dims


def _sizes(dims: Sequence[int]) -> Dims | None:
    return tuple(dims) if all(type(n) is int and n >= 0 for n in dims) else None


def reshaped(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The wanted dims, of as many elements."""
    dims = _sizes(attributes["dims"])
    return dims if dims is not None and math.prod(dims) == shapes[0].size else None


def permuted(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The dims in another order."""
    dims = shapes[0].dims
    perm = axes_of("transpose", attributes["perm"], len(dims))
    return tuple([dims[a] for a in perm]) if len(perm) == len(dims) else None


def repeated(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The wanted dims, where the operand's are 1 or equal from the last back."""
    have, want = shapes[0].dims, _sizes(attributes["dims"])
    if want is None or len(want) < len(have):
        return None
    return want if all(n in (1, m) for n, m in zip(have, want[len(want) - len(have) :], strict=True)) else None


def expanded(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The dims with ones between them."""
    ndim = len(shapes[0].dims) + len(attributes["axes"])
    axes = axes_of("expand_dims", attributes["axes"], ndim)
    rest = iter(shapes[0].dims)
    return tuple([1 if k in axes else next(rest) for k in range(ndim)])


def squeezed(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The dims without some that are 1."""
    dims = shapes[0].dims
    axes = axes_of("squeeze", attributes["axes"], len(dims))
    return tuple([n for k, n in enumerate(dims) if k not in axes]) if all(dims[a] == 1 for a in axes) else None


def sliced(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The steps of a box in each dim."""
    dims, starts, limits, strides = shapes[0].dims, *[attributes[name] for name in ("starts", "limits", "strides")]
    if not len(starts) == len(limits) == len(strides) == len(dims):
        return None
    boxes = list(zip(starts, limits, strides, dims, strict=True))
    if any(not 0 <= lo <= hi <= n or by < 1 for lo, hi, by, n in boxes):
        return None
    return tuple([-((lo - hi) // by) for lo, hi, by, _ in boxes])


def filled(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The wanted dims, filled with a scalar."""
    return None if shapes[0].dims else _sizes(attributes["dims"])


def counted(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> Dims | None:
    """The wanted dims, counted along one of them."""
    axis_of("iota", attributes["axis"], len(attributes["dims"]))
    return _sizes(attributes["dims"])


def install() -> None:
    """Give each registered operation its rule, if it has one."""
    for found in REGISTRY.values():
        if found.family in _ELEMENTWISE and found.name not in _NOT_ELEMENTWISE:
            found.rule = Rule(broadcast)
    for name in _REDUCTIONS:
        REGISTRY[name].rule = Rule(reduced)
    for name, dims in {"argmax": position, "argmin": position, "matmul": product, "dot_general": contracted}.items():
        REGISTRY[name].rule = Rule(dims)
    said = {
        "reshape": reshaped,
        "transpose": permuted,
        "broadcast_to": repeated,
        "expand_dims": expanded,
        "squeeze": squeezed,
        "slice": sliced,
        "full": filled,
        "iota": counted,
    }
    for name, dims in said.items():
        REGISTRY[name].rule = Rule(dims, by_attributes=False)
