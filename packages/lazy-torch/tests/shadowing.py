"""Builders against CPU torch, without the device: every ATen call that a snippet makes on the CPU is also built, lowered and compared.

A `Shadow` is a dispatch mode: it lets the CPU run each ATen operation and writes down arguments and results; afterwards the builder of
each operation is called on leaves holding the same values, all of them are compiled as one program, and results are compared in dims,
dtype and value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lazy_core import backend, lowering, trace
from lazy_core.errors import UnsupportedError
from lazy_core.ir import Expr
from lazy_core.shape import Shape
from lazy_torch import mapping
from lazy_torch.mapping import promotion

BUILDERS = mapping.load()
_INTEGER_VIEW = {torch.bfloat16: (torch.int16, promotion.BF16)}


def to_numpy(t: torch.Tensor) -> np.ndarray:
    """The values of a CPU tensor, also for dtypes that NumPy lacks."""
    plain = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.dtype in _INTEGER_VIEW:
        as_int, dtype = _INTEGER_VIEW[t.dtype]
        return plain.view(as_int).numpy().view(dtype)
    return plain.numpy()


class Call:
    """One ATen call: what the builder is given, and what the CPU made of it."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name = func._schema.name.removeprefix("aten::") + (f".{func._overloadname}" if func._overloadname != "default" else "")
        self.schema = func._schema
        keep = torch.utils._pytree.tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, (list(args), dict(kwargs)))
        self.args, self.kwargs = keep
        self.results: list[Any] = []

        self.shapes: list[Any] = []

    def finish(self, func: Any, args: Sequence[Any], out: Any) -> None:
        parts = out if isinstance(out, (tuple, list)) else (out,)
        if out is None:  # the results are the arguments that were written to
            written = [args[i] for i, a in enumerate(self.schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
            parts = torch.utils._pytree.tree_leaves(written)
        self.results = [p.detach().clone() if isinstance(p, torch.Tensor) else p for p in parts]
        try:  # torch's own shape function says what a device's results look like; some differ from what the CPU kernel does
            shapes = func(*torch.utils._pytree.tree_map(_meta, self.args), **torch.utils._pytree.tree_map(_meta, self.kwargs))
            self.shapes = list(shapes) if isinstance(shapes, (tuple, list)) else [shapes]
        except (NotImplementedError, RuntimeError):
            self.shapes = []


def _meta(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        return torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device="meta")
    return torch.device("meta") if isinstance(v, torch.device) else v


def builder_name(name: str) -> str | None:
    """The builder that answers for an overload: its own, or for an in-place one the functional one's."""
    if name in BUILDERS:
        return name
    base, dot, overload = name.partition(".")
    functional = base.removesuffix("_") + dot + overload
    return functional if base.endswith("_") and functional in BUILDERS else None


class Shadow(TorchDispatchMode):
    """Records the ATen calls of a block and checks their builders with `check`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.unmapped: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = Call(func, args, kwargs)
        out = func(*args, **kwargs)
        found = builder_name(call.name)
        if found is None:
            self.unmapped.add(call.name)
        elif not BUILDERS[found].random:
            call.finish(func, args, out)
            self.calls.append(call)
        return out

    def check(self, rtol: float | None = None, atol: float | None = None) -> set[str]:
        """Compare every recorded call; returns the names that were checked.

        Raises:
            AssertionError: results differ; the message names the call.
        """
        leaves: list[np.ndarray] = []
        outputs: list[Expr] = []
        wanted: list[tuple[Call, int, torch.Tensor]] = []
        for call in self.calls:
            for i, (expr, result) in enumerate(_built(call, leaves)):
                outputs.append(expr)
                wanted.append((call, i, result))
        for (call, i, result), got in zip(wanted, _evaluate(outputs, leaves), strict=True):
            compare(call, i, got, result, rtol, atol)
        return {c.name for c in self.calls}


_TOLERANCE = {
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "float32": (2e-5, 2e-5),
    "complex64": (2e-5, 2e-5),
    "float64": (1e-9, 1e-9),
}


def compare(call: Call, i: int, got: np.ndarray, result: torch.Tensor, rtol: float | None = None, atol: float | None = None) -> None:
    """Hold one result against torch's shape function and the CPU's values."""
    want = to_numpy(result)
    text = f"aten::{call.name} result {i}: args {_short(call.args)} {_short(call.kwargs)}"
    shape = call.shapes[i] if i < len(call.shapes) and isinstance(call.shapes[i], torch.Tensor) else result
    assert got.shape == tuple(shape.shape), f"{text}: dims {got.shape}, torch {tuple(shape.shape)}"
    assert got.dtype == promotion.NUMPY_OF[shape.dtype], f"{text}: dtype {got.dtype}, torch {shape.dtype}"
    if got.shape == want.shape:
        _close(text, got, want, rtol, atol)


def _close(text: str, got: np.ndarray, want: np.ndarray, rtol: float | None, atol: float | None) -> None:
    default = _TOLERANCE.get(want.dtype.name, (1e-9, 1e-9) if want.dtype.kind == "c" else (0, 0))
    wide = np.complex128 if want.dtype.kind == "c" else np.float64 if want.dtype.name in _TOLERANCE else want.dtype
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), rtol=rtol or default[0], atol=atol or default[1], equal_nan=True, err_msg=text
    )


def _short(value: Any) -> str:
    def one(v: Any) -> Any:
        return f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else v

    return str(torch.utils._pytree.tree_map(one, value))[:300]


def _built(call: Call, leaves: list[np.ndarray]) -> list[tuple[Expr, torch.Tensor]]:
    def given(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            array = to_numpy(v)
            leaves.append(array)
            return trace.current().leaf(1000, len(leaves) - 1, Shape.of(array.shape, array.dtype))
        if isinstance(v, torch.dtype):
            return promotion.NUMPY_OF[v]
        if isinstance(v, (list, tuple)):
            return tuple(given(x) for x in v)
        return None if isinstance(v, (torch.device, torch.layout, torch.memory_format, torch.Generator)) else v

    positional, keyword = [], {}
    for i, argument in enumerate(call.schema.arguments):
        value = call.args[i] if i < len(call.args) else call.kwargs.get(argument.name, argument.default_value)
        if argument.name == "dtype" and isinstance(value, int):  # a default such as long
            value = torch.int64
        if argument.kwarg_only:
            keyword[argument.name] = given(value)
        else:
            positional.append(given(value))
    name = builder_name(call.name)
    assert name is not None
    try:
        out = BUILDERS[name].fn(*positional, **keyword)
    except UnsupportedError:
        return []
    except Exception as error:
        raise AssertionError(f"aten::{call.name} {_short(call.args)} {_short(call.kwargs)}: {type(error).__name__}: {error}") from error
    parts = list(out) if isinstance(out, (tuple, list)) else [out]
    results = call.results
    if name != call.name and len(parts) == 1 and isinstance(results[0], torch.Tensor):
        parts = [promotion.expand(promotion.cast(parts[0], promotion.NUMPY_OF[results[0].dtype]), results[0].shape)]
    pairs = []
    for expr, result in zip(parts, results, strict=False):
        if isinstance(result, bool):
            result = torch.tensor(result)
        assert (expr is None) == (result is None), f"aten::{call.name}: {expr} against {result}"
        if expr is not None:
            pairs.append((expr, result))
    return pairs


def _evaluate(outputs: Sequence[Expr], leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    graph = lowering.linearise(outputs)
    with backend.x64(True):
        compiled = jax.jit(lowering.function_of(graph), compiler_options={"xla_backend_optimization_level": 0})
        return [np.asarray(x) for x in compiled(*[leaves[leaf.slot] for leaf in graph.leaves])]


Snippet = Callable[[], object]


# ------------------------------------------------------------------ what the snippets are made of


def f32(*dims: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(dims, requires_grad=grad)


def i64(*dims: int, low: int = -5, high: int = 6) -> torch.Tensor:
    return torch.randint(low, high, dims)


def every(dtype: torch.dtype) -> list[torch.Tensor]:
    """Operands of one dtype: a matrix, a row, a 0-d one, and for floats special values."""
    base = [torch.randn(3, 4) * 3, torch.randn(4) * 3, torch.randn(()) * 3]
    if dtype == torch.bool:
        return [t > 0 for t in base]
    made = [(t.abs() if dtype == torch.uint8 else t).to(dtype) for t in base]
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.5]
    return [*made, torch.tensor(special, dtype=dtype)] if dtype.is_floating_point else made


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)


def attempt(call: Snippet) -> None:
    """Run a call that the CPU may not have for some dtype."""
    try:
        call()
    except (RuntimeError, NotImplementedError, TypeError):
        return


def backward(y: Any) -> None:
    """Backward through a result with an uneven gradient."""
    y.backward(torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y.dtype))


def shadowed(*calls: Snippet, rtol: float | None = None, atol: float | None = None) -> set[str]:
    """Run snippets in a Shadow and check them."""
    torch.manual_seed(0)
    shadow = Shadow()
    with shadow:
        for call in calls:
            call()
    return shadow.check(rtol, atol)
