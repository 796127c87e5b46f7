"""Errors that depend on contents: TensorFlow's CPU kernels raise them while they run, the device when somebody reads.

Owns: `GUARDS`, which say for an operation what its contents must fulfil; the one value of each trace in which the first violation is
noted on the device; and raising it.  An index out of range, an integer division by zero and their like are therefore errors as on the
CPU, without a barrier of their own: the next read of any tensor raises them.  What the host knows is checked at once (see
`mapping.checks`).  May import `capi`, `attributes`, `tensor` and the core.
"""

from __future__ import annotations

import collections
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ir, ops, trace, values
from lazy_core.deferred import jnp, lax
from lazy_core.ops.registry import Op

from . import capi, tensor
from .attributes import Signature
from .tensor import Tensor

_WIDTH = 8
"""How many numbers a violation can be described with."""
_MOST = 64
"""How many traces may wait to be looked at."""

Message = Callable[[int, list[int]], str]
Guard = Callable[[Signature, "list[Any]", "list[Any]"], None]

GUARDS: dict[str, Guard] = {}
"""For an operation: what to record beside it, given its inputs and outputs."""


def _noted(site: int, bad: Any, numbers: Any) -> Any:
    """`bool[n], s64[n, k] -> s64[2 + 8]`: the site, the first bad place and its numbers; the site is -1 if there is none."""
    place = jnp.argmax(bad)
    row = jnp.pad(numbers[place].astype(jnp.int64), (0, _WIDTH - numbers.shape[1]))
    return jnp.concatenate([jnp.stack([jnp.where(bad[place], site, -1), place]).astype(jnp.int64), row])


def _outside(indices: Any, *, site: int, limits: tuple[int, ...], negative: bool) -> Any:
    """`i[n, k]`: rows that do not lie below the limits; negative ones do if `negative` is set."""
    if not indices.shape[0]:
        return jnp.full(2 + _WIDTH, -1, jnp.int64)
    wide = indices.astype(jnp.int64)
    bad = (wide >= jnp.asarray(limits, jnp.int64)) | ((wide < 0) & (not negative))
    return _noted(site, bad.any(axis=1), wide[:, :_WIDTH])


def _zero(x: Any, *, site: int) -> Any:
    """`i[...]`: zeros."""
    return _noted(site, (x == 0).any()[None], jnp.zeros((1, 1), jnp.int64)) if x.size else jnp.full(2 + _WIDTH, -1, jnp.int64)


def _negative(x: Any, *, site: int) -> Any:
    """`i[...]`: negative numbers."""
    return _noted(site, (x < 0).any()[None], jnp.zeros((1, 1), jnp.int64)) if x.size else jnp.full(2 + _WIDTH, -1, jnp.int64)


def _odd(x: Any, *, site: int) -> Any:
    """`f[...]`: NaN and infinities; the numbers say whether there are negative infinities, positive ones and NaN."""
    found = jnp.stack([(x == -jnp.inf).any(), (x == jnp.inf).any(), jnp.isnan(x).any()])
    return _noted(site, found.any()[None], found[None])


def _singular(x: Any, y: Any, *, site: int) -> Any:
    """`f[...], f[...]`: a result that is not finite though the matrix is."""
    bad = jnp.isfinite(x).all() & ~jnp.isfinite(y).all()
    return _noted(site, bad[None], jnp.zeros((1, 1), jnp.int64))


def _first(before: Any, after: Any) -> Any:
    """The earlier of two violations."""
    return lax.select(before[0] >= 0, before, after)


_OUTSIDE, _ZERO, _NEGATIVE, _ODD, _SINGULAR, _FIRST = (
    Op.unregistered(f"tf.guard{f.__name__}", f) for f in (_outside, _zero, _negative, _odd, _singular, _first)
)

_sites: dict[int, tuple[Any, Message, int]] = {}


def _site(key: Any, message: Message, code: int) -> int:
    """The number by which the device names a description: the same in every process, as it is a part of programs."""
    number = zlib.crc32(repr(key).encode())
    while number in _sites and _sites[number][0] != key:
        number += 1
    _sites.setdefault(number, (key, message, code))
    return number


_FINE = np.full(2 + _WIDTH, -1, np.int64)


