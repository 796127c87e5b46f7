"""Twins: variables on the CPU that stand in for the device's while CPU kernels run on them.

Owns: making a twin, letting it hold what the variable holds, and taking the contents back.  A twin has no name and goes with its handle.
Nothing is copied but by a kernel that writes in place where somebody else still holds the contents.  May import `capi`, `attributes`,
`tensor`.
"""

from __future__ import annotations

from . import capi
from .attributes import attr_value
from .tensor import EXTENSION, Foreign, Tensor, Variable, of_host


def lend(variable: Variable, changes: bool) -> int:
    """The handle of the twin, which holds the variable's contents; it stays the variable's.

    Args:
        variable: the device's.
        changes: whether the kernel may write: then the variable lets go of its contents until `take_back`, so that they can be
            written in place.
    """
    if variable.lent:  # the same variable is given to an operation twice
        assert variable.twin is not None
        return variable.twin.handle
    current = variable.current
    if variable.twin is None or (current is None and variable.agreed is not None):
        variable.twin = Foreign(_new(variable.dtype), owned=True)
        variable.agreed = None
    twin = variable.twin
    if current is not None and variable.agreed is not current:
        _assign(twin.handle, current)
        variable.agreed = current
    if changes:
        variable.lent = True
        variable.current = variable.agreed = None
    return twin.handle


def take_back(variable: Variable) -> None:
    """The variable holds what its twin holds."""
    if variable.lent:
        variable.current = variable.agreed = contents(variable)
        variable.lent = False


def contents(variable: Variable) -> Tensor | None:
    """What the twin holds, or None if it was never assigned."""
    assert variable.twin is not None
    handle = variable.twin.handle
    try:
        if EXTENSION is not None:
            found: Tensor = EXTENSION.read_resource(handle, variable.dtype)
            return found
        (read,) = capi.execute_on_cpu("ReadVariableOp", {"dtype": capi.AttrValue(type=variable.dtype)}, [handle], 1)
        array = capi.handle_array(read)
        capi.delete_handle(read)
        return of_host(array, variable.dtype, foldable=False)
    except capi.StatusError as error:
        if error.code != capi.FAILED_PRECONDITION:
            raise
        return None


def _new(dtype: int) -> int:
    if EXTENSION is not None:
        made: int = EXTENSION.new_resource(dtype)
        return made
    unknown = capi.AttrValue()
    unknown.shape.unknown_rank = True
    attributes = {"dtype": capi.AttrValue(type=dtype), "shape": unknown, "shared_name": attr_value(capi.ANONYMOUS)}
    return capi.execute_on_cpu("VarHandleOp", {**attributes, "container": attr_value("")}, [], 1)[0]


def _assign(handle: int, tensor: Tensor) -> None:
    if EXTENSION is not None:
        EXTENSION.assign_resource(handle, tensor)
        return
    given = capi.array_handle(tensor.numpy(), tensor.dtype)
    capi.execute_on_cpu("AssignVariableOp", {"dtype": capi.AttrValue(type=tensor.dtype)}, [handle, given], 0)
    capi.delete_handle(given)
