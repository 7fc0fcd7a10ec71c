"""A dataset's arrays are once on each machine, and still each worker's own."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Ray, share
from tests.cluster.actors import actors

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
_NBYTES = 16 << 20


class Holding:
    """Samples by an array, into which its worker writes; all of it is read."""

    def __init__(self) -> None:
        self.values = np.arange(_NBYTES >> 3)
        self.fixed = np.arange(1 << 14)
        self.fixed.flags.writeable = False
        self.words = share([f"word {n}" for n in range(1000)])

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> np.ndarray:
        assert int(self.values[1:].sum()) == ((_NBYTES >> 3) - 1) * (_NBYTES >> 3) // 2
        assert self.words[index] == f"word {index}"
        with pytest.raises(ValueError, match="read-only"):
            self.fixed[0] = 1
        self.values[0] += 1  # how many samples this worker has made
        return np.array([index, os.getpid(), self.values[0], self.fixed[index]])


def shown(pid: int) -> list[tuple[str, int, int]]:
    """The memory files that a worker maps: inode, resident and proportional bytes."""
    found: list[tuple[str, int, int]] = []
    is_file = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_file = "/memfd:lodreader-shared" in line
            if is_file:
                found.append((words[4], 0, 0))
        elif is_file and words[0] in ("Rss:", "Pss:"):
            inode, rss, pss = found[-1]
            size = int(words[1]) << 10
            found[-1] = (inode, size, pss) if words[0] == "Rss:" else (inode, rss, size)
    return found


def test_workers_of_a_node_have_one_copy_and_write_into_their_own(backend: Ray) -> None:
    with DataLoader(Holding(), num_workers=4, backend=backend, worker_retries=9) as loader:
        counts: dict[int, list[int]] = {}
        killed = 0
        while len(counts) < 4:  # until several have begun
            for n, (batch,) in enumerate(loader):
                index, pid, count, fixed = (int(each) for each in batch)
                assert index == fixed == n
                counts.setdefault(pid, []).append(count)
                if n == 40 and not killed:
                    os.kill(pid, signal.SIGKILL)
                    killed = pid
        del counts[killed]
        for found in counts.values():  # what other workers wrote is not seen
            assert sorted(found) == list(range(1, len(found) + 1))
        seen = [each for pid in actors() for each in shown(pid) if each[1] > _NBYTES // 2]
        assert len(seen) >= 2
        assert len({inode for inode, _, _ in seen}) == 1
        assert sum(pss for _, _, pss in seen) < 1.2 * _NBYTES


@dataclasses.dataclass
class Reader:
    """What a worker does with the config, where no lander is on its machine."""

    sent: Any

    def values(self) -> tuple[int, str, int]:
        dataset = self.sent.unpickled().dataset
        dataset.values[0] = os.getpid()
        self.kept = dataset
        return os.getpid(), shown(os.getpid())[0][0], int(dataset.values[1:].sum())


def test_first_worker_of_another_machine_makes_the_copy_for_all(cluster: Any) -> None:
    # in a process of its own: Ray's client keeps files open
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=make_a_copy, args=(cluster.address,))
    process.start()
    process.join()
    assert process.exitcode == 0
    process.close()


def make_a_copy(address: str) -> None:
    import ray

    from reader.cluster.sent_config import put_config
    from reader.processes.remote_config import pickle_remote
    from tests.unit.test_remote_config import config_of

    ray.init(address=address, log_to_driver=False)
    own = pickle_remote(config_of(Holding()))
    sent = put_config(own.data, own.fds, own.sizes)
    own.close()
    kind = ray.remote(Reader).options(num_cpus=0.1)
    workers = [kind.remote(sent) for _ in range(3)]
    found = ray.get([worker.values.remote() for worker in workers])
    assert len({inode for _, inode, _ in found}) == 1
    assert {total for *_, total in found} == {int(Holding().values.sum())}
    ray.shutdown()
