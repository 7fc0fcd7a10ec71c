"""All that a GPU must tell, in one run of ten minutes at most, with torch alone; writes one JSON.

    python -m tools.gpu [--accelerator cuda|simdev] [--json build/gpu.json] [--parts tests soak ...]

The tests of devices, a soak with checks, how long steps wait beside PyTorch's loader, bytes a
second beside copies of PyTorch's pinned memory, the calls of CUDA in an epoch, and the training of
a network. The JSON is written after each part. Exit code 0: all passed.
On the simulated accelerator it is a rehearsal: what a GPU alone can tell is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import mmap
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.device.accelerator import ACCELERATOR
from tools.device_bench.__main__ import measure, table
from tools.device_bench.pictures import SHAPES, Pictures
from tools.device_bench.training import train_all
from tools.turns import describe_machine, told_by

ROOT = Path(__file__).parents[1]
NEEDED = "torch numpy pytest".split()
GOAL = 0.95  # of the yardstick
HOST_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def main() -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description=__doc__)
    parser.add_argument("--accelerator", choices=("cuda", "simdev"), default="cuda")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "gpu.json")
    parser.add_argument("--batches", type=int, default=10_000, help="of the soak")
    parser.add_argument("--parts", nargs="+", metavar="PART", help="these alone")
    chosen = parser.parse_args()
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        print(f"gpu: needs {' and '.join(missing)}: pip install {' '.join(missing)}")
        return 2
    import torch

    is_gpu = chosen.accelerator == "cuda"
    if is_gpu and not torch.cuda.is_available():
        print(
            f"gpu: torch {torch.__version__} finds no CUDA device here. For a rehearsal on the"
            " simulated one: python -m tools.gpu --accelerator simdev"
        )
        return 2
    parts: dict[str, Callable[[], Any]] = {
        "tests": lambda: run_tests(chosen.accelerator),
        "soak": lambda: soak(chosen.accelerator, chosen.batches),
        "steps": lambda: measure(chosen.accelerator, rounds=1, batches=300),
    }
    if is_gpu:
        parts["copies"] = lambda: {name: copies(*work) for name, work in SHAPES.items()}
        parts["calls"] = calls
        if importlib.util.find_spec("jax"):
            parts["jax"] = lambda: told_by("tools.device_bench.jax_copies")
        parts["training"] = train_all
    unknown = set(chosen.parts or ()) - set(parts)
    if unknown:
        print(f"gpu: no part {', '.join(sorted(unknown))} here; there are {', '.join(parts)}")
        return 2
    found: dict[str, Any] = {"machine": machine(is_gpu), "problems": [], "seconds": {}}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.parts or parts:
        began = time.monotonic()
        try:
            found[name] = parts[name]()
        except Exception:
            found[name] = {"failed": traceback.format_exc()}
        found["seconds"][name] = round(time.monotonic() - began)
        found["problems"] = problems_of(found)
        chosen.json.write_text(json.dumps(found, indent=1))
        is_table = name == "steps" and "failed" not in found[name]
        print(f"{name}:", table(found[name]) if is_table else json.dumps(found[name], indent=1))
        sys.stdout.flush()
    print(f"gpu: {'; '.join(found['problems']) or 'all passed'}. Written to {chosen.json}")
    return 1 if found["problems"] else 0


def machine(is_gpu: bool) -> dict[str, Any]:
    """Return what ran this."""
    import torch

    told = describe_machine() | {"torch": torch.__version__}
    if is_gpu:
        told |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        told["gpus"] = torch.cuda.device_count()
    return told


def run_tests(accelerator: str) -> dict[str, Any]:
    """Run the tests of devices; returns how many passed, and the names of the others."""
    chosen = "gpu" if accelerator == "cuda" else "not gpu"
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
    # their own settings: the suite's need more packages
    command += ["-c", "/dev/null", "--rootdir", str(ROOT), "--confcutdir", "tests/device"]
    if importlib.util.find_spec("xdist"):
        command += ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadscope"]
    done = subprocess.run(
        [*command, "-m", chosen, "-k", "not paddle and not training", "tests/device"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    told = {"passed": int(passed[1]) if passed else 0, "failed": failed}
    if done.returncode:
        told["output"] = done.stdout[-6000:]
    return told


def soak(accelerator: str, batches: int) -> dict[str, Any]:
    """Run batches with checks on the device; see tests.device.soak."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.device.soak", "--batches", str(batches)],
        cwd=ROOT,
        env={**os.environ, ACCELERATOR: accelerator},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        return {"failed": done.stderr[-3000:]}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**told, "failed": "" if done.returncode == 0 else "see the counts"}


