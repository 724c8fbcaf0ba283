"""What any platform must do: devices, memory, queues, events, executables.

The suite speaks to the driver of this process through ``_C.platform`` and knows nothing of what is
under it, except the platform's name. ``TORCH_NEURONX_TEST_PLATFORM`` names the one that is tested.
"""

from __future__ import annotations

import os
import struct
import threading

import pytest
import torch  # noqa: F401 (the extension needs torch loaded)

from torch_neuronx import _C

P = _C.platform
PLATFORM = os.environ.get("TORCH_NEURONX_TEST_PLATFORM", "host")

ADD = """graph @add {
  %0 = parameter {index=0, strides=[1]} : f32[4]
  %1 = parameter {index=1, strides=[1]} : f32[4]
  %2 = add(%0, %1) : f32[4]
  return %2 {strides=[1]}
}
"""
SCALE = """graph @scale {
  %0 = parameter {index=0, strides=[1]} : f32[4]
  %1 = scalar {index=0} : f64[]
  %2 = convert(%1) : f32[]
  %3 = broadcast_in_dim(%2) {dims=[]} : f32[4]
  %4 = multiply(%0, %3) : f32[4]
  return %4 {strides=[1]}
}
"""
TAKE = """graph @take {
  %0 = parameter {index=0, strides=[1]} : f32[4]
  %1 = parameter {index=1, strides=[1]} : i64[2]
  %2 = take(%0, %1) {dim=0} : f32[2]
  return %2 {strides=[1]}
}
"""


@pytest.fixture
def device():
    return P.device(0)


@pytest.fixture
def queue(device):
    queue = device.queue()
    yield queue
    queue.synchronize()


def floats(*values: float) -> bytes:
    return struct.pack(f"{len(values)}f", *values)


def test_names():
    assert P.driver_name() == PLATFORM
    assert P.fingerprint()
    assert P.device_count() >= 1
    for index in range(P.device_count()):
        assert P.device(index).index() == index
        assert P.device(index).name()
        assert P.device(index).total_memory() > 0


@pytest.mark.parametrize("index", [-1, 1000])
def test_device_out_of_range(index):
    with pytest.raises(IndexError, match=str(index)):
        P.device(index)


def test_memory_is_counted_and_aligned(device):
    before = device.used_memory()
    blocks = [device.allocate(size) for size in (1, 255, 256, 4097, 1 << 20)]
    assert len(set(blocks)) == len(blocks)
    assert all(block % 256 == 0 and block != 0 for block in blocks)
    assert device.used_memory() - before == 1 + 255 + 256 + 4097 + (1 << 20)
    for block in blocks:
        device.free(block)
    assert device.used_memory() == before


