"""The record: results of peers' programs, and their defects that were seen, by peer version.

Imports the harness and the standard library. A `Record` owns one file of tests/peers/recorded; only
a run with `--peers record` (make evidence ARGS="--peers record") writes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.names import shown
from tests.peers.program import Peer, Story, Verdict

FOLDER = Path(__file__).parent / "recorded"
HOW = 'run `make evidence ARGS="--peers record"`'


def version_of(peer: Peer) -> str:
    """The installed versions of a peer: "torch-2.13.0 torchdata-0.11.0", local parts left out."""
    versions = [(name, metadata.version(name).partition("+")[0]) for name in peer.distributions]
    return " ".join(f"{name}-{version}" for name, version in versions)


class Record:
    """One peer's record: of the version installed, or an empty one.

    `programs`: what the peer gave to each program that is compared. Where ours gave the same, a
    digest of that is kept, and all of it elsewhere. `defects`: the tests that saw a defect of the
    peer's. `acts`: by test, what the peer showed in this process to each act that is compared.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.version = version_of(peer)
        self.path = FOLDER / f"{self.version.replace(' ', '_')}.json"
        told = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.programs: dict[str, Any] = told.get("programs", {})
        self.defects: list[str] = told.get("defects", [])
        self.acts: dict[str, list[str]] = told.get("acts", {})

    def theirs(self, story: Story, ours: Verdict) -> Verdict | None:
        """The peer's verdict as recorded; None where only the peer itself can say.

        That is where nothing is recorded, and where ours gave what the peer gave when recorded and
        gives something else now: a processor may round differently, or ours be wrong.
        """
        kept = self.programs.get(key_of(story))
        if kept is None or ("same" in kept and kept["same"] != digest_of(ours)):
            return None
        code, lines = (
            (ours.exit_code, ours.lines) if "same" in kept else (kept["exit_code"], kept["lines"])
        )
        return Verdict(code, list(lines), "", [], 0.0)

    def denies(self, story: Story, theirs: Verdict, ours: Verdict) -> bool:
        """Whether the record would have passed, or shown, a result that the peer does not give."""
        kept = self.programs.get(key_of(story))
        if kept is None:
            return False
        if "same" in kept:
            return bool(kept["same"] == digest_of(ours) != digest_of(theirs))
        return [kept["exit_code"], kept["lines"]] != [theirs.exit_code, _plain(theirs.lines)]

    def add_program(self, story: Story, theirs: Verdict, ours: Verdict) -> None:
        """Keep the peer's result."""
        is_same = digest_of(theirs) == digest_of(ours)
        self.programs[key_of(story)] = (
            {"same": digest_of(theirs)}
            if is_same
            else {"exit_code": theirs.exit_code, "lines": _plain(theirs.lines)}
        )

    def add_defect(self, test: str) -> None:
        """Keep that a test saw the peer's defect."""
        if test not in self.defects:
            self.defects.append(test)

    def write(self) -> None:
        """Write the file, sorted; keep entries that another process of this run wrote meanwhile."""
        FOLDER.mkdir(exist_ok=True)
        folder = os.open(FOLDER, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            other = Record(self.peer)
            told = {
                "version": self.version,
                "defects": sorted({*other.defects, *self.defects}),
                "acts": dict(sorted({**other.acts, **self.acts}.items())),
                "programs": dict(sorted({**other.programs, **self.programs}.items())),
            }
            self.path.write_text(json.dumps(told, indent=1) + "\n")
        finally:
            os.close(folder)


class Acts:
    """The acts of one test, in order: digests of the peer's results.

    `is_believed`: whether the peer need not run where the digest fits.
    """

    def __init__(self, kept: list[str], mode: str) -> None:
        self.is_believed = mode == "recorded" and bool(kept)
        self.told: list[str] = []
        self._kept = kept
        self._mode = mode

    def have(self, what: str) -> bool:
        """Whether this equals the peer's result; if so, advance to the next act."""
        at = len(self.told)
        if at >= len(self._kept) or self._kept[at] != _digest([shown(what)]):
            return False
        self.told.append(self._kept[at])
        return True

    def tell(self, what: str) -> None:
        """Take the peer's result of this run."""
        self.told.append(_digest([shown(what)]))

    @property
    def is_denied(self) -> bool:
        """Whether the peer was run and its result differs from the record."""
        return self._mode == "run" and bool(self._kept) and self.told != self._kept


def key_of(story: Story) -> str:
    """The key of a program's record: its text and arguments."""
    return _digest([textwrap.dedent(story.text), *story.args])


def digest_of(verdict: Verdict) -> str:
    """The result of a program: its exit code and all its output."""
    return _digest([verdict.exit_code, *_plain(verdict.lines)])


def _plain(lines: list[str]) -> list[str]:
    """Without addresses in memory, which differ in each run."""
    return [shown(line) for line in lines]


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
