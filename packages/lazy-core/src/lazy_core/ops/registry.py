"""The registry of operations: one function is an operation's lowering, shape rule, documentation and test inputs.

Owns: `Op`, the `op` decorator, `REGISTRY`, `Composite`, `Sample`, and the hooks through which recorders are installed (the trace and the
values come later in the order of imports, so they hand their recorders in).  May import `ir`, `shape`, `errors` and jax; never `trace`,
`values` or a frontend.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from ..deferred import jax, jnp
from ..errors import DtypeError, LazyError, ShapeError, UnsupportedError
from ..ir import Attrs, Expr, attrs, const
from ..shape import Shape, short_dtype


class Sample(NamedTuple):
    """Inputs that an operation is tested with: arrays by position, static attributes by keyword."""

    args: tuple[Any, ...]
    attrs: dict[str, Any]


Samples = Callable[[np.dtype, np.random.Generator], Iterator[Sample]]
Dtypes = tuple[np.dtype, ...]
# An operation's output shapes, and whether it returns a tuple.
Inferred = tuple[tuple[Shape, ...], bool]


def _dtypes(*names: Any) -> Dtypes:
    return tuple(np.dtype(n) for n in names)


HALF: Dtypes = _dtypes("float16", ml_dtypes.bfloat16)
FLOAT: Dtypes = _dtypes("float32", "float64") + HALF
COMPLEX: Dtypes = _dtypes("complex64", "complex128")
INT: Dtypes = _dtypes("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
BOOL: Dtypes = _dtypes("bool")
REAL: Dtypes = FLOAT + INT
NUMBER: Dtypes = FLOAT + INT + COMPLEX
ANY: Dtypes = NUMBER + BOOL
WIDE_FLOAT: Dtypes = _dtypes("float32", "float64")

_record_exprs: Callable[[Any, tuple[Expr, ...], Attrs], Any] | None = None
_record_values: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None


def set_recorder(record: Callable[[Any, tuple[Expr, ...], Attrs], Any]) -> None:
    """Install what records an operation on expressions: `record(op, exprs, attrs) -> Expr or tuple`."""
    global _record_exprs
    _record_exprs = record


def set_value_recorder(record: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Install what records an operation on values: `record(op, values, keyword attributes) -> Value or tuple`."""
    global _record_values
    _record_values = record


class Signatures(Protocol):
    """Where inferred output shapes outlive the process (see `disk`): what was inferred there, and what is inferred now."""

    def get(self, op: Op, shapes: tuple[Shape, ...], attributes: Attrs) -> Inferred | None:
        """The output shapes for these operand shapes, or None if they are not known."""
        ...

    def put(self, op: Op, shapes: tuple[Shape, ...], attributes: Attrs, inferred: Inferred) -> None:
        """Keep output shapes."""
        ...


_signatures: Signatures | None = None


def set_signatures(signatures: Signatures) -> None:
    """Install what remembers inferred shapes from process to process."""
    global _signatures
    _signatures = signatures


def is_value(x: object) -> bool:
    """Whether an object is a promise of a tensor value (see `values.Value`)."""
    return getattr(type(x), "__lazy_value__", False)


def _bake(name: str, arg: Any) -> Any:
    if isinstance(arg, Expr) or is_value(arg):
        return arg
    if isinstance(arg, np.generic):
        return const(arg, arg.dtype)
    raise DtypeError(
        f"{name}: {arg!r} of type {type(arg).__name__} is not an expression; "
        "core does no promotion, so give a scalar its dtype: ir.const(number, dtype) or numpy.float32(number)"
    )


class InPlace(NamedTuple):
    """A write to a part of its first operand, in that operand's memory.

    Attributes:
        write: the lowering; called as the operation's own.
        read: the lowering of the read that gives the written part back, of the result, with the same attributes; None if the operation is
            never lowered in another way.
    """

    write: Callable[..., Any]
    read: Callable[..., Any] | None


class Rule(NamedTuple):
    """The dims of an operation's only result, from its operands' shapes and its attributes: a shortcut (see `ops.dims`).

    Attributes:
        dims: gives the dims, or None where the lowering has to be traced.
        by_attributes: whether attributes beside `dtype` may decide the result's dtype, or whether operands are taken; if not, `dims`
            checks all of them.
    """

    dims: Callable[[Sequence[Shape], Mapping[str, Any]], tuple[int, ...] | None]
    by_attributes: bool = True


