"""The check of a store of objects: whether it is reached from here, and how fast it is.

Imports the stores and findings. What asks is the process that fetches, as in a training. Sources:
the documentation of object_store on the environment of AWS, Google and Azure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from reader.errors import ConfigError, DatasetError
from reader.observe.finding import Finding
from reader.observe.machine import Machine, in_bytes
from reader.stores.client import Store
from reader.stores.shard_cache import CacheUse, ShardCache
from reader.stores.urls import is_url, split_url

__all__ = ["credentials_of", "store"]

_MEMORY = "64MiB"
_FAR_S = 0.1  # of a request
_SLOW = 50e6  # bytes a second: 500 pictures of 100 KB

_KEYS = {  # by scheme: a variable of the environment, and what it gives
    "s3": (
        ("AWS_SKIP_SIGNATURE", "none: AWS_SKIP_SIGNATURE"),
        ("AWS_ACCESS_KEY_ID", "keys of the environment: AWS_ACCESS_KEY_ID"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "a role by AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "the role of the container"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "the role of the container"),
    ),
    "gs": (
        ("GOOGLE_SKIP_SIGNATURE", "none: GOOGLE_SKIP_SIGNATURE"),
        ("GOOGLE_SERVICE_ACCOUNT", "a service account by GOOGLE_SERVICE_ACCOUNT"),
        ("GOOGLE_SERVICE_ACCOUNT_PATH", "a service account by GOOGLE_SERVICE_ACCOUNT_PATH"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "a service account by GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "the file of GOOGLE_APPLICATION_CREDENTIALS"),
    ),
    "az": (
        ("AZURE_SKIP_SIGNATURE", "none: AZURE_SKIP_SIGNATURE"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "the account's key: AZURE_STORAGE_ACCOUNT_KEY"),
        ("AZURE_STORAGE_SAS_KEY", "a shared access signature: AZURE_STORAGE_SAS_KEY"),
        ("AZURE_STORAGE_CLIENT_SECRET", "an application by AZURE_STORAGE_CLIENT_SECRET"),
        ("AZURE_FEDERATED_TOKEN_FILE", "a role by AZURE_FEDERATED_TOKEN_FILE"),
    ),
}
_NAMED = {
    "missing": "no object is there",
    "no bucket": "there is no such bucket",
    "refused": "it is refused",
    "expired": "the credentials have expired",
    "no credentials": "there are no credentials",
    "region": "the bucket lies in another region",
    "certificate": "its certificate is not trusted",
    "later": "it is not reached",
}
_REMEDIES = {
    "missing": "look at the name; over HTTP name an object, such as https://host/set/index.json",
    "no bucket": "look at the name of the bucket or container, and at AWS_ENDPOINT_URL",
    "refused": (
        "set the credentials of an account that may list and read it; for what everybody may read"
        " AWS_SKIP_SIGNATURE=true, GOOGLE_SKIP_SIGNATURE or AZURE_SKIP_SIGNATURE"
    ),
    "expired": "get new credentials: a long training needs a role, which renews them",
    "region": "set AWS_REGION to the region of the bucket",
    "certificate": (
        "add the authority of the certificate to those of the machine (update-ca-certificates), or"
        " pass store={'root_certificate': ...}; it may be that of a proxy in between"
    ),
    "later": (
        "look at the name of the host, AWS_ENDPOINT_URL, HTTPS_PROXY and NO_PROXY, a firewall, and"
        " at whether http:// or https:// is right"
    ),
    "option": "look at the variables of the environment that name the store",
}
_REMEDIES["no credentials"] = _REMEDIES["refused"]


def store(url: str) -> Callable[[Machine], Iterator[Finding]]:
    """Return the check of a store; see `doctor`. It takes some seconds.

    Args:
        url: of an object, or a folder of objects.
    """

    def store(machine: Machine) -> Iterator[Finding]:
        try:
            if not is_url(url):
                raise ConfigError(f"{url!r} is no address of a store, such as s3://bucket/folder")
            root, place = split_url(url)
        except ConfigError as error:
            remedy = "pass --store s3://bucket/folder, gs://, az:// or https://host/path"
            yield Finding("error", "store", str(error), remedy)
            return
        kind = credentials_of(root.partition("://")[0], machine.environ)
        yield Finding("ok", "credentials", f"{kind}, for {root}")
        try:
            found = Store(root, {}, CacheUse(ShardCache(None, _MEMORY), "")).probe(place)
        except (ConfigError, DatasetError) as error:
            failure, told = getattr(error, "kind", "later"), getattr(error, "told", str(error))
            what = _NAMED.get(failure, "it cannot be read")
            remedy = _REMEDIES.get(failure, "look at what the store says")
            yield Finding("error", "store", f"{url}: {what}: {told}", remedy)
            return
        text = f"{url} is reached, and has '{found['key']}' of {in_bytes(found['nbytes'])}"
        yield Finding("ok", "store", text)
        yield from speeds(found["latency_s"], found["bytes_per_s"])

    return store


def speeds(latency_s: float, bytes_per_s: float) -> Iterator[Finding]:
    """Yield findings on how soon and how fast a store answers."""
    text = f"a small request takes {latency_s * 1e3:.1f} ms in the median"
    if latency_s < _FAR_S:
        yield Finding("ok", "store latency", text)
    else:
        remedy = "train in the region of the store, or copy the shards to one that is nearer"
        yield Finding("warning", "store latency", text, remedy)
    text = (
        f"{bytes_per_s / 1e6:.3g} MB/s by 8 transfers at once: {bytes_per_s / 1e5:.3g} samples of"
        " 100 KB a second"
    )
    if bytes_per_s >= _SLOW:
        yield Finding("ok", "store bandwidth", text)
    else:
        remedy = (
            "a training that needs more waits for it: have a faster link, or keep the shards on a"
            " disk, by reader.ShardCache(path) or a copy"
        )
        yield Finding("warning", "store bandwidth", text, remedy)


def credentials_of(scheme: str, environ: Mapping[str, str]) -> str:
    """Return which kind of credentials is taken, without any of them."""
    if scheme in ("http", "https"):
        return "none: it is read by HTTP"
    place = "az" if scheme in ("az", "abfs", "abfss") else scheme
    for name, kind in _KEYS[place]:
        if environ.get(name):
            has_session = name == "AWS_ACCESS_KEY_ID" and environ.get("AWS_SESSION_TOKEN")
            return f"{kind}, with a session token, which expires" if has_session else kind
    own = Path(environ.get("HOME", "/"), ".config/gcloud/application_default_credentials.json")
    if place == "gs" and own.is_file():
        return "those of gcloud auth application-default login"
    return "the role of this machine, since the environment has none"
