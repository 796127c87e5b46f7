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
import pytest
import torch
from torch.nn import functional as F
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


# ------------------------------------------------------------------ promotion


def test_result_type_is_torchs() -> None:
    """Every pair of dtypes in every class of operand (dimensioned, 0-d, number) gives torch.result_type."""
    numbers = (True, 2, 2.5)
    for a in DTYPES:
        for b in DTYPES:
            for x in (torch.ones(2, dtype=a), torch.ones((), dtype=a)):
                for y in (torch.ones(2, dtype=b), torch.ones((), dtype=b), *numbers):
                    try:
                        want = promotion.NUMPY_OF[torch.result_type(x, y)]
                    except KeyError:  # half complex, which XLA has not
                        continue
                    operands = [_operand(v) if isinstance(v, torch.Tensor) else v for v in (x, y)]
                    assert promotion.result_type(*operands) == want, f"{x} {y}"


def _operand(t: torch.Tensor) -> Expr:
    return trace.current().leaf(1000, 0, Shape.of(tuple(t.shape), promotion.NUMPY_OF[t.dtype]))


# ------------------------------------------------------------------ families

UNARY = """abs neg sign sgn floor ceil trunc round frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh
tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma reciprocal isnan isinf isposinf isneginf signbit logical_not
bitwise_not nan_to_num deg2rad rad2deg angle conj_physical relu sinc""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or
bitwise_xor bitwise_left_shift bitwise_right_shift maximum minimum fmax fmin atan2 hypot copysign logaddexp xlogy heaviside""".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_elementwise_operations(dtype: torch.dtype) -> None:
    """Unary and binary operations on every dtype, with broadcast and special values; dtypes that the CPU refuses are left out."""
    calls: list[Snippet] = []
    for name in UNARY:
        calls += [lambda name=name, x=x: attempt(lambda: getattr(torch, name)(x)) for x in every(dtype)]
    exact = dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)
    for name in BINARY:
        f = getattr(torch, name)
        x, y, z = every(dtype)[:3]
        if exact and name in ("floor_divide", "remainder", "fmod", "div"):
            y, z = torch.where(y == 0, 1, y).to(dtype), torch.where(z == 0, 1, z).to(dtype)
        if exact and name == "pow":
            y, z = (y, z) if dtype == torch.bool else (y.abs(), z.abs())
        calls += [lambda f=f, x=x, y=y: attempt(lambda: f(x, y)), lambda f=f, x=x, z=z: attempt(lambda: f(x, z))]
        if name not in (
            "atan2",
            "hypot",
            "logaddexp",
            "heaviside",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "logical_and",
            "logical_or",
            "logical_xor",
        ):
            calls += [lambda f=f, x=x: attempt(lambda: f(x, 2)), lambda f=f, x=x: attempt(lambda: f(x, 2.5))]
    loose = {torch.float32: 1e-4, torch.complex64: 1e-4}.get(dtype)
    names = shadowed(*calls, rtol=loose, atol=loose)
    assert len(names) > 40


def test_numbers_and_zero_dim_operands_promote_as_torch() -> None:
    """Python numbers, 0-d tensors and alpha decide dtypes and values as on the CPU."""
    x, i, z = f32(3), i64(3), torch.tensor(2.5, dtype=torch.float64)
    shadowed(
        lambda: [
            x + 1,
            x * 2.5,
            i + 1,
            i * 2.5,
            i / 2,
            1 - x,
            2 ** x.abs(),
            x + z,
            i + z,
            x.half() + z,
            torch.add(x, x, alpha=2),
            torch.sub(i, i, alpha=3),
        ],
        lambda: [
            torch.div(i, 2, rounding_mode="floor"),
            torch.div(x, 0.3, rounding_mode="trunc"),
            i.clamp(-2, 2),
            x.clamp(min=0.1),
            i.clamp(max=1.5),
        ],
        lambda: [
            torch.lerp(x, x * 2, 0.3),
            torch.addcmul(x, x, x, value=2),
            torch.addcdiv(x, x, x.abs() + 1, value=0.5),
            x.pow(3),
            x.abs().pow(0.5),
        ],
        lambda: [torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, 3), torch.isin(i, torch.tensor([1, 2]))],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.uint8], ids=str)
