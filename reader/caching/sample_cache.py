"""Samples that are kept in memory and on disk, found by number.

Imports files of entries and the form of samples. A SampleCache is used by any thread; its files are
shared with other processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from reader.caching.disk_tier import open_disk
from reader.caching.entry_file import (
    CHECKED,
    DAMAGED,
    EVICTED,
    HITS,
    MISSES,
    REFUSED,
    EntryFile,
)
from reader.caching.identity import Identity
from reader.caching.memory_tier import open_memory
from reader.caching.sample_form import UnknownForm, decode, encode
from reader.sharing.memory_file import is_sent

__all__ = ["MISSING", "Lease", "SampleCache"]

MISSING: Any = object()  # a sample that is not there
_COUNTS = {
    "hits": HITS,
    "misses": MISSES,
    "evictions": EVICTED,
    "refused": REFUSED,
    "damaged": DAMAGED,
}


class Lease(NamedTuple):
    """Tells whether arrays on a file's memory belonged to their entry all the time."""

    file: EntryFile
    number: int
    word: int

    @property
    def is_current(self) -> bool:
        """Whether all reads from them until now were valid."""
        return self.file.is_same(self.number, self.word)


class SampleCache:
    """Samples by number, in memory, on disk, or in both.

    The first samples stay: once a limit is reached, later samples are not kept. A sample goes to
    memory while there is space, and to the disk; one that is found on the disk goes to memory too.

    Args:
        identity: of the cache.
        memory: how many bytes of memory it may take; 0: none.
        disk: the folder of its file; None: none.
        disk_limit: how many bytes the file may take.
        group: names the processes that use the same memory; None: nobody else uses it.

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
        self._before = self._sums()  # the file may be older than this cache

    def _begin(self) -> None:
        self._files = [file for file in (self._memory, self._disk) if file is not None]
        self._has_warned = False

    def _sums(self) -> dict[str, int]:
        return {
            name: sum(file.sum(number) for file in self._files) for name, number in _COUNTS.items()
        }

    def __len__(self) -> int:
        return self._files[0].count

    @property
    def what(self) -> str:
        """The part that is kept, such as "samples"."""
        return self._options[0].what

    def get(self, number: int, tag: int = 0, out: Any = None, is_counted: bool = True) -> Any:
        """Return a sample, the caller's own, or MISSING.

        Args:
            number: of the sample.
            tag: what the sample depends on, such as its file's size and time: an entry with another
                tag is dropped.
            out: see `decode`.
            is_counted: whether to count it as found or missed.
        """
        sample, file, word = self._found(number, tag, out, True, ())
        # if the entry was dropped meanwhile, the copy may have another entry's bytes
        if file is not None and not file.is_same(number, word):
            sample = MISSING
        if is_counted:
            self.count(sample is not MISSING)
        return sample

    def look(
        self, number: int, tag: int = 0, same: Iterable[int] = (), is_counted: bool = True
    ) -> tuple[Any, Lease | None]:
        """Return a sample whose arrays are read-only views of the cache.

        Args:
            number: see `get`.
            tag: see `get`.
            same: the numbers of all entries of the same file: if it has changed, they are dropped
                together and counted once.
            is_counted: see `get`.

        Returns:
            The sample, or MISSING, and its lease: ask it after using the arrays whether they were
            valid.
        """
        sample, file, word = self._found(number, tag, None, False, same)
        if is_counted:
            self.count(sample is not MISSING)
        return sample, None if file is None else Lease(file, number, word)

    def _found(
        self, number: int, tag: int, out: Any, is_copy: bool, same: Iterable[int]
    ) -> tuple[Any, EntryFile | None, int]:
        """Return a sample, the file that has it, and the word of its entry there."""
        lost = 0
        for file in self._files:
            entry = file.read(number, tag)
            if isinstance(entry, int):
                lost = lost or entry
                continue
            try:
                sample = decode(entry.form, entry.content, out=out, is_copy=is_copy)
            except UnknownForm:  # its library is not imported yet; the dataset will import it
                continue
            if lost:
                self._files[0].add(lost)
            first = self._files[0]
            if file is not first and first.has_space(entry):
                self._keep(first, number, tag, entry.form, [entry.content])
            return sample, file, entry.word
        if lost:
            self._files[0].add(lost)
            if lost == EVICTED:
                for other in same:
                    for file in self._files:
                        file.read(other, tag)
        return MISSING, None, 0

    def count(self, is_found: bool) -> None:
        """Count a sample as found or missed."""
        self._files[0].add(HITS if is_found else MISSES)

    def is_due(self, every: int) -> bool:
        """Whether to make this cached sample again, as every `every`-th; 0: never.

        All processes count together.
        """
        return every > 0 and self._files[0].add(CHECKED) % every == every - 1

    def holds(self, number: int) -> bool:
        """Whether a sample is there, of whatever tag."""
        return any(file.holds(number) for file in self._files)

    def keep(self, number: int, sample: Any, tag: int = 0) -> None:
        """Keep a sample, if there is space.

        Raises:
            DatasetError: it holds an object that no cache keeps.
        """
        form, parts = encode(sample)
        kept = [self._keep(file, number, tag, form, parts) for file in self._files]
        if not any(kept):
            self._files[0].add(REFUSED)

    def _keep(self, file: EntryFile, number: int, tag: int, form: bytes, parts: list[Any]) -> bool:
        """Keep a sample in one file. False: that has no space."""
        try:
            return file.keep(number, tag, form, parts)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"a cache cannot be written: {error}. Samples are made anew in place of being"
                    " kept; give it another folder, or a disk with room",
                    stacklevel=4,
                )
        return False

    def stats(self) -> dict[str, int]:
        """Return the counts of all processes since it was opened: see `DataLoader.stats`."""
        counts = {name: count - self._before[name] for name, count in self._sums().items()}
        return {
            **counts,
            "bytes": 0 if self._memory is None else self._memory.used,
            "disk_bytes": 0 if self._disk is None else self._disk.used,
        }

    def __reduce__(self) -> Any:
        """Pickle as files for a process that is being started; elsewhere as the identity."""
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