_MOST_SIGNATURES = 4096


class Op:
    """One core operation.

    Calling it records it when an argument is an expression or a value, or when no argument is an array; given arrays it runs its lowering.

    Attributes:
        name: unique in the registry.
        fn: the lowering: a function of arrays by position and static attributes by keyword, which JAX can trace.
        family: the module that it stands in.
        doc: its docstring.
        samples: see `Sample`; called with a dtype and a random generator.
        dtypes: the dtypes that samples can be made for.
        attr_names: the names of its static attributes.
        rewrite: None, or what looks at the expressions that the operation is being recorded on, once for each key: it returns an expression
            that is the result already, or the operands to record it on instead.
        in_place: None, or how a write is lowered that takes the memory of its base.
        rule: None, or how the result's dims follow from the operands' without tracing the lowering.
    """

    __slots__ = (
        "__weakref__",
        "_dtypes",
        "_inferred",
        "attr_names",
        "defaults",
        "doc",
        "dtypes",
        "family",
        "fn",
        "in_place",
        "name",
        "rewrite",
        "rule",
        "samples",
    )

    def __init__(self, name: str, fn: Callable[..., Any], samples: Samples | None = None, dtypes: Dtypes = ANY, raw: bool = False) -> None:
        self.name = name
        self.fn = fn if raw else _with_arrays(fn)
        self.family = fn.__module__.rpartition(".")[2]
        self.doc = inspect.getdoc(fn) or ""
        self.samples = samples
        self.rewrite: Callable[[tuple[Expr, ...], Attrs], Expr | tuple[Expr, ...]] | None = None
        self.in_place: InPlace | None = None
        self.dtypes = dtypes
        keyword = [p for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]
        self.attr_names = tuple(p.name for p in keyword)
        self.defaults = {p.name: p.default for p in keyword if p.default is not p.empty}
        self.rule: Rule | None = None
        self._inferred: dict[tuple[tuple[Shape, ...], Attrs], Inferred] = {}
        self._dtypes: dict[Hashable, np.dtype] = {}

    @staticmethod
    def unregistered(name: str, fn: Callable[..., Any]) -> Op:
        """An operation that is in no registry: for tests and one-off lowerings."""
        return Op(name, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record on expressions or values, or run on arrays.

        Raises:
            ShapeError, DtypeError: the operands do not fit.
        """
        if any(is_value(a) for a in args):
            if _record_values is None:
                raise LazyError("no recorder of values is installed: import lazy_core")
            return _record_values(self, tuple([_bake(self.name, a) for a in args]), {**self.defaults, **kwargs})
        if all(isinstance(a, (Expr, np.generic)) for a in args) or any(isinstance(a, Expr) for a in args):
            if _record_exprs is None:
                raise LazyError("no recorder of expressions is installed: import lazy_core")
            return _record_exprs(self, tuple([_bake(self.name, a) for a in args]), attrs(**{**self.defaults, **kwargs}))
        return self.fn(*args, **kwargs)

    def infer(self, shapes: tuple[Shape, ...], attributes: Attrs) -> Inferred:
        """The output shapes for these operand shapes, and whether the operation returns a tuple; memoised.

        Raises:
            ShapeError, DtypeError: the operands do not fit.
            UnsupportedError: the operation does not exist for these dtypes on the device.
            TypeError: an attribute is missing or unknown.
        """
        key = (shapes, attributes)
        found = self._inferred.get(key)
        if found is None:
            if len(self._inferred) >= _MOST_SIGNATURES:  # shapes that never repeat must not cost memory for good
                self.forget_shapes()
            found = self._by_rule(shapes, attributes)
            if found is None:
                found = self._known_or_traced(shapes, attributes)
                if self.rule is not None and not found[1]:
                    self._dtypes[self._sort(self.rule, shapes, attributes)] = found[0][0].dtype
            self._inferred[key] = found
        return found

    def _known_or_traced(self, shapes: tuple[Shape, ...], attributes: Attrs) -> Inferred:
        if _signatures is None:
            return self._infer(shapes, attributes)
        found = _signatures.get(self, shapes, attributes)
        if found is None:
            found = self._infer(shapes, attributes)
            _signatures.put(self, shapes, attributes, found)
        return found

    def forget_shapes(self) -> None:
        """Infer anew from now on."""
        self._inferred.clear()
        self._dtypes.clear()

    @staticmethod
    def _sort(rule: Rule, shapes: tuple[Shape, ...], attributes: Attrs) -> Hashable:
        """What decides the result's dtype, and whether the lowering takes such operands and attributes at all."""
        decides = attributes if rule.by_attributes else (attributes.kwargs.get("dtype"), *attributes.kwargs)
        return (decides, *[s.dtype for s in shapes])

    def _by_rule(self, shapes: tuple[Shape, ...], attributes: Attrs) -> Inferred | None:
        """What the rule of dims gives, for a sort of operands that was inferred before; None if it has no answer."""
        if self.rule is None:
            return None
        dtype = self._dtypes.get(self._sort(self.rule, shapes, attributes))
        if dtype is None:
            return None
        try:
            dims = self.rule.dims(shapes, attributes.kwargs)
        except ShapeError:  # of an axis: the lowering says it in its own words
            return None
        return None if dims is None else ((Shape.of(dims, dtype),), False)

    def _infer(self, shapes: tuple[Shape, ...], attributes: Attrs) -> Inferred:
        given, needed = set(attributes.kwargs), set(self.attr_names)
        if given - needed or needed - given - set(self.defaults):
            raise TypeError(f"{self.name} takes the attributes ({', '.join(self.attr_names)}), not ({', '.join(sorted(given))})")
        structs = [abstract(s.dims, s.dtype) for s in shapes]
        try:
            with jax.enable_x64(True):
                result = jax.eval_shape(lambda *xs: self.fn(*xs, **attributes.kwargs), *structs)
        except LazyError:
            raise
        except (TypeError, ValueError, IndexError, NotImplementedError, AssertionError, ZeroDivisionError) as error:
            raise self._explain(error, shapes, attributes) from error
        several = isinstance(result, (tuple, list))
        return tuple([Shape.of(r.shape, r.dtype) for r in (result if several else (result,))]), several

    def _explain(self, error: Exception, shapes: Sequence[Shape], attributes: Attrs) -> LazyError:
        got = f"{self.name}({', '.join(map(str, shapes))})" + (f" with {attributes.name}" if attributes.kwargs else "")
        first = next(iter(str(error).splitlines()), "")
        text = f"{got} does not fit: {first}; expected: {self.doc.splitlines()[0] if self.doc else self.name}"
        if isinstance(error, NotImplementedError):
            return UnsupportedError(text)
        return DtypeError(text) if isinstance(error, TypeError) and "dtype" in str(error) else ShapeError(text)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _with_arrays(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering may be given NumPy scalars (constants of the graph); it sees arrays."""

    @functools.wraps(fn)
    def lowering(*args: Any, **kwargs: Any) -> Any:
        return fn(*[a if isinstance(a, jax.Array) else jnp.asarray(a) for a in args], **kwargs)

    return lowering


def abstract(dims: Sequence[int], dtype: Any) -> Any:
    """An array that has only dims and a dtype, to trace a function with."""
    return jax.ShapeDtypeStruct(tuple(dims), dtype)  # type: ignore[no-untyped-call]


REGISTRY: dict[str, Op] = {}


def op(*, samples: Samples, dtypes: Dtypes = ANY, name: str | None = None, raw: bool = False) -> Callable[[Callable[..., Any]], Op]:
    """Turn a function into a registered operation.

    Positional parameters are values, keyword-only parameters are static attributes.

    Args:
        samples: makes test inputs for a dtype.
        dtypes: the dtypes that samples can be made for.
        name: the registered name where it cannot be the function's own.
        raw: constants of the graph arrive as NumPy scalars, for an operation that lowers some of them specially.

    Raises:
        ValueError: the name is taken, or the function has no docstring.
    """

    def register(fn: Callable[..., Any]) -> Op:
        chosen = name or fn.__name__
        if chosen in REGISTRY:
            raise ValueError(f"two operations are named {chosen!r}: in {REGISTRY[chosen].family} and in {fn.__module__}")
        if not fn.__doc__:
            raise ValueError(f"operation {chosen!r} has no docstring")
        REGISTRY[chosen] = Op(chosen, fn, samples, dtypes, raw)
        return REGISTRY[chosen]

    return register


class Composite:
    """A coarse library call as a function of expressions; recorded under one key, expanded into core operations.

    It must be a pure function of its inputs' shapes and of its attributes.
    """

    __slots__ = ("__weakref__", "doc", "fn", "name")

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        self.fn = fn
        self.doc = inspect.getdoc(fn) or ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record on values; on expressions, expand in place."""
        if any(is_value(a) for a in args):
            if _record_values is None:
                raise LazyError("no recorder of values is installed: import lazy_core")
            return _record_values(self, tuple([_bake(self.name, a) for a in args]), kwargs)
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<composite {self.name}>"


def composite(name: str) -> Callable[[Callable[..., Any]], Composite]:
    """Turn `(*exprs, **attributes) -> Expr or tuple` into a Composite of this name."""
    return lambda fn: Composite(name, fn)


# ------------------------------------------------------------------ checks that lowerings share


def describe(*xs: Any) -> str:
    """Operands as they are printed in errors: `f32[2,3], s64[3]`."""
    return ", ".join(f"{short_dtype(x.dtype)}[{','.join(map(str, x.shape))}]" for x in xs)


def same_dtype(name: str, *xs: Any) -> None:
    """Check that operands have one dtype.

    Raises:
        DtypeError: they differ.
    """
    if any(x.dtype != xs[0].dtype for x in xs):
        names = " and ".join(dict.fromkeys(np.dtype(x.dtype).name for x in xs))
        raise DtypeError(f"{name}({describe(*xs)}): operands of dtypes {names}; core does no promotion: convert one of them first")


def align(name: str, *xs: Any) -> list[Any]:
    """Broadcast operands to their common dims, as NumPy does.

    Raises:
        ShapeError: the dims do not fit.
    """
    if all(x.shape == xs[0].shape for x in xs):
        return list(xs)
    try:
        dims = np.broadcast_shapes(*[x.shape for x in xs])
    except ValueError as error:
        raise ShapeError(
            f"{name}({describe(*xs)}): dims cannot be broadcast; sizes must be equal or 1, counted from the last dim"
        ) from error
    return [spread(x, dims) for x in xs]


def spread(x: Any, dims: tuple[int, ...]) -> Any:
    """Broadcast one operand to dims that it is known to fit."""
    return x if x.shape == dims else jnp.broadcast_to(x, dims)


def axis_of(name: str, axis: int, ndim: int) -> int:
    """A dim number counted from the front.

    Raises:
        ShapeError: there is no such dim.
    """
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{name}: axis {axis} is out of bounds for an operand of {ndim} dims; expected {-ndim} to {ndim - 1}")
    return axis % ndim


def axes_of(name: str, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Dim numbers counted from the front.

    Raises:
        ShapeError: there is no such dim, or one is named twice.
    """
    found = tuple(axis_of(name, a, ndim) for a in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: axes {tuple(axes)} name a dim of an operand of {ndim} dims twice")
    return found


# ------------------------------------------------------------------ sample makers that families share


def numbers(rng: np.random.Generator, dims: tuple[int, ...], dtype: Any, low: float = -4.0, high: float = 4.0) -> np.ndarray:
    """Random numbers of any dtype between two bounds (clipped at zero for unsigned dtypes)."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, dims), bool)
    if dtype.kind == "u":
        low = max(low, 0.0)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(int(np.ceil(low)), int(np.floor(high)) + 1, dims), dtype)
    if dtype.kind == "c":
        return np.asarray(rng.uniform(low, high, dims) + 1j * rng.uniform(low, high, dims), dtype)
    return np.asarray(rng.uniform(low, high, dims), dtype)


def unary_samples(low: float = -4.0, high: float = 4.0, special: bool = True) -> Samples:
    """Samples of one operand: a matrix, a 0-d and an empty array; for floats also signed zeros, infinities and NaN."""

    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for dims in ((3, 4), (), (0, 2)):
            yield Sample((numbers(rng, dims, dtype, low, high),), {})
        if special and dtype.kind not in "biuc":
            yield Sample((np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float64).astype(dtype),), {})

    return make


def binary_samples(low: float = -4.0, high: float = 4.0, special: bool = True) -> Samples:
    """Samples of two operands of one dtype: equal dims, broadcast dims, a 0-d one; for floats also special values."""

    def make(dtype: np.dtype, rng: np.random.Generator) -> Iterator[Sample]:
        for left, right in (((3, 4), (3, 4)), ((3, 1), (4,)), ((2, 3), ()), ((0, 3), (3,))):
            yield Sample((numbers(rng, left, dtype, low, high), numbers(rng, right, dtype, low, high)), {})
        if special and dtype.kind not in "biuc":
            values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5], np.float64).astype(dtype)
            yield Sample((values[:, None], values), {})

    return make
