"""Write samples as shards, in parallel and in order; go on where a killed program has stopped.

Imports the loader, which runs the encoding in workers. A shard is written under another name and
moved to its place when it is whole; then a line in the folder's journal says so. What the journal
does not name is written again, with the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reader.checks import as_byte_size, as_int, refuse_url
from reader.data.dataset import Dataset
from reader.data.iterable import is_iterable_dataset
from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.files import new_file, open_regular
from reader.loader import DataLoader
from reader.shards.encoders import Encoder, encoder_for

__all__ = ["write_shards"]

_JOURNAL, _MANIFEST, _INDEX = ".reader-journal.jsonl", "manifest.json", "index.json"
_AT_ONCE = 16  # samples of a task of a worker
_PACKED = {"gz": ".gz", "zstd": ".zstd"}


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
) -> int:
    """Write samples as shards into a folder; return how many there are.

    The order is that of the samples. A call that was ended, by SIGKILL too, is repeated with the
    same arguments: it keeps the shards that are whole, and writes the rest with the same bytes.
    At the end "manifest.json" has the names, counts, bytes and sums (SHA-256) of all shards; for
    MDS "index.json" as Streaming reads it, too.

    Args:
        samples: a dataset with indices, or an iterable, such as a generator, which gives the
            same samples when a call is repeated.
            A sample is a dict; of "jsonl" it is anything that JSON holds.
        path: of the folder, which is made if it is missing.
        format: "mds", "tar", "tfrecord", "parquet" or "jsonl".
        shard_size: how many bytes a shard has at most before it is compressed, such as "64MB"; a
            sample that is larger is a shard by itself.
        compression: of whole shards: "zstd" or "gz"; of "parquet" that of its columns.
        columns: of "mds": the encoding of each column by name; None: what the first sample has.
        num_workers: how many processes fetch and encode samples; for an iterable 0.
        progress: whether to show a bar, by tqdm.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid, or the folder has other shards.
        DatasetError: a sample cannot be encoded; it is named.
    """
    refuse_url("path", path)
    encoder = encoder_for(format, columns, compression)
    size = as_byte_size("shard_size", shard_size)
    workers = as_int("num_workers", num_workers, low=0, remedy="0 encodes in this process.")
    if format != "parquet" and compression is not None and compression not in _PACKED:
        raise ConfigError(
            f"compression must be one of {', '.join(_PACKED)}, got {got(compression)}"
        )
    if isinstance(samples, (Mapping, str, bytes)):
        raise ConfigTypeError(
            f"samples must be a dataset, or an iterable of samples, got {got(samples)}: pass a list"
            " of samples, or reader.Shards of a path"
        )
    is_stream = is_iterable_dataset(samples) or not hasattr(samples, "__getitem__")
    if is_stream and workers:
        raise ConfigError(
            f"num_workers={workers} is for datasets with indices, and {got(samples)} has none:"
            " leave it out, or pass a list"
        )
    folder = Path(os.path.expanduser(os.fsdecode(path)))  # noqa: PTH111
    said = {"format": format, "shard_size": size, "compression": compression, "columns": columns}
    journal = _Journal(folder, said)
    if is_stream:
        stream = iter(samples)
        first = list(itertools.islice(stream, 1))
        samples = itertools.chain(first, stream)  # a generator gives its first sample once
    else:
        first = [samples[0]] if len(samples) else []
    if not first:
        raise ConfigError("there is no sample to write")
    encoder.look_at(first[0])
    done = sum(each["samples"] for each in journal.shards)
    records = _records(samples, encoder, done, workers, is_stream)
    if progress:
        records = _with_bar(records, samples, done, is_stream)
    packed = None if format == "parquet" else compression
    for group in _groups(records, encoder, size):
        journal.add(encoder, group, packed)
    return journal.finish(encoder, packed)


class _Encoded(Dataset[bytes]):
    """The records of a dataset's samples."""

    def __init__(self, samples: Any, encoder: Encoder) -> None:
        self._samples, self._encoder = samples, encoder

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> bytes:
        return _encoded(self._encoder, self._samples[index], index)


def _encoded(encoder: Encoder, sample: Any, index: int) -> bytes:
    try:
        return encoder.record(sample, index)
    except Exception as error:  # of many types
        raise DatasetError(f"sample {index:,} cannot be encoded: {error}") from error


def _records(
    samples: Any, encoder: Encoder, done: int, workers: int, is_stream: bool
) -> Iterator[bytes]:
    """Yield the records of the samples from number `done` on."""
    if is_stream or not workers:
        rest: Iterator[Any]
        if is_stream:
            rest = itertools.islice(samples, done, None)
        else:  # what is written is not fetched again
            rest = map(samples.__getitem__, range(done, len(samples)))
        for index, sample in enumerate(rest, done):
            yield _encoded(encoder, sample, index)
        return
    encoded = _Encoded(samples, encoder)
    places = range(done, len(samples))
    with DataLoader(
        encoded, batch_size=_AT_ONCE, sampler=places, collate_fn=list, num_workers=workers
    ) as loader:
        for batch in loader:
            yield from batch


