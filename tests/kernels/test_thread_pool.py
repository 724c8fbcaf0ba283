"""The pool of threads: every item once, whoever calls, and across fork and exit."""

import os
import subprocess
import sys
import threading

import pytest

from torch_neuronx import _C

kernels = _C.kernels


def run(code, **env):
    """The output of code in a new interpreter that has `kernels`, with those variables set."""
    prologue = f"import sys; sys.path[:0] = {sys.path!r}\n"
    prologue += "from torch_neuronx import _C\nkernels = _C.kernels\n"
    counts = ("OMP_NUM_THREADS", "TORCH_NEURONX_HOST_THREADS")
    done = subprocess.run(
        [sys.executable, "-c", prologue + code],
        env={**{k: v for k, v in os.environ.items() if k not in counts}, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("items", [0, 1, 2, 3, 64, 1000])
@pytest.mark.parametrize("spin", [0, 1000])
def test_every_item_runs_once(items, spin):
    for _ in range(20):
        assert kernels.count_items(items, spin) == [1] * items


def test_a_loop_inside_a_loop_runs_inline():
    assert kernels.count_items(100, 10, nested=True) == [3] * 100


def test_several_callers_at_once():
    failures = []

    def call():
        for _ in range(200):
            if kernels.count_items(37, 200) != [1] * 37:
                failures.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_more_threads_than_cpus():
    code = "print(all(kernels.count_items(50, 100) == [1] * 50 for _ in range(100)))"
    assert run(code, TORCH_NEURONX_HOST_THREADS="7") == "True"


@pytest.mark.parametrize(
    "variables,expected",
    [
        ({"TORCH_NEURONX_HOST_THREADS": "3", "OMP_NUM_THREADS": "2"}, "3"),
        ({"OMP_NUM_THREADS": "2"}, "2"),
        ({"OMP_NUM_THREADS": "nonsense", "TORCH_NEURONX_HOST_THREADS": "1"}, "1"),
    ],
)
def test_size_from_the_environment(variables, expected):
    assert run("print(kernels.num_threads())", **variables) == expected


def test_size_is_within_the_cpus_of_the_process():
    cpus = len(os.sched_getaffinity(0))
    assert 1 <= int(run("print(kernels.num_threads())")) <= cpus
    one = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    assert run(one + "; print(kernels.num_threads())") == "1"


def test_the_pool_can_be_resized():
    code = """
import os
threads = lambda: len(os.listdir("/proc/self/task"))
def check(size):
    kernels.set_num_threads(size)
    assert kernels.num_threads() == size
    assert all(kernels.count_items(50, 100) == [1] * 50 for _ in range(50))
kernels.set_num_threads(1)  # before the pool exists
before = threads()
check(1)
assert threads() == before
for size in (3, 2, 5, 1, 4):
    check(size)
assert threads() == before + 4, "never more than the largest size asked for"
pid = os.fork()
if pid == 0:
    os._exit(0 if kernels.num_threads() == 4 and kernels.count_items(9, 9) == [1] * 9 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(code, TORCH_NEURONX_HOST_THREADS="4") == "0"


def test_torch_set_num_threads_holds_for_the_device():
    code = """
import torch
a = torch.randn(300, 300, device="neuron")
results = []
for n in (1, 2, 3):
    torch.set_num_threads(n)
    assert torch.get_num_threads() == kernels.num_threads() == n
    assert torch.neuron.get_device_properties(0).num_threads == n
    results.append((a @ a + a.softmax(-1)).cpu())
assert all(torch.equal(results[0], other) for other in results[1:])
for bad in (0, -1, "2"):
    try:
        torch.set_num_threads(bad)
    except (RuntimeError, TypeError):
        continue
    raise AssertionError(bad)
print(kernels.num_threads())
"""
    assert run(code) == "3"


def test_forked_children_have_a_pool_of_their_own():
    code = """
import os
assert kernels.count_items(100, 1000) == [1] * 100
pid = os.fork()
if pid == 0:
    os._exit(0 if all(kernels.count_items(100, 1000) == [1] * 100 for _ in range(50)) else 1)
assert kernels.count_items(100, 1000) == [1] * 100
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(code, TORCH_NEURONX_HOST_THREADS="4") == "0"


def test_isa_from_the_environment():
    assert run("print(kernels.isa())", TORCH_NEURONX_HOST_ISA="portable") == "portable"
    refused = "\ntry:\n    kernels.isa()\nexcept Exception as error:\n    print(error)"
    assert "expected portable, avx2, avx512" in run(refused, TORCH_NEURONX_HOST_ISA="mmx")
