"""`cache`: a dataset whose samples are made once on this machine.

Imports the cache and the dataset around it. Keeps no state.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from typing import Any

from reader.caching.cached_dataset import CachedDataset
from reader.caching.digest import digest_of, program_digest
from reader.caching.identity import Identity
from reader.caching.launch import launch
from reader.caching.sample_cache import SampleCache
from reader.checks import as_byte_size, as_folder
from reader.data.datasets import map_style
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["cache", "cache_options"]

_DISK_LIMIT = "200GB"
_LEAST_CHECK = 1e-9


def cache(
    dataset: Any,
    memory: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    disk_limit: int | str = _DISK_LIMIT,
    what: str | None = None,
    *,
    version: str | None = None,
    check: float = 0,
) -> Any:
    """Return a dataset whose samples are made once, and kept in memory, on disk, or in both.

    Put it around the part that is always the same, and do random changes after it::

        dataset = reader.cache(Decoded(paths), memory="8GB").map(augment)

    Memory is shared by workers of any start method, threads, all loaders of the dataset, and the
    ranks that one launcher has started on this host; with a `version`, by all runs of the program
    with the same arguments. It ends with the last of them. A folder on disk serves later runs too,
    even after a kill: an entry that is incomplete or whose checksum is wrong is made again.

    The first samples stay. When a limit is reached, or memory or the disk run short, later samples
    are made each time, as without a cache. So an epoch in random order finds as many samples as
    fit. Space of samples that were dropped because their file changed is used again. With both,
    samples lie in memory while there is space, and all of them on disk.

    A sample may be of arrays, numbers, strings, bytes and None, tensors of PyTorch and Paddle,
    pixels of images of Pillow, and tuples, lists and dicts of those. No pickles are kept. A sample
    from the cache is the caller's own and may be changed.

    Args:
        dataset: map-style, with samples that are always the same; `reader.sample_rng` raises an
            error in it. For a `reader.images.ImageFolder` the cache keeps pictures before the
            transforms, which may be random. For a subclass whose own `__getitem__` does not call
            ImageFolder's, it keeps the samples.
        memory: how many bytes it may take, such as "8GB" or a number; None: no memory.
        disk: a folder for this dataset alone; None: no disk.
        disk_limit: how many bytes it may take there.
        what: to keep: "samples"; for an ImageFolder "pixels" (the default) or "files", their
            content.
        version: names what samples depend on, such as "ImageNet 2012, 256 pixels". A new version
            starts a cache on disk again, and so do other attributes of the dataset or its class, or
            other code of the class. Changes of files that it reads and of functions that it calls
            are not noticed: pass another version then.
        check: the share of cached samples to make again and compare, such as 0.01.

    Returns:
        A `reader.Dataset` with the samples of `dataset`. In a loader, `stats()["cache"]` counts
        samples that were found.

    Raises:
        ConfigError, ConfigTypeError: neither memory nor disk is given, an argument is invalid, the
            dataset is cached already, the folder cannot be written, or it holds a cache of another
            dataset or another format.

    A fetch raises DatasetError for a sample that cannot be kept, and for one that `check` finds
    changed.

    >>> class Squares:
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         print("made", index)
    ...         return index * index
    >>> squares = cache(Squares(), memory="1MB")
    >>> squares[2], squares[2]
    made 2
    (4, 4)
    """
    options = cache_options(memory, disk, disk_limit, version, check)
    with_cache = getattr(type(dataset), "__with_cache__", None)
    if with_cache is not None and what != "samples":
        found = with_cache(dataset, what, **options)
        if found is not None:
            return found
    if isinstance(dataset, CachedDataset):
        raise ConfigError(
            f"this {type(dataset.dataset).__name__} is cached already: pass memory= and disk= to"
            " one reader.cache, which keeps samples in both"
        )
    if what not in (None, "samples"):
        raise ConfigError(f'what must be "samples" for this dataset, got {got(what)}')
    remedy = "Samples of a stream have no numbers that they could be found by"
    (dataset,) = map_style("cache", [dataset], remedy)
    kind = type(dataset)
    digest = digest_of(dataset)
    if digest is None and disk is not None and version is None:
        raise ConfigError(
            f"{kind.__name__} cannot be pickled, or an attribute of its class cannot, so that"
            ' nothing tells it from another one: pass version="...", which says what its samples'
            " depend on"
        )
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    identity = Identity(
        f"{module}.{kind.__qualname__}", "samples", len(dataset), options["version"], digest or ""
    )
    group = None if digest is None else _group_of(dataset, identity)
    kept = SampleCache(identity, options["memory"], options["disk"], options["disk_limit"], group)
    return CachedDataset(dataset, kept, check)


_cached: dict[str, list[weakref.ref[Any]]] = {}  # by key: the cached datasets


def _group_of(dataset: Any, identity: Identity) -> str:
    """Return the group of processes that share one memory.

    A digest misses some things that samples depend on, such as modules and the environment. So only
    the ranks of one launch share memory: they run the same program and cache the same datasets in
    the same order. Two datasets of one process share none. With `version=` all runs of the program
    share it.
    """
    key = f"{identity.key}-{program_digest()}"
    if identity.version:
        return key
    key += f"-{hashlib.blake2b(launch().encode(), digest_size=8).hexdigest()}"
    before = _cached.setdefault(key, [])
    for number, each in enumerate(before):
        if each() is dataset:
            return f"{key}-{number}"
    try:
        before.append(weakref.ref(dataset))
    except TypeError:  # a list, for instance
        before.append(lambda: None)  # type: ignore[arg-type]
    return f"{key}-{len(before) - 1}"


def cache_options(
    memory: Any, disk: Any, disk_limit: Any, version: Any = None, check: Any = 0
) -> dict[str, Any]:
    """Return the checked options of a cache, by name."""
    if memory is None and disk is None:
        raise ConfigError('a cache takes memory="8GB", disk="folder", or both: got neither')
    if disk is not None:
        disk = as_folder("disk", disk)
    if version is not None and not isinstance(version, str):
        raise ConfigTypeError(f"version must be a string or None, got {got(version)}")
    is_share = isinstance(check, (int, float)) and not isinstance(check, bool)
    if not is_share or not (check == 0 or _LEAST_CHECK <= check <= 1):
        raise ConfigError(
            f"check must be a share from 0 to 1, got {got(check)}: 0.01 compares one in a hundred"
        )
    return {
        "memory": 0 if memory is None else as_byte_size("memory", memory),
        "disk": disk,
        "disk_limit": as_byte_size("disk_limit", disk_limit),
        "version": version or "",
        "check": float(check),
    }
