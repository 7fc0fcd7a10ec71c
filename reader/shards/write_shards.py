"""Write samples as shards, in parallel and in order; go on where a killed program has stopped.

Imports the loader, which runs the encoding in workers, and the folders. When a shard is whole, a
line in the folder's journal says so. What the journal does not name is written again, with the same
bytes. Its first line says what is written.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from reader.checks import as_byte_size, as_int
from reader.data.dataset import Dataset
from reader.data.iterable import is_iterable_dataset
from reader.errors import ConfigError, ConfigTypeError, DatasetError, ReaderError, got
from reader.loader import DataLoader
from reader.shards.encoders import Encoder, encoder_for
from reader.shards.formats.compression import required_pyarrow
from reader.shards.shard_folders import JOURNAL, ShardFolder, folder_for, sum_of

__all__ = ["MANIFEST", "with_bar", "write_shards"]

MANIFEST, _INDEX = "manifest.json", "index.json"
_AT_ONCE = 16  # samples of a task of a worker
_PACKED = {"gz": ".gz", "zstd": ".zstd"}
T = TypeVar("T")
_ANOTHER = "pass the same samples, or a new folder"


def write_shards(
    samples: Any,
    path: str | os.PathLike[str],
    format: str = "mds",  # noqa: A002  # as Shards names it
    *,
    shard_size: int | str = "64MB",
    compression: str | None = None,
    columns: Mapping[str, str] | None = None,
    num_workers: int = 0,
    progress: bool = False,
    store: Mapping[str, Any] | None = None,
) -> int:
    """Write samples as shards into a folder, or into a store; return how many there are.

    The order is that of the samples. A call that was ended, by SIGKILL too, is repeated with the
    same arguments: it keeps the shards that are whole, and writes the rest with the same bytes.
    Other samples are refused where their fields, their number or the first of them differ. At the
    end "manifest.json" has the names, counts, bytes and sums (SHA-256) of all shards; for MDS
    "index.json" as Streaming reads it, too.

    Args:
        samples: a dataset with indices, or an iterable, such as a generator, which gives the
            same samples when a call is repeated.
            A sample is a dict; of "jsonl" it is anything that JSON holds. Samples of "mds" and
            "parquet" have the fields of the first one, and values of the same types. Of "parquet"
            values may be None: the first sample with a value, or with all parts of a nested one,
            says the type.
        path: of the folder, which is made if it is missing; or the address of one in an object
            store, such as "s3://bucket/folder", "gs://..." or "az://container/folder".
        format: "mds", "tar", "tfrecord", "parquet" or "jsonl".
        shard_size: how many bytes a shard has at most before it is compressed, such as "64MB"; a
            sample that is larger is a shard by itself. Of "parquet" the bytes of its rows count
            before they are columns, which take less. Of "mds" it is less than 4 GiB.
        compression: of whole shards: "zstd" or "gz"; of "parquet" that of its columns: these,
            "none", "snappy", "brotli" or "lz4".
        columns: of "mds": the encoding of each column by name; None: what the first sample has.
        num_workers: how many processes fetch and encode samples; for an iterable 0.
        progress: whether to show a bar, by tqdm.
        store: options of the store's client, as for `Shards`.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid, the folder has other shards, or it
            cannot be written to: a disk is full, a store refuses it or cannot be reached, another
            process writes to it.
        DatasetError: a sample cannot be fetched or encoded; it is named.
    """
    folder = folder_for(path, store)
    encoder = encoder_for(format, columns, compression)
    size = as_byte_size("shard_size", shard_size)
    if encoder.most_nbytes is not None and size > encoder.most_nbytes:
        raise ConfigError(
            f"shard_size must be {encoder.most_nbytes:,} bytes at most for {format!r}, whose places"
            f" in a shard have 32 bits, got {got(shard_size)}"
        )
    workers = as_int("num_workers", num_workers, low=0, remedy="0 encodes in this process.")
    packed = _whole_compression(format, compression)
    is_stream = _is_stream(samples)
    if is_stream and workers:
        raise ConfigError(
            f"num_workers={workers} is for datasets with indices, and {got(samples)} has none:"
            " leave it out, or pass a list"
        )
    known = None if is_stream else len(samples)
    source = _fetched(samples, is_stream)
    seen = _look_at(encoder, source)
    said = {"format": format, "shard_size": size, "compression": compression, "columns": columns}
    said |= {"samples": known, "first": _sum_of_first(encoder, seen[0])}
    with folder.only_writer():
        journal = _Journal(folder, {**said, "types": encoder.columns})
        done = sum(each["samples"] for each in journal.shards)
        if is_stream:  # a generator gives its first samples once
            source = itertools.chain(seen, source)
            there = sum(1 for _ in itertools.islice(source, done))
        else:  # what is written is not fetched again
            source = _fetched(samples, is_stream, done)
            there = len(samples)
        if there < done:
            raise _fewer(folder, done, there)
        records = (
            _encoded_by_workers(samples, encoder, done, workers)
            if workers
            else _encoded_all(source, encoder, done)
        )
        if progress:
            records = with_bar(records, done, known, " samples")
        if journal.finished is not None:
            records = _counted(records, done, journal.finished, folder)
        for group in _groups(records, encoder, size):
            journal.add(encoder, group, packed)
        return journal.finish(encoder, packed)


def _whole_compression(form: str, compression: str | None) -> str | None:
    """Return how whole shards are compressed; None: they are not. ConfigError: it is unknown."""
    if form == "parquet" or compression is None:
        return None
    if not isinstance(compression, str) or compression not in _PACKED:
        raise ConfigError(
            f"compression must be one of {', '.join(_PACKED)}, got {got(compression)}"
        )
    if compression == "zstd":
        required_pyarrow("the shards are compressed by zstd")
    return compression


def _is_stream(samples: Any) -> bool:
    """Whether samples have no indices. ConfigTypeError: they are no samples."""
    if hasattr(samples, "iloc"):
        raise ConfigTypeError(
            f"samples are the columns of a {type(samples).__name__}: pass its rows, such as"
            " reader.TableRows(frame), or frame.to_dict('records')"
        )
    is_stream = is_iterable_dataset(samples) or not hasattr(samples, "__getitem__")
    if isinstance(samples, (Mapping, str, bytes)) or not hasattr(
        samples, "__iter__" if is_stream else "__len__"
    ):
        raise ConfigTypeError(
            "samples must be a dataset with a length, or an iterable of samples, got"
            f" {got(samples)}: pass a list of samples, or reader.Shards of a path"
        )
    return is_stream


def _look_at(encoder: Encoder, samples: Iterator[Any]) -> list[Any]:
    """Show the first samples to the encoder; return those that it has taken.

    Raises:
        ConfigError, ConfigTypeError: there is none, or they have no fields or types that the format
            holds.
        DatasetError: one cannot be fetched.
    """
    try:
        seen = encoder.look_at(samples)
    except ReaderError:
        raise
    except Exception as error:  # of many types
        raise DatasetError(f"sample 0 cannot be encoded: {error}") from error
    if not seen:
        raise ConfigError("there is no sample to write")
    return seen


def _sum_of_first(encoder: Encoder, sample: Any) -> str:
    """Return the sum of a shard that has the first sample alone.

    Raises:
        ConfigError: its record is no shard.
        DatasetError: it cannot be encoded.
    """
    return sum_of(encoder.shard([_encoded(encoder, sample, 0)]))


class _Encoded(Dataset[bytes]):
    """The records of a dataset's samples."""

    def __init__(self, samples: Any, encoder: Encoder) -> None:
        self._samples, self._encoder = samples, encoder

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> bytes:
        (sample,) = itertools.islice(_fetched(self._samples, False, index), 1)
        return _encoded(self._encoder, sample, index)


