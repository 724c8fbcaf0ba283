"""The cache of executables as an attacker, a crash and a crowd of processes would treat it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch  # noqa: F401 (it loads the extension)
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx import _C

KEY = "00112233445566778899aabbccddeeff"
OTHER_KEY = "00112233445566778899aabbccddee00"
SECTIONS = {"code": bytes(range(256)), "ir": b"text", "empty": b""}
FINGERPRINT = "compiler 1 avx2"

is_root = os.geteuid() == 0


def file_of(directory: Path, key: str = KEY) -> Path:
    return directory / key[:2] / key[2:4] / f"{key}.neff"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path):
    return _C.neff.Cache(str(directory))


def stored(cache) -> None:
    cache.store(KEY, FINGERPRINT, SECTIONS)


# --- the format


@pytest.mark.parametrize(
    ("message", "digest"),
    [
        # FIPS 180-4 examples (NIST CSRC, "Examples with intermediate values")
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ],
)
def test_sha256_vectors(message: bytes, digest: str):
    assert _C.neff.sha256(message).hex() == digest


@pytest.mark.parametrize("size", [*range(50, 70), *range(114, 132)])
def test_sha256_padding(size: int):
    assert _C.neff.sha256(b"x" * size) == hashlib.sha256(b"x" * size).digest()


@given(
    st.text(max_size=9), st.dictionaries(st.text(max_size=5), st.binary(max_size=50), max_size=4)
)
def test_serialize_round_trips(fingerprint: str, sections: dict[str, bytes]):
    data = _C.neff.serialize(KEY, fingerprint, sections)
    assert _C.neff.deserialize(data) == (KEY, fingerprint.encode(), sections)


def test_every_flipped_byte_is_rejected():
    data = _C.neff.serialize(KEY, FINGERPRINT, SECTIONS)
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(ValueError, match="NEFF"):
                _C.neff.deserialize(bytes(damaged))


def test_every_length_is_rejected():
    data = _C.neff.serialize(KEY, FINGERPRINT, SECTIONS)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="NEFF"):
            _C.neff.deserialize(data[:length])
    with pytest.raises(ValueError, match="wrong length"):
        _C.neff.deserialize(data + b"\0")


def sealed(payload: bytes) -> bytes:
    """A file whose checksum is right, whatever it holds."""
    head = b"NEURONXH" + (2).to_bytes(8, "little") + len(payload).to_bytes(8, "little") + payload
    return head + hashlib.sha256(head).digest()


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(sealed)))
def test_any_bytes_are_read_or_refused(data: bytes):
    with contextlib.suppress(ValueError):
        _C.neff.deserialize(data)


@settings(deadline=None)
@given(st.data())
def test_wrong_lengths_under_a_right_checksum(data):
    payload = bytearray(_C.neff.serialize(KEY, FINGERPRINT, SECTIONS)[24:-32])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(payload) - 8))
        number = data.draw(
            st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1, 2**64 - 24, len(payload)])
        )
        payload[position : position + 8] = number.to_bytes(8, "little")
    with contextlib.suppress(ValueError):
        _C.neff.deserialize(sealed(bytes(payload)))


# --- files


def test_store_and_load(cache, directory: Path):
    assert cache.enabled
    assert cache.load(KEY, FINGERPRINT) is None
    stored(cache)
    assert cache.load(KEY, FINGERPRINT) == SECTIONS
    assert _C.neff.Cache(str(directory)).load(KEY, FINGERPRINT) == SECTIONS
    assert cache.load(OTHER_KEY, FINGERPRINT) is None


def test_everything_is_private(directory: Path):
    previous = os.umask(0)
    try:
        cache = _C.neff.Cache(str(directory / "below"))
        stored(cache)
        with cache.lock(KEY):
            for path in directory.rglob("*"):
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), (
                    path
                )
    finally:
        os.umask(previous)


def rejected(cache) -> bool:
    """Whether loading counts a rejection and removes the file."""
    before = _C.neff.rejected()
    assert cache.load(KEY, FINGERPRINT) is None
    return _C.neff.rejected() == before + 1


def test_damage_is_counted_and_removed(cache, directory: Path):
    stored(cache)
    path = file_of(directory)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert rejected(cache)
    assert not path.exists()
    stored(cache)
    assert cache.load(KEY, FINGERPRINT) == SECTIONS


def test_empty_file(cache, directory: Path):
    stored(cache)
    file_of(directory).write_bytes(b"")
    assert rejected(cache)


def test_huge_file(cache, directory: Path):
    stored(cache)
    os.truncate(file_of(directory), 1 << 40)
    assert rejected(cache)


def test_another_fingerprint(cache, directory: Path):
    cache.store(KEY, "compiler 2", SECTIONS)
    assert rejected(cache)
    assert not file_of(directory).exists()


def test_another_key(cache, directory: Path):
    """A file of ours under another name: right checksum, wrong code."""
    stored(cache)
    os.link(file_of(directory), file_of(directory, OTHER_KEY))
    before = _C.neff.rejected()
    assert cache.load(OTHER_KEY, FINGERPRINT) is None
    assert _C.neff.rejected() == before + 1
    assert cache.load(KEY, FINGERPRINT) == SECTIONS


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_writable_by_others(cache, directory: Path, mode: int):
    stored(cache)
    file_of(directory).chmod(mode)
    assert rejected(cache)


@pytest.mark.skipif(not is_root, reason="only root may give a file away")
def test_file_of_another_user(cache, directory: Path):
    stored(cache)
    os.chown(file_of(directory), 12345, 12345)
    assert rejected(cache)


def test_symbolic_link_in_place_of_a_file(cache, directory: Path, tmp_path: Path):
    stored(cache)
    target = tmp_path / "elsewhere.neff"
    file_of(directory).rename(target)
    file_of(directory).symlink_to(target)
    assert rejected(cache)
    assert target.exists()


@pytest.mark.parametrize("level", [1, 2])
def test_symbolic_link_in_place_of_a_level(cache, directory: Path, tmp_path: Path, level: int):
    stored(cache)
    path = file_of(directory).parents[2 - level]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.load(KEY, FINGERPRINT) is None


def test_level_writable_by_others(cache, directory: Path):
    stored(cache)
    file_of(directory).parent.chmod(0o777)
    assert cache.load(KEY, FINGERPRINT) is None


def test_pipe_in_place_of_a_file(cache, directory: Path):
    """Opening a pipe must not wait for somebody to write into it."""
    stored(cache)
    file_of(directory).unlink()
    os.mkfifo(file_of(directory), 0o600)
    assert rejected(cache)


def test_left_over_temporaries_are_ignored(cache, directory: Path):
    stored(cache)
    for i in range(3):
        (file_of(directory).parent / f"{KEY}.{os.getpid()}.{i}.tmp").write_bytes(b"half")
    stored(cache)
    assert cache.load(KEY, FINGERPRINT) == SECTIONS


def test_nothing_temporary_stays(cache, directory: Path):
    for _ in range(5):
        stored(cache)
    with cache.lock(KEY):
        pass
    names = [path.name for path in directory.rglob("*") if path.is_file()]
    assert names == [f"{KEY}.neff"]


@pytest.mark.parametrize(
    "key", ["", "0" * 31, "0" * 33, "g" * 32, "../../../../../../../etc/passwd0"]
)
def test_keys_are_hexadecimal(cache, key: str):
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        cache.load(key, FINGERPRINT)


# --- directories


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`code` in a process without the device, so that warnings go to stderr."""
    prelude = "import sys, torch\nfrom torch_neuronx import _C\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code, *args], capture_output=True, text=True, timeout=60
    )


