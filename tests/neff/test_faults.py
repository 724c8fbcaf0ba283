"""Every system call of the cache fails or is a process's last; full disks; wrong clocks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_killed_at_every_step_of_a_write(run_with_faults: Run):
    """Afterwards a file is whole or absent, and the next process goes on as if nothing was."""
    out = run_with_faults("""
        import shutil
        def work():
            cache = _C.neff.Cache(str(directory))
            assert cache.load(KEY, MADE_FOR) is None
            with cache.lock(KEY):
                assert cache.load(KEY, MADE_FOR) is None
                cache.store(KEY, MADE_FOR, SECTIONS)

        steps = calls_of(work)
        whole = halves = locks = 0
        for action in (KILL_BEFORE, KILL_AFTER):
            for at in range(steps):
                shutil.rmtree(directory)
                assert wait(fork(lambda: with_fault(at, action, 0, work))) == -signal.SIGKILL
                rejected = counts()["disk_rejected"]
                cache = _C.neff.Cache(str(directory))
                found = cache.load(KEY, MADE_FOR)
                assert found in (None, SECTIONS)
                whole += found is not None
                left = list(directory.rglob("*.tmp"))
                halves += len(left)
                locks += len(list(directory.rglob("*.lock")))
                # The next process is not held up, stores, and in time removes what was left.
                with cache.lock(KEY) as lock:
                    assert lock.held
                    cache.store(KEY, MADE_FOR, SECTIONS)
                assert cache.load(KEY, MADE_FOR) == SECTIONS
                assert counts()["disk_rejected"] == rejected
                for path in left:
                    os.utime(path, (time.time() - 1000,) * 2)
                cache.trim(-1)
                files = [p.name for p in directory.rglob("*") if p.is_file()]
                assert files == [file_of().name], files
        print(steps, whole, halves, locks)
    """)
    steps, whole, halves, locks = map(int, out.split())
    assert steps > 15
    # Each kind of remainder was really seen.
    assert 0 < whole < steps and halves > 3 and locks > 3


def test_every_call_of_a_write_fails(run_with_faults: Run):
    """Whatever the system says, nothing half-written stays, and nothing is raised."""
    out = run_with_faults("""
        import shutil, warnings
        warnings.simplefilter("ignore")
        errors = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EINTR]
        cache = _C.neff.Cache(str(directory))
        def work():
            cache.store(KEY, MADE_FOR, SECTIONS)
        steps = calls_of(work)
        failures = 0
        for at in range(steps):
            for error in errors:
                shutil.rmtree(directory / "00", ignore_errors=True)
                before = counts()
                with_fault(at, FAIL, error, work)
                after = counts()
                found = cache.load(KEY, MADE_FOR)
                written = after["disk_writes"] - before["disk_writes"]
                failed = after["disk_write_failures"] - before["disk_write_failures"]
                assert (found == SECTIONS) == bool(written), (at, error)
                assert written + failed == 1, (at, error)
                assert not list(directory.rglob("*.tmp")), (at, error)
                assert counts()["disk_rejected"] == before["disk_rejected"]
                failures += failed
        print(steps, failures)
    """)
    steps, failures = map(int, out.split())
    assert steps > 8 and failures > 20


def test_every_call_of_a_read_fails(run_with_faults: Run):
    out = run_with_faults("""
        cache = _C.neff.Cache(str(directory))
        cache.store(KEY, MADE_FOR, SECTIONS)
        def work():
            return cache.load(KEY, MADE_FOR)
        steps = calls_of(work)
        missed = 0
        for at in range(steps):
            for error in (errno.EIO, errno.EMFILE, errno.EACCES, errno.EINTR):
                os.utime(file_of(), (0, 0))  # so that the use is written down
                found = with_fault(at, FAIL, error, work)
                assert found in (None, SECTIONS)
                missed += found is None
                cache.store(KEY, MADE_FOR, SECTIONS)
                assert work() == SECTIONS
        print(steps, missed)
    """)
    steps, missed = map(int, out.split())
    assert steps >= 4 and missed >= 4


def test_every_call_of_a_lock_fails(run_with_faults: Run):
    """Then there is no lock, and the work is done without it."""
    out = run_with_faults("""
        cache = _C.neff.Cache(str(directory))
        def work():
            with cache.lock(KEY) as lock:
                return lock.held
        steps = calls_of(work)
        free = 0
        for at in range(steps):
            for error in (errno.ENOSPC, errno.EIO, errno.ENOLCK, errno.EINTR):
                free += not with_fault(at, FAIL, error, work)
                assert work()
        print(steps, free)
    """)
    steps, free = map(int, out.split())
    assert steps >= 4 and free > 4


def test_writes_that_are_cut_short_go_on(run_with_faults: Run):
    out = run_with_faults("""
        cache = _C.neff.Cache(str(directory))
        def work():
            cache.store(KEY, MADE_FOR, SECTIONS)
        for at in range(calls_of(work)):
            file_of().unlink()
            with_fault(at, CUT_SHORT, 0, work)
            assert cache.load(KEY, MADE_FOR) == SECTIONS
        print(counts()["disk_write_failures"])
    """)
    assert out == "0"


FULL = """
import warnings
directory.mkdir(exist_ok=True)
limit()
cache = _C.neff.Cache(str(directory))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    keys = [f"{i:032x}" for i in range(64)]
    for key in keys:
        cache.store(key, MADE_FOR, {"code": os.urandom(10_000)})
