"""Copies of batches to a device of Paddle, on a side stream: CUDA, or a plug-in device.

Imports paddle and LoDTensorArray. A device is one loader's; its stream and events are made once.
Paddle allocates without regard to streams: a block that the user freed may be handed out while
kernels still use it. So a copy waits, on the device, for the current work of the user's stream.
Source: paddle.device, and buffered_reader of Paddle's own loader.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import paddle
from paddle.base import core, framework
from paddle.base.dygraph.tracer import Tracer

from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.paddle import PaddleForm, tensor_fields
from reader.frameworks.paddle_version import DenseTensor, is_capturing
from reader.frameworks.page_locking import page_locker
from reader.places import Place

__all__ = ["PaddleDevice", "make_pinned_adapter", "missing_place", "paddle_place"]


def missing_place(place: Place) -> str | None:
    """Return why batches cannot go to a device, or None; begins with Paddle's words."""
    if place.kind in ("gpu", "gpu_pinned"):
        if not core.is_compiled_with_cuda():
            return (
                f"The device should not be {place}, since PaddlePaddle is not compiled with CUDA:"
                " install paddlepaddle-gpu for it"
            )
        count = paddle.device.cuda.device_count()  # asked first: CUDAPlace would abort the process
        if not count:
            return f"PaddlePaddle finds no CUDA device for {str(place)!r} here"
    else:
        kinds = core.get_all_custom_device_type()
        if place.kind not in kinds:
            known = f"plug-in devices here: {', '.join(kinds) or 'none'}"
            return f"PaddlePaddle has no device {str(place)!r} ({known})"
        count = core.get_custom_device_count(place.kind)
    if place.index is not None and place.index >= count:
        return f"PaddlePaddle finds {count} devices {place.kind!r} here, numbered from 0"
    return None


def paddle_place(place: Place) -> Any:
    """Return Paddle's object of an existing place."""
    if place.kind == "cpu":
        return core.CPUPlace()
    if place.kind == "gpu_pinned":
        return core.CUDAPinnedPlace()
    if place.kind == "gpu":
        return core.CUDAPlace(place.index or 0)
    return core.CustomPlace(place.kind, place.index or 0)


def make_pinned_adapter(form: PaddleForm) -> Callable[[LoDTensorArray], Any]:
    """Return the function that copies a batch into Paddle's page-locked memory."""
    copies = Copies(core.CUDAPinnedPlace(), is_blocking=True)
    return functools.partial(form.form, copies.tensors, copies.dense)


class Copies:
    """Copies fields of batches to a place of Paddle.

    Args:
        place: the target.
        is_blocking: whether a copy is done when it returns; if not, it is on the current stream.
    """

    def __init__(self, place: Any, is_blocking: bool) -> None:
        self._place = place
        self._is_blocking = is_blocking
        self._tracer: Any = None  # static mode copies through a tracer of dynamic mode

    def tensors(
        self,
        batch: LoDTensorArray,
        shapes: Mapping[int, tuple[int, ...]] | None = None,
        bits: Container[int] = (),
        made: list[Any] | None = None,
        widens: bool = True,
    ) -> list[Any]:
        """Return the fields as Tensors there, or as arrays if Paddle lacks the type.

        Args:
            batch: whose fields are copied.
            shapes: see `dense_fields`.
            bits: see there.
            widens: see there.
            made: gets each Tensor as soon as it exists.
        """
        fields: list[Any] = []
        for field in tensor_fields(batch, shapes, bits, widens):
            if isinstance(field, np.ndarray):
                fields.append(np.array(field))  # a copy that holds no slot
                continue
            fields.append(field._copy_to(self._place, self._is_blocking))
            if made is not None:
                made.append(fields[-1])
        return fields

    def dense(
        self,
        batch: LoDTensorArray,
        shapes: Mapping[int, tuple[int, ...]] | None = None,
        bits: Container[int] = (),
        made: list[Any] | None = None,
    ) -> list[Any]:
        """Return the fields as DenseTensors there; see `tensors`."""
        if self._tracer is None:
            self._tracer = Tracer()  # type: ignore[no-untyped-call]
        with framework._dygraph_guard(self._tracer):
            fields = self.tensors(batch, shapes, bits, made, widens=False)
        return [each if isinstance(each, np.ndarray) else _owned(each) for each in fields]


class PaddleDevice:
    """One device, and the stream of one loader for copies to it.

    Args:
        place: of the device; `missing_place` has checked it.
        form: of the batches.
    """

    frees_in_order = False

    def __init__(self, place: Place, form: PaddleForm) -> None:
        self.locker = page_locker(place.kind)
        self._place = paddle_place(place)
        self._is_cuda = place.kind == "gpu"
        self._form = form
        self._copies = Copies(self._place, is_blocking=False)
        self._guard: Any = None  # Paddle's guard of the stream; made with the first batch
        self._before: Any = None  # an event on the user's stream

    def is_capturing(self) -> bool:
        """Whether CUDA captures a graph for Paddle."""
        return self._is_cuda and is_capturing()

    def make_event(self) -> Any:
        """Return an event of the device."""
        return core.CUDAEvent() if self._is_cuda else core.CustomDeviceEvent(self._place)

    def record(self, event: Any) -> None:
        """Record an event behind all copies so far."""
        event.record(self._side().stream_base)

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed an event."""
        return bool(event.query())

    def wait(self, event: Any) -> None:
        """Wait in this thread until the device has passed an event."""
        event.synchronize()

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:  # noqa: ARG002
        """Make the user's stream of the device wait; it frees in the order of its work."""
        if event is not None:
            self._current().wait_event(event)

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch; see Device."""
        make_tensors = functools.partial(self._copies.tensors, made=tensors)
        make_dense = functools.partial(self._copies.dense, made=tensors)
        stream = self._side()
        self._before.record(self._current())
        stream.stream_base.wait_event(self._before)
        with paddle.device.stream_guard(stream):
            value = self._form.form(make_tensors, make_dense, batch)
            event.record(stream.stream_base)
        return value

    def _side(self) -> Any:
        if self._guard is None:
            kind: Any = core.CUDAStream if self._is_cuda else core.CustomDeviceStream
            stream = kind(self._place)
            self._before = self.make_event()
            self._guard = paddle.device.Stream(self._place, stream_base=stream)
        return self._guard

    def _current(self) -> Any:
        return paddle.device.current_stream(self._place).stream_base


def _owned(tensor: Any) -> Any:
    """Return a DenseTensor that shares a Tensor's memory; the Tensor's own dies with it."""
    made = DenseTensor()
    made._share_data_with(tensor.get_tensor())
    return made
