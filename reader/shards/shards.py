"""The samples of files that hold many each, as a map-style dataset.

Imports the index and the fields. Each process opens the shards that it reads, and keeps some of
them open; the index lies in shared memory.
"""

from __future__ import annotations

import copy
import operator
import os
import posixpath
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from reader.checks import as_bool, as_folder, as_int, described
from reader.data.dataset import ShardedDataset
from reader.data.fingerprint import digest_of, fingerprint_of
from reader.data.wrapped import unless_overridden
from reader.errors import ConfigError, DatasetError, SampleIndexError
from reader.images.compose import Compose
from reader.images.encoded_image import require_decoders
from reader.images.transform import Size
from reader.shards.fields import Fields
from reader.shards.formats import FORMATS
from reader.shards.formats.shard import Options, Shard
from reader.shards.index import SetIndex, find_set
from reader.stores.files import StoredFile
from reader.stores.paths import parts_of
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache

__all__ = ["Origin", "ShardImages", "Shards"]

_MOST_OPEN = 64  # shards of a process
_MOST_UNPACKED = 1 << 28  # bytes of those in memory, decompressed or of their index
_AHEAD_S = 60  # a shard that is opened again sooner lies in the system's cache, mostly


class Origin(NamedTuple):
    """Where a sample comes from.

    Attributes:
        path: of its file.
        offset: in the file, in bytes; of a compressed file in what it is decompressed to.
        key: its name there; "": it has none.
        position: among the samples of the file, from 0.
    """

    path: str
    offset: int
    key: str
    position: int


