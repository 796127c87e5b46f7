"""Any operation that XLA can compile, lowered by TensorFlow itself through `jax.experimental.jax2tf.call_tf`.

Owns: making a core operation for one (operation, attributes, compile-time inputs), which lives in no registry; remembering what could not
be lowered. The lowering text has no names of ours in it, so equal operations give equal programs.  May import `capi`, `attributes`,
`tensor`, `constants` and core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lazy_core import values
from lazy_core.ops.registry import Op

from . import capi
from .attributes import Signature, op_info
from .constants import COMPILE_TIME_INPUTS
from .tensor import Tensor

# Operations with an XLA lowering that is not theirs on the CPU: output sizes depend on contents, or numbers are drawn differently.
_NEVER = frozenset(
    """
    Bincount Copy DebugIdentity DebugIdentityV2 DenseBincount InTopKV2 NonMaxSuppressionV3 NonMaxSuppressionV4
    RandomGammaGrad StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomGammaV3 StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal StatelessTruncatedNormalV2
    Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where
    """.split()
)
_OPAQUE_INPUTS = frozenset({"Placeholder", "PlaceholderWithDefault", "PyFunc", "PyFuncStateless"})


def supports(signature: Signature, inputs: Sequence[Any]) -> bool:
    """Whether it is worth trying: a stateless operation on tensors of numbers that was not refused before."""
    info = signature.info
    if info.op_def is None or info.stateful or info.name in _NEVER or info.name in _OPAQUE_INPUTS:
        return False
    if not signature.outputs or any(d not in capi.NUMPY_DTYPES for d in signature.outputs):
        return False
    return all(e.__class__ is Tensor for e in inputs) and refusal(signature, inputs) is None and _compilable(signature)


def lowers(name: str) -> bool:
    """Whether an operation can be lowered at all, for some dtypes."""
    info = op_info(name)
    return info.op_def is not None and not info.stateful and name not in _NEVER | _OPAQUE_INPUTS and bool(capi.xla_kernels(name))


def _compilable(signature: Signature) -> bool:
    """Whether XLA has a kernel of this operation for these dtypes."""
    found: bool | None = signature.cache.get("compilable")
    if found is None:
        types = {name: proto.type for name, proto in signature.protos.items()}
        kernels = capi.xla_kernels(signature.info.name)
        found = any(all(types.get(name, 0) in allowed or types.get(name, 0) == 0 for name, allowed in k.items()) for k in kernels)
        signature.cache["compilable"] = found
    return found


def static_positions(signature: Signature) -> tuple[int, ...]:
    """The positions of inputs that XLA must know while it compiles."""
    found: tuple[int, ...] | None = signature.cache.get("compile_time")
    if found is None:
        names = COMPILE_TIME_INPUTS.get(signature.info.name, ())
        spans = [signature.spans[n] for n in names if n in signature.spans]
        found = signature.cache["compile_time"] = tuple(sorted({p for start, count in spans for p in range(start, start + count)}))
    return found


def record(signature: Signature, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Record one operation; returns the values of its outputs."""
    positions = static_positions(signature)
    statics = {p: inputs[p].numpy() for p in positions}
    key = ("op", tuple([(a.shape, a.dtype.str, a.tobytes()) for a in statics.values()]), len(inputs))
    target = signature.cache.get(key)
    if target is None:
        target = signature.cache[key] = Op.unregistered(f"tf.{signature.info.name}", _lowering(signature, statics, len(inputs)))
    result = values.record(target, tuple([e.operand() for p, e in enumerate(inputs) if p not in statics]))
    return result if result.__class__ is tuple else (result,)


def _lowering(signature: Signature, statics: dict[int, np.ndarray], total: int) -> Any:
    dynamic = [p for p in range(total) if p not in statics]

    def build(*operands: Any) -> tuple[Any, ...]:
        full: list[Any] = [None] * total
        for position, operand in zip(dynamic, operands, strict=True):
            full[position] = operand
        for position, array in statics.items():
            full[position] = tf.constant(array)
        return tuple(capi.create_in_graph(signature.info.name, full, signature.outputs, signature.protos))

    def call(*arrays: Any) -> tuple[Any, ...]:
        from jax.experimental.jax2tf import call_tf

        with tf.device("/device:CPU:0"), capi.stop_recording():
            return tuple(call_tf(build, has_side_effects=False)(*arrays))

    call.__doc__ = f"TensorFlow's {signature.info.name}, lowered by XLA's TensorFlow bridge."
    return call


def _shapes(inputs: Sequence[Any]) -> Any:
    return tuple([getattr(e, "dims", None) for e in inputs])


def refuse(signature: Signature, inputs: Sequence[Any], error: BaseException) -> None:
    """Remember that this operation cannot be lowered for inputs of these dimensions."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    signature.cache[("refused", _shapes(inputs))] = f"XLA's TensorFlow bridge cannot lower it: {text}"


def refusal(signature: Signature, inputs: Sequence[Any]) -> str | None:
    """Why this operation was refused for inputs of these dimensions, or None."""
    reason: str | None = signature.cache.get(("refused", _shapes(inputs)))
    return reason
