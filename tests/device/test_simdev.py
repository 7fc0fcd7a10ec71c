"""The simulated accelerator detects errors that break a real one, under torch and Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.evidence  # the faces use the same code in make test
Facts = Callable[..., dict[str, Any]]

ON_TORCH = """
    import ctypes, json, mmap, os
    import numpy as np, torch
    from tests.device.simdev import on_torch

    sim = on_torch()
    sim.set(delay_us=100_000)  # later than this machine may be
    facts = {}
    host = np.frombuffer(mmap.mmap(-1, 1 << 16), np.float32)
    host[:] = 7
    tensor = torch.from_numpy(host)
    at = host.ctypes.data

    def values(found):
        return found.cpu().unique().tolist()

    def bits(found):
        return [hex(v & 0xFFFFFFFF) for v in found.cpu().view(torch.int32).unique().tolist()]

    def sent(to, wait=True):  # on a side stream, as a loader does
        stream, event = torch.Stream(device=to), torch.Event(device=to)
        with stream:
            made = tensor.to(to, non_blocking=True)
            event.record(stream)
        is_done = event.query()
        if wait:
            torch.accelerator.current_stream(to).wait_event(event)
            made.record_stream(torch.accelerator.current_stream(to))
        return stream, made, is_done

    def counted(name, call):
        before = sim.counts()
        call()
        facts[name] = {key: value - before[key] for key, value in sim.counts().items()}

    counted("pageable", lambda: sent("simdev:1"))
    facts["pin"] = [sim.pin(at, host.nbytes), sim.pin(at + 4096, 64), sim.unpin(at + 1)]
    counted("pinned", lambda: sent("simdev:1"))
    sim.synchronize()

    _, made, facts["is done at once"] = sent("simdev:1")
    facts["waited for"] = values(made)
    facts["not waited for"] = bits(sent("simdev:2", wait=False)[1])
    sim.synchronize()

    _, made, _ = sent("simdev:3")
    host[:] = 9
    facts["source used again too early"] = values(made)
    host[:] = 7

    sim.set(delay_us=20000)
    for is_recorded in True, False:
        _, made, _ = sent("simdev:0", wait=is_recorded)
        torch.accelerator.synchronize("simdev:0")
        out = torch.empty_like(made)
        tensor.to("simdev:0", non_blocking=True)  # keeps the consumer's stream busy
        out.copy_(made, non_blocking=True)
        del made
        facts[f"freed while it is used, recorded {is_recorded}"] = bits(out)

    sent("simdev:0")
    sim.unpin(at)
    facts["unregistered below a copy"] = sim.faults()[-1]
    sim.synchronize()

    x = torch.arange(1 << 10, dtype=torch.float32)
    device = x.to("simdev:2")
    facts["by the CPU"] = bool(((device + device).cpu() == 2 * x).all())
    turned = x.view(32, 32).t()
    facts["turned"] = bool((turned.to("simdev:0").double().cpu() == turned).all())
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.string_at(device.data_ptr(), 1)[0])
    facts["read on the host"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    del device
    print(json.dumps(facts))
"""

ON_PADDLE = """
    import json, mmap
    import numpy as np
    from tests.device.simdev import on_paddle

    sim = on_paddle()
    import paddle
    from paddle.base import core

    sim.set(delay_us=100_000)  # later than this machine may be
    facts = {"kinds": core.get_all_custom_device_type()}
    host = np.frombuffer(mmap.mmap(-1, 1 << 16), np.float32)
    host[:] = 7
    at = host.ctypes.data
    tensor = paddle.utils.dlpack.from_dlpack(host)  # on the same memory
    assert tensor.data_ptr() == at

    place = paddle.CustomPlace("simdev", 2)
    tensor._copy_to(place, True)
    side = core.CustomDeviceStream(place)
    event = core.CustomDeviceEvent(place)
    guard = paddle.device.Stream(place, stream_base=side)
    now = paddle.device.current_stream(place)

    def sent(wait=True):
        with paddle.device.stream_guard(guard):
            made = tensor._copy_to(place, False)
            event.record(side)
        is_done = event.query()
        if wait:
            now.stream_base.wait_event(event)
        return made, is_done

    def values(found):
        return np.unique(found.numpy()).tolist()

    before = sim.counts()
    sent()
    facts["pageable"] = sim.counts()["staged"] - before["staged"]
    sim.synchronize()
    facts["pin"] = sim.pin(at, host.nbytes)
    before = sim.counts()
    made, facts["is done at once"] = sent()
    facts["pinned"] = {key: value - before[key] for key, value in sim.counts().items()}
    facts["waited for"] = values(made)
    host[:] = 5
    made, _ = sent(wait=False)
    facts["not waited for"] = values(made)
    sim.synchronize()
    made, _ = sent()
    host[:] = 9
    facts["source used again too early"] = values(made)
    facts["by the CPU"] = values(made + made)
    print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def on_torch(facts_of: Facts) -> dict[str, Any]:
    return facts_of("torch", ON_TORCH)


@pytest.fixture(scope="module")
def on_paddle(facts_of: Facts) -> dict[str, Any]:
    return facts_of("paddle", ON_PADDLE)


def test_torch_copies_from_registered_memory_late_and_from_other_memory_at_once(
    on_torch: dict[str, Any],
) -> None:
    assert on_torch["pin"] == [0, 712, 713]
    assert on_torch["pageable"]["staged"] == 1
    assert on_torch["pinned"]["staged"] == 0
    assert on_torch["pageable"]["host_waits"] == on_torch["pinned"]["host_waits"] == 0
    assert on_torch["source used again too early"] == [9]
    assert on_torch["is done at once"] is False


def test_torch_reads_poison_if_nobody_waited_or_memory_was_freed_too_early(
    on_torch: dict[str, Any],
) -> None:
    seven = "0x40e00000"
    assert on_torch["waited for"] == [7]
    assert on_torch["not waited for"] == ["0xdbdbdbdb"]
    assert on_torch["freed while it is used, recorded True"] == [seven]
    assert on_torch["freed while it is used, recorded False"] == ["0xdddddddd"]


def test_torch_faults_if_memory_is_unregistered_during_a_copy_or_read_on_the_host(
    on_torch: dict[str, Any],
) -> None:
    assert on_torch["unregistered below a copy"] == "memory is unregistered that a copy still reads"
    assert on_torch["read on the host"] == -11


def test_torch_runs_operators_of_the_device_on_the_cpu(on_torch: dict[str, Any]) -> None:
    assert on_torch["by the CPU"]
    assert on_torch["turned"]


def test_paddle_copies_from_registered_memory_late_and_from_other_memory_at_once(
    on_paddle: dict[str, Any],
) -> None:
    assert on_paddle["kinds"] == ["simdev"]
    assert on_paddle["pageable"] == 1
    assert on_paddle["pin"] == 0
    assert on_paddle["pinned"]["staged"] == on_paddle["pinned"]["host_waits"] == 0
    assert on_paddle["is done at once"] is False
    assert on_paddle["source used again too early"] == [9]


def test_paddle_reads_old_bytes_if_nobody_waited(on_paddle: dict[str, Any]) -> None:
    assert on_paddle["waited for"] == [7]
    assert on_paddle["not waited for"] != [5]
    assert on_paddle["by the CPU"] == [18]
