"""Samples written as shards and read back, in any format, in parallel, and after an end."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reader import ConfigError, ConfigTypeError, DatasetError, Shards, write_shards

FORMATS = ["mds", "tar", "tfrecord", "parquet", "jsonl"]


def needs(form: str) -> None:
    if form == "tfrecord":
        pytest.importorskip("google_crc32c")
    if form == "parquet":
        pytest.importorskip("pyarrow")


def rows(form: str, count: int = 60) -> list[dict[str, Any]]:
    return [{"n": k, "s": "é" * (k % 40)} for k in range(count)]


def read_back(folder: Path, form: str) -> list[dict[str, Any]]:
    fields: Any = {"n": int, "s": str} if form in ("tar", "tfrecord") else None
    shards = Shards(folder, fields=fields)
    return [shards[index] for index in range(len(shards))]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if not each.name.endswith(".index")
    }


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_written_is_read_back_in_its_order(form: str, workers: int, tmp_path: Path) -> None:
    needs(form)
    samples = rows(form)
    count = write_shards(samples, tmp_path / "a", form, shard_size=700, num_workers=workers)
    assert read_back(tmp_path / "a", form) == samples
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert (manifest["format"], manifest["samples"]) == (form, 60)
    assert len(manifest["shards"]) == count > 1
    for shard in manifest["shards"]:
        content = (tmp_path / "a" / shard["name"]).read_bytes()
        assert shard["nbytes"] == len(content)
        assert shard["sha256"] == hashlib.sha256(content).hexdigest()
    write_shards(iter_of(samples), tmp_path / "b", form, shard_size=700)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


class iter_of:
    """An iterable without indices."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return iter(self._samples)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("compression", ["zstd", "gz"])
def test_shards_may_be_compressed(form: str, compression: str, tmp_path: Path) -> None:
    needs(form)
    pytest.importorskip("pyarrow")
    if form == "parquet" and compression == "gz":
        compression = "gzip"
    write_shards(rows(form), tmp_path, form, shard_size=700, compression=compression)
    assert read_back(tmp_path, form) == rows(form)


