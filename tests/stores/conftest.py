"""The proxy before the server of a module, which the module's fixture `server` starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.proxy import Proxy, faulty
from tests.stores.servers import Server


@pytest.fixture(scope="module")
def running_proxy(server: Server) -> Iterator[Proxy]:
    """Run the proxy as long as the module's tests."""
    with faulty(server.endpoint, seed=3) as proxy:
        yield proxy


@pytest.fixture
def proxy(running_proxy: Proxy) -> Proxy:
    """Return the module's proxy, without rules, and counting anew."""
    running_proxy.set_rules()
    running_proxy.reset()
    return running_proxy
