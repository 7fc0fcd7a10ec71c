"""What docs/compatibility.md promises: names, signatures and states of a release stay."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reader
from tests.contract.old_states import LOADERS as OLD_LOADERS
from tests.unit import saved_states, signatures

ROOT = Path(__file__).parents[2]
RECORD_ANEW = (
    "A program written for the release would no longer work. docs/compatibility.md says when that"
    " is allowed: after a deprecation, or before 1.0 with an entry of CHANGELOG.md that begins with"
    " 'Breaking:'. Then record anew: python -m tests.unit.signatures --record"
)
KEEP_STATE = (
    "A state that a release saved must still be read: have its format number choose how it is read."
    " Do not record it anew; python -m tests.unit.saved_states adds new ones only"
)
SAVED: dict[str, Any] = json.loads(saved_states.RECORD.read_text(encoding="utf-8"))
OLD: dict[str, Any] = json.loads((ROOT / "tests/contract/old_states.json").read_text())
FRAMEWORK_OF = {name: name.split(",")[0] for name in SAVED if name.startswith(("torch", "paddle"))}

CALL = {"data": ["either", "required"], "size": ["either", "1"], "seed": ["name", "None"]}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_recorded_name_has_its_recorded_signature() -> None:
    # in a process of its own: it imports every library that the package serves
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.signatures"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    now, absent = json.loads(run.stdout.splitlines()[-1])
    was = signatures.recorded()
    kept = {name: each for name, each in was.items() if not signatures.is_within(name, absent)}
    assert {"reader.DataLoader", "reader.DataLoader.state_dict"} <= kept.keys()
    found = signatures.broken(kept, now)
    assert not found, "\n".join([*found, RECORD_ANEW])


def test_every_public_name_of_the_package_is_recorded() -> None:
    names = {f"reader.{name}" for name in reader.__all__}
    missing = sorted(names - signatures.recorded().keys())
    assert missing == [], "record the new names: python -m tests.unit.signatures --record"


def changed(**parameters: list[str] | None) -> dict[str, Any]:
    now: dict[str, Any] = copy.deepcopy(CALL)
    for name, each in parameters.items():
        now.pop(name, None)
        if each is not None:
            now[name] = each
    return {"reader.f": now, "reader.g": {}}


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"reader.f": CALL}, "reader.g is gone"),
        ({"reader.f": "attribute", "reader.g": {}}, "reader.f is no call now"),
        (changed(seed=None), "reader.f: its parameter seed is gone"),
        (changed(seed=["name", "0"]), "reader.f: the default of seed was None and is 0"),
        (changed(seed=["name", "required"]), "the default of seed was None and is required"),
        (changed(seed=["place", "None"]), "reader.f: seed can no longer be passed by name"),
        (changed(size=["name", "1"]), "reader.f: size is no longer positional parameter 1"),
        (changed(data=["either", "required"]), "data is no longer positional parameter 0"),
        (changed(more=["name", "required"]), "reader.f: its new parameter more has no default"),
    ],
)
def test_a_breaking_change_is_found(now: dict[str, Any], message: str) -> None:
    found = signatures.broken({"reader.f": CALL, "reader.g": {}}, now)
    assert message in "\n".join(found)


@pytest.mark.parametrize(
    "now",
    [
        changed(),
        changed(more=["name", "None"]),
        changed(more=["either", "None"]),
        changed(others=["**", "required"]),
        changed(seed=["either", "None"]),
        {**changed(), "reader.h": {"new": ["either", "required"]}},
    ],
)
def test_a_change_that_breaks_nothing_is_allowed(now: dict[str, Any]) -> None:
    assert signatures.broken({"reader.f": CALL, "reader.g": {}}, now) == []


def test_a_parameter_may_get_a_default_but_not_lose_it() -> None:
    required, has_default = ({"f": {"data": ["either", each]}} for each in ("required", "None"))
    assert signatures.broken(required, has_default) == []
    assert signatures.broken(has_default, required) != []


def test_signatures_are_read_from_functions_classes_and_stubs() -> None:
    found = dict(signatures.of_module(reader))
    assert found["reader.DataLoader"]["batch_size"] == ["either", "1"]
    assert found["reader.DataLoader"]["seed"] == ["name", "None"]
    assert found["reader.DataLoader.epoch"] == "attribute"
    assert found["reader.DataLoader.load_state_dict"] == {
        "state": ["either", "required"],
        "grown": ["name", "None"],
    }
    # compiled: their stubs have the arguments of the call
    assert found["reader.BlockingQueue"] == {"capacity": ["either", "required"]}
    assert list(found["reader.LoDTensor"]) == ["value", "lod", "place"]
    assert "reader.LoDTensorArray.slot_address" not in found


@pytest.mark.parametrize("name", SAVED)
def test_06_a_state_that_a_release_saved_is_read(name: str) -> None:
    if name in FRAMEWORK_OF:
        pytest.importorskip(FRAMEWORK_OF[name])
    with saved_states.LOADERS[name]() as loader:
        try:
            loader.load_state_dict(copy.deepcopy(SAVED[name]["state"]))
            found = [saved_states.plain(batch) for batch in loader]
        except reader.StateError as error:
            pytest.fail(f"{error}\n{KEEP_STATE}")
    assert found == SAVED[name]["rest"], KEEP_STATE


def test_every_loader_has_a_recorded_state() -> None:
    assert SAVED.keys() == saved_states.LOADERS.keys()
    assert OLD.keys() == OLD_LOADERS.keys()  # read by tests/contract/test_state_old.py