def refused(capfd, directory: Path | str, why: str) -> None:
    with pytest.warns(Warning) if warns_in_python() else contextlib.nullcontext() as caught:
        cache = _C.neff.Cache(str(directory))
    text = str(caught[0].message) if caught else capfd.readouterr().err
    assert f"executables are not cached in {str(directory).rstrip('/')}: {why}" in text
    assert "TORCH_NEURONX_NEFF_CACHE_DIR" in text
    assert not cache.enabled
    stored(cache)
    assert cache.load(KEY, FINGERPRINT) is None
    assert not cache.lock(KEY).held


def warns_in_python() -> bool:
    return hasattr(_C, "device")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_directory_writable_by_others(capfd, directory: Path, mode: int):
    directory.mkdir()
    directory.chmod(mode)
    refused(capfd, directory, "other users may write to it (chmod go-w it)")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_directory_readable_by_others(directory: Path, mode: int):
    directory.mkdir()
    directory.chmod(mode)
    assert _C.neff.Cache(str(directory)).enabled


@pytest.mark.skipif(not is_root, reason="only root may give a directory away")
def test_directory_of_another_user(capfd, directory: Path):
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    refused(capfd, directory, "it belongs to another user")


@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_directory_is_a_symbolic_link(capfd, directory: Path, tmp_path: Path, slash: str):
    (tmp_path / "target").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "target")
    refused(capfd, f"{directory}{slash}", "it is a symbolic link")


def test_directory_is_a_file(capfd, directory: Path):
    directory.write_text("")
    refused(capfd, directory, "it cannot be opened as a directory (Not a directory)")