def _fetched(samples: Any, is_stream: bool, begin: int = 0) -> Iterator[Any]:
    """Yield the samples; those of a dataset from number `begin` on.

    Raises:
        DatasetError: one cannot be fetched; it is named.
    """
    number = begin
    try:
        if is_stream:
            for sample in samples:
                yield sample
                number += 1
            return
        for number in range(begin, len(samples)):
            sample = samples[number]
            yield sample
    except Exception as error:
        raise DatasetError(
            f"sample {number:,} cannot be fetched: {type(error).__name__}: {error}"
        ) from error


def _encoded(encoder: Encoder, sample: Any, index: int) -> bytes:
    try:
        return encoder.record(sample, index)
    except Exception as error:  # of many types
        raise DatasetError(f"sample {index:,} cannot be encoded: {error}") from error


def _encoded_all(samples: Iterator[Any], encoder: Encoder, done: int) -> Iterator[bytes]:
    """Yield the records of samples, of which the first has the number `done`."""
    for index, sample in enumerate(samples, done):
        yield _encoded(encoder, sample, index)


def _encoded_by_workers(samples: Any, encoder: Encoder, done: int, workers: int) -> Iterator[bytes]:
    """Yield the records of a dataset's samples from number `done` on."""
    encoded = _Encoded(samples, encoder)
    places = range(done, len(samples))
    with DataLoader(
        encoded, batch_size=_AT_ONCE, sampler=places, collate_fn=list, num_workers=workers
    ) as loader:
        for batch in loader:
            yield from batch


