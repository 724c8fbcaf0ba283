"""The whole public surface: every name, what it is, how it is called.

Who changes a row here changes what programs of users rely on: say so in CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

# name | kind | parameters
SURFACE = {
    "torch.neuron": """
Event | class | (enable_timing=False, blocking=False, interprocess=False)
NeuronDeviceProperties | class | (name, total_memory, instruction_set, num_threads, num_cores)
OutOfMemoryError | class
Stream | class | (device=None, priority=0, **kwargs)
StreamContext | class | (stream)
amp | module
caching_allocator_alloc | function | (size, device=None, stream=None)
caching_allocator_delete | function | (mem_ptr)
can_device_access_peer | function | (device, peer_device)
current_device | function | ()
current_stream | function | (device=None)
default_generators | tuple
default_stream | function | (device=None)
device | class | (device)
device_count | function | ()
device_of | class | (obj)
empty_cache | function | ()
get_amp_supported_dtype | function | ()
get_device_capability | function | (device=None)
get_device_name | function | (device=None)
get_device_properties | function | (device=None)
get_dynamo_metrics | function | ()
get_per_process_memory_fraction | function | (device=None)
get_rng_state | function | (device='neuron')
get_rng_state_all | function | ()
host_memory_stats | function | ()
host_memory_stats_as_nested_dict | function | ()
init | function | ()
initial_seed | function | ()
is_available | function | ()
is_bf16_supported | function | (including_emulation=True)
is_initialized | function | ()
manual_seed | function | (seed)
manual_seed_all | function | (seed)
max_memory_allocated | function | (device=None)
max_memory_reserved | function | (device=None)
mem_get_info | function | (device=None)
memory | module
memory_allocated | function | (device=None)
memory_reserved | function | (device=None)
memory_snapshot | function | (device=None)
memory_stats | function | (device=None)
memory_stats_as_nested_dict | function | (device=None)
memory_summary | function | (device=None, abbreviated=False)
query | function | ()
random | module
record_event | function | (event=None)
reset_accumulated_host_memory_stats | function | ()
reset_accumulated_memory_stats | function | (device=None)
reset_dynamo_metrics | function | ()
reset_peak_host_memory_stats | function | ()
reset_peak_memory_stats | function | (device=None)
seed | function | ()
seed_all | function | ()
set_device | function | (device)
set_per_process_memory_fraction | function | (fraction, device=None)
set_rng_state | function | (new_state, device='neuron')
set_rng_state_all | function | (new_states)
set_stream | function | (stream)
stream | function | (stream)
synchronize | function | (device=None)
wait_event | function | (event)
wait_stream | function | (stream)
""",
    "torch.neuron.amp": """
GradScaler | class | (**kwargs)
autocast | class | (enabled=True, dtype=torch.bfloat16, cache_enabled=True)
custom_bwd | function | (bwd=None, *, device_type='neuron')
custom_fwd | function | (fwd=None, *, device_type='neuron', cast_inputs=None)
""",
    "torch_neuronx": """
clear_op_tracking | function | ()
explain | function | (function)
get_executed_ops | function | ()
get_fallback_counts | function | ()
get_fallback_ops | function | ()
get_library_ops | function | ()
is_neuron_runtime_initialized | function | ()
metrics | module
nki_op | function | (name, fn=None, *, mutates_args=())
utils | module
wrap_nki | function | (nki_jit_kernel, **kwargs)
""",
    "torch_neuronx.metrics": """
clear_all | function | ()
clear_counters | function | ()
clear_metrics | function | ()
get_compilation_metrics | function | ()
get_counter_names | function | ()
get_counter_value | function | (name)
get_metric_data | function | (name)
get_metric_names | function | ()
is_enabled | function | ()
report | function | ()
report_filtered | function | (counter_names=None, metric_names=None)
set_enabled | function | (enabled)
""",
    "torch_neuronx.utils": """
MXFP8 | class | (data, scale, dtype)
get_lnc_setting | function | ()
get_logical_neuron_cores | function | ()
get_neuron_registered_ops | function | (as_sorted=True, keep_variant=True)
get_platform_target | function | ()
get_worker_multiplier | function | ()
is_neff_cache_disabled | function | ()
is_stablehlo_enabled | function | ()
is_sync_mode_enabled | function | ()
move_pytree_to_cpu | function | (tree)
move_pytree_to_neuron | function | (tree, device=None)
use_mlir_aten_ops | function | ()
""",
    "torch_neuronx.neuron_dynamo_backend": """
