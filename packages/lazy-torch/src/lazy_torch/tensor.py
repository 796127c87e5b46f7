"""What the native recorder asks Python on a miss: the policy of the frontend.

Owns: the functions that the extension calls by name in this module. They run under the GIL and the trace's lock, never in the steady
state. Imported by the extension on the first recorded operation; importing it brings in jax and the core.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch

from lazy_core import backend, events, ops, trace
from lazy_core import barrier as wait_for_all
from lazy_core.barrier import Failed
from lazy_core.barrier import flush as run_trace
from lazy_core.errors import DtypeError, LazyError, UnsupportedError
from lazy_core.ir import Expr, const
from lazy_core.ops.strided import movable
from lazy_core.shape import Shape

from . import dtypes, fallback
from .convert_host import cpu_to_numpy, numpy_to_cpu
from .recipes import Recipe, recipe_of
from .reinterpret import reinterpret
from .source import SOURCE

_trace = trace.current()
LOCK = _trace.lock
Geometry = tuple[tuple[int, ...], tuple[int, ...], int, int]  # sizes, strides, offset, scalar type number

events.hide_package(os.path.dirname(os.path.abspath(__file__)))

# ------------------------------------------------------------------ leaves, storages


def leaf(slot: int, geometry: Geometry) -> Expr:
    """The leaf of a slot: logical dims of a buffer's layout."""
    return _trace.leaf(SOURCE.index, slot, Shape.of(geometry[0], dtypes.of_code(geometry[3])))


def zeros(geometry: Geometry) -> Expr:
    """What a storage that was never written reads as."""
    return ops.full(const(0, dtypes.of_code(geometry[3])), dims=geometry[0])


def strided_read(base: Expr, layout: Geometry, view: Geometry) -> Expr:
    """The elements that a view shows of a storage, reinterpreting its bytes if the dtypes differ."""
    if layout[3] != view[3]:
        base, layout = _reinterpreted(base, layout, view[3])
    if layout[:3] == view[:3]:
        return base
    found: Expr
    if movable(layout[:3], view[:3]) and math.prod(view[0]) != base.shape.size:
        found = ops.strided_read_at(base, np.int64(view[2]), layout=layout[:3], view=(*view[:2], 0))
    else:
        found = ops.strided_read(base, layout=layout[:3], view=view[:3])
    return found


def strided_write(base: Expr, update: Expr, layout: Geometry, view: Geometry) -> Expr:
    """A storage's value with the elements that a view shows replaced."""
    if layout[3] == view[3]:
        if movable(layout[:3], view[:3]) and math.prod(view[0]) != base.shape.size:
            return ops.strided_write_at(base, update, np.int64(view[2]), layout=layout[:3], view=(*view[:2], 0))
        return ops.strided_write(base, update, layout=layout[:3], view=view[:3])
    flat, flat_layout = _reinterpreted(base, layout, view[3])
    written = ops.strided_write(flat, update, layout=flat_layout[:3], view=view[:3])
    back, back_layout = _reinterpreted(written, flat_layout, layout[3])
    return ops.strided_read(back, layout=back_layout[:3], view=layout[:3])


def starts_moving(place: bytes, layout: Geometry, view: Geometry) -> bool:
    """Whether a view that was seen at other offsets in earlier traces takes its offset at run time from now on."""
    return bool(movable(layout[:3], view[:3])) and _trace.sites.should_lift(place)


def strided_read_at(base: Expr, layout: Geometry, view: Geometry, slot: int) -> Expr:
    """`strided_read` at an offset that is a number fed at run time."""
    offset = _trace.scalar_leaf(SOURCE.index, "i", slot)
    found: Expr = ops.strided_read_at(base, offset, layout=layout[:3], view=view[:3])
    return found


def strided_write_at(base: Expr, update: Expr, layout: Geometry, view: Geometry, slot: int) -> Expr:
    """`strided_write` at an offset that is a number fed at run time."""
    offset = _trace.scalar_leaf(SOURCE.index, "i", slot)
    found: Expr = ops.strided_write_at(base, update, offset, layout=layout[:3], view=view[:3])
    return found


def _reinterpreted(base: Expr, layout: Geometry, code: int) -> tuple[Expr, Geometry]:
    """The same storage as a flat vector of another dtype."""
    count = base.shape.size
    flat = ops.strided_read(base, layout=layout[:3], view=((count,), (1,), 0))
    made = reinterpret(flat, dtypes.of_code(code))
    return made, ((made.shape.size,), (1,), 0, code)


# ------------------------------------------------------------------ transfers


def lend(tensor: torch.Tensor) -> Any:
    """A device array with a CPU tensor's contents, which may share its memory: nobody may write to it any more."""
    events.count("transfers")
    return backend.from_host(cpu_to_numpy(tensor), copy=False)


def host(array: Any) -> torch.Tensor:
    """A CPU tensor on the memory of a device array; it must not be written to.

    Raises:
        ExecutionError: computing it failed.
    """
    if array.__class__ is Failed:
        raise array.error
    events.count("transfers")
    return numpy_to_cpu(backend.to_host(array))


def flush(cause: str, host_read: bool) -> None:
    """A barrier for a reason."""
    run_trace(cause, host_read=host_read)


