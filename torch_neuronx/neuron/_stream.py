"""Streams and events."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ._device import DeviceLike, checked_index


class Stream(torch.Stream):
    """A queue of a NeuronCore. ``priority``: smaller is sooner, 0 is normal."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("neuron", checked_index(device)), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        event.wait(self)

    def record_event(self, event: Optional[torch.Event] = None) -> torch.Event:
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(torch.Event):
    """A point in a stream's order. ``enable_timing``: lets :meth:`elapsed_time` work (milliseconds)."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        return super().__new__(
            cls, torch.device("neuron"), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    return _wrap(torch.accelerator.current_stream(torch.device("neuron", checked_index(device))))


def default_stream(device: DeviceLike = None) -> Stream:
    index = checked_index(device)
    return Stream(stream_id=0, device_index=index, device_type=torch._C._get_accelerator_type_id())


def set_stream(stream: Optional[torch.Stream]) -> None:
    """Makes a stream current for the calling thread and its device; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream, and its device, current; None changes nothing."""

    def __init__(self, stream: Optional[torch.Stream]) -> None:
        self.stream = stream
        self._previous: list[torch.Stream] = []
        self._device = -1

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._device = torch.accelerator.current_device_index()
        self._previous.append(current_stream(self.stream.device))
        torch.accelerator.set_stream(self.stream)

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is None:
            return
        torch.accelerator.set_stream(self._previous.pop())
        torch.accelerator.set_device_index(self._device)


def stream(stream: Optional[torch.Stream]) -> StreamContext:
    return StreamContext(stream)
