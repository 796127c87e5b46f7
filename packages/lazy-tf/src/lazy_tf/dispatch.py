"""What happens to one operation that TensorFlow places on the lazy device.

Owns: the routes: host fold, lowering on core operations, generic lowering through XLA's own TensorFlow bridge, CPU fallback.  May
import `capi`, `attributes`, `tensor`, `fallback`, `call_tf`, `mapping`, `functions`, `guards` and the core.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ir, trace, values
from lazy_core.errors import BarrierError, DtypeError, ExecutionError, LazyError, ShapeError, StrictError, UnsupportedError

from . import call_tf, capi, fallback, functions, guards, mapping
from .attributes import OpInfo, Signature, op_info
from .stepping import stepper
from .tensor import EXTENSION, SMALL, Bundle, Entry, Foreign, Tensor, Variable, device_tensor, of_host, of_value

_record = values.record
_trace = trace.current()

Handler = Callable[[Signature, "list[Any]"], "list[Entry]"]


class Plan:
    """How a lowering applies to one signature: which inputs are static and which are operands."""

    __slots__ = (
        "attrs",
        "direct",
        "fixed",
        "guard",
        "hosts",
        "lifted",
        "operands",
        "positions",
        "refused",
        "statics_to_compare",
        "supported",
    )

    def __init__(self, rule: mapping.Rule, signature: Signature) -> None:
        known = signature.values
        hosts: list[tuple[str, int, int, bool]] = []
        fixed: dict[str, Any] = {}
        taken: set[int] = set()
        args = {a.name: a for a in signature.info.op_def.input_arg}
        for name in rule.keywords:
            source = rule.aliases.get(name, name)
            if source in signature.spans:
                start, count = signature.spans[source]
                several = bool(args[source].number_attr or args[source].type_list_attr)
                hosts.append((name, start, count, several))
                taken.update(range(start, start + count))
            elif source in known or name not in rule.optional:
                fixed[name] = known[source]
        total = sum(count for _, count in signature.spans.values())
        self.hosts = tuple(hosts)
        self.positions = tuple(sorted(taken))
        self.fixed = fixed
        self.operands = tuple([i for i in range(total) if i not in taken])
        self.attrs: dict[Any, ir.Attrs] = {}
        self.refused: dict[Any, Any] = {}
        self.lifted: dict[Any, Any] = {}
        self.guard: guards.Guard | None = None
        self.direct: tuple[Any, ...] | None = None
        self.statics_to_compare: tuple[int, ...] = ()
        self.supported = all(d in capi.NUMPY_DTYPES for d in signature.outputs)

    def statics(self, inputs: list[Any]) -> tuple[Any, ...]:
        """The contents of the inputs that must be known, as static data."""
        return tuple(
            [
                tuple([inputs[i].static() for i in range(start, start + count)]) if several else inputs[start].static()
                for _, start, count, several in self.hosts
            ]
        )

    def keywords(self, statics: tuple[Any, ...]) -> dict[str, Any]:
        """The static keywords of the target."""
        return {**self.fixed, **{host[0]: value for host, value in zip(self.hosts, statics, strict=True)}}

    def attributes(self, inputs: list[Any]) -> ir.Attrs:
        """The static attributes for these inputs."""
        statics = self.statics(inputs) if self.hosts else ()
        key = ir.freeze(statics) if statics else ()
        found = self.attrs.get(key)
        if found is None:
            if len(self.attrs) >= _PLAN_LIMIT:
                self.attrs.clear()
            found = self.attrs[key] = ir.attrs(**self.keywords(statics))
        return found

    def lift(self, rule: mapping.Rule, inputs: list[Any]) -> tuple[Any, tuple[Any, ...], ir.Attrs] | None:
        """The target, operands and attributes that keep whole numbers out of the program, or None."""
        operands, statics = [inputs[i] for i in self.operands], self.statics(inputs)
        key = (tuple([o.dims for o in operands]), ir.freeze(statics))
        if key in self.lifted:
            made = self.lifted[key]
        else:
            assert rule.lift is not None
            raw = rule.lift(operands[0].dims, self.keywords(statics))
            made = None if raw is None else (raw[0], tuple([ir.const(n, _INT64) for n in raw[1]]), ir.attrs(**raw[2]))
            if len(self.lifted) >= _PLAN_LIMIT:
                self.lifted.clear()
            self.lifted[key] = made
        return None if made is None else (made[0], (*[o.operand() for o in operands], *made[1]), made[2])


_PLAN_LIMIT = 4096
_INT64 = np.dtype(np.int64)
_READS_VARIABLE = {"ResourceGather", "ResourceGatherNd"}


class Lowered:
    """The handler of an operation that has a lowering on core operations."""

    def __init__(self, name: str, rule: mapping.Rule) -> None:
        self._rule = rule
        self._target = rule.target
        self._reads_variable = name in _READS_VARIABLE
        self._check = mapping.CHECKS.get(name)

    def plan(self, signature: Signature) -> Plan:
        """How the lowering applies to a signature."""
        found: Plan | None = signature.cache.get("plan")
        if found is None:
            found = signature.cache["plan"] = Plan(self._rule, signature)
            found.guard = guards.of(signature)
            if self._rule.lift is None:
                found.statics_to_compare = found.positions
                if found.supported and found.guard is None and not self._reads_variable:
                    found.direct = (self._target, found.operands, found.positions, self._check is not None, signature.outputs)
        return found

    def __call__(self, signature: Signature, inputs: list[Any]) -> list[Entry]:
        """Record the operation, or send it down another route."""
        given = inputs
        if self._reads_variable and inputs[0].__class__ is Variable:
            inputs = [mapping.contents(inputs[0]), *inputs[1:]]
        plan = signature.cache.get("plan") or self.plan(signature)
        fold = True
        for entry in inputs:
            if entry.__class__ is not Tensor:
                return otherwise(signature, inputs, "an input is not a tensor of numbers")
            if not entry.foldable:
                fold = False
        if not plan.supported:
            return otherwise(signature, inputs, "an output has a dtype that the device does not hold")
        if fold and fallback.foldable(inputs):
            folded = fallback.fold(signature, inputs)
            if folded is not None:
                return folded
        if self._check is not None:
            self._check(signature, inputs)
        lifted = None if self._rule.lift is None else plan.lift(self._rule, inputs)
        if lifted is not None:
            with contextlib.suppress(ShapeError):  # the general way says what is wrong
                return [of_value(_record(*lifted), signature.outputs[0])]
        attributes = plan.attributes(inputs) if plan.hosts else plan.attrs.get(()) or plan.attributes(inputs)
        if plan.refused:
            reason = plan.refused.get((attributes, tuple([e.dims for e in inputs])))
            if reason is not None:
                return otherwise(signature, given, reason)
        try:
            result = _record(self._target, tuple([inputs[i].value or inputs[i].operand() for i in plan.operands]), attributes)
        except (ShapeError, DtypeError, UnsupportedError, ValueError, TypeError, NotImplementedError, IndexError) as error:
            if isinstance(error, StrictError):
                raise
            fallback.explain_refusal(signature, given, plan.positions)
            reason = f"not lowered: {_first_line(error)}"
            plan.refused[(attributes, tuple([e.dims for e in inputs]))] = reason
            return otherwise(signature, given, reason)
        if result.__class__ is tuple:
            outputs = [Tensor(d, v.shape.dims, v) for v, d in zip(result, signature.outputs, strict=True)]
        else:
            outputs = [Tensor(signature.outputs[0], result.shape.dims, result)]
        if plan.guard is not None:
            plan.guard(signature, inputs, outputs)
        return outputs  # type: ignore[return-value]


def otherwise(signature: Signature, inputs: list[Any], reason: str) -> list[Entry]:
    """The routes for what has no lowering of its own: XLA's lowering of TensorFlow's operation, else TensorFlow's CPU kernel."""
    info = signature.info
    if info.name in mapping.BUNDLES and all(e.__class__ is Bundle for e in inputs):
        return [mapping.BUNDLES[info.name](inputs)]
    if mapping.is_input_pipeline(info.name):
        if stepper.due:
            stepper.cut()
        return fallback.execute(signature, inputs, len(signature.outputs))
    if call_tf.supports(signature, inputs):
        try:
            result = call_tf.record(signature, inputs)
            return [of_value(v, d) for v, d in zip(result, signature.outputs, strict=True)]
        except (capi.StatusError, StrictError, BarrierError):
            raise
        except Exception as error:
            fallback.explain_refusal(signature, inputs, call_tf.static_positions(signature))
            call_tf.refuse(signature, inputs, error)
            reason = f"{reason}; XLA's lowering failed: {_first_line(error)}"
    return fallback.run(signature, inputs, len(signature.outputs), call_tf.refusal(signature, inputs) or reason)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def _no_lowering(signature: Signature, inputs: list[Any]) -> list[Entry]:
    if not signature.info.stateful and fallback.foldable(inputs):
        folded = fallback.fold(signature, inputs)
        if folded is not None:
            return folded
    return otherwise(signature, inputs, "no lowering")


