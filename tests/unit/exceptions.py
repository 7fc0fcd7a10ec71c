"""Exceptions for tests, and ways to carry one as a worker and its trainer do."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reader.exceptions.user_error import decode, encode

ROOT = Path(__file__).parents[2]


def carry(exc: BaseException) -> Any:
    return decode(encode(exc))


def notes_of(exc: BaseException) -> str:
    return "\n".join(getattr(exc, "__notes__", []))


def raised(make: Callable[[], object]) -> BaseException:
    try:
        make()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def in_a_forked_worker(make: Callable[[], BaseException]) -> BaseException:
    """Make and encode an exception in a child, and decode it here."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(writing, "wb") as file:
            file.write(encode(make()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return decode(data)


def in_another_program(code: str) -> BaseException:
    """Run `code`, which leaves an exception in `exc`, in a fresh interpreter; decode it here."""
    program = "import sys\nfrom reader.exceptions.user_error import encode\n" + textwrap.dedent(
        code
    )
    program += "\nsys.stdout.buffer.write(encode(exc))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
    return decode(run.stdout)


def raise_from(exc: BaseException, cause: BaseException | None) -> None:
    raise exc from cause


class OddConstructor(ValueError):
    def __init__(self, path: str, *, line: int) -> None:
        super().__init__(f"{path}:{line}")
        self.path = path
        self.line = line
