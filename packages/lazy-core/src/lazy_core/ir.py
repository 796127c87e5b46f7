"""The intermediate representation: interned, immutable expressions.

Owns: Expr and its kinds, Node, Attrs, and the bit-exact keys of static data.  A recorded operation is a `Node`; each of its
outputs is an `Expr`.  Expressions are interned by whoever records (the trace), so identity is equality, and they outlive
the trace that made them: the second time round a loop every recorded operation is one dictionary hit.  No expression holds
a buffer.  May import `shape` and `errors` only.

Source: LazyTensor (Suhan et al., arXiv 2102.13267), section 3; interning is this project's departure from it.
"""

from __future__ import annotations

import itertools
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from .errors import DtypeError
from .shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

_expr_ids = itertools.count(1)


class Operation(Protocol):
    """What a node needs of its operation: its name, family, function of arrays, and how it writes (see `ops.registry.Op`)."""

    name: str
    family: str
    fn: Callable[..., Any]
    in_place: Any


class Attrs:
    """Static keyword attributes of an operation; interned by type and bits."""

    __slots__ = ("__weakref__", "key", "kwargs", "name")

    def __init__(self, kwargs: dict[str, Any], key: Any = ()) -> None:
        self.kwargs = kwargs
        self.key = key
        self.name = ", ".join(f"{k}={_attr_text(v)}" for k, v in kwargs.items())

    def __repr__(self) -> str:
        return f"({self.name})"


def _attr_text(value: Any) -> str:
    return np.dtype(value).name if isinstance(value, np.dtype) else repr(value)


class Node:
    """One recorded operation: its inputs, attributes and outputs, and the user's line that first recorded it."""

    __slots__ = ("attrs", "inputs", "kernel", "op", "outputs", "site")

    def __init__(self, op: Operation, inputs: tuple[Expr, ...], attrs: Attrs, site: str | None) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.site = site
        self.outputs: tuple[Expr, ...] = ()
        self.kernel: Any = None  # what runs it without compiling, once found (see `native`)

    def __repr__(self) -> str:
        args = ", ".join(f"%{i.id}" for i in self.inputs)
        extra = f" {{{self.attrs.name}}}" if self.attrs.kwargs else ""
        return f"{self.op.name}({args}){extra}"


class Expr:
    """One output of one recorded operation.

    Attributes:
        shape: the dimensions and dtype of the value.
        node: the operation, or None for a leaf or a constant.
        index: which output of the node this is.
        id: a number unique in the process.
        skeleton: a number that expressions share which differ in scalars only, baked or fed; set by whoever interns them.
    """

    __slots__ = ("__weakref__", "id", "index", "node", "shape", "skeleton")

    def __init__(self, shape: Shape, node: Node | None, index: int = 0) -> None:
        self.shape = shape
        self.node = node
        self.index = index
        self.id = self.skeleton = next(_expr_ids)

    @property
    def expr(self) -> Expr:
        """This expression: lets a recorder treat values and expressions alike."""
        return self

    def __repr__(self) -> str:
        body = repr(self.node) if self.node is not None else self._describe()
        return f"%{self.id} = {self.shape} {body}" + (f" #{self.index}" if self.index else "")

    def _describe(self) -> str:
        return "expr"


_holes: dict[np.dtype, int] = {}


def hole(shape: Shape) -> int:
    """The skeleton of every scalar of a dtype, whatever its value and however it gets into the graph."""
    found = _holes.get(shape.dtype)
    return _holes.setdefault(shape.dtype, next(_expr_ids)) if found is None else found


# The source of leaves and scalars that are in no trace: those of graphs read from files, or cut out of others.
NOBODY = -1


class Leaf(Expr):
    """A materialised buffer, named by the source that holds it and a slot number that restarts at every barrier."""

    __slots__ = ("slot", "source")

    def __init__(self, shape: Shape, source: int, slot: int) -> None:
        super().__init__(shape, None)
        self.source = source
        self.slot = slot

    def _describe(self) -> str:
        return f"leaf({self.source}.{self.slot})"


class Const(Expr):
    """A scalar baked into the graph."""

    __slots__ = ("bits", "value")

    def __init__(self, value: np.generic) -> None:
        super().__init__(Shape.of((), value.dtype), None)
        self.value = value
        self.bits = value.tobytes()
        self.skeleton = hole(self.shape)

    def _describe(self) -> str:
        return f"const({self.value})"


_SCALAR_DTYPES = {"f": np.dtype(np.float64), "i": np.dtype(np.int64), "c": np.dtype(np.complex128)}


class ScalarLeaf(Expr):
    """A scalar fed at run time: slot `slot` of the packed vector of kind f (f64), i (s64) or c (c128) of a source."""

    __slots__ = ("kind", "slot", "source")

    def __init__(self, source: int, kind: str, slot: int) -> None:
        super().__init__(Shape.of((), _SCALAR_DTYPES[kind]), None)
        self.skeleton = hole(self.shape)
        self.source = source
        self.kind = kind
        self.slot = slot

    def _describe(self) -> str:
        return f"scalar({self.source}.{self.kind}{self.slot})"


