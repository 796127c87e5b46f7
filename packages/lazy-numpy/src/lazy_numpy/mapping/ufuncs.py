"""Ufunc calls on lazy operands, with `out=`, `where=`, `dtype=` and `casting=`; and the operators' fast path.

Owns: choosing NumPy's loop (asked of NumPy), recording a call as one node, and writing results into outputs.  What a ufunc means is in
`lower_ufuncs`; its methods (`reduce`, `outer`, ...) are in `ufunc_methods`.  May import `tensor`, `convert`, `fallback`, lazy_core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lazy_core import ops, values
from lazy_core.errors import DtypeError, UnsupportedError
from lazy_core.ir import NO_ATTRS, Attrs, attrs, const
from lazy_core.ops.registry import Composite

from .. import convert, dtypes, fallback
from ..fallback import NotLowered
from ..recording import from_host, mode, record
from ..selection import selection
from ..tensor import ndarray, scalar, wrap, wrap_any, wrap_scalar
from . import lower_ufuncs, ranges

_record = record
_COMPARISONS = frozenset((np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal))


class Call(NamedTuple):
    """How to record a ufunc call on operands of certain shapes and dtypes.

    Attributes:
        target: an op or composite.
        attrs: its attributes.
        loop: the dtype that each Python scalar among the operands is given.
        outputs: the dtypes of the results.
        wrap: makes the result.
    """

    target: Any
    attrs: Attrs
    loop: tuple[np.dtype, ...]
    outputs: tuple[np.dtype, ...]
    wrap: Callable[[Any], Any]


def _cast(x: Any, dtype: np.dtype) -> Any:
    return x if x.shape.dtype == dtype else ops.convert(x, dtype=dtype)


_composites: dict[str, Composite] = {}


def _composite(name: str) -> Composite:
    found = _composites.get(name)
    if found is None:

        def call(*exprs: Any, loop: tuple[np.dtype, ...], outputs: tuple[np.dtype, ...]) -> Any:
            build = lower_ufuncs.builder(name, loop)
            assert build is not None
            result = build(*[_cast(x, d) for x, d in zip(exprs, loop, strict=True)])
            if isinstance(result, tuple):
                return tuple([_cast(r, d) for r, d in zip(result, outputs, strict=True)])
            return _cast(result, outputs[0])

        found = _composites[name] = Composite(f"numpy.{name}", call)
    return found


def plan(ufunc: np.ufunc, kinds: tuple[Any, ...], dims: tuple[tuple[int, ...], ...], dtype: Any = None, casting: Any = "same_kind") -> Call:
    """Choose NumPy's loop for operands of these dtypes (or Python types, for weak scalars) and dims.

    Raises:
        NotLowered: only NumPy can run it.
        TypeError, ValueError: NumPy's own errors.
    """
    name = ufunc.__name__ if _is_numpys(ufunc) else _foreign_name(ufunc)
    if ufunc.signature is None:
        _check_shapes(dims)
    else:
        _check_core_dims(ufunc, dims)
    wanted: dict[str, Any] = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,) * ufunc.nout}
    found = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout), casting=casting, **wanted)
    loop, outputs = found[: ufunc.nin], found[ufunc.nin :]
    if not all(dtypes.supports(d) for d in found):
        raise NotLowered(f"a loop on {', '.join(map(str, found))}")
    build = lower_ufuncs.builder(name, loop)
    if build is None:
        raise NotLowered(f"no lowering on {', '.join(map(str, loop))}")
    plain = lower_ufuncs.PLAIN.get(name)
    target: Any
    if (
        build is plain
        and all(isinstance(k, type) or k == d for k, d in zip(kinds, loop, strict=True))
        and _keeps_output(plain, dims, loop, outputs)
    ):
        target, attributes = plain, NO_ATTRS
    else:
        target, attributes = _composite(name), attrs(loop=loop, outputs=outputs)
    zero_d = not any(dims) if ufunc.signature is None else None
    return Call(target, attributes, loop, outputs, wrap_any if zero_d is None or len(outputs) > 1 else wrap_scalar if zero_d else wrap)


def _keeps_output(op: Any, dims: Any, loop: tuple[np.dtype, ...], outputs: tuple[np.dtype, ...]) -> bool:
    from lazy_core.shape import Shape

    try:
        shapes, several = op.infer(tuple([Shape.of(d, t) for d, t in zip(dims, loop, strict=True)]), NO_ATTRS)
    except DtypeError:  # the operation has no such loop by itself; the composite casts
        return False
    return not several and shapes[0].dtype == outputs[0]


def _is_numpys(ufunc: np.ufunc) -> bool:
    return getattr(np, ufunc.__name__, None) is ufunc or ufunc.__name__ in ("divide", "remainder", "conjugate", "absolute", "invert")


def _foreign_name(ufunc: np.ufunc) -> str:
    """The name in our table of a ufunc of scipy.special, which must be the very object of that module."""
    special = sys.modules.get("scipy.special")
    name = f"scipy.{ufunc.__name__}"
    if special is None or name not in lower_ufuncs.SCIPY or getattr(special, ufunc.__name__, None) is not ufunc:
        raise NotLowered("a ufunc of another library")
    return name


def _check_shapes(dims: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*dims)
    except ValueError:
        pass
    raise ValueError(f"operands could not be broadcast together with shapes {' '.join(str(d).replace(' ', '') for d in dims)} ")


def _check_core_dims(ufunc: np.ufunc, dims: tuple[tuple[int, ...], ...]) -> None:
    """Let NumPy say what is wrong with the shapes: it looks before it computes."""
    sizes: dict[str, set[int]] = {}
    for term, d in zip((ufunc.signature or "").split("->")[0][1:-1].split("),("), dims, strict=True):
        names = [n for n in term.split(",") if n]
        if len(d) < sum(1 for n in names if not n.endswith("?")):
            break
        for name, n in zip(reversed(names), reversed(d), strict=False):
            sizes.setdefault(name.rstrip("?"), set()).add(n)
    else:
        if all(len(s) == 1 for s in sizes.values()):
            return
    ufunc(*[np.broadcast_to(np.bool_(), d) if ufunc is np.matmul else np.broadcast_to(np.float32(), d) for d in dims])


# ------------------------------------------------------------------ calls


def is_for_others(inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operand of another library wants to handle the call."""
    for x in (*inputs, *(kwargs.get("out") or ())):
        if type(x) in (ndarray, scalar, np.ndarray, selection):
            continue
        override = getattr(type(x), "__array_ufunc__", False)
        if override is None or (override and not isinstance(x, (np.ndarray, np.generic))):
            return True
    return False


