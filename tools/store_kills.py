"""Kill what reads shards of a store at random times, and see that no sample is lost or changed.

Run as ``python -m tools.store_kills [--kills 1000] [--seed 0]``. Two ranks read one set from an S3
server on loopback with two workers each, through one cache of a third of its size and a proxy that
fails now and then; the process that fetches, workers, a rank, or all ranks are killed with SIGKILL.
Ranks begin again where they saved their state. What they got is compared with the local files, and
in the end no process and no memory of theirs may be left. It prints what it did, and exits 1 where
anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, ShardCache, ShardOrder, Shards, WorkerDied, write_shards
from tests.stores.proxy import Proxy, Rule, faulty
from tests.stores.servers import PUBLIC, S3Server, s3_server

RANKS, WORKERS, BATCH = 2, 2, 16
_SAMPLES, _LIMIT = 4_000, 64 << 20  # bytes, of some 200 MB
_EVERY = 4  # batches, after which a state is saved
_KILLED = 3  # the exit code of a rank whose workers were killed too often
_LATE_S = 60.0  # a rank that gives nothing for longer hangs
_FAULTS = (Rule("slow_down", share=0.03), Rule("cut", share=0.01), Rule("stall", 4, share=0.002))


def main() -> int:
    """Kill, compare, and print what was done."""
    parser = argparse.ArgumentParser(prog="python -m tools.store_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        try:
            _train(**json.loads(options.rank))
        except WorkerDied:  # of one batch several workers were killed: then the loader ends
            return _KILLED
        return 0
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for inner in ("s3", "cache", "ranks"):
            (folder / inner).mkdir()
        with (
            s3_server(folder / "s3") as server,
            faulty(server.endpoint, seed=options.seed) as proxy,
        ):
            _write(folder / "set", server)
            proxy.set_rules(*_FAULTS)
            return _run(folder, server, proxy, options.kills, random.Random(options.seed))


def _write(folder: Path, server: S3Server) -> None:
    rng = np.random.default_rng(0)
    samples = [{"x": rng.bytes(int(rng.integers(0, 100_000))), "k": k} for k in range(_SAMPLES)]
    columns = {"x": "bytes", "k": "int"}
    write_shards(samples, folder, "mds", columns=columns, shard_size="8MB")
    server.make_bucket(PUBLIC)
    for path in folder.iterdir():
        server.put(PUBLIC, f"set/{path.name}", path.read_bytes())


def _run(folder: Path, server: S3Server, proxy: Proxy, kills: int, rng: random.Random) -> int:
    before = set(Path("/dev/shm").iterdir())
    ranks = {rank: _started(rank, folder, server, proxy) for rank in range(RANKS)}
    done: Counter[str] = Counter()
    watch = _Watch(folder / "ranks")
    while done.total() < kills and not watch.is_late():
        threading.Event().wait(rng.random() * 0.6)
        kind = rng.choice(["fetcher", "worker", "rank", "all ranks"])
        if kind in ("fetcher", "worker"):
            found = _fetchers(folder) if kind == "fetcher" else _workers(ranks)
            if found:
                _kill(rng.choice(found))
                done[kind] += 1
        else:
            for rank in [rng.randrange(RANKS)] if kind == "rank" else range(RANKS):
                ranks[rank].kill()
                ranks[rank].wait()
            done[kind] += 1
        for rank, process in ranks.items():
            if process.poll() is not None:
                if process.returncode not in (-signal.SIGKILL, _KILLED):
                    return _failed(f"rank {rank} ended with {process.returncode}", done)
                ranks[rank] = _started(rank, folder, server, proxy)
    if watch.is_late():
        return _failed(f"no batch for {_LATE_S} s", done)
    (folder / "ranks" / "stop").touch()
    for process in ranks.values():
        process.wait(_LATE_S)
    wrong, batches, epochs = _compared(folder)
    threading.Event().wait(1.0)
    left = [*_fetchers(folder), *sorted(set(Path("/dev/shm").iterdir()) - before)]
    if wrong or left:
        return _failed(f"{wrong} batches differ or are missing; left: {left}", done)
    if batches < kills:
        return _failed(f"{batches} batches came, fewer than kills: this shows nothing", done)
    print(
        f"killed: {dict(done)}; {batches} batches of {epochs} whole epochs, all equal; nothing left"
    )
    return 0


def _failed(what: str, done: Counter[str]) -> int:
    print(f"after {dict(done)}: {what}", file=sys.stderr)
    return 1


class _Watch:
    """Sees that ranks go on.

    Args:
        folder: of what they write.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._sizes, self._since = folder, -1, time.monotonic()

    def is_late(self) -> bool:
        """Whether nothing was written for long."""
        sizes = sum(path.stat().st_size for path in self._folder.glob("*.log"))
        if sizes != self._sizes:
            self._sizes, self._since = sizes, time.monotonic()
        return time.monotonic() - self._since > _LATE_S