def test_directory_exchanged_after_the_check(cache, directory: Path, tmp_path: Path):
    """The directory that was checked is used, not what now has its name."""
    stored(cache)
    directory.rename(tmp_path / "moved")
    directory.mkdir(mode=0o777)
    assert cache.load(KEY, FINGERPRINT) == SECTIONS
    cache.store(OTHER_KEY, FINGERPRINT, SECTIONS)
    assert file_of(tmp_path / "moved", OTHER_KEY).exists()
    assert not list(directory.iterdir())


READ_ONLY = """
import ctypes, os
if os.geteuid() == 0:  # without capabilities root obeys the modes of files as everybody
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
import warnings
warnings.simplefilter("always")
cache = _C.neff.Cache(sys.argv[1])
print(cache.load(sys.argv[2], sys.argv[4]))
for key in sys.argv[2:4]:
    print(cache.lock(key).held)
    cache.store(key, sys.argv[4], {"code": b"x"})
print(cache.load(sys.argv[3], sys.argv[4]))
"""


def test_read_only_directory_warns_once_and_works(directory: Path):
    cache = _C.neff.Cache(str(directory))
    cache.store(KEY, FINGERPRINT, {"code": b"old"})
    levels = [directory, *(p for p in directory.rglob("*") if p.is_dir())]
    for path in levels:
        path.chmod(0o500)
    try:
        done = run(READ_ONLY, str(directory), KEY, OTHER_KEY, FINGERPRINT)
    finally:
        for path in levels:
            path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["{'code': b'old'}", "False", "False", "None"]
    assert done.stderr.count("Permission denied; executables are compiled again") == 1


# --- several threads and processes


def test_threads_store_and_load_one_key(cache):
    wrong: list[object] = []
    contents = [{"code": bytes([i]) * 5000} for i in range(4)]

    def work(i: int) -> None:
        for _ in range(25):
            cache.store(KEY, FINGERPRINT, contents[i])
            found = cache.load(KEY, FINGERPRINT)
            if found not in contents:
                wrong.append(found)

    before = _C.neff.rejected()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert _C.neff.rejected() == before


def fork(work) -> int:
    """The process that runs `work`; its exit status is 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_processes_store_and_load_one_key(directory: Path):
    def work() -> None:
        cache = _C.neff.Cache(str(directory))
        mine = {"code": bytes([os.getpid() % 251]) * 5000}
        for _ in range(25):
            cache.store(KEY, FINGERPRINT, mine)
            found = cache.load(KEY, FINGERPRINT)
            assert found is not None and len(set(found["code"])) == 1 and len(found["code"]) == 5000
        assert _C.neff.rejected() == started

    started = _C.neff.rejected()
    assert [exit_status(pid) for pid in [fork(work) for _ in range(4)]] == [0] * 4
    assert len([path for path in directory.rglob("*") if path.is_file()]) == 1


def test_lock_excludes_processes(directory: Path, tmp_path: Path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def work() -> None:
        cache = _C.neff.Cache(str(directory))
        for _ in range(50):
            with cache.lock(KEY) as lock:
                assert lock.held
                counter.write_text(str(int(counter.read_text()) + 1))

    assert [exit_status(pid) for pid in [fork(work) for _ in range(4)]] == [0] * 4
    assert counter.read_text() == "200"


def test_lock_excludes_threads_but_not_other_keys(cache):
    order: list[str] = []

    def other() -> None:
        with cache.lock(OTHER_KEY):
            order.append("other key")
        with cache.lock(KEY):
            order.append("same key")

    with cache.lock(KEY):
        thread = threading.Thread(target=other)
        thread.start()
        deadline = time.monotonic() + 10
        while not order and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        order.append("released")
    thread.join()
    assert order == ["other key", "released", "same key"]


def test_a_killed_holder_frees_its_lock(cache, directory: Path):
    ready, tell = os.pipe()

    def hold() -> None:
        lock = _C.neff.Cache(str(directory)).lock(KEY)
        assert lock.held
        os.write(tell, b"x")
        time.sleep(60)

    pid = fork(hold)
    assert os.read(ready, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    assert exit_status(pid) == -signal.SIGKILL
    start = time.monotonic()
    with cache.lock(KEY) as lock:
        assert lock.held
    assert time.monotonic() - start < 5


def test_a_forked_child_does_not_keep_a_lock(cache, directory: Path):
    lock = cache.lock(KEY)
    pid = fork(lambda: time.sleep(5))
    try:
        lock.release()
        start = time.monotonic()
        with _C.neff.Cache(str(directory)).lock(KEY):
            assert time.monotonic() - start < 3
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