def on_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NumPy's `__array_ufunc__` protocol."""
    for x in (*inputs, *(kwargs.get("out") or ())):
        if type(x) is selection:
            return x.__array_ufunc__(ufunc, method, *inputs, **kwargs)
    if is_for_others(inputs, kwargs):
        return NotImplemented
    if method == "__call__":
        if not kwargs:
            return call(ufunc, inputs)
        return call_with(ufunc, inputs, **kwargs)
    from .ufunc_methods import METHODS

    try:
        return METHODS[method](ufunc, *inputs, **kwargs)
    except (NotLowered, UnsupportedError, DtypeError) as why:
        return fallback.run(getattr(ufunc, method), inputs, _flat_out(kwargs), f"{ufunc.__name__}.{method}", str(why))


def check_exponent(loop: tuple[np.dtype, ...], exponent: Any) -> None:
    """Integers have no negative powers; an exponent that was computed is read, unless its bounds are known.

    Raises:
        ValueError: an exponent is negative.
    """
    if loop[1].kind != "i":
        return
    if isinstance(exponent, values.Value):
        if exponent.shape.dtype.kind != "i" or not exponent.shape.size:
            return
        bounds = ranges.known(exponent)
        if bounds is None:
            host = values.to_host(exponent)
            bounds = (int(host.min()), int(host.max()))
            ranges.note(exponent, *bounds)
        lowest = bounds[0]
    else:
        lowest = int(exponent.value if hasattr(exponent, "value") else exponent)
    if lowest < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")