def _update(signature: Signature, inputs: list[Any]) -> list[Entry]:
    """An operation that changes variables by what a composite makes of their contents."""
    target, names = mapping.UPDATES[signature.info.name]
    variables = [e for e in inputs if e.__class__ is Variable]
    if not variables or any(e.__class__ is Foreign for e in inputs):
        return otherwise(signature, inputs, "a variable lives on the CPU")
    operands = [mapping.contents(e).operand() if e.__class__ is Variable else e.operand() for e in inputs]
    try:
        result = _record(target, tuple(operands), ir.attrs(**{n: signature.values[n] for n in names}))
    except (ShapeError, DtypeError, UnsupportedError) as error:
        return fallback.run(signature, inputs, 0, f"not lowered: {error}")
    guard = guards.of(signature)
    if guard is not None:
        guard(signature, inputs, [])
    for variable, value in zip(variables, result if result.__class__ is tuple else (result,), strict=False):
        variable.current = of_value(value, variable.dtype)
    return []


def handler_of(info: OpInfo) -> Handler:
    """The handler of an operation, chosen once by its name."""
    special = mapping.SPECIAL.get(info.name)
    if special is not None:
        return special
    rule = mapping.RULES.get(info.name)
    if rule is not None:
        return Lowered(info.name, rule)
    if info.name in mapping.UPDATES:
        return _update
    if info.op_def is None:
        return functions.call_by_name
    if info.name in functions.CONTROL:
        return functions.CONTROL[info.name]
    return _no_lowering


