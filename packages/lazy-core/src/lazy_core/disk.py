"""The disk cache: compiled programs that the next process does not compile, and mostly does not even lower.

Owns: the format, naming, verification, eviction and safety of the files.  Two kinds of entry, both content-addressed and
both verified by comparing the whole text, not only its hash: an *index* entry maps a graph's structural text to a program,
a *program* entry maps StableHLO text to XLA's serialised executable. Everything lies in a folder that belongs to one set of
versions (jax, jaxlib, platform, CPU features, the operations' own source), mode 0700.  Files appear by renaming a finished
temporary file, end in a checksum, and hold no pickles.  May import `config`, `events`, `backend`, `lowering`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import struct
import tempfile
import zlib
from pathlib import Path

from . import backend, events
from .config import config

_MAGIC = b"LZT1"
_HEADER = struct.Struct("<4sQQ")  # magic, bytes of packed text, bytes of payload
_DIGEST_BYTES = 32
_OURS = ("index-", "program-", ".new-")


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
                base = Path(config.cache_dir) if config.cache_dir else default_folder()
                try:
                    self._folder = self._prepare(base)
                except OSError as error:
                    events.emit("cache", f"the disk cache in {base} cannot be used: {error}")
        return self._folder

    def _prepare(self, base: Path) -> Path:
        folder = base / environment_digest()
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
        entries = []
        for path in base.glob("*/*"):
            if not path.name.startswith(_OURS):
                continue
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        self._bytes = sum(size for _, size, _ in entries)
        if self._bytes > config.cache_bytes:
            for _, size, path in sorted(entries):
                with contextlib.suppress(OSError):
                    path.unlink()
                    self._bytes -= size
                if self._bytes <= config.cache_bytes * 0.8:  # some room, so that not every write evicts
                    break


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


disk = DiskCache()