class Shards(ShardedDataset[Any]):
    """The samples of shards: files that hold many samples each.

    They are an ordinary map-style dataset: any sampler, number of workers and state of a loader
    fits. Without `fields` a sample is what the library gives whose format it is:

    - "tar" (WebDataset): a dict of bytes by extension, and "__key__".
    - "mds" (MosaicML Streaming, also its JSON lines and separated values): a dict by column,
      decoded as the columns' encodings say.
    - "litdata": the tree that was written, or the row; tensors as arrays of NumPy, images as uint8
      arrays by channel, and files, audio and video as bytes.
    - "tfrecord": a dict of lists by feature, of `tf.train.Example`.
    - "parquet": the row as a dict of Python values, nested ones too.
    - "jsonl": what the line holds.
    - "array_record": the record's bytes, which are the field "bytes".
    - "files", if it is asked for: a dict of "file", which is a path in the folder, and "bytes",
      with what the line of the folder's index.jsonl has, if there is one. The folder is one shard.

    Args:
        path: of a file, or of a folder with shards or with an index.json; a pattern, such as
            "train-{000..099}.tar" or "train-*.tar"; or a list of these.
        format: the name of the format; None: what is found.
        fields: what each field becomes, by name: `int`, `float`, `str`, `bytes`, "json", a type of
            NumPy's numbers for an array, a `reader.images.Compose` for the bytes of an image, a
            function of the value, or None for the value as it is. "jpg;png" takes the first of
            these that a sample has, as "jpg". None: whole samples.
        index: the folder where the index of the shards is kept, for formats that have none; None:
            beside the shards, if their folder is writable. It is made once, by reading the shards'
            headers, and made anew for shards that have another size or time.
        check: whether sums that the format has are compared.
        allow_pickle: whether fields of pickles are read, which can run any program.
        block_size: how many tokens a sample has, of LitData's chunks that were written for
            `TokensLoader`; what is over at the end of a chunk is left out. None: a sample has the
            tokens that were written at once.
        cache: where bytes of shards are kept that lie in a store, such as s3://bucket/path. None:
            in memory. See `reader.ShardCache`.
        store: options of the store's client: its credentials, region, endpoint, and "timeout", the
            seconds for which a request is tried. None: as the environment says.

    Raises:
        ConfigError, ConfigTypeError: there is no such file, the shards have several formats, or
            one is damaged.

    A sample that is damaged, or lacks a field, raises DatasetError when it is fetched; it names the
    file and the place.
    """

    __repr__ = described

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        format: str | None = None,  # noqa: A002  # as others name it
        fields: Mapping[str, Any] | None = None,
        *,
        index: str | os.PathLike[str] | None = None,
        check: bool = True,
        allow_pickle: bool = False,
        block_size: int | None = None,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self._fields = None if fields is None else Fields(fields)
        self._options = Options(
            as_bool("check", check),
            as_bool("allow_pickle", allow_pickle),
            block_size=None
            if block_size is None
            else as_int("block_size", block_size, low=1, remedy="None: as were written at once."),
        )
        files = files_for(parts_of(path), cache, store)
        self._use = files.use
        self._options = self._options._replace(files=files)
        if self._fields is not None:
            self._options = self._fields.wanted(self._options)
        if index is not None:
            as_folder("index", index)
        folder = None if index is None else os.path.expanduser(os.fsdecode(index))  # noqa: PTH111
        self._set: SetIndex = find_set(path, format, folder, self._options)
        if block_size is not None and not FORMATS[self.format].has_blocks:
            raise ConfigError(
                f"block_size={block_size} is for LitData's chunks of tokens, and the format is"
                f" {self.format!r}: leave it out"
            )
        self._open: OrderedDict[int, Shard] = OrderedDict()
        self._read_ahead: dict[int, float] = {}  # when each was, in seconds

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._set.kind

    @property
    def starts(self) -> Sequence[int]:
        """The first sample of each shard, or row group of Parquet, and how many samples there are.

        An array of int64. `ShardOrder` keeps to few of these units at a time.
        """
        return self._set.unit_starts  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """The bytes of all files; of the format "files" those of what lists them."""
        return self._set.nbytes

    @property
    def files(self) -> list[StoredFile]:
        """The shards' files: path, nbytes and mtime_ns of each, as its index was made of it."""
        return [self._set.file(number) for number in range(len(self._set.starts) - 1)]

    @property
    def index_file(self) -> str | None:
        """The path of the file that keeps the index; None: there is none."""
        return self._set.place

    @property
    def is_fetched(self) -> bool:  # type: ignore[override]
        """Whether shards lie in a store."""
        return self._set.is_remote

    def expect(self, groups: Sequence[Any], then: Sequence[Any]) -> None:
        """See ShardedDataset."""
        self._options.files.expect(self._files_of(groups), self._files_of(then))

    def _files_of(self, groups: Sequence[Any]) -> list[list[StoredFile]]:
        """Return the files that have the units of each group."""
        found = []
        for group in groups:
            firsts = self._set.unit_starts.view(np.ndarray)[np.asarray(group)]
            shards = np.searchsorted(self._set.starts.view(np.ndarray), firsts, "right") - 1
            found.append([self._set.file(shard) for shard in dict.fromkeys(shards.tolist())])
        return found

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return a digest of the shards' names, sizes and lengths; see `fingerprint_of`."""
        count = len(self) if samples is None else samples
        starts = self._set.starts.view(np.ndarray)
        shards = int(np.searchsorted(starts, count))
        files = [self._set.file(number) for number in range(shards)]
        names = [posixpath.basename(file.path.split("?")[0]) for file in files]
        lengths = np.diff(starts[: shards + 1].clip(max=count))
        digest = digest_of(names, [file.nbytes for file in files], lengths)
        facts = {"kind": "Shards", "samples": count, "format": self.format}
        return {**facts, "shards": shards, "files": digest}

    def __len__(self) -> int:
        return len(self._set)

    def __getitem__(self, index: int, /) -> Any:
        """Return the sample at `index`; a negative one counts from the end."""
        return self._read([index])[0]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Read many samples; exists unless a subclass has a `__getitem__` of its own."""
        return unless_overridden(self, Shards, self._read)

    def _read(self, indices: Sequence[int]) -> list[Any]:
        """Return many samples; those of one shard are read together, in the order of the file."""
        places = list(map(self._from_front, indices))
        rows = sorted(range(len(places)), key=places.__getitem__)
        shards, positions = self._set.locate([places[row] for row in rows])
        if self._set.is_remote:
            self._fetch(shards, positions)
        found: list[Any] = [None] * len(rows)
        fields, end = self._fields, 0
        for number, run in groupby(shards):
            begin, end = end, end + len(list(run))
            part = positions[begin:end]
            try:
                shard = self._shard(number, is_dense=len(part) > 1)
                read = shard.samples(part)
            except DatasetError as error:
                shard, read = self._read_again(number, part, error)
            samples = zip(rows[begin:end], part, read, strict=True)
            if fields is None:
                for row, _, sample in samples:
                    found[row] = sample
            else:
                for row, position, sample in samples:
                    found[row] = fields.sample(sample, shard, position, places[row])
        return found

    def read_one(self, index: int) -> tuple[Shard, int, int, Any]:
        """Return a sample's open shard, its position there and its index from the front, and it."""
        place = self._from_front(index)
        number, position = self._set.place_of(place)
        try:
            shard = self._shard(number)
            (found,) = shard.samples([position])
        except DatasetError as error:
            shard, (found,) = self._read_again(number, [position], error)
        return shard, position, place, found

    def fetch(self, indices: Sequence[int]) -> None:
        """Have the bytes of samples fetched together, or read ahead by the system."""
        self._fetch(*self._set.locate(sorted(map(self._from_front, indices))))

    def _read_again(
        self, number: int, positions: Sequence[int], error: DatasetError
    ) -> tuple[Shard, list[Any]]:
        """Return an open shard and some of its samples, of which damaged bytes come once more.

        Args:
            number: of the shard.
            positions: of the samples.
            error: what was found when they were read; it is raised where that is of no use.
        """
        if not self._set.is_remote:
            raise error
        opened = self._open.pop(number, None)
        is_in_place = opened is not None and opened.is_read_in_place
        ranges = opened.ranges(positions) if opened is not None and is_in_place else []
        again = ranges or [(0, -1)]
        if not self._options.files.is_given_anew(self._set.file(number), again, error):
            raise error
        shard = self._shard(number)
        return shard, shard.samples(positions)

    def _fetch(self, shards: Sequence[int], positions: Sequence[int]) -> None:
        """Have the bytes of samples fetched together: first what opens their shards, then theirs.

        Args:
            shards: of each sample.
            positions: of each in its shard.
        """
        form, files = FORMATS[self._set.kind], self._options.files
        closed = [number for number in dict.fromkeys(shards) if number not in self._open]
        to_open = [(self._set.file(number), self._set.note(number)) for number in closed]
        files.fetch([(file, form.opening(file, note)) for file, note in to_open])
        files.fetch(self._ranges(shards, positions))

    def _ranges(
        self, shards: Sequence[int], positions: Sequence[int]
    ) -> Iterator[tuple[StoredFile, list[tuple[int, int]]]]:
        """Yield the files of shards, and where samples begin and end in each."""
        end = 0
        for number, run in groupby(shards):
            begin, end = end, end + len(list(run))
            try:
                shard = self._shard(number)
            except DatasetError:  # see _read_again
                continue
            if shard.is_read_in_place:
                yield self._set.file(number), shard.ranges(positions[begin:end])

    def origin(self, index: int) -> Origin:
        """Return where a sample comes from."""
        number, position = self._set.place_of(self._from_front(index))
        shard = self._shard(number)
        offset, key = shard.origin(position)
        return Origin(shard.path, offset, key, position)

    def fetch_stats(self) -> dict[str, Any]:
        """Return what the process that fetches has done since it began, for all who use the cache.

        `bytes`: that came from stores, by so many `requests`, of which `retries` were repeated, and
        `hedged` made beside one that was late, to take what comes first;
        `transfer_s`: the seconds of transfers, summed. `given`: bytes that were read, of which
        `hits` were there already. `waits`:
        requests of workers that had to wait, `wait_s`: seconds in all. `ahead`: bytes that are
        there, or on their way, and that nobody has asked for yet. `kept`: bytes in the cache now,
        at most `limit`, which is less than it was given where the disk is full; `evicted`: those
        that went for others. `damaged`: pieces that were fetched anew. `errors`: how often a
        failure was told, by kind. `pid`: of the process, and `users`: of those that are connected.
        Without shards in a store it is empty.

        `loader.stats()["fetch"]` has these for the datasets of a loader, and starts no process.

        Raises:
            DatasetError: there is no such process, and none can be started.
        """
        return self._options.files.fetch_stats()

    def images(
        self,
        image: str,
        label: str | None = None,
        *,
        label_as: Any = int,
        size: Size | None = None,
        transforms: Sequence[Any] = (),
        **options: Any,
    ) -> ShardImages:
        """Return a dataset of (image, label), or of images, as `ImageFolder` gives them.

        An image is decoded, cropped, resized and normalized in one pass into its row of the batch.

        Args:
            image: the field with the bytes of an image file, such as "jpg;png".
            label: the field with the label; None: samples are images alone.
            label_as: what the label becomes: see `fields`.
            size: (height, width) of the result; None: what the transforms make.
            transforms: objects and functions as for `reader.images.Compose`.
            options: those of `reader.images.Compose`, such as layout, dtype and mode.

        Raises:
            ConfigError, ConfigTypeError: an argument is invalid, or a decoder is missing.
        """
        if self._fields is not None:
            raise ConfigError(
                "images() decodes the fields itself, and the shards were made with fields=: leave"
                " that out, and pass label_as="
            )
        wanted = {image: Compose(transforms, size=size, **options)}
        if label is not None:
            wanted[label] = label_as
        require_decoders()
        fields = Fields(wanted)
        chosen = copy.copy(self)  # with no shard open: see __getstate__
        chosen._options = fields.wanted(self._options)
        return ShardImages(chosen, fields)

    @property
    def has_pure_samples(self) -> bool:
        """Whether a sample depends only on its index and on `sample_rng`."""
        return self._fields is None or self._fields.is_pure

    def _from_front(self, index: int) -> int:
        """Return an index as it is from the front. SampleIndexError: it is outside."""
        count = len(self._set)
        place = operator.index(index)
        if not -count <= place < count:
            raise SampleIndexError(
                f"index {place} is outside of {count:,} samples: take one in [{-count}, {count})"
            )
        return place % count

    def _shard(self, number: int, is_dense: bool = False) -> Shard:
        """Return an open shard; the one that was used longest ago is closed for it.

        Args:
            number: of the shard.
            is_dense: whether more of its samples will be wanted soon.
        """
        found = self._open.get(number)
        if found is not None:
            found.check_unchanged()
            try:
                self._open.move_to_end(number)
            except KeyError:  # another thread has just closed it
                self._open[number] = found
            if found.unpacked_nbytes:  # it may have decoded more since
                self._close_others()
            return found
        arrays = self._set.arrays(number)
        made = FORMATS[self._set.kind].open(
            self._set.file(number), self._set.note(number), arrays, self._options
        )
        if self._set.is_in_file:  # they are this process's own
            made.unpacked_nbytes += sum(each.nbytes for each in arrays.values())
        now = time.monotonic()
        if is_dense and now - self._read_ahead.get(number, -_AHEAD_S) >= _AHEAD_S:
            self._read_ahead[number] = now
            made.read_ahead()
        self._open[number] = made
        self._close_others()
        return made

    def _close_others(self) -> None:
        """Close those shards that were used longest ago while too much is open."""
        while len(self._open) > 1 and self._is_crowded():
            try:
                self._open.popitem(last=False)
            except KeyError:  # another thread has just closed it
                break

    def _is_crowded(self) -> bool:
        """Whether so many shards are open, or so many bytes decompressed, that one is closed."""
        unpacked = sum(each.unpacked_nbytes for each in list(self._open.values()))
        return len(self._open) > _MOST_OPEN or unpacked > _MOST_UNPACKED

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process gets: it opens the shards for itself."""
        return {**self.__dict__, "_open": OrderedDict(), "_read_ahead": {}}


class ShardImages(ShardedDataset[Any]):
    """The images of shards with their labels, written into their rows; made by `Shards.images`.

    Args:
        shards: the samples.
        fields: the image, and the label if there is one.
    """

    __repr__ = described

    def __init__(self, shards: Shards, fields: Fields) -> None:
        self.shards = shards
        self._fields = fields
        self._use = shards._use

    @property
    def starts(self) -> Sequence[int]:
        """See `Shards.starts`."""
        return self.shards.starts

    @property
    def is_fetched(self) -> bool:  # type: ignore[override]
        """See `Shards.is_fetched`."""
        return self.shards.is_fetched

    def expect(self, groups: Sequence[Any], then: Sequence[Any]) -> None:
        """See ShardedDataset."""
        self.shards.expect(groups, then)

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return self.shards.nbytes

    def origin(self, index: int) -> Origin:
        """Return where a sample comes from."""
        return self.shards.origin(index)

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return what the shards are; see `fingerprint_of`."""
        return {**fingerprint_of(self.shards, samples), "kind": "ShardImages"}

    def __len__(self) -> int:
        return len(self.shards)

    def __read_ahead__(self, indices: Sequence[int]) -> None:
        """Have the bytes of a batch fetched together; a loader calls it before it takes them."""
        self.shards.fetch(indices)

    def __getitem__(self, index: int, out: Any = None) -> Any:
        """Return (image, label), or the image if there is no label.

        Args:
            index: of the sample.
            out: None, or what the batch has for the sample: the image is written there if it fits.
        """
        rows = None
        if out is not None:
            rows = out if len(self._fields.all) > 1 else (out,)
        shard, position, place, found = self.shards.read_one(index)
        values = self._fields.values(found, shard, position, place, rows)
        return tuple(values) if len(values) > 1 else values[0]

    @property
    def has_pure_samples(self) -> bool:
        """Whether a sample depends only on its index and on `sample_rng`."""
        return self._fields.is_pure