def _flat_out(kwargs: dict[str, Any]) -> dict[str, Any]:
    out = kwargs.get("out")
    if type(out) is tuple and len(out) == 1:
        return {**kwargs, "out": out[0]}
    return kwargs


_plans: dict[Any, Call] = {}
_failed: set[Any] = set()  # keys of plans that turned out to have no lowering: operators must not remember them


def call(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """A plain call, without keywords."""
    try:
        operands = [convert.operand(x) for x in inputs]
        found = _planned(ufunc, operands)
        if ufunc is np.power:
            check_exponent(found.loop, operands[1][0])
        return found.wrap(_record(found.target, _give(operands, found.loop), found.attrs))
    except OverflowError:
        if ufunc in _COMPARISONS:
            return fallback.on_host(ufunc, inputs, {})
        raise
    except (NotLowered, UnsupportedError, DtypeError) as why:
        _failed.add(_known_key(ufunc, inputs))
        return fallback.run(ufunc, inputs, {}, ufunc.__name__, str(why))


def _planned(ufunc: np.ufunc, operands: list[tuple[Any, Any]], dtype: Any = None, casting: Any = "same_kind") -> Call:
    key = (ufunc, dtype, casting, *[k if v.__class__ is k else v.shape for v, k in operands])
    found = _plans.get(key)
    if found is None:
        mode.unknown(key)
        kinds = tuple([k for _, k in operands])
        dims = tuple([() if v.__class__ is k else v.shape.dims for v, k in operands])
        found = _plans[key] = plan(ufunc, kinds, dims, dtype, casting)
    return found


def _give(operands: list[tuple[Any, Any]], loop: tuple[np.dtype, ...]) -> tuple[Any, ...]:
    """The operands with each Python scalar as a constant of its loop dtype."""
    given = []
    for (value, kind), dtype in zip(operands, loop, strict=True):
        if value.__class__ is kind:
            if kind is int:
                dtypes.check_python_int(value, dtype)
            value = const(value, dtype)
        given.append(value)
    return tuple(given)


@ops.registry.composite("numpy.assign")
def assign(x: Any, *, dims: tuple[int, ...], dtype: np.dtype) -> Any:
    """x cast to a dtype and broadcast to dims."""
    x = _cast(x, dtype)
    return x if x.shape.dims == dims else ops.broadcast_to(x, dims=dims)


@ops.registry.composite("numpy.where_assign")
def where_assign(mask: Any, x: Any, old: Any) -> Any:
    """The elements of x where the mask holds, else the old ones; the result has the dims and dtype of `old`."""
    return ops.where(ops.broadcast_to(mask, dims=old.shape.dims), assign(x, dims=old.shape.dims, dtype=old.shape.dtype), old)


_fit_attrs: dict[Any, Attrs] = {}


def fit(value: Any, shape: Any) -> Any:
    """A value cast and broadcast to a shape, as an assignment does it.

    Raises:
        ValueError: it cannot be broadcast.
    """
    if value.shape is shape:
        return value if isinstance(value, values.Value) else _record(assign, (value,), _fit(shape))
    if value.shape.dims != shape.dims:
        dims = value.shape.dims
        while len(dims) > len(shape.dims) and dims[0] == 1:
            dims = dims[1:]
        if len(dims) > len(shape.dims) or any(n not in (1, m) for n, m in zip(reversed(dims), reversed(shape.dims), strict=False)):
            raise ValueError(f"could not broadcast input array from shape {_text(value.shape.dims)} into shape {_text(shape.dims)}")
        if dims != value.shape.dims:
            value = _record(ops.reshape, (value,), attrs(dims=dims))
    return _record(assign, (value,), _fit(shape))


def _fit(shape: Any) -> Attrs:
    found = _fit_attrs.get(shape)
    if found is None:
        found = _fit_attrs[shape] = attrs(dims=shape.dims, dtype=shape.dtype)
    return found


def _text(dims: tuple[int, ...]) -> str:
    return str(dims).replace(" ", "")


def call_with(
    ufunc: np.ufunc,
    inputs: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    casting: str = "same_kind",
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    **rest: Any,
) -> Any:
    """A call with keywords."""
    outs = () if out is None else out if isinstance(out, tuple) else (out,)
    kwargs: dict[str, Any] = {"casting": casting, "dtype": dtype, "where": where, **rest}
    try:
        if rest:
            raise NotLowered(f"the keywords {', '.join(rest)}")
        operands = [convert.operand(x) for x in inputs]
        found = _planned(ufunc, operands, None if dtype is None else np.dtype(dtype), casting)
        if ufunc is np.power:
            check_exponent(found.loop, operands[1][0])
        results = _record(found.target, _give(operands, found.loop), found.attrs)
        results = results if isinstance(results, tuple) else (results,)
        mask = None if where is True else convert.operand(where)[0]
        finished = tuple([_finish(ufunc, r, o, mask, casting) for r, o in zip(results, outs or (None,) * len(results), strict=True)])
    except (NotLowered, UnsupportedError, DtypeError) as why:
        if outs:
            kwargs["out"] = outs[0] if len(outs) == 1 else outs
        return fallback.run(ufunc, inputs, kwargs, ufunc.__name__, str(why))
    return finished if len(finished) > 1 else finished[0]


def _finish(ufunc: np.ufunc, result: Any, out: Any, mask: Any, casting: Any) -> Any:
    if out is None:
        if mask is None:
            return wrap_any(result)
        return wrap(
            _record(
                where_assign,
                (mask, result, from_host(np.zeros(_check_shapes((result.shape.dims, mask.shape.dims)), result.shape.dtype))),
            )
        )
    if not np.can_cast(result.shape.dtype, out.dtype, casting):
        _raise_cast(ufunc, result.shape.dtype, out.dtype, casting)
    needed = result.shape.dims if mask is None else _check_shapes((result.shape.dims, mask.shape.dims))
    if _check_shapes((needed, out.shape)) != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {_text(out.shape)} "
            f"doesn't match the broadcast shape {_text(_check_shapes((needed, out.shape)))}"
        )
    if type(out) is not ndarray:  # NumPy's own array: write into it
        host = np.asarray(values.to_host(result))
        np.copyto(
            out,
            host,
            casting=casting,
            where=True if mask is None else values.to_host(mask) if isinstance(mask, values.Value) else bool(mask.value),
        )
        return out
    if mask is None:
        out._put(fit(result, out._shape))
    else:
        out._put(_record(where_assign, (mask, result, out._get())))
    return out


