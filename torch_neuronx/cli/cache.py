"""``torch-neuronx cache``: what the on-disk cache of executables holds, and what to do with it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch_neuronx
from torch_neuronx.cli import archive, entries, terminal
from torch_neuronx.cli.entries import Entry

_SORTS = {
    "used": lambda e: -e.used,
    "age": lambda e: -e.created,
    "size": lambda e: -e.size,
    "name": lambda e: (e.name, e.key),
}
_STATE_COLOURS = {"usable": "green", "damaged": "red"}
_DESCRIPTION = """\
The on-disk cache of executables: machine code of kernels, by the text they were made from. A file
is executed only if it belongs to you, nobody else may write to it or to its directory, its
checksum is right, and it was made by this version of the compiler for this CPU.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cache",
        help="list, check, shrink, export or import the cache of executables",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="the cache's directory (default: TORCH_NEURONX_NEFF_CACHE_DIR)",
    )
    common.add_argument("--json", action="store_true", help="print JSON")

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[common], help=text, description=text)
        action.set_defaults(run=run)
        return action

    ls = add("ls", _ls, "list the executables: what they are, their sizes and ages")
    ls.add_argument("--sort", choices=list(_SORTS), default="used", help="default: %(default)s")
    show = add("show", _show, "show one executable")
    show.add_argument("key", help="its key, or the first digits of it")
    show.add_argument("--section", metavar="NAME", help="print this section as it is (such as ir)")
    verify = add("verify", _verify, "check every file; exit code 1 if one is damaged")
    verify.add_argument("--remove", action="store_true", help="remove damaged files (then: 0)")
    prune = add(
        "prune",
        _prune,
        "remove what processes that died left behind, and executables by the given conditions; "
        "without conditions, those above TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB",
    )
    prune.add_argument(
        "--max-size",
        type=terminal.parse_size,
        metavar="SIZE",
        help="if there is more (500M, 4G), the least recently used until nine tenths are left",
    )
    prune.add_argument(
        "--unused-for", type=terminal.parse_duration, metavar="TIME", help="such as 12h or 30d"
    )
    prune.add_argument(
        "--unusable",
        action="store_true",
        help="damaged ones, and those of another version of the compiler or another CPU",
    )
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    clear = add("clear", _clear, "remove every executable")
    clear.add_argument("--yes", action="store_true", help="do not ask")
    export = add("export", _export, "write executables into a tar file, for `import` elsewhere")
    export.add_argument("file", type=Path)
    export.add_argument("keys", nargs="*", help="keys, or first digits of them (default: all)")
    imports = add(
        "import",
        _import,
        "take executables from a tar file. They are machine code that will run as you: import "
        "only what you or people you trust have exported. Checksums find damage, not malice",
    )
    imports.add_argument("file", type=Path)


def _directory(arguments: argparse.Namespace) -> Path:
    """The directory, which may be absent; RuntimeError if it is not to be trusted."""
    directory = arguments.dir or entries.default_directory()
    why = entries.why_unsafe(directory)
    if why:
        raise RuntimeError(f"executables in {directory} are not used: {why}")
    return directory


def _open(directory: Path) -> Any:
    """The cache that the device uses, made if it is absent; RuntimeError if that cannot be."""
    cache = torch_neuronx._extension().neff.Cache(str(directory), entries.max_bytes())
    if not cache.enabled:
        raise RuntimeError(f"{directory} cannot be used as a cache")
    return cache


def _find(directory: Path, key: str) -> list[Path]:
    """The file whose key begins so; RuntimeError unless there is exactly one."""
    found = [path for path in entries.paths(directory) if path.stem.startswith(key.lower())]
    if not found:
        raise RuntimeError(f"no executable in {directory} has a key that begins with '{key}'")
    if len(found) > 1:
        raise RuntimeError(f"{len(found)} keys begin with '{key}': give more digits")
    return found


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2)
    print()


def _summary(found: list[Entry]) -> str:
    total = terminal.size(sum(entry.size for entry in found))
    limit = entries.max_bytes()
    text = f"{len(found)} executables, {total}"
    text += f" of at most {terminal.size(limit)}" if limit >= 0 else ", no limit"
    unusable = sum(not entry.usable for entry in found)
    return text + (f"; {unusable} of them not usable here" if unusable else "")


