"""A program that is killed at any batch goes on with its last state: its epochs are whole."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Program

# Imports once what is needed, and forks one trainer after the other: [workers, state, batches to
# make]. A trainer prints (epoch, batch, digest) of each batch after it saved the state behind it.
TRAIN = """
    import gc, hashlib, json, os, random, sys, threading

    import numpy as np

    import reader
    from tests.ledger import adopt_orphans

    kind = sys.argv[1]
    if kind == "map":
        import torch


    class Noisy:
        def __len__(self):
            return 83

        def __getitem__(self, index):
            keyed = reader.sample_rng(index).normal(size=3)
            return index, keyed, random.random(), np.random.rand(2), torch.rand(2).numpy()


    class Dealt(reader.IterableDataset):
        def __iter__(self):
            return reader.shard(range(83))


    class Walk(reader.IterableDataset):
        def __init__(self, first, stop):
            self.numbers = np.arange(first, stop)

        def __iter__(self):
            return WalkIterator(self.numbers)


    class WalkIterator:
        def __init__(self, numbers):
            self.numbers = numbers
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.at == len(self.numbers):
                raise StopIteration
            self.at += 1
            return self.numbers[self.at - 1 : self.at]

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]


    def wrapped():
        mixed = reader.mix([Walk(0, 60), Walk(60, 83)], [2, 1], stop="all")
        return reader.rebatch(reader.shuffle_buffer(mixed, 7), 4)


    def train(workers, path, stop):
        map_style = kind == "map"
        loader = reader.DataLoader(
            {"map": Noisy, "stream": Dealt, "wrapped": wrapped}[kind](),
            batch_size=None if kind == "wrapped" else 4, shuffle=map_style, num_workers=workers,
            seed=3, persistent_workers=workers == 2,
        )
        if os.path.exists(path):
            with open(path) as file:
                loader.load_state_dict(json.load(file))
        made = 0
        while loader.epoch < 2 or loader.state_dict()["epoch"] < 2:
            for batch in loader:
                fields = batch if map_style else [batch]
                digest = hashlib.sha256(b"".join(np.asarray(f).tobytes() for f in fields))
                state = loader.state_dict()
                items = np.asarray(fields[0]).tolist()
                with open(path + ".new", "w") as file:
                    json.dump(state, file)
                os.replace(path + ".new", path)
                print(json.dumps([state["epoch"], state["batches"], digest.hexdigest(), items]))
                made += 1
                if made == stop:
                    threading.Event().wait()  # to be killed
            if loader.state_dict()["epoch"] >= 2:
                break
        print("done")
        loader.close()


    def in_child(workers, path, stop):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setsid()  # a group of its own, to be killed with its workers
                print(os.getpid())
                random.seed()  # as in a program that begins
                np.random.seed()
                if kind == "map":
                    torch.seed()
                train(workers, path, stop)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        while True:  # it, and its workers, which are children of this program then
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        print("ended")


    def main():
        adopt_orphans()
        gc.collect()
        gc.freeze()  # no trainer looks at, and so copies, what was imported here
        for round in json.loads(sys.argv[2]):
            in_child(*round)


    if __name__ == "__main__":
        main()
"""

Start = Callable[..., Program]


def batches_of(running: Program, stop: int) -> tuple[list, bool]:  # type: ignore[type-arg]
    """What the next trainer makes until it is done, or has made `stop` batches and is killed."""
    pid = int(running.line(60))
    found = []
    is_done = False
    while len(found) != stop and not is_done:
        line = running.line(60)
        is_done = line == "done"
        if not is_done:
            found.append(json.loads(line))
    if not is_done:
        os.killpg(pid, signal.SIGKILL)  # the workers too
    assert running.line() == "ended"
    return found, is_done


@pytest.mark.sampled(3)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["map", "stream", "wrapped"])
def test_06_a_program_that_is_killed_again_and_again_gets_whole_epochs(
    program: Start, tmp_path: Path, kind: str
) -> None:
    choose = random.Random(kind)
    trainers = [(0, str(tmp_path / "straight"), -1)]
    for number in range(16):
        stop = choose.randint(2, 5) if number < 15 else -1
        # each of several workers would have the walks for itself
        workers = choose.choice([0, 1] if kind == "wrapped" else [0, 1, 2, 3])
        trainers.append((workers, str(tmp_path / "state"), stop))
    running = program(TRAIN, kind, json.dumps(trainers))
    wanted, is_done = batches_of(running, -1)
    assert is_done
    found: list = []  # type: ignore[type-arg]
    rounds = 0
    for _, _, stop in trainers[1:]:
        rounds += 1
        more, is_done = batches_of(running, stop)
        found += more
        if is_done:
            break
    assert is_done
    assert rounds >= 10
    if kind != "stream":
        assert found == wanted  # bytes and all
    for epoch in range(2):
        items = [item for each in found if each[0] == epoch for item in each[3]]
        assert sorted(items) == list(range(83))
