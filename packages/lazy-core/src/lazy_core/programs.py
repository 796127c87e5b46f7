"""Finding the program of a graph: in memory, on disk, or by compiling it.

Owns: the order of the levels, the choice of what to donate, and the causes of compiles.  May import `cache`, `disk`,
`causes`, `lowering`, `backend`, `background`, `events`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Sequence

from . import backend, background, causes, dump, events, lowering, progress
from .cache import cache
from .config import config, watch
from .disk import disk
from .errors import ExecutionError, LazyError

# Smaller buffers are not worth a variant of the program: copying them costs less than telling the variants apart.
SMALLEST_DONATION_BYTES = 65_536
# A variant that donates less is taken instead of compiling one that would save fewer bytes than this.
WORTH_COMPILING_BYTES = 1 << 20
_CALLBACK = re.compile(r"custom_call @xla\w*_python_\w*callback")


def known(graph: lowering.Graph, donatable: Sequence[int]) -> tuple[backend.Executable, tuple[int, ...]] | None:
    """What `find` would return, if that is in memory."""
    variants = cache.structures.get(graph.key) or {}
    chosen = _variant(graph, variants, _useful(graph, donatable))
    if chosen is None:
        return None
    events.count("canonical_hits")
    return variants[chosen], chosen


def find(
    graph: lowering.Graph, donatable: Sequence[int], cause: str, unhurried: bool = False
) -> tuple[backend.Executable, tuple[int, ...]]:
    """The program of a graph and the positions of the arguments that it takes the memory of.

    Args:
        graph: what to compute.
        donatable: positions of leaves that nobody else holds.
        cause: why it is needed, for the report.
        unhurried: nobody waits for it.

    Raises:
        ExecutionError: lowering or compiling failed.
        StrictError: it would have to be compiled, and `strict` forbids that.
    """
    donated = _useful(graph, donatable)
    found = known(graph, donatable)
    if found is not None:
        return found
    try:
        executable = _load_or_compile(graph, donated, cause, unhurried)
    except LazyError:
        raise
    except Exception as error:
        raise ExecutionError(
            f"compiling a trace of {len(graph.nodes)} operations (last recorded at {causes.site(graph)}) failed: {error}"
        ) from error
    cache.structures.put(graph.key, {**(cache.structures.get(graph.key) or {}), donated: executable})
    return executable, donated


def _useful(graph: lowering.Graph, donatable: Sequence[int]) -> tuple[int, ...]:
    """Those of the leaves that are large enough and for which there is an output of the same shape."""
    wanted = Counter([e.shape for e in graph.outputs])
    chosen = []
    for position in donatable:
        shape = graph.leaves[position].shape
        if shape.nbytes >= SMALLEST_DONATION_BYTES and wanted[shape] > 0:
            wanted[shape] -= 1
            chosen.append(position)
    return tuple(chosen)


def _variant(
    graph: lowering.Graph, variants: dict[tuple[int, ...], backend.Executable], donated: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The variant that donates most among those that donate nothing else, if what it misses is not worth compiling for."""
    fitting = [v for v in variants if set(v) <= set(donated)]
    if not fitting:
        return None
    best = max(fitting, key=len)
    missed = sum(graph.leaves[k].shape.nbytes for k in set(donated) - set(best))
    return best if missed < WORTH_COMPILING_BYTES else None


def _load_or_compile(graph: lowering.Graph, donated: tuple[int, ...], cause: str, unhurried: bool) -> backend.Executable:
    structure = lowering.text_of(graph)
    if structure is not None:
        structure += f"\ndonate {donated}"
        text = disk.get("index", structure)
        payload = disk.get("program", text.decode()) if text is not None and _storable(text.decode()) else None
        executable = backend.deserialise(payload) if payload is not None else None
        if executable is not None:
            events.count("disk_hits")
            causes.remember(graph)
            return executable
    begin = time.perf_counter()
    with background.few_collections() if unhurried else contextlib.nullcontext():
        program = backend.lower(lowering.function_of(graph), graph.argument_shapes, donated, graph.exact)
    executable = cache.programs.get(program.text)
    if executable is not None:
        events.count("canonical_hits")
        return executable
    payload = disk.get("program", program.text) if _storable(program.text) else None
    executable = backend.deserialise(payload) if payload is not None else None
    if executable is not None:
        events.count("disk_hits")
    else:
        executable, payload = _compile(graph, program, cause, begin, unhurried)
    causes.remember(graph)
    if structure is not None and payload is not None:
        disk.put("index", structure, program.text.encode())
    cache.programs.put(program.text, executable)
    return executable


def _storable(text: str) -> bool:
    """Whether a program means the same in another process: one that calls back into Python holds addresses of this one."""
    return not _CALLBACK.search(text)


def _compile(
    graph: lowering.Graph, program: backend.Program, cause: str, begin: float, unhurried: bool
) -> tuple[backend.Executable, bytes | None]:
    place = causes.site(graph)
    why = f"{causes.explain(graph)}; needed for {cause}"
    events.forbid("compile", why, place)
    what = f"lazy: compiling {len(graph.nodes)} operations, the last recorded at {place or 'an unknown line'}"
    if unhurried:
        backend.compile_in_back()
    with contextlib.nullcontext() if unhurried else progress.line(what):
        executable = program.compile()
    seconds = time.perf_counter() - begin
    events.count("compiles")
    events.count("compile_seconds", seconds)
    kept = events.keep_graph(dump.graph_text(graph.outputs), program.text)
    events.emit("compile", why, site=place, operations=len(graph.nodes), seconds=seconds, graph=kept)
    payload = executable.serialise() if disk.folder() is not None and _storable(program.text) else None
    if payload is not None:
        disk.put("program", program.text, payload)
    return executable, payload


_fast = config.fast


def _choose() -> None:
    """The setting `fast` was set: plans hold programs that were compiled for the other one."""
    global _fast
    if config.fast != _fast:
        _fast = config.fast
        cache.forget_plans()


watch("fast", _choose)