NEFFCompilationError | class
NEFFExecutionError | class
create_neuron_backend | function | (**options)
get_model_name | function | ()
get_rank | function | ()
neuron_backend | function | (gm, example_inputs, *, mode=None, options=None, **unknown)
set_model_name | function | (name)
""",
}

# What of torch.cuda has no meaning here, and why. Everything else of it exists in torch.neuron.
NOT_HERE = {
    "graphs": "CUDAGraph CUDAPluggableAllocator graph graph_pool_handle graphs MemPool "
    "use_mem_pool is_current_stream_capturing make_graphed_callables: "
    "a compiled graph is one launch already",
    "pieces of CUDA": "CudaError DeferredCudaCallError GreenContext change_current_allocator "
    "check_error cudart cudaStatus current_blas_handle current_solver_handle gds get_arch_list "
    "get_gencode_flags green_contexts has_half has_magma is_tf32_supported jiterator nccl nvtx "
    "profiler sparse tunable ipc_collect ExternalStream get_stream_from_external "
    "AcceleratorError caching_allocator_disabled caching_allocator_enable get_allocator_backend",
    "sensors": "clock_rate device_memory_used list_gpu_processes memory_usage power_draw "
    "temperature utilization",
    "other spellings": "max_memory_cached memory_cached reset_max_memory_allocated "
    "reset_max_memory_cached streams get_sync_debug_mode set_sync_debug_mode",
}


def rows(module: object) -> list[str]:
    named = getattr(module, "__all__", None)
    if named is None:
        own = vars(module)
        name = module.__name__  # type: ignore[attr-defined]
        named = [n for n in own if n[0] != "_" and getattr(own[n], "__module__", "") == name]
    return [row(name, getattr(module, name)) for name in sorted(named)]


def row(name: str, value: object) -> str:
    if inspect.ismodule(value):
        return f"{name} | module"
    if not callable(value):
        return f"{name} | {type(value).__name__}"
    kind = "class" if inspect.isclass(value) else "function"
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # an exception of C
        return f"{name} | {kind}"
    shown = [str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters]
    keyword_only = [p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters]
    if True in keyword_only:
        shown.insert(keyword_only.index(True), "*")
    return f"{name} | {kind} | ({', '.join(shown)})"


@pytest.mark.parametrize("module", SURFACE)
def test_surface(module: str):
    loaded = torch.neuron if module == "torch.neuron" else None
    if module == "torch.neuron.amp":
        loaded = torch.neuron.amp
    loaded = loaded or importlib.import_module(module)
    assert rows(loaded) == SURFACE[module].strip().splitlines()


@pytest.mark.parametrize("module", SURFACE)
def test_every_public_name_is_documented_or_says_all(module: str):
    """A docstring, or a signature from which no question is left open."""
    loaded = {"torch.neuron": torch.neuron, "torch.neuron.amp": torch.neuron.amp}.get(module)
    loaded = loaded or importlib.import_module(module)
    for line in SURFACE[module].strip().splitlines():
        value = getattr(loaded, line.split(" | ")[0])
        if callable(value) and not inspect.getdoc(value):
            signature = inspect.signature(value)
            assert signature.return_annotation not in (inspect.Signature.empty, "Any"), line


def test_torch_cuda_has_nothing_that_is_forgotten():
    known = {name for text in NOT_HERE.values() for name in text.split(":")[0].split()}
    missing = []
    for name in torch.cuda.__all__:
        typed = name.endswith(("Tensor", "Storage"))  # legacy types: torch.FloatTensor has no heirs
        if not (typed or name in known or hasattr(torch.neuron, name)):
            missing.append(name)
    assert missing == []
    assert [name for name in known if hasattr(torch.neuron, name)] == []


ACCELERATOR = {
    "current_accelerator": lambda value: value == torch.device("neuron"),
    "current_device_index": lambda value: value == 0,
    "current_device_idx": lambda value: value == 0,
    "current_stream": lambda value: value == torch.neuron.current_stream(),
    "device_count": lambda value: value == torch.neuron.device_count(),
    "empty_cache": lambda value: value is None,
    "empty_host_cache": lambda value: value is None,
    "get_device_capability": lambda value: torch.bfloat16 in value["supported_dtypes"],
    "get_memory_info": lambda value: value == torch.neuron.mem_get_info(),
    "is_available": lambda value: value is True,
    "max_memory_allocated": lambda value: value == torch.neuron.max_memory_allocated(),
    "max_memory_reserved": lambda value: value == torch.neuron.max_memory_reserved(),
    "memory_allocated": lambda value: value == torch.neuron.memory_allocated(),
    "memory_reserved": lambda value: value == torch.neuron.memory_reserved(),
    "memory_stats": lambda value: value["num_ooms"] == torch.neuron.memory_stats()["num_ooms"],
    "reset_accumulated_memory_stats": lambda value: value is None,
    "reset_peak_memory_stats": lambda value: value is None,
    "synchronize": lambda value: value is None,
}
# Called with arguments: by the tests of torch.neuron.
WITH_ARGUMENTS = {"device_index", "set_device_idx", "set_device_index", "set_stream"}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_all_of_torch_accelerator():
    torch.neuron.set_device(0)
    named = {n for n in torch.accelerator.__all__ if n not in WITH_ARGUMENTS | {"Graph"}}
    assert named == set(ACCELERATOR)
    for name, expected in ACCELERATOR.items():
        assert expected(getattr(torch.accelerator, name)()), name
    with pytest.raises(RuntimeError, match="Graph is not supported on device type: neuron"):
        torch.accelerator.Graph()


def test_methods_of_tensors_modules_and_storages():
    x = torch.ones(2).neuron(1)
    assert x.is_neuron and x.device == torch.device("neuron:1")
    assert torch.nn.Linear(2, 2).neuron().weight.is_neuron
    assert torch.ones(2).untyped_storage().neuron().is_neuron
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert packed.neuron().data.is_neuron
