"""Check the address of a Ray cluster first: Ray itself would try it for a minute.

Imports the standard library and the errors. Ray is given.
"""

from __future__ import annotations

import re
import socket
from typing import Any

from reader.errors import ReaderError

__all__ = ["connect"]

_CONNECT_S = 3.0


def _check(address: str | None) -> None:
    """Refuse an address within seconds if nothing answers there.

    Args:
        address: as `reader.Ray` takes it; None, "auto" and "local" are left to Ray.

    Raises:
        ReaderError: it is no address, or nothing answers there.
    """
    if address is None or address in ("auto", "local"):
        return
    found = re.fullmatch(r"(?P<host>[^:/]+|\[[^]]+\]):(?P<port>\d+)", address)
    if found is None:
        raise ReaderError(
            f'address={address!r} is no address of a cluster: pass "host:6379", that of its head,'
            ' or "auto". Clients of ray:// cannot land batches: run this program on a node'
        )
    try:
        place = found["host"].strip("[]"), int(found["port"])
        socket.create_connection(place, timeout=_CONNECT_S).close()
    except OSError as error:
        raise ReaderError(
            f"nothing answers at address={address!r}: {error}. Is the cluster up (ray status), and"
            " is that the port of its head?"
        ) from error


def connect(ray: Any, address: str | None, **options: Any) -> None:
    """Connect this process to a cluster.

    Args:
        ray: the module.
        address: as `reader.Ray` takes it.
        options: other options of `ray.init`.

    Raises:
        ReaderError: it is no address, nothing answers there, or it is no cluster that accepts this
            program.
        Exception: any other exception of Ray's.
    """
    _check(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except ConnectionError as error:
        if address is None or address in ("auto", "local"):
            raise
        raise ReaderError(
            f"{error}, though something answers there. Is it the head of a cluster of Ray? One that"
            " was started where there is a ~/.ray/auth_token may ask for it (Ray's log says"
            " InvalidAuthToken then): set RAY_AUTH_MODE=token before this program, and have that"
            " file on each machine; ray status says more"
        ) from error
