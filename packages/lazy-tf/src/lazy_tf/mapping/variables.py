"""Resource variables: reading, assignment, scattering into them.

Variables are rebound functionally: an update records an operation and points the variable at its result.  Whatever is neither listed
here nor in `optimizers` runs on a temporary CPU variable (see `fallback`).  Source: `gen_resource_variable_ops`.  May import `rules`,
`arrays`, `tensor` and the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazy_core import ops, values
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr
from lazy_core.ops.registry import composite

from .. import capi, twins
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
    if current is None and variable.lent:  # another thread's kernel is at work on it
        current = twins.contents(variable)
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


def step_may_end(contents: Tensor) -> None:
    """Called when a variable that was changed by a sum now holds this: a whole number counts steps."""
    if not contents.dims and contents.dtype in _INTEGERS:
        stepper.step_ended()


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
        step_may_end(variable.current)
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
    inputs[0].current = inputs[0].twin = inputs[0].agreed = None
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


def _rows(var: Expr, indices: Expr, updates: Expr, accumulate: bool) -> Expr:
    dims = indices.shape.dims + var.shape.dims[1:]
    if updates.shape.dims != dims:
        updates = ops.broadcast_to(updates, dims=dims)
    return ops.index_put(var, updates, indices, axes=(0,), accumulate=accumulate)


def _combined(var: Expr, indices: Expr, updates: Expr, reduce: str) -> Expr:
    """Rows of a variable combined with updates; the same row may come several times."""
    dims = indices.shape.dims + var.shape.dims[1:]
    if updates.shape.dims != dims:
        updates = ops.broadcast_to(updates, dims=dims)
    count = indices.shape.size
    flat = (count, *var.shape.dims[1:])
    column = ops.reshape(indices, dims=(count, *[1] * (len(flat) - 1)))
    return ops.scatter(var, ops.broadcast_to(column, dims=flat), ops.reshape(updates, dims=flat), axis=0, reduce=reduce)


@update("ResourceScatterMul")
def _scatter_mul(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _combined(var, indices, updates, "mul")


@update("ResourceScatterMax")
def _scatter_max(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _combined(var, indices, updates, "max")


@update("ResourceScatterMin")
def _scatter_min(var: Expr, indices: Expr, updates: Expr) -> Expr:
    return _combined(var, indices, updates, "min")


@update("ResourceScatterDiv")
def _scatter_div(var: Expr, indices: Expr, updates: Expr) -> Expr:
    if var.shape.dtype.kind in "iu":
        raise UnsupportedError("ResourceScatterDiv of integers, which rounds after each division")
    return ops.div(var, _combined(ops.full(like(var, 1), dims=var.shape.dims), indices, updates, "mul"))


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
