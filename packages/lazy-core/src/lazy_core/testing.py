"""The conformance kit: hold a frontend's results against its own library, operation by operation.

Owns: which cases there are, and `check`; what a result may differ by and why stands in `tolerances`.  Anybody's frontend is tested
by pytest in three lines:

    from lazy_core.testing import basics_test, conformance_test
    test_operations = conformance_test(FRONTEND)
    test_basics = basics_test(FRONTEND)

May import everything of the core; never a frontend.
"""

from __future__ import annotations

import contextlib
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import dump
from .frontend import Frontend
from .ops.registry import REGISTRY, Sample, numbers
from .report import report
from .tolerances import Tolerance, assert_close, tolerance

__all__ = [
    "Case",
    "Outcome",
    "Sample",
    "Tolerance",
    "assert_close",
    "basics_test",
    "check",
    "check_basics",
    "conformance_test",
    "iter_cases",
    "samples",
    "tolerance",
]

# Families that no library has in this form: their first operand is the core's own (a random state, a storage with a layout).
# They are tested in the core, and through every random draw and view of a frontend's own tests.
OWN_FAMILIES = frozenset({"random", "strided"})

# Operations that a library may well serve without recording anything: views, whole numbers rounded, constants.
MAY_BE_FREE = frozenset(
    {"identity", "convert", "bitcast", "real", "imag", "conj", "floor", "ceil", "trunc", "round", "eye", "iota", "full"}
)


class Case(NamedTuple):
    """One cell of the conformance matrix."""

    op: str
    dtype: np.dtype


class Outcome(NamedTuple):
    """What `check` did: how many samples were compared, and why the library itself has none of the others."""

    compared: int
    refused: str | None


def samples(op: str, dtype: np.dtype) -> list[Sample]:
    """The samples of an operation for a dtype: the same ones in every process."""
    make = REGISTRY[op].samples
    assert make is not None, f"operation {op} has no samples"
    return list(make(np.dtype(dtype), np.random.default_rng(zlib.crc32(f"{op} {np.dtype(dtype).name}".encode()))))


def iter_cases(frontend: Frontend, dtypes: Sequence[Any] | None = None) -> Iterator[Case]:
    """The cells of the matrix of a frontend: every operation with a counterpart in a library, every dtype that both have."""
    wanted = None if dtypes is None else {np.dtype(d) for d in dtypes}
    made = {np.dtype(d) for d in frontend.dtypes}
    for name, op in sorted(REGISTRY.items()):
        if op.family in OWN_FAMILIES:
            continue
        for dtype in op.dtypes:
            if dtype in made and (wanted is None or dtype in wanted):
                yield Case(name, dtype)


# ------------------------------------------------------------------ checking a frontend


def _flat(result: Any) -> list[Any]:
    return [item for part in result for item in _flat(part)] if isinstance(result, (tuple, list)) else [result]


