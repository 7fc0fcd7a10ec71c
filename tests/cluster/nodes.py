"""Waits for the nodes of a cluster, in a process of its own: what Ray opens in one stays open."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["await_nodes"]

_WAITS = """
import sys, threading, ray
address, count, resource = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] and resource in node["Resources"] for node in ray.nodes()) != int(count):
    threading.Event().wait(0.1)
"""


def await_nodes(address: str, count: int, resource: str = "CPU") -> None:
    """Wait until as many nodes that are alive have a resource."""
    program = [sys.executable, "-c", _WAITS, address, str(count), resource]
    subprocess.run(program, timeout=60, check=True)
