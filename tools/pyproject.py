"""The requirements of pyproject.toml: to build, to run, and for each extra.

Reads the few lines of lists that the tools need, without a reader of TOML: Python 3.10 has none.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tools.smoke.__main__ import ROOT

__all__ = ["Floor", "build_requirements", "dependencies", "extras"]

_SECTION = re.compile(r"^\[([\w.-]+)\]\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_LIST = re.compile(r"^([\w-]+) = (\[.*\])$", re.MULTILINE)


@dataclass(frozen=True)
class Floor:
    """A package, and the oldest version of it that is admitted."""

    package: str
    version: str

    @classmethod
    def of(cls, requirement: str) -> Floor:
        """Read a requirement of the form "torch>=2.4", the only one there is here."""
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
        if found is None:
            raise ValueError(f"{requirement!r} in pyproject.toml is not of the form 'torch>=2.4'")
        return cls(found[1], found[2])

    @property
    def pin(self) -> str:
        """Return the requirement that admits this version alone."""
        return f"{self.package}=={self.version}"

    def is_version(self, version: str) -> bool:
        """Whether a version is this one: 2.4 is 2.4.0."""
        return _parts(version) == _parts(self.version)


def build_requirements() -> list[str]:
    """Return the build requirements."""
    return _lists("build-system")["requires"]


def dependencies() -> list[Floor]:
    """Return the dependencies that every user gets."""
    return [Floor.of(each) for each in _lists("project")["dependencies"]]


def extras() -> dict[str, list[Floor]]:
    """Return the floors of each extra."""
    lists = _lists("project.optional-dependencies")
    return {name: [Floor.of(each) for each in listed] for name, listed in lists.items()}


def _lists(section: str) -> dict[str, list[str]]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (body,) = (found[2] for found in _SECTION.finditer(text) if found[1] == section)
    return {
        found[1]: [str(each) for each in json.loads(found[2])] for found in _LIST.finditer(body)
    }


def _parts(version: str) -> list[int]:
    parts = [int(each) for each in version.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return parts
