"""The interpreter: a recorded graph run node by node on host arrays.

Owns: `Schedule`, which is what is worked out once for a graph, and `evaluate`.  Values live in numbered registers and are let go of after
their last use; where nobody else holds a large operand that dies, its buffer becomes the result's.  May import `registry`, `ir` and
`errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from ..errors import ExecutionError, LazyError
from ..ir import Const, Expr, Leaf, Node, ScalarLeaf
from .registry import resolve

_ndarray = np.ndarray
_asarray = np.asarray

# function, operand registers, result registers, registers to clear afterwards, operands whose buffer may be reused, node
_Step = tuple[Callable[..., Any], list[int], Any, list[int], tuple[int, ...], Node]


def in_order(outputs: Sequence[Expr]) -> list[Node]:
    """The nodes below the outputs in the order in which they were first recorded: an expression is numbered after its operands."""
    stack = [e.node for e in outputs if e.node is not None]
    found = set(stack)
    while stack:
        for expr in stack.pop().inputs:
            below = expr.node
            if below is not None and below not in found:
                found.add(below)
                stack.append(below)
    return sorted(found, key=_number)


def _number(node: Node) -> int:
    return node.outputs[0].id


class Schedule:
    """The steps that compute some expressions; it holds no buffer, so it may be kept and run again.

    Attributes:
        steps: one for each node, inputs first.
    """

    __slots__ = ("_leaves", "_registers", "_results", "_scalars", "steps")

    def __init__(self, outputs: Sequence[Expr]) -> None:
        self._leaves: list[tuple[int, Leaf]] = []
        self._scalars: list[tuple[int, ScalarLeaf]] = []
        self._registers: list[Any] = []
        registers, place = self._registers, self._place
        places: dict[Expr, int] = {}
        find = places.get
        drafts = []
        for node in in_order(outputs):
            operands = []
            for expr in node.inputs:
                register = find(expr)
                operands.append(place(expr, places) if register is None else register)
            call = node.kernel or resolve(node)
            results: Any = len(registers)
            if call.several:
                results = tuple(range(results, results + len(node.outputs)))
                places.update(zip(node.outputs, results, strict=True))
                registers.extend([None] * len(results))
            else:
                places[node.outputs[0]] = results
                registers.append(None)
            drafts.append((call, operands, results, node))
        self._results = [places[e] if e in places else place(e, places) for e in outputs]
        # From the back: a register dies where it is seen first.
        needed = set(self._results)
        steps: list[_Step] = []
        for (function, reuse, several), operands, results, node in reversed(drafts):
            dying = [r for r in results if r not in needed] if several else []
            for register in operands:
                if register not in needed:
                    needed.add(register)
                    dying.append(register)
            if reuse:
                reuse = tuple([p for p in reuse if operands[p] in dying])
            steps.append((function, operands, results, dying, reuse, node))
        steps.reverse()
        self.steps = steps

    def _place(self, expr: Expr, places: dict[Expr, int]) -> int:
        """The register of a leaf or constant that is met for the first time."""
        register = places[expr] = len(self._registers)
        self._registers.append(None)
        if expr.__class__ is Leaf:
            self._leaves.append((register, expr))
        elif expr.__class__ is ScalarLeaf:
            self._scalars.append((register, expr))
        else:
            assert isinstance(expr, Const)
            number = self._registers[register] = _asarray(expr.value)
            number.flags.writeable = False  # it is shared by all runs
        return register

    def run(self, leaf: Callable[[Leaf], np.ndarray], scalar: Callable[[ScalarLeaf], Any]) -> list[np.ndarray]:
        """Compute the outputs; see `evaluate`."""
        registers = self._registers.copy()
        taken = set()  # the memory of leaves; a step may let go of the registers that hold them
        for register, expr in self._leaves:
            registers[register] = leaf(expr)
            taken.add(id(_owner(registers[register])))
        for register, number in self._scalars:
            registers[register] = _asarray(scalar(number), number.shape.dtype)
        node: Node | None = None
        try:
            with np.errstate(all="ignore"):
                for function, operands, results, dying, reuse, node in self.steps:  # noqa: B007
                    if reuse:
                        result = _reusing(function, reuse, [registers[r] for r in operands])
                    else:
                        result = function(*[registers[r] for r in operands])
                    if results.__class__ is int:
                        registers[results] = result if result.__class__ is _ndarray else _asarray(result)
                    else:
                        for register, part in zip(results, result, strict=True):
                            registers[register] = part if part.__class__ is _ndarray else _asarray(part)
                        part = None
                    result = None
                    for register in dying:
                        registers[register] = None
        except LazyError:
            raise
        except Exception as error:
            assert node is not None
            shapes = ", ".join([str(e.shape) for e in node.inputs])
            raise ExecutionError(
                f"running {node.op.name}({shapes}) {node.attrs} natively failed: {type(error).__name__}: {error}; recorded at {node.site}"
            ) from error
        return self._finished(registers, taken)

    def _finished(self, registers: list[Any], taken: set[int]) -> list[np.ndarray]:
        """The results, each with memory of its own, or a whole one that cannot be written to."""
        found: list[np.ndarray] = []
        for register in self._results:
            array = registers[register]
            owner = _owner(array)
            whole = array.flags.c_contiguous and (owner is array or array.nbytes == owner.nbytes)
            if not whole or (id(owner) in taken and array.flags.writeable) or owner.__class__ is not _ndarray:
                array = array.copy()
            else:
                taken.add(id(owner))
            found.append(array)
        return found


def _owner(array: Any) -> Any:
    """The array whose memory this is a view of."""
    while array.base.__class__ is _ndarray:
        array = array.base
    return array


def _reusing(function: Callable[..., Any], reuse: tuple[int, ...], arrays: list[Any]) -> Any:
    """Run with the buffer of an operand that nobody else holds as the result's, if there is one."""
    for position in reuse:
        array = arrays[position]
        if array.base is None and getrefcount(array) == _HELD and array.flags.carray:
            return function(*arrays, out=array)
    return function(*arrays)


def _held() -> int:
    """The reference count of an array that only registers hold, as `_reusing` sees it."""
    registers = [np.empty(1)]
    counts: list[int] = []

    def count(reuse: tuple[int, ...], arrays: list[Any]) -> None:
        for position in reuse:
            array = arrays[position]
            if array.base is None:
                counts.append(getrefcount(array))

    count((0,), [registers[r] for r in (0,)])
    return counts[0]


_HELD = _held()


def evaluate(outputs: Sequence[Expr], leaf: Callable[[Leaf], np.ndarray], scalar: Callable[[ScalarLeaf], Any]) -> list[np.ndarray]:
    """Compute expressions on the host, one operation after the other, without compiling the graph.

    Args:
        outputs: what to compute.
        leaf: the buffer of a leaf; it is never written to.
        scalar: the number that a run-time scalar has now.

    Returns:
        One C-contiguous array for each output, of its dims and dtype.  No two share memory that can be written to, nor does one with a
        leaf: a leaf that is read-only may itself be a result.

    Raises:
        ExecutionError: an operation failed; whatever `leaf` and `scalar` raise goes through.
    """
    return Schedule(outputs).run(leaf, scalar)
