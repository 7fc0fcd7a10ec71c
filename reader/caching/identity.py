"""What a cache is of: the dataset, its version, and the part of a sample that is kept.

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
    """What a cache is of. Caches of equal ones are one and the same.

    Attributes:
        dataset: the name of its class, or where its files are.
        what: the part of a sample that is kept.
        samples: how many it has.
        version: what the user says that samples depend on, or "".
        digest: of what samples depend on, or "".
    """

    dataset: str
    what: str
    samples: int
    version: str
    digest: str

    def head(self) -> bytes:
        """Return what a file begins with, HEAD bytes of it."""
        told = {"lodreader cache": _FORMAT, **dataclasses.asdict(self)}
        made = json.dumps(told, indent=1).encode()
        if len(made) >= HEAD:
            raise ConfigError(
                f"the dataset's name and version have {len(made):,} bytes together, and a cache"
                f" takes {HEAD:,}: pass a shorter version"
            )
        return made.ljust(HEAD, b"\n")

    @property
    def key(self) -> str:
        """What distinguishes it from all others."""
        return hashlib.blake2b(self.head(), digest_size=16).hexdigest()


def identity_in(head: bytes) -> Identity:
    """Return what a file is of.

    Raises:
        ValueError: it is no file of entries.
        LookupError: it is one of another format, which the exception holds.
    """
    told = json.loads(head)
    if not isinstance(told, dict) or "lodreader cache" not in told:
        raise ValueError("it is something else")
    found = told.pop("lodreader cache")
    if found != _FORMAT:
        raise LookupError(found, _FORMAT)
    try:
        return Identity(**told)
    except TypeError as error:
        raise ValueError(str(error)) from error
