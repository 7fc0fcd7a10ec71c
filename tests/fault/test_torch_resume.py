"""Torch programs that are killed again and again go on with other workers: no byte is different."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Program

Start = Callable[..., Program]
KILLS = 50  # at least, in all

# Trains each loader in children that kill themselves at a batch, until all epochs are done. What a
# trainer has seen is saved with the state behind it, atomically, as a checkpoint is.
PROGRAM = """
    import gc, hashlib, json, os, random, signal, sys, warnings

    import numpy as np
    import torch

    import reader
    from reader.compat.torch import StatefulDataLoader
    from tests.ledger import adopt_orphans

    folder, seed = sys.argv[1], int(sys.argv[2])
    EPOCHS = 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # there are fewer processors than workers


    class Noisy:
        def __len__(self):
            return 45

        def __getitem__(self, index):
            return index, torch.rand(2), np.random.rand(2), random.random()


    def stateful(workers, **options):
        return StatefulDataLoader(Noisy(), 4, num_workers=workers, **options)


    def native(workers, **options):
        return reader.DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers,
                                 seed=5, framework="torch", **options)


    def generator():
        return torch.Generator().manual_seed(5)


    LOADERS = {
        "shuffled": lambda n: stateful(n, shuffle=True),
        "in sequence": lambda n: stateful(n),
        "generator": lambda n: stateful(n, shuffle=True, generator=generator()),
        "seed": lambda n: stateful(n, shuffle=True, seed=5),
        "seed, persistent": lambda n: stateful(n, shuffle=True, seed=5, persistent_workers=n > 0),
        "seed, threads": lambda n: stateful(n, shuffle=True, seed=5, worker_type="thread"),
        "native": native,
        "native, persistent": lambda n: native(n, persistent_workers=n > 0),
    }


    def read(path):
        with open(path) as file:
            return json.load(file)


    def train(make, workers, path, kill_at, after_saving):
        torch.manual_seed(7)
        loader = make(workers)
        saved = {"log": [], "epoch": 0}
        if os.path.exists(path):
            saved = read(path)
            loader.load_state_dict(saved["state"])
            torch.set_rng_state(torch.tensor(saved["random"], dtype=torch.uint8))

        def save():
            saved.update(state=loader.state_dict(), random=torch.get_rng_state().tolist())
            with open(path + ".new", "w") as file:
                json.dump(saved, file)
            os.replace(path + ".new", path)

        made = 0
        while saved["epoch"] < EPOCHS:
            for batch in loader:
                made += 1
                if made == kill_at and not after_saving:
                    os.kill(os.getpid(), signal.SIGKILL)
                digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in batch))
                saved["log"].append([saved["epoch"], batch[0].tolist(), digest.hexdigest()])
                save()
                if made == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            saved["epoch"] += 1
            save()


    def in_child(*args):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                train(*args)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        while True:  # its workers end with it, and are children of this program then
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        if status not in (0, -signal.SIGKILL):
            sys.exit(f"a trainer ended with {status}")
        return status == 0


    def check(name, rng):
        straight, torn = (os.path.join(folder, f"{name}.{kind}") for kind in ("straight", "torn"))
        in_child(LOADERS[name], rng.randrange(4), straight, 0, False)
        kills, workers = 0, -1
        while True:
            workers = rng.choice([count for count in range(4) if count != workers])
            if in_child(LOADERS[name], workers, torn, rng.randint(1, 5), rng.random() < 0.7):
                break
            kills += 1
        expected, found = read(straight)["log"], read(torn)["log"]
        for epoch in range(EPOCHS):
            seen = sorted(index for at, keys, _ in found if at == epoch for index in keys)
            assert seen == list(range(45)), (name, epoch, seen)
        assert found == expected, name
        return kills


    def main():
        adopt_orphans()
        gc.collect()
        gc.freeze()  # no trainer looks at, and so copies, what was imported here
        rng = random.Random(seed)
        for name in LOADERS:
            print(json.dumps([name, check(name, rng)]), flush=True)
        print("done")


    if __name__ == "__main__":
        main()
"""


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_killed_torch_programs_go_on_with_other_workers_and_no_byte_is_different(
    program: Start, tmp_path: Path, seed: int
) -> None:
    running = program(PROGRAM, str(tmp_path), str(seed))
    kills = {}
    while (line := running.line(60)) != "done":
        name, count = json.loads(line)
        kills[name] = count
    status, rest, err = running.finish()
    assert (status, rest, err) == (0, "", "")
    assert len(kills) == 8
    assert sum(kills.values()) >= KILLS
