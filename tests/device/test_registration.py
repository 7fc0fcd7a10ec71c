"""Slots are registered with a driver once, within the limit, and unregistered in the end.

The driver is a stand-in, called by cuda-bindings as it is; the copies are those of a late device.
"""

from __future__ import annotations

import enum
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from reader.frameworks.page_locking import DriverLocker
from tests.device.build import CannotBuild, library

ROOT = Path(__file__).parents[2]
PROGRAM = """
    import ctypes, gc, json, logging, os
    import numpy as np

    lines = []
    logging.getLogger("reader").addHandler(type("Keep", (logging.Handler,), {
        "emit": lambda self, record: lines.append(record.getMessage())})())
    from reader.frameworks.page_locking import page_locker
    from reader.policy import BatchPolicy, Policy
    from tests.faces import Face
    from tools.late_device import LateDevice

    locker = page_locker("gpu")
    book = ctypes.CDLL("libcuda.so.1").fake_cuda if locker else None
    facts = {"locker": type(locker).__name__}

    class Device(LateDevice):
        pass

    Device.locker = locker

    class Samples:
        def __len__(self):
            return 160

        def __getitem__(self, index):
            return np.full(3000 + 9000 * (index // 4 % 4), index % 251, np.uint8), index

    def said():
        names = "registered unregistered refused left".split()
        return {name: book(name.encode()) for name in names}

    def run(epochs, **options):
        policy = Policy(batch=BatchPolicy(make_adapter=lambda _: Device()))
        with Face(policy, Samples(), batch_size=4, places=["late:0", "late:1"], **options) as face:
            for _ in range(epochs):
                first = 0
                for group in face:
                    for image, label in group:
                        assert label.tolist() == list(range(first, first + 4))
                        assert (image.T == label % 251).all()
                        first += 4
                assert first == 160
            return {**face.stats()["devices"], **(said() if book else {}),
                    "bytes": book(b"bytes") if book else 0}

    facts["persistent"] = run(5, num_workers=2, persistent_workers=True)
    if book:
        facts["after persistent"] = said()
    facts["anew"] = run(4, num_workers=2)
    facts["limited"] = run(2, num_workers=2, persistent_workers=True, pin_limit=100_000)
    facts["inline"] = run(2)
    gc.collect()
    if book:
        facts["end"] = said()
    facts["lines"] = [line for line in lines if "page-locked" in line]
    print(json.dumps(facts))
"""


def run(**environment: str) -> dict[str, Any]:
    apart = Path(sys.prefix) / "apart"  # see requirements/apart.txt
    if not (apart / "cuda").exists() and importlib.util.find_spec("cuda") is None:
        pytest.skip("cuda-bindings is not installed")
    try:
        folder = library("cuda").parent
    except CannotBuild as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "PYTHONPATH": str(apart),
            **environment,
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_slot_is_registered_once_and_none_is_left() -> None:
    facts = run()
    assert facts["locker"] == "DriverLocker"
    stays = facts["persistent"]
    assert stays["refused"] == stays["unlocked_copies"] == 0
    assert stays["locked_slots"] == stays["registered"] == stays["left"]
    assert stays["locked_bytes"] == stays["bytes"]
    assert stays["registered"] < 80  # of 200 batches: a slot is registered once
    assert facts["after persistent"]["left"] == 0
    assert facts["limited"]["locked_bytes"] <= 100_000
    assert facts["limited"]["unlocked_copies"] > 0
    assert facts["end"]["left"] == facts["end"]["refused"] == 0
    assert facts["end"]["registered"] == facts["end"]["unregistered"]
    assert facts["lines"] == []


@pytest.mark.parametrize("at", [1, 5])
def test_failed_registration_is_reported_once_and_copies_go_on(at: int) -> None:
    facts = run(FAKE_CUDA_FAILS=str(at))
    failed = facts["persistent"]
    assert failed["locked_slots"] == at - 1
    assert failed["unlocked_copies"] > 0
    assert "OUT_OF_MEMORY" in failed["lock_failure"]
    (line,) = facts["lines"]
    assert "OUT_OF_MEMORY" in line
    assert facts["end"]["left"] == 0


def test_driver_without_a_device_locks_nothing() -> None:
    facts = run(FAKE_CUDA_ABSENT="1")
    assert facts["locker"] == "NoneType"
    assert facts["persistent"]["locked_slots"] == 0
    assert facts["lines"] == []


def test_an_error_is_named_if_the_bindings_print_a_number() -> None:
    class Result(enum.IntEnum):  # that of cuda-bindings 12
        CUDA_ERROR_OUT_OF_MEMORY = 2

    driver = types.SimpleNamespace(cuInit=lambda flags: (Result(2),))
    with pytest.raises(RuntimeError, match=r"^CUDA_ERROR_OUT_OF_MEMORY$"):
        DriverLocker(driver)
