"""torch-neuronx cache: what people see and scripts read, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch  # noqa: F401 (it loads the extension)

from tests.cli.conftest import Run, on_terminal
from torch_neuronx import _C

HERE = _C.compiler.fingerprint()
OTHER_CPU = HERE.split(" ")[0] + " another"
OTHER_COMPILER = "codegen-0 " + HERE.split(" ")[1]


def key_of(number: int) -> str:
    return f"{number:02x}" * 16


def put(
    directory: Path, number: int, made_for: str = HERE, size: int = 100, age: float = 0
) -> Path:
    """Stores an executable that was last used `age` seconds ago."""
    key = key_of(number)
    cache = _C.neff.Cache(str(directory))
    ir = f"kernel number_{number}\n%0 nothing\n".encode()
    cache.store(key, made_for, {"kind": b"kernel", "ir": ir, "code": b"\xcc" * size})
    path = directory / key[:2] / key[2:4] / f"{key}.neff"
    then = time.time() - age
    os.utime(path, (then, then))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_ls_of_nothing_makes_nothing(command: Run, directory: Path):
    out = command("cache", "ls", "--dir", directory).stdout
    assert out == f"{directory}: 0 executables, 0 B of at most 4.0 GiB\n"
    assert not directory.exists()


def test_ls(command: Run, directory: Path):
    put(directory, 1, size=5000, age=7200)
    put(directory, 2, OTHER_CPU)
    put(directory, 3, OTHER_COMPILER)
    put(directory, 4).write_bytes(b"half")
    os.utime(directory / "01" / "01" / f"{key_of(1)}.neff", (time.time() - 7200,) * 2)
    out = command("cache", "ls", TORCH_NEURONX_NEFF_CACHE_DIR=str(directory)).stdout.splitlines()
    assert out[0].split() == ["KEY", "NAME", "KIND", "SIZE", "AGE", "UNUSED", "FOR", "STATE"]
    (line,) = [line for line in out if line.startswith(key_of(1)[:12])]
    assert line.split()[1:] == ["number_1", "kernel", "5.1", "KiB", "2", "h", "2", "h", "usable"]
    states = {line.split("  ")[-1] for line in out[1:5]}
    assert states == {"usable", "other CPU", "other compiler", "damaged"}
    assert out[-1].startswith(f"{directory}: 4 executables, ")
    assert out[-1].endswith("3 of them not usable here")


def test_ls_json_and_order(command: Run, directory: Path):
    for number, size, age in ((1, 300, 10), (2, 100, 30), (3, 200, 20)):
        put(directory, number, size=size, age=age)

    def order(sort: str) -> list[str]:
        out = command("cache", "ls", "--json", "--sort", sort, "--dir", directory).stdout
        return [entry["name"][-1] for entry in json.loads(out)["entries"]]

    assert order("used") == ["1", "3", "2"]
    assert order("size") == ["1", "3", "2"]
    assert order("name") == ["1", "2", "3"]
    (first, *_) = json.loads(command("cache", "ls", "--json", "--dir", directory).stdout)["entries"]
    assert first["state"] == "usable" and first["fingerprint"] == HERE
    assert first["size"] == Path(first["path"]).stat().st_size


def test_looking_is_not_using(command: Run, directory: Path):
    path = put(directory, 1, age=10_000)
    before = path.stat().st_atime_ns
    for action in (["ls"], ["verify"], ["show", key_of(1)]):
        command("cache", *action, "--dir", directory)
    assert path.stat().st_atime_ns == before


def test_show(command: Run, directory: Path):
    put(directory, 1)
    put(directory, 0x10)
    out = command("cache", "show", "01", "--dir", directory).stdout
    assert key_of(1) in out and "number_1" in out and HERE in out and "%0 nothing" in out
    code = command("cache", "show", "01", "--section", "ir", "--dir", directory).stdout
    assert code == "kernel number_1\n%0 nothing\n"
    shown = json.loads(command("cache", "show", "01", "--json", "--dir", directory).stdout)
    assert shown["sections"] == {"kind": 6, "ir": 27, "code": 100}
    error = command("cache", "show", "ff", "--dir", directory, code=1).stderr
    assert "no executable" in error and "'ff'" in error
    put(directory, 0x11)
    error = command("cache", "show", "1", "--dir", directory, code=1).stderr
    assert "2 keys begin with '1': give more digits" in error
    error = command("cache", "show", "01", "--section", "x", "--dir", directory, code=1).stderr
    assert "no section 'x' (there are: kind, ir, code)" in error


def test_verify(command: Run, directory: Path):
    whole, damaged = put(directory, 1), put(directory, 2)
    assert "2 files checked, all whole" in command("cache", "verify", "--dir", directory).stdout
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    foreign = put(directory, 3)
    foreign.chmod(0o666)
    out = command("cache", "verify", "--dir", directory, code=1).stdout
    assert f"{damaged}: damaged NEFF: wrong checksum" in out
    assert f"{foreign}: other users may write to it" in out
    assert "3 files checked, 2 damaged" in out
    found = json.loads(command("cache", "verify", "--json", "--dir", directory, code=1).stdout)
    assert found["checked"] == 3 and len(found["damaged"]) == 2
    assert damaged.exists()
    command("cache", "verify", "--remove", "--dir", directory)
    assert whole.exists() and not damaged.exists() and not foreign.exists()


def test_prune_by_size_removes_the_least_recently_used(command: Run, directory: Path):
    paths = [put(directory, n, size=1000, age=1000 - n) for n in range(10)]
    size = paths[0].stat().st_size
    dry = command("cache", "prune", "--max-size", 5 * size, "--dry-run", "--dir", directory)
    assert dry.stdout.startswith("would remove 6 of 10 executables")  # four are within 90 %
    assert all(path.exists() for path in paths)
    out = command("cache", "prune", "--max-size", 5 * size, "--json", "--dir", directory).stdout
    assert sorted(json.loads(out)["removed"]) == [key_of(n) for n in range(6)]
    assert [path.exists() for path in paths] == [False] * 6 + [True] * 4


def test_prune_by_age_and_state(command: Run, directory: Path):
    old, foreign, new = (
        put(directory, 1, age=3 * 86400),
        put(directory, 2, OTHER_CPU),
        put(directory, 3),
    )
    command("cache", "prune", "--unused-for", "2d", "--dir", directory)
    assert not old.exists() and foreign.exists()
    command("cache", "prune", "--unusable", "--dir", directory)
    assert not foreign.exists() and new.exists()


def test_prune_takes_the_limit_of_the_environment(command: Run, directory: Path):
    for number in range(4):
        put(directory, number, size=400_000, age=10 - number)
    limit = {"TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB": "1"}
    command("cache", "prune", "--dir", directory, **limit)
    assert len(list(directory.rglob("*.neff"))) == 2
    limit = {"TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB": "much"}
    error = command("cache", "prune", "--dir", directory, code=1, **limit).stderr
    assert "TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB='much': expected an integer" in error


def test_prune_removes_what_died_processes_left(command: Run, directory: Path):
    path = put(directory, 1)
    left = path.with_name(f"{key_of(1)}.123.1.1.tmp")
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 3600,) * 2)
    out = command("cache", "prune", "--dir", directory).stdout
    assert "removed 1 files that processes which died had left behind" in out
    assert path.exists() and not left.exists()


@pytest.mark.parametrize("arguments", [["--max-size", "much"], ["--unused-for", "5"]])
def test_wrong_usage(command: Run, directory: Path, arguments: list[str]):
    error = command("cache", "prune", *arguments, "--dir", directory, code=2).stderr
    assert "usage: torch-neuronx cache prune" in error


def test_clear_asks_or_is_told(command: Run, directory: Path):
    path = put(directory, 1)
    (directory / "notes.txt").write_text("mine")
    error = command("cache", "clear", "--dir", directory, code=1).stderr
    assert "say --yes" in error and path.exists()
    assert "removed 1 executables" in command("cache", "clear", "--yes", "--dir", directory).stdout
    assert not path.exists()
    assert (directory / "notes.txt").exists(), "not a file of the cache"


def test_export_and_import(command: Run, directory: Path, tmp_path: Path):
    for number, made_for in ((1, HERE), (2, HERE), (3, OTHER_CPU)):
        put(directory, number, made_for)
    put(directory, 4).write_bytes(b"half")
    file, other = tmp_path / "neffs.tar", tmp_path / "other"
    out = command("cache", "export", file, "--dir", directory, code=1).stdout
    assert f"3 executables written to {file}" in out and f"left out {key_of(4)}.neff" in out
    out = command("cache", "import", file, "--dir", other).stdout
    assert "3 executables imported, 0 were there" in out
    assert "1 of them are for another version of the compiler or another CPU" in out
    sections = _C.neff.Cache(str(directory)).load(key_of(1), HERE)
    assert _C.neff.Cache(str(other)).load(key_of(1), HERE) == sections
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in other.rglob("*.neff"))
    out = command("cache", "import", file, "--dir", other, "--json").stdout
    assert json.loads(out) == {
        "file": str(file),
        "imported": [],
        "present": [key_of(n) for n in (1, 2, 3)],
        "refused": {},
    }
    command("cache", "export", file, "02", "--dir", directory)
    with tarfile.open(file) as tar:
        assert tar.getnames() == [f"{key_of(2)}.neff"]


def test_import_of_a_hostile_file(command: Run, directory: Path, tmp_path: Path):
    good = _C.neff.serialize(key_of(1), HERE, {"code": b"1"})
    file = tmp_path / "hostile.tar"
    outside = tmp_path / "outside.neff"

    def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for field, value in fields.items():
            setattr(info, field, value)
        return info, data

    members = [
        member(f"{key_of(1)}.neff", good),
        member("../outside.neff", good),
        member(str(outside), good),
        member(f"{key_of(2)}.neff", good),
        member(f"{key_of(3)}.neff", b"\x7fELF"),
        member(f"{key_of(4)}.neff", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member(f"{key_of(5)}.neff", type=tarfile.LNKTYPE, linkname=f"{key_of(1)}.neff"),
        member("locks", type=tarfile.DIRTYPE, mode=0o777),
    ]
    with tarfile.open(file, "w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    out = command("cache", "import", file, "--dir", directory, "--json", code=1).stdout
    result = json.loads(out)
    assert result["imported"] == [key_of(1)]
    assert len(result["refused"]) == 7
    assert [path.name for path in directory.rglob("*.neff")] == [f"{key_of(1)}.neff"]
    assert not outside.exists()


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8b broken gzip"])
def test_import_of_no_tar_file(command: Run, directory: Path, tmp_path: Path, data: bytes):
    file = tmp_path / "file"
    file.write_bytes(data)
    error = command("cache", "import", file, "--dir", directory, code=1).stderr
    assert f"error: {file}: not a readable tar file" in error


def test_an_import_of_a_truncated_tar_keeps_what_is_whole(
    command: Run, directory: Path, tmp_path: Path
):
    for number in range(3):
        put(directory, number, size=5000)
    file = tmp_path / "neffs.tar"
    command("cache", "export", file, "--dir", directory)
    os.truncate(file, 8000)
    command("cache", "import", file, "--dir", tmp_path / "other", code=1)
    assert len(list((tmp_path / "other").rglob("*.neff"))) == 1


def test_unsafe_directory_is_named(command: Run, directory: Path):
    put(directory, 1)
    directory.chmod(0o777)
    for action in (["ls"], ["verify"], ["prune"], ["clear", "--yes"], ["export", "x.tar"]):
        error = command("cache", *action, "--dir", directory, code=1).stderr
        assert "are not used: other users may write to it (chmod go-w it)" in error


def test_colours_on_a_terminal_only(directory: Path):
    put(directory, 1)
    assert "\033[32musable\033[0m" in on_terminal("cache", "ls", "--dir", directory)
    assert "\033" not in on_terminal("cache", "ls", "--dir", directory, NO_COLOR="1")


def test_output_into_a_closed_pipe(directory: Path):
    for number in range(200):
        put(directory, number)
    ls = f"{sys.executable} -m torch_neuronx cache ls --dir {directory}"
    code = f"{ls} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[1] == "0"
    assert done.stderr == ""