@pytest.mark.parametrize("form", FORMATS)
def test_what_was_not_finished_is_written_with_the_same_bytes(form: str, tmp_path: Path) -> None:
    needs(form)
    samples = rows(form)
    write_shards(samples, tmp_path / "whole", form, shard_size=700)
    expected = contents(tmp_path / "whole")

    class Ends(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if index == 41:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    folder = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        write_shards(Ends(samples), folder, form, shard_size=700)
    written = {each: (folder / each).stat().st_mtime_ns for each in contents(folder)}
    journal = folder / ".reader-journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"name": "sha')  # a line that was cut
    names = [each for each in written if each.startswith("shard")]
    last = max(names)
    (folder / last).write_bytes(b"damaged")
    (folder / f"{last}.draft").write_bytes(b"a part")
    write_shards(samples, folder, form, shard_size=700)
    assert contents(folder) == expected
    for name in names:
        assert (name == last) == ((folder / name).stat().st_mtime_ns != written[name])
    write_shards(samples, folder, form, shard_size=700)
    assert contents(folder) == expected


VALUES = {
    "bytes": (b"\0\xff", b"\0\xff"),
    "str": ("é", "é"),
    "int": (-(2**63), -(2**63)),
    "uint8": (255, np.uint8(255)),
    "float16": (0.5, np.float16(0.5)),
    "float64": (1 / 3, np.float64(1 / 3)),
    "str_int": (10**40, 10**40),
    "str_float": (0.1, 0.1),
    "json": ({"a": [1, None]}, {"a": [1, None]}),
}


def test_columns_of_mds_have_the_encodings_that_are_asked_for(tmp_path: Path) -> None:
    columns = {name: name for name in VALUES}
    sample = {name: value for name, (value, _) in VALUES.items()}
    write_shards([sample], tmp_path, columns=columns)
    assert Shards(tmp_path)[0] == {name: value for name, (_, value) in VALUES.items()}


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from(["uint8", "int16", "float16", "int64", "float64"]),
    encoding=st.sampled_from(["ndarray", "ndarray:{0}", "ndarray:{0}:{1}"]),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_of_mds_are_read_back(
    shape: list[int], dtype: str, encoding: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    encoding = encoding.format(dtype, ",".join(map(str, shape)))
    folder = tmp_path_factory.mktemp("arrays")
    write_shards([{"x": array}], folder, columns={"x": encoding})
    found = Shards(folder)[0]["x"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert (found == array).all()


def test_members_of_tar_are_what_their_extension_says(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.new("RGB", (4, 3), (7, 8, 9))
    sample = {
        "__key__": "dir/a",
        "bin": b"\0",
        "txt": "é",
        "cls": np.int64(3),
        "json": [1],
        "npy": np.arange(3),
        "png": image,
    }
    write_shards([sample], tmp_path, "tar")
    found = Shards(tmp_path)[0]
    assert [found[name] for name in ("__key__", "bin", "txt", "cls", "json")] == [
        "dir/a",
        b"\0",
        "é".encode(),
        b"3",
        b"[1]",
    ]
    assert found["npy"].startswith(b"\x93NUMPY")
    assert found["png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("sample", "form", "options", "text"),
    [
        ((1, 2), "mds", {}, r"a sample must be a dict with names for keys, got \(1, 2\)"),
        ({"a": object()}, "mds", {}, r"no encoding of MDS is known for the field 'a'"),
        ({"a": object()}, "tar", {}, r"sample 0 cannot be encoded: the field 'a' of a tar file"),
        ({"A": 1}, "tar", {}, r"is an extension in small letters, such as 'jpg', got 'A'"),
        ({"__key__": "a.b", "x": 1}, "tar", {}, r"a path whose last part has no dot, got 'a.b'"),
        ({"a": {"b": 1}}, "tfrecord", {}, r"the feature 'a' must be bytes, text, numbers"),
        ({"a": {1}}, "jsonl", {}, r"sample 0 cannot be encoded: Object of type set"),
        ({"a": 1}, "zip", {}, r"format must be one of mds, tar, tfrecord, parquet, jsonl"),
        ({"a": 1}, "tar", {"columns": {"a": "int"}}, r'columns= are those of "mds", and'),
        ({"a": 1}, "mds", {"columns": {"a": "pkl"}}, r"'pkl', which is none of those that are"),
        ({"a": 1}, "mds", {"columns": {"b": "int"}}, r"has the fields \['a'\], and the columns"),
        ({"a": 1}, "mds", {"columns": {"a": "uint8"}, "count": 300}, None),
        ({"a": 300}, "mds", {"columns": {"a": "uint8"}}, r"sample 0 cannot be encoded: "),
        ({"a": 1}, "mds", {"compression": "rar"}, r"compression must be one of gz, zstd"),
        ({"a": 1}, "mds", {"shard_size": "many"}, r"shard_size"),
    ],
)
def test_what_cannot_be_written_is_told(
    sample: Any, form: str, options: dict[str, Any], text: str | None, tmp_path: Path
) -> None:
    needs(form)
    count = options.pop("count", 1)
    if text is None:
        write_shards([sample] * count, tmp_path, form, **options)
        assert len(Shards(tmp_path)) == count
        return
    with pytest.raises((ConfigError, ConfigTypeError, DatasetError), match=text):
        write_shards([sample], tmp_path, form, **options)


def test_folders_and_sources_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no sample to write"):
        write_shards([], tmp_path / "none")
    with pytest.raises(ConfigError, match="num_workers=2 is for datasets with indices, and"):
        write_shards(iter_of([{"a": 1}]), tmp_path / "none", num_workers=2)
    write_shards([{"a": 1}], tmp_path / "a")
    with pytest.raises(ConfigError, match="shards that were written with other arguments"):
        write_shards([{"a": 1}], tmp_path / "a", shard_size=10)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"has 1 files, such as 'mine.txt': pass a new folder"):
        write_shards([{"a": 1}], tmp_path / "b")
    with pytest.raises(ConfigError, match="shards cannot be written to"):
        write_shards([{"a": 1}], tmp_path / "b" / "mine.txt")
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    assert len(Shards(tmp_path / "t.jsonl.gz")) == 1


def test_a_generator_loses_no_sample_also_where_a_run_goes_on(tmp_path: Path) -> None:
    def samples(most: int | None = None) -> Iterator[dict[str, int]]:
        for k in range(20):
            if k == most:
                raise KeyError("ended")
            yield {"n": k}

    with pytest.raises(KeyError):
        write_shards(samples(13), tmp_path / "out", "jsonl", shard_size=30)
    assert len(list((tmp_path / "out").glob("*.jsonl"))) > 1
    write_shards(samples(), tmp_path / "out", "jsonl", shard_size=30)
    assert Shards(tmp_path / "out").__getitems__(range(20)) == list(samples())
    write_shards(samples(), tmp_path / "whole", "jsonl", shard_size=30)
    assert contents(tmp_path / "whole") == contents(tmp_path / "out")
    write_shards(iter([None, 1]), tmp_path / "none", "jsonl")
    assert Shards(tmp_path / "none").__getitems__([0, 1]) == [None, 1]


@pytest.mark.parametrize("samples", [{"n": [1, 2]}, "folder", b"x"])
def test_what_is_no_set_of_samples_is_refused(samples: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigTypeError, match=r"samples must be a dataset, or an iterable of samp"):
        write_shards(samples, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- samples by rule -------------------------------------------------------------------------------

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BY_RULE: dict[str, st.SearchStrategy[Any]] = {
    "tar": st.dictionaries(
        st.sampled_from(["jpg", "seg.png", "cls", "txt", "0"]), st.binary(max_size=700), min_size=1
    ),
    "mds": st.fixed_dictionaries(
        {"s": TEXT, "n": INTS, "b": st.binary(max_size=40), "j": st.lists(JSON, max_size=2)}
    ),
    "tfrecord": st.dictionaries(
        TEXT,
        st.lists(st.binary(max_size=9), max_size=3)
        | st.lists(FLOATS, max_size=3)
        | st.lists(INTS, max_size=3),
        max_size=3,
    ),
    "jsonl": JSON,
    "parquet": st.fixed_dictionaries(
        {"s": TEXT, "n": INTS, "f": FLOATS, "l": st.lists(INTS, max_size=3)}
    ),
}
FIRST: dict[str, Any] = {"parquet": {"s": "", "n": 0, "f": 0.5, "l": [1]}}  # says the types


@pytest.mark.parametrize("kind", list(BY_RULE))
@given(data=st.data())
@settings(max_examples=40)
def test_samples_by_rule_are_read_back(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if kind in ("tfrecord", "parquet"):
        pytest.importorskip({"tfrecord": "google_crc32c", "parquet": "pyarrow"}[kind])
    samples = data.draw(st.lists(BY_RULE[kind], min_size=1, max_size=12))
    if kind in FIRST:
        samples.insert(0, FIRST[kind])
    folder = tmp_path_factory.mktemp(kind) / "shards"
    packed = data.draw(st.sampled_from([None, "gz", "zstd"]))
    if packed == "gz" and kind == "parquet":
        packed = "gzip"
    size = data.draw(st.sampled_from([1, 200, 2000, "1MB"]))
    columns = {"s": "str", "n": "int", "b": "bytes", "j": "json"} if kind == "mds" else None
    count = write_shards(
        samples, folder, kind, shard_size=size, compression=packed, columns=columns
    )
    shards = Shards(folder)
    assert len(shards) == len(samples)
    assert len(shards.starts) == count + 1
    indices = data.draw(st.lists(st.integers(-len(samples), len(samples) - 1), max_size=20))
    for index, found in zip(indices, shards.__getitems__(indices), strict=True):
        place = index % len(samples)
        expected = samples[place]
        if kind == "tar":
            expected = {"__key__": f"{place:09d}", **expected}
        assert found == expected
        position = shards.origin(index).position
        assert shards.starts[np.searchsorted(shards.starts, place, "right") - 1] + position == place
