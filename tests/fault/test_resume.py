"""A program that is killed at any batch goes on with its last state: its epochs are whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Program

# Prints (epoch, batch, digest) of each batch before it saves the state behind it, atomically.
TRAIN = """
    import hashlib, json, os, random, sys, threading

    import numpy as np

    import reader

    kind, workers, path, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
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


    def main():
        map_style = kind == "map"
        loader = reader.DataLoader(
            Noisy() if map_style else Dealt(), batch_size=4, shuffle=map_style, num_workers=workers,
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


    if __name__ == "__main__":
        main()
"""

Start = Callable[..., Program]


def batches_of(program: Start, kind: str, workers: int, path: Path, stop: int) -> tuple[list, bool]:  # type: ignore[type-arg]
    """Run the program until it is done, or for `stop` batches and then kill it."""
    running = program(TRAIN, kind, str(workers), str(path), str(stop))
    found = []
    while len(found) != stop:
        line = running.line(60)
        if line == "done":
            running.finish()
            return found, True
        found.append(json.loads(line))
    running.end()  # SIGKILL, the workers too
    return found, False


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["map", "stream"])
def test_06_a_program_that_is_killed_again_and_again_gets_whole_epochs(
    program: Start, tmp_path: Path, kind: str
) -> None:
    choose = random.Random(kind)
    wanted, is_done = batches_of(program, kind, 0, tmp_path / "straight", -1)
    assert is_done
    found: list = []  # type: ignore[type-arg]
    rounds = 0
    is_done = False
    while not is_done:
        workers = choose.choice([0, 1, 2, 3])
        more, is_done = batches_of(
            program, kind, workers, tmp_path / "state", choose.randint(2, 5) if rounds < 15 else -1
        )
        found += more
        rounds += 1
    assert rounds >= 10
    if kind == "map":
        assert found == wanted  # bytes and all
    for epoch in range(2):
        items = [item for each in found if each[0] == epoch for item in each[3]]
        assert sorted(items) == list(range(83))
