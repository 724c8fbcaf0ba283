"""The package: what `import torch` alone gives, and what happens when it cannot load."""

from __future__ import annotations

import importlib.metadata

import torch

import torch_neuronx

# Makes the import of the extension fail, as after an upgrade of torch.
BREAK = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "torch_neuronx._C":
            raise ImportError("undefined symbol: c10_whatever")
sys.meta_path.insert(0, Broken())
import torch
"""


def test_version_and_entry_point():
    assert importlib.metadata.version("torch_neuronx") == torch_neuronx.__version__
    (entry,) = importlib.metadata.entry_points(group="torch.backends", name="torch_neuronx")
    assert entry.load() is torch_neuronx._autoload
    assert torch_neuronx._autoload() is None
    assert torch_neuronx._autoload() is None


def test_import_torch_is_enough(run_python):
    out = run_python("""
        import torch
        print(torch.device("neuron"), torch.device(0), torch.neuron.is_available())
        print(torch.accelerator.current_accelerator(), torch.accelerator.is_available())
        print(torch.accelerator.device_count() == torch.neuron.device_count() > 0)
        x = torch.ones(4, 4, device="neuron")
        print((x @ x).softmax(-1).sum().item(), x.is_neuron, torch.ones(1).neuron().device)
        print(torch.nn.Linear(2, 2).neuron().weight.device, torch.ones(2).to(0).device)
    """)
    assert out.splitlines() == [
        "neuron neuron:0 True",
        "neuron True",
        "True",
        "4.0 True neuron:0",
        "neuron:0 neuron:0",
    ]


def test_this_package_may_be_imported_first(run_python):
    out = run_python("""
        from torch_neuronx import _C
        import torch
        print(torch.ones(2, device="neuron"), _C.device.is_initialized())
    """)
    assert out.splitlines() == ["tensor([1., 1.], device='neuron:0') True"]


def test_without_autoload_nothing_is_loaded(run_python):
    out = run_python(
        """
        import sys, torch
        print(hasattr(torch, "neuron"), "torch_neuronx" in sys.modules)
        print(torch._C._get_privateuse1_backend_name())
        import torch_neuronx
        print(torch.ones(2, device="neuron").sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out.splitlines() == ["False False", "privateuseone", "2.0"]


def test_import_starts_nothing(run_python):
    out = run_python("""
        import os, sys
        import torch
        def threads():
            return len(os.listdir("/proc/self/task"))
        before = threads()
        torch.device("neuron"), torch.neuron.device_count(), torch.neuron.current_device()
        torch.manual_seed(0)
        torch.neuron.synchronize()
        torch.neuron.empty_cache()
        print(torch.neuron.is_initialized(), threads() - before)
        print(any("libneuron_codegen" in line for line in open("/proc/self/maps")))
        torch.ones(4, device="neuron").sum().item()
        print(torch.neuron.is_initialized())
    """)
    assert out.splitlines() == ["False 0", "False", "True"]


def test_import_of_torch_starts_no_thread_for_the_device(run_python):
    code = "import os, torch; print(len(os.listdir('/proc/self/task')))"
    assert run_python(code) == run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_broken_extension_lets_torch_import_and_explains(run_python):
    out = run_python(
        BREAK
        + """
print(torch.ones(2).sum().item(), torch.neuron.is_available(), torch.neuron.device_count())
print(torch.accelerator.is_available())
torch.manual_seed(0)
import torch_neuronx
uses = [
    lambda: torch.empty(2, device="neuron"),
    lambda: torch.ones(2).to("neuron"),
    lambda: torch.nn.Linear(2, 2).to("neuron"),
    lambda: torch.neuron.synchronize(),
    lambda: torch.neuron.memory_allocated(),
    lambda: torch.accelerator.synchronize(),
    lambda: torch_neuronx.get_fallback_ops(),
    lambda: torch_neuronx.metrics.get_compilation_metrics(),
]
for use in uses:
    try:
        use()
    except RuntimeError as error:
        text = str(error)
        print("undefined symbol: c10_whatever" in text and "Reinstall torch-neuronx" in text)
"""
    )
    assert out.splitlines() == ["2.0 False 0", "False"] + ["True"] * 8


def test_other_version_of_torch_is_refused(run_python):
    out = run_python(
        """
        import torch
        torch.__version__ = "2.99.0"
        import torch_neuronx
        try:
            torch.ones(1, device="neuron")
        except RuntimeError as error:
            print("built for torch 2.13.0, this is 2.99.0" in str(error))
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "True"


def test_another_owner_of_the_device_slot(run_python):
    out = run_python(
        """
        import warnings
        import torch
        torch.utils.rename_privateuse1_backend("other")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch_neuronx
        print(len(caught), "cannot be used" in str(caught[0].message))
        print(torch.ones(2).sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out.splitlines() == ["1 True", "2.0"]


def test_bad_environment_is_named_at_first_use(run_python):
    out = run_python(
        """
        import torch
        print(torch.neuron.is_available())
        try:
            torch.ones(1, device="neuron")
        except Exception as error:
            print("NEURON_RT_NUM_CORES" in str(error))
        """,
        NEURON_RT_NUM_CORES="many",
    )
    assert out.splitlines() == ["False", "True"]


FORK = """
import os, torch
if {used}:
    torch.ones(1, device="neuron").item()
pid = os.fork()
if pid == 0:
    try:
        torch.manual_seed(0)
        x = torch.ones(2, device="neuron")
        print(torch.neuron._is_in_bad_fork(), x.sum().item(), flush=True)
    except RuntimeError as error:
        print("spawn" in str(error), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status)
print(torch.ones(3, device="neuron").sum().item())
"""


def test_fork_after_use_is_an_error_in_the_child(run_python):
    assert run_python(FORK.format(used=True)).splitlines() == ["True", "0", "3.0"]


def test_fork_before_use_works(run_python):
    assert run_python(FORK.format(used=False)).splitlines() == ["False 2.0", "0", "3.0"]


def test_child_that_exits_normally_after_fork(run_python):
    out = run_python("""
        import multiprocessing, torch
        x = torch.ones(64, 64, device="neuron")
        (x @ x).sum().item()
        process = multiprocessing.get_context("fork").Process(target=print, args=("child",))
        process.start()
        process.join(20)
        print(process.exitcode)
    """)
    assert out.splitlines() == ["child", "0"]


def test_names_are_in_both_modules():
    for name in torch.neuron.__all__:
        assert getattr(torch_neuronx, name) is getattr(torch.neuron, name)


def test_stub_of_the_extension_names_everything():
    import ast
    from pathlib import Path

    from torch_neuronx import _C

    stub = ast.parse(Path(torch_neuronx.__file__).with_name("_C.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            named = {f.name for f in node.body if isinstance(f, ast.FunctionDef | ast.ClassDef)}
            there = {n for n in dir(getattr(_C, node.name)) if not n.startswith("_")}
            assert there == named, node.name