def _native(call: Callable[..., Any], frontend: Frontend, sample: Sample) -> tuple[list[np.ndarray] | None, str | None]:
    """The library's own result, or why it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [frontend.to_numpy(r) for r in _flat(call(*[frontend.native(a) for a in sample.args], **sample.attrs))], None
    except Exception as error:
        return None, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"


def check(frontend: Frontend, op: str, dtype: Any, only: Callable[[int], bool] = lambda number: True) -> Outcome:
    """Compare a frontend with its own library on every sample of an operation; all are recorded before the first is read.

    Args:
        frontend: see `lazy_core.frontend.Frontend`.
        op: the name of a core operation.
        dtype: the dtype to make samples for.
        only: which samples, by number, to look at.

    Returns:
        How many samples were compared; samples that the library itself refuses are left out, with its reason.

    Raises:
        AssertionError: a result differs, is not lazy, fell back, or nothing was recorded.
        KeyError: the frontend's `conformance` table has no such operation.
    """
    call = frontend.conformance[op]
    creating = getattr(frontend, "creating", contextlib.nullcontext)
    lazy: list[tuple[Sample, list[np.ndarray], list[Any]]] = []
    refused = None
    for sample in [s for number, s in enumerate(samples(op, dtype)) if only(number)]:
        expected, reason = _native(call, frontend, sample)
        if expected is None:
            refused = reason
            continue
        before = report()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if sample.args:
                results = _flat(call(*[frontend.from_numpy(a) for a in sample.args], **sample.attrs))
            else:
                with creating():
                    results = _flat(call(**sample.attrs))
        where = _where(frontend, op, sample)
        after = report()
        fell = after.counters["fallbacks"] - before.counters["fallbacks"]
        assert not fell, f"{where}: fell back ({', '.join(k for k, n in after.fallbacks.items() if n > before.fallbacks.get(k, 0))})"
        if REGISTRY[op].family != "shapes" and op not in MAY_BE_FREE:
            assert after.counters["recorded"] > before.counters["recorded"], f"{where}: nothing was recorded"
        assert len(results) == len(expected), f"{where}: {len(results)} results, but the library gives {len(expected)}"
        for result in results:
            assert frontend.is_lazy(result), f"{where}: the result is a {type(result).__name__}, not a lazy tensor"
        lazy.append((sample, expected, results))
    for sample, expected, results in lazy:
        for result, wanted in zip(results, expected, strict=True):
            assert_close(frontend.to_numpy(result), wanted, tolerance(op), _where(frontend, op, sample))
    return Outcome(len(lazy), refused)


def _where(frontend: Frontend, op: str, sample: Sample) -> str:
    operands = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in sample.args)
    attributes = "".join(f", {k}={v}" for k, v in sample.attrs.items())
    return f"{frontend.name} {op}({operands}{attributes})"


# ------------------------------------------------------------------ for pytest


def conformance_test(
    frontend: Frontend, gaps: Mapping[str, Mapping[str, Any]] | None = None, complete: bool = False, dtypes: Sequence[Any] | None = None
) -> Callable[..., None]:
    """A test for pytest to collect: one case for each operation of a frontend's table and each dtype.

    Args:
        frontend: what to test.
        gaps: operations that do not work yet: {"status": "notimpl", "notyet" or "never", "reason": why}, and "dtypes" if only those do not.
            A gap that works fails, so that it is taken out.
        complete: an operation of the core that is neither in the frontend's table nor a gap fails; else it is left out.
        dtypes: the dtypes to test; all that the frontend has by default.
    """
    import pytest

    known = gaps or {}
    cases = [c for c in iter_cases(frontend, dtypes) if complete or c.op in frontend.conformance]

    @pytest.mark.parametrize("case", cases, ids=[f"{c.op}-{c.dtype.name}" for c in cases])
    def test_operation_agrees_with_the_library(case: Case) -> None:
        gap = known.get(case.op)
        if gap is not None and case.dtype.name in gap.get("dtypes", [case.dtype.name]):
            try:
                compared = check(frontend, case.op, case.dtype).compared
            except Exception as error:
                pytest.xfail(f"{gap['status']}: {gap['reason']} ({type(error).__name__})")
            assert not compared, f"{frontend.name} {case.op} {case.dtype.name} works: it is no gap any more"
            return
        assert case.op in frontend.conformance, f"{frontend.name} has no call for {case.op} in its table, and no gap says why"
        outcome = check(frontend, case.op, case.dtype)
        if not outcome.compared:
            pytest.skip(f"{frontend.library} itself has no {case.op} of {case.dtype.name}: {outcome.refused}")

    made: Callable[..., None] = test_operation_agrees_with_the_library
    return made


def check_basics(frontend: Frontend, dtype: Any) -> None:
    """Check what every frontend must do with a dtype: arrays go in and come out as they were, and share no memory with their maker.

    Raises:
        AssertionError: it does not.
    """
    dtype = np.dtype(dtype)
    for dims in ((2, 3), (), (0, 2)):
        host = numbers(np.random.default_rng(0), dims, dtype)
        where = f"{frontend.name} {dtype.name}{list(dims)}"
        lazy, native = frontend.from_numpy(host), frontend.native(host)
        assert frontend.is_lazy(lazy), f"{where}: from_numpy gave a {type(lazy).__name__}, which is not lazy"
        assert not frontend.is_lazy(native), f"{where}: native gave a lazy tensor"
        for name, tensor in (("from_numpy", lazy), ("native", native)):
            read = frontend.to_numpy(tensor)
            assert (read.dtype, read.shape) == (dtype, dims), f"{where}: {name}, then to_numpy gave {read.dtype}{list(read.shape)}"
            assert read.tobytes() == host.tobytes(), f"{where}: {name}, then to_numpy gave other contents"
        value = dump.value_of(lazy)
        assert (value.shape.dims, value.shape.dtype) == (dims, dtype), f"{where}: its core value is {value.shape}"
        before = host.tobytes()
        host[...] = host == 0
        assert frontend.to_numpy(lazy).tobytes() == before, f"{where}: from_numpy shares memory that its caller may write to"


def basics_test(frontend: Frontend) -> Callable[..., None]:
    """A test for pytest to collect: `check_basics` for each dtype of a frontend."""
    import pytest

    names = [np.dtype(d).name for d in frontend.dtypes]

    @pytest.mark.parametrize("dtype", [np.dtype(d) for d in frontend.dtypes], ids=names)
    def test_arrays_go_in_and_come_out(dtype: np.dtype) -> None:
        check_basics(frontend, dtype)

    made: Callable[..., None] = test_arrays_go_in_and_come_out
    return made
