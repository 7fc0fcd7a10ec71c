"""Measure shards in a store beside the libraries whose formats they are, through a slow link.

    make shard-libraries
    PYTHONPATH=.venv/shard-libraries python -m tools.store_bench [--rounds 3] [--json FILE]

SeaweedFS serves S3 on loopback, behind a proxy that delays answers by 30 ms and passes 100 MB/s.
With --http it is nginx, which takes little of the processors, for what reads over HTTP.
Each turn is a program of its own with an empty cache: it makes its loader, takes an epoch with two
workers, and says when the first batch came, how long the epoch took from there on, and what all
processes computed meanwhile. Then another program goes on in the middle, from the state that the
first has saved, and says when its first batch came. Libraries that are not installed are left out.
Server and proxy run on the same processors.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, ShardCache, ShardOrder, Shards, write_shards
from tests.stores.proxy import Proxy, Rule, faulty
from tests.stores.servers import PUBLIC, HttpServer, S3Server, http_server, s3_server
from tools.shard_bench import library_of
from tools.turns import Report, command_line, grid, in_turns, medians

WORKERS = 2
SAMPLES, SAMPLE_NBYTES, TOKENS = 3_000, 100_000, 300_000
BATCHES = {"samples": 32, "tokens": 256}
_WINDOWS = {32: "200MB", 256: "128MB"}  # by the batches' size: a group is a part of each set
_OVER_HTTP = ("reader", "WebDataset")
ROUND_TRIP_MS, BANDWIDTH = 30, 100e6
_PR_SET_CHILD_SUBREAPER = 36
_MEASURED = ("first_s", "rest_s", "rest_nbytes", "main_s", "cpu_s")
_MOST_FAILURES = 3  # of one contestant, whose turn is repeated; a peer has no figures then
_PATIENCE_S = 3.0  # for processes to end

Loader = Any  # gives batches, and has state_dict and load_state_dict where its library has them


def main() -> int:
    """Measure and print a table for each work; write JSON where that is asked for."""
    parser = command_line("store_bench", __doc__, rounds=3)
    parser.add_argument("--work", choices=[*BATCHES], action="append", help="these alone")
    parser.add_argument("--http", action="store_true", help="from nginx, over HTTP")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(_turn(**json.loads(options.turn))))
        return 0
    report, found = Report(options), {}
    start: Callable[[Path], Any] = http_server if options.http else started_server
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,
        start(Path(name)) as server,
    ):
        for work in options.work or BATCHES:
            kinds = _written(work, Path(name, work), server)
            with faulty(server.endpoint) as proxy:
                contestants = {
                    each: _contestant(each, work, server, proxy, Path(name))
                    for each, (kind, _) in CONTESTANTS.items()
                    if kind in kinds
                    and (work == "samples" or each != "reader, all")
                    and (not options.http or each in _OVER_HTTP)
                }
                found[work] = medians(in_turns(contestants, report.rounds))
            print("\n".join([work, *grid(_rows(found[work])), ""]), flush=True)
    report.show("", found)
    return 0


@contextlib.contextmanager
def started_server(folder: Path) -> Iterator[S3Server]:
    """Start a server of S3 in a folder, with a bucket that all may read."""
    files = folder / "s3"
    files.mkdir()
    with s3_server(files) as server:
        server.make_bucket(PUBLIC)
        yield server


def _rows(found: dict[str, dict[str, float]]) -> list[list[str]]:
    names = (
        "first_s",
        "resumed_s",
        "mb_s",
        "all_mb_s",
        "cpu_s_gb",
        "main_s_gb",
        "requests_gb",
        "fetched",
        "failed",
    )
    rows = [
        [
            "",
            "first batch s",
            "resumed s",
            "MB/s",
            "with start",
            "CPU s/GB",
            "trainer s/GB",
            "requests/GB",
            "fetched",
            "failed",
        ]
    ]
    for name, figures in found.items():
        rows.append([name, *(f"{figures[each]:,.2f}" for each in names)])
    return rows


def _written(work: str, folder: Path, server: S3Server | HttpServer) -> list[str]:
    """Write and upload a set in the format of each library that is installed; returns these."""
    rng = np.random.default_rng(0)
    samples: list[dict[str, Any]]
    if work == "tokens":
        columns = {"x": "ndarray:uint16:1024"}
        samples = [{"x": rng.integers(0, 60_000, 1024, dtype=np.uint16)} for _ in range(TOKENS)]
    else:
        columns = {"x": "bytes"}
        samples = [{"x": rng.bytes(SAMPLE_NBYTES)} for _ in range(SAMPLES)]
    write_shards(samples, folder / "mds", "mds", columns=columns, shard_size="64MB")
    kinds = ["mds"]
    if work == "samples":
        tar = [{"bin": each["x"]} for each in samples]
        write_shards(tar, folder / "tar", "tar", shard_size="64MB")
        kinds.append("tar")
        if library_of("litdata"):
            kinds.append("litdata")
            make = importlib.import_module("litdata.streaming.writer").BinaryWriter
            writer = make(str(folder / "litdata"), chunk_bytes="64MB")
            for k, each in enumerate(samples):
                writer[k] = each
            writer.done()
            writer.merge()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            server.put(PUBLIC, f"{work}/{path.relative_to(folder)}", path.read_bytes())
    return kinds


def _contestant(
    name: str, work: str, server: S3Server | HttpServer, proxy: Proxy, folder: Path
) -> Callable[[], dict[str, float]]:
    """Return what takes a turn: an epoch, and then one that begins in the middle."""
    nbytes = TOKENS * 2048 if work == "tokens" else SAMPLES * SAMPLE_NBYTES
    said: dict[str, Any] = {"name": name, "work": work, "endpoint": proxy.endpoint}
    if isinstance(server, S3Server):
        said |= {"region": server.region, "key": server.access_key, "secret": server.secret_key}
    said["tars"] = len(list((folder / work / "tar").glob("*.tar")))

    failures: list[str] = []

    def program(**more: Any) -> dict[str, float]:
        proxy.reset()
        cache = folder / "cache"  # states of LitData have its path
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        argv = [sys.executable, "-W", "ignore", "-m", "tools.store_bench", "--turn"]
        argv.append(json.dumps({**said, "cache": str(cache), **more}))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]
        if len(failures) >= _MOST_FAILURES:
            if name.startswith("reader"):
                raise RuntimeError(done.stderr)
            return {**dict.fromkeys(_MEASURED, float("nan")), "has_state": False}
        failures.append(done.stderr.splitlines()[-1])
        return program(**more)

    def turn() -> dict[str, float]:
        proxy.set_rules(Rule("delay", ROUND_TRIP_MS), Rule("bandwidth", BANDWIDTH))
        state = str(folder / "state")
        whole = program(save=state)
        counted = proxy.counters()
        resumed = program(load=state)["first_s"] if whole["has_state"] else float("nan")
        gb = nbytes / 1e9
        return {
            "first_s": whole["first_s"],
            "resumed_s": resumed,
            "mb_s": whole["rest_nbytes"] / 1e6 / whole["rest_s"],
            "all_mb_s": nbytes / 1e6 / (whole["first_s"] + whole["rest_s"]),
            "cpu_s_gb": whole["cpu_s"] / gb,
            "main_s_gb": whole["main_s"] / gb,
            "requests_gb": counted.requests.total() / gb,
            "failed": len(failures),
            "fetched": counted.bytes_sent / nbytes,
        }

    return turn


# -- a turn: in a program of its own ---------------------------------------------------------------


def _turn(name: str, work: str, save: str = "", load: str = "", **place: Any) -> dict[str, float]:
    """Take an epoch, or its first batch from a state; returns what was measured."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what others leave counts as theirs
    if "key" in place:
        os.environ |= {
            "AWS_ACCESS_KEY_ID": place["key"],
            "AWS_SECRET_ACCESS_KEY": place["secret"],
            "AWS_REGION": place["region"],
            "AWS_DEFAULT_REGION": place["region"],
            "AWS_ENDPOINT_URL": place["endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "S3_ENDPOINT_URL": place["endpoint"],
        }
    kind, prepare = CONTESTANTS[name]
    make = prepare()  # its imports are not measured
    state = pickle.loads(Path(load).read_bytes()) if load else None
    folder = f"{PUBLIC}/{work}/{kind}"
    main_s, all_s, began = time.process_time(), _cpu_s(), time.perf_counter()
    batches, state_of, end = make(folder, place, BATCHES[work], state)
    first = next(batches)
    first_at = time.perf_counter()
    figures = {"first_s": first_at - began, "has_state": state_of is not None}
    if not load:
        seen, rest, half = len(first), 0, (TOKENS if work == "tokens" else SAMPLES) // 2
        for batch in batches:
            if state_of is not None and seen <= half < seen + len(batch):
                Path(save).write_bytes(pickle.dumps(state_of()))
            seen += len(batch)
            rest += sum(map(len, batch))
        figures["rest_s"] = time.perf_counter() - first_at
        figures["rest_nbytes"] = rest * (2 if work == "tokens" else 1)
    end()
    batch = None
    del batches, state_of, end, first, batch
    until = time.monotonic() + _PATIENCE_S
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    with contextlib.suppress(ChildProcessError):  # until all have ended, but a tracker of Python
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                signal.sigtimedwait([signal.SIGCHLD], _PATIENCE_S)
    figures["main_s"] = time.process_time() - main_s
    figures["cpu_s"] = _cpu_s() - all_s
    return figures


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


Made = tuple[Iterator[Any], Callable[[], Any] | None, Callable[[], None]]  # batches, state, end
Make = Callable[[str, dict[str, Any], int, Any], Made]


def _lists(samples: list[Any]) -> list[Any]:
    return [each["x"] for each in samples]


def _dicts(samples: list[Any]) -> dict[str, list[Any]]:
    return {"x": _lists(samples)}  # of which Streaming knows the number


def _ours(window: str | None) -> Make:
    def make(folder: str, place: dict[str, Any], size: int, state: Any) -> Made:
        cache = ShardCache(place["cache"], "4GB")
        if "key" in place:
            store = {"endpoint": place["endpoint"], "virtual_hosted_style_request": False}
            shards = Shards(f"s3://{folder}", cache=cache, store=store)
        else:
            shards = Shards(f"{place['endpoint']}/{folder}/index.json", cache=cache)
        order = ShardOrder(shards, 0, window or _WINDOWS[size], rank=0, world_size=1)
        loader = DataLoader(
            shards, batch_size=size, sampler=order, num_workers=WORKERS, collate_fn=_lists
        )
        if state is not None:
            loader.load_state_dict(state)
        return iter(loader), loader.state_dict, loader.close

    return make


def _streaming() -> Make:
    library = library_of("streaming")
    loaders = importlib.import_module("streaming.base.dataloader")
    loaders.BatchEncoding = loaders.BatchFeature = dict  # type: ignore[attr-defined]  # stand-ins

    def make(folder: str, place: dict[str, Any], size: int, state: Any) -> Made:
        importlib.import_module("streaming.base.util").clean_stale_shared_memory()
        dataset = library.StreamingDataset(
            remote=f"s3://{folder}", local=place["cache"], shuffle=True, batch_size=size
        )
        loader = library.StreamingDataLoader(
            dataset, batch_size=size, num_workers=WORKERS, collate_fn=_dicts
        )
        if state is not None:
            loader.load_state_dict(state)
        return (batch["x"] for batch in loader), loader.state_dict, lambda: None

    return make


def _litdata() -> Make:
    library = library_of("litdata")
    downloader = importlib.import_module("litdata.streaming.downloader")
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # which it cannot be asked for

    def make(folder: str, place: dict[str, Any], size: int, state: Any) -> Made:
        dataset = library.StreamingDataset(
            f"s3://{folder}",
            cache_dir=place["cache"],
            shuffle=True,
            storage_options={"endpoint_url": place["endpoint"]},
        )
        loader = library.StreamingDataLoader(
            dataset, batch_size=size, num_workers=WORKERS, collate_fn=_lists
        )
        if state is not None:
            loader.load_state_dict(state)
        return iter(loader), loader.state_dict, lambda: None

    return make


def _webdataset() -> Make:
    library = library_of("webdataset")

    def make(folder: str, place: dict[str, Any], size: int, _: Any) -> Made:
        at = f"pipe:curl -s -f {place['endpoint']}/{folder}"
        urls = [f"{at}/shard-{number:05d}.tar" for number in range(place["tars"])]
        dataset = library.WebDataset(urls, shardshuffle=len(urls), empty_check=False)
        dataset = dataset.shuffle(1000).map(_bin).batched(size, collation_fn=list)
        loader = library.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
        return iter(loader), None, lambda: None

    return make


def _bin(found: dict[str, Any]) -> Any:
    return found["bin"]


CONTESTANTS: dict[str, tuple[str, Callable[[], Make]]] = {
    "reader": ("mds", lambda: _ours(None)),
    "reader, all": ("mds", lambda: _ours("all")),
    "Streaming": ("mds", _streaming),
    "LitData": ("litdata", _litdata),
    "WebDataset": ("tar", _webdataset),
}


if __name__ == "__main__":
    raise SystemExit(main())
