"""Executables in a tar file: ``<key>.neff`` each, as they lie in the cache."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch_neuronx
from torch_neuronx.cli import entries

_MAX_BYTES = 1 << 30
_MAX_MEMBERS = 1_000_000


def export(paths: Iterable[Path], file: Path) -> tuple[list[str], dict[str, str]]:
    """(keys written, why the others are not). The tar file appears when it is whole."""
    written: list[str] = []
    refused: dict[str, str] = {}
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as out:
        try:
            with tarfile.open(fileobj=out, mode="w") as tar:
                for path in paths:
                    entry = entries.read(path, keep_sections=True)
                    if entry is None:
                        continue
                    if entry.problem:
                        refused[path.name] = entry.problem
                        continue
                    # Made again from what was checked, not copied from a file that may change.
                    data = torch_neuronx._extension().neff.serialize(
                        entry.key, entry.fingerprint, entry.sections
                    )
                    member = tarfile.TarInfo(path.name)
                    member.size, member.mtime, member.mode = len(data), int(entry.created), 0o600
                    tar.addfile(member, io.BytesIO(data))
                    written.append(entry.key)
            out.flush()
            os.fsync(out.fileno())
            os.replace(out.name, file)
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise
    return written, refused


@dataclass
class Imported:
    imported: list[str] = field(default_factory=list)  # keys
    present: list[str] = field(default_factory=list)  # keys that the cache had
    refused: dict[str, str] = field(default_factory=dict)  # name: why
    made_for: list[str] = field(default_factory=list)  # fingerprints of `imported`


def take(file: Path, directory: Path, cache: Any) -> Imported:
    """Stores every whole executable of a tar file that ``cache``, in ``directory``, lacks.

    No path of the file is followed.
    """
    out = Imported()
    try:
        with tarfile.open(file, mode="r:*") as tar:
            for count, member in enumerate(tar):
                if count >= _MAX_MEMBERS:
                    raise RuntimeError(f"{file}: more than {_MAX_MEMBERS} members")
                _take_member(tar, member, directory, cache, out)
    except (tarfile.TarError, EOFError) as error:
        raise RuntimeError(f"{file}: not a readable tar file ({error})") from None
    return out


def _take_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path, cache: Any, out: Imported
) -> None:
    if not member.isreg():
        out.refused[member.name] = "not a regular file"
        return
    if member.size > _MAX_BYTES:
        out.refused[member.name] = "too large for an executable"
        return
    content = tar.extractfile(member)
    data = content.read() if content is not None else b""
    try:
        key, fingerprint, sections = torch_neuronx._extension().neff.deserialize(data)
        made_for = fingerprint.decode()
    except ValueError as error:
        out.refused[member.name] = str(error)
        return
    if member.name != f"{key}.neff":
        out.refused[member.name] = f"its key is {key}"
        return
    present = entries.read(directory / key[:2] / key[2:4] / member.name)
    if present is not None and not present.problem:
        out.present.append(key)
        return
    cache.store(key, made_for, sections)
    if cache.load(key, made_for) is None:
        out.refused[member.name] = "it cannot be stored (see the warning above)"
        return
    out.imported.append(key)
    out.made_for.append(made_for)
