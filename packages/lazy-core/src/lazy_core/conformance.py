"""The conformance matrix: which cells it has, and whether a frontend agrees with its own library in one of them.

Owns: `Case`, `ProgramCase`, `check`, `check_program`, and `judge`, which also knows of gaps.  Operations are run one by one, whole programs
as a whole (see `whole`), each in every tier and with barriers placed in every way (see `PLACEMENTS`).  May import everything of the core
but `testing`; never a frontend, nor pytest.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import whole
from .barrier import barrier
from .config import options
from .frontend import Frontend
from .ops.registry import REGISTRY, Sample
from .report import Report, report
from .tolerances import assert_close, tolerance

# Families that no library has in this form: their first operand is the core's own (a random state, a storage with a layout).
# They are tested in the core, and through every random draw and view of a frontend's own tests.
OWN_FAMILIES = frozenset({"random", "strided"})

# Operations that a library may well serve without recording anything: views, whole numbers rounded, constants.
MAY_BE_FREE = frozenset(
    {"identity", "convert", "bitcast", "real", "imag", "conj", "floor", "ceil", "trunc", "round", "eye", "iota", "full"}
)

# The tiers of the matrix. "auto" is these two, and when it goes from one to the other.
TIERS = ("compiled", "native")
# Where barriers stand: only where the results are read, after everything was recorded; after each recorded operation; or, of an
# operation, where each sample's result is read before the next sample is recorded, and of a program, where it reads halfway through.
PLACEMENTS = ("end", "each", "middle")
PROGRAM_DTYPES = (np.dtype("float32"), np.dtype("float64"))

Gaps = Mapping[str, Mapping[str, Any]]


class Case(NamedTuple):
    """One cell of the matrix of operations; `tier` None is the one in force."""

    op: str
    dtype: np.dtype
    tier: str | None = None
    placement: str = "end"


class ProgramCase(NamedTuple):
    """One cell of the matrix of whole programs."""

    program: str
    dtype: np.dtype
    tier: str | None = None
    placement: str = "end"


class Outcome(NamedTuple):
    """What `check` did: how many samples were compared, and why the library itself has none of the others."""

    compared: int
    refused: str | None


class Verdict(NamedTuple):
    """What came of a cell that is as it should be.

    Attributes:
        kind: "agrees", "gap" (declared, and real), or "refused" (by the library itself).
        reason: why, of the latter two.
    """

    kind: str
    reason: str = ""


def samples(op: str, dtype: np.dtype) -> list[Sample]:
    """The samples of an operation for a dtype: the same ones in every process."""
    make = REGISTRY[op].samples
    assert make is not None, f"operation {op} has no samples"
    return list(make(np.dtype(dtype), np.random.default_rng(zlib.crc32(f"{op} {np.dtype(dtype).name}".encode()))))


def _wanted(frontend: Frontend, dtypes: Sequence[Any] | None) -> set[np.dtype]:
    """The dtypes that a frontend has, of these if any are given."""
    made = {np.dtype(d) for d in frontend.dtypes}
    return made if dtypes is None else made & {np.dtype(d) for d in dtypes}


def iter_cases(
    frontend: Frontend,
    dtypes: Sequence[Any] | None = None,
    tiers: Sequence[str | None] = (None,),
    placements: Sequence[str] = ("end",),
) -> Iterator[Case]:
    """The cells of a frontend: every operation with a counterpart in a library, every dtype that both have, every tier, every placement."""
    wanted = _wanted(frontend, dtypes)
    for name, op in sorted(REGISTRY.items()):
        if op.family in OWN_FAMILIES:
            continue
        for dtype in op.dtypes:
            if dtype in wanted:
                yield from [Case(name, dtype, tier, placement) for tier in tiers for placement in placements]


def iter_programs(
    frontend: Frontend,
    dtypes: Sequence[Any] | None = None,
    tiers: Sequence[str | None] = (None,),
    placements: Sequence[str] = ("end",),
) -> Iterator[ProgramCase]:
    """The cells of a frontend that are whole programs."""
    wanted = _wanted(frontend, dtypes)
    for name in whole.PROGRAMS:
        for dtype in PROGRAM_DTYPES:
            if dtype in wanted:
                yield from [ProgramCase(name, dtype, tier, placement) for tier in tiers for placement in placements]


# ------------------------------------------------------------------ operations


def _flat(result: Any) -> list[Any]:
    return [item for part in result for item in _flat(part)] if isinstance(result, (tuple, list)) else [result]


def _native(call: Callable[..., Any], frontend: Frontend, sample: Sample) -> tuple[list[np.ndarray] | None, str | None]:
    """The library's own result, or why it has none."""
    try:
        with _quiet():
            return [frontend.to_numpy(r) for r in _flat(call(*[frontend.native(a) for a in sample.args], **sample.attrs))], None
    except Exception as error:
        return None, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _conditions(tier: str | None, placement: str) -> Iterator[None]:
    """The tier and the placement; nothing that was pending before is there to be cut by it."""
    if placement not in PLACEMENTS:
        raise ValueError(f"a placement is one of {', '.join(PLACEMENTS)}; not {placement!r}")
    barrier()
    with options(**({} if tier is None else {"tier": tier}), **({"max_trace": 1} if placement == "each" else {})):
        yield
        barrier()


