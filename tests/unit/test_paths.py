"""URLs given as a path: refused at once, with a remedy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reader
from reader.checks import refuse_url
from reader.compat.gluon.datasets import RecordFileDataset
from reader.compat.gluon.image_archives import MNIST
from reader.compat.gluon.image_datasets import ImageFolderDataset, ImageListDataset
from reader.compat.gluon.nlp import text_datasets
from reader.compat.gluon.nlp.streams import files_of
from reader.compat.gluon.recordio import MXIndexedRecordIO, MXRecordIO
from reader.observe.program import check_reports

TAKERS: dict[str, Callable[[Any], Any]] = {
    "the folder of TableRows": lambda url: reader.TableRows("a.parquet", disk=url),
    "RecordWriter": lambda url: reader.RecordWriter(url),
    "the index of RecordWriter": lambda url: reader.RecordWriter("a.rec", url),
    "MXRecordIO to write": lambda url: MXRecordIO(url, "w"),
    "the index of MXIndexedRecordIO to write": lambda url: MXIndexedRecordIO(url, "a.rec", "w"),
    "the list of ImageFolder": lambda url: reader.images.ImageFolder("s3://b/a", index=url),
    "the index of Shards": lambda url: reader.Shards("s3://b/a", index=url),
    "the folder of a ShardCache": lambda url: reader.ShardCache(url),
    "the folder of a cache": lambda url: reader.cache([1.0], disk=url, version="1"),
    "quarantine": lambda url: reader.DataLoader([1.0], on_error="skip", quarantine=url),
    "TextLineDataset of GluonNLP": lambda url: text_datasets.TextLineDataset(url),
    "TSVDataset of GluonNLP": lambda url: text_datasets.TSVDataset([url]),
    "NumpyDataset of GluonNLP": lambda url: text_datasets.NumpyDataset(url),
    "SimpleDatasetStream of GluonNLP": lambda url: files_of(str(url)),
    "MNIST of Gluon": lambda url: MNIST(url),
    "ImageFolderDataset of Gluon": lambda url: ImageFolderDataset(url),
    "ImageListDataset of Gluon": lambda url: ImageListDataset("a", url),
    "without": lambda url: reader.without([1.0], url),
}


@pytest.mark.parametrize("url", ["s3://bucket/a", Path("s3://bucket/a"), "https://host/a.bin"])
@pytest.mark.parametrize("taker", TAKERS)
def test_a_url_is_refused_with_what_to_do(taker: str, url: Any) -> None:
    with pytest.raises(reader.ConfigError, match="got the URL") as caught:
        TAKERS[taker](url)
    assert "it has to be on a disk of this machine: copy it" in str(caught.value)


READERS: dict[str, Callable[[Any], Any]] = {
    "TableRows": lambda url: reader.TableRows(url),
    "TableRows of a list": lambda url: reader.TableRows(["a.parquet", url]),
    "ImageFolder": lambda url: reader.images.ImageFolder(url),
    "TokenWindows": lambda url: reader.TokenWindows(url, 4),
    "RecordIO": lambda url: reader.RecordIO(url),
    "the index of RecordIO": lambda url: reader.RecordIO("a.rec", url),
    "RecordFileDataset": lambda url: RecordFileDataset(url),
    "MXRecordIO": lambda url: MXRecordIO(url, "r"),
    "MXIndexedRecordIO": lambda url: MXIndexedRecordIO(url, url, "r"),
}


@pytest.mark.parametrize("reads", READERS)
def test_what_reads_stores_refuses_other_addresses(reads: str) -> None:
    for url in ("hdfs://host/a", Path("s3://bucket/a"), "ftp://host/a"):
        with pytest.raises(reader.ConfigError, match="got the URL"):
            READERS[reads](url)
    with pytest.raises(reader.ConfigError, match="pathlib drops a slash of it: pass the text"):
        READERS[reads](Path("s3://bucket/a"))
    with pytest.raises(reader.ConfigError, match=r"default_headers") as caught:
        READERS[reads]("https://host/a.bin?signature=abc")
    assert "abc" not in str(caught.value)
    with pytest.raises(reader.ConfigError, match="names no bucket or host"):
        READERS[reads]("s3:///a")


@pytest.mark.parametrize("reads", READERS)
def test_what_reads_stores_names_what_is_not_installed(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(reader.ConfigError, match=r"obstore.*lodreader\[remote\]"):
        READERS[reads]("s3://bucket/a")


def test_the_url_of_a_file_names_its_path() -> None:
    with pytest.raises(reader.ConfigError, match=r"pass the path alone: '/tmp/a\.bin'"):
        reader.RecordWriter("file:///tmp/a.bin")


def test_outputs_of_a_profile_refuse_urls(tmp_path: Path) -> None:
    with reader.DataLoader([1.0, 2.0]) as loader, reader.profile(loader) as seen:
        list(loader)
    with pytest.raises(reader.ConfigError, match=r"got the URL 'gs://bucket/a\.json'"):
        seen.to_trace("gs://bucket/a.json")
    (said,) = check_reports(json_path="gs://bucket/a.json")
    assert "--json must be the path of a file or folder" in said


@pytest.mark.parametrize(
    "path", ["a", "./a", "/a/b", "C:\\a", "a:b", "a:/b", "", b"a", 3, None, "://", "1://"]
)
def test_a_path_that_is_no_url_is_accepted(path: Any) -> None:
    refuse_url("path", path)


def test_an_existing_path_that_looks_like_a_url_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.makedirs("s3:/bucket")
    refuse_url("path", "s3://bucket")


def test_write_shards_takes_no_address_that_pathlib_has_changed() -> None:
    with pytest.raises(reader.ConfigError, match="got the URL"):
        reader.write_shards([{"x": 1}], Path("s3://bucket/a"), "mds")
