"""Measure shards beside the libraries whose formats they are: an epoch, shuffled, with two workers.

    make shard-libraries
    PYTHONPATH=.venv/shard-libraries python -m tools.shard_bench [--rounds 5] [--json FILE] [--cold]

Each contestant makes its loader anew, takes all batches, and copies nothing; what is said is the
wall clock and the CPU seconds of all its processes, for a sample. Libraries that are not installed
are left out. Each shuffles as it does by default: WebDataset by a buffer of 1,000 samples. With
--cold the system's cache of the files is dropped before each turn.
"""

from __future__ import annotations

import importlib
import io
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, ShardOrder, Shards, write_shards
from tools.turns import Report, command_line, grid, in_turns, medians

Epoch = Callable[[], int]  # takes all batches; returns how many samples there were
Contestants = dict[str, Epoch]

WORKERS, BATCH = 2, 64
TOKENS, ROWS, PICTURES = 50_000, 50_000, 8_000  # so that starting is a small part of an epoch
_SIDE, _BLOCK = 224, 2048


def main() -> int:
    """Measure and print a table for each work; write JSON where that is asked for."""
    parser = command_line("shard_bench", __doc__)
    parser.add_argument("--cold", action="store_true", help="drop the files' cache before a turn")
    parser.add_argument("--work", choices=[*WORKS], action="append", help="these alone")
    options = parser.parse_args()
    report = Report(options)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for name in options.work or WORKS:
            place = Path(folder) / name
            place.mkdir()
            contestants = {
                each: measured(epoch, place if options.cold else None)
                for each, epoch in WORKS[name](place).items()
            }
            if not contestants:
                continue
            found[name] = medians(in_turns(contestants, report.rounds, warm_ups=1))
            print("\n".join([name, *grid(_rows(found[name])), ""]), flush=True)
    report.show("", found)
    return 0


def measured(epoch: Epoch, cold: Path | None) -> Callable[[], dict[str, float]]:
    """Return what measures an epoch: microseconds a sample, of the clock and of processors."""

    def run() -> dict[str, float]:
        if cold is not None:
            _drop_cache(cold)
        cpu, began = _cpu_s(), time.perf_counter()
        count = epoch()
        wall = time.perf_counter() - began
        return {"wall_us": wall / count * 1e6, "cpu_us": (_cpu_s() - cpu) / count * 1e6}

    return run


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _drop_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _rows(found: dict[str, dict[str, float]]) -> list[list[str]]:
    ours = next(iter(found.values()))
    rows = [["", "us a sample", "to ours", "CPU us", "to ours"]]
    for name, figures in found.items():
        cells = []
        for key in ("wall_us", "cpu_us"):
            cells += [f"{figures[key]:,.1f}", f"{figures[key] / ours[key]:.2f}"]
        rows.append([name, *cells])
    return rows


def ours(dataset: Any, length: Callable[[Any], int], shuffled: bool = True) -> Epoch:
    """Return an epoch of our loader over shards, in a windowed order."""

    def run() -> int:
        order = ShardOrder(dataset, 0, rank=0, world_size=1) if shuffled else None
        with DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, sampler=order) as loader:
            return sum(length(batch) for batch in loader)

    return run


def _torch_epoch(dataset: Any, length: Callable[[Any], int], **options: Any) -> int:
    from torch.utils.data import DataLoader as TorchLoader

    options = {"batch_size": BATCH, "num_workers": WORKERS, **options}
    return sum(length(batch) for batch in TorchLoader(dataset, **options))


def tokens(folder: Path) -> Contestants:
    """Return 1,024 tokens of uint16 a sample, in MDS."""
    rng = np.random.default_rng(0)
    samples = [{"tokens": rng.integers(0, 60_000, 1024, dtype=np.uint16)} for _ in range(TOKENS)]
    place = folder / "mds"
    write_shards(samples, place, "mds", columns={"tokens": "ndarray:uint16:1024"})
    contestants = {"reader.Shards": ours(Shards(place), _of("tokens"))}
    library = library_of("streaming")
    if library is not None:
        clean = importlib.import_module("streaming.base.util").clean_stale_shared_memory

        def run() -> int:
            clean()
            dataset = library.StreamingDataset(local=str(place), shuffle=True, batch_size=BATCH)
            return _torch_epoch(dataset, _of("tokens"))

        contestants["Streaming"] = run
    return contestants


