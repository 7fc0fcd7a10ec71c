"""What lies below an address, kept in a file of this machine, so that it is listed once.

Imports the arrays that are kept. A list holds keys, bytes and versions alone; it is written under
another name first, and one that is damaged counts as none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from reader.errors import ConfigError
from reader.files import replacing
from reader.stores.client import RemoteObject
from reader.stores.kept_arrays import COUNT, kept_in, write_arrays

__all__ = ["keep_listing", "kept_listing", "place_of"]

_KIND = "list of a store"


def place_of(folder: str, url: str, endpoint: str) -> str:
    """Return the path of the file that keeps what lies below an address of an endpoint."""
    content = "\0".join([_KIND, endpoint, url]).encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return os.path.join(folder, f".reader-{digest}.index")  # noqa: PTH118


def kept_listing(place: str, url: str) -> list[RemoteObject] | None:
    """Return what a file says to lie below an address; None: there is no such file."""
    found = kept_in(place, _KIND)
    if found is None or found[0] != [(url, int(found[1].samples()[0]), 0)]:
        return None
    arrays = found[1].arrays(0)
    if arrays is None:
        return None
    names, ends = arrays["names"].tobytes(), arrays["ends"].tolist()
    keys = (names[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False))
    stamps = zip(keys, arrays["nbytes"].tolist(), arrays["versions"].tolist(), strict=True)
    return [RemoteObject(*each) for each in stamps]


def keep_listing(place: str, url: str, objects: Sequence[RemoteObject]) -> None:
    """Write what lies below an address into a file. ConfigError: it cannot be written."""
    names = [each.key.encode() for each in objects]
    arrays = {
        COUNT: np.array([len(names)]),
        "names": np.frombuffer(b"".join(names), np.uint8),
        "ends": np.cumsum(list(map(len, names)), dtype=np.int64),
        "nbytes": np.array([each.nbytes for each in objects], np.int64),
        "versions": np.array([each.version for each in objects], np.int64),
    }
    folder = os.path.dirname(place)  # noqa: PTH120
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        with replacing(place) as file:
            write_arrays(file, _KIND, [(url, len(names), 0)], [arrays])
    except OSError as error:
        raise ConfigError(f"index='{folder}' cannot be written to: {error}") from error
