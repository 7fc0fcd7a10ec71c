"""Samples written as shards and read back, in any format, in parallel, and after an end."""

from __future__ import annotations

import datetime
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reader import ConfigError, ConfigTypeError, DatasetError, Shards, write_shards

JOURNAL = ".reader-journal.jsonl"
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
    a, b = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert a.pop(JOURNAL) != b.pop(JOURNAL)  # one says how many samples there are
    assert a == b


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
    journal = folder / JOURNAL
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
        (
            {"a": {1}},
            "jsonl",
            {},
            r"sample 0 cannot be encoded: the field 'a' cannot be JSON: Object of type set",
        ),
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
    for path in (None, 5, "", "a\0b"):
        with pytest.raises(ConfigError, match="path must be the path of a folder, got "):
            write_shards([{"a": 1}], path)  # type: ignore[arg-type]
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    assert len(Shards(tmp_path / "t.jsonl.gz")) == 1


def test_a_generator_loses_no_sample_also_where_a_run_goes_on(tmp_path: Path) -> None:
    def samples(most: int | None = None) -> Iterator[dict[str, int]]:
        for k in range(20):
            if k == most:
                raise KeyError("ended")
            yield {"n": k}

    with pytest.raises(DatasetError, match="sample 13 cannot be fetched: KeyError: 'ended'"):
        write_shards(samples(13), tmp_path / "out", "jsonl", shard_size=30)
    assert len(list((tmp_path / "out").glob("*.jsonl"))) > 1
    write_shards(samples(), tmp_path / "out", "jsonl", shard_size=30)
    assert Shards(tmp_path / "out").__getitems__(range(20)) == list(samples())
    write_shards(samples(), tmp_path / "whole", "jsonl", shard_size=30)
    assert contents(tmp_path / "whole") == contents(tmp_path / "out")
    write_shards(iter([None, 1]), tmp_path / "none", "jsonl")
    assert Shards(tmp_path / "none").__getitems__([0, 1]) == [None, 1]


def test_a_frame_is_refused_and_its_rows_are_written(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2]})
    with pytest.raises(ConfigTypeError, match=r"columns of a DataFrame: pass its rows, such as"):
        write_shards(frame, tmp_path)
    write_shards(frame.to_dict("records"), tmp_path)
    assert Shards(tmp_path)[1] == {"a": 2}


@pytest.mark.parametrize("samples", [{"n": [1, 2]}, "folder", b"x", 5])
def test_what_is_no_set_of_samples_is_refused(samples: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigTypeError, match=r"samples must be a dataset with a length"):
        write_shards(samples, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- a folder and other samples -------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([{"a": 1.5}, {"a": 2.5}], "shards of other samples: "),
        ([{"b": 1}, {"b": 2}], "shards of other samples: "),
        ([{"a": 2}, {"a": 2}], "their first one has other bytes than the first one of these"),
        ([{"a": 1}], "they were 2, and these are 1: pass the same samples, or a new folder"),
        ([{"a": 1}] * 9, "they were 2, and these are 9"),
    ],
)
def test_other_samples_are_refused_and_leave_the_folder_as_it_is(
    form: str, samples: list[Any], text: str, tmp_path: Path
) -> None:
    needs(form)
    write_shards([{"a": 1}, {"a": 2}], tmp_path, form)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=text):
        write_shards(samples, tmp_path, form)
    (tmp_path / "manifest.json").unlink()  # as if the run had been ended
    with pytest.raises(ConfigError, match=text):
        write_shards(samples, tmp_path, form)
    del before["manifest.json"]
    assert contents(tmp_path) == before


