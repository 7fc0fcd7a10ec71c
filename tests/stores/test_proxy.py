"""The proxy: what it lets pass stays as it was, and each fault happens, by its rule, and counts."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.processes import wait_until
from tests.stores.proxy import Kind, Proxy, Rule, faulty
from tests.stores.servers import Answer, HttpServer, http_server

BODY = random.Random(0).randbytes(1_000_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with http_server(tmp_path_factory.mktemp("nginx")) as server:
        server.put("b", "body", BODY)
        server.put("b", "empty", b"")
        for n in range(100):
            server.put("many", f"{n}", b"a body")
        yield server


@pytest.fixture(scope="module")
def running_proxy(server: HttpServer) -> Iterator[Proxy]:
    with faulty(server.endpoint, seed=7) as proxy:
        yield proxy


@pytest.fixture
def proxy(running_proxy: Proxy) -> Proxy:
    """A proxy without rules whose counters are 0; an earlier test's connections are closed."""
    running_proxy.set_rules()
    wait_until(lambda: not running_proxy.reset().most_connections)
    return running_proxy


@pytest.fixture
def behind(server: HttpServer, proxy: Proxy) -> HttpServer:
    """The server, as reached through the proxy."""
    return replace(server, endpoint=proxy.endpoint)


def test_without_rules_responses_pass_as_they_are_and_connections_stay(
    server: HttpServer, proxy: Proxy, behind: HttpServer
) -> None:
    connection = http.client.HTTPConnection(proxy.endpoint.partition("//")[2], timeout=30)
    asked = [("GET", "/b/body", "bytes=10-19"), ("HEAD", "/b/body", ""), ("GET", "/b/", "")]
    asked += [("GET", "/b/body", ""), ("GET", "/b/empty", ""), ("GET", "/b/none", "")]
    nbytes = 0
    for method, target, part in asked:
        headers = {"Range": part} if part else {}
        connection.request(method, target, headers=headers)
        response = connection.getresponse()
        got = Answer(
            response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        )
        want = server.request(method, target, headers=headers)
        assert got._replace(headers={**got.headers, "date": ""}) == want._replace(
            headers={**want.headers, "date": "", "connection": got.headers["connection"]}
        )
        nbytes += len(want.body)
    connection.close()
    found = proxy.counters()
    assert found.requests == {"GET 200": 3, "GET 206": 1, "GET 404": 1, "HEAD 200": 1}
    assert found.paths["/b/body"] == 3
    assert (found.most_connections, found.most_requests, found.faults) == (1, 1, {})
    assert nbytes <= found.bytes_sent <= nbytes + 100  # the list of the folder comes in chunks


def test_bodies_of_requests_pass_also_for_those_who_wait_for_a_word(behind: HttpServer) -> None:
    for headers in ({}, {"Expect": "100-continue"}):
        assert behind.request("POST", "/b/body", BODY, headers).status == 405
    assert behind.get("b", "body").body == BODY


@pytest.mark.parametrize("kind", ["slow_down", "too_many"])
def test_requests_are_refused_without_the_server(
    kind: Kind, proxy: Proxy, behind: HttpServer
) -> None:
    proxy.set_rules(Rule(kind, amount=7, first=1))
    answer = behind.get("b", "body")
    if kind == "slow_down":
        assert (answer.status, b"<Code>SlowDown<" in answer.body) == (503, True)
    else:
        assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert behind.get("b", "body").body == BODY
    assert proxy.counters().requests == {f"GET {answer.status}": 1, "GET 200": 1}
    assert proxy.counters().faults == {kind: 1}


def test_bodies_are_cut_also_where_they_come_in_chunks(proxy: Proxy, behind: HttpServer) -> None:
    proxy.set_rules(Rule("cut"))
    with pytest.raises(http.client.IncompleteRead) as caught:
        behind.get("b", "body")
    assert BODY.startswith(caught.value.partial)
    with pytest.raises(http.client.IncompleteRead):
        behind.request("GET", "/b/")
    assert behind.get("b", "empty").status == 200
    assert proxy.counters().faults == {"cut": 2}


