"""Where a cluster of Ray is: an address is looked at before Ray tries it, for a minute.

Imports the standard library and the errors.
"""

from __future__ import annotations

import re
import socket

from reader.errors import ReaderError

__all__ = ["check_address"]

_CONNECT_S = 3.0


def check_address(address: str | None) -> None:
    """Refuse an address at which nothing answers, within seconds.

    Args:
        address: as `reader.Ray` takes it; None, "auto" and "local" are Ray's to find.

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