def test_other_types_of_columns_are_named(tmp_path: Path) -> None:
    write_shards([{"a": 1}], tmp_path)
    with pytest.raises(
        ConfigError, match=r"their columns are \{'a': 'int'\}, and these samples have \{'b': 'floa"
    ):
        write_shards([{"b": 1.5}], tmp_path)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (9, "is finished with 5 samples, and there are more: pass the same samples"),
        (6, "is finished with 5 samples, and there are more: pass the same samples"),
        (4, "has shards of 5 samples, and there are 4: pass the same samples"),
    ],
)
def test_a_stream_of_another_length_is_refused_where_the_folder_is_finished(
    count: int, text: str, tmp_path: Path
) -> None:
    write_shards(iter_of([{"n": k} for k in range(5)]), tmp_path, "jsonl", shard_size=20)
    before = contents(tmp_path)
    samples = [{"n": k} for k in range(count)]
    for each in (iter_of(samples), samples):
        with pytest.raises(ConfigError, match=text):
            write_shards(each, tmp_path, "jsonl", shard_size=20)
    assert contents(tmp_path) == before
    max(tmp_path.glob("shard*")).write_bytes(b"")  # the last one is damaged
    fewer = "has shards of [45] samples, and there are"
    with pytest.raises(ConfigError, match=text if count > 5 else fewer):
        write_shards(iter_of(samples), tmp_path, "jsonl", shard_size=20)
    write_shards(iter_of([{"n": k} for k in range(5)]), tmp_path, "jsonl", shard_size=20)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("number", "line"),
    [
        *[(0, each) for each in (b"[]", b"{}", b"7", b"{", b"[" * 100_000)],
        *[(1, each) for each in (b"[]", b"{}", b"null", b"\xff", b'{"name": 1}')],
        (1, b'{"name": "../x", "samples": 1, "nbytes": 3, "sha256": ""}'),
        (1, b'{"name": "shard-00000.jsonl", "samples": "1", "nbytes": 3, "sha256": ""}'),
        (1, b'{"name": "shard-00000.jsonl", "samples": 1, "nbytes": 3, "sha256": "", "raw": 1}'),
    ],
)
def test_a_damaged_journal_is_told(number: int, line: bytes, tmp_path: Path) -> None:
    write_shards([{"a": 1}], tmp_path, "jsonl")
    lines = (tmp_path / JOURNAL).read_bytes().splitlines()
    lines[number] = line
    (tmp_path / JOURNAL).write_bytes(b"\n".join([*lines, b""]))
    with pytest.raises(ConfigError, match=rf"line {number + 1} of '.*{JOURNAL}' is damaged"):
        write_shards([{"a": 1}], tmp_path, "jsonl")


def test_a_damaged_manifest_is_told(tmp_path: Path) -> None:
    write_shards([{"a": 1}], tmp_path)
    for content in ("[]", '{"samples": "1"}', "{"):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(ConfigError, match=r"manifest.json' is damaged"):
            write_shards([{"a": 1}], tmp_path)


def test_a_folder_that_another_process_writes_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reader.shards.shard_folders._PATIENCE_S", 0.05)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=rf"writes shards to .*: process {os.getpid()} "):
            write_shards([{"a": 1}], tmp_path, "jsonl")
        assert not contents(tmp_path)
        fcntl.flock(folder, fcntl.LOCK_UN)
        assert write_shards([{"a": 1}], tmp_path, "jsonl") == 1
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is not held any more
    finally:
        os.close(folder)


def test_a_journal_of_two_writers_at_once_loses_no_sample(tmp_path: Path) -> None:
    samples = [{"n": k} for k in range(20)]
    write_shards(samples, tmp_path, "jsonl", shard_size=20)
    whole = contents(tmp_path)
    (tmp_path / "manifest.json").unlink()
    head, *lines = whole[JOURNAL].splitlines(keepends=True)
    both = b"".join(line for line in lines[:4] for _ in range(2))
    (tmp_path / JOURNAL).write_bytes(head + both)
    write_shards(samples, tmp_path, "jsonl", shard_size=20)
    assert contents(tmp_path) == whole