def _with_bar(
    records: Iterator[bytes], samples: Any, done: int, is_stream: bool
) -> Iterator[bytes]:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ConfigError(
            f"progress=True shows a bar by tqdm, which cannot be imported: {error}. Run: pip"
            " install tqdm, or leave it out"
        ) from error
    total = None if is_stream else len(samples)
    yield from tqdm(records, initial=done, total=total, unit=" samples")


def _groups(records: Iterable[bytes], encoder: Encoder, size: int) -> Iterator[list[bytes]]:
    """Yield the records of each shard."""
    group: list[bytes] = []
    nbytes = 0
    for record in records:
        more = encoder.nbytes(record)
        if group and nbytes + more > size:
            yield group
            group, nbytes = [], 0
        group.append(record)
        nbytes += more
    if group:
        yield group


class _Journal:
    """The shards of a folder that are whole, by a line each behind one that says what is written.

    Args:
        folder: it is made if it is missing.
        said: the arguments, which must be those of the lines that are there.

    Raises:
        ConfigError: the folder has other files, or shards of other arguments.

    Attributes:
        shards: name, samples, nbytes and sum of each that is whole.
    """

    def __init__(self, folder: Path, said: dict[str, Any]) -> None:
        self._folder, self._said = folder, said
        self.shards: list[dict[str, Any]] = []
        self._place = folder / _JOURNAL
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = {each.name for each in folder.iterdir()}
            lines = self._lines() if _JOURNAL in names else []
        except OSError as error:
            raise ConfigError(f"shards cannot be written to '{folder}': {error}") from error
        if not lines:
            others = {each for each in names if not each.endswith(".draft")} - {_JOURNAL}
            if others:
                raise ConfigError(
                    f"the folder '{folder}' has {len(others)} files, such as {min(others)!r}:"
                    " pass a new folder"
                )
            self._write(_JOURNAL, _line(said))
            return
        if lines[0] != json.loads(json.dumps(said)):
            raise ConfigError(
                f"the folder '{folder}' has shards that were written with other arguments,"
                f" {lines[0]}: pass these again, or a new folder"
            )
        for line in lines[1:]:
            if not self._is_whole(line):
                break
            self.shards.append(line)
        if len(self.shards) < len(lines) - 1 or not _content(self._place).endswith(b"\n"):
            self._write(_JOURNAL, b"".join(map(_line, [said, *self.shards])))

    def add(self, encoder: Encoder, records: list[bytes], packed: str | None) -> None:
        """Write a shard."""
        content = raw = encoder.shard(records)
        number = len(self.shards)
        is_mds = encoder.suffix == ".mds"
        name = f"shard{'.' if is_mds else '-'}{number:05d}{encoder.suffix}"
        line: dict[str, Any] = {"name": name, "samples": len(records)}
        if packed is not None:
            content, line["name"] = _packed(raw, packed), name + _PACKED[packed]
            line["raw"] = {"name": name, "nbytes": len(raw), "sha256": _sum(raw)}
        line |= {"nbytes": len(content), "sha256": _sum(content)}
        self._write(line["name"], content)
        with open(self._place, "ab", opener=open_regular) as file:
            file.write(_line(line))
            file.flush()
            os.fsync(file.fileno())
        self.shards.append(line)

    def finish(self, encoder: Encoder, packed: str | None) -> int:
        """Write what describes all shards; return how many there are."""
        samples = sum(each["samples"] for each in self.shards)
        shards = [{key: each[key] for key in each if key != "raw"} for each in self.shards]
        manifest = {"format": self._said["format"], "samples": samples, "shards": shards}
        self._write(_MANIFEST, json.dumps(manifest, indent=1).encode())
        if encoder.said():
            found = [_of_streaming(encoder, each, packed) for each in self.shards]
            self._write(_INDEX, json.dumps({"version": 2, "shards": found}).encode())
        return len(self.shards)

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines that are whole; a program that was killed may leave a part of one."""
        content = _content(self._place)
        found = []
        for line in content.split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def _is_whole(self, line: dict[str, Any]) -> bool:
        try:
            return bool(_sum(_content(self._folder / line["name"])) == line["sha256"])
        except OSError:
            return False

    def _write(self, name: str, content: bytes) -> None:
        """Write a file in one step."""
        draft = self._folder / f"{name}.draft"
        with new_file(draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / name)


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


def _packed(content: bytes, how: str) -> bytes:
    if how == "gz":
        return gzip.compress(content, mtime=0)
    import pyarrow as pa

    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _of_streaming(encoder: Encoder, line: dict[str, Any], packed: str | None) -> dict[str, Any]:
    """Return what an index.json of Streaming says of a shard."""
    raw = line.get("raw", line)

    def part(said: dict[str, Any]) -> dict[str, Any]:
        hashes = {"sha256": said["sha256"]}
        return {"basename": said["name"], "bytes": said["nbytes"], "hashes": hashes}

    return {
        **encoder.said(),
        "compression": packed,
        "samples": line["samples"],
        "raw_data": part(raw),
        "zip_data": part(line) if packed else None,
    }
