"""Capsules: traces in one file that anybody can look into and run again, without the library that recorded them.

Owns: the format, `write` and `load`.  A capsule is a zip archive: `capsule.json` has the operations, attributes, the user's lines and the
versions; each input is an `.npy` file beside it.  Nothing is pickled.  A capsule from a stranger is read as data: names of members, sizes,
dtypes and shapes are checked before anything is allocated, operations are those of the registry, and their results must have the shapes
that the capsule says.  May import `encoding`, `statistics`, `rerun`, `lowering`, `history`.
"""

from __future__ import annotations

import json
import linecache
import math
import os
import platform
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from . import backend, encoding, lowering, statistics
from .encoding import CapsuleError
from .history import Kept
from .rerun import VECTOR_DTYPES, Inputs

FORMAT, VERSION = "lazytensor capsule", 1
MANIFEST = "capsule.json"
# The text of a capsule may have so many bytes, and what its inputs and results take in all (an argument of `load`).
MOST_TEXT, MOST_BYTES = 1 << 28, 1 << 33
_MAGIC = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class Trace:
    """One trace of a capsule.

    Attributes:
        inputs: its graph, and the contents of what that reads.
        cause: why it ran.
        error: how it failed where it was captured, or None.
        results: the statistics of each output where it was captured, or None.
        generated: which inputs have made-up numbers, as the capsule holds only their statistics.
        computed: inputs that are results of operations which only the frontend has, by number: their names.
    """

    inputs: Inputs
    cause: str
    error: str | None
    results: tuple[dict[str, Any] | None, ...]
    generated: frozenset[int] = frozenset()
    computed: dict[int, str] = field(default_factory=dict)

    @property
    def graph(self) -> lowering.Graph:
        """The operations."""
        return self.inputs.graph


@dataclass(frozen=True)
class Capsule:
    """What a capsule holds.

    Attributes:
        versions: of what it was made with.
        traces: the traces, oldest first.
        lines: the text of the user's lines, by `file:line`.
    """

    versions: dict[str, str]
    traces: tuple[Trace, ...]
    lines: dict[str, str]


def versions() -> dict[str, str]:
    """The versions that matter to what a graph computes."""
    from importlib.metadata import version  # it takes long to import, and is seldom needed

    return {"lazytensor-core": version("lazytensor-core"), "python": platform.python_version(), **backend.versions()}


# ------------------------------------------------------------------ writing


def write(path: str | os.PathLike[str], traces: Sequence[Kept], values: bool = True) -> None:
    """Write traces into a capsule; a file of that name is replaced when the new one is whole.

    Args:
        path: where to; the suffix is `.lzt`.
        traces: what to write.
        values: whether the contents of inputs are written, or only their statistics.  Numbers of the program are written in any case.

    Raises:
        CapsuleError: an attribute is of a kind that no capsule can hold.
        OSError: the file cannot be written.
    """
    unfinished = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            described = [_write_trace(archive, number, kept, values) for number, kept in enumerate(traces)]
            sites = dict.fromkeys([o["site"] for t in described for o in t["operations"] if o["site"]])
            lines = {site: text for site in sites if (text := _line(site))}
            manifest = {"format": FORMAT, "version": VERSION, "versions": versions(), "traces": described, "lines": lines}
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1, allow_nan=False))
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def _line(site: str) -> str:
    name, _, number = site.rpartition(":")
    return linecache.getline(name, int(number)).strip() if number.isdigit() else ""


def _write_trace(archive: zipfile.ZipFile, number: int, kept: Kept, values: bool) -> dict[str, Any]:
    part = encoding.cut(kept.inputs)
    inputs = []
    for k, (shape, array, name) in enumerate(zip(part.shapes, part.arrays, part.names, strict=True)):
        described: dict[str, Any] = {"shape": str(shape), "statistics": statistics.describe(array), "computed_by": name, "file": None}
        if values:
            described["file"] = f"traces/{number}/inputs/{k}.npy"
            with archive.open(described["file"], "w", force_zip64=True) as file:
                _write_array(file, array)
        else:
            described["seed"] = zlib.crc32(f"{number} {k} {shape}".encode())
        inputs.append(described)
    results: list[Any] = [None] * len(part.outputs)
    if kept.results is not None:
        arrays = dict(zip(kept.live, kept.results, strict=True))
        results = [_statistics_of(arrays.get(e)) for e in part.outputs]
    return {"cause": kept.cause, "error": kept.error, "inputs": inputs, "results": results, **part.text}


def _statistics_of(array: Any) -> dict[str, Any] | None:
    try:
        return None if array is None else statistics.describe(backend.to_host(array))
    except Exception:  # a library's own tensor, or a computation that failed: the capsule is written all the same
        return None