def test_reductions_and_scans(dtype: torch.dtype) -> None:
    """Result dtypes, kept dims, several dims, 0-d and scans."""
    x, s = every(dtype)[0], every(dtype)[2]
    calls: list[Snippet] = [
        lambda: [x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.prod(), x.prod(1), s.sum(), x.sum(dtype=torch.float64)]
    ]
    calls += [lambda: [x.amax(1), x.amin((0, 1)), x.max(), x.min(), x.any(1), x.all(0, keepdim=True), torch.aminmax(x), x.count_nonzero(1)]]
    calls += [
        lambda: [
            attempt(lambda: [x.argmax(), x.argmin(1)]),
            x.max(1),
            x.min(0, keepdim=True),
            x.cumsum(1),
            torch.sort(x, dim=1, stable=True),
            s.max(),
            s.cumsum(0),
        ]
    ]
    if dtype.is_floating_point:
        calls += [lambda: [x.mean(), x.mean(1), x.var(), x.std(1, correction=0), torch.var_mean(x, 0), x.logsumexp(1), x.cumprod(1)]]
        calls += [lambda: [torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3.5, float("inf"), -float("inf"))]]
        calls += [
            lambda: [x.cummax(1), x.cummin(0), x.logcumsumexp(1), x.median(), x.median(1), x.nansum(), x.nanmedian(1), x.kthvalue(2, 1)]
        ]
    shadowed(*calls)


def test_shapes() -> None:
    """Joining, padding, reordering, triangles, copies of views."""
    x, v = f32(3, 4, 5), f32(2, 3, 4, 6)
    shadowed(
        lambda: [
            torch.cat([x, x.double()], 1),
            torch.stack([x, x], -1),
            x.flip(0, 2),
            x.roll(2),
            x.roll((1, -2), (0, 1)),
            torch.rot90(x, 1, (0, 2)),
        ],
        lambda: [
            x.repeat(2, 1, 1, 3),
            x.tril(1),
            x.triu(-1),
            torch.block_diag(x[0], x[1]),
            torch.diag_embed(x, 1),
            torch.cat([x, torch.empty(0)]),
        ],
        lambda: [
            F.pad(x, (1, 2, -1, 0), value=3),
            *[F.pad(v, (1, 2, 2, 1), mode=m) for m in ("reflect", "replicate")],
            F.pixel_shuffle(f32(1, 8, 2, 3), 2),
        ],
        lambda: [torch.slice_scatter(x, x[:, 1:3], 1, 1, 3), torch.select_scatter(x, x[0], 0, 1), torch.diagonal_scatter(x, f32(5, 3), 1)],
    )


def test_gradients_of_views() -> None:
    """select, slice, diagonal, unfold, pad and index backward."""
    calls: list[Snippet] = []
    for view in (
        lambda x: x[1],
        lambda x: x[:, 1:4:2],
        lambda x: x.diagonal(1),
        lambda x: x.unfold(1, 3, 2),
        lambda x: x.unfold(1, 2, 2),
        lambda x: x[[0, 2], [1, 1]],
        lambda x: F.pad(x[None], (2, 1), mode="reflect"),
        lambda x: F.pad(x[None], (2, 1), mode="replicate"),
        lambda x: x.gather(1, torch.tensor([[0, 0], [1, 2]])),
        lambda x: x.index_select(1, torch.tensor([2, 2, 0])),
        lambda x: x.cumsum(1),
        lambda x: x.prod(1),
        lambda x: x.amax(1),
        lambda x: x.norm(dim=1),
    ):
        calls.append(lambda view=view: backward(view(f32(3, 5, grad=True))))
    shadowed(*calls)


def test_indexing() -> None:
    """Advanced indexing, scatter and its reductions, masks, searching."""
    x, i = f32(4, 5), torch.tensor([[0, 3, 1], [2, -1, 2]])
    j, w = i64(2, 3, low=0, high=4), f32(2, 3)
    shadowed(
        lambda: [
            x[i],
            x[:, i],
            x[i, i],
            x[None, i],
            x.index_put((i, i), torch.tensor(1.0)),
            x.index_put((j,), f32(2, 3, 5), accumulate=True),
        ],
        lambda: [x.scatter(1, j, w), x.scatter(0, j, 2.0), x.scatter_add(0, j, w)],
        lambda: [x.scatter_reduce(0, j, w, r, include_self=s) for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)],
        lambda: [
            x.index_add(1, j[0], f32(4, 3), alpha=2),
            x.index_copy(1, j[0], f32(4, 3)),
            x.index_fill(0, j[0], 2.0),
            x.take(j),
            x.put(j, w),
        ],
        lambda: [
            x.masked_scatter(x > 0, f32(20)),
            torch.searchsorted(x.sort(1)[0], w.repeat(2, 1)),
            torch.bucketize(x, torch.tensor([-1.0, 0, 1]), right=True),
        ],
        lambda: F.embedding(j, f32(5, 3), padding_idx=1),
        lambda: backward(F.embedding(j, f32(5, 3, grad=True), padding_idx=1, scale_grad_by_freq=True)),
    )