class _Watch:
    """The value of the current trace that notes its first violation, and those of traces that nobody has looked at yet."""

    def __init__(self) -> None:
        self._trace = trace.current()
        self._epoch = -1
        self._value: Any = None
        self._waiting: collections.deque[Any] = collections.deque()

    def add(self, target: Op, operands: tuple[Any, ...], key: Any, message: Message, code: int, **static: Any) -> None:
        """Look at operands on the device; `key` identifies the message, a function of a violation's place and numbers."""
        found = values.record(target, operands, ir.attrs(site=_site(key, message, code), **static))
        with self._trace.lock:
            if self._epoch != self._trace.epoch or self._value is None:
                self._epoch = self._trace.epoch
                self._value = found
                self._waiting.append(found)
                tensor.after_read = self.look
                if len(self._waiting) > _MOST:
                    self._raise(self._waiting.popleft())
            else:
                self._waiting[-1] = self._value = values.record(_FIRST, (self._value, found))

    def look(self) -> None:
        """Raise the oldest violation among the traces that have run.

        Raises:
            StatusError: there is one; it is not raised again.
        """
        while self._waiting and not self._waiting[0].pending:
            self._raise(self._waiting.popleft())
        if not self._waiting:
            self._value = None
            tensor.after_read = None

    def passed(self) -> dict[Any, np.ndarray]:
        """What a trace notes that is run natively: CPU kernels raise by themselves, so that nothing is violated."""
        return {value.expr: _FINE for value in self._waiting if value.pending}

    @staticmethod
    def _raise(value: Any) -> None:
        site, place, *numbers = [int(x) for x in values.to_host(value)]
        if site >= 0:
            _, message, code = _sites[site]
            raise capi.StatusError(code, message(place, numbers))


watch = _Watch()


def _guard(*names: str) -> Callable[[Guard], Guard]:
    def declare(function: Guard) -> Guard:
        for name in names:
            GUARDS[name] = function
        return function

    return declare


def _where(place: int, dims: tuple[int, ...]) -> str:
    """An index into an array of these dims, as TensorFlow writes it."""
    return f"[{','.join(map(str, np.unravel_index(place, dims)))}]" if dims else ""


def _listed(numbers: list[int], count: int) -> str:
    return f"[{', '.join(map(str, numbers[:count]))}]"


def _rows(indices: Tensor, depth: int) -> Any:
    """The indices as a matrix, a value of the core."""
    dims = (math.prod(indices.dims[:-1] if depth else indices.dims), depth or 1)
    return values.record(ops.reshape, (indices.operand(),), ir.attrs(dims=dims))


def _indices(indices: Tensor, limits: tuple[int, ...], key: Any, message: Message, negative: bool = False, depth: int = 0) -> None:
    if 0 in indices.dims:
        return
    watch.add(_OUTSIDE, (_rows(indices, depth),), key, message, capi.INVALID_ARGUMENT, limits=limits, negative=negative)


def scalar_indices(indices: Tensor, size: int) -> None:
    """Indices must lie in [0, size)."""
    dims = indices.dims

    def message(place: int, numbers: list[int]) -> str:
        return f"indices{_where(place, dims)} = {numbers[0]} is not in [0, {size})"

    _indices(indices, (size,), ("scalar", dims, size), message)


def row_indices(indices: Tensor, limits: tuple[int, ...], what: str) -> None:
    """Rows of indices must lie below the first limits; `what` is how TensorFlow names that which is indexed."""
    depth = indices.dims[-1] if indices.dims else 0
    if not 0 < depth <= min(len(limits), _WIDTH):
        return
    outer = indices.dims[:-1]
    shape = f"[{','.join(map(str, limits))}]"

    def message(place: int, numbers: list[int]) -> str:
        return f"indices{_where(place, outer) or '[0]'} = {_listed(numbers, depth)} does not index into {what} {shape}"

    _indices(indices, limits[:depth], ("rows", indices.dims, limits, what), message, depth=depth)


def _is_empty(tensor: Tensor) -> bool:
    """Whether there are no elements; some of TensorFlow's kernels look at nothing then."""
    return 0 in tensor.dims


