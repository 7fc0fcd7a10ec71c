"""Addresses of objects: what is one, and which store and key it names.

Imports the errors, and the check of paths that have to be of this machine.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from reader.checks import refuse_url
from reader.errors import ConfigError

__all__ = ["as_path_or_url", "is_url", "local_path", "split_url"]

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "http", "https")
_ALIASES = {"s3a": "s3", "gcs": "gs"}


def is_url(path: Any) -> bool:
    """Whether a path is the address of something that does not lie on this machine."""
    if not isinstance(path, str):
        return False
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.lower() in (*_SCHEMES, *_ALIASES)


def local_path(path: str) -> str:
    """Return a path as it is, and of a "file://" address the path that it names."""
    if not path.lower().startswith("file://"):
        return path
    host, slash, rest = path[len("file://") :].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError(
            f"the address {path!r} names the machine {host!r}: pass 'file:///' and the whole path"
        )
    return f"/{rest}"


def as_path_or_url(name: str, path: Any) -> Any:
    """Return a path of this machine, or the address of what lies in a store.

    What is neither text nor a path is returned as it is.

    Raises:
        ConfigError: it is an address that is not known, or was made a pathlib.Path.
    """
    if is_url(path):
        split_url(path)
        return path
    if isinstance(path, str):
        path = local_path(path)
    refuse_url(name, path)
    return path


def split_url(url: str) -> tuple[str, str]:
    """Return the root of a store, such as "s3://bucket", and the key in it.

    Raises:
        ConfigError: it names no bucket, container or host, or has what signs it.
    """
    scheme, _, rest = url.partition("://")
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    place, _, key = rest.partition("/")
    if not place:
        raise ConfigError(f"the address {url!r} names no bucket or host: pass {scheme}://NAME/PATH")
    if scheme in ("http", "https"):
        parts = urlsplit(url)
        if parts.query or parts.username is not None:
            raise ConfigError(
                f"the address {scheme}://{parts.hostname}{parts.path} has a query or a password,"
                " which is not supported: pass store={'default_headers': {...}}"
            )
    return f"{scheme}://{place}", key