def synchronize() -> None:
    """A barrier that waits."""
    wait_for_all(wait=True)


def run_natively() -> None:
    """Run what is pending, operation by operation: what follows is not known to repeat."""
    run_trace("what follows was not recorded before", native=True)


def may_learn() -> bool:
    """Whether something may be recorded for the first time now (see `lazy_core.allowance`)."""
    return SOURCE.may_learn()


def cut(kind: int) -> None:
    """Called before an operation is recorded, when a barrier is due (1: after an optimizer's step) or the log has grown long (2)."""
    if kind == 1:
        run_trace("the end of an optimizer's step")
    else:
        SOURCE.cut_if_due()


# ------------------------------------------------------------------ numbers


def should_lift(site: bytes, kind: bytes, values: bytes) -> bool:
    """Whether the numbers of an operation are fed at run time from now on (see `trace.Sites`)."""
    return _trace.sites.should_lift(site, kind, values)


def scalar_leaf(kind: str, slot: int, code: int) -> Expr:
    """A number fed at run time; with a scalar type number it is a zero-dim tensor of that dtype, and otherwise a Python number."""
    found: Expr = _trace.scalar_leaf(SOURCE.index, kind, slot)
    if code < 0:
        return found
    dtype = dtypes.of_code(code)
    return ops.identity(found) if dtype == found.shape.dtype else ops.convert(found, dtype=dtype)


def constant(value: Any, code: int) -> Expr:
    """A zero-dim CPU tensor as a constant."""
    return const(value, dtypes.of_code(code))


def dtype(code: int) -> np.dtype:
    """NumPy's dtype of a scalar type number."""
    return dtypes.of_code(code)


def describe(expr: Expr) -> tuple[tuple[int, ...], int]:
    """Dims and scalar type number of an expression."""
    return expr.shape.dims, dtypes.code_of(expr.shape.dtype)


# ------------------------------------------------------------------ operations


def classify(name: str, composed: bool) -> tuple[int, bool, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """How an operation is treated.

    Returns:
        (mode, random, fixed, lift, writes): mode is 1 recorded, 2 torch's composed kernel, 0 the CPU kernel; then whether it draws random
        numbers, and the positions of arguments whose numbers are never fed at run time, that may be although they are floats, and that are
        written to although the schema does not say so.
    """
    recipe = recipe_of(name)
    if recipe is None:
        return (2 if composed else 0), False, (), (), ()
    return 1, recipe.random, recipe.static, recipe.lift, recipe.hidden


def note_fallback(name: str, reason: str) -> None:
    """Count and name an operation that runs on the CPU."""
    fallback.note(name, reason)


def miss(
    name: str, args: tuple[Any, ...], state: Expr | None, geometries: list[Geometry | None] | None, written: list[Geometry]
) -> tuple[list[Any], list[Expr | None], Expr | None] | None:
    """Record an operation that the native table does not know.

    Args:
        name: "add.Tensor".
        args: the arguments in schema order (see `mapping`).
        state: the random state, for operations that draw numbers.
        geometries: of the returned tensors in order, as torch infers them, or None where torch has no shape function.
        written: of the tensors that are written to, after the operation.

    Returns:
        (returned expressions, new values of the written tensors, next random state), or None where the builder cannot
        express these arguments.
    """
    recipe = recipe_of(name)
    assert recipe is not None
    try:
        with _trace.forbid_barrier(f"while aten::{name} is recorded"):
            results = recipe.call(args, state)
            next_state = results.pop() if recipe.random else None
            returned, updates = recipe.split(results, args)
            fitted = [_fit_write(recipe, u, g, geometries is not None) for u, g in zip(updates, written, strict=True)]
    except (UnsupportedError, DtypeError) as reason:  # torch's shape function accepted these dtypes, the device has not all of them
        fallback.remember(name, str(reason))
        return None
    if geometries is not None:
        _check_returns(recipe, returned, geometries)
    return returned, fitted, next_state


def _fit_write(recipe: Recipe, update: Expr | None, geometry: Geometry, known: bool) -> Expr | None:
    """The new value of a written tensor in its own dtype and dims."""
    if update is None:
        return None
    dims, wanted = geometry[0], dtypes.of_code(geometry[3])
    if update.shape.dtype != wanted:
        update = ops.convert(update, dtype=wanted)
    if update.shape.dims != dims and (known or not recipe.out):
        update = ops.broadcast_to(update, dims=dims)
    return update


def _check_returns(recipe: Recipe, returned: list[Any], geometries: list[Geometry | None]) -> None:
    flat = [e for r in returned for e in (r if isinstance(r, list) else [r])]
    if len(flat) != len(geometries):
        raise LazyError(f"the lowering of aten::{recipe.name} returns {len(flat)} tensors where torch returns {len(geometries)}")
    for expr, geometry in zip(flat, geometries, strict=True):
        if expr is None or geometry is None:
            continue
        wanted = Shape.of(geometry[0], dtypes.of_code(geometry[3]))
        if expr.shape is not wanted:
            raise DtypeError(
                f"the lowering of aten::{recipe.name} gives {expr.shape} where torch gives {wanted}; please report this as a bug"
            )
