"""Train on pictures in a store, through a slow link, beside the same pictures in local files.

    python -m tools.store_training [--step-ms 80] [--pictures 6000] [--rounds 3] [--json FILE]

SeaweedFS serves S3 on loopback, behind a proxy that delays answers by 30 ms and passes 100 MB/s.
Each turn is a program of its own, with an empty cache for the store: it takes two epochs with two
workers, and each step waits for `--step-ms`, as a trainer does whose model runs on a device. The
processors are those of the workers, the server and the proxy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reader import DataLoader, ShardCache, Shards, write_shards
from tests.stores.proxy import Proxy, Rule, faulty
from tests.stores.servers import PUBLIC, S3Server
from tools.shard_bench import as_trained, jpegs
from tools.store_bench import BANDWIDTH, ROUND_TRIP_MS, WORKERS, started_server
from tools.turns import Report, command_line, grid, in_turns, medians, told_by

_BATCH = 32


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = command_line("store_training", __doc__, rounds=3)
    parser.add_argument("--step-ms", type=float, default=80.0, help="of the model's step (80)")
    parser.add_argument("--pictures", type=int, default=6_000, help="of an epoch (6,000)")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(_turn(**json.loads(options.turn))))
        return 0
    report = Report(options)
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,
        started_server(Path(name)) as server,
    ):
        local = Path(name, "pictures")
        write_shards(jpegs(options.pictures), local, "mds", shard_size="64MB")
        for path in sorted(local.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                server.put(PUBLIC, f"pictures/{path.name}", path.read_bytes())
        with faulty(server.endpoint) as proxy:
            proxy.set_rules(Rule("delay", ROUND_TRIP_MS), Rule("bandwidth", BANDWIDTH))
            contestants = _contestants(local, server, proxy, options.step_ms / 1000)
            found = medians(in_turns(contestants, report.rounds))
    report.show("\n".join(grid(_rows(found))), found)
    return 0


def _contestants(
    local: Path, server: S3Server, proxy: Proxy, step_s: float
) -> dict[str, Callable[[], dict[str, float]]]:
    cache = local.parent / "cache"
    secrets = {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
    }

    def turn(**place: Any) -> dict[str, float]:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        said = json.dumps({"step_s": step_s, **place})
        found: dict[str, float] = told_by("tools.store_training", "--turn", said, **secrets)
        return found

    remote = {"path": f"s3://{PUBLIC}/pictures", "cache": str(cache), "endpoint": proxy.endpoint}
    return {"local files": lambda: turn(path=str(local)), "store": lambda: turn(**remote)}


def _rows(found: dict[str, dict[str, float]]) -> list[list[str]]:
    local = found["local files"]
    rows = [["", "first batch s", "first epoch s", "of local", "second epoch s", "of local"]]
    for name, each in found.items():
        row = [name, f"{each['first_s']:.2f}"]
        for epoch in ("first_epoch_s", "second_epoch_s"):
            row += [f"{each[epoch]:.2f}", f"{each[epoch] / local[epoch]:.3f}"]
        rows.append(row)
    return rows


def _turn(path: str, step_s: float, cache: str = "", endpoint: str = "") -> dict[str, float]:
    """Train for two epochs; returns what was measured."""
    more: dict[str, Any] = {}
    if cache:
        store = {"endpoint": endpoint, "virtual_hosted_style_request": False}
        os.environ["AWS_ALLOW_HTTP"] = "true"
        more = {"cache": ShardCache(cache, "4GB"), "store": store}
    figures: dict[str, float] = {}
    began = time.perf_counter()
    pictures = Shards(path, **more).images("jpg", "cls", **as_trained())
    options: dict[str, Any] = {"shuffle": True, "seed": 0, "num_workers": WORKERS}
    with DataLoader(pictures, batch_size=_BATCH, persistent_workers=True, **options) as loader:
        for name in ("first_epoch_s", "second_epoch_s"):
            for _ in loader:
                figures.setdefault("first_s", time.perf_counter() - began)
                time.sleep(step_s)  # noqa: TID251  the step of a device
            figures[name] = time.perf_counter() - began
            began = time.perf_counter()
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
