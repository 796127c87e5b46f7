"""torch's dtype rules on NumPy dtypes, and how scalars become operands.

Owns: the torch <-> NumPy dtype table, `result_type` with torch's three classes of operand (dimensioned, 0-d, number), `cast`, and the
helpers that every family uses to bring its operands to a common dtype. May import torch (for its promotion table), `lazy_core.ops` and
`lazy_core.ir`.

Source: torch's documentation, "Type promotion" (torch.Tensor attributes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch

from lazy_core import ops
from lazy_core.ir import Const, Expr, const

from . import is_number

Number: TypeAlias = bool | int | float | complex
Scalar: TypeAlias = Expr | Number
DType: TypeAlias = np.dtype[Any]

BOOL = np.dtype(np.bool_)
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
F16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
C64 = np.dtype(np.complex64)
C128 = np.dtype(np.complex128)

_PAIRS: list[tuple[torch.dtype, DType]] = [
    (torch.bool, BOOL),
    (torch.uint8, np.dtype(np.uint8)),
    (torch.uint16, np.dtype(np.uint16)),
    (torch.uint32, np.dtype(np.uint32)),
    (torch.uint64, np.dtype(np.uint64)),
    (torch.int8, np.dtype(np.int8)),
    (torch.int16, np.dtype(np.int16)),
    (torch.int32, I32),
    (torch.int64, I64),
    (torch.float16, F16),
    (torch.bfloat16, BF16),
    (torch.float32, F32),
    (torch.float64, F64),
    (torch.complex64, C64),
    (torch.complex128, C128),
    (torch.float8_e4m3fn, np.dtype(ml_dtypes.float8_e4m3fn)),
    (torch.float8_e5m2, np.dtype(ml_dtypes.float8_e5m2)),
]
NUMPY_OF: dict[torch.dtype, DType] = dict(_PAIRS)
TORCH_OF: dict[DType, torch.dtype] = {n: t for t, n in _PAIRS}


def is_float(dtype: DType) -> bool:
    """Whether a dtype is real floating point, the extension types included."""
    return dtype.kind == "f" or TORCH_OF[dtype].is_floating_point


def is_complex(dtype: DType) -> bool:
    """Whether a dtype is complex."""
    return dtype.kind == "c"


def is_int(dtype: DType) -> bool:
    """Whether a dtype is an integer type (bool is not one)."""
    return dtype.kind in "iu"


def is_half(dtype: DType) -> bool:
    """Whether a dtype is a float of at most 16 bits, whose sums are to be accumulated in f32."""
    return dtype.itemsize <= 2 and is_float(dtype)


def default_float() -> DType:
    """The dtype of a Python float (torch.get_default_dtype)."""
    return NUMPY_OF[torch.get_default_dtype()]


def default_complex() -> DType:
    """The dtype of a Python complex number."""
    return C128 if default_float() == F64 else C64


def real_of(dtype: DType) -> DType:
    """The dtype of the real part: f32 for c64, f64 for c128, else the dtype itself."""
    return F32 if dtype == C64 else F64 if dtype == C128 else dtype


def complex_of(dtype: DType) -> DType:
    """The complex dtype that holds a real dtype (half floats become c64, as XLA has no half complex type)."""
    return dtype if is_complex(dtype) else C128 if dtype == F64 else C64


def math_dtype(dtype: DType) -> DType:
    """The dtype in which composites on this dtype are computed: f32 for half floats."""
    return F32 if is_half(dtype) else dtype


@lru_cache(maxsize=512)
def promote_types(a: DType, b: DType) -> DType:
    """torch.promote_types on NumPy dtypes.

    Raises:
        RuntimeError: torch has no promotion for this pair.
    """
    return NUMPY_OF.get(torch.promote_types(TORCH_OF[a], TORCH_OF[b]), C64)


def is_static(scalar: Any) -> bool:
    """Whether a Scalar argument is known while recording (else it is fed at run time)."""
    return not isinstance(scalar, Expr)


def dtype_of(value: Scalar) -> DType:
    """The dtype an operand brings to promotion; a number brings bool, i64 or the default float or complex type."""
    if isinstance(value, Expr):
        dtype = value.shape.dtype
        if not is_number(value):
            return dtype
        return default_complex() if is_complex(dtype) else default_float() if is_float(dtype) else dtype
    if isinstance(value, (bool, np.bool_)):
        return BOOL
    if isinstance(value, (int, np.integer)):
        return I64
    return default_complex() if isinstance(value, complex) else default_float()


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if is_complex(higher):
        return higher
    if is_float(higher):
        return complex_of(higher) if is_complex(lower) else higher
    if higher == BOOL or is_float(lower) or is_complex(lower):
        return promote_types(higher, lower)
    return higher


def result_type(*values: Scalar) -> DType:
    """torch.result_type of operands: dimensioned tensors before 0-d tensors before numbers.

    Raises:
        RuntimeError: torch has no promotion for these dtypes.
    """
    best: list[DType | None] = [None, None, None]
    for value in values:
        rank = 2 if is_number(value) else 1 if value.shape.ndim == 0 else 0  # type: ignore[union-attr]
        dtype = dtype_of(value)
        found = best[rank]
        best[rank] = dtype if found is None else promote_types(found, dtype)
    result = _combine(best[0], _combine(best[1], best[2]))
    assert result is not None
    return result


def float_type(dtype: DType) -> DType:
    """The dtype of a function that maps integers to floats."""
    return dtype if is_float(dtype) or is_complex(dtype) else default_float()


def cast(x: Expr, dtype: DType) -> Expr:
    """The same values in another dtype; the imaginary part is dropped on the way to a real type, as torch does."""
    if x.shape.dtype == dtype:
        return x
    if is_complex(x.shape.dtype) and not is_complex(dtype):
        if dtype == BOOL:
            return ops.ne(x, const(0, x.shape.dtype))
        return cast(ops.real(x), dtype)
    return ops.convert(x, dtype=dtype)


def operand(value: Scalar, dtype: DType) -> Expr:
    """A tensor, run-time scalar or number as an operand of a dtype."""
    if isinstance(value, Const):
        return const(value.value, dtype)
    if isinstance(value, Expr):
        return cast(value, dtype)
    if isinstance(value, complex) and not is_complex(dtype):
        value = value.real
    return const(value, dtype)


def promote(*values: Scalar) -> tuple[list[Expr], DType]:
    """Operands brought to their result_type."""
    dtype = result_type(*values)
    return [operand(v, dtype) for v in values], dtype


def in_math_dtype(fn: Callable[..., Expr]) -> Callable[..., Expr]:
    """Wrap a function of Exprs so that half floats are computed in f32 and the result is rounded once."""

    def wrapped(*xs: Expr, **kw: Any) -> Expr:
        dtype = xs[0].shape.dtype
        wide = math_dtype(dtype)
        if wide == dtype:
            return fn(*xs, **kw)
        return cast(fn(*[cast(x, wide) for x in xs], **kw), dtype)

    return wrapped


# ------------------------------------------------------------------ small helpers of all families


def dims_of(x: Expr) -> tuple[int, ...]:
    """The dimensions of an expression."""
    return x.shape.dims


def dtype(x: Expr) -> DType:
    """The dtype of an expression."""
    return x.shape.dtype


def num(value: Number, like: Expr) -> Expr:
    """A constant in the dtype of another expression."""
    return const(value, like.shape.dtype)


def axis(dim: int, ndim: int) -> int:
    """A dimension counted from the front; 0-d tensors accept 0 and -1.

    Raises:
        IndexError: out of range.
    """
    span = max(ndim, 1)
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim % span


def axes(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions to reduce, counted from the front and sorted; None or none at all means every one."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    wanted = (dim,) if isinstance(dim, int) else tuple(dim)
    if ndim == 0:
        for d in wanted:
            axis(d, 0)
        return ()
    found = [axis(d, ndim) for d in wanted]
    if len(set(found)) != len(found):
        raise RuntimeError(f"dim {next(d for d in found if found.count(d) > 1)} appears multiple times in the list of dims")
    return tuple(sorted(found))


def broadcast_dims(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that shapes broadcast to.

    Raises:
        RuntimeError: they do not.
    """
    return tuple(torch.broadcast_shapes(*[tuple(s) for s in shapes]))


def expand(x: Expr, dims: Sequence[int]) -> Expr:
    """Broadcast to dims."""
    return x if x.shape.dims == tuple(dims) else ops.broadcast_to(x, dims=tuple(dims))


def reshape(x: Expr, dims: Sequence[int]) -> Expr:
    """Reshape to dims."""
    return x if x.shape.dims == tuple(dims) else ops.reshape(x, dims=tuple(dims))


def filled(value: Scalar, dims: Sequence[int], dtype: DType) -> Expr:
    """A tensor of one value."""
    return ops.full(operand(value, dtype), dims=tuple(dims))


def iota(dims: Sequence[int], along: int, dtype: DType = I64) -> Expr:
    """Indices along one axis."""
    return ops.iota(dims=tuple(dims), axis=along, dtype=dtype)