def apply(info: OpInfo, signature: Signature, inputs: list[Any]) -> list[Entry]:
    """Run or record one operation on entries."""
    fast = mapping.FAST.get(info.name)
    if fast is not None:
        outputs = fast(inputs)
        if outputs is not None:
            return outputs
    if info.handler is None:
        info.handler = handler_of(info)
    result: list[Entry] = info.handler(signature, inputs)
    return result


_by_name: dict[bytes, tuple[OpInfo, Any]] = {}


def known(name: bytes) -> tuple[OpInfo, Any]:
    """What is known of an operation, and its handler that needs no attributes, or None."""
    found = _by_name.get(name)
    if found is None:
        info = op_info(name.decode())
        info.handler = handler_of(info)
        found = _by_name[name] = (info, mapping.FAST.get(info.name))
    return found


# Where the extension runs an operation while nothing is recorded: its `Place`.
_ON_CPU, _BY_HANDLER, _ASKING = 0, 1, 2


def resolve(name: bytes) -> tuple[OpInfo, Any, int, bool, bool, int]:
    """For the extension: `known`, and what else it must know of an operation.

    Returns:
        The operation, its handler that needs no attributes, the number of inputs (-1 where it varies), whether its attributes follow,
        whether it may change variables, and where it runs while nothing is recorded.
    """
    info, fast = known(name)
    if info.name in mapping.DRAWS:
        place = _ASKING
    elif (info.name in mapping.SPECIAL and info.name not in mapping.ON_CPU) or mapping.is_input_pipeline(info.name):
        place = _BY_HANDLER
    else:
        place = _ON_CPU
    return info, fast, info.arity, info.follows, info.changes, place


