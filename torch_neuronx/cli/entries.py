"""The files of an on-disk cache of executables, read without running or changing anything."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch_neuronx

_LEVEL = re.compile(r"[0-9a-f]{2}")
_FILE = re.compile(r"[0-9a-f]{32}\.neff")
_MAX_BYTES = 1 << 30  # as csrc/neff/cache.cc: a larger file is damaged


@dataclass
class Entry:
    """One cached executable. Times in seconds since the epoch, ``size`` in bytes."""

    key: str
    path: Path
    size: int
    created: float
    used: float
    problem: str = ""  # why it would not be executed; empty if it would, on a machine like its own
    fingerprint: str = ""  # of the compiler and the instruction set it was made by and for
    kind: str = ""
    name: str = ""
    sections: dict[str, bytes] | None = None

    @property
    def usable(self) -> bool:
        """Whether this process would execute it."""
        return not self.problem and self.fingerprint == own_fingerprint()

    @property
    def state(self) -> str:
        if self.problem:
            return "damaged"
        if self.usable:
            return "usable"
        mine, theirs = own_fingerprint().split(" ")[0], self.fingerprint.split(" ")[0]
        return "other CPU" if mine == theirs else "other compiler"


def own_fingerprint() -> str:
    return torch_neuronx._extension().compiler.fingerprint()


def default_directory() -> Path:
    name = "TORCH_NEURONX_NEFF_CACHE_DIR"
    defaults = {row[0]: row[2] for row in torch_neuronx._extension().device.env_table()}
    return Path(os.environ.get(name, defaults[name]))


def max_bytes() -> int:
    """The size the cache is kept below; -1: no limit."""
    name = "TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB"
    defaults = {row[0]: row[2] for row in torch_neuronx._extension().device.env_table()}
    text = os.environ.get(name, defaults[name])
    try:
        megabytes = int(text)
    except ValueError:
        raise RuntimeError(f"{name}='{text}': expected an integer") from None
    return megabytes << 20 if megabytes > 0 else -1


def why_unsafe(directory: Path) -> str:
    """Why executables of this directory are not used; empty if they are or it does not exist."""
    return torch_neuronx._extension().neff.why_unsafe(str(directory))


def paths(directory: Path) -> Iterator[Path]:
    """The files that are named as cached executables, without following symbolic links."""
    for first in _directories(directory):
        for second in _directories(first):
            with os.scandir(second) as found:
                for item in sorted(found, key=lambda i: i.name):
                    if _FILE.fullmatch(item.name):
                        yield Path(item.path)


def _directories(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as found:
            names = [i.name for i in found if i.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [parent / name for name in sorted(names) if _LEVEL.fullmatch(name)]


def read(path: Path, keep_sections: bool = False) -> Entry | None:
    """What a file holds, and whether it may be trusted; None if it has just been removed."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return None
    entry = Entry(path.stem, path, info.st_size, info.st_mtime, info.st_atime)
    try:
        data = _bytes(path, info)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        entry.problem = str(error)
        return entry
    try:
        key, fingerprint, sections = torch_neuronx._extension().neff.deserialize(data)
    except ValueError as error:
        entry.problem = str(error)
        return entry
    if key != entry.key:
        entry.problem = f"stored under another key than its own, {key}"
    entry.fingerprint = fingerprint.decode(errors="replace")
    entry.kind = sections.get("kind", b"").decode(errors="replace")
    entry.name = _name(sections.get("ir", b""))
    entry.sections = sections if keep_sections else None
    return entry


def _bytes(path: Path, info: os.stat_result) -> bytes:
    if not stat.S_ISREG(info.st_mode):
        raise ValueError("not a regular file")
    if info.st_uid != os.geteuid():
        raise ValueError("it belongs to another user")
    if info.st_mode & 0o022:
        raise ValueError("other users may write to it")
    if info.st_size > _MAX_BYTES:
        raise ValueError("too large for an executable")
    # Looking at a file is not a use of it.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        return file.read(info.st_size + 1)


def _name(ir: bytes) -> str:
    """The name in the first line of a kernel's or a graph's text."""
    line = ir.partition(b"\n")[0].decode(errors="replace")
    words = re.findall(r"[\w.@$]+", line)
    return words[1].lstrip("@") if len(words) > 1 else ""


def load_all(directory: Path) -> list[Entry]:
    return [entry for path in paths(directory) if (entry := read(path)) is not None]


def as_json(entry: Entry) -> dict[str, object]:
    return {
        "key": entry.key,
        "path": str(entry.path),
        "size": entry.size,
        "created": entry.created,
        "used": entry.used,
        "state": entry.state,
        "problem": entry.problem,
        "fingerprint": entry.fingerprint,
        "kind": entry.kind,
        "name": entry.name,
    }


def now() -> float:
    return time.time()
