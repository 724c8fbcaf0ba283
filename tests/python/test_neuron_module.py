"""torch.neuron and torch.accelerator: each public name, as torch.cuda has it."""

from __future__ import annotations

import io
import json
import threading

import pytest
import torch

import torch_neuronx

MIB = 1 << 20


@pytest.fixture(autouse=True)
def first_device():
    torch.neuron.set_device(0)
    yield
    torch.neuron.set_device(0)


def test_every_public_name_exists():
    for name in torch.neuron.__all__:
        assert getattr(torch.neuron, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        torch.neuron.nonsense  # noqa: B018


# Devices


def test_current_device_and_its_spellings():
    assert torch.neuron.is_available()
    assert torch.neuron.device_count() == torch.accelerator.device_count()
    for spelling in (1, "neuron:1", torch.device("neuron:1"), torch.device("neuron", 1)):
        torch.neuron.set_device(0)
        torch.neuron.set_device(spelling)
        assert torch.neuron.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="neuron").device == torch.device("neuron:1")
    for keeps in (None, "neuron", torch.device("neuron")):
        torch.neuron.set_device(keeps)
        assert torch.neuron.current_device() == 1


@pytest.mark.parametrize(
    ("device", "error"),
    [(8, ValueError), (-1, ValueError), ("cpu", ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_wrong_devices_are_refused(device, error):
    torch.neuron.init()
    with pytest.raises(error):
        torch.neuron.set_device(device)
    with pytest.raises(error):
        torch.neuron.get_device_properties(device)


def test_set_device_is_of_the_thread():
    seen = []
    torch.neuron.set_device(2)
    thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_device_context_managers():
    with torch.neuron.device(3):
        assert torch.neuron.current_device() == 3
        with torch.neuron.device("neuron:2"):
            assert torch.neuron.current_device() == 2
        assert torch.neuron.current_device() == 3
    with torch.neuron.device_of(torch.empty(1, device="neuron:4")):
        assert torch.neuron.current_device() == 4
    with torch.neuron.device_of(torch.empty(1)), torch.neuron.device(-1):
        assert torch.neuron.current_device() == 0
    with torch.accelerator.device_index(5):
        assert torch.neuron.current_device() == 5
    with pytest.raises(ValueError, match="out of range"), torch.neuron.device(99):
        pass
    assert torch.neuron.current_device() == 0


def test_properties():
    properties = torch.neuron.get_device_properties(0)
    assert properties == torch.neuron.get_device_properties("neuron:0")
    assert properties.name == torch.neuron.get_device_name()
    assert properties.total_memory == torch.neuron.mem_get_info(0)[1]
    assert properties.instruction_set in ("portable", "avx2", "avx512", "avx512_bf16")
    assert properties.num_cores == 1
    assert properties.multi_processor_count == properties.num_threads >= 1
    assert (properties.major, properties.minor) == torch.neuron.get_device_capability()
    assert torch.neuron.get_device_capability() == (0, 0)
    assert torch.neuron.can_device_access_peer(0, 1)
    assert not torch.neuron.can_device_access_peer(0, 0)
    assert torch.neuron.is_bf16_supported() is True
    assert torch.bfloat16 in torch.neuron.get_amp_supported_dtype()


def test_initialisation_state():
    torch.neuron.init()
    torch.neuron._lazy_init()
    assert torch.neuron.is_initialized() is True
    assert torch.neuron._initialized is True
    assert torch_neuronx.is_neuron_runtime_initialized() is True
    assert torch.neuron._is_in_bad_fork() is False


def test_visible_cores_are_honoured(run_python):
    code = "import torch; print(torch.neuron.device_count())"
    assert run_python(code) == "8"
    assert run_python(code, NEURON_RT_NUM_CORES="2") == "2"
    assert run_python(code, NEURON_RT_VISIBLE_CORES="0,2,4-7") == "6"
    assert run_python(code, NEURON_RT_VISIBLE_CORES="3", NEURON_RT_NUM_CORES="2") == "1"


# Streams and events


def test_current_and_default_stream():
    default = torch.neuron.default_stream()
    assert torch.neuron.current_stream() == default
    assert isinstance(torch.neuron.current_stream(), torch.neuron.Stream)
    assert (default.stream_id, default.device, default.priority) == (0, torch.device("neuron:0"), 0)
    assert torch.neuron.default_stream(3).device_index == 3
    assert hash(torch.neuron.current_stream()) == hash(default)


def test_stream_context_restores_stream_and_device():
    stream = torch.neuron.Stream(device="neuron:1")
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
        assert torch.neuron.current_device() == 1
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)
    torch.neuron.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    torch.neuron.set_stream(torch.neuron.default_stream(1))
    torch.neuron.set_stream(None)


def test_stream_context_can_be_entered_again():
    context = torch.neuron.stream(torch.neuron.Stream())
    for _ in range(2):
        with context:
            assert torch.neuron.current_stream() == context.stream
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_priority():
    least, greatest = torch.neuron.Stream.priority_range()
    assert torch.neuron.Stream(priority=least).priority == least
    assert torch.neuron.Stream(priority=greatest).priority == greatest


def test_streams_order_work_by_events():
    side = torch.neuron.Stream()
    x = torch.ones(512, 512, device="neuron")
    y = x @ x
    side.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(side):
        z = y + 1
    event = side.record_event()
    torch.neuron.wait_event(event)
    torch.neuron.wait_stream(side)
    total = (z + 0).sum().item()
    assert total == 513 * 512 * 512
    side.synchronize()
    assert side.query() and event.query()
    torch.neuron.current_stream().synchronize()
    assert torch.neuron.query()
    z.record_stream(side)


def test_event_times_are_of_the_device():
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    assert torch.neuron.Event().query()
    assert isinstance(start, torch.neuron.Event)
    assert not isinstance(torch.Stream("neuron"), torch.neuron.Event)
    x = torch.ones(256, 256, device="neuron")
    assert torch.neuron.record_event(start) is start
    for _ in range(10):
        x = x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with torch.neuron.device(1):
        torch.neuron.record_event(torch.neuron.Event()).synchronize()
    plain = torch.neuron.record_event()
    plain.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        plain.elapsed_time(end)


def test_synchronize():
    torch.neuron.synchronize()
    torch.neuron.synchronize(0)
    torch.neuron.synchronize("neuron:1")
    torch.accelerator.synchronize()
    with pytest.raises(ValueError):
        torch.neuron.synchronize("cpu")


# Memory


def test_memory_counts():
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_allocated() - before == 8 * MIB
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated()
    del x
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.max_memory_allocated() >= before + 8 * MIB
    assert torch.neuron.max_memory_reserved(0) >= torch.neuron.memory_reserved(0)
    torch.neuron.reset_peak_memory_stats(0)
    assert torch.neuron.max_memory_allocated() == before


def test_memory_stats_and_summary():
    x = torch.empty(MIB, dtype=torch.uint8, device="neuron")
    stats = torch.neuron.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["allocated_bytes"]["current"] >= MIB
    assert stats["num_ooms"] == 0
    assert "allocated_bytes" in torch.neuron.memory_summary()
    assert len(torch.neuron.memory_summary(abbreviated=True)) < len(torch.neuron.memory_summary())
    snapshot = torch.neuron.memory_snapshot()
    address = x.untyped_storage().data_ptr()
    assert any(b["address"] == address for segment in snapshot for b in segment["blocks"])
    torch.neuron.reset_accumulated_memory_stats()
    assert torch.neuron.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_counts_of_allocations():
    before = torch.neuron.memory_stats()
    x = torch.empty(MIB, dtype=torch.uint8, device="neuron")
    del x
    after = torch.neuron.memory_stats()
    assert after["allocation_requests"] == before["allocation_requests"] + 1
    assert after["num_tensor_frees"] == before["num_tensor_frees"] + 1
    nested = torch.neuron.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["current"] == after["allocated_bytes.all.current"]


def test_memory_without_a_tensor():
    side = torch.neuron.Stream(device=2)
    before = torch.neuron.memory_allocated(2)
    address = torch.neuron.caching_allocator_alloc(MIB, 2, side)
    assert torch.neuron.memory_allocated(2) == before + MIB
    torch.neuron.caching_allocator_delete(address)
    assert torch.neuron.memory_allocated(2) == before
    with pytest.raises(ValueError, match="not allocated"):
        torch.neuron.caching_allocator_delete(address)
    with pytest.raises(ValueError, match="at least 1"):
        torch.neuron.caching_allocator_alloc(0)
    with pytest.raises(torch.neuron.OutOfMemoryError):
        torch.neuron.caching_allocator_alloc(1 << 50)


def test_pinned_memory_is_counted():
    before = torch.neuron.host_memory_stats()
    x = torch.empty(MIB, dtype=torch.uint8).pin_memory()
    after = torch.neuron.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"] + MIB
    assert after["num_host_alloc"] == before["num_host_alloc"] + 1
    del x
    nested = torch.neuron.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["current"] == before["active_bytes.current"]
    torch.neuron.reset_peak_host_memory_stats()
    torch.neuron.reset_accumulated_host_memory_stats()
    reset = torch.neuron.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["num_host_alloc"] == reset["active_bytes.allocated"] == 0


def test_free_memory_and_empty_cache():
    free, total = torch.neuron.mem_get_info()
    assert 0 < free <= total
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="neuron")
    assert torch.neuron.mem_get_info()[0] <= free
    del x
    torch.neuron.empty_cache()
    assert torch.neuron.mem_get_info(0)[0] >= free


def test_memory_fraction_and_out_of_memory():
    total = torch.neuron.mem_get_info(6)[1]
    torch.neuron.set_per_process_memory_fraction(16 * MIB / total, 6)
    try:
        assert torch.neuron.get_per_process_memory_fraction(6) == pytest.approx(16 * MIB / total)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(32 * MIB, dtype=torch.uint8, device="neuron:6")
        assert torch.neuron.memory_stats(6)["num_ooms"] == 1
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0, 6)
    with pytest.raises(ValueError):
        torch.neuron.set_per_process_memory_fraction(1.5, 6)


