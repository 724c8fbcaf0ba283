"""Streams and events."""

from __future__ import annotations

from typing import Any

import torch

from .._C import device as _C
from ._device import DeviceLike, checked_index


class Stream(torch.Stream):
    """A queue of a NeuronCore. ``priority``: smaller is sooner, 0 is normal."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(
            cls, torch.device("neuron", checked_index(device)), priority=priority
        )

    @property
    def priority(self) -> int:
        """-1: high, 0: normal."""
        return _C.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest): the priorities that there are."""
        return (0, -1)

    def wait_event(self, event: torch.Event) -> None:
        event.wait(self)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        event = Event() if event is None else event
        event.record(self)
        return event


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(metaclass=_EventType):
    """A point in a stream's order. ``enable_timing`` lets ``elapsed_time`` work (milliseconds).

    Makes a ``torch.Event``: its methods refuse events of a subclass.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event(
            torch.device("neuron"),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


def _wrap(stream: torch.Stream, stream_id: int) -> Stream:
    return Stream(
        stream_id=stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def current_stream(device: DeviceLike = None) -> Stream:
    stream = torch.accelerator.current_stream(torch.device("neuron", checked_index(device)))
    return _wrap(stream, stream.stream_id)


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that is current unless another was set: number 0 of its device."""
    stream = torch.accelerator.current_stream(torch.device("neuron", checked_index(device)))
    return _wrap(stream, 0)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream, and its device, current for the calling thread; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream, and its device, current; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[torch.Stream, int]] = []

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            device = torch.accelerator.current_device_index()
            self._previous.append((current_stream(self.stream.device), device))
            torch.accelerator.set_stream(self.stream)
        return self.stream

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            stream, device = self._previous.pop()
            torch.accelerator.set_stream(stream)
            torch.accelerator.set_device_index(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Makes a stream current inside a ``with`` block."""
    return StreamContext(stream)


def wait_stream(stream: torch.Stream) -> None:
    """Later work of the current stream waits for what ``stream`` has now."""
    current_stream().wait_stream(stream)


def wait_event(event: torch.Event) -> None:
    """Later work of the current stream waits for ``event``."""
    current_stream().wait_event(event)


def record_event(event: torch.Event | None = None) -> torch.Event:
    """Records ``event``, or a new one, on the current stream."""
    return current_stream().record_event(event)


def query() -> bool:
    """Whether the current stream has nothing left to do."""
    return current_stream().query()
