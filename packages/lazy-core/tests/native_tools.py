"""What tests of the native tier share: one operation run by the interpreter, and many compiled as one program."""

import jax
import numpy as np

from lazy_core import native
from lazy_core.ir import Expr, Leaf, Node, attrs
from lazy_core.ops.registry import REGISTRY
from lazy_core.shape import Shape


def leaves_of(arrays):
    """A leaf for each array, and the function that finds an array by its leaf; the arrays cannot be written to."""
    held = [np.array(a) for a in arrays]
    for a in held:
        a.flags.writeable = False
    return [Leaf(Shape.of(a.shape, a.dtype), 0, k) for k, a in enumerate(held)], lambda leaf: held[leaf.slot]


def node_of(op, inputs, attributes):
    """A node outside of any trace."""
    shapes, _ = op.infer(tuple(e.shape for e in inputs), attrs(**{**op.defaults, **attributes}))
    node = Node(op, tuple(inputs), attrs(**{**op.defaults, **attributes}), None)
    node.outputs = tuple(Expr(s, node, i) for i, s in enumerate(shapes))
    return node


def interpreted(name, sample):
    """The outputs of an operation on a sample, by the interpreter."""
    leaves, leaf = leaves_of(sample.args)
    return native.evaluate(node_of(REGISTRY[name], leaves, sample.attrs).outputs, leaf, None)


def program(todo):
    """(name, sample) pairs as one compiled function of their operands: compiling is what these tests spend their time on."""

    def run(arguments):
        return [REGISTRY[name].fn(*args, **sample.attrs) for (name, sample), args in zip(todo, arguments, strict=True)]

    with jax.enable_x64(True):
        arguments = [[np.asarray(a) for a in sample.args] for _, sample in todo]
        # Unoptimised machine code is made in half the time, and computes the same operations.
        executable = jax.jit(run).lower(arguments).compile({"xla_backend_optimization_level": "0"})

    def call(samples):
        with jax.enable_x64(True):
            results = executable([[np.asarray(a) for a in sample.args] for sample in samples])
        return [[np.asarray(r) for r in (found if isinstance(found, (tuple, list)) else (found,))] for found in results]

    return call


def compiled(todo):
    """The outputs of (name, sample) pairs."""
    return program(todo)([sample for _, sample in todo])


def where(name, sample):
    """How a failure names its operation."""
    operands = ", ".join(f"{np.asarray(a).dtype}{list(np.shape(a))}" for a in sample.args)
    return f"{name}({operands}) {sample.attrs}"