def test_linear_algebra() -> None:
    """Products with bias and scale, half floats accumulated in f32, factorisations, transforms."""
    a, b, c, batch = f32(3, 4), f32(4, 5), f32(3, 5), f32(2, 3, 4)
    spd = a @ a.mT + torch.eye(3)
    shadowed(
        lambda: [
            a @ b,
            torch.addmm(c, a, b, beta=0.5, alpha=2),
            torch.addmm(c, a, b, beta=0),
            batch @ b,
            torch.baddbmm(f32(2, 3, 5), batch, b.expand(2, 4, 5)),
        ],
        lambda: [a @ b[:, 0], torch.dot(a[0], a[1]), torch.outer(a[0], a[1]), (a.bfloat16() @ b.bfloat16()), i64(3, 4) @ i64(4, 2)],
        lambda: [
            torch.linalg.cholesky_ex(spd),
            torch.linalg.inv_ex(spd),
            torch.linalg.lu_factor(spd),
            torch.linalg.solve_triangular(spd, c, upper=True),
        ],
        lambda: [torch.cdist(a, f32(6, 4), p) for p in (1.0, 2.0, 3.0)],
        lambda: [
            torch.fft.fft(a),
            torch.fft.rfft2(batch),
            torch.fft.irfft(torch.fft.rfft(b, dim=0), dim=0),
            torch.fft.ifftn(a.to(torch.complex64), norm="ortho"),
        ],
        rtol=1e-4,
        atol=1e-4,
    )


ACTIVATIONS = """relu hardtanh leaky_relu elu celu selu gelu silu mish softplus softsign hardsigmoid hardswish hardshrink softshrink
logsigmoid
tanhshrink relu6 sigmoid tanh""".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations_and_their_gradients(dtype: torch.dtype) -> None:
    """Every activation forward and backward, softmax along dims, glu, prelu."""
    calls: list[Snippet] = [lambda n=n: backward(getattr(F, n)(f32(3, 4).mul(3).to(dtype).requires_grad_())) for n in ACTIVATIONS]
    calls += [
        lambda: backward(F.softmax(f32(3, 4).to(dtype).requires_grad_(), 1)),
        lambda: backward(F.log_softmax(f32(3, 4).to(dtype).requires_grad_(), 0)),
        lambda: backward(F.gelu(f32(3, 4).to(dtype).requires_grad_(), approximate="tanh")),
        lambda: backward(F.glu(f32(3, 4).to(dtype).requires_grad_(), 1)),
        lambda: backward(F.prelu(f32(3, 4).to(dtype).requires_grad_(), torch.full((4,), 0.2, dtype=dtype))),
        lambda: backward(F.threshold(f32(3, 4).to(dtype).requires_grad_(), 0.1, 2)),
    ]
    shadowed(*calls)


def test_normalisations() -> None:
    """Batch, layer and group normalisation, forward and backward, in training and evaluation."""

    def batch(training: bool) -> None:
        x = f32(4, 3, 5, grad=True)
        backward(F.batch_norm(x, torch.zeros(3), torch.ones(3), f32(3, grad=True), f32(3, grad=True), training))

    shadowed(
        lambda: batch(True),
        lambda: batch(False),
        lambda: backward(F.layer_norm(f32(4, 3, 5, grad=True), (3, 5), f32(3, 5, grad=True), f32(3, 5, grad=True))),
        lambda: backward(F.layer_norm(f32(4, 5, grad=True), (5,))),
        lambda: backward(F.group_norm(f32(2, 6, 5, grad=True), 3, f32(6, grad=True), f32(6, grad=True))),
        lambda: backward(F.instance_norm(f32(2, 3, 5, grad=True))),
        rtol=1e-4,
        atol=1e-4,
    )