def describe(signature: Signature) -> tuple[tuple[int, ...], tuple[Any, ...] | None]:
    """For the extension: which inputs decide by their contents what is recorded, and how to record without a handler.

    Returns:
        Positions; and None, or the target, positions of operands, positions of inputs whose contents are attributes, whether contents
        that the host knows must be checked, and the output dtypes.
    """
    handler = signature.info.handler
    if not isinstance(handler, Lowered):
        return call_tf.static_positions(signature) if signature.info.op_def is not None else (), None
    plan = handler.plan(signature)
    return plan.statics_to_compare, plan.direct


def fold(signature: Signature, inputs: list[Any]) -> list[Entry] | None:
    """For the extension: the outputs of an operation on constants, computed on the host, or None where that is not to be done."""
    info = signature.info
    if info.stateful or info.op_def is None or not fallback.foldable(inputs):
        return None
    if not all(d in capi.NUMPY_DTYPES for d in signature.outputs):
        return None
    return fallback.fold(signature, inputs)


def attributes(signature: Signature, inputs: list[Any]) -> ir.Attrs:
    """For the extension: the static attributes for these inputs."""
    plan: Plan = signature.cache["plan"]
    return plan.attributes(inputs)


_outside_cache: dict[Any, tuple[Foreign | None, Tensor]] = {}
_outside_epoch = -1
_OUTSIDE_LIMIT = 256


def outside(handle: int, status: int) -> Entry:
    """An entry for a CPU handle; numbers are copied once in a trace, however often it is used."""
    global _outside_epoch
    if capi.handle_dtype(handle) not in capi.NUMPY_DTYPES:
        return Foreign(handle, owned=False)
    address = capi.handle_key(handle, status)  # of the numbers in memory
    if capi.status_code(status):  # what has no address says so
        capi.set_status(status, capi.OK, b"")
        address = None
    dtype = capi.handle_dtype(handle)
    dims = capi.handle_dims(handle, status)
    if math.prod(dims) <= SMALL:
        return of_host(capi.handle_array(handle), dtype, foldable=False)
    if _outside_epoch != _trace.epoch or len(_outside_cache) > _OUTSIDE_LIMIT:
        _outside_cache.clear()
        _outside_epoch = _trace.epoch
    key = (address, dtype, dims)
    found = _outside_cache.get(key)
    if found is None or address is None:
        # The copied handle keeps TensorFlow's buffer, so that its address stays taken and nobody writes to it in place.
        kept = Foreign(capi.copy_handle(handle), owned=True)
        if EXTENSION is None:
            found = _outside_cache[key] = (kept, device_tensor(capi.handle_array(handle), dtype))
        else:
            found = _outside_cache[key] = (None, EXTENSION.of_handle(kept.take()))
    return found[1]


def status_of(error: BaseException) -> tuple[int, str]:
    """The status code and message of an exception that ends an operation."""
    if isinstance(error, capi.StatusError):
        return error.code, error.message
    if isinstance(error, ExecutionError) and isinstance(error.__cause__, capi.StatusError):  # a CPU kernel's, run for the trace
        return error.__cause__.code, error.__cause__.message
    code = capi.exception_code(error)
    if code is not None:
        return code, str(error)
    if isinstance(error, UnsupportedError):
        return capi.UNIMPLEMENTED, str(error)
    if isinstance(error, (ShapeError, DtypeError)):
        return capi.INVALID_ARGUMENT, str(error)
    if isinstance(error, BarrierError):
        return capi.FAILED_PRECONDITION, str(error)
    if isinstance(error, LazyError):
        return capi.INTERNAL, str(error)
    return capi.INTERNAL, f"{type(error).__name__}: {error}"


functions.apply = apply
