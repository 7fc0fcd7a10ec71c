"""ArrayRecord: records of bytes, which the library array_record reads by their position.

Imports NumPy, and array_record. An open shard belongs to one process; the library's reader may be
used by its threads at once, and compares the sums of what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError, DatasetError
from reader.shards.formats.shard import Options, Shard, errors_of_library
from reader.stores.files import StoredBytes, StoredFile

__all__ = ["ArrayRecordShard", "begins_array_record", "scan_array_record"]

_BEGIN = bytes.fromhex("83af70d10d884a3f") + bytes(8) + b"\x40"  # of each file of Riegeli
_RANDOM = "readahead_buffer_size:0"  # records are asked for by their position
_BUFFER = 1 << 15  # bytes
_RECORD = "bytes"  # the field that a record is


def begins_array_record(head: bytes) -> bool:
    """Whether a file that begins so is of Riegeli, on which ArrayRecord is built."""
    return head.startswith(_BEGIN)


def scan_array_record(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a file: how many records it has.

    Raises:
        ConfigError: it is damaged, or array_record is not installed.
    """
    with errors_of_library(stored.path, ConfigError):
        reader = _opened(stored)
        count = reader.num_records()
        reader.close()  # raises where the file's end is damaged
    return {"count": np.array([count], np.int64)}


class ArrayRecordShard(Shard):
    """An open file of ArrayRecord.

    Args:
        file: it; it must be as it was.
        options: whether fields are wanted: a record is the field "bytes".
    """

    def __init__(self, file: StoredFile, options: Options) -> None:
        super().__init__(file.path)
        self._stored = options.files.stored(file)  # keeps the file open, which must be as it was
        self._has_fields = options.names is not None
        with errors_of_library(self.path, DatasetError):
            self._reader = _opened(self._stored)

    def samples(self, positions: Sequence[int]) -> list[Any]:
        """See Shard: the bytes of a record; of fields that are wanted, a dict."""
        with errors_of_library(self.path, DatasetError):
            found: list[Any] = self._reader.read(list(positions))
        return [{_RECORD: each} for each in found] if self._has_fields else found

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return [_RECORD]

    def origin(self, position: int) -> tuple[int, str]:  # noqa: ARG002
        """See Shard: the library does not say where a record lies."""
        return 0, ""


def _opened(stored: StoredBytes) -> Any:
    """Return the library's reader of a file."""
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as error:
        raise ConfigError(
            f"the shard '{stored.path}' is read by array_record, which cannot be imported: {error}."
            " Run: pip install array_record"
        ) from error
    if not isinstance(stored.source, str):
        raise ConfigError(
            f"the shard '{stored.path}' is read by array_record, which reads files of this machine:"
            " copy it to a disk, or convert the shards (python -m reader shards convert)"
        )
    return ArrayRecordReader(stored.source, options=_RANDOM, file_reader_buffer_size=_BUFFER)
