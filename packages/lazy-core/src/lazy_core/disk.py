"""The disk cache: compiled programs that the next process does not compile, and mostly does not even lower.

Owns: the format, naming, verification, eviction and safety of the files.  Two kinds of program entry, both content-addressed and
both verified by comparing the whole text, not only its hash: an *index* entry maps a graph's structural text to a program,
a *program* entry maps StableHLO text to XLA's serialised executable. Everything lies in a folder that belongs to one set of
versions (jax, jaxlib, platform, CPU features, the operations' own source), mode 0700.  Files appear by renaming a finished
temporary file, end in a checksum, and hold no pickles.  Beside them one file of lines remembers inferred shapes (`ShapeMemory`), in a
folder that belongs to what they depend on.  May import `config`, `events`, `backend`, `lowering`, `ops.registry`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import stat
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np

from . import backend, events
from .config import config
from .deferred import jax, jaxlib_version
from .ir import Attrs
from .ops import registry
from .shape import Shape

_MAGIC = b"LZT1"
_HEADER = struct.Struct("<4sQQ")  # magic, bytes of packed text, bytes of payload
_DIGEST_BYTES = 32
_OURS = ("index-", "program-", "verdict-", "shapes", ".new-")


def default_folder() -> Path:
    """The user's cache folder for this package (`XDG_CACHE_HOME` is honoured)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lazytensor"


def _cpu_features() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor()


@functools.cache
def _own_source() -> bytes:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("ops/*.py"), here / "random.py", here / "lowering.py"]):
        if path.exists():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def environment_digest() -> str:
    """A name for everything besides the program that decides what an executable does."""
    digest = hashlib.sha256()
    facts = [*sorted(backend.versions().items()), platform.machine(), _cpu_features(), backend.topology(), os.environ.get("XLA_FLAGS", "")]
    digest.update(repr(facts).encode())
    digest.update(_own_source())
    return digest.hexdigest()[:24]


def shapes_digest() -> str:
    """A name for everything besides operands and attributes that decides an operation's output shapes."""
    versions = (jax.__version__, jaxlib_version.__version__, np.__version__)
    return hashlib.sha256(repr(versions).encode() + _own_source()).hexdigest()[:24]


def _base() -> Path:
    return Path(config.cache_dir) if config.cache_dir else default_folder()


def _private(base: Path, name: str) -> Path:
    """A folder below the cache's, made if need be.

    Raises:
        OSError: it cannot be made, or others than the user can write to it.
    """
    folder = base / name
    base.parent.mkdir(parents=True, exist_ok=True)
    for path in (base, folder):
        path.mkdir(mode=0o700, exist_ok=True)
    for path in (base, folder):
        status = path.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} can be written to by others (mode {stat.S_IMODE(status.st_mode):o}); chmod 700 it")
    return folder


class DiskCache:
    """Entries below one folder; every failure of the disk is an event and a miss, never an error of the program."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._setting: str | None = None
        self._bytes: int | None = None

    # ---------------------------------------------------------------- the folder

    def folder(self) -> Path | None:
        """The folder of this set of versions, made on first use, or None where the cache is off or unusable."""
        if self._setting != config.cache_dir:
            self._setting = config.cache_dir
            self._folder = None
            self._bytes = None
            if config.cache_dir != "off":
                try:
                    self._folder = _private(_base(), environment_digest())
                except OSError as error:
                    events.emit("cache", f"the disk cache in {_base()} cannot be used: {error}")
        return self._folder

    def describe(self) -> str:
        """Where the cache is and how large, for people."""
        folder = self.folder()
        if folder is None:
            return "off" if config.cache_dir == "off" else f"unusable: {_base()}"
        sizes = [size for _, size, _ in _entries(folder.parent)]
        return f"{folder.parent} ({len(sizes)} files, {sum(sizes) / 1e6:.1f} of {config.cache_bytes / 1e6:.0f} MB)"

    # ---------------------------------------------------------------- entries

    def get(self, kind: str, text: str) -> bytes | None:
        """The payload stored for exactly this text, or None."""
        folder = self.folder()
        if folder is None:
            return None
        path = folder / _name(kind, text)
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        payload = _unpack(blob, text)
        if payload is None:
            events.emit("cache", f"a damaged entry of the disk cache was removed: {path.name}")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of last use decides what is evicted
        return payload

    def put(self, kind: str, text: str, payload: bytes) -> None:
        """Store a payload for a text; a reader sees all of it or nothing, whoever else writes and whenever this process dies."""
        folder = self.folder()
        if folder is None:
            return
        packed = zlib.compress(text.encode(), 1)
        body = _HEADER.pack(_MAGIC, len(packed), len(payload)) + packed + payload
        blob = body + hashlib.sha256(body).digest()
        try:
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(blob)
                os.replace(temporary, folder / _name(kind, text))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            events.emit("cache", f"the disk cache in {folder} could not be written to: {error}")
            return
        self._bound(folder.parent, len(blob))

    def _bound(self, base: Path, added: int) -> None:
        if self._bytes is not None:
            self._bytes += added
        if self._bytes is not None and self._bytes <= config.cache_bytes:
            return
        entries = _entries(base)
        self._bytes = sum(size for _, size, _ in entries)
        if self._bytes > config.cache_bytes:
            for _, size, path in sorted(entries):
                with contextlib.suppress(OSError):
                    path.unlink()
                    self._bytes -= size
                if self._bytes <= config.cache_bytes * 0.8:  # some room, so that not every write evicts
                    break


def _entries(base: Path) -> list[tuple[float, int, Path]]:
    """The cache's files with the time of their last use and their size in bytes."""
    entries = []
    for path in base.glob("*/*"):
        if path.name.startswith(_OURS):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
    return entries