@_guard("GatherV2", "Gather", "ResourceGather")
def _gather(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    params, indices = inputs[:2]
    if signature.info.name != "ResourceGather" and _is_empty(outputs[0]):
        return
    axis = 0
    if len(inputs) > 2:
        axis = inputs[2].static()
        axis = axis[0] if isinstance(axis, tuple) else axis
    elif signature.info.name == "ResourceGather":
        axis = signature.values["batch_dims"]
    scalar_indices(indices, params.dims[axis])


@_guard("GatherNd", "ResourceGatherNd")
def _gather_nd(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    row_indices(inputs[1], inputs[0].dims, "param shape")


@_guard("ScatterNd")
def _scatter_nd(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    row_indices(inputs[0], outputs[0].dims, "shape")


@_guard("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin")
def _tensor_scatter(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    row_indices(inputs[1], inputs[0].dims, "shape")


@_guard("ResourceScatterNdUpdate", "ResourceScatterNdAdd", "ResourceScatterNdSub")
def _resource_scatter_nd(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    row_indices(inputs[1], inputs[0].current.dims, "shape")


@_guard("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate")
def _resource_scatter(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    scalar_indices(inputs[1], inputs[0].current.dims[0])


@_guard("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def _segments(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    if _is_empty(inputs[0]):
        return
    ids, count = inputs[1], int(inputs[2].static())
    dims = ids.dims

    def message(place: int, numbers: list[int]) -> str:
        return f"segment_ids{_where(place, dims)} = {numbers[0]} is out of range [0, {count})"

    _indices(ids, (count,), ("segments", dims, count), message, negative=True)


@_guard("SparseSoftmaxCrossEntropyWithLogits")
def _labels(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    size = inputs[0].dims[1]

    def message(place: int, numbers: list[int]) -> str:
        return f"Received a label value of {numbers[0]} which is outside the valid range of [0, {size}).  Label values: ... {numbers[0]}"

    _indices(inputs[1], (size,), ("labels", size), message)


@_guard("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Mod", "Div")
def _division(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    divisor = inputs[1]
    known = divisor.host is not None and divisor.host.all()
    if capi.NUMPY_DTYPES[divisor.dtype].kind not in "iu" or known or _is_empty(outputs[0]):
        return
    truncated = signature.info.name.startswith("Truncate")
    text = "Unexpected error in binary operator (only integer div and mod should have errors)" if truncated else "Integer division by zero"
    watch.add(_ZERO, (divisor.operand(),), text, lambda place, numbers: text, capi.INTERNAL if truncated else capi.INVALID_ARGUMENT)


@_guard("Pow")
def _power(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    exponent = inputs[1]
    known = exponent.host is not None and (exponent.host >= 0).all()
    if capi.NUMPY_DTYPES[exponent.dtype].kind != "i" or known or _is_empty(outputs[0]):
        return
    text = "Integers to negative integer powers are not allowed"
    watch.add(_NEGATIVE, (exponent.operand(),), text, lambda place, numbers: text, capi.INVALID_ARGUMENT)


@_guard("CheckNumerics", "CheckNumericsV2")
def _numerics(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    head = signature.values["message"]
    signed = signature.info.name.endswith("V2")

    def message(place: int, numbers: list[int]) -> str:
        below, above, nan = numbers[:3]
        if signed:
            kinds = [name for flag, name in ((below, "-Inf"), (above, "+Inf"), (nan, "NaN")) if flag]
        else:
            kinds = [name for flag, name in ((below or above, "Inf"), (nan, "NaN")) if flag]
        listed = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
        return f"{head} : Tensor had {listed} values"

    watch.add(_ODD, (inputs[0].operand(),), (head, signed), message, capi.INVALID_ARGUMENT)


@_guard("MatrixInverse", "MatrixSolve")
def _invertible(signature: Signature, inputs: list[Any], outputs: list[Any]) -> None:
    text = "Input is not invertible." if signature.info.name == "MatrixInverse" else "Input matrix is not invertible."
    operands = (inputs[0].operand(), outputs[0].operand())
    watch.add(_SINGULAR, operands, text, lambda place, numbers: text, capi.INVALID_ARGUMENT)


def of(signature: Signature) -> Guard | None:
    """The guard that this use of an operation needs, or None."""
    found = GUARDS.get(signature.info.name)
    if found in (_division, _power) and np.dtype(signature.values["T"]).kind not in "iu":
        return None
    return found
