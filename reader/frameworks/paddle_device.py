"""Copies of batches to a device of Paddle, on a side stream: CUDA, or a plug-in device.

Imports paddle and LoDTensorArray. A device is one loader's; its stream and events are made once.
Paddle allocates without regard to streams: a block that the user freed may be handed out while
kernels still use it. A copy therefore waits, on the device, for what the user's stream has by then.
Source: paddle.device, and buffered_reader of Paddle's own loader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core, framework
from paddle.base.dygraph.tracer import Tracer

from reader._core.tensor_array import LoDTensorArray
from reader.frameworks.paddle import dense_fields, eager_tensors
from reader.frameworks.paddle_feed import FeedPlan
from reader.frameworks.page_locking import page_locker
from reader.places import Place

__all__ = ["PaddleDevice", "missing_place", "paddle_place"]


def missing_place(place: Place) -> str | None:
    """Say why batches cannot go to a place that is not the CPU, or None; begins as Paddle does."""
    if place.kind in ("gpu", "gpu_pinned"):
        if not core.is_compiled_with_cuda():
            return (
                f"The device should not be {place}, since PaddlePaddle is not compiled with CUDA:"
                " install paddlepaddle-gpu for it"
            )
        count = paddle.device.cuda.device_count()  # asked first: CUDAPlace would end the process
        if not count:
            return f"PaddlePaddle finds no CUDA device for {str(place)!r} here"
        if place.kind == "gpu_pinned":
            return (
                "batches go from page-locked memory to CUDAPlace without a stop at CUDAPinnedPlace"
            )
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
    """Return Paddle's place, which exists here."""
    if place.kind == "cpu":
        return core.CPUPlace()
    if place.kind == "gpu_pinned":
        return core.CUDAPinnedPlace()
    if place.kind == "gpu":
        return core.CUDAPlace(place.index or 0)
    return core.CustomPlace(place.kind, place.index or 0)


class PaddleDevice:
    """One device, and the stream of one loader for copies to it.

    In dynamic mode the batch has Tensors in its containers. In static mode: with `return_list`
    DenseTensors in them; else a dict by the names of `feed_list`, in a list for a single place.

    Args:
        place: of the device; `missing_place` has checked it.
        feed_list: the variables of the program, or names.
        return_list: see above.
        is_single: whether it is the only place.
    """

    frees_in_order = False

    def __init__(
        self,
        place: Place,
        feed_list: Sequence[Any] | None = None,
        return_list: bool = True,
        is_single: bool = True,
    ) -> None:
        self.locker = page_locker(place.kind)
        self._place = paddle_place(place)
        self._is_cuda = place.kind == "gpu"
        self._plan = None if feed_list is None else FeedPlan(feed_list)
        self._return_list = return_list
        self._is_single = is_single
        self._tracer: Any = None  # copies in static mode are made by dynamic mode's means
        self._guard: Any = None  # the stream, as Paddle guards it; made with the first batch
        self._before: Any = None  # an event on the user's stream

    def make_event(self) -> Any:
        """Return an event of the device."""
        return core.CUDAEvent() if self._is_cuda else core.CustomDeviceEvent(self._place)

    def record(self, event: Any) -> None:
        """Record an event behind all copies so far."""
        event.record(self._copies().stream_base)

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed an event."""
        return bool(event.query())

    def wait(self, event: Any) -> None:
        """Wait in this thread until the device has passed an event."""
        event.synchronize()

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:  # noqa: ARG002
        """Have the user's stream of the device wait; it frees in the order of its work."""
        if event is not None:
            self._current().wait_event(event)

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch; see Device."""
        is_dynamic = paddle.in_dynamic_mode()
        make = self._dynamic if is_dynamic else self._dense

        def fields(batch: LoDTensorArray, shapes: Mapping[int, tuple[int, ...]] = {}) -> list[Any]:
            return make(batch, dict(shapes), tensors)

        stream = self._copies()
        self._before.record(self._current())
        stream.stream_base.wait_event(self._before)
        with paddle.device.stream_guard(stream):
            value = self._value(batch, is_dynamic, fields)
            event.record(stream.stream_base)
        return value

    def _value(
        self, batch: LoDTensorArray, is_dynamic: bool, fields: Callable[..., list[Any]]
    ) -> Any:
        plan = self._plan
        if is_dynamic or plan is None:
            return batch.place_fields(fields(batch))
        if self._return_list:
            plan.check_count(batch)
            return batch.place_fields(fields(batch))
        feed = plan.feed(batch, fields)
        return [feed] if self._is_single else feed

    def _dynamic(
        self, batch: LoDTensorArray, shapes: dict[int, tuple[int, ...]], sent: list[Any]
    ) -> list[Any]:
        found = dense_fields(batch, shapes)
        is_tensor = [type(each) is not np.ndarray for each in found]
        on_host = iter(
            eager_tensors([f for f, is_it in zip(found, is_tensor, strict=True) if is_it])
        )
        fields = []
        for field, is_it in zip(found, is_tensor, strict=True):
            if is_it:
                sent.append(next(on_host)._copy_to(self._place, False))
                field = sent[-1]
            else:
                field = np.array(field)  # in memory of its own: it holds no slot
            fields.append(field)
        return fields

    def _dense(
        self, batch: LoDTensorArray, shapes: dict[int, tuple[int, ...]], sent: list[Any]
    ) -> list[Any]:
        if self._tracer is None:
            self._tracer = Tracer()  # type: ignore[no-untyped-call]
        with framework._dygraph_guard(self._tracer):
            fields = self._dynamic(batch, shapes, sent)
        return [each if type(each) is np.ndarray else _owned(each) for each in fields]

    def _copies(self) -> Any:
        if self._guard is None:
            kind: Any = core.CUDAStream if self._is_cuda else core.CustomDeviceStream
            stream = kind(self._place)
            self._before = self.make_event()
            self._guard = paddle.device.Stream(self._place, stream_base=stream)
        return self._guard

    def _current(self) -> Any:
        return paddle.device.current_stream(self._place).stream_base


def _owned(tensor: Any) -> Any:
    """Return a DenseTensor on the memory of a Tensor, whose own one goes with it."""
    made = core.DenseTensor()
    made._share_data_with(tensor.get_tensor())
    return made
