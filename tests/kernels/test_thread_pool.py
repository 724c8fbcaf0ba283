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