def test_hidden_files_are_no_shards(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_bytes(b"x")
    write_shards([{"a": 1}], tmp_path)
    assert Shards(tmp_path)[0] == {"a": 1}


def image(mode: str, seed: int = 0) -> Any:
    """Return an image of Pillow; None where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return None
    pixels = np.random.default_rng(seed).integers(0, 255, (5 + seed, 7, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def file_of(form: str, seed: int) -> bytes:
    file = io.BytesIO()
    image("RGB", seed).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize("encoding", ["jpeg_array", "jpegarray", "list[jpeg]", "list[png]"])
def test_lists_of_image_files_are_read_back(encoding: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    form = "PNG" if "png" in encoding else "JPEG"
    files = [[file_of(form, k) for k in range(count)] for count in (2, 1, 3)]
    samples: list[Any] = [{"a": each} for each in files]
    samples.append({"a": (image("RGB", 4), file_of(form, 4))})  # the one is encoded as the other
    if encoding.startswith("list"):
        samples.append({"a": []})
    write_shards(samples, tmp_path, columns={"a": encoding}, shard_size=500)
    found = [each["a"] for each in Shards(tmp_path).__getitems__(range(len(samples)))]
    decoded = [list(map(decoded_image, each)) for each in files]
    assert [list(map(pixels_of, each)) for each in found[:3]] == decoded
    assert pixels_of(found[3][0]) == pixels_of(found[3][1])
    assert found[4:] == [[]] * (len(samples) - 4)


def decoded_image(content: bytes) -> Any:
    from PIL import Image

    return pixels_of(Image.open(io.BytesIO(content)))


def pixels_of(found: Any) -> Any:
    return found.mode, found.size, found.tobytes()


@pytest.mark.parametrize("encoding", ["list[pil]", None])
def test_lists_of_images_keep_their_pixels(encoding: str | None, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    images = [[image(mode, k) for k, mode in enumerate(modes)] for modes in (["L", "RGBA"], ["1"])]
    columns = None if encoding is None else {"a": encoding}  # else list[png], by the first sample
    write_shards([{"a": each} for each in images], tmp_path, columns=columns)
    shards = Shards(tmp_path)
    for k, expected in enumerate(images):
        assert list(map(pixels_of, shards[k]["a"])) == list(map(pixels_of, expected))


# -- what a format cannot hold --------------------------------------------------------------------

NANOSECONDS = np.array(["2020-01-01", "NaT"], "datetime64[ns]")
REFUSED: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "parquet: a fraction": ("parquet", [{"a": 1}, {"a": 2.5}], {}, r"'a' is 2.5 \(float\), and it"),
    "parquet: a new field": ("parquet", [{"a": 1}, {"a": 2, "b": ""}], {}, r"columns are those of"),
    "parquet: no field": ("parquet", [{"a": 1}, {}], {}, r"has the fields \[\], and the columns"),
    "parquet: {}": ("parquet", [{}], {}, "needs a field, and the first one has none"),
    "parquet: None": ("parquet", [{"a": None}] * 2, {}, "'a' has no value in the first 2 samples"),
    "parquet: []": ("parquet", [{"a": [[]]}], {}, "'a' has values of list<.*null>> alone in the f"),
    "parquet: inner": ("parquet", [{"a": {"b": {}}}], {}, "'a' has values of struct<b: struct<>> "),
    "parquet: later": (
        "parquet",
        [{"a": []}, {"a": "x"}],
        {},
        "'a' is 'x' .*, and samples before it have list<.*: give its values one type",
    ),
    "parquet: later object": ("parquet", [{"a": None}, {"a": object()}], {}, "'a' cannot be in a"),
    "parquet: no field yet": (
        "parquet",
        [{"a": None}, {"a": 1}, {"b": 1}],
        {},
        "sample 2 cannot be encoded: .*, and the columns are those of",
    ),
    "parquet: then float": (
        "parquet",
        [{"a": None}, {"a": 1}, {"a": 2.5}],
        {},
        "sample 2 cannot be encoded: the field 'a' is 2.5",
    ),
    "parquet: 64 bits": ("parquet", [{"a": None}, {"a": 2**63}], {}, "'a' does not fit into int64"),
    "parquet: a set": ("parquet", [{"a": {"x", "y"}}], {}, "'a' is a set, which has no order"),
    "parquet: object": ("parquet", [{"a": object()}], {}, "'a' cannot be in a column of Parquet"),
    "parquet: an int": ("parquet", [{"a": 1}, {"a": 2**70}], {}, "the field 'a' "),
    "parquet: large": ("parquet", [{"a": 1.5}, {"a": 2**53 + 1}], {}, "'a' does not fit into doub"),
    "parquet: flag": ("parquet", [{"a": 1}, {"a": True}], {}, "'a' is True"),
    "parquet: text": ("parquet", [{"a": 1}, {"a": "1"}], {}, "'a' is '1'"),
    "parquet: bytes": ("parquet", [{"a": "x"}, {"a": b"x"}], {}, "'a' is b'x'"),
    "parquet: a key": ("parquet", [{"a": {"x": 1}}, {"a": {"y": 1}}], {}, "'a' is {'y': 1}"),
    "parquet: letters": ("parquet", [{"a": "x"}, {"a": "\ud800"}], {}, "'a' does not fit into str"),
    "parquet: a list": ("parquet", [{"a": {"b": ["x", b"x"]}}], {}, "'a' has text and bytes, or"),
    "parquet: lists": ("parquet", [{"a": [[0.5]]}, {"a": [[0.5, True]]}], {}, "or floats and fla"),
    "tar: d/": ("tar", [{"__key__": "d/", "x": b""}], {}, "whose last part has no dot, got 'd/'"),
    "tar: None": ("tar", [{"__key__": None, "x": b""}], {}, "__key__ must be a str, got None"),
    "tar: bytes": ("tar", [{"__key__": b"k", "x": b""}], {}, "__key__ must be a str, got b'k'"),
    "tar: twice": ("tar", [{"__key__": "k", "x": b""}] * 2, {}, "2 samples of a shard have the ke"),
    "tar: merged": (
        "tar",
        [{"__key__": "k", "x": b""}, {"__key__": "k", "y": b""}],
        {},
        "samples 0 to 1 cannot be a shard: 2 samples of a shard have the key 'k'",
    ),
    "tar: automatic": (
        "tar",
        [{"__key__": "000000001", "x": b""}, {"x": b""}],
        {},
        "2 samples of a shard have the key '000000001'",
    ),
    "tar: a name": ("tar", [{"__key__": "__a", "x__": b""}], {}, "would leave out members of the"),
    "tar: a folder": ("tar", [{"__key__": "__a__/b", "x": b""}], {}, "would leave out members of"),
    "tar: no value": (
        "tar",
        [{"a": b""}, {"a": None}],
        {},
        "'a' of a tar file must be .*, got None",
    ),
    "tar: json": ("tar", [{"json": {"a": b""}}], {}, "the field 'json' cannot be JSON: Object of"),
    "mds: bytes": ("mds", [{"a": 1}, {"a": b"12345678"}], {}, "'a' does not fit its encoding 'int"),
    "mds: None": ("mds", [{"a": "x"}, {"a": None}], {}, r"it must be str, got None"),
    "mds: no value": ("mds", [{"a": None}], {}, "'a' of the first sample is None, which MDS does"),
    "mds: number": ("mds", [{"a": "x"}, {"a": 5}], {}, r"it must be str, got 5"),
    "mds: flag": ("mds", [{"a": 1}, {"a": True}], {}, r"it must be a number of int64, got True"),
    "mds: fraction": ("mds", [{"a": 1}, {"a": 2.0}], {}, r"it must be a number of int64, got 2.0"),
    "mds: text": ("mds", [{"a": 1.5}, {"a": "2"}], {}, r"it must be a number of float64, got '2'"),
    "mds: large": (
        "mds",
        [{"a": np.float32(1)}, {"a": 1e300}],
        {},
        r"1e\+300 \(float\) does not fit into float32",
    ),
    "mds: long": ("mds", [{"a": 1.5}, {"a": 2**53 + 1}], {}, "does not fit into float64"),
    "mds: longest": ("mds", [{"a": 0}], {"columns": {"a": "float16"}, "more": 10**400}, "does not"),
    "mds: 0-d": ("mds", [{"a": np.array(5)}], {}, "it must be an array with a shape"),
    "mds: str_int": ("mds", [{"a": "5"}], {"columns": {"a": "str_int"}}, "it must be int, got '5'"),
    "mds: decimal": ("mds", [{"a": 5}], {"columns": {"a": "str_decimal"}}, "it must be Decimal"),
    "mds: png": ("mds", [{"a": b"x"}], {"columns": {"a": "png"}}, "must be the bytes of a PNG fil"),
    "mds: pil": ("mds", [{"a": b"x"}], {"columns": {"a": "pil"}}, "must be an image of Pillow, go"),
    "image: palette": (
        "mds",
        [{"a": image("P")}],
        {"columns": {"a": "pil"}},
        "'P' would lose its pa",
    ),
    "mds: no list": (
        "mds",
        [{"a": b"x"}],
        {"columns": {"a": "list[png]"}},
        "must be a list of ima",
    ),
    "mds: a jpeg": (
        "mds",
        [{"a": [b"x"]}],
        {"columns": {"a": "jpeg_array"}},
        "image 0 of the list: ",
    ),
    "image: an image": (
        "mds",
        [{"a": [image("L")]}, {"a": [image("L"), image("F")]}],
        {},
        "image 1 of the list: cannot write mode F as PNG",
    ),
    "mds: no jpeg": (
        "mds",
        [{"a": []}],
        {"columns": {"a": "jpegarray"}},
        "it must have an image, w",
    ),
    "image: mixed": ("mds", [{"a": [image("L"), 5]}], {}, "'a' does not fit its encoding 'json': "),
    "mds: no bytes": ("mds", [{"a": b"x"}, {"a": "x"}], {}, "it must be bytes, got 'x'"),
    "mds: {}": ("mds", [{}], {}, "needs a field, and the first one has none"),
    "tfrecord: None": ("tfrecord", [{"a": 1}, {"a": None}], {}, "'a' must be bytes, .*, got None"),
    "tfrecord: int": ("tfrecord", [{"a": 2**63}], {}, "does not fit into int64"),
    "tfrecord: ints": ("tfrecord", [{"a": [1.5, -(2**63) - 1]}], {}, "does not fit into int64"),
    "tfrecord: float": ("tfrecord", [{"a": [1.0, 1e300]}], {}, "does not fit into float32"),
    "tfrecord: times": ("tfrecord", [{"a": NANOSECONDS}], {}, "'a' must be bytes, text, numbers"),
    "tar: times": ("tar", [{"a": NANOSECONDS[0] - NANOSECONDS[0]}], {}, "field 'a' of a tar file"),
    "parquet: times": ("parquet", [{"a": NANOSECONDS}], {}, "'a' has times of datetime64.ns., whi"),
    "parquet: a time": ("parquet", [{"a": np.timedelta64(5, "Y")}], {}, "'a' has times of timedel"),
    "mds: a mask": ("mds", [{"a": np.ma.array([1, 2], mask=[0, 1])}], {}, "a mask has no form in"),
    "jsonl: bytes": (
        "jsonl",
        [{"a": 1}, {"a": 1, "b": [b""]}],
        {},
        r"sample 1 cannot be encoded: the field 'b' cannot be JSON: .* \(--field b=str of convert",
    ),
    "jsonl: keys": ("jsonl", [{"a": 1}, {1: 2, "1": 3}], {}, "must be a dict with names for keys"),
    "jsonl: letters": ("jsonl", [{"a": "\ud800"}], {}, "sample 0 cannot be encoded: "),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_values_that_a_format_does_not_hold_are_refused(case: str, tmp_path: Path) -> None:
    form, samples, options, text = REFUSED[case]
    needs(form)
    if case.startswith("image"):
        pytest.importorskip("PIL")
    options = dict(options)
    if "more" in options:
        samples = [*samples, {"a": options.pop("more")}]
    with pytest.raises((ConfigError, ConfigTypeError, DatasetError), match=text) as caught:
        write_shards(samples, tmp_path / "out", form, **options)
    if len(samples) > 1 and form != "tar" and not re.search("first|sample 2", text):
        assert "sample 1 cannot be encoded" in str(caught.value)
    assert not list((tmp_path / "out").glob("shard*"))


LATER: dict[str, list[Any]] = {
    "None": [None, "x", None],
    "[]": [[], None, [1, 2]],
    "{}": [{}, {"k": 1}],
    "inner": [{"x": None, "y": 1}, {"x": [], "y": 2}, {"x": [{"k": None}]}, {"x": [{"k": b""}]}],
    "keys": [{"x": None}, {"y": 1}, {"x": 1, "y": None}, None],
    "lists": [[[], [[]]], [None], [[[2.5, 1]]]],
    "arrays": [np.empty(0, int), np.arange(3), None],
    "numbers": [None, np.float32(0.5), 2],
    "a time": [[None], [datetime.date(2020, 1, 1)]],
}


def filled(value: Any, like: Any) -> Any:
    """Return what Parquet gives of a value: a dict has the keys of all, None for what it lacks."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [filled(each, like) for each in value]
    if not isinstance(value, dict):
        return value
    keys = {"k"} if value.keys() <= {"k"} and like != "keys" else {"x", "y"}
    return {key: filled(value.get(key), like) for key in keys}


@pytest.mark.parametrize("case", list(LATER))
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_type_of_a_column_of_parquet_is_that_of_the_first_value(
    case: str, is_stream: bool, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    samples = [{"n": k, "a": value} for k, value in enumerate([*LATER[case], *[None] * 5])]
    source = iter(samples) if is_stream else samples
    write_shards(source, tmp_path, "parquet", shard_size=10)  # a shard for each sample
    schemas = {str(pq.read_schema(each)) for each in tmp_path.glob("*.parquet")}
    assert len(schemas) == 1
    shards = Shards(tmp_path)
    found = [shards[k]["a"] for k in range(len(samples))]
    assert found == [filled(each["a"], case) for each in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_columns_that_begin_without_values_are_written_with_the_same_bytes_when_repeated(
    workers: int, tmp_path: Path
) -> None:
    needs("parquet")
    samples = [
        {"a": None if k < 40 else [k], "b": {"c": [None] if k < 30 else ["x"]}} for k in range(60)
    ]
    write_shards(samples, tmp_path / "whole", "parquet", shard_size=700)
    expected = contents(tmp_path / "whole")

    class Ends(list[Any]):
        looks = 0

        def __getitem__(self, index: Any) -> Any:
            self.looks += index == 20
            if self.looks == 2:  # types are looked for up to sample 40 first
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        write_shards(Ends(samples), tmp_path / "part", "parquet", shard_size=700)
    assert list((tmp_path / "part").glob("*.parquet"))
    write_shards(samples, tmp_path / "part", "parquet", shard_size=700, num_workers=workers)
    assert contents(tmp_path / "part") == expected


def test_types_are_looked_for_within_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("parquet")
    monkeypatch.setattr("reader.shards.encoders._MOST_LOOKED_AT", 1000)
    drawn = 0

    def stream() -> Iterator[Any]:
        nonlocal drawn
        for _ in range(10**6):
            drawn += 1
            yield {"a": None, "b": "x" * 80}

    with pytest.raises(
        ConfigError, match=r"'a' has no value in the first 10 samples.*: leave it out"
    ):
        write_shards(stream(), tmp_path / "out", "parquet")
    assert drawn == 10
    assert not (tmp_path / "out").exists()


def test_times_in_microseconds_are_kept_by_parquet(tmp_path: Path) -> None:
    needs("parquet")
    when = np.array(["2020-01-01T00:00:00.000001", "NaT"], "datetime64[us]")
    write_shards(
        [{"t": when[0], "l": when, "d": when[:1].astype("datetime64[D]")}], tmp_path, "parquet"
    )
    found = Shards(tmp_path)[0]
    assert found == {"t": when[0].item(), "l": when.tolist(), "d": [datetime.date(2020, 1, 1)]}


@pytest.mark.parametrize("form", ["mds", "parquet"])
def test_values_that_fit_their_column_exactly_are_kept(form: str, tmp_path: Path) -> None:
    needs(form)
    samples: list[dict[str, Any]] = [{"f": 1.5, "l": [1.5], "b": True}, {"f": 2, "l": [2], "b": 0}]
    if form == "parquet":
        samples[1] |= {"b": None}
        samples.append({"b": False, "l": [], "f": None})
    write_shards(samples, tmp_path, form)
    assert Shards(tmp_path).__getitems__(range(len(samples))) == samples
    assert isinstance(Shards(tmp_path)[0]["b"], bool)


def test_arrays_of_the_other_byte_order_are_read_back(tmp_path: Path) -> None:
    array = np.arange(3, dtype=">i4")
    for number, columns in enumerate((None, {"x": "ndarray"})):
        write_shards([{"x": array}], tmp_path / str(number), columns=columns)
        found = Shards(tmp_path / str(number))[0]["x"]
        assert (found.tolist(), found.dtype) == ([0, 1, 2], np.dtype("int32"))


@pytest.mark.parametrize("compression", ["none", "snappy", "gz", "gzip", "zstd", None])
def test_columns_of_parquet_are_compressed_as_asked(
    compression: str | None, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_shards([{"a": "x" * 99}], tmp_path, "parquet", compression=compression)
    column = parquet.ParquetFile(tmp_path / "shard-00000.parquet").metadata.row_group(0).column(0)
    known = {"none": "UNCOMPRESSED", "gz": "GZIP", None: "SNAPPY"}
    assert column.compression == known.get(compression, str(compression).upper())


@pytest.mark.parametrize(
    ("form", "options", "text"),
    [
        ("parquet", {"compression": "rar"}, "compression of Parquet must be one of none, snappy"),
        ("parquet", {"compression": ["gz"]}, "compression of Parquet must be one of none, snappy"),
        ("tar", {"compression": ["gz"]}, "compression must be one of gz, zstd"),
        ("mds", {"columns": ["a"]}, "columns must be a dict of names and encodings"),
        ("mds", {"columns": {"a": int}}, "columns must be a dict of names and encodings"),
        ("mds", {"shard_size": 1 << 32}, "shard_size must be 4,294,967,295 bytes at most"),
    ],
)
def test_arguments_are_refused_before_anything_is_written(
    form: str, options: dict[str, Any], text: str, tmp_path: Path
) -> None:
    needs(form)
    with pytest.raises((ConfigError, ConfigTypeError), match=text):
        write_shards([{"a": 1}], tmp_path / "out", form, **options)
    assert not (tmp_path / "out").exists()


def test_a_sample_that_no_shard_of_mds_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reader.shards.encoders.MdsEncoder.most_nbytes", 1000)
    with pytest.raises(DatasetError, match=r"sample 1 cannot be encoded: it takes 1,\d+ bytes, an"):
        write_shards([{"a": b""}, {"a": bytes(999)}], tmp_path, shard_size=500)


@pytest.mark.parametrize("form", ["mds", "tar", "tfrecord", "jsonl"])
def test_shards_of_more_than_one_sample_are_within_their_size(form: str, tmp_path: Path) -> None:
    needs(form)
    samples = [{"txt": "x" * (k % 50)} for k in range(60)]
    write_shards(samples, tmp_path, form, shard_size=10_240 if form == "tar" else 1000)
    shards = json.loads((tmp_path / "manifest.json").read_text())["shards"]
    most = 10_240 if form == "tar" else 1000
    assert len(shards) > 2
    assert most * 0.8 < max(each["nbytes"] for each in shards) <= most


# -- what fails on the way ------------------------------------------------------------------------


class Fails:
    """A dataset of which one sample cannot be fetched."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == self._number:
            raise KeyError("no such file")
        return {"n": index}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [0, 33])
def test_a_sample_that_cannot_be_fetched_is_named(
    workers: int, number: int, tmp_path: Path
) -> None:
    text = f"sample {number} cannot be fetched: KeyError: 'no such file'"
    with pytest.raises(DatasetError, match=text) as caught:
        write_shards(Fails(number), tmp_path, num_workers=workers)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_file_that_the_system_refuses_is_named_and_the_call_goes_on_later(tmp_path: Path) -> None:
    samples = [{"a": bytes(100)}, {"a": bytes(100_000)}]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(ConfigError, match=r"shard.00001.mds' cannot be written: .* Make room"):
            write_shards(samples, tmp_path, shard_size=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert write_shards(samples, tmp_path, shard_size=1000) == 2
    assert Shards(tmp_path).__getitems__([0, 1]) == samples
    assert not list(tmp_path.glob("*.draft"))


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


def test_a_value_of_many_levels_or_one_that_holds_itself_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    deep: Any = 1
    for _ in range(48):
        deep = [deep]
    write_shards([{"a": deep}], tmp_path / "48", "parquet")
    assert Shards(tmp_path / "48")[0] == {"a": deep}
    ring: dict[str, Any] = {"b": 1}
    ring["a"] = [ring, {"c": ring}]
    for number, value in enumerate(([deep], ring)):
        with pytest.raises(ConfigTypeError, match=r"field 'a' has lists .* more than 48 levels"):
            write_shards([{"a": value}], tmp_path / str(number), "parquet")