def _counted(
    records: Iterator[bytes], done: int, finished: int, folder: ShardFolder
) -> Iterator[bytes]:
    """Yield records. ConfigError: a finished folder has another number of samples."""
    count = done
    for record in records:
        if count == finished:
            raise ConfigError(
                f"the folder '{folder}' is finished with {finished:,} samples, and there are more:"
                f" {_ANOTHER}"
            )
        yield record
        count += 1
    if count < finished:
        raise _fewer(folder, finished, count)


def _fewer(folder: ShardFolder, written: int, count: int) -> ConfigError:
    return ConfigError(
        f"the folder '{folder}' has shards of {written:,} samples, and there are {count:,}:"
        f" {_ANOTHER}"
    )


def with_bar(items: Iterator[T], done: int, known: int | None, unit: str) -> Iterator[T]:
    """Yield items, and show a bar.

    Args:
        items: after the first `done`.
        done: how many an earlier call has done.
        known: how many there are; None: nobody knows.
        unit: of the bar, such as " samples".

    Raises:
        ConfigError: tqdm is missing.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ConfigError(
            f"progress=True shows a bar by tqdm, which cannot be imported: {error}. Run: pip"
            " install tqdm, or leave it out"
        ) from error
    yield from tqdm(items, initial=done, total=known, unit=unit)


def _groups(records: Iterable[bytes], encoder: Encoder, size: int) -> Iterator[list[bytes]]:
    """Yield the records of each shard."""
    group: list[bytes] = []
    nbytes = encoder.frame_nbytes
    for record in records:
        more = encoder.nbytes(record)
        if group and nbytes + more > size:
            yield group
            group, nbytes = [], encoder.frame_nbytes
        group.append(record)
        nbytes += more
    if group:
        yield group


class _Journal:
    """The shards of a folder that are whole, by a line each behind one that says what is written.

    Args:
        folder: of the shards; no other process writes to it.
        said: the arguments, how many samples there are (None: it is not known), the sum of the
            first, and the types of columns: they must be those of the first line.

    Raises:
        ConfigError: the folder cannot be read, has other files, or shards of other arguments
            or samples, or what it says is damaged.

    Attributes:
        shards: name, samples, nbytes and sum of each that is whole.
        finished: how many samples the folder has, if an earlier call came to its end.
    """

    def __init__(self, folder: ShardFolder, said: dict[str, Any]) -> None:
        self._folder, self._said = folder, said
        self.shards: list[dict[str, Any]] = []
        self.finished: int | None = None
        self._begun = self._samples = 0  # shards and samples, with those on their way
        names = folder.names()
        content = folder.content(JOURNAL) if JOURNAL in names else b""
        if not content:
            others = {each for each in names if each[0] != "."}
            if others:
                raise ConfigError(
                    f"the folder '{folder}' has {len(others)} files, such as {min(others)!r}:"
                    " pass a new folder"
                )
            self._head = said
            folder.log([said], 1)
            return
        self._head, *lines = self._lines(content)
        self._compare(self._head)
        if MANIFEST in names:
            self.finished = self._finished_count()
        seen: set[str] = set()
        for line in lines:  # two of a name: two programs wrote at once, where there are no locks
            if line["name"] in seen or not folder.is_whole(line):
                break
            seen.add(line["name"])
            self.shards.append(line)
        self._begun = len(self.shards)
        self._samples = sum(each["samples"] for each in self.shards)
        if len(self.shards) < len(lines) or not content.endswith(b"\n"):
            folder.log([self._head, *self.shards], len(self.shards) + 1)

    def add(self, encoder: Encoder, records: list[bytes], packed: str | None) -> None:
        """Write a shard, or begin to."""
        begin, self._samples = self._samples, self._samples + len(records)
        try:
            content = raw = encoder.shard(records)
        except ConfigError as error:
            raise DatasetError(
                f"samples {begin:,} to {begin + len(records) - 1:,} cannot be a shard: {error}"
            ) from error
        name = encoder.name(self._begun)
        line: dict[str, Any] = {"name": name, "samples": len(records)}
        if packed is not None:
            content, line["name"] = _packed(raw, packed), name + _PACKED[packed]
            line["raw"] = {"name": name, "nbytes": len(raw), "sha256": sum_of(raw)}
        line |= {"nbytes": len(content), "sha256": sum_of(content)}
        self._begun += 1
        self._log(self._folder.begin(line, content))

    def finish(self, encoder: Encoder, packed: str | None) -> int:
        """Write what describes all shards, when they are whole; return how many there are."""
        self._log(self._folder.rest())
        samples = sum(each["samples"] for each in self.shards)
        hidden = ("raw", "version")
        shards = [{key: each[key] for key in each if key not in hidden} for each in self.shards]
        index = encoder.index(self.shards, packed)
        if index is not None:
            self._folder.write(_INDEX, json.dumps(index).encode())
        manifest = {"format": self._said["format"], "samples": samples, "shards": shards}
        self._folder.write(MANIFEST, json.dumps(manifest, indent=1).encode())
        return len(self.shards)

    def _log(self, lines: list[dict[str, Any]]) -> None:
        """Take note of shards that are whole."""
        if lines:
            self.shards += lines
            self._folder.log([self._head, *self.shards], len(lines))

    def _lines(self, content: bytes) -> list[dict[str, Any]]:
        """Return the lines that are whole; a program that was killed may leave a part of one.

        Raises:
            ConfigError: one is not what this class writes.
        """
        found = []
        for number, line in enumerate(content.split(b"\n")[:-1]):
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                said = None
            if not (_is_shard(said) if number else self._is_head(said)):
                raise self._damaged(f"line {number + 1:,} of '{self._folder.path_of(JOURNAL)}'")
            found.append(said)
        if not found:
            raise self._damaged(f"'{self._folder.path_of(JOURNAL)}'")
        return found

    def _is_head(self, said: Any) -> bool:
        return _has(said, *self._said) and type(said["samples"]) in (int, type(None))

    def _damaged(self, what: str) -> ConfigError:
        return ConfigError(
            f"{what} is damaged, or another release wrote it: pass a new folder, or remove"
            f" '{self._folder}'"
        )

    def _compare(self, head: dict[str, Any]) -> None:
        """Raise ConfigError where the shards are of other arguments or other samples."""
        said = json.loads(json.dumps(self._said))
        arguments = said.keys() - {"samples", "first", "types"}
        if any(head[name] != said[name] for name in arguments):
            begun_with = {name: head[name] for name in said if name in arguments}
            raise ConfigError(
                f"the folder '{self._folder}' has shards that were written with other arguments,"
                f" {begun_with}: pass these again, or a new folder"
            )
        begun = f"the folder '{self._folder}' has shards of other samples:"
        if head["types"] != said["types"]:
            raise ConfigError(
                f"{begun} their columns are {head['types']}, and these samples have"
                f" {said['types']}: {_ANOTHER}"
            )
        counts = head["samples"], said["samples"]
        if None not in counts and counts[0] != counts[1]:
            raise ConfigError(
                f"{begun} they were {counts[0]:,}, and these are {counts[1]:,}: {_ANOTHER}"
            )
        if head["first"] != said["first"]:
            raise ConfigError(
                f"{begun} their first one has other bytes than the first one of these: {_ANOTHER}"
            )

    def _finished_count(self) -> int:
        try:
            said = json.loads(self._folder.content(MANIFEST))
        except (ValueError, RecursionError):
            said = None
        if not _has(said, "samples") or type(said["samples"]) is not int:
            raise self._damaged(f"'{self._folder.path_of(MANIFEST)}'")
        return int(said["samples"])


def _has(said: Any, *names: str) -> bool:
    """Whether what a line of JSON says is an object with these names."""
    return isinstance(said, dict) and all(name in said for name in names)


def _is_shard(said: Any) -> bool:
    """Whether a line of a journal says what it must of a shard."""
    if not _is_file(said) or type(said.get("samples")) is not int or said["samples"] < 1:
        return False
    return "raw" not in said or _is_file(said["raw"])


def _is_file(said: Any) -> bool:
    """Whether a line says name, size and sum of a file in the journal's folder."""
    if not _has(said, "name", "nbytes", "sha256"):
        return False
    name = said["name"]
    is_inside = isinstance(name, str) and name.startswith("shard") and not {"/", "\0"} & set(name)
    return is_inside and type(said["nbytes"]) is int and isinstance(said["sha256"], str)


def _packed(content: bytes, how: str) -> bytes:
    if how == "gz":
        return gzip.compress(content, mtime=0)
    import pyarrow as pa

    return bytes(pa.compress(content, codec="zstd", asbytes=True))
