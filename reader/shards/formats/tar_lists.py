"""Lists that other programs keep beside tar files: of the files with their counts, or of members.

Imports the standard library. Sources: webdataset's documentation of wids, Energon's of its folder
.nv-meta, and DALI's of its wds2idx. A count that is not the file's tells that list and file are of
different versions.
"""

from __future__ import annotations

import operator
import os
from typing import Any

from reader.checks import refuse_url
from reader.errors import ConfigError
from reader.files import open_regular
from reader.shards.formats.shard import ListedShard, Options
from reader.stores.files import Files, StoredBytes, inner_path

__all__ = ["describes_wids", "listed_members", "read_energon", "read_wids"]

_VERSION = "v1.2"  # of DALI's lists; older ones have no names
_PARTS = 4  # extension, place, bytes and name of a member
_ENERGON, _COUNTS, _SPLITS = ".nv-meta", ".info.json", "split.yaml"


def describes_wids(index: Any) -> bool:
    """Whether what a JSON file holds is a list of wids."""
    return isinstance(index, dict) and "shardlist" in index and "wids_version" in index


def read_wids(folder: str, index: dict[str, Any], _: Options) -> list[ListedShard]:
    """Return the tar files that a list of wids names.

    Raises:
        ConfigError: one lies elsewhere, or the list is damaged.
    """
    found = []
    try:
        for each in index["shardlist"]:
            refuse_url("a list of wids", each["url"])
            path = inner_path(folder, str(each["url"]))
            nbytes = each.get("filesize")
            nbytes = None if nbytes is None else operator.index(nbytes)
            found.append(ListedShard(path, operator.index(each["nsamples"]), nbytes=nbytes))
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the list of wids in '{folder}' is damaged: a shard lacks {error}, or has it in"
            " another form. Make the list anew"
        ) from error
    return found


def read_energon(folder: str, is_whole: bool, files: Files) -> dict[str, int]:
    """Return how many samples tar files of a folder have, by path, where Energon has said it.

    Args:
        folder: of the files.
        is_whole: whether all files of it are asked for.
        files: how it is read.

    Raises:
        ConfigError: all are, and Energon has split them; or what it says cannot be read.
    """
    place = os.path.join(folder, _ENERGON)  # noqa: PTH118
    if is_whole and files.has(os.path.join(place, _SPLITS)):  # noqa: PTH118
        raise ConfigError(
            f"the folder '{folder}' has shards of several splits, and {_ENERGON}/{_SPLITS} says"
            f" which are of which: pass those of one, such as '{folder}/train-{{000..099}}.tar'"
        )
    path = os.path.join(place, _COUNTS)  # noqa: PTH118
    try:
        said = files.json(path)["shard_counts"]
        return {_path_of(path, folder, name): operator.index(n) for name, n in said.items()}
    except FileNotFoundError:
        return {}
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"'{path}' is damaged: {error!r}. Run `energon prepare` again, or remove it"
        ) from error


def _path_of(index: str, folder: str, name: str) -> str:
    """Return the path of a file that an index names. ConfigError: it is outside of the folder."""
    try:
        return inner_path(folder, name)
    except ConfigError as error:
        raise ConfigError(f"'{index}': {error}") from error


def listed_members(stored: StoredBytes) -> list[tuple[str, int, int]]:
    """Return name, place and bytes of each member, in the order of the places, as DALI lists them.

    None are returned where there is no list, where the file was written after it, or where it
    cannot be read. What it says is to be compared with the file.
    """
    path = f"{stored.path.removesuffix('.tar')}.idx"
    if stored.fd < 0 or path == f"{stored.path}.idx":
        return []
    try:
        with open(path, "rb", opener=open_regular) as file:
            found = os.fstat(file.fileno())
            if found.st_mtime_ns < stored.mtime_ns or found.st_size > stored.nbytes:
                return []
            head, *lines = file.read().decode("utf-8", "surrogateescape").split("\n")
        words = [line.split(" ") for line in lines if line]
        if head.split() != [_VERSION, str(len(words))] or any(len(each) % _PARTS for each in words):
            return []  # a name with a blank is two words
        members = [
            (name, int(place), int(nbytes))
            for each in words
            for _, place, nbytes, name in zip(*[iter(each)] * _PARTS, strict=True)
        ]
    except (OSError, ValueError):
        return []
    return sorted(members, key=operator.itemgetter(1))
