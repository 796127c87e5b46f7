"""The table of native kernels: for each core operation, how to make a NumPy function of one recorded node.

Owns: `Kernel`, `Call`, the decorators with which families register, and `resolve`.  A kernel computes what the operation of its name
declares, on host arrays; it writes into no operand that it was not handed as `out`, and may return an operand or a view of one.  May
import `ir`, `shape`, `backend`, `ops` and NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import backend
from ..ir import Node
from ..ops import registry

Function = Callable[..., Any]
# NumPy's annotations know nothing of ml_dtypes, and not all positions of arguments.
Array = Any

# Below this many bytes a fresh buffer costs less than finding out whether an old one is free.
REUSE_BYTES = 1 << 14
# Elements that approximations work on at a time.
_PIECE = 1 << 15

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
BOOL = np.dtype(bool)
INT64 = np.dtype(np.int64)


class Kernel(NamedTuple):
    """How an operation is run.

    Attributes:
        build: makes the function of arrays for a node, whose shapes and attributes it may look at.
        reuse: the operands whose buffer may become the result's: the function then takes `out=` that operand.
    """

    build: Callable[[Node], Function]
    reuse: tuple[int, ...]


class Call(NamedTuple):
    """What runs for one node.

    Attributes:
        function: of arrays; returns an array, a NumPy scalar for a 0-d result, or a tuple of these.
        reuse: the operands that fit the result and whose buffer may become the result's.
        several: whether it returns a tuple.
    """

    function: Function
    reuse: tuple[int, ...]
    several: bool


_TABLE: dict[str, Kernel] = {}


def kernels() -> list[str]:
    """The names of the operations that have a kernel; the others are run by XLA, one at a time."""
    return sorted(_TABLE)


def _register(name: str, build: Callable[[Node], Function], reuse: Sequence[int]) -> None:
    if name in _TABLE:
        raise ValueError(f"two kernels are named {name!r}")
    if name not in registry.REGISTRY:
        raise ValueError(f"a kernel for {name!r}, which is no core operation")
    _TABLE[name] = Kernel(build, tuple(reuse))


def kernel(*names: str, reuse: Sequence[int] = ()) -> Callable[[Function], Function]:
    """Register a function of arrays by position and attributes by keyword, as the operation's lowering is one."""

    def add(fn: Function) -> Function:
        for name in names:
            _register(name, lambda node: functools.partial(fn, **node.attrs.kwargs) if node.attrs.kwargs else fn, reuse)
        return fn

    return add


def builder(*names: str, reuse: Sequence[int] = ()) -> Callable[[Callable[[Node], Function]], Callable[[Node], Function]]:
    """Register what makes the function of arrays for a node: for kernels that work out the node's shapes once."""

    def add(build: Callable[[Node], Function]) -> Callable[[Node], Function]:
        for name in names:
            _register(name, build, reuse)
        return build

    return add


def resolve(node: Node) -> Call:
    """What runs for a node; kept in `node.kernel`."""
    op: Any = node.op
    shapes = [output.shape for output in node.outputs]
    known: Any = registry.REGISTRY.get(op.name)
    found = _TABLE.get(op.name) if known is op else None
    if found is None:
        call = Call(functools.partial(_by_xla, op, node.attrs), (), True)
    else:
        result = shapes[0]
        fits: tuple[int, ...] = ()
        if found.reuse and len(shapes) == 1 and result.nbytes >= REUSE_BYTES:
            fits = tuple([p for p in found.reuse if node.inputs[p].shape is result and node.inputs[p].node is not None])
        call = Call(found.build(node), fits, len(shapes) > 1)
    node.kernel = call
    return call


def _by_xla(op: Any, attributes: Any, *arrays: Array) -> list[np.ndarray]:
    return backend.op_by_op(op, attributes, arrays)


def compiled(node: Node) -> Function:
    """The function of a node as XLA computes it: for what a kernel does not cover."""
    op, attributes = node.op, node.attrs
    if len(node.outputs) == 1:
        return lambda *arrays: backend.op_by_op(op, attributes, arrays)[0]
    return lambda *arrays: tuple(backend.op_by_op(op, attributes, arrays))


# ------------------------------------------------------------------ what families share


def extension(dtype: np.dtype) -> bool:
    """Whether a dtype is one of ml_dtypes, which NumPy itself does not compute with."""
    return dtype.num >= 256


def kind(dtype: np.dtype) -> str:
    """b, i, u, f or c; the floats of ml_dtypes are f."""
    return "f" if dtype.num >= 256 else dtype.kind


def narrow(dtype: np.dtype) -> bool:
    """Whether a dtype is a float of 16 or 8 bits, which is accumulated in 32."""
    return kind(dtype) == "f" and dtype.itemsize <= 2


def wide(x: Array) -> Array:
    """Narrow floats as f32."""
    return x.astype(F32) if narrow(x.dtype) else x


def widening(fn: Function, dtype: np.dtype) -> Function:
    """A function of f32 arrays as one of arrays of a narrow dtype, its results rounded back; bools stay bools."""

    def apply(*arrays: Array, out: Array = None) -> Array:
        result = fn(*[a.astype(F32) if a.dtype == dtype else a for a in arrays])
        if result.dtype == BOOL:
            return result
        if out is None:
            return result.astype(dtype)
        np.copyto(out, result, casting="unsafe")
        return out

    return apply


def ufunc(function: Any) -> Callable[[Node], Function]:
    """The builder of an operation that is one function of NumPy's for every dtype that it has."""

    def build(node: Node) -> Function:
        dtype = node.inputs[0].shape.dtype
        return widening(function, dtype) if extension(dtype) else function

    return build


def ufuncs(reuse: Sequence[int], **table: Any) -> None:
    """Register operations that are one function of NumPy's each."""
    for name, function in table.items():
        _register(name, ufunc(function), reuse)


def in_pieces(function: Function, dtype: np.dtype | None = None) -> Callable[..., Any]:
    """A function of contiguous one-dimensional pieces, applied piece by piece so that its intermediates stay in the cache.

    `function(out, *pieces)` fills `out`, of the first operand's dims and `dtype` or its own; operands have these dims or none.
    """

    def apply(*arrays: Array) -> Array:
        first = arrays[0]
        result = np.empty(first.shape, dtype or first.dtype)
        flat = result.reshape(-1)
        rows = [a.reshape(-1) if a.ndim or not first.ndim else a for a in arrays]
        for start in range(0, flat.size, _PIECE):
            function(flat[start : start + _PIECE], *[r[start : start + _PIECE] if r.ndim else r for r in rows])
        return result

    return apply