# Random numbers


def test_seed_and_state():
    torch.neuron.manual_seed(5)
    assert torch.neuron.initial_seed() == 5
    state = torch.neuron.get_rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    first = torch.rand(100, device="neuron").cpu()
    assert not torch.equal(torch.neuron.get_rng_state(), state)
    torch.neuron.set_rng_state(state, "neuron:0")
    assert torch.equal(torch.rand(100, device="neuron").cpu(), first)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(100, device="neuron").cpu(), first)
    assert torch.equal(
        torch.rand(100, device="neuron:1").cpu(), torch.rand(100, device="neuron:2").cpu()
    )
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != 5


def test_states_of_all_devices():
    torch.neuron.manual_seed_all(9)
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    torch.neuron.seed_all()
    torch.neuron.set_rng_state_all(states)
    assert all(map(torch.equal, states, torch.neuron.get_rng_state_all()))


def test_wrong_state_is_refused():
    with pytest.raises((RuntimeError, ValueError)):
        torch.neuron.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_generators():
    generator = torch.Generator(device="neuron").manual_seed(1)
    assert generator.device == torch.device("neuron:0")
    first = torch.rand(10, device="neuron", generator=generator).cpu()
    generator.manual_seed(1)
    assert torch.equal(torch.rand(10, device="neuron", generator=generator).cpu(), first)


