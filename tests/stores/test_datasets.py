"""Datasets of files in stores: the samples of local files, by the process that fetches alone."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import csv, feather, ipc, parquet

from reader import (
    ConfigError,
    DataLoader,
    DatasetError,
    Documents,
    ImageError,
    Padded,
    RecordIO,
    RecordWriter,
    ShardCache,
    Subset,
    TableRows,
    TokenWindows,
    cache,
)
from reader.compat.gluon.datasets import RecordFileDataset
from reader.compat.gluon.image_datasets import ImageRecordDataset
from reader.compat.gluon.recordio import MXIndexedRecordIO, MXRecordIO, pack_img
from reader.images import ImageFolder, Normalize, RandomResizedCrop, decode
from reader.stores.shard_cache import CacheUse
from tests.processes import wait_until
from tests.stores import servers
from tests.stores.proxy import Rule, faulty
from tests.stores.servers import S3Server, s3_server
from tests.stores.test_shards import all_of, equal, options, upload
from tests.token_files import gathered, megatron

pytestmark = pytest.mark.slow

COUNT = 120
WORKERS = ["fork", "spawn", "thread"]


def write_files(folder: Path) -> None:
    """Write records, pictures in records, and tokens."""
    rng = np.random.default_rng(0)
    with RecordWriter(folder / "plain.rec") as file:
        for k in range(COUNT):
            file.write(rng.bytes(int(rng.integers(0, 9000))) + b"\xd7\x0a\x23\xce" * (k % 3))
    (folder / "bare.rec").write_bytes((folder / "plain.rec").read_bytes())
    with RecordWriter(folder / "pictures.rec") as file:
        for k in range(30):
            picture = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            file.write(pack_img((0, float(k), k, 0), picture, 3, ".png"))
    tokens = rng.integers(0, 50_000, 200_000)
    tokens.astype(np.uint16).tofile(folder / "tokens.bin")
    np.save(folder / "tokens.npy", tokens.astype(np.uint32))
    tokens[::2003] = 7
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    (folder / "shard.bin").write_bytes(header.tobytes() + tokens.astype(np.uint16).tobytes())
    megatron(folder / "megatron.bin", np.split(tokens, range(0, 200_000, 1999)), "uint16")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, local: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        upload(server, "files", local)
        server.signed("DELETE", "/files/bare.idx")
        yield server


def made(name: str, base: str, **how: Any) -> Any:
    """Return a dataset of local files, or of those in a store."""
    makers: dict[str, Callable[[], Any]] = {
        "records": lambda: RecordIO(f"{base}/plain.rec", **how),
        "gluon": lambda: RecordFileDataset(f"{base}/plain.rec", **how),
        "pictures": lambda: ImageRecordDataset(f"{base}/pictures.rec", **how),
        "tokens": lambda: TokenWindows(f"{base}/tokens.bin", 300, targets=True, **how),
        "npy": lambda: TokenWindows(f"{base}/tokens.npy", 700, 350, shuffle=True, **how),
        "shard": lambda: TokenWindows(f"{base}/shard.bin", 1000, document_end=7, **how),
        "documents": lambda: Documents(f"{base}/shard.bin", document_end=7, **how),
        "megatron": lambda: Documents(f"{base}/megatron.bin", **how),
    }
    return makers[name]()


NAMES = ["records", "gluon", "pictures", "tokens", "npy", "shard", "documents", "megatron"]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return equal(one, other)


def all_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


# -- equal samples ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_those_of_local_files(name: str, local: Path, server: S3Server) -> None:
    here, there = made(name, str(local)), made(name, "s3://files", store=options(server))
    assert len(there) == len(here)
    assert all_same([there[k] for k in (0, -1, 5)], [here[k] for k in (0, -1, 5)])
    order = np.random.default_rng(1).permutation(len(here)).tolist()
    expected = [here[k] for k in order]
    for method in WORKERS:
        how = {"worker_type": "thread"} if method == "thread" else {"start_method": method}
        assert all_same(all_of(there, order, num_workers=2, **how), expected)
    for copied in (copy.copy(there), pickle.loads(pickle.dumps(there))):
        assert all_same(all_of(copied, order), expected)


@pytest.mark.parametrize("name", NAMES)
def test_nobody_but_the_process_that_fetches_has_a_client(name: str, server: S3Server) -> None:
    there = made(name, "s3://files", store=options(server))
    assert there[0] is not None
    assert "obstore" not in sys.modules


@pytest.mark.parametrize("name", ["records", "pictures", "tokens", "npy"])
def test_an_object_that_changes_is_told(name: str, local: Path, server: S3Server) -> None:
    bucket = f"changing-{name}"
    upload(server, bucket, local)
    there = made(name, f"s3://{bucket}", store=options(server), cache=ShardCache())
    for path in local.iterdir():
        server.put(bucket, path.name, bytes(reversed(path.read_bytes())))
    there._files.use = CacheUse(ShardCache(), "another")  # of the first one all bytes are here
    fresh = pickle.loads(pickle.dumps(there))
    with pytest.raises(DatasetError, match=rf"'s3://{bucket}/.*has changed since"):
        all_of(fresh, None, num_workers=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda **how: RecordIO("s3://files/none.rec", **how),
        lambda **how: RecordIO("s3://files/plain.rec", "s3://files/none.idx", **how),
        lambda **how: MXRecordIO("s3://files/none.rec", "r", **how),
        lambda **how: MXIndexedRecordIO("s3://files/none", "s3://files/plain.rec", "r", **how),
        lambda **how: TokenWindows("s3://files/none.bin", 3, **how),
        lambda **how: TokenWindows("s3://files/none.npy", 3, **how),
    ],
)
def test_what_is_not_there_is_told(make: Callable[..., Any], server: S3Server) -> None:
    with pytest.raises(ConfigError, match=r"no (such object|index)") as error:
        make(store=options(server))
    assert server.secret_key not in str(error.value)
    with pytest.raises(ConfigError, match="is refused by the store: set the cred"):
        make(store=options(server, secret_access_key="wrong"))


# -- documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["documents", "megatron"])
def test_pieces_of_documents_are_fetched_together(
    name: str, local: Path, server: S3Server, tmp_path: Path
) -> None:
    store = options(server)
    here = made(name, str(local))
    there = made(name, "s3://files", store=store, index=tmp_path / "kept")
    assert there.lengths.tolist() == here.lengths.tolist()
    assert len(list(tmp_path.glob("kept/.reader-*"))) == (name == "documents")
    pieces = [(90, 5, 700), (3, 0, 0), (2, 1999, 0), (1, 0, 1), (90, 700, 9)]
    found, wanted = (gathered(each, pieces, {"tokens": "int64"}) for each in (there, here))
    assert found["tokens"].tolist() == wanted["tokens"].tolist()
    assert there.origin(90).path.startswith("s3://files/")
    assert there.origin(90)[1:] == here.origin(90)[1:]


# -- records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_loader_says_what_was_fetched(name: str, local: Path, server: S3Server) -> None:
    with DataLoader(made(name, "s3://files", store=options(server)), num_workers=2) as loader:
        nbytes = sum(1 for _ in loader) and loader.stats()["fetch"]["bytes"]
    with DataLoader(made(name, str(local))) as loader:
        assert loader.stats()["fetch"] is None
    assert nbytes > 0


def test_records_are_found_without_an_index(local: Path, server: S3Server) -> None:
    here, there = (
        RecordIO(local / "bare.rec"),
        RecordIO("s3://files/bare.rec", store=options(server)),
    )
    assert there.keys == here.keys
    assert list(there) == list(here)
    assert RecordIO("s3://files/bare.rec", local / "bare.idx", store=options(server))[3] == here[3]


def test_records_of_mxnet_are_read_in_their_order_and_by_key(local: Path, server: S3Server) -> None:
    store, here = options(server), list(RecordIO(local / "plain.rec"))
    file = MXRecordIO("s3://files/plain.rec", "r", store=store)
    assert [file.read() for _ in range(3)] == here[:3]
    copied = pickle.loads(pickle.dumps(file))
    assert list(iter(copied.read, None)) == here[3:]
    assert list(iter(file.read, None)) == here[3:]
    file.close()
    with pytest.raises(ConfigError, match="it is closed"):
        pickle.loads(pickle.dumps(file)).read()
    indexed = MXIndexedRecordIO("s3://files/plain.idx", "s3://files/plain.rec", "r", store=store)
    assert [indexed.read_idx(key) for key in (5, 2)] == [here[5], here[2]]
    assert pickle.loads(pickle.dumps(indexed)).read_idx(7) == here[7]


def test_a_damaged_record_names_its_address(local: Path, server: S3Server) -> None:
    content = (local / "plain.rec").read_bytes()
    server.make_bucket("damaged")
    server.put("damaged", "a.rec", b"\0" * 4 + content[4:-900])
    server.put("damaged", "a.idx", (local / "plain.idx").read_bytes())
    there = RecordIO("s3://damaged/a.rec", store=options(server))
    with pytest.raises(DatasetError, match=r"record 0 of 's3://damaged/a\.rec'.*is damaged"):
        there[0]
    with DataLoader(
        there, batch_size=8, num_workers=1, on_error="skip", error_budget=0.5, collate_fn=list
    ) as loader:
        found = [each for batch in loader for each in batch]
    assert found == list(RecordIO(local / "plain.rec"))[1 : len(found) + 1]
    assert len(found) > 100


def test_records_of_a_batch_are_asked_for_together(server: S3Server) -> None:
    there = RecordIO("s3://files/plain.rec", store=options(server), cache=ShardCache())
    before = there._files.fetch_stats()
    assert len(all_of(there, range(64))) == 64
    after = there._files.fetch_stats()
    assert after["requests"] - before["requests"] < 10


# -- tokens -----------------------------------------------------------------------------------


def test_tokens_are_fetched_by_ranges(server: S3Server) -> None:
    tokens = np.arange(30 << 20, dtype=np.uint8)
    server.make_bucket("ranges")
    server.put("ranges", "tokens.bin", tokens.tobytes())
    how = {"dtype": "uint8", "header": 0, "store": options(server)}
    there = TokenWindows("s3://ranges/tokens.bin", 1000, cache=ShardCache(), **how)
    assert np.array_equal(there[20_000], tokens[20_000_000:20_001_000])
    assert there._files.fetch_stats()["bytes"] < 20 << 20


def test_of_more_than_is_kept_few_bytes_are_fetched_by_themselves(server: S3Server) -> None:
    tokens = np.arange(80 << 20, dtype=np.uint8)
    server.make_bucket("large")
    server.put("large", "tokens.bin", tokens.tobytes())
    how = {"dtype": np.uint8, "header": 0, "store": options(server)}
    windows = TokenWindows("s3://large/tokens.bin", 1000, cache=ShardCache(limit="64MiB"), **how)

    def fetched(order: list[int]) -> int:
        before = windows._files.fetch_stats()["bytes"]
        with DataLoader(windows, batch_size=20, sampler=order) as loader:
            for index, row in zip(order, itertools.chain.from_iterable(loader), strict=True):
                assert np.array_equal(row, tokens[index * 1000 : index * 1000 + 1000])
        return int(windows._files.fetch_stats()["bytes"] - before)

    scattered = np.random.default_rng(0).permutation(len(windows))[:200].tolist()
    assert fetched(scattered) < 40 << 20  # all of what was beside them would be 1.6 GB
    begin = len(windows) // 2
    requests = windows._files.fetch_stats()["requests"]
    fetched(list(range(begin, begin + 400)))  # what follows comes with what is asked for
    assert windows._files.fetch_stats()["requests"] - requests < 40


def test_what_holds_no_tokens_is_refused_by_name(local: Path, server: S3Server) -> None:
    server.make_bucket("wrong")
    contents = {
        "text.bin": b"once upon a time there was a file of text " * 9,
        "cut.npy": (local / "tokens.npy").read_bytes()[:-7],
        "object.npy": b"\x93NUMPY\x01\0v\0" + b"{'descr': '|O'}".ljust(117) + b"\n",
        "axes.npy": b"\x93NUMPY\x01\0v\0"
        + b"{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }".ljust(117)
        + b"\n"
        + bytes(8),
    }
    told = {
        "text.bin": "is text: it begins with",
        "cut.npy": "holds no plain integers, or is damaged: 200,000 tokens are named",
        "object.npy": "holds no plain integers, or is damaged",
        "axes.npy": r"holds \(2, 2\) of <u2",
    }
    for name, content in contents.items():
        server.put("wrong", name, content)
        with pytest.raises(ConfigError, match=rf"'s3://wrong/{name}' {told[name]}"):
            TokenWindows(f"s3://wrong/{name}", 2, store=options(server))


# -- pictures ---------------------------------------------------------------------------------


def write_pictures(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    names = [
        "b/10.png",
        "b/9.png",
        "b/deep/0.png",
        "b/deep.er/0.jpg",
        "b-c/1.png",
        "a a/é+~%20.png",
    ]
    names += [f"b/{k}.png" for k in range(20, 60)]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (24, 31, 3), dtype=np.uint8)).save(path)
    (folder / "b" / "notes.txt").write_text("no picture")
    (folder / "beside.png").write_bytes((folder / names[0]).read_bytes())
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Path:
    folder = write_pictures(tmp_path_factory.mktemp("pictures"))
    upload(server, "pictures", folder)
    return folder


def names_of(folder: ImageFolder) -> list[tuple[str, int]]:
    return [(path.removeprefix(str(folder.root)), number) for path, number in folder.samples]


def batches_of(folder: Any, order: Any = None, **how: Any) -> list[Any]:
    with DataLoader(folder, batch_size=8, sampler=order, **how) as loader:
        return list(loader)


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert all(map(np.array_equal, one, other))


def pixels(sample: Any) -> Any:
    return sample[0]


AHEAD: dict[str, Callable[[ImageFolder], Any]] = {
    "itself": lambda folder: folder,
    "mapped": lambda folder: folder.map(pixels),
    "chosen": lambda folder: Subset(folder, list(range(len(folder)))[::-1]),
    "padded": lambda folder: Padded(folder),
}


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("name", AHEAD)
def test_pictures_that_come_next_are_fetched_before_they_are_asked_for(
    name: str, shuffle: bool, pictures: Path, server: S3Server
) -> None:
    folder = ImageFolder("s3://pictures", size=(16, 16), store=options(server))
    dataset = AHEAD[name](folder)
    total = sum(path.stat().st_size for path in pictures.glob("*/**/*.*g"))
    how: dict[str, Any] = {"batch_size": 4, "shuffle": shuffle, "seed": 0, "collate_fn": list}
    with DataLoader(dataset, num_workers=1, **how) as loader:
        batches = iter(loader)
        next(batches)
        wait_until(lambda: loader.stats()["fetch"]["kept"] == total)
        assert loader.stats()["fetch"]["given"] < total
        assert sum(1 for _ in batches) == len(folder) // 4
        assert loader.stats()["fetch"]["bytes"] == total


def test_an_epoch_of_pictures_that_are_fetched_ahead_goes_on_anywhere(
    pictures: Path, server: S3Server
) -> None:
    folder = ImageFolder("s3://pictures", size=(16, 16), store=options(server))
    how: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "num_workers": 2}
    with DataLoader(ImageFolder(pictures, size=(16, 16)), **how) as loader:
        expected = list(loader) + list(loader)
    for taken in (1, 5, len(expected) // 2 + 1):
        with DataLoader(folder, **how) as loader:
            batches = itertools.chain(loader, loader)
            found = list(itertools.islice(batches, taken))
            state = loader.state_dict()
            batches = None
        with DataLoader(folder, **how) as loader:
            loader.load_state_dict(state)
            found += loader
            if len(found) < len(expected):
                found += loader
        assert_equal(found, expected)


@pytest.mark.parametrize("root", ["s3://pictures", "s3://pictures/", "S3A://pictures"])
def test_pictures_are_those_of_a_local_folder(root: str, pictures: Path, server: S3Server) -> None:
    how: dict[str, Any] = {
        "size": (16, 16),
        "transforms": [RandomResizedCrop(), Normalize([0.4] * 3, [0.2] * 3)],
    }
    here = ImageFolder(pictures, **how)
    there = ImageFolder(root, store=options(server), **how)
    assert (there.classes, there.class_to_idx) == (here.classes, here.class_to_idx)
    assert names_of(there) == names_of(here)
    assert list(there.targets) == list(here.targets)
    order = np.random.default_rng(1).permutation(len(here)).tolist()
    expected = batches_of(here, order, seed=3)
    for method in WORKERS:
        where = {"worker_type": "thread"} if method == "thread" else {"start_method": method}
        assert_equal(batches_of(there, order, seed=3, num_workers=2, **where), expected)
    assert_equal(batches_of(pickle.loads(pickle.dumps(there)), order, seed=3), expected)
    assert "obstore" not in sys.modules


def test_a_loader_of_pictures_says_what_was_fetched(pictures: Path, server: S3Server) -> None:
    folder = ImageFolder("s3://pictures", size=(8, 8), store=options(server))
    with DataLoader(folder, num_workers=2) as loader:
        assert sum(1 for _ in loader) > 0 < loader.stats()["fetch"]["bytes"]


def test_what_is_chosen_of_pictures_is_chosen_in_a_store(pictures: Path, server: S3Server) -> None:
    store = options(server)
    for how in (
        {"extensions": (".jpg", ".txt"), "allow_empty": True},
        {"is_valid_file": lambda path: path.endswith(("0.png", "g"))},
    ):
        here = ImageFolder(pictures, **how)  # type: ignore[arg-type]
        there = ImageFolder("s3://pictures", store=store, **how)  # type: ignore[arg-type]
        assert names_of(there) == names_of(here)
    with pytest.raises(ConfigError, match=r"of 3 classes in 's3://pictures' 2 have no file"):
        ImageFolder("s3://pictures", extensions=".jpg", store=store)
    with pytest.raises(ConfigError, match="'s3://pictures/b/deep' holds no folder"):
        ImageFolder("s3://pictures/b/deep", store=store)
    there = ImageFolder("s3://pictures", store=store)
    there.samples = [*there.samples[3:5], ("s3://pictures/beside.png", 2)]
    assert there[2][1] == 2
    assert np.array_equal(there[2][0], decode(pictures / "beside.png"))
    with pytest.raises(ConfigError, match=r"'s3://pictures/none.png' cannot be read"):
        there.samples = [("s3://pictures/none.png", 2)]


def test_pictures_of_a_store_are_cached(pictures: Path, server: S3Server, tmp_path: Path) -> None:
    here = ImageFolder(pictures, size=(16, 16))
    for there in (
        ImageFolder("s3://pictures", size=(16, 16), cache="64MB", store=options(server)),
        cache(
            ImageFolder("s3://pictures", size=(16, 16), store=options(server)), "64MB", what="files"
        ),
        cache(
            ImageFolder(
                "s3://pictures",
                size=(16, 16),
                cache=ShardCache(tmp_path / "b"),
                store=options(server),
            ),
            disk=tmp_path / "pictures",
        ),
    ):
        for _ in range(2):
            assert_equal(batches_of(there, num_workers=2), batches_of(here))


def test_a_list_is_kept_and_the_next_program_lists_nothing(
    pictures: Path, server: S3Server, tmp_path: Path
) -> None:
    upload(server, "listed", pictures)
    how: dict[str, Any] = {"index": tmp_path / "index", "store": options(server)}
    first = ImageFolder("s3://listed", **how)
    (kept,) = (tmp_path / "index").iterdir()
    server.put("listed", "new/1.png", (pictures / "b/9.png").read_bytes())
    second = ImageFolder("s3://listed", **how)
    assert list(second.samples) == list(first.samples)
    assert_equal(batches_of(second), batches_of(ImageFolder(pictures)))
    server.put("listed", "b/9.png", (pictures / "b/10.png").read_bytes())
    (place,) = (k for k, (path, _) in enumerate(second.samples) if path.endswith("/b/9.png"))
    fresh = ImageFolder("s3://listed", cache=ShardCache(), **how)
    with pytest.raises(ImageError, match=rf"b/9.png' has changed since.*remove '{kept}'"):
        fresh[place]
    kept.write_bytes(kept.read_bytes()[:-9])  # damaged: it is made anew
    assert len(ImageFolder("s3://listed", **how)) == len(first) + 1
    assert [kept] == list((tmp_path / "index").iterdir())
    with pytest.raises(ConfigError, match=r"index='.*' is for the list of what lies in a store"):
        ImageFolder(pictures, index=tmp_path)
    with pytest.raises(ConfigError, match=r"index must be the path .* got the URL"):
        ImageFolder("s3://listed", index="s3://listed/index", store=options(server))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"index='.*' cannot be written to"):
        ImageFolder("s3://listed", index=tmp_path / "file", store=options(server))


def test_pictures_that_are_not_there_fail_alone(pictures: Path, server: S3Server) -> None:
    upload(server, "holes-of-pictures", pictures)
    there = ImageFolder("s3://holes-of-pictures", store=options(server))
    here = ImageFolder(pictures)
    server.signed("DELETE", "/holes-of-pictures/b/30.png")
    with pytest.raises(ImageError, match=r"'s3://holes-of-pictures/b/30.png' is not there"):
        batches_of(there, num_workers=1)
    with DataLoader(
        there, batch_size=8, num_workers=2, on_error="skip", error_budget=0.5
    ) as loader:
        found = np.concatenate([batch[0] for batch in loader])
    rest = [image for (image, _), (path, _) in zip(here, here.samples) if "/30." not in path]
    assert np.array_equal(found, np.stack(rest))


def test_pictures_of_a_batch_are_on_their_way_together(pictures: Path, server: S3Server) -> None:
    with faulty(server.endpoint, seed=1) as proxy:
        store = options(server, proxy.endpoint)
        there = ImageFolder("s3://pictures", store=store, cache=ShardCache())
        there[0]
        proxy.set_rules(Rule("delay", 200))
        found = batches_of(Subset(there, range(1, 33)).map(lambda sample: sample[1]), num_workers=1)
        assert len(found) == 4
        assert proxy.counters().most_requests >= 8


# -- tables -----------------------------------------------------------------------------------

TABLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a parquet file": ("parquet/0.parquet", {"columns": ["x", "t", "s.a"]}),
    "some columns": ("parquet/0.parquet", {"columns": ["x", "s.b"], "as_dtype": {"x": "float64"}}),
    "a folder": ("parquet", {"columns": ["t", "s.b"]}),
    "folders of values": ("parts", {"columns": ["year", "x"]}),
    "a list": (["parquet/1.parquet", "parquet/0.parquet"], {"columns": ["x"]}),
    "an arrow file": ("table.arrow", {}),
    "a feather file that is compressed": ("table.feather", {"columns": ["x", "t"]}),
    "a stream": ("table.ipc", {}),
    "csv": ("table.csv", {}),
    "csv that is compressed": ("table.csv.gz", {}),
    "lines of json": ("lines", {}),
}


def write_tables(folder: Path) -> Path:
    rng = np.random.default_rng(3)

    def table(count: int) -> Any:
        numbers = rng.random(count).astype(np.float32)
        texts = [f"text {k}" for k in range(count)]
        inner = pyarrow.StructArray.from_arrays([pyarrow.array(range(count))] * 2, ["a", "b"])
        return pyarrow.table({"x": numbers, "t": texts, "s": inner})

    for name in ("parquet", "parts/year=2020", "parts/year=2021.5", "lines"):
        (folder / name).mkdir(parents=True)
    for k in range(3):
        parquet.write_table(table(400), folder / "parquet" / f"{k}.parquet", row_group_size=150)
    for name in ("year=2020", "year=2021.5"):
        parquet.write_table(table(50), folder / "parts" / name / "a.parquet")
    plain = table(300).drop_columns(["s"])
    feather.write_feather(plain, folder / "table.arrow", compression="uncompressed")
    feather.write_feather(plain, folder / "table.feather", compression="zstd", chunksize=70)
    with ipc.new_stream(folder / "table.ipc", plain.schema) as stream:
        stream.write_table(plain)
    csv.write_csv(plain, folder / "table.csv")
    (folder / "table.csv.gz").write_bytes(gzip.compress((folder / "table.csv").read_bytes()))
    for k in range(2):
        lines = "".join(f"{json.dumps({'a': k, 'b': [k, 1]})}\n" for k in range(90))
        (folder / "lines" / f"{k}.jsonl").write_text(lines)
    (folder / "lines" / "README.md").write_text("no table")
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Path:
    folder = write_tables(tmp_path_factory.mktemp("tables"))
    upload(server, "tables", folder)
    csv.read_csv(folder / "table.csv")  # pyarrow opens a pipe for signals, once
    return folder


def table_of(name: str, base: str, **how: Any) -> TableRows:
    source, more = TABLES[name]
    path = [f"{base}/{each}" for each in source] if isinstance(source, list) else f"{base}/{source}"
    return TableRows(path, **more, **how)


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_of_local_files(name: str, tables: Path, server: S3Server) -> None:
    here = table_of(name, str(tables))
    there = table_of(name, "s3://tables", store=options(server))
    assert there.fields == here.fields
    expected = all_of(here, None)
    assert equal(all_of(there, None), expected)
    for method in ("fork", "spawn"):
        assert equal(all_of(there, None, num_workers=2, start_method=method), expected)
    assert equal(all_of(pickle.loads(pickle.dumps(there)), None), expected)
    assert "obstore" not in sys.modules


def test_rows_of_a_store_are_kept_on_a_disk(tables: Path, server: S3Server, tmp_path: Path) -> None:
    upload(server, "kept-tables", tables)
    columns = ["x", "t"]
    how: dict[str, Any] = {"disk": tmp_path / "rows", "store": options(server)}
    how["columns"] = columns
    url = "s3://kept-tables/parquet/0.parquet"
    first = all_of(TableRows(url, **how), None)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").iterdir()}
    assert equal(all_of(TableRows(url, **how), None), first)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").iterdir()} == files
    assert all(server.secret_key.encode() not in path.read_bytes() for path in files)
    server.put("kept-tables", "parquet/0.parquet", (tables / "parquet/1.parquet").read_bytes())
    expected = all_of(TableRows(tables / "parquet/1.parquet", columns), None)
    assert equal(all_of(TableRows(url, **how), None), expected)


def test_what_is_no_table_is_told(tables: Path, server: S3Server) -> None:
    store = options(server)
    server.make_bucket("no-tables")
    content = (tables / "parquet" / "0.parquet").read_bytes()
    server.put("no-tables", "cut.parquet", content[:-9])
    server.put("no-tables", "a/text.md", b"text")
    server.put("no-tables", "a/dataset_dict.jsn", b"text")
    for url, told in (
        (
            "s3://no-tables/none.parquet",
            "cannot be read as a table: .*no such object",
        ),
        ("s3://no-tables/cut.parquet", "'s3://no-tables/cut.parquet' is damaged"),
        (
            "s3://no-tables/a",
            "'s3://no-tables/a' has no file that ends in .*but 2 other",
        ),
        ("s3://no-tables/a/text.md", "text.md' is neither a Parquet nor an Arrow file"),
    ):
        with pytest.raises(ConfigError, match=told):
            TableRows(url, store=store)
    with pytest.raises(ConfigError, match="cache= is for what lies in a store"):
        TableRows(tables / "table.arrow", cache=ShardCache())


def test_columns_that_nobody_asks_for_are_not_fetched(server: S3Server, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {f"c{k}": rng.random(1 << 20) for k in range(8)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "wide.parquet", compression="none")
    server.make_bucket("wide")
    server.put("wide", "a.parquet", (tmp_path / "wide.parquet").read_bytes())
    with faulty(server.endpoint, seed=1) as proxy:
        store = options(server, proxy.endpoint)
        there = TableRows("s3://wide/a.parquet", ["c4"], store=store, cache=ShardCache())
        assert there[7]["c4"] == columns["c4"][7]
        assert proxy.counters().bytes_sent < 45e6  # of 67e6


# -- other stores -----------------------------------------------------------------------------


def test_files_behind_http_are_read(local: Path, tmp_path: Path) -> None:
    with servers.http_server(tmp_path) as server:
        upload(server, "files", local)
        for name in NAMES:
            here, there = made(name, str(local)), made(name, f"{server.endpoint}/files")
            assert all_same(all_of(there, None, num_workers=1), all_of(here, None))


FOLDERS = ("a folder", "folders of values", "lines of json")


def test_tables_behind_http_are_read_by_their_names(
    pictures: Path, tables: Path, tmp_path: Path
) -> None:
    with servers.http_server(tmp_path) as server:
        upload(server, "tables", tables)
        upload(server, "pictures", pictures)
        for name in TABLES:
            here = table_of(name, str(tables))
            if name not in FOLDERS:
                there = table_of(name, f"{server.endpoint}/tables")
                assert equal(all_of(there, None, num_workers=1), all_of(here, None))
                continue
            with pytest.raises(ConfigError, match=r"its server does not list it.*name the files"):
                table_of(name, f"{server.endpoint}/tables")
        with pytest.raises(ConfigError, match=r"/pictures' is a folder, and its server does not"):
            ImageFolder(f"{server.endpoint}/pictures")
        with pytest.raises(ConfigError, match=r"none.parquet' cannot be read as a table"):
            TableRows(f"{server.endpoint}/tables/none.parquet")


def test_pictures_and_tables_of_google_s_store_are_read(
    pictures: Path, tables: Path, tmp_path: Path
) -> None:
    with servers.gcs_server(tmp_path) as server:
        upload(server, "tables", tables)
        upload(server, "pictures", pictures)
        store = {"base_url": server.endpoint, "skip_signature": True}
        for name in TABLES:
            here, there = table_of(name, str(tables)), table_of(name, "gs://tables", store=store)
            assert equal(all_of(there, None, num_workers=1), all_of(here, None))
        here_too = ImageFolder(pictures, size=(16, 16))
        there_too = ImageFolder("gs://pictures", size=(16, 16), store=store)
        assert names_of(there_too) == names_of(here_too)
        order = np.random.default_rng(1).permutation(len(here_too)).tolist()
        assert_equal(batches_of(there_too, order, num_workers=2), batches_of(here_too, order))


def test_addresses_of_files_name_their_paths(local: Path) -> None:
    for name in NAMES:
        here, there = made(name, str(local)), made(name, f"file://{local}")
        assert all_same(all_of(there, None), all_of(here, None))
