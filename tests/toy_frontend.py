"""A complete frontend in a few lines: `Toy`, an array class with operators, over the core's values.

It is what a newcomer reads first (see docs/add-a-frontend.md), and is tested like the real ones: the conformance kit runs on it, with
NumPy as the library that it must agree with.  Everything a frontend is made of is here: wrapping values, deciding dtypes (promotion is a
frontend's, never the core's), composites for calls of several core operations, host reads, and the table for the conformance matrix.
"""

from __future__ import annotations

import numpy as np

from lazy_core import ir, ops, values
from lazy_core.ops import composite


class Toy:
    """A lazy array: a promise of a value, with NumPy's operators."""

    __slots__ = ("value",)
    __array_priority__ = 100  # so that `numpy_array + toy` asks us

    def __init__(self, value):
        self.value = value

    @property
    def shape(self):
        return self.value.shape.dims

    @property
    def dtype(self):
        return self.value.shape.dtype

    def numpy(self):
        """Read the contents: everything pending is computed first."""
        return values.to_host(self.value).copy()

    def __repr__(self):
        return f"Toy({self.value.shape}, {'pending' if self.value.pending else 'ready'})"  # a debugger must not compute anything

    def __bool__(self):
        return bool(self.numpy())

    def __neg__(self):
        return call("neg", self)

    def __matmul__(self, other):
        return call("matmul", self, other)

    def __getitem__(self, item):
        if not isinstance(item, slice) or item.step not in (None, 1):
            raise TypeError(f"Toy takes slices without steps of the first dim, not {item!r}")
        start, stop, _ = item.indices(self.shape[0])
        rest = self.shape[1:]
        return call("slice", self, starts=(start, *[0] * len(rest)), limits=(max(stop, start), *rest), strides=(1,) * len(self.shape))


def _operator(name, swapped=False):
    def method(self, other):
        return call(name, other, self) if swapped else call(name, self, other)

    return method


for _name in ("add", "sub", "mul", "pow"):
    setattr(Toy, f"__{_name}__", _operator(_name))
    setattr(Toy, f"__r{_name}__", _operator(_name, swapped=True))
for _method, _name in (("truediv", "div"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge")):
    setattr(Toy, f"__{_method}__", _operator(_name))


def array(data):
    """A lazy array with a copy of the data."""
    return Toy(values.from_host(np.asarray(data)))


@composite("toy_promoted")
def _promoted(*exprs, name, dtype, attributes):
    """A core operation on operands cast to one dtype: one table entry however many casts it needs."""
    cast = [e if e.shape.dtype == dtype else ops.convert(e, dtype=dtype) for e in exprs]
    return getattr(ops, name)(*cast, **dict(attributes))


def call(name, *arguments, **attributes):
    """Record a core operation on lazy arrays and Python numbers."""
    arrays = [a if isinstance(a, Toy) else array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    dtype = np.result_type(*[a.dtype if isinstance(a, Toy) else a for a in arrays]) if arrays else None
    inputs = tuple([a.value if isinstance(a, Toy) else ir.const(a, dtype) for a in arrays])
    if all(i.shape.dtype == dtype for i in inputs):
        result = values.record(ops.REGISTRY[name], inputs, ir.attrs(**attributes))
    else:
        result = values.record(_promoted, inputs, ir.attrs(name=name, dtype=dtype, attributes=tuple(sorted(attributes.items()))))
    return tuple([Toy(r) for r in result]) if isinstance(result, tuple) else Toy(result)


def _either(name, native):
    """A function for lazy and for plain arrays: what a real library's own dispatch does."""

    def function(*arguments, **attributes):
        if any(isinstance(a, Toy) for a in arguments):
            return call(name, *arguments, **attributes)
        return native(*arguments, **attributes)

    return function


CONFORMANCE = {
    **{name: _either(name, getattr(np, name)) for name in ("exp", "sin", "sqrt", "maximum", "minimum", "matmul", "isnan")},
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "sum": _either("sum", lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)),
    "max": _either("max", lambda x, axes, keepdims: np.max(x, axis=axes, keepdims=keepdims)),
    "reshape": _either("reshape", lambda x, dims: np.reshape(x, dims)),
    "transpose": _either("transpose", lambda x, perm: np.transpose(x, perm)),
}


class ToyFrontend:
    """What the core must know of the toy (see `lazy_core.frontend.Frontend`)."""

    name = "toy"
    library = "numpy"
    dtypes = tuple(np.dtype(d) for d in ("float32", "float64", "int32", "int64", "bool"))
    conformance = CONFORMANCE

    def from_numpy(self, data):
        return array(data)

    def native(self, data):
        return np.array(data)

    def to_numpy(self, tensor):
        return tensor.numpy() if isinstance(tensor, Toy) else np.asarray(tensor)

    def is_lazy(self, tensor):
        return isinstance(tensor, Toy)


FRONTEND = ToyFrontend()