stored = [key for key in keys if cache.load(key, MADE_FOR) is not None]
print(len(stored), len(caught), counts()["disk_rejected"])
print(counts()["disk_write_failures"] == len(keys) - len(stored))
print(str(caught[0].message) if caught else "")
print(len(list(directory.rglob("*.tmp"))))
"""


def test_full_disk(run_with_faults: Run):
    namespace = ["unshare", "-m"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        namespace = ["unshare", "-rm"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system allows no mount namespace; ENOSPC is injected by the tests above")
    limit = """
def limit():
    import subprocess
    options = ["-t", "tmpfs", "-o", "size=256k,mode=700"]
    subprocess.run(["mount", *options, "none", directory], check=True)
"""
    after = """
for key in stored[:5]:
    file_of(key).unlink()
cache.store(OTHER, MADE_FOR, SECTIONS)
print(cache.load(OTHER, MADE_FOR) == SECTIONS)
"""
    lines = run_with_faults(limit + FULL + after, before=namespace).splitlines()
    stored, warned, rejected = map(int, lines[0].split())
    assert 5 < stored < 64 and warned == 1 and rejected == 0
    assert lines[1] == "True" and "No space left on device" in lines[2]
    assert lines[3:] == ["0", "True"]


def test_limit_of_file_sizes(run_with_faults: Run):
    """write() then ends with SIGXFSZ, or with EFBIG as here, where Python ignores the signal."""
    limit = """
def limit():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
"""
    lines = run_with_faults(limit + FULL).splitlines()
    assert lines[0] == "0 1 0"
    assert lines[1] == "True" and "File too large" in lines[2] and lines[3] == "0"


def test_clock_jumps(run_with_faults: Run):
    """Ten years forward or back: files are found, live writers are left alone, uses are noted."""
    out = run_with_faults("""
        import fcntl
        years = 10 * 365 * 86400
        for jump in (years, -years):
            faults.fault_clock(0)
            cache = _C.neff.Cache(str(directory))
            cache.store(KEY, MADE_FOR, SECTIONS)
            # A writer at work: its file is locked.
            writing = file_of().parent / f"{OTHER}.1.1.1.tmp"
            writing.write_bytes(b"ha")
            dead = file_of().parent / f"{OTHER}.1.2.1.tmp"
            dead.write_bytes(b"ha")
            held = open(writing)
            fcntl.flock(held, fcntl.LOCK_EX)
            lock = cache.lock(OTHER)
            faults.fault_clock(jump)
            later = _C.neff.Cache(str(directory))
            assert later.load(KEY, MADE_FOR) == SECTIONS
            # The use is noted in the new time, so that the order of uses is right from now on.
            assert abs(file_of().stat().st_atime - time.time()) < 100
            trimmed = later.trim(-1)
            assert trimmed["stale_files"] == 1 and trimmed["evicted_files"] == 0, trimmed
            assert writing.exists() and not dead.exists() and lock.held
            assert (directory / "locks" / f"{OTHER}.lock").exists()
            later.store(OTHER, MADE_FOR, SECTIONS)
            assert later.load(OTHER, MADE_FOR) == SECTIONS
            lock.release()
            held.close()
            writing.unlink()
        print(counts()["disk_rejected"])
    """)
    assert out == "0"


def test_after_the_clock_was_set_back_new_files_stay(run_with_faults: Run):
    """Files of the future do not push out those that are used now."""
    out = run_with_faults("""
        cache = _C.neff.Cache(str(directory))
        old = [f"{i:032x}" for i in range(10)]
        for key in old:
            cache.store(key, MADE_FOR, SECTIONS)
            os.utime(file_of(key), (time.time() + 10_000,) * 2)
        cache.store(KEY, MADE_FOR, SECTIONS)
        cache.load(old[3], MADE_FOR)  # used now: its time is right again
        size = file_of().stat().st_size
        cache.trim(3 * size)
        print([key in (KEY, old[3]) for key in [*old, KEY] if file_of(key).exists()])
    """)
    assert out == "[True, True]"
