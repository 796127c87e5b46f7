"""The conformance kit: hold a frontend's results against its own library, operation by operation and program by program.

Owns: the tests that pytest collects, and what every frontend must do with arrays.  The cells and `check` stand in `conformance`, what a
result may differ by and why in `tolerances`.  Anybody's frontend is tested by pytest in four lines:

    from lazy_core.testing import basics_test, conformance_test, programs_test
    test_operations = conformance_test(FRONTEND)
    test_programs = programs_test(FRONTEND)
    test_basics = basics_test(FRONTEND)

May import everything of the core; never a frontend.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from . import compiling, dump, tiers
from .conformance import (
    PLACEMENTS,
    TIERS,
    Case,
    Gaps,
    Outcome,
    ProgramCase,
    Verdict,
    check,
    check_program,
    iter_cases,
    iter_programs,
    judge,
    programs_of,
    samples,
)
from .frontend import Frontend
from .ops.registry import Sample, numbers
from .tolerances import Tolerance, assert_close, tolerance
from .trials import Trial

__all__ = [
    "PLACEMENTS",
    "TIERS",
    "Case",
    "Outcome",
    "ProgramCase",
    "Sample",
    "Tolerance",
    "Verdict",
    "assert_close",
    "basics_test",
    "cell_name",
    "check",
    "check_basics",
    "check_program",
    "conformance_test",
    "interrupt_at_random",
    "iter_cases",
    "iter_programs",
    "judge",
    "programs_test",
    "run_cell",
    "samples",
    "tolerance",
]


def cell_name(frontend: Frontend, case: Case | ProgramCase) -> str:
    """What pytest calls a cell."""
    tier = [case.tier] if case.tier else []
    return "-".join([frontend.name, case[0], case.dtype.name, *tier, case.placement])


def run_cell(frontend: Frontend, case: Case | ProgramCase, gaps: Gaps) -> None:
    """Test one cell within pytest: a gap is an expected failure, what the library itself refuses is skipped; see `conformance.judge`."""
    import pytest

    verdict = judge(frontend, case, gaps)
    if verdict.kind == "gap":
        pytest.xfail(verdict.reason)
    if verdict.kind == "refused":
        pytest.skip(f"{frontend.library} itself has no {case[0]} of {case.dtype.name}: {verdict.reason}")


def _cells_test(frontend: Frontend, cases: Iterable[Case | ProgramCase], gaps: Gaps | None) -> Callable[..., None]:
    import pytest

    chosen = list(cases)

    @pytest.mark.parametrize("case", chosen, ids=[cell_name(frontend, case) for case in chosen])
    def test_agrees_with_the_library(case: Case | ProgramCase) -> None:
        run_cell(frontend, case, gaps or {})

    made: Callable[..., None] = test_agrees_with_the_library
    return made


def conformance_test(
    frontend: Frontend,
    gaps: Gaps | None = None,
    complete: bool = False,
    dtypes: Sequence[Any] | None = None,
    tiers: Sequence[str] = ("compiled",),
    placements: Sequence[str] = ("end",),
) -> Callable[..., None]:
    """A test for pytest to collect: one case for each operation of a frontend's table, each dtype, tier and placement of barriers.

    Args:
        frontend: what to test.
        gaps: operations that do not work yet: {"status": "notimpl", "notyet" or "never", "reason": why}, and "dtypes" or "samples" (by
            number) if only those do not. A gap that works fails, so that it is taken out.
        complete: an operation of the core that is neither in the frontend's table nor a gap fails; else it is left out.
        dtypes: the dtypes to test; all that the frontend has by default.
        tiers: of `TIERS`.
        placements: of `PLACEMENTS`.
    """
    cells = iter_cases(frontend, dtypes, tiers, placements)
    return _cells_test(frontend, [c for c in cells if complete or c.op in frontend.conformance], gaps)


def programs_test(
    frontend: Frontend,
    gaps: Gaps | None = None,
    complete: bool = False,
    dtypes: Sequence[Any] | None = None,
    tiers: Sequence[str] = TIERS,
    placements: Sequence[str] = PLACEMENTS,
) -> Callable[..., None]:
    """A test for pytest to collect: one case for each whole program, each dtype, tier and placement; see `conformance_test`."""
    cells = iter_programs(frontend, dtypes, tiers, placements)
    return _cells_test(frontend, [c for c in cells if complete or c.program in programs_of(frontend)], gaps)


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


def first_verdict(step: Callable[[], Any]) -> Trial:
    """Call a step until the trace that it records, which is new, has a verdict; what is being compiled is waited for.

    Raises:
        AssertionError: none had one after 400 calls.
    """
    known = tiers.trials()
    for _ in range(400):
        step()
        found = [trial for trial in tiers.trials() if trial.verdict and not any(trial is one for one in known)]
        if found:
            (trial,) = found
            return trial
        compiling.wait(60)
    raise AssertionError("no trace of the step has a verdict")


def interrupt_at_random(step: Callable[[int], Any], done: Callable[[], Any], seconds: float = 4.0) -> int:
    """Call a step over and over, with Ctrl-C at random moments, and see each time that no step was torn apart; in a process of its own.

    Args:
        step: changes a state by one step, given how many were begun, this one included.
        done: the state as an array of which every element says how many steps are in it.
        seconds: how long.

    Returns:
        How many interrupts there were.

    Raises:
        AssertionError: a step that ended is not in the state, or one is in a part of it.
    """
    go, caught, quiet = threading.Event(), threading.Event(), threading.Event()

    def interrupt() -> None:
        while True:
            go.wait()
            go.clear()
            time.sleep(random.random() * 0.02)
            os.kill(os.getpid(), signal.SIGINT)
            while not caught.wait(0.2):  # one that arrives in a destructor or in jax's garbage callback is swallowed there
                os.kill(os.getpid(), signal.SIGINT)
            quiet.set()

    def settle() -> None:
        """No further one is sent when this returns."""
        caught.set()
        quiet.wait()

    threading.Thread(target=interrupt, daemon=True).start()
    steps = interrupts = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            caught.clear()
            quiet.clear()
            go.set()
            while True:
                steps += 1
                step(steps)
        except KeyboardInterrupt:
            try:
                settle()
            except KeyboardInterrupt:  # the first was long in coming, as while something was lowered, and a second was sent
                settle()
            interrupts += 1
        found = np.asarray(done())
        first = found.flat[0]
        assert steps - interrupts <= first <= steps and (found == first).all(), (steps, interrupts, found)
    return interrupts