def test_a_generator_of_another_core_is_refused():
    generator = torch.Generator(device="neuron:1")
    with pytest.raises(RuntimeError, match="generator of neuron:0.*found one of neuron:1"):
        torch.rand(2, device="neuron", generator=generator)
    with pytest.raises(RuntimeError, match="generator of neuron:0.*found one of neuron:1"):
        torch.empty(2, device="neuron").normal_(generator=generator)
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator"):
        torch.rand(2, device="neuron", generator=torch.Generator())


def test_generators_may_share_their_state():
    one = torch.Generator(device="neuron").manual_seed(5)
    both = torch.rand(8, device="neuron", generator=one).cpu()
    one.manual_seed(5)
    other = torch.Generator(device="neuron").manual_seed(9)
    other.graphsafe_set_state(one.graphsafe_get_state())
    assert (other.initial_seed(), other.get_offset()) == (5, 0)
    halves = [torch.rand(4, device="neuron", generator=g).cpu() for g in (one, other)]
    assert torch.equal(torch.cat(halves), both)
    assert one.get_offset() == other.get_offset() > 0
    alone = one.clone_state()
    other.manual_seed(1)
    assert (one.initial_seed(), alone.initial_seed()) == (1, 5)
    with pytest.raises((RuntimeError, TypeError), match="neuron generator"):
        one.graphsafe_set_state(torch.Generator())


def test_default_generators():
    assert len(torch.neuron.default_generators) == torch.neuron.device_count()
    torch.neuron.manual_seed(77)
    assert torch.neuron.default_generators[0].initial_seed() == 77
    assert torch.neuron.default_generators[3].device == torch.device("neuron:3")


def test_fork_rng():
    torch.neuron.manual_seed(3)
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        inside = torch.rand(4, device="neuron").cpu()
    assert torch.equal(torch.rand(4, device="neuron").cpu(), inside)


# Autocast