def _ls(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    found = sorted(entries.load_all(directory), key=_SORTS[arguments.sort])
    if arguments.json:
        _print_json({"directory": str(directory), "entries": [entries.as_json(e) for e in found]})
        return 0
    if found:
        now = entries.now()
        rows = [
            [
                e.key[:12],
                e.name or "?",
                e.kind or "?",
                terminal.size(e.size),
                terminal.age(now - e.created),
                terminal.age(now - e.used),
                terminal.paint(e.state, _STATE_COLOURS.get(e.state, "yellow")),
            ]
            for e in found
        ]
        header = ["KEY", "NAME", "KIND", "SIZE", "AGE", "UNUSED FOR", "STATE"]
        print(terminal.table(header, rows, right=(3, 4, 5)))
    print(f"{directory}: {_summary(found)}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    (path,) = _find(_directory(arguments), arguments.key)
    entry = entries.read(path, keep_sections=True)
    if entry is None:
        raise RuntimeError(f"{path} has just been removed")
    sections = entry.sections or {}
    if arguments.section is not None:
        if arguments.section not in sections:
            known = ", ".join(sections) or f"none, {entry.problem}"
            raise RuntimeError(f"no section '{arguments.section}' (there are: {known})")
        sys.stdout.buffer.write(sections[arguments.section])
        return 0
    sizes = {name: len(data) for name, data in sections.items()}
    if arguments.json:
        _print_json({**entries.as_json(entry), "sections": sizes})
        return 0
    now = entries.now()
    lines = {
        "key": entry.key,
        "name": entry.name,
        "kind": entry.kind,
        "state": entry.state + (f": {entry.problem}" if entry.problem else ""),
        "made by, for": entry.fingerprint,
        "this process": entries.own_fingerprint(),
        "file": str(entry.path),
        "size": terminal.size(entry.size),
        "made": f"{terminal.age(now - entry.created)} ago",
        "last used": f"{terminal.age(now - entry.used)} ago",
        "sections": ", ".join(f"{name} ({count} B)" for name, count in sizes.items()),
    }
    for name, value in lines.items():
        print(f"{terminal.paint(f'{name:13}', 'bold')} {value}")
    if "ir" in sections:
        print(f"\n{sections['ir'].decode(errors='replace').rstrip()}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    found = entries.load_all(directory)
    damaged = [entry for entry in found if entry.problem]
    if arguments.remove:
        for entry in damaged:
            entry.path.unlink(missing_ok=True)
    if arguments.json:
        _print_json(
            {
                "directory": str(directory),
                "checked": len(found),
                "damaged": [entries.as_json(entry) for entry in damaged],
                "removed": arguments.remove,
            }
        )
    else:
        for entry in damaged:
            print(f"{terminal.paint('damaged', 'red')} {entry.path}: {entry.problem}")
        verdict = f"{len(damaged)} damaged" if damaged else terminal.paint("all whole", "green")
        removed = ", removed" if damaged and arguments.remove else ""
        print(f"{len(found)} files checked, {verdict}{removed}")
        if damaged and not arguments.remove:
            print("They are never executed. Remove them: torch-neuronx cache verify --remove")
    return 1 if damaged and not arguments.remove else 0


def _prune(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    found = entries.load_all(directory)
    now = entries.now()
    gone = [
        entry
        for entry in found
        if (arguments.unusable and not entry.usable)
        or (arguments.unused_for is not None and now - entry.used > arguments.unused_for)
    ]
    limit = arguments.max_size
    if limit is None and not arguments.unusable and arguments.unused_for is None:
        limit = entries.max_bytes()
    if arguments.dry_run:
        left = [entry for entry in found if entry not in gone]
        gone += _least_recently_used(left, limit)
        stale = 0
    else:
        for entry in gone:
            entry.path.unlink(missing_ok=True)
        stale, removed = _trim(directory, -1 if limit is None else limit, found, gone)
        gone += removed
    freed = sum(entry.size for entry in gone)
    if arguments.json:
        _print_json(
            {
                "directory": str(directory),
                "removed": [entry.key for entry in gone],
                "bytes": freed,
                "stale_files": stale,
                "dry_run": arguments.dry_run,
            }
        )
        return 0
    verb = "would remove" if arguments.dry_run else "removed"
    print(f"{verb} {len(gone)} of {len(found)} executables, {terminal.size(freed)}")
    if stale:
        print(f"removed {stale} files that processes which died had left behind")
    return 0


def _least_recently_used(found: list[Entry], limit: int | None) -> list[Entry]:
    """What Cache::Trim would remove (csrc/neff/trim.cc)."""
    total = sum(entry.size for entry in found)
    if limit is None or limit < 0 or total <= limit:
        return []
    gone = []
    now = entries.now()
    for entry in sorted(found, key=lambda e: 0.0 if e.used > now else e.used):
        if total <= limit - limit // 10:
            break
        total -= entry.size
        gone.append(entry)
    return gone


def _trim(
    directory: Path, limit: int, found: list[Entry], gone: list[Entry]
) -> tuple[int, list[Entry]]:
    """(number of stale files removed, executables removed)."""
    if not directory.exists():
        return 0, []
    stale = _open(directory).trim(limit)["stale_files"]
    return stale, [e for e in found if e not in gone and not e.path.exists()]


def _clear(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    found = list(entries.paths(directory))
    if not arguments.yes:
        question = f"Remove {len(found)} executables from {directory}? [y/N] "
        if not sys.stdin.isatty():
            raise RuntimeError("not asked, as this is no terminal: say --yes")
        if input(question).strip().lower() not in ("y", "yes"):
            print("nothing removed")
            return 1
    freed = 0
    for path in found:
        try:
            freed += path.lstat().st_size
            path.unlink()
        except FileNotFoundError:  # another process was quicker
            continue
    if directory.exists():
        _open(directory).trim(-1)
    if arguments.json:
        _print_json({"directory": str(directory), "removed": len(found), "bytes": freed})
    else:
        print(f"removed {len(found)} executables, {terminal.size(freed)}")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    if arguments.keys:
        chosen = [path for key in arguments.keys for path in _find(directory, key)]
    else:
        chosen = list(entries.paths(directory))
    written, refused = archive.export(chosen, arguments.file)
    if arguments.json:
        _print_json({"file": str(arguments.file), "exported": written, "damaged": refused})
    else:
        print(f"{len(written)} executables written to {arguments.file}")
        for name, why in refused.items():
            print(f"{terminal.paint('left out', 'red')} {name}: {why}")
    return 1 if refused else 0


def _import(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    result = archive.take(arguments.file, directory, _open(directory))
    if arguments.json:
        _print_json(
            {
                "file": str(arguments.file),
                "imported": result.imported,
                "present": result.present,
                "refused": result.refused,
            }
        )
    else:
        foreign = sum(fingerprint != entries.own_fingerprint() for fingerprint in result.made_for)
        print(f"{len(result.imported)} executables imported, {len(result.present)} were there")
        if foreign:
            print(f"{foreign} of them are for another version of the compiler or another CPU")
        for name, why in result.refused.items():
            print(f"{terminal.paint('refused', 'red')} {name}: {why}")
    return 1 if result.refused else 0