def copies(size: int, nbytes: int) -> dict[str, Any]:
    """Return gigabytes a second of a loader's epoch, of registered shared memory, and of pinned."""
    import torch

    from reader.compat.torch import DataLoader

    batches, device = 200, torch.device("cuda:0")
    pinned = torch.empty(size * nbytes, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(pinned, device=device)
    workers = max(2, (os.cpu_count() or 4) - 2)
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": True}
    pictures: Any = Pictures(batches * size, nbytes)
    loader: Any
    with DataLoader(pictures, size, device=device, **options) as loader:
        for _ in range(2):
            began = time.perf_counter()
            for _batch in loader:
                pass
            torch.cuda.synchronize()
            took = time.perf_counter() - began
        stats = loader.stats()["devices"]
    registered, is_pinned = _registered_rate(target)
    return {
        "epoch_gb_s": batches * size * nbytes / took / 1e9,
        "registered_gb_s": registered,
        "pinned_gb_s": _rate(pinned, target),
        "is_pinned": is_pinned,
        "devices": stats,
    }


def _registered_rate(target: Any) -> tuple[float, bool]:
    """Return the rate of copies from memory like the arena's, registered as slots are."""
    import torch

    from reader.frameworks.page_locking import page_locker

    locker = page_locker("gpu")
    fd = os.memfd_create("gpu")
    os.ftruncate(fd, target.nbytes)
    with mmap.mmap(fd, target.nbytes) as memory:
        os.close(fd)
        array = np.frombuffer(memory, np.uint8)
        array[:] = 1  # registered pages must have memory
        failure = "no locker" if locker is None else locker.lock(array.ctypes.data, array.nbytes)
        if locker is None or failure is not None:
            raise RuntimeError(f"memory cannot be page-locked: {failure}")
        source = torch.from_numpy(array)
        found = _rate(source, target), bool(source.is_pinned())
        locker.unlock(array.ctypes.data)
        del source, array
    return found


def _rate(source: Any, target: Any, count: int = 30) -> float:
    """Return gigabytes a second of copies one behind another."""
    import torch

    make_event: Any = torch.cuda.Event
    begin, end = (make_event(enable_timing=True) for _ in range(2))
    for number in range(count + 5):
        if number == 5:
            begin.record()
        target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    return float(source.nbytes * count / begin.elapsed_time(end) / 1e6)


def calls() -> dict[str, int]:
    """Return how often each function of CUDA was called in an epoch of a loader."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from reader.compat.torch import DataLoader

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    options: dict[str, Any] = {"num_workers": 4, "persistent_workers": True}
    pictures: Any = Pictures(6400, 150_000)
    loader: Any
    with DataLoader(pictures, 64, device="cuda:0", **options) as loader:
        for _ in loader:
            pass
        torch.cuda.synchronize()
        with profile(activities=activities) as nothing:
            pass
        with profile(activities=activities) as seen:
            for _ in loader:
                pass
    own = {each.key: each.count for each in nothing.key_averages()}  # of the profiler
    told = {each.key: each.count - own.get(each.key, 0) for each in seen.key_averages()}
    return {key: told[key] for key in sorted(told) if key.startswith("cuda") and told[key]}


def problems_of(found: dict[str, Any]) -> list[str]:
    """Return the missed goals, as sentences."""
    problems = [
        f"{name} failed"
        for name, told in found.items()
        if isinstance(told, dict) and (told.get("failed") or told.get("passed") == 0)
    ]
    for name, told in found.get("copies", {}).items():
        if name != "failed" and told["registered_gb_s"] < GOAL * told["pinned_gb_s"]:
            problems.append(f"copies of {name} are slower than from pinned memory")
    waits = [name for name in HOST_WAITS if found.get("calls", {}).get(name)]
    if waits:
        problems.append(f"an epoch calls {', '.join(waits)}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