# ------------------------------------------------------------------ static data, keyed by bits


def freeze(value: Any) -> Any:
    """A hashable key of static data by type and bits: 1, 1.0 and True differ, 0.0 and -0.0 differ, nan equals itself.

    Raises:
        DtypeError: the value is of a kind that cannot be a static attribute.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return (kind, value)
    if kind is float:
        return (float, struct.pack("<d", value))
    if kind is complex:
        return (complex, struct.pack("<dd", value.real, value.imag))
    if kind is tuple:
        return (tuple, tuple([freeze(v) for v in value]))
    if isinstance(value, np.dtype):
        return (np.dtype, value)
    if kind is Shape:
        return (Shape, value)
    if isinstance(value, np.generic):
        return (value.dtype, value.tobytes())
    if kind is slice:
        return (slice, freeze(value.start), freeze(value.stop), freeze(value.step))
    raise DtypeError(
        f"{value!r} of type {kind.__name__} cannot be a static attribute; "
        "use None, bool, int, float, complex, str, bytes, numpy.dtype, slice or tuples of these"
    )


# Weak: attributes are forgotten with the last expression that has them.
_attr_lock = threading.Lock()
_attr_table: weakref.WeakValueDictionary[Any, Attrs] = weakref.WeakValueDictionary()
NO_ATTRS = Attrs({})


def attrs(**kwargs: Any) -> Attrs:
    """The interned attributes with these names and values (see `freeze` for what is allowed)."""
    if not kwargs:
        return NO_ATTRS
    key = tuple([(k, freeze(kwargs[k])) for k in sorted(kwargs)])
    found = _attr_table.get(key)
    if found is None:
        with _attr_lock:  # looking up and adding must be one step: two objects for equal attributes would be two attributes
            found = _attr_table.get(key)
            if found is None:
                found = _attr_table[key] = Attrs({k: kwargs[k] for k in sorted(kwargs)}, key)
    return found


# Two generations: constants that are used again move to the young one and keep their identity; others are forgotten with the old one.
_MOST_CONSTS = 4096
_const_lock = threading.Lock()
_const_table: dict[Any, Const] = {}
_const_old: dict[Any, Const] = {}
_const_fast: dict[Any, Const] = {}  # of the young generation


def const(value: Any, dtype: DTypeLike) -> Const:
    """The interned constant scalar of this value and dtype, compared by bits.

    Integers wrap as a C cast would; check ranges before if the library raises.

    Raises:
        DtypeError: the value is not a scalar of numbers.
    """
    kind = type(value)
    fast = (kind, value, dtype)
    if kind is float or kind is int or kind is bool:
        found = _const_fast.get(fast)
        if found is not None and value:  # zeros go the exact way: 0.0 and -0.0 compare equal
            return found
    return _const_slow(value, np.dtype(dtype), fast if kind in (float, int, bool) else None)


def _const_slow(value: Any, dtype: np.dtype, fast: Any) -> Const:
    try:
        if isinstance(value, (int, np.integer)) and dtype.kind in "iu":
            bits = dtype.itemsize * 8
            scalar: Any = np.array(int(value) & ((1 << bits) - 1), f"u{dtype.itemsize}").view(dtype)[()]
        else:
            with np.errstate(all="ignore"):
                scalar = np.asarray(value).astype(dtype)[()]
        exact = (dtype, scalar.tobytes())
    except (TypeError, ValueError, AttributeError) as error:
        raise DtypeError(f"{value!r} is not a scalar that fits {dtype}: {error}") from error
    with _const_lock:  # looking up and adding must be one step: two objects for one constant would be two constants
        found = _const_table.get(exact)
        if found is None:
            if len(_const_table) >= _MOST_CONSTS:
                _next_generation_of_consts()
            found = _const_table[exact] = _const_old.get(exact) or Const(scalar)
        if fast is not None and value == value and len(_const_fast) < _MOST_CONSTS:
            _const_fast[fast] = found
    return found


def _next_generation_of_consts() -> None:
    global _const_table, _const_old, _const_fast
    _const_old, _const_table, _const_fast = _const_table, {}, {}


# ------------------------------------------------------------------ walks


def post_order(outputs: Sequence[Expr]) -> Iterator[Expr | Node]:
    """Every leaf, constant and node that the outputs need, inputs first, each once; iterative."""
    seen: set[int] = set()
    for output in outputs:
        stack: list[tuple[Any, bool]] = [(output if output.node is None else output.node, False)]
        while stack:
            item, expanded = stack.pop()
            if expanded:
                yield item
                continue
            if id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, Node):
                stack.append((item, True))
                for child in reversed(item.inputs):
                    below = child if child.node is None else child.node
                    if id(below) not in seen:
                        stack.append((below, False))
            else:
                yield item
