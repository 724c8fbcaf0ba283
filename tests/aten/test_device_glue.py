"""What connects PyTorch with the device: guard, streams, storages, copies, pinned memory."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torch_neuronx

REALS = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
COMPUTED = [*REALS, torch.complex64, torch.complex128]
STORED = [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]
PLACES = ["cpu", "neuron:0", "neuron:1"]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def first_device():
    torch.accelerator.set_device_index(0)
    yield
    torch.accelerator.set_device_index(0)


# Devices and the guard


def test_accelerator_is_neuron():
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.is_available()
    assert torch.device("neuron", 1) == torch.device("neuron:1")
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="neuron").device.index == 1
        assert torch.empty(1, device="neuron:0").device.index == 0
    assert torch.accelerator.current_device_index() == 0


def test_capability_lists_what_the_device_computes_with():
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert set(COMPUTED) <= supported
    assert torch.qint8 not in supported and torch.float8_e4m3fn not in supported


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(1, device="neuron:99"),
        lambda: torch.ones(1).to("neuron:99"),
        lambda: torch.Generator("neuron:99"),
        lambda: torch.Stream("neuron:99"),
        lambda: torch.accelerator.set_device_index(99),
        lambda: torch.accelerator.get_device_capability(99),
    ],
)
def test_a_device_that_does_not_exist_is_refused(make):
    with pytest.raises((IndexError, ValueError)):
        make()
    assert torch.accelerator.current_device_index() == 0


def test_ops_run_on_their_tensors_device():
    x = torch.arange(6.0, device="neuron:1").reshape(2, 3)
    assert (x.t() + 1).contiguous().device.index == 1
    assert torch.accelerator.current_device_index() == 0


# Streams and events


def test_streams_and_events_order_work():
    side = torch.Stream("neuron")
    x = torch.ones(256, 256, device="neuron")
    y = x @ x
    ready = torch.accelerator.current_stream().record_event()
    side.wait_event(ready)
    with side:
        assert torch.accelerator.current_stream() == side
        z = y + 1
        z.record_stream(side)
    done = side.record_event()
    done.synchronize()
    assert done.query() and side.query()
    assert torch.equal(z.cpu(), torch.full((256, 256), 257.0))
    assert torch.accelerator.current_stream() != side


def test_event_time_is_measured_between_completions():
    first, second = (torch.Event("neuron", enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device="neuron")
    first.record()
    for _ in range(5):
        x = x @ x * 1e-3
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) > 0
    assert second.elapsed_time(first) < 0


def test_event_of_one_device_is_waited_for_on_another():
    x = torch.ones(256, 256, device="neuron:0")
    y = x @ x
    event = torch.accelerator.current_stream(0).record_event()
    torch.accelerator.current_stream(1).wait_event(event)
    assert torch.equal(y.to("neuron:1").cpu(), torch.full((256, 256), 256.0))


def test_memory_of_another_stream_is_not_reused_early():
    side = torch.Stream("neuron")
    x = torch.full((MIB,), 3.0, device="neuron")
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        for _ in range(4):
            y = x * 2
    x.record_stream(side)
    del x
    torch.full((MIB,), 7.0, device="neuron")
    side.synchronize()
    assert y.eq(6).all().item()


# Generators


def test_generator_state():
    generator = torch.Generator("neuron").manual_seed(2**63 + 5)
    generator.set_offset(24)
    state = generator.get_state()
    assert (state.dtype, state.numel()) == (torch.uint8, 16)
    assert state.view(torch.uint64).tolist() == [2**63 + 5, 24]
    other = torch.Generator("neuron")
    other.set_state(state)
    assert (other.initial_seed(), other.get_offset()) == (generator.initial_seed(), 24)
    other.set_state(torch.tensor([7]).view(torch.uint8))
    assert (other.initial_seed(), other.get_offset()) == (7, 0)
    for size in (0, 3, 15, 17, 24):
        with pytest.raises(RuntimeError, match="RNG state is wrong size"):
            other.set_state(torch.zeros(size, dtype=torch.uint8))
    clone = generator.clone_state()
    clone.manual_seed(1)
    assert generator.get_offset() == 24


def test_generators_of_threads_never_share_counters():
    generator = torch.Generator("neuron").manual_seed(0)
    drawn: list[torch.Tensor] = []

    def draw():
        for _ in range(20):
            drawn.append(torch.rand(64, device="neuron", generator=generator).cpu())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(values.tolist()) for values in drawn}) == 80


def test_a_cpu_generator_is_refused():
    with pytest.raises(RuntimeError, match="neuron"):
        torch.rand(3, device="neuron", generator=torch.Generator())


# Storages and views


def test_resize_keeps_what_fits():
    x = torch.arange(4.0, device="neuron")
    x.resize_(1000)
    assert x[:4].tolist() == [0, 1, 2, 3]
    assert x.resize_(2).tolist() == [0, 1]
    y = torch.empty(0, device="neuron").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    storage = x.untyped_storage()
    storage.resize_(0)
    storage.resize_(8)
    x.fill_(5)
    assert x.tolist() == [5, 5]


def test_set_shares_a_storage():
    x = torch.arange(12.0, device="neuron")
    y = torch.empty(0, device="neuron")
    y.set_(x.untyped_storage(), 2, (2, 3), (5, 1))
    assert y.tolist() == [[2, 3, 4], [7, 8, 9]]
    y.zero_()
    assert x.sum().item() == 33
    y.set_(x)
    assert y.data_ptr() == x.data_ptr()
    y.set_()
    assert y.numel() == 0 and y.device.type == "neuron"
    with pytest.raises(RuntimeError, match="device"):
        y.set_(torch.ones(3).untyped_storage())
    with pytest.raises(RuntimeError, match="device"):
        y.set_(torch.ones(3, device="neuron:1"))


def test_views_share_memory():
    x = torch.arange(24, dtype=torch.int32, device="neuron").reshape(2, 3, 4)
    host = x.cpu()
    for view in (
        lambda t: t.view(6, 4),
        lambda t: t.unfold(2, 2, 1),
        lambda t: t.as_strided((2, 2), (12, 1), 3),
        lambda t: t.view(torch.int8),
        lambda t: t.diagonal(dim1=1, dim2=2),
        lambda t: t.movedim(0, 2).detach(),
        lambda t: torch.view_as_complex(t.view(torch.float32).view(2, 3, 2, 2)).real,
    ):
        seen, expected = view(x), view(host)
        assert seen.stride() == expected.stride()
        assert seen.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert torch.equal(seen.cpu(), expected)


def test_only_sparse_and_nested_views_lack_a_kernel():
    keys = ("PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    missing = set()
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.partition(".")
        if not name.startswith("aten::") or not torch._C._dispatch_has_kernel(name):
            continue
        aliases = [r.alias_info for r in torch._C._get_schema(base, overload).returns]
        if any(a is not None and not a.is_write for a in aliases) and not any(
            torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys
        ):
            missing.add(base)
    assert all(any(k in n for k in ("nested", "sparse", "values", "indices")) for n in missing)


# Copies


def arranged(t: torch.Tensor, how: str) -> torch.Tensor:
    if t.dim() == 0 or how == "plain":
        return t
    return {
        "transposed": lambda: t.transpose(0, -1),
        "strided": lambda: t[..., ::2],
        "offset": lambda: t[t.shape[0] // 2 :],
        "broadcast": lambda: t[..., :1].expand_as(t),
    }[how]()


LAYOUTS = st.sampled_from(["plain", "transposed", "strided", "offset", "broadcast"])


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.sampled_from([0, 1, 2, 3, 7, 33]), max_size=3),
    dtypes=st.tuples(st.sampled_from(COMPUTED), st.sampled_from(COMPUTED)),
    places=st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)),
    layout=LAYOUTS,
    reverse=st.booleans(),
    non_blocking=st.booleans(),
)
def test_copies_are_those_of_the_cpu(shape, dtypes, places, layout, reverse, non_blocking):
    count = torch.Size(shape).numel()
    # Values that every dtype holds: what others convert to is not defined.
    base = (torch.arange(count) % 100).reshape(shape).to(dtypes[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex to real
        expected = arranged(base, layout).to(dtypes[1])
    source = arranged(base.to(places[0]), layout)
    out = torch.empty(expected.shape[::-1] if reverse else expected.shape, dtype=dtypes[1])
    out = out.to(places[1])
    out = out.permute(tuple(range(out.dim()))[::-1]) if reverse else out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex to real
        out.copy_(source, non_blocking=non_blocking)
    for index in range(2):
        torch.accelerator.synchronize(index)
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("place", ["cpu", "neuron"])
@pytest.mark.parametrize("bits", ["conj", "neg", "both"])
def test_lazy_conjugation_and_negation(place, bits):
    lazy = {
        "conj": lambda t: t.conj(),
        "neg": lambda t: t._neg_view(),
        "both": lambda t: t.conj()._neg_view(),
    }[bits]
    x = torch.randn(3, 4, dtype=torch.complex64)
    y = x.to("neuron")
    assert torch.equal(lazy(y).cpu(), lazy(x).resolve_conj().resolve_neg())
    assert torch.equal(lazy(y.t()).clone().cpu(), lazy(x.t()))
    assert lazy(y)[1, 2].item() == lazy(x)[1, 2].item()
    assert torch.equal(lazy(y).to("neuron:1").cpu(), lazy(x))
    expected = torch.zeros(3, 4, dtype=torch.complex64)
    lazy(expected).copy_(x)
    out = torch.zeros(3, 4, dtype=torch.complex64, device=place)
    lazy(out).copy_(y)
    assert torch.equal(out.cpu(), expected)
    lazy(y).copy_(y.clone())
    assert torch.equal(y.cpu(), expected)
    assert lazy(y[:0]).clone().shape == (0, 4)


def test_negated_reals_and_unsigned_sources():
    expected = torch.zeros(3, dtype=torch.complex64)
    out = expected.to("neuron")
    source = torch.tensor([1, 2, 255], dtype=torch.uint8)
    for tensor in (expected, out):
        tensor.conj().imag.copy_(source.to(tensor.device))
    assert torch.equal(out.cpu(), expected)
    assert torch.equal(out.conj().imag.cpu(), torch.tensor([1.0, 2.0, 255.0]))


def test_overlapping_copies_read_before_they_write():
    for make in (
        lambda t: (t[1:], t[:-1]),
        lambda t: (t, t.flip(0)),
        lambda t: (t[:6].view(2, 3), t[3:9].view(3, 2).t()),
    ):
        host = torch.arange(10.0)
        device = host.to("neuron")
        target, source = make(host)
        target.copy_(source.clone())
        target, source = make(device)
        target.copy_(source)
        assert torch.equal(device.cpu(), host)
    x = torch.tensor([1 + 2j, 3 + 4j], device="neuron")
    x.copy_(x.imag)
    assert x.tolist() == [2, 4]


def test_a_strided_copy_needs_no_second_buffer():
    x = torch.ones(1024, 2048, device="neuron")
    x[:, ::2].contiguous()
    torch.accelerator.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    result = x[:, ::2].contiguous()
    assert torch.accelerator.max_memory_allocated() - before == result.nbytes


@pytest.mark.filterwarnings("ignore:aten..copy_ is not lowered")
@pytest.mark.parametrize("dtype", STORED)
def test_dtypes_that_are_only_stored(dtype):
    x = torch.arange(12).reshape(3, 4).to(torch.float32).to(dtype)
    y = x.to("neuron")
    assert torch.equal(y.cpu().view(torch.uint8), x.view(torch.uint8))
    assert torch.equal(y.t().contiguous().cpu().float(), x.t().float())
    assert torch.equal(y.float().cpu(), x.float())
    assert torch.equal(torch.arange(4.0, device="neuron").to(dtype).cpu().float(), x[0].float())
    assert torch.equal(y[:, ::2].to("neuron:1").cpu().float(), x[:, ::2].float())


def test_float8_conversion_is_a_visible_fallback():
    torch_neuronx.clear_op_tracking()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(4, device="neuron").to(torch.float8_e4m3fn)
    assert torch_neuronx.get_fallback_counts()["aten::copy_"] == {"calls": 1, "bytes": 20}
    torch_neuronx.clear_op_tracking()


@pytest.mark.parametrize("count", [100, 4 * MIB])
def test_the_source_was_read_when_a_copy_returns(count):
    host = torch.ones(count)
    device = host.to("neuron", non_blocking=True)
    host.zero_()
    assert device.sum(dtype=torch.float64).item() == count


def test_copies_to_other_backends_are_refused():
    x = torch.ones(2, device="neuron")
    assert x.to("meta").device.type == "meta"
    with pytest.raises(RuntimeError):
        x.copy_(torch.ones(2, device="meta"))
    with pytest.raises(RuntimeError, match="expand|must match|shape"):
        x.copy_(torch.ones(3))


# Pinned memory


def test_pinned_memory_is_recognised():
    x = torch.arange(100.0).pin_memory()
    assert x.is_pinned() and x[7:].is_pinned() and x.data_ptr() % 4096 == 0
    assert not torch.ones(3).is_pinned() and not torch.ones(3, device="neuron").is_pinned()
    address = x.data_ptr()
    assert torch.empty(5, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(2, device="neuron").pin_memory()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device="neuron", pin_memory=True)
    assert x.data_ptr() == address
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True)
    assert all(batch.is_pinned() for batch in loader)


@pytest.mark.parametrize("count", [100, MIB])
def test_pinned_memory_outlives_its_tensor(count):
    source = torch.full((count,), 2.0, device="neuron")
    for _ in range(30):
        # Freed while the copy may be under way.
        torch.empty(count, pin_memory=True).copy_(source, non_blocking=True)
    on_device = [
        torch.full((count,), float(i)).pin_memory().to("neuron", non_blocking=True)
        for i in range(10)
    ]
    for i, tensor in enumerate(on_device):
        assert tensor.eq(i).all().item()
    host = torch.empty(count, pin_memory=True)
    host.copy_(source, non_blocking=True)
    torch.accelerator.synchronize()
    assert host.eq(2).all()


# Saving and copying whole tensors


def test_save_load_pickle_and_deepcopy():
    x = torch.arange(12.0, device="neuron:1").reshape(3, 4)
    file = io.BytesIO()
    torch.save({"x": x, "view": x[:, 1]}, file)
    for location, device in ((None, "neuron:1"), ("cpu", "cpu"), ("neuron:0", "neuron:0")):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded["x"].device == torch.device(device)
        assert torch.equal(loaded["view"].cpu(), x[:, 1].cpu())
        assert loaded["view"].untyped_storage().data_ptr() == loaded["x"].data_ptr()
    again = pickle.loads(pickle.dumps(x[::2]))
    assert again.device == x.device and torch.equal(again.cpu(), x[::2].cpu())
    module = torch.nn.Linear(3, 3).to("neuron")
    twin = copy.deepcopy(module)
    assert twin.weight.data_ptr() != module.weight.data_ptr()
    assert torch.equal(twin.weight.cpu(), module.weight.cpu())


# Errors and fallback


def test_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match="neuron:7.*Tried to allocate"):
        torch.empty(1 << 45, dtype=torch.uint8, device="neuron:7")
    assert torch.accelerator.memory_stats(7)["num_ooms"] == 1
    torch.accelerator.reset_accumulated_memory_stats(7)  # other tests count from 0
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty((1 << 62, 1 << 62), device="neuron")
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device="neuron")
    assert torch.empty(0, device="neuron").data_ptr() == 0


def test_gradients_flow_through_fallbacks():
    x = torch.rand(5)
    gradients = []
    for device in ("cpu", "neuron"):
        leaf = x.to(device, copy=True).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.special.i0e(leaf).sum().backward()
        gradients.append(leaf.grad.cpu())
    assert torch.allclose(*gradients)


def test_call_site_is_the_users_even_in_a_folder_named_torch(run_python, tmp_path):
    folder = tmp_path / "torch" / "torch_neuronx" / "examples"
    folder.mkdir(parents=True)
    script = folder / "user.py"
    script.write_text(
        "import torch\ndef step(x=torch.ones(3, device='neuron')):\n"
        "    return torch.ops.aten._add_relu(x, x)\n"
    )
    out = run_python(
        f"""
        import runpy, warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            step = runpy.run_path({str(script)!r})["step"]
            step(), step()
        print([str(w.message) for w in seen if "_add_relu" in str(w.message)])
        """
    )
    assert out.count("runs on the CPU") == 1
    assert f"{script}:3 in step" in out


# Attention's choice


def test_attention_backend():
    q = torch.randn(1, 4, 3, 8, device="neuron")
    fused, unfused = (
        torch.nn.attention.SDPBackend.OVERRIDEABLE.value,
        torch.nn.attention.SDPBackend.MATH.value,
    )
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        assert torch._fused_sdp_choice(q.to(dtype), q.to(dtype), q.to(dtype)) == fused
    assert torch._fused_sdp_choice(q[0], q[0], q[0]) == unfused
    assert torch._fused_sdp_choice(q, q, q, dropout_p=0.5) == fused
    none = q[:, :0]
    assert torch._fused_sdp_choice(q, none, none, enable_gqa=True) == unfused
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, q, q) == unfused


# Forked children


def test_a_forked_child_is_told_to_spawn(run_python):
    out = run_python(
        """
        import os, torch
        torch.ones(2, device="neuron").cpu()
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                torch.ones(2, device="neuron")
                text = "nothing raised"
            except RuntimeError as error:
                text = str(error)
            os.write(write, text.encode())
            os._exit(0)
        os.wait()
        print(os.read(read, 1000).decode())
        """
    )
    assert "spawn" in out
