"""Resource variables: creation, reading, assignment, and the optimiser steps that update them.

Variables are rebound functionally: an update records an operation and points the variable at its result.  Whatever is not listed here
runs on a temporary CPU variable (see `fallback`).  Source: `gen_resource_variable_ops`, `gen_training_ops`.  May import `rules`, `tensor`
and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ops, values
from lazy_core.ir import Expr
from lazy_core.ops.registry import composite

from .. import capi
from ..stepping import stepper
from ..tensor import Entry, Tensor, Variable, of_host, of_value
from .arrays import scatter_nd
from .rules import like

_record = values.record
_INTEGERS = frozenset({capi.TF_DTYPES[np.dtype(n)] for n in ("int32", "int64", "uint32", "uint64")})

FAST: dict[str, Callable[[list[Any]], list[Entry] | None]] = {}
"""Handlers that need no attributes: given the inputs they return the outputs, or None to leave it to the general route."""


def fast(*names: str) -> Callable[[Any], Any]:
    """Declare a handler that needs no attributes."""

    def declare(function: Any) -> Any:
        for name in names:
            FAST[name] = function
        return function

    return declare


def contents(variable: Variable) -> Tensor:
    """What a variable holds; a StatusError if nothing yet."""
    current = variable.current
    if current is None:
        message = f"Could not find variable {variable.name}. This could mean that the variable has been deleted or was never initialised."
        raise capi.StatusError(capi.FAILED_PRECONDITION, message)
    return current


@fast("ReadVariableOp")
def _read(inputs: list[Any]) -> list[Entry] | None:
    variable = inputs[0]
    return [contents(variable)] if variable.__class__ is Variable else None


@fast("AssignVariableOp")
def _assign(inputs: list[Any]) -> list[Entry] | None:
    variable, value = inputs
    if variable.__class__ is not Variable or value.__class__ is not Tensor:
        return None
    if value.dtype != variable.dtype:
        raise capi.StatusError(capi.INVALID_ARGUMENT, f"Trying to assign variable {variable.name} with wrong dtype.")
    counter = variable.current is not None and value.dims == () and value.dtype in _INTEGERS
    variable.assign(value)
    if counter:
        stepper.step_ended()
    return []


def _update(name: str, target: Any) -> None:
    @fast(name)
    def update(inputs: list[Any]) -> list[Entry] | None:
        variable, value = inputs
        if variable.__class__ is not Variable or value.__class__ is not Tensor:
            return None
        current = contents(variable)
        if current.dims != value.dims:
            shapes = f"shape {list(current.dims)} using a Tensor with shape {list(value.dims)}"
            message = f"Cannot update variable with {shapes}, shapes must be equal."
            raise capi.StatusError(capi.INVALID_ARGUMENT, message)
        variable.current = of_value(_record(target, (current.operand(), value.operand())), current.dtype)
        if not current.dims and current.dtype in _INTEGERS:
            stepper.step_ended()
        return []


_update("AssignAddVariableOp", ops.add)
_update("AssignSubVariableOp", ops.sub)


@fast("VarIsInitializedOp")
def _is_initialised(inputs: list[Any]) -> list[Entry] | None:
    if inputs[0].__class__ is not Variable:
        return None
    return [of_host(np.array(inputs[0].current is not None), capi.TF_DTYPES[np.dtype(bool)])]


@fast("DestroyResourceOp")
def _destroy(inputs: list[Any]) -> list[Entry] | None:
    if inputs[0].__class__ is not Variable:
        return None
    inputs[0].current = None
    return []


# ------------------------------------------------------------------ operations with attributes

UPDATES: dict[str, tuple[Any, tuple[str, ...]]] = {}
"""Raw operation -> the composite that gives the new contents, and the static attributes that it takes.

