"""One bucket, container or host, by one kept client, and its errors in our words.

Imports obstore, in this process alone: after a fork its clients hang. Sources: obstore's
documentation; the error codes of S3, and HTTP's (RFC 9110).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from reader.stores.fetcher.aws_profile import with_profile
from reader.stores.fetcher.failure import Failure

__all__ = ["Meta", "ObjectStore", "number_of"]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
# why there is no connection, in what obstore says for programmers
_REASONS = (
    re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w{1,40})"),
    re.compile(r'"(failed to lookup address[^"]{0,80})"'),
    re.compile(r'message: "([^"]{1,80})"'),
)
_CHUNK = 1 << 18  # bytes: what is lost at most of a transfer that breaks
_CONNECT, _WHOLE = "10 seconds", "3600 seconds"  # stalls are noticed by who reads
_LISTED = 1000  # objects of an answer
_MOST_SINGLE = 64 << 20  # bytes that one request sends
_PART, _MOST_PARTS, _PARTS_AT_ONCE = 8 << 20, 9000, 4  # of more; S3 takes 10,000 parts
_PART_RETRIES = 5  # of each; then the whole object is sent again
_CLIENT_OPTIONS = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers"),
        *("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host"),
        *("proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate"),
        *("user_agent",),
    )
)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_FOR_S3 = "AWS_ENDPOINT_URL_S3"  # which obstore takes before an endpoint that it is given
_LATER = {408, 425, 429, 500, 502, 503, 504}  # statuses of what may work when it is tried again
_OF_ROLES = ("169.254.169.254", "metadata.google.internal")  # which give machines credentials
_OF_REGION = "incorrectly configured region"  # of a redirect that says no address
_OF_OPTIONS = ("UnknownConfigurationKeyError", "InvalidPathError", "ValueError")
_KINDS = {  # of failures, by S3's code, status, or type of obstore's error
    **dict.fromkeys(
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint", 301),
        "region",
    ),
    **dict.fromkeys(("ExpiredToken", "TokenRefreshRequired", "RequestExpired"), "expired"),
    "ConditionalRequestConflict": "later",
    **dict.fromkeys((401, 403, "PermissionDeniedError", "UnauthenticatedError"), "refused"),
    **dict.fromkeys((412, "AlreadyExistsError", "PreconditionError"), "changed"),
    416: "range",
}


class Meta(NamedTuple):
    """What a store says of an object: bytes, and what names its version."""

    nbytes: int
    version: str


def number_of(version: str) -> int:
    """Return a number for a version, above 0 and below 2**62.

    A tag has quotes in a header, and with some stores none in a list.
    """
    digest = hashlib.blake2b(version.strip('"').encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 2) or 1


class ObjectStore:
    """A bucket, container or host.

    Args:
        root: such as "s3://bucket".
        options: of its client, by the names of obstore.

    Raises:
        Failure: obstore is not installed, or an option is invalid.
    """

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        try:
            import obstore
            import obstore.store
        except ImportError as error:
            raise Failure(
                "option",
                f"it is read by obstore, which cannot be imported: {error}. Run: pip install"
                ' "lodreader[remote]"',
            ) from None
        self._obstore = obstore
        if root.startswith("s3://"):
            options = with_profile(options, os.environ)
        elif "profile" in options:
            raise Failure("option", "profile= is of AWS, and so of addresses s3://")
        client = {name: options[name] for name in options.keys() & _CLIENT_OPTIONS}
        config = {name: options[name] for name in options.keys() - _CLIENT_OPTIONS}
        said = (config.get(name) for name in ("endpoint", "base_url"))
        places = (root, *said, *(os.environ.get(name) for name in _ENDPOINTS))
        plain = any(str(each).startswith("http://") for each in places)
        if plain:
            client.setdefault("allow_http", True)
        client = {"connect_timeout": _CONNECT, **client}
        self._from_url: Any = obstore.store.from_url
        self._arguments = root, client, config
        self._store = self._opened(_WHOLE, {"max_retries": 0})
        self._writing: Any = None

    def _opened(self, timeout: str, retries: dict[str, Any]) -> Any:
        root, client, config = self._arguments
        try:
            with _without(_FOR_S3 if "endpoint" in config else ""):
                return self._from_url(
                    root,
                    client_options={**client, "timeout": timeout},
                    retry_config=retries,
                    **config,
                )
        except Exception as error:  # of many types
            raise Failure("option", _plain(error)) from None

    async def read(self, key: str, begin: int, end: int, version: str) -> tuple[Meta, Any]:
        """Begin to read bytes of an object; returns what it is, and an iterator of chunks.

        Bytes behind the object's end are left out. `version`: that it must have; "": any.
        """
        options: Any = {"range": (begin, end)}
        if version.startswith('"'):  # a strong ETag
            options["if_match"] = version
        try:
            found = await self._obstore.get_async(self._store, key, options=options)
        except Exception as error:  # of many types
            raise failure_of(error) from None
        meta = _meta(found.meta)
        if version and meta.version != version:
            raise Failure("changed", "it has another version")
        if tuple(found.range) != (begin, min(end, meta.nbytes)):
            raise Failure(
                "later", f"it gave bytes {found.range}, and {(begin, end)} were asked for"
            )
        return meta, _Chunks(found)

    async def meta(self, key: str) -> Meta:
        """Return what the store says of an object."""
        try:
            return _meta(await self._obstore.head_async(self._store, key))
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def content(self, key: str) -> tuple[bytes, dict[str, str]]:
        """Return a small object, and what `replaced` takes for its version."""
        try:
            found = await self._obstore.get_async(self._store, key)
            return bytes(await found.bytes_async()), _condition(found.meta)
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def put(
        self, key: str, content: memoryview, part_s: float, moved: Callable[[int], None]
    ) -> None:
        """Write an object, which is there when all of it is; a large one in several parts.

        Args:
            key: of it.
            content: of it.
            part_s: how long the request of a part may take.
            moved: is called with the place in a large one that has been reached.
        """
        if self._writing is None:
            backoff = {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=8),
                "base": 2,
            }
            retries = {"max_retries": _PART_RETRIES, "backoff": backoff}
            self._writing = self._opened(f"{max(1, int(part_s))} seconds", retries)
        nbytes = len(content)
        try:
            if nbytes <= _MOST_SINGLE:
                await self._obstore.put_async(self._store, key, content, use_multipart=False)
                return
            size = max(_PART, -(-nbytes // _MOST_PARTS))

            async def parts() -> AsyncIterator[memoryview]:
                for place in range(0, nbytes, size):
                    moved(place)
                    yield content[place : place + size]

            await self._obstore.put_async(
                self._writing,
                key,
                parts(),
                use_multipart=True,
                chunk_size=size,
                max_concurrency=_PARTS_AT_ONCE,
            )
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def replaced(
        self, key: str, content: bytes, condition: dict[str, str] | None
    ) -> dict[str, str]:
        """Write a small object if it has a version, or if it is not there (None).

        Returns what this function takes for the new version. Failure "changed": it has another.
        """
        mode: Any = "create" if condition is None else condition
        try:
            return _condition(await self._obstore.put_async(self._store, key, content, mode=mode))
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def overwritten(self, key: str, content: bytes) -> dict[str, str]:
        """Write a small object, whatever is there. See `replaced`."""
        try:
            return _condition(await self._obstore.put_async(self._store, key, content))
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def delete(self, key: str) -> None:
        """Delete an object."""
        try:
            await self._obstore.delete_async(self._store, key)
        except Exception as error:  # of many types
            raise failure_of(error) from None

    async def listed(self, prefix: str, most: int = 0) -> list[tuple[str, int, int]]:
        """Return key, bytes and the version's number of all objects below a prefix.

        Args:
            prefix: of the keys: a folder, or "" for all.
            most: after so many none is asked for, so that some more may come; 0: all.
        """
        found: list[tuple[str, int, int]] = []
        try:
            async for part in self._obstore.list(self._store, prefix, chunk_size=_LISTED):
                found += [
                    (each["path"], each["size"], number_of(_meta(each).version)) for each in part
                ]
                if 0 < most <= len(found):
                    break
        except Exception as error:  # of many types
            raise failure_of(error) from None
        return found


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Take a variable out of the environment for a while; "": none."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[name] = value


def _meta(said: Any) -> Meta:
    when = said["last_modified"]
    return Meta(said["size"], said["e_tag"] or (when.isoformat() if when else "") or "none")


def _condition(said: Any) -> dict[str, str]:
    """Return what names a version where a write has a condition."""
    return {name: said[name] for name in ("e_tag", "version") if said.get(name)}


class _Chunks:
    """The bytes of a response, as they come. A generator would need a task of its own to end."""

    def __init__(self, found: Any) -> None:
        self._stream = found.stream(min_chunk_size=_CHUNK).__aiter__()

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._stream.__anext__()  # type: ignore[no-any-return]
        except StopAsyncIteration:
            raise
        except Exception as error:  # of many types
            raise failure_of(error) from None


def failure_of(error: Exception) -> Failure:
    """Return what an error of obstore means."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    number, name = int(status[1]) if status else 0, code[1] if code else ""
    told, kind = _plain(error), type(error).__name__
    if number not in _LATER and any(place in text for place in _OF_ROLES):
        return Failure("no credentials", f"no role gives them: {told}")
    known = _KINDS.get(name) or _KINDS.get(number) or _KINDS.get(kind)
    is_missing = number == 404 or isinstance(error, FileNotFoundError)
    kinds = (
        ("certificate", "InvalidCertificate" in text),
        ("region", _OF_REGION in text),
        (known or "", known is not None),
        ("no bucket", is_missing and name in ("NoSuchBucket", "ContainerNotFound")),
        ("missing", is_missing),
        ("lasting", bool(number) and number not in _LATER),
        ("option", kind in _OF_OPTIONS or "builder error" in told),
    )
    return Failure(next((each for each, is_so in kinds if is_so), "later"), told)


def _plain(error: Exception) -> str:
    """Return an error in one line, without addresses, whose ends can be signatures."""
    text = str(error)
    status, code, message = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if status:
        return " ".join(found[1] for found in (status, code, message) if found)
    text, _, source = text.partition("Debug source")
    reasons = [f"({found[1]})" for each in _REASONS for found in (each.search(source),) if found]
    plain = re.sub(r"https?://\S+", "the store", text).strip().replace("\n", " ")[:300]
    return " ".join([plain, *reasons[:1]])