def test_memory_is_limited(device):
    with pytest.raises(torch.OutOfMemoryError, match="bytes"):
        device.allocate(device.total_memory() + 1)
    # It is reserved lazily: half of the HBM can be handed out on any machine.
    block = device.allocate(device.total_memory() // 2)
    with pytest.raises(torch.OutOfMemoryError):
        device.allocate(device.total_memory())
    device.free(block)


def test_bad_memory_requests(device):
    with pytest.raises(ValueError, match="0 bytes"):
        device.allocate(0)
    with pytest.raises(ValueError, match="not allocated"):
        device.free(12345)


@pytest.mark.parametrize("size", [1, 1000, 100_000, 9_000_001])
def test_copies(device, queue, size):
    data = bytes(i % 251 for i in range(size))
    a, b = device.allocate(size), device.allocate(size)
    queue.copy_to_device(a, data)
    queue.copy_on_device(b, a, size)
    queue.fill(a, 7, size)
    assert queue.copy_from_device(b, size) == data
    assert queue.copy_from_device(a, size) == b"\x07" * size
    assert queue.copy_from_device(b + size // 2, size - size // 2) == data[size // 2 :]
    device.free(a)
    device.free(b)


def test_copy_between_cores(queue, device):
    if P.device_count() < 2:
        pytest.skip("one core")
    other = P.device(1)
    a, b = device.allocate(16), other.allocate(16)
    queue.copy_to_device(a, b"0123456789abcdef")
    queue.copy_on_device(b, a, 16)
    assert queue.copy_from_device(b, 16) == b"0123456789abcdef"
    device.free(a)
    other.free(b)


def test_order_with_many_tasks(queue):
    seen = []
    for i in range(3000):
        queue.enqueue(lambda i=i: seen.append(i))
    queue.synchronize()
    assert seen == list(range(3000))
    assert queue.idle()


def test_submission_does_not_wait_and_synchronize_does(queue):
    gate = threading.Event()
    seen = []
    queue.enqueue(lambda: (gate.wait(), seen.append("worker")))
    assert not queue.idle()
    seen.append("caller")
    gate.set()
    queue.synchronize()
    assert seen == ["caller", "worker"]


def test_cheap_work_does_not_overtake(device, queue):
    block = device.allocate(4)
    gate = threading.Event()
    queue.enqueue(gate.wait)
    queue.fill(block, 1, 4)
    queue.fill(block, 2, 2)
    gate.set()
    assert queue.copy_from_device(block, 4) == b"\x02\x02\x01\x01"
    device.free(block)


def test_several_threads_submit(queue):
    seen = []

    def submit(name):
        for i in range(300):
            queue.enqueue(lambda i=i: seen.append((name, i)))

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.synchronize()
    assert len(seen) == 1200


def test_failure_is_kept_raised_once_and_work_goes_on(queue):
    seen = []

    def fail():
        raise ValueError("the first")

    queue.enqueue(fail)
    queue.enqueue(lambda: seen.append(1))
    queue.enqueue(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="the first"):
        queue.synchronize()
    assert seen == [1]
    queue.synchronize()


@pytest.mark.parametrize("before", [True, False], ids=["already failed", "yet to fail"])
def test_failure_follows_events_and_is_raised_once(device, queue, before):
    other, event, gate = device.queue(0), device.event(), threading.Event()
    if before:
        gate.set()

    def fail():
        gate.wait()
        raise ValueError("the first")

    queue.enqueue(fail)
    queue.record(event)
    if before:
        event.wait()
    other.wait_for(event)
    gate.set()
    with pytest.raises(RuntimeError, match="the first"):
        other.synchronize()
    queue.synchronize()
    queue.record(event)
    other.wait_for(event)
    other.synchronize()


def test_events(device, queue):
    event = device.event(timing=True)
    assert event.query() and event.time() == 0
    event.wait()
    gate = threading.Event()
    queue.enqueue(gate.wait)
    queue.record(event)
    assert not event.query()
    gate.set()
    event.wait()
    assert event.query() and event.time() > 0
    first = event.time()
    queue.record(event)
    event.wait()
    assert event.time() >= first


def test_queues_wait_for_each_other(device, queue):
    other = device.queue(-1)
    event = device.event()
    gate = threading.Event()
    seen = []
    queue.enqueue(lambda: (gate.wait(), seen.append("first")))
    queue.record(event)
    other.wait_for(event)
    other.enqueue(lambda: seen.append("second"))
    gate.set()
    other.synchronize()
    assert seen == ["first", "second"]


def test_event_may_die_before_the_queue_reaches_it(device, queue):
    gate = threading.Event()
    queue.enqueue(gate.wait)
    event = device.event()
    queue.record(event)
    del event
    gate.set()
    queue.synchronize()


def run(device, queue, graph, inputs, output_bytes, scalars=(), **context):
    executable = P.compile(graph)
    assert executable.num_operands() == len(inputs) + 1
    assert executable.num_scalars() == len(scalars)
    blocks = [device.allocate(len(data)) for data in inputs] + [device.allocate(output_bytes)]
    operands = list(blocks)
    if executable.scratch_bytes():
        operands.append(device.allocate(executable.scratch_bytes()))
    for block, data in zip(blocks, inputs, strict=False):
        queue.copy_to_device(block, data)
    try:
        queue.launch(executable, operands, list(scalars), **context)
        return queue.copy_from_device(blocks[-1], output_bytes)
    finally:
        for block in operands:
            device.free(block)


def test_executable(device, queue):
    out = run(device, queue, ADD, [floats(1, 2, 3, 4), floats(10, 20, 30, 40)], 16)
    assert out == floats(11, 22, 33, 44)


def test_scalars_are_given_at_launch(device, queue):
    for factor in (0.5, -3.0):
        (word,) = struct.unpack("Q", struct.pack("d", factor))
        out = run(device, queue, SCALE, [floats(1, 2, 3, 4)], 16, [word])
        assert out == floats(*(factor * x for x in (1, 2, 3, 4)))


def test_failing_launch_says_what_and_where(device, queue):
    assert P.compile(TAKE).can_fail()
    good = run(device, queue, TAKE, [floats(1, 2, 3, 4), struct.pack("2q", 3, 0)], 8)
    assert good == floats(4, 1)
    with pytest.raises(IndexError) as error:
        run(
            device,
            queue,
            TAKE,
            [floats(1, 2, 3, 4), struct.pack("2q", 3, 9)],
            8,
            op="aten::take",
            arguments="f32[4], i64[2]",
            call_site="train.py:7 in step",
        )
    text = str(error.value)
    assert "index 9 is out of bounds for dimension with size 4" in text
    assert "aten::take(f32[4], i64[2])" in text
    assert "train.py:7 in step" in text


def test_bad_graph_is_refused():
    with pytest.raises(ValueError, match="line"):
        P.compile("graph @nonsense {")
