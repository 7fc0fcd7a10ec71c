"""The user's process is left alone: random state, signals, environment, imports (2.7)."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader
from tests.datasets import Augmented, Rows

ROOT = Path(__file__).parents[2]


def train(**options: Any) -> None:
    with DataLoader(Augmented(40), batch_size=4, shuffle=True, **options) as loader:
        for _ in range(2):
            list(loader)


@pytest.mark.parametrize("switch_s", [0.005, 1e-6])
def test_07_global_random_state_is_not_touched(cell: dict[str, Any], switch_s: float) -> None:
    """With num_workers=0 and no seed the dataset itself draws from the global state."""
    random.seed(5)
    np.random.seed(5)
    wanted = [(random.random(), np.random.random(), np.random.normal()) for _ in range(20)]
    random.seed(5)
    np.random.seed(5)
    before = sys.getswitchinterval()
    sys.setswitchinterval(switch_s)
    found = []
    try:
        with DataLoader(Augmented(40), batch_size=4, shuffle=True, seed=1, **cell) as loader:
            for _ in range(2):
                for _batch in loader:
                    drawn = random.random(), np.random.random(), np.random.normal()
                    found.append(drawn)
    finally:
        sys.setswitchinterval(before)
    assert found == wanted


def test_07_random_state_is_not_touched_by_workers_without_a_seed() -> None:
    state, other = random.getstate(), np.random.get_state(legacy=False)
    train(num_workers=2)
    assert random.getstate() == state
    assert str(np.random.get_state(legacy=False)) == str(other)


def test_07_torch_random_state_is_not_touched(cell: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    wanted = torch.get_rng_state()
    train(seed=2, framework="torch", **cell)
    assert torch.equal(torch.get_rng_state(), wanted)


@pytest.mark.sampled(2)
def test_07_signal_handlers_and_mask_are_not_touched(each_cell: dict[str, Any]) -> None:
    def state() -> Any:
        handlers = {n: signal.getsignal(n) for n in signal.valid_signals()}
        return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1)

    before = state()
    train(**each_cell)
    assert state() == before


@pytest.mark.sampled(2)
def test_07_environment_folder_and_start_method_are_not_touched(each_cell: dict[str, Any]) -> None:
    def state() -> Any:
        return (
            dict(os.environ),
            os.getcwd(),
            os.umask(os.umask(0o22) or 0o22),
            multiprocessing.get_start_method(allow_none=True),
            list(sys.path),
            sys.getswitchinterval(),
            sys.getrecursionlimit(),
            threading.excepthook,
            sys.excepthook,
            list(warnings.filters),
            os.sched_getaffinity(0),
            os.nice(0),
        )

    before = state()
    train(**each_cell)
    assert state() == before


def test_07_default_start_method_can_still_be_chosen_after_a_loader_ran() -> None:
    program = """if True:
        import multiprocessing
        from reader import DataLoader
        from tests.datasets import Rows
        assert len(list(DataLoader(Rows(8), batch_size=4, num_workers=2))) == 2
        assert multiprocessing.get_start_method(allow_none=True) is None
        multiprocessing.set_start_method("spawn")
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=50)


def test_07_chosen_default_start_method_is_used() -> None:
    program = """if True:
        import multiprocessing, sys
        from reader import DataLoader
        from tests.datasets import Unpicklable
        multiprocessing.set_start_method("spawn")
        try:
            iter(DataLoader(Unpicklable(), num_workers=1))
        except ValueError as error:
            print("refused")
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=50
    )
    assert (run.stdout, run.stderr) == (b"refused\n", b"")


@pytest.mark.parametrize("workers", [0, 2])
def test_07_numpy_loader_imports_no_framework(workers: int) -> None:
    program = f"""if True:
        import sys
        from reader import DataLoader
        from tests.datasets import Rows
        assert len(list(DataLoader(Rows(8), batch_size=4, num_workers={workers}))) == 2
        print(sorted({{"torch", "paddle", "jax", "ml_dtypes"}} & set(sys.modules)))
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=50
    )
    assert (run.stdout, run.stderr) == (b"[]\n", b"")


def test_07_dataset_of_the_trainer_is_not_changed_by_workers() -> None:
    class Counting(Rows):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            return super().__getitem__(index)

    dataset = Counting(16)
    with DataLoader(dataset, batch_size=4, num_workers=2) as loader:
        list(loader)
        assert loader.dataset is dataset
    assert dataset.calls == 0


def test_07_garbage_collector_is_left_as_it_was(cell: dict[str, Any]) -> None:
    import gc

    before, frozen = (gc.isenabled(), gc.get_threshold()), gc.get_freeze_count()
    train(**cell)
    assert (gc.isenabled(), gc.get_threshold()) == before
    # gc.freeze() would add thousands, gc.unfreeze() leave none; a few frozen objects may die
    assert frozen - 1000 <= gc.get_freeze_count() <= frozen
