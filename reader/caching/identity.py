"""The identity of a cache: the dataset, its version, and the part of a sample that is kept.

Imports the errors. An Identity never changes; files of entries begin with it, as JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

from reader.caching.entry_file import HEAD
from reader.errors import ConfigError

__all__ = ["Identity", "identity_in"]

_FORMAT = 2  # of files of entries


@dataclasses.dataclass(frozen=True)
class Identity:
    """The identity of a cache. Caches with equal identities are the same.

    Attributes:
        dataset: the name of its class, or the folder of its files.
        what: the part of a sample that is kept.
        samples: how many it has.
        version: the user's version of the samples, or "".
        digest: digest of the dataset, or "".
    """

    dataset: str
    what: str
    samples: int
    version: str
    digest: str

    def head(self) -> bytes:
        """Return a file's header of HEAD bytes."""
        facts = {"lodreader cache": _FORMAT, **dataclasses.asdict(self)}
        made = json.dumps(facts, indent=1).encode()
        if len(made) >= HEAD:
            raise ConfigError(
                f"the dataset's name and version have {len(made):,} bytes together, and a cache"
                f" takes {HEAD:,}: pass a shorter version"
            )
        return made.ljust(HEAD, b"\n")

    @property
    def key(self) -> str:
        """A key that distinguishes it from all others."""
        return hashlib.blake2b(self.head(), digest_size=16).hexdigest()


def identity_in(head: bytes) -> Identity:
    """Return the identity in a file's header.

    Raises:
        ValueError: it is no file of entries.
        LookupError: it has another format, which the exception holds.
    """
    facts = json.loads(head)
    if not isinstance(facts, dict) or "lodreader cache" not in facts:
        raise ValueError("it is something else")
    found = facts.pop("lodreader cache")
    if found != _FORMAT:
        raise LookupError(found, _FORMAT)
    try:
        return Identity(**facts)
    except TypeError as error:
        raise ValueError(str(error)) from error