def test_convolutions_and_pools() -> None:
    """Strides, padding, dilation, groups, transposed ones, ceil_mode, uneven adaptive windows and interpolation, with gradients."""

    def conv(rank: int, transposed: bool, **kw: Any) -> None:
        name = f"conv{'_transpose' if transposed else ''}{rank}d"
        groups = kw.get("groups", 1)
        out = 6 // groups if transposed else 6
        weight = f32(4, out, *[3] * rank, grad=True) if transposed else f32(6, 4 // groups, *[3] * rank, grad=True)
        backward(getattr(F, name)(f32(2, 4, *[7] * rank, grad=True), weight, f32(6, grad=True), **kw))

    calls: list[Snippet] = [
        lambda t=t, kw=kw, r=r: conv(r, t, **kw)
        for r in (1, 2, 3)
        for t in (False, True)
        for kw in ({}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2})
    ]
    calls += [
        lambda: backward(F.max_pool2d(f32(2, 3, 7, 7, grad=True), 3, 2, 1)),
        lambda: backward(F.max_pool2d(f32(2, 3, 7, 8, grad=True), 2, ceil_mode=True)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 7, 7, grad=True), 3, 2, 1)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 7, 8, grad=True), 3, 2, 1, ceil_mode=True, count_include_pad=False)),
        lambda: backward(F.avg_pool2d(f32(2, 3, 6, 6, grad=True), 2, divisor_override=3)),
        lambda: backward(F.adaptive_avg_pool2d(f32(2, 3, 7, 5, grad=True), (3, 2))),
        lambda: backward(F.adaptive_avg_pool2d(f32(2, 3, 7, 5, grad=True), 1)),
        lambda: backward(F.unfold(f32(2, 3, 7, 8, grad=True), (3, 2), padding=1, stride=2, dilation=(1, 2))),
        lambda: backward(F.adaptive_max_pool2d(f32(2, 3, 6, 4, grad=True), (3, 2))),
    ]
    for mode, corners in (("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True), ("bicubic", False)):
        for size in ((7, 5), (2, 3)):
            calls.append(lambda m=mode, c=corners, s=size: backward(F.interpolate(f32(1, 2, 4, 6, grad=True), s, None, m, c)))
    shadowed(*calls, rtol=1e-4, atol=1e-4)


def test_losses_and_their_gradients() -> None:
    """Every reduction, class weights, ignored targets, images as targets."""
    calls: list[Snippet] = []
    for r in ("none", "mean", "sum"):
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
            calls.append(lambda name=name, r=r: backward(getattr(F, name)(f32(3, 4, grad=True), f32(3, 4).sigmoid(), reduction=r)))
        calls.append(lambda r=r: backward(F.binary_cross_entropy(torch.rand(3, 4, requires_grad=True), torch.rand(3, 4), reduction=r)))
        calls.append(lambda r=r: backward(F.soft_margin_loss(f32(3, 4, grad=True), f32(3, 4).sign(), reduction=r)))
        t = torch.tensor([1, 3, -100])
        calls.append(lambda r=r, t=t: backward(F.cross_entropy(f32(3, 4, grad=True), t, f32(4).abs(), reduction=r)))
        calls.append(lambda r=r: backward(F.nll_loss(f32(2, 4, 3, 5, grad=True), i64(2, 3, 5, low=0, high=4), reduction=r)))
    calls.append(lambda: backward(F.cross_entropy(f32(3, 4, grad=True), torch.tensor([1, 3, 0]), label_smoothing=0.1)))
    shadowed(*calls)


def test_factories() -> None:
    """Sizes, dtypes and values of tensors made from numbers."""
    x = f32(2, 3)
    shadowed(
        lambda: [
            torch.arange(5),
            torch.arange(1, 9, 2),
            torch.arange(0, 1, 0.3),
            torch.arange(5, 0, -2),
            torch.linspace(0, 1, 7),
            torch.logspace(0, 2, 5),
        ],
        lambda: [
            torch.eye(3),
            torch.eye(2, 4, dtype=torch.int64),
            torch.full((2,), 3),
            torch.full((2,), 2.5),
            torch.full((2,), True),
            torch.scalar_tensor(3),
        ],
        lambda: [
            torch.tril_indices(3, 4, 1),
            torch.triu_indices(4, 3, -1),
            x.new_full((2,), 7),
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int32),
        ],
    )


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_optimizers_in_lists(name: str) -> None:
    """The multi-tensor steps of torch's optimizers, in place and functional."""

    def step() -> None:
        p = [torch.nn.Parameter(f32(3, 2)), torch.nn.Parameter(f32(4))]
        kw = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1} if name == "SGD" else {"weight_decay": 0.1}
        o = getattr(torch.optim, name)(p, lr=0.1, foreach=True, **kw)
        for _ in range(2):
            for q in p:
                q.grad = f32(*q.shape)
            torch.nn.utils.clip_grad_norm_(p, 1.0, foreach=True)
            o.step()

    assert any(n.startswith("_foreach") for n in shadowed(step))


def test_random_builders_return_the_next_state() -> None:
    """Draws have the right dims and dtypes, and the state comes back last and changed."""
    leaf = trace.current().leaf(1000, 0, Shape.of((2,), np.dtype(np.uint64)))
    like = trace.current().leaf(1000, 1, Shape.of((3, 4), promotion.F32))
    cases: dict[str, tuple[Any, ...]] = {
        "uniform": (like, 0.0, 1.0),
        "normal_": (like, 0.0, 1.0),
        "exponential": (like, 1.0),
        "bernoulli": (like,),
        "bernoulli.p": (like, 0.5),
        "random": (like,),
        "random.from": (like, 2, 9),
        "native_dropout": (like, 0.5, True),
        "randperm": (7,),
        "multinomial": (like, 2),
        "normal.Tensor_float": (like, 1.0),
        "geometric": (like, 0.3),
        "log_normal": (like,),
        "cauchy": (like,),
    }
    for name, args in cases.items():
        *out, state = BUILDERS[name].fn(leaf, *args)
        assert BUILDERS[name].random
        assert state.shape is leaf.shape, name
        assert state is not leaf, name
        assert all(isinstance(e, Expr) for e in out), name