def _raise_cast(ufunc: np.ufunc, given: np.dtype, wanted: np.dtype, casting: str) -> None:
    raise np._core._exceptions._UFuncOutputCastingError(ufunc, casting, given, wanted, 0)  # type: ignore[attr-defined]


def known(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Call | None:
    """How a call that has been made once is recorded, for operators to remember; None where it is not recorded."""
    key = _known_key(ufunc, inputs)
    return None if key in _failed else _plans.get(key)


def _known_key(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    return (ufunc, None, "same_kind", *[x._shape if type(x) in (ndarray, scalar) else type(x) for x in inputs])


def finish_in_place(ufunc: np.ufunc, target: ndarray, result: Any, other: Any) -> ndarray:
    """Write the result of an in-place operator whose shape or dtype is not the target's own."""
    value, dtype = convert.operand(result)
    if not np.can_cast(dtype, target._shape.dtype, "same_kind"):
        _raise_cast(ufunc, dtype, target._shape.dtype, "same_kind")
    if value.shape.dims != target._shape.dims and _check_shapes((value.shape.dims, target._shape.dims)) != target._shape.dims:
        raise ValueError(
            f"non-broadcastable output operand with shape {_text(target._shape.dims)} "
            f"doesn't match the broadcast shape {_text(value.shape.dims)}"
        )
    target._put(fit(value, target._shape))
    return target