def _name(kind: str, text: str) -> str:
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()}"


def _unpack(blob: bytes, text: str) -> bytes | None:
    """The payload, if the checksum holds and the stored text is this text."""
    if len(blob) < _HEADER.size + _DIGEST_BYTES or hashlib.sha256(blob[:-_DIGEST_BYTES]).digest() != blob[-_DIGEST_BYTES:]:
        return None
    magic, text_bytes, payload_bytes = _HEADER.unpack_from(blob)
    if magic != _MAGIC or len(blob) != _HEADER.size + text_bytes + payload_bytes + _DIGEST_BYTES:
        return None
    middle = _HEADER.size + text_bytes
    try:
        stored = zlib.decompress(blob[_HEADER.size : middle]).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    return blob[middle:-_DIGEST_BYTES] if stored == text else None


_MOST_SHAPE_BYTES = 1 << 20
_MOST_UNWRITTEN = 64


class ShapeMemory:
    """The output shapes that operations were found to have, from process to process: a second one infers none again.

    One file that is only ever appended to, a line a signature: checksum, signature, shapes.  Signatures are compared in full. Lines that
    were torn by a kill are not found; a file past its bound is removed and begun anew. An error of the disk costs the memory only.
    """

    def __init__(self) -> None:
        self._setting: str | None = None
        self._path: Path | None = None
        self._known: dict[bytes, bytes] = {}
        self._unwritten: list[bytes] = []

    def _open(self) -> bool:
        if self._setting != config.cache_dir:
            self._setting = config.cache_dir
            self._path = None
            self._known = {}
            self._unwritten = []
            if config.cache_dir != "off":
                with contextlib.suppress(OSError):
                    path = _private(_base(), shapes_digest()) / "shapes"
                    self._path = path
                    os.utime(path)  # the time of last use decides what is evicted
                    for line in path.read_bytes().split(b"\n"):
                        check, _, rest = line.partition(b" ")
                        signature, _, shapes = rest.partition(b"\t")
                        self._known[signature] = check + b"\t" + shapes
        return self._path is not None

    def get(self, op: registry.Op, shapes: tuple[Shape, ...], attributes: Attrs) -> registry.Inferred | None:
        """See `registry.Signatures.get`."""
        if not self._open() or not self._known or not _covered(op):
            return None
        signature = _signature(op, shapes, attributes)
        check, _, text = self._known.get(signature, b"").partition(b"\t")
        if not check or check != _line_check(signature, text):
            return None
        kind, _, names = text.decode().partition(" ")
        return tuple([Shape.parse(name) for name in names.split()]), kind == "tuple"

    def put(self, op: registry.Op, shapes: tuple[Shape, ...], attributes: Attrs, inferred: registry.Inferred) -> None:
        """See `registry.Signatures.put`."""
        if not self._open() or not _covered(op):
            return
        signature = _signature(op, shapes, attributes)
        text = f"{'tuple' if inferred[1] else 'one'} {' '.join(map(str, inferred[0]))}".encode()
        self._unwritten.append(_line_check(signature, text) + b" " + signature + b"\t" + text + b"\n")
        if len(self._unwritten) >= _MOST_UNWRITTEN:
            self.write()

    def write(self) -> None:
        """Append what is new to the file."""
        lines, self._unwritten = self._unwritten, []
        if self._path is None or not lines:
            return
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, b"".join(lines))
                if os.fstat(handle).st_size > _MOST_SHAPE_BYTES:
                    self._path.unlink()
            finally:
                os.close(handle)


def _covered(op: registry.Op) -> bool:
    """Whether an operation is one of those whose source is part of the folder's name."""
    return registry.REGISTRY.get(op.name) is op and op.fn.__module__.startswith(registry.__package__)


def _signature(op: registry.Op, shapes: tuple[Shape, ...], attributes: Attrs) -> bytes:
    return f"{op.name}({', '.join(map(str, shapes))}) {attributes.key!r}".encode()


def _line_check(signature: bytes, text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(signature + b"\t" + text)


disk = DiskCache()
shape_memory = ShapeMemory()
registry.set_signatures(shape_memory)
atexit.register(shape_memory.write)