def _started(rank: int, folder: Path, server: S3Server, proxy: Proxy) -> subprocess.Popen[bytes]:
    said = {"rank": rank, "folder": str(folder), "endpoint": proxy.endpoint}
    said |= {"key": server.access_key, "secret": server.secret_key}
    argv = [sys.executable, "-m", "tools.store_kills", "--rank", json.dumps(said)]
    return subprocess.Popen(argv)


def _fetchers(folder: Path) -> list[int]:
    """Return the processes that fetch for the cache."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = path.read_bytes()
        except OSError:  # it has ended
            continue
        if b"stores.fetcher.main" in said and str(folder / "cache").encode() in said:
            found.append(int(path.parent.name))
    return found


def _workers(ranks: dict[int, subprocess.Popen[bytes]]) -> list[int]:
    """Return the workers of ranks."""
    found = []
    for process in ranks.values():
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            found += [
                int(each)
                for each in children
                if b"stores.fetcher" not in Path(f"/proc/{each}/cmdline").read_bytes()
            ]
        except OSError:  # it has ended
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _order(shards: Shards, rank: int) -> ShardOrder:
    return ShardOrder(shards, 7, window=1000, rank=rank, world_size=RANKS)


def _digest(batch: list[Any]) -> str:
    return hashlib.blake2b(pickle.dumps(batch), digest_size=8).hexdigest()


def _train(rank: int, folder: str, endpoint: str, key: str, secret: str) -> None:
    """Take batches and write their digests; begin at the last state."""
    place = Path(folder, "ranks")
    store: dict[str, Any] = {
        "endpoint": endpoint,
        "access_key_id": key,
        "secret_access_key": secret,
    }
    store |= {"region": "us-east-1", "virtual_hosted_style_request": False}
    shards = Shards(f"s3://{PUBLIC}/set", cache=ShardCache(f"{folder}/cache", _LIMIT), store=store)
    saved = place / f"{rank}.state"
    with (
        DataLoader(
            shards,
            batch_size=BATCH,
            sampler=_order(shards, rank),
            num_workers=WORKERS,
            collate_fn=list,
        ) as loader,
        open(place / f"{rank}.log", "a", buffering=1) as log,  # noqa: PTH123
    ):
        epoch = number = 0
        if saved.exists():
            state, epoch, number = pickle.loads(saved.read_bytes())
            loader.load_state_dict(state)
        while True:
            for batch in loader:
                log.write(f"\n{epoch} {number} {_digest(batch)} .")
                number += 1
                if number % _EVERY == 0:
                    draft = saved.with_suffix(".draft")
                    draft.write_bytes(pickle.dumps((loader.state_dict(), epoch, number)))
                    draft.replace(saved)
                if (place / "stop").exists():
                    return
            epoch, number = epoch + 1, 0


def _compared(folder: Path) -> tuple[int, int, int]:
    """Return how many batches are wrong or missing, how many there were, and whole epochs."""
    shards = Shards(folder / "set")
    wrong = batches = epochs = 0
    for rank in range(RANKS):
        seen: dict[tuple[int, int], set[str]] = {}
        for line in (folder / "ranks" / f"{rank}.log").read_text().splitlines():
            words = line.split()
            if len(words) == 4 and words[3] == ".":  # else it was killed while it wrote
                seen.setdefault((int(words[0]), int(words[1])), set()).add(words[2])
        last = max(epoch for epoch, _ in seen)
        loader = DataLoader(
            shards, batch_size=BATCH, sampler=_order(shards, rank), num_workers=0, collate_fn=list
        )
        for epoch in range(last + 1):
            for number, batch in enumerate(loader):
                found = seen.pop((epoch, number), None)
                if found is None and epoch == last:
                    continue
                batches += 1
                wrong += found != {_digest(batch)}
        loader.close()
        wrong += len(seen)
        epochs += last
    return wrong, batches, epochs


if __name__ == "__main__":
    raise SystemExit(main())
