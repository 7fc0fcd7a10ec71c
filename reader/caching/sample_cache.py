"""Samples that are kept in memory and on disk, found by number.

Imports files of entries and the form of samples. A SampleCache is used by any thread; its files are
shared with other processes.
"""

from __future__ import annotations

import warnings
from typing import Any

from reader.caching.disk_tier import open_disk
from reader.caching.entry_file import CHECKED, DAMAGED, EVICTED, HITS, MISSES, REFUSED, EntryFile
from reader.caching.identity import Identity
from reader.caching.memory_tier import open_memory
from reader.caching.sample_form import UnknownForm, decode, encode
from reader.sharing.memory_file import is_sent

__all__ = ["MISSING", "SampleCache"]

MISSING: Any = object()  # a sample that is not there
_COUNTS = {
    "hits": HITS,
    "misses": MISSES,
    "evictions": EVICTED,
    "refused": REFUSED,
    "damaged": DAMAGED,
}


class SampleCache:
    """Samples by number, in memory, on disk, or in both.

    What was kept first stays: where a limit is reached, samples that come later are not kept. A
    sample goes to memory while there is room, and to the disk; one that is found on the disk goes
    to memory, too.

    Args:
        identity: what the cache is of.
        memory: how many bytes of memory it may take; 0: none.
        disk: the folder of its file; None: none.
        disk_limit: how many bytes the file may take.
        group: what all that use the same memory have in common; None: nobody else uses it.

    Raises:
        ConfigError: the folder cannot hold this cache.
    """

    def __init__(
        self, identity: Identity, memory: int, disk: str | None, disk_limit: int, group: str | None
    ) -> None:
        self._options = (identity, memory, disk, disk_limit, group)
        self._memory = open_memory(identity, memory, group) if memory else None
        self._disk = None if disk is None else open_disk(disk, identity, disk_limit)
        self._begin()
        self._before = self._sums()  # a file may have been used before

    def _begin(self) -> None:
        self._files = [file for file in (self._memory, self._disk) if file is not None]
        self._has_warned = False

    def _sums(self) -> dict[str, int]:
        return {
            name: sum(file.sum(number) for file in self._files) for name, number in _COUNTS.items()
        }

    def __len__(self) -> int:
        return self._files[0].count

    def get(
        self,
        number: int,
        tag: int = 0,
        out: Any = None,
        is_copy: bool = True,
        is_counted: bool = True,
    ) -> Any:
        """Return a sample, or MISSING.

        Args:
            number: of the sample.
            tag: what the sample depends on, such as its file's size and time: one of another tag
                is forgotten.
            out: see `decode`.
            is_copy: whether arrays are the caller's own; else they cannot be written to.
            is_counted: whether it is counted as found, or missed.
        """
        for file in self._files:
            entry = file.read(number, tag)
            if entry is None:
                continue
            try:
                sample = decode(*entry, out=out, is_copy=is_copy)
            except UnknownForm:  # its library is not imported here, and will be by the dataset
                continue
            first = self._files[0]
            if file is not first and not first.sum(REFUSED):
                self._keep(first, number, tag, entry.form, [entry.content])
            if is_counted:
                self.count(is_found=True)
            return sample
        if is_counted:
            self.count(is_found=False)
        return MISSING

    def count(self, is_found: bool) -> None:
        """Count a sample that was found, or not."""
        self._files[0].add(HITS if is_found else MISSES)

    def is_due(self, every: int) -> bool:
        """Whether it is the turn of a sample that was found to be made again; 0: never.

        All processes count together.
        """
        return every > 0 and self._files[0].add(CHECKED) % every == every - 1

    def holds(self, number: int) -> bool:
        """Whether a sample is there, of whatever tag."""
        return any(file.holds(number) for file in self._files)

    def keep(self, number: int, sample: Any, tag: int = 0) -> None:
        """Keep a sample, where there is room.

        Raises:
            DatasetError: it holds something that no cache keeps.
        """
        form, parts = encode(sample)
        for file in self._files:
            self._keep(file, number, tag, form, parts)

    def _keep(self, file: EntryFile, number: int, tag: int, form: bytes, parts: list[Any]) -> None:
        try:
            file.keep(number, tag, form, parts)
        except OSError as error:
            file.add(REFUSED)
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"a cache cannot be written: {error}. Samples are made anew in place of being"
                    " kept; give it another folder, or a disk with room",
                    stacklevel=4,
                )

    def stats(self) -> dict[str, int]:
        """Return what all processes did with it since it was opened: see `DataLoader.stats`."""
        counts = {name: count - self._before[name] for name, count in self._sums().items()}
        return {
            **counts,
            "bytes": 0 if self._memory is None else self._memory.used,
            "disk_bytes": 0 if self._disk is None else self._disk.used,
        }

    def __reduce__(self) -> Any:
        """Go to a process that is started as its files; elsewhere as what they are of."""
        if is_sent():
            return _received, (self._options, self._memory, self._disk, self._before)
        return SampleCache, self._options


def _received(
    options: Any, memory: EntryFile | None, disk: EntryFile | None, before: dict[str, int]
) -> SampleCache:
    cache = SampleCache.__new__(SampleCache)
    cache._options, cache._memory, cache._disk, cache._before = options, memory, disk, before
    cache._begin()
    return cache