def test_one_byte_of_a_body_is_damaged(proxy: Proxy, behind: HttpServer) -> None:
    proxy.set_rules(Rule("damage"))
    body = behind.get("b", "body").body
    assert len(body) == len(BODY)
    assert sum(a != b for a, b in zip(body, BODY, strict=True)) == 1
    assert proxy.counters().faults == {"damage": 1}


def test_headers_are_changed(proxy: Proxy, behind: HttpServer) -> None:
    asked = {"Range": "bytes=10-19"}
    changes: list[tuple[Kind, str, str | None]] = [
        ("wrong_range", "content-range", "bytes 11-19/1000000"),
        ("no_range", "content-range", None),
        ("changed_etag", "etag", '"changed"'),
    ]
    for kind, header, value in changes:
        proxy.set_rules(Rule(kind))
        answer = behind.get("b", "body", asked)
        assert (answer.status, answer.headers.get(header)) == (206, value)
        assert answer.body == BODY[10:20]
    assert proxy.counters().faults == {"wrong_range": 1, "no_range": 1, "changed_etag": 1}


def test_rules_hold_for_a_path_and_for_the_first_requests(proxy: Proxy, behind: HttpServer) -> None:
    proxy.set_rules(
        Rule("slow_down", path="^/many/1", first=3), Rule("too_many", path="/2$", attempts=1)
    )
    refused = [behind.get("many", str(n)).status for n in (1, 2, 10, 1, 2, 1, 3)]
    assert refused == [503, 429, 503, 503, 200, 200, 200]


def test_a_share_is_the_same_in_each_order_and_another_with_another_seed(
    server: HttpServer, proxy: Proxy
) -> None:
    def refused(endpoint: str, order: list[int]) -> set[int]:
        behind = replace(server, endpoint=endpoint)
        return {n for n in order if behind.get("many", str(n)).status == 503}

    rule = Rule("slow_down", share=0.3)
    proxy.set_rules(rule)
    first = refused(proxy.endpoint, list(range(100)))
    assert 15 <= len(first) <= 45
    assert refused(proxy.endpoint, list(first)) != first  # a second attempt is drawn anew
    proxy.set_rules(rule)
    assert refused(proxy.endpoint, list(range(99, -1, -1))) == first
    with faulty(server.endpoint, rule, seed=8) as other:
        assert refused(other.endpoint, list(range(100))) != first


@pytest.mark.alone
def test_delays_stalls_and_bandwidth_take_their_time(proxy: Proxy, behind: HttpServer) -> None:
    def took_s(*rules: Rule, streams: int = 1) -> float:
        proxy.set_rules(*rules)
        start = time.monotonic()
        with ThreadPoolExecutor(streams) as pool:
            bodies = list(pool.map(lambda _: behind.get("b", "body").body, range(streams)))
        assert all(body == BODY for body in bodies)
        return time.monotonic() - start

    assert took_s(Rule("delay", 300)) >= 0.29
    assert took_s(Rule("stall", 0.3)) >= 0.29
    assert took_s(Rule("bandwidth", 4e6), streams=4) >= 0.8  # 4 MB, less a burst
    found = proxy.counters()
    assert found.faults == {"delay": 1, "stall": 1, "bandwidth": 4}
    assert (found.most_connections, found.most_requests) == (4, 4)


def test_a_restart_ends_connections_and_refuses_new_ones_for_a_while(
    proxy: Proxy, behind: HttpServer
) -> None:
    idle = http.client.HTTPConnection(proxy.endpoint.partition("//")[2], timeout=30)
    idle.request("GET", "/b/empty")
    idle.getresponse().read()
    proxy.set_rules(Rule("refuse", amount=0.5, first=1))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        behind.get("b", "body")
    with pytest.raises(ConnectionRefusedError):
        behind.get("b", "body")
    assert idle.sock.recv(1) == b""
    idle.close()

    def is_back() -> bool:
        try:
            return behind.get("b", "body").body == BODY
        except ConnectionRefusedError:
            return False

    wait_until(is_back)
    assert proxy.counters().faults == {"refuse": 1}


def test_a_rule_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no such fault: .*bandwidth"):
        Rule("bandwidth")
    with pytest.raises(ValueError, match=r"no such fault: .*slowdown"):
        Rule("slowdown")  # type: ignore[arg-type]