def rows(folder: Path) -> Contestants:
    """Return 200 bytes and a number a sample, in tar."""
    rng = np.random.default_rng(0)
    samples = [{"x.bin": rng.bytes(200), "cls": k % 10} for k in range(ROWS)]
    write_shards(samples, folder / "tar", "tar", shard_size="4MB")
    dataset = Shards(folder / "tar", fields={"x.bin": np.uint8, "cls": int})
    contestants = {"reader.Shards": ours(dataset, _of("cls"))}
    library = library_of("webdataset")
    if library is not None:

        def sample(found: dict[str, Any]) -> tuple[Any, int]:
            return np.frombuffer(found["x.bin"], np.uint8).copy(), int(found["cls"])

        contestants["WebDataset"] = _webdataset(library, folder / "tar", sample)
    return contestants


def blocks(folder: Path) -> Contestants:
    """Return 2,048 tokens of int32 a sample, in chunks that LitData wrote."""
    library, torch = library_of("litdata"), library_of("torch")
    if library is None or torch is None:
        return {}
    make = importlib.import_module("litdata.streaming.item_loader").TokensLoader
    writer = importlib.import_module("litdata.streaming.writer").BinaryWriter(
        str(folder / "chunks"), chunk_bytes="8MB", item_loader=make(block_size=_BLOCK)
    )
    rng = np.random.default_rng(0)
    for k in range(TOKENS // 2):
        writer[k] = torch.from_numpy(rng.integers(0, 60_000, _BLOCK, dtype=np.int32))
    writer.done()
    writer.merge()

    def theirs() -> int:
        loader = make(block_size=_BLOCK)
        dataset = library.StreamingDataset(str(folder / "chunks"), shuffle=True, item_loader=loader)
        batches = library.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
        return sum(map(len, batches))

    dataset = Shards(folder / "chunks", block_size=_BLOCK)
    return {"reader.Shards": ours(dataset, len), "LitData": theirs}


def examples(folder: Path) -> Contestants:
    """Return 64 floats and a label a sample, in TFRecord."""
    rng = np.random.default_rng(0)
    samples = [{"x": rng.random(64).tolist(), "cls": [k % 10]} for k in range(ROWS)]
    write_shards(samples, folder / "tfrecord", "tfrecord", shard_size="4MB")
    kept = {"x": np.float32, "cls": int}
    checked, unchecked = (
        Shards(folder / "tfrecord", fields=kept, check=check) for check in (True, False)
    )
    contestants = {
        "reader.Shards": ours(checked, _of("cls")),
        "reader.Shards, check=False": ours(unchecked, _of("cls")),
    }
    library = library_of("tfrecord.torch")
    if library is not None:
        files = sorted(path.name for path in (folder / "tfrecord").glob("*.tfrecord"))
        splits = {name.removesuffix(".tfrecord"): 1.0 for name in files}

        def run() -> int:
            dataset = library.MultiTFRecordDataset(
                f"{folder}/tfrecord/{{}}.tfrecord",
                None,
                splits,
                {"x": "float", "cls": "int"},
                shuffle_queue_size=1000,
                infinite=False,
            )
            # each of its workers would read all files
            return _torch_epoch(dataset, _of("cls"), num_workers=0)

        contestants["tfrecord, without workers"] = run
    dali = library_of("nvidia.dali")
    if dali is not None:
        contestants["DALI, threads"] = _dali(dali, folder / "tfrecord")
    return contestants


def _dali(library: Any, folder: Path) -> Epoch:
    """Return an epoch of DALI on the processor, over TFRecords whose indices are made first."""
    kinds = importlib.import_module("nvidia.dali.tfrecord")
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    for path in paths:
        at, lines = 0, []
        content = Path(path).read_bytes()
        while at < len(content):
            nbytes = 16 + int.from_bytes(content[at : at + 8], "little")
            lines.append(f"{at} {nbytes}\n")
            at += nbytes
        Path(f"{path}.idx").write_text("".join(lines))

    @library.pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)  # type: ignore[untyped-decorator]
    def batches() -> Any:
        features = {
            "x": kinds.FixedLenFeature((64,), kinds.float32, 0.0),
            "cls": kinds.FixedLenFeature((1,), kinds.int64, -1),
        }
        found = library.fn.readers.tfrecord(
            path=paths,
            index_path=[f"{path}.idx" for path in paths],
            features=features,
            random_shuffle=True,
            initial_fill=1000,
            name="reader",
        )
        return found["x"], found["cls"]

    def run() -> int:
        made = batches()
        made.build()
        count = made.epoch_size("reader")
        for _ in range(-(-count // BATCH)):
            x, label = made.run()
            x.as_array(), label.as_array()
        return int(count)

    return run


def jpegs(count: int) -> list[dict[str, Any]]:
    """Return samples with a JPEG of 500 x 375 and its class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    samples = []
    for k in range(count):
        small = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((500, 375)).save(file, "JPEG", quality=90)
        samples.append({"jpg": file.getvalue(), "cls": k % 10})
    return samples


def as_trained() -> dict[str, Any]:
    """Return the options of pictures: float32 crops of 224 x 224."""
    from reader.images import RandomHorizontalFlip, RandomResizedCrop

    made = [RandomResizedCrop(), RandomHorizontalFlip()]
    how: dict[str, Any] = {"size": (_SIDE, _SIDE), "transforms": made, "dtype": "float32"}
    return how | {"layout": "channels_first"}


def pictures(folder: Path) -> Contestants:
    """Return JPEGs as an ImageFolder, in shards, and under WebDataset."""
    from PIL import Image

    from reader.images import ImageFolder

    samples, how = jpegs(PICTURES), as_trained()
    for k, each in enumerate(samples):
        place = folder / "files" / str(each["cls"])
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{k}.jpg").write_bytes(each["jpg"])
    for form in ("tar", "mds"):
        write_shards(samples, folder / form, form, shard_size="16MB")

    def files() -> int:
        dataset = ImageFolder(folder / "files", **how)
        options: dict[str, Any] = {"shuffle": True, "seed": 0}
        with DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, **options) as loader:
            return sum(len(labels) for _, labels in loader)

    def second(batch: Any) -> int:
        return len(batch[1])

    contestants: Contestants = {"reader.images.ImageFolder": files}
    for form in ("tar", "mds"):
        dataset = Shards(folder / form).images("jpg", "cls", **how)
        contestants[f"reader.Shards, {form}"] = ours(dataset, second)
    library, vision = library_of("webdataset"), library_of("torchvision.transforms")
    if library is not None and vision is not None:
        transform = vision.Compose(
            [vision.RandomResizedCrop(_SIDE), vision.RandomHorizontalFlip(), vision.ToTensor()]
        )

        def sample(found: dict[str, Any]) -> tuple[Any, int]:
            image = Image.open(io.BytesIO(found["jpg"])).convert("RGB")
            return transform(image), int(found["cls"])

        contestants["WebDataset, torchvision"] = _webdataset(library, folder / "tar", sample)
    return contestants


def _webdataset(library: Any, folder: Path, sample: Callable[[Any], Any]) -> Epoch:
    files = sorted(map(str, folder.glob("*.tar")))

    def run() -> int:
        dataset = library.WebDataset(files, shardshuffle=len(files), empty_check=False)
        dataset = dataset.shuffle(1000).map(sample).batched(BATCH)
        loader = library.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
        return sum(len(labels) for _, labels in loader)

    return run


def _of(name: str) -> Callable[[Any], int]:
    return lambda batch: len(batch[name])


def library_of(name: str) -> Any:
    """Return a library; None: it is not installed."""
    try:
        if name in ("streaming", "litdata"):  # some of what they import has stand-ins
            from tests.peers.test_shard_libraries import streaming, with_stand_ins

            return streaming() if name == "streaming" else with_stand_ins(name)
        return importlib.import_module(name)
    except (Exception, BaseException) as error:  # pytest's skip, too
        if isinstance(error, KeyboardInterrupt):
            raise
        warnings.warn(f"{name} is left out: {error}", stacklevel=2)
        return None


WORKS: dict[str, Callable[[Path], Contestants]] = {
    "tokens": tokens,
    "rows": rows,
    "blocks": blocks,
    "examples": examples,
    "pictures": pictures,
}


if __name__ == "__main__":
    raise SystemExit(main())
