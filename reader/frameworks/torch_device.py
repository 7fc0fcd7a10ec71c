"""Copies of batches to a device of torch, on a side stream: CUDA, or any accelerator it knows.

Imports torch and LoDTensorArray. A device is one loader's; its stream and events are made once.
Source: the documentation of torch.Stream, torch.Event, Tensor.record_stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from reader._core.batch.tensor import Origin
from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.page_locking import page_locker
from reader.frameworks.torch import field_dtype, tensor_of
from reader.places import Place

__all__ = ["TorchDevice", "missing_device", "torch_device"]

WHOLE_NBYTES = 1 << 20  # a slot up to this size is copied in one piece
SMALL_NBYTES = 1 << 16  # in a larger one, neighbouring fields of up to this size are


def torch_device(place: Place) -> torch.device:
    """Return torch's device for a place."""
    return torch.device("cuda" if place.kind == "gpu" else place.kind, place.index or 0)


def missing_device(place: Place) -> str | None:
    """Return why batches cannot go to a device; None: they can."""
    version = f"torch {torch.__version__}"
    if not hasattr(torch.Stream, "__enter__"):
        return f"{version} cannot copy batches to devices: torch 2.7 or later is needed"
    if place.kind == "gpu_pinned":
        if torch.accelerator.is_available():
            return None
        return f"{version} finds no accelerator here, which {str(place)!r} needs"
    try:
        device = torch_device(place)
        module: Any = torch.get_device_module(device)
    except (RuntimeError, AttributeError):
        return f"{version} knows no device {str(place)!r}"
    if place.kind == "gpu" and not module.is_available():
        return f"{version} finds no CUDA device for {str(place)!r} here"
    count = module.device_count() if hasattr(module, "device_count") else 0
    if not count or not hasattr(module, "current_device"):
        return f"{version} knows no accelerator {place.kind!r} that batches could be copied to"
    if (place.index or 0) >= count:  # torch.device has an 8-bit number: 256 would become 0
        return f"{version} finds {count} devices {place.kind!r} here, numbered from 0"
    return None


class TorchDevice:
    """One device, and the stream of one loader for copies to it.

    Args:
        place: of the device; `missing_device` has checked it.
        keeps_arrays: whether fields that a worker sent as NumPy arrays stay such.
    """

    frees_in_order = True  # the allocator has a pool for each stream

    def __init__(self, place: Place, keeps_arrays: bool = False) -> None:
        self.device = torch_device(place)
        self._is_cuda = self.device.type == "cuda"
        self.locker = page_locker(place.kind)
        self._keeps_arrays = keeps_arrays
        self._stream: Any = None  # made with the first batch, which starts the device

    def is_capturing(self) -> bool:
        """Whether the current stream of CUDA captures a graph."""
        return self._is_cuda and torch.cuda.is_current_stream_capturing()

    def make_event(self) -> Any:
        """Return an event of the device."""
        return torch.Event(device=self.device)

    def record(self, event: Any) -> None:
        """Record an event behind all copies so far."""
        event.record(self._copies())

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed an event."""
        return bool(event.query())

    def wait(self, event: Any) -> None:
        """Wait in this thread until the device has passed an event."""
        event.synchronize()

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:
        """Make the current stream of the device wait, and record that it uses the tensors."""
        current = torch.accelerator.current_stream(self.device)
        if event is not None:
            current.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(current)

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch; see Device."""
        stream = self._copies()
        with stream:
            fields = self._copy_fields(batch, tensors)
            event.record(stream)
        return batch.place_fields(fields)

    def _copies(self) -> Any:
        if self._stream is None:
            self._stream = torch.Stream(device=self.device)
        return self._stream

    def _copy_fields(self, batch: LoDTensorArray, sent: list[Any]) -> list[Any]:
        """Return the fields on the device; `sent` gets the tensors that own their memory."""
        types, layout = batch.types, batch.layout()
        schema = batch.schema
        origins = None if schema is None or not self._keeps_arrays else schema.origins
        dtypes: list[Any] = [
            None if origins and origins[i] == Origin.ORIGIN_ARRAY else field_dtype(each)
            for i, each in enumerate(types)
        ]
        fields: list[Any] = [None] * len(types)
        arrays = None
        spans = [] if layout is None else _spans(layout, dtypes)
        for begin, end, indices in spans:
            source = torch.from_numpy(batch.slot_bytes(begin, end))
            bytes_ = torch.empty(end - begin, dtype=torch.uint8, device=self.device)
            sent.append(bytes_)
            bytes_.copy_(source, non_blocking=True)
            for i in indices:
                at, nbytes, shape = layout[i]  # type: ignore[index]
                part = bytes_ if end - begin == nbytes else bytes_[at - begin : at - begin + nbytes]
                # `data` gives each its own version: writes to other fields do not count for it
                fields[i] = part.view(dtypes[i]).view(shape).data
        for i, dtype in enumerate(dtypes):
            if fields[i] is not None:
                continue
            arrays = batch.storage_fields() if arrays is None else arrays
            if dtype is None:
                fields[i] = _own_array(arrays[i], types[i])
                continue
            name = types[i].name if types[i].extended else None
            source = tensor_of(arrays[i], name)
            fields[i] = torch.empty(source.shape, dtype=source.dtype, device=self.device)
            sent.append(fields[i])
            fields[i].copy_(source, non_blocking=True)
        return fields


def _spans(
    layout: list[tuple[int, int, tuple[int, ...]]], dtypes: list[Any]
) -> list[tuple[int, int, list[int]]]:
    """Return the pieces to copy: begin and end in the slot, and the fields.

    A field keeps its whole piece alive, so a large field is copied alone.
    """
    made: list[tuple[int, int, list[int]]] = []
    known = [i for i, dtype in enumerate(dtypes) if dtype is not None and layout[i][1]]
    total = sum(layout[i][1] for i in known)
    most = WHOLE_NBYTES if total <= WHOLE_NBYTES else SMALL_NBYTES
    can_join = False
    for i in known:
        at, nbytes, _ = layout[i]
        is_small = nbytes <= most
        gap = at - made[-1][1] if made else 0
        if can_join and is_small and gap <= 64 and at + nbytes - made[-1][0] <= WHOLE_NBYTES:
            begin, _, indices = made[-1]
            made[-1] = begin, at + nbytes, [*indices, i]
        else:
            made.append((at, at + nbytes, [i]))
        can_join = is_small
    return made


def _own_array(array: Any, its_type: Any) -> Any:
    """Return a copy of a field whose type torch lacks: it holds no slot."""
    own = np.array(array)
    return own.view(its_type.numpy_dtype()) if its_type.extended else own
