"""Read every byte of shards, and say what is damaged.

Imports the formats, the index, and the loader, which reads shards in workers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reader.data.dataset import Dataset
from reader.errors import ConfigError, DatasetError
from reader.loader import DataLoader
from reader.shards.fields import Fields
from reader.shards.formats import FORMATS
from reader.shards.formats.compression import stored_bytes
from reader.shards.formats.shard import ListedShard, Options, Shard
from reader.shards.index import counts_of, files_of, listed_shards
from reader.shards.write_shards import MANIFEST
from reader.stores.files import Files, StoredFile
from reader.stores.kept_arrays import COUNT
from reader.stores.paths import parts_of
from reader.stores.remote_files import files_for

__all__ = ["CheckedShard", "check_shards"]

_AT_ONCE = 64  # samples
_MOST_TOLD = 10  # of a shard
_BLOCK = 1 << 20


class CheckedShard(NamedTuple):
    """What was found in a shard.

    Attributes:
        path: of its file.
        samples: how many it has; 0 where it cannot be opened.
        nbytes: of the file.
        faults: how many samples are damaged; of a file that is damaged as a whole 1.
        damage: what is wrong, for the first ten of these.
        uncompared: the kinds of sums that its set has, and that cannot be computed here.
    """

    path: str
    samples: int
    nbytes: int
    faults: int
    damage: list[str]
    uncompared: Sequence[str] = ()


def check_shards(
    path: Any,
    format: str | None = None,  # noqa: A002  # as Shards names it
    fields: Mapping[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
    num_workers: int = 0,
) -> Iterator[CheckedShard]:
    """Yield what is found in each shard; every sample is read and decoded, every sum compared.

    Sums are those that a format has, and those of a "manifest.json" that `write_shards` wrote.

    Args:
        path: as `Shards` takes it.
        format: likewise.
        fields: what fields are decoded to, beside what the format does: see `Shards`.
        allow_pickle: whether columns of pickles are read, which can run any program.
        num_workers: how many processes read.

    Raises:
        ConfigError, ConfigTypeError: there are no shards, or an argument is invalid.
    """
    decoded = None if fields is None else Fields(fields)
    files = files_for(parts_of(path), None, None)
    options = Options(check=True, allow_pickle=allow_pickle, files=files)
    form, shards = listed_shards(path, format, options)
    folders = {os.path.dirname(each.path) for each in shards}  # noqa: PTH120
    sums = {
        file: found
        for folder in folders
        for file, found in _manifest_sums(folder, options.files).items()
    }
    missing = sorted(sums.keys() - {each.path for each in shards})
    for gone in missing:
        if not options.files.has(gone):  # else it was not asked for
            yield CheckedShard(gone, 0, 0, 1, [f"'{gone}' is missing, and {MANIFEST} names it"])
    checks = _Checks(form.name, shards, options, decoded, sums)
    with DataLoader(checks, batch_size=None, num_workers=num_workers) as loader:
        yield from loader


def _manifest_sums(folder: str, files: Files) -> dict[str, str]:
    """Return the SHA-256 of each file that a manifest of `write_shards` names, by path."""
    try:
        said = files.json(os.path.join(folder, MANIFEST))  # noqa: PTH118
        return {
            os.path.join(folder, str(each["name"])): str(each["sha256"])  # noqa: PTH118
            for each in said["shards"]
        }
    except (OSError, ConfigError, KeyError, TypeError):  # it is another program's
        return {}


class _Checks(Dataset[CheckedShard]):
    """The shards, each checked when it is fetched."""

    def __init__(
        self,
        kind: str,
        shards: list[ListedShard],
        options: Options,
        fields: Fields | None,
        sums: Mapping[str, str],
    ) -> None:
        self._kind, self._shards, self._options = kind, shards, options
        self._fields, self._sums = fields, sums

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, index: int) -> CheckedShard:
        listed = self._shards[index]
        nbytes = 0
        try:
            (file,) = files_of([listed], self._options.files)
            nbytes = file.nbytes
            self._compare_sum(file)
            count, shard, chosen = self._opened(listed)
            uncompared = shard.check_sums()
        except (ConfigError, DatasetError) as error:
            return CheckedShard(listed.path, 0, nbytes, 1, [str(error)])
        faults = 0
        damage: list[str] = []
        for begin in range(0, count, _AT_ONCE):
            positions = range(begin, min(begin + _AT_ONCE, count))
            for fault in self._errors(shard, chosen, positions):
                faults += 1
                if len(damage) < _MOST_TOLD:
                    damage.append(str(fault))
        return CheckedShard(listed.path, count, nbytes, faults, damage, uncompared)

    def _compare_sum(self, file: StoredFile) -> None:
        wanted = self._sums.get(file.path)
        if wanted is None:
            return
        found, stored = hashlib.sha256(), self._options.files.stored(file)
        for place in range(0, stored.nbytes, _BLOCK):
            found.update(stored.read(place, min(_BLOCK, stored.nbytes - place)))
        if found.hexdigest() != wanted:
            raise DatasetError(
                f"the shard '{file.path}' is damaged: its SHA-256 is {found.hexdigest()}, and"
                f" {MANIFEST} says {wanted}. Fetch it again, or write it anew"
            )

    def _opened(self, listed: ListedShard) -> tuple[int, Shard, Shard | None]:
        """Return how many samples a shard has, and the shard; also as it gives the fields alone."""
        form, (file,) = FORMATS[self._kind], files_of([listed], self._options.files)
        stored = stored_bytes(file, self._options.files)
        arrays = listed.arrays if form.scan is None else form.scan(stored, True)
        count = counts_of([listed])[0] if form.scan is None else int(arrays[COUNT][0])
        shard = form.open(file, listed.note, arrays, self._options)
        if self._fields is None:
            return count, shard, None
        wanted = self._fields.wanted(self._options)
        return count, shard, form.open(file, listed.note, arrays, wanted)

    def _errors(self, shard: Shard, chosen: Shard | None, positions: range) -> list[DatasetError]:
        """Return the errors of those samples that are damaged."""
        try:
            shard.samples(positions)
            if self._fields is not None and chosen is not None:
                found = chosen.samples(positions)
                for position, sample in zip(positions, found, strict=True):
                    self._fields.values(sample, chosen, position, position)
        except DatasetError as error:
            if len(positions) == 1:
                return [error]
            alone = [self._errors(shard, chosen, range(each, each + 1)) for each in positions]
            return [each for errors in alone for each in errors]
        return []