The composite takes the inputs in order, each variable as its contents; it returns the new contents of the variables that it
changes, in order.
"""


def update(name: str, *attributes: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare how an operation changes its variables."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        UPDATES[name] = (composite(f"tf.{name}")(function), attributes)
        return function

    return declare


@update("ResourceApplyGradientDescent")
def _gradient_descent(var: Expr, alpha: Expr, delta: Expr) -> Expr:
    return ops.sub(var, ops.mul(alpha, delta))


@update("ResourceApplyMomentum", "use_nesterov")
def _momentum(var: Expr, accum: Expr, lr: Expr, grad: Expr, momentum: Expr, *, use_nesterov: bool) -> tuple[Expr, Expr]:
    accum = ops.add(ops.mul(accum, momentum), grad)
    step = ops.mul(accum, lr)
    if use_nesterov:
        step = ops.add(ops.mul(grad, lr), ops.mul(step, momentum))
    return ops.sub(var, step), accum


@update("ResourceApplyKerasMomentum", "use_nesterov")
def _keras_momentum(var: Expr, accum: Expr, lr: Expr, grad: Expr, momentum: Expr, *, use_nesterov: bool) -> tuple[Expr, Expr]:
    accum = ops.sub(ops.mul(accum, momentum), ops.mul(grad, lr))
    step = ops.sub(ops.mul(accum, momentum), ops.mul(grad, lr)) if use_nesterov else accum
    return ops.add(var, step), accum


@update("ResourceApplyAdam", "use_nesterov")
def _adam(
    var: Expr,
    m: Expr,
    v: Expr,
    beta1_power: Expr,
    beta2_power: Expr,
    lr: Expr,
    beta1: Expr,
    beta2: Expr,
    epsilon: Expr,
    grad: Expr,
    *,
    use_nesterov: bool,
) -> tuple[Expr, Expr, Expr]:
    one = like(var, 1)
    alpha = ops.div(ops.mul(lr, ops.sqrt(ops.sub(one, beta2_power))), ops.sub(one, beta1_power))
    m = ops.add(m, ops.mul(ops.sub(grad, m), ops.sub(one, beta1)))
    v = ops.add(v, ops.mul(ops.sub(ops.square(grad), v), ops.sub(one, beta2)))
    direction = ops.add(ops.mul(grad, ops.sub(one, beta1)), ops.mul(beta1, m)) if use_nesterov else m
    return ops.sub(var, ops.div(ops.mul(direction, alpha), ops.add(ops.sqrt(v), epsilon))), m, v


@update("ResourceApplyRMSProp")
def _rms_prop(var: Expr, ms: Expr, mom: Expr, lr: Expr, rho: Expr, momentum: Expr, epsilon: Expr, grad: Expr) -> tuple[Expr, Expr, Expr]:
    ms = ops.add(ms, ops.mul(ops.sub(ops.square(grad), ms), ops.sub(like(var, 1), rho)))
    mom = ops.add(ops.mul(mom, momentum), ops.div(ops.mul(grad, lr), ops.sqrt(ops.add(ms, epsilon))))
    return ops.sub(var, mom), ms, mom


@update("ResourceApplyAdagradV2", "update_slots")
def _adagrad(var: Expr, accum: Expr, lr: Expr, epsilon: Expr, grad: Expr, *, update_slots: bool) -> tuple[Expr, Expr]:
    if update_slots:
        accum = ops.add(accum, ops.square(grad))
    return ops.sub(var, ops.div(ops.mul(grad, lr), ops.add(ops.sqrt(accum), epsilon))), accum


def _rows(var: Expr, indices: Expr, updates: Expr, accumulate: bool) -> Expr:
    dims = indices.shape.dims + var.shape.dims[1:]
    if updates.shape.dims != dims:
        updates = ops.broadcast_to(updates, dims=dims)
    return ops.index_put(var, updates, indices, axes=(0,), accumulate=accumulate)


@update("ResourceScatterAdd")
def _scatter_add(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _rows(var, indices, updates, True)


@update("ResourceScatterSub")
def _scatter_sub(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _rows(var, indices, ops.neg(updates), True)


@update("ResourceScatterUpdate")
def _scatter_update(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _rows(var, indices, updates, False)


@update("ResourceScatterNdUpdate")
def _scatter_nd_update(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(var, indices, updates, accumulate=False)


@update("ResourceScatterNdAdd")
def _scatter_nd_add(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(var, indices, updates, accumulate=True)


@update("ResourceScatterNdSub")
def _scatter_nd_sub(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(var, indices, ops.neg(updates), accumulate=True)