def _plain(dtype: np.dtype) -> np.dtype:
    """The dtype that an array is stored as: those of ml_dtypes as unsigned integers of their width."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.num >= 256 else dtype


def _write_array(file: IO[bytes], array: np.ndarray) -> None:
    whole = np.asarray(array, order="C")
    np.lib.format.write_array(file, whole.view(_plain(array.dtype)), (1, 0), allow_pickle=False)


# ------------------------------------------------------------------ reading


def load(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> Capsule:
    """Read a capsule; it may come from anywhere.

    Args:
        path: the file.
        most_bytes: what inputs and results may take in all.

    Raises:
        CapsuleError: it is no capsule, is damaged, asks for too much, or was written by a newer version.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            return _load(file, most_bytes)
        except CapsuleError as error:
            raise CapsuleError(f"{os.fspath(path)}: {error}") from error
        except Exception as error:  # whatever a damaged archive or a stranger's text sets off
            raise CapsuleError(f"{os.fspath(path)} is no capsule, or is damaged: {type(error).__name__}: {error}") from error


def _load(file: IO[bytes], most_bytes: int) -> Capsule:
    with zipfile.ZipFile(file) as archive:
        manifest = _manifest(archive)
        made = encoding.mapping(manifest, "versions")
        budget = [most_bytes]
        traces = tuple([_read_trace(archive, t, budget, made) for t in encoding.sequence(manifest, "traces")])
        lines = {str(k): str(v) for k, v in encoding.mapping(manifest, "lines").items()}
        return Capsule({str(k): str(v) for k, v in made.items()}, traces, lines)


def _manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise CapsuleError(f"there is no {MANIFEST} in it: it is no capsule")
    size = archive.getinfo(MANIFEST).file_size
    if size > MOST_TEXT:
        raise CapsuleError(f"its text has {size} bytes, and may have {MOST_TEXT}")
    manifest = json.loads(archive.read(MANIFEST), parse_constant=encoding.refuse_constant)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CapsuleError(f"{MANIFEST} does not say that it is a {FORMAT}")
    version = manifest.get("version")
    if not isinstance(version, int) or version < 1:
        raise CapsuleError(f"its format has the version {version!r}")
    if version > VERSION:
        raise CapsuleError(f"it is of format {version}, and this version of lazytensor-core reads formats up to {VERSION}: update it")
    return manifest


def _read_trace(archive: zipfile.ZipFile, described: Any, budget: list[int], made: dict[str, Any]) -> Trace:
    inputs = encoding.sequence(described, "inputs")
    shapes = [encoding.shape(encoding.mapping(i)["shape"]) for i in inputs]
    for shape in shapes:
        _spend(budget, shape.nbytes, f"an input {shape}")
    arrays = [_read_input(archive, i, s) for i, s in zip(inputs, shapes, strict=True)]
    graph, numbers = encoding.build(described, shapes, lambda n, what: _spend(budget, n, what), str(made.get("lazytensor-core")))
    used = [arrays[leaf.slot] for leaf in graph.leaves]
    packed = [
        np.array([numbers[k][s.slot] for s in group], dtype)
        for k, (group, dtype) in enumerate(zip(graph.scalars, VECTOR_DTYPES, strict=True))
        if group
    ]
    error = described.get("error")
    return Trace(
        Inputs(graph, used, packed),
        str(described.get("cause")),
        None if error is None else str(error),
        tuple([r if isinstance(r, dict) else None for r in encoding.sequence(described, "results")]),
        frozenset([n for n, leaf in enumerate(graph.leaves) if inputs[leaf.slot]["file"] is None]),
        {n: str(inputs[leaf.slot]["computed_by"]) for n, leaf in enumerate(graph.leaves) if inputs[leaf.slot].get("computed_by")},
    )


def _spend(budget: list[int], nbytes: int, what: str) -> None:
    budget[0] -= nbytes
    if budget[0] < 0:
        raise CapsuleError(f"{what} of {nbytes} bytes is more than what is left of the bytes allowed; give `load` a larger `most_bytes`")


def _read_input(archive: zipfile.ZipFile, described: dict[str, Any], shape: Any) -> np.ndarray:
    name = described["file"]
    if name is None:
        return statistics.generate(shape, encoding.mapping(described, "statistics"), int(described["seed"]))
    if not isinstance(name, str) or not encoding.is_input_name(name):
        raise CapsuleError(f"{name!r} is no name of an input")
    stored = _plain(shape.dtype)
    size = archive.getinfo(name).file_size
    if not 0 <= size - shape.nbytes <= 4096:  # the header
        raise CapsuleError(f"{name} has {size} bytes, which does not fit {shape}")
    with archive.open(name) as file:
        reader = _MAGIC.get(np.lib.format.read_magic(file))
        if reader is None:
            raise CapsuleError(f"{name} is of a version of .npy that no capsule has")
        dims, fortran, dtype = reader(file)
        if dims != shape.dims or fortran or dtype != stored:
            raise CapsuleError(f"{name} holds {dtype}{list(dims)}, and the capsule says {shape}")
        data = file.read(shape.nbytes)
        if len(data) != shape.nbytes or file.read(1):
            raise CapsuleError(f"{name} has not the bytes of {shape}")
    return np.asarray(np.frombuffer(data, stored, math.prod(dims)).view(shape.dtype).reshape(dims))