def test_autocast_runs_matmul_in_bfloat16_and_softmax_in_float32():
    x = torch.ones(4, 4, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        product = x @ x
        assert product.dtype == torch.bfloat16
        assert product.softmax(-1).dtype == torch.float32
        assert (x + x).dtype == torch.float32
    with torch.neuron.amp.autocast():
        assert torch.nn.functional.linear(x, x).dtype == torch.bfloat16
    with torch.neuron.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32


def test_binary_cross_entropy_is_refused_under_autocast():
    x = torch.full((4,), 0.5, device="neuron")
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(x, x)


# Saving, pinning


def test_save_and_load():
    x = torch.arange(12.0, device="neuron").reshape(3, 4)
    file = io.BytesIO()
    torch.save({"x": x, "y": x.T}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["x"].device == torch.device("neuron:0")
    assert torch.equal(loaded["y"].cpu(), x.cpu().T)
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].device.type == "cpu"
    file.seek(0)
    assert torch.load(file, map_location="neuron:1")["x"].device.index == 1


def test_pinned_memory():
    x = torch.arange(10.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), x)


# Counters


def test_op_tracking_and_fallback_warning():
    torch_neuronx.clear_op_tracking()
    x = torch.ones(3, device="neuron")
    (x * 2).cpu()
    assert "aten::mul.Tensor" in torch_neuronx.get_executed_ops()
    assert torch_neuronx.get_fallback_ops() == []
    with pytest.warns(UserWarning, match="aten::_add_relu.* runs on the CPU.*test_neuron_module"):
        for _ in range(2):
            y = torch.ops.aten._add_relu(x, x)
    assert torch.equal(y.cpu(), torch.full((3,), 2.0))
    counts = torch_neuronx.get_fallback_counts()
    (name,) = torch_neuronx.get_fallback_ops()
    assert counts[name]["calls"] == 2
    assert counts[name]["bytes"] >= 2 * 24
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_executed_ops() == torch_neuronx.get_fallback_ops() == []


def test_compilation_metrics(run_python, tmp_path):
    code = """
        import json, torch
        from torch_neuronx import metrics
        x = torch.ones(5, device="neuron")
        (x + 1).cpu(), (x + 2).cpu()
        print(json.dumps(metrics.get_compilation_metrics()))
        print(metrics.get_counter_value("CompilationCache.TotalCompilations"))
        print("CompilationCache.PersistentHits" in metrics.report())
        print(metrics.get_metric_data("CompilationCache.CompilationTime") is None)
        print("libneuron_codegen" in open("/proc/self/maps").read())
        print(json.dumps({n: metrics.get_metric_data(n) for n in metrics.get_metric_names()}))
        metrics.clear_all()
        print(metrics.get_counter_names(), metrics.get_metric_names(), metrics.report() == "")
        metrics.set_enabled(False)
        (x - 2).cpu()
        print(metrics.is_enabled(), metrics.get_counter_names(), metrics.get_metric_names())
        metrics.set_enabled(True)
        print(metrics.is_enabled(), metrics.get_counter_names(), metrics.get_metric_names())
        torch.sigmoid(x).cpu()
        print(metrics.get_counter_names())
    """
    cache = str(tmp_path / "neff")
    first, second = (
        run_python(code, TORCH_NEURONX_NEFF_CACHE_DIR=cache).splitlines() for _ in range(2)
    )
    cold, warm = json.loads(first[0]), json.loads(second[0])
    assert cold["compilations"] > 0 and cold["compile_seconds"] > 0
    assert warm["compilations"] == 0 and warm["disk_hits"] == cold["compilations"]
    assert first[1:5] == [str(cold["compilations"]), "False", "False", "True"]
    assert second[1:5] == ["None", "True", "True", "False"]  # LLVM is not even loaded
    found = {name.split(".")[1]: data for name, data in json.loads(first[5]).items()}
    assert list(found) == ["CompilationTime", "NeffSize", "MemoryUsage"]
    for data in found.values():
        values = [value for _, value in data["samples"]]
        assert data["total_samples"] == len(values) == cold["compilations"]
        assert data["accumulator"] == pytest.approx(sum(values)) and min(values) > 0
    files = [path.stat().st_size for path in (tmp_path / "neff").rglob("*.neff")]
    assert {value for _, value in found["NeffSize"]["samples"]} <= set(files)
    assert list(json.loads(second[5])) == ["CompilationCache.MemoryUsage"]
    for lines in (first, second):
        assert lines[6] == "[] [] True"
        assert lines[7:9] == ["False [] []", "True [] []"]
        assert "CompilationCache.InMemoryMisses" in lines[9]