def check(
    frontend: Frontend,
    op: str,
    dtype: Any,
    only: Callable[[int], bool] = lambda number: True,
    tier: str | None = None,
    placement: str = "end",
) -> Outcome:
    """Compare a frontend with its own library on every sample of an operation.

    Args:
        frontend: see `lazy_core.frontend.Frontend`.
        op: the name of a core operation.
        dtype: the dtype to make samples for.
        only: which samples, by number, to look at.
        tier: "compiled" or "native"; by default the one in force.
        placement: where barriers stand, one of `PLACEMENTS`.

    Returns:
        How many samples were compared; samples that the library itself refuses are left out, with its reason.

    Raises:
        AssertionError: a result differs. Unless the tier is native also: it is not lazy, fell back, or nothing was recorded.
        KeyError: the frontend's `conformance` table has no such operation.
    """
    call = frontend.conformance[op]
    kept: list[tuple[Sample, list[np.ndarray], list[Any]]] = []
    refused = None

    def compare(sample: Sample, expected: list[np.ndarray], results: list[Any]) -> None:
        for result, wanted in zip(results, expected, strict=True):
            assert_close(frontend.to_numpy(result), wanted, tolerance(op), _where(frontend, op, sample))

    with _conditions(tier, placement):
        for sample in [s for number, s in enumerate(samples(op, dtype)) if only(number)]:
            expected, reason = _native(call, frontend, sample)
            if expected is None:
                refused = reason
                continue
            results = _recorded(frontend, op, call, sample, tier == "native")
            assert len(results) == len(expected), (
                f"{_where(frontend, op, sample)}: {len(results)} results, but the library gives {len(expected)}"
            )
            if placement == "each":
                barrier()
            if placement == "middle":
                compare(sample, expected, results)
            kept.append((sample, expected, results))
        for entry in kept:
            compare(*entry)
    return Outcome(len(kept), refused)


def _recorded(frontend: Frontend, op: str, call: Callable[..., Any], sample: Sample, native: bool) -> list[Any]:
    """The results of an operation on lazy tensors."""
    creating = getattr(frontend, "creating", contextlib.nullcontext)
    before = report()
    with _quiet():
        if sample.args:
            results = _flat(call(*[frontend.from_numpy(a) for a in sample.args], **sample.attrs))
        else:
            with creating():
                results = _flat(call(**sample.attrs))
    if not native:
        where, after = _where(frontend, op, sample), report()
        _assert_no_fallback(before, after, where)
        if REGISTRY[op].family != "shapes" and op not in MAY_BE_FREE:
            assert after.counters["recorded"] > before.counters["recorded"], f"{where}: nothing was recorded"
        for result in results:
            assert frontend.is_lazy(result), f"{where}: the result is a {type(result).__name__}, not a lazy tensor"
    return results


def _assert_no_fallback(before: Report, after: Report, where: str) -> None:
    new = [name for name, count in after.fallbacks.items() if count > before.fallbacks.get(name, 0)]
    assert after.counters["fallbacks"] == before.counters["fallbacks"], f"{where}: fell back ({', '.join(new)})"


def _where(frontend: Frontend, op: str, sample: Sample) -> str:
    operands = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in sample.args)
    attributes = "".join(f", {k}={v}" for k, v in sample.attrs.items())
    return f"{frontend.name} {op}({operands}{attributes})"


# ------------------------------------------------------------------ whole programs


def check_program(frontend: Frontend, program: str, dtype: Any, tier: str | None = None, placement: str = "end") -> int:
    """Compare a whole program of a frontend with the same lines on its own library.

    Args:
        frontend: one with `programs`, see `lazy_core.frontend.Frontend`.
        program: its name in `lazy_core.whole.PROGRAMS`.
        dtype: float32 or float64.
        tier: "compiled" or "native"; by default the one in force.
        placement: where barriers stand, one of `PLACEMENTS`.

    Returns:
        How many barriers there were before the results were read: with "end" none but those that a frontend places on its own, as after an
        optimizer's step.

    Raises:
        AssertionError: a result differs; it has no middle; or, unless the tier is native, something fell back, or barriers are not where
            the placement says.
        StrictError: it reads a value before its end, and was not to.
        KeyError: the frontend has no such program.
    """
    call = programs_of(frontend)[program]
    where = f"{frontend.name} {program} {np.dtype(dtype).name}"
    given = whole.inputs(program, np.dtype(dtype))
    halfway: list[str] = []

    def middle(tensor: Any) -> Any:
        halfway.append(placement)
        if placement == "middle" and frontend.is_lazy(tensor):
            frontend.to_numpy(tensor)
        return tensor

    with _quiet(), _conditions(tier, placement):
        expected = [frontend.to_numpy(r) for r in _flat(call(*[frontend.native(a) for a in given], middle=middle))]
        arguments = [frontend.from_numpy(a) for a in given]
        barrier()
        before = report()
        with options(**({"strict": "host_read"} if placement == "end" and tier != "native" else {})):
            results = _flat(call(*arguments, middle=middle))
        after = report()
        assert len(halfway) == 2, f"{where}: a program calls middle once, not {len(halfway) / 2:g} times"
        found = after.counters["barriers"] - before.counters["barriers"]
        if tier != "native":
            _assert_no_fallback(before, after, where)
            _assert_placed(found, after.counters["recorded"] - before.counters["recorded"], placement, where)
        for result, wanted in zip(results, expected, strict=True):
            assert_close(frontend.to_numpy(result), wanted, whole.PROGRAMS[program].allowed, where)
    return int(found)


def _assert_placed(barriers: float, recorded: float, placement: str, where: str) -> None:
    fits = {"end": True, "each": barriers >= recorded / 2, "middle": barriers >= 1}[placement]
    assert fits, f"{where}: {barriers:g} barriers among {recorded:g} operations, with placement {placement!r}"


def programs_of(frontend: Frontend) -> Mapping[str, Callable[..., Any]]:
    """The whole programs that a frontend has; none if it has no such table."""
    found: Mapping[str, Callable[..., Any]] = getattr(frontend, "programs", {})
    return found


# ------------------------------------------------------------------ cells and gaps


def gap_of(gaps: Gaps, case: Case | ProgramCase) -> Mapping[str, Any] | None:
    """The gap that covers a cell, or None."""
    gap = gaps.get(case[0])
    return gap if gap is not None and case.dtype.name in gap.get("dtypes", [case.dtype.name]) else None


def judge(frontend: Frontend, case: Case | ProgramCase, gaps: Gaps) -> Verdict:
    """What comes of a cell; gaps are declared, and real.

    Args:
        frontend: whose cell.
        case: the cell.
        gaps: operation or program -> {"status": "notimpl" (ours to do), "notyet" (the library's or XLA's) or "never" (it would be wrong),
            "reason": why}; "dtypes" and "samples" (their numbers) narrow it. What a frontend has no call for needs a gap, which holds in
            every tier; what it has a call for works natively, and a gap says what is not compiled.

    Raises:
        AssertionError: it does not agree, and no gap says so; or a gap says so, and it agrees.
    """
    name, table = (case[0], frontend.conformance if isinstance(case, Case) else programs_of(frontend))
    gap = gap_of(gaps, case)
    if name not in table:
        assert gap is not None, f"{frontend.name} has no call for {name} in its table, and no gap says why"
        return Verdict("gap", _reason(gap))
    if gap is None or case.tier == "native":
        return _agrees(frontend, case)
    excluded = gap.get("samples")
    if excluded is None:
        failure = _failure(frontend, case)
        assert failure is not None, f"{frontend.name} {name} {case.dtype.name} works: it is no gap any more"
        return Verdict("gap", f"{_reason(gap)} ({failure})")
    verdict = _agrees(frontend, case, lambda number: number not in excluded)
    for number in excluded:
        one = _failure(frontend, case, functools.partial(operator.eq, number))
        assert one is not None, f"{frontend.name} {name} {case.dtype.name}, sample {number} works: it is no gap any more"
    return verdict


def _reason(gap: Mapping[str, Any]) -> str:
    return f"{gap['status']}: {gap['reason']}"


def _agrees(frontend: Frontend, case: Case | ProgramCase, only: Callable[[int], bool] = lambda number: True) -> Verdict:
    if isinstance(case, ProgramCase):
        check_program(frontend, *case)
        return Verdict("agrees")
    outcome = check(frontend, case.op, case.dtype, only, case.tier, case.placement)
    return Verdict("agrees") if outcome.compared else Verdict("refused", outcome.refused or "")


def _failure(frontend: Frontend, case: Case | ProgramCase, only: Callable[[int], bool] = lambda number: True) -> str | None:
    """How a cell that is a gap fails, by the name of the error; None if it does not."""
    try:
        verdict = _agrees(frontend, case, only)
    except Exception as error:
        return type(error).__name__
    return verdict.reason or None if verdict.kind == "refused" else None


def assert_well_formed(gaps: Mapping[str, Gaps]) -> None:
    """Check that declared gaps are well formed.

    Args:
        gaps: of each frontend by name.

    Raises:
        AssertionError: one names neither an operation of the matrix nor a program, or has no status, no reason, or unknown keys.
    """
    for frontend_name, declared in gaps.items():
        for name, gap in declared.items():
            where = f"[{frontend_name}.{name}]"
            assert name in REGISTRY or name in whole.PROGRAMS, f"{where}: there is no such operation or program"
            assert name not in REGISTRY or REGISTRY[name].family not in OWN_FAMILIES, f"{where}: {name} is not in the matrix"
            assert gap.get("status") in ("notimpl", "notyet", "never"), f"{where}: status must be notimpl, notyet or never"
            assert gap.get("reason"), f"{where}: a reason is missing"
            assert not set(gap) - {"status", "reason", "dtypes", "samples"}, f"{where}: unknown keys"
