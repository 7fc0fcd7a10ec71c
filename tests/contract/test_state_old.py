"""States that an earlier 0.1.0 saved: they resume here."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.contract.old_states import LOADERS

SAVED: dict[str, Any] = json.loads(Path(__file__).with_name("old_states.json").read_text())


@pytest.mark.parametrize("name", LOADERS)
def test_06_state_that_an_earlier_version_saved_goes_on(name: str) -> None:
    random.seed(12)  # nothing hangs on it
    with LOADERS[name]() as loader:
        loader.load_state_dict(SAVED[name]["state"])
        found = [batch.tolist() for batch in loader]
    if name == "any order":
        assert sorted(found) == sorted(SAVED[name]["rest"])
    else:
        assert found == SAVED[name]["rest"]


@pytest.mark.parametrize("name", LOADERS)
def test_06_state_has_the_form_that_an_earlier_version_gave_it(name: str) -> None:
    random.seed(11)
    with LOADERS[name]() as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
    assert state.keys() == SAVED[name]["state"].keys()
    if name in ("shuffle", "any order"):
        return  # drawn anew each time
    was = SAVED[name]["state"]
    assert state["fit"].pop("data")["kind"]  # earlier versions had none
    for key in state.keys() - {"base_seed", "order"}:
        assert state[key] == was[key], key
    if "order" in state:
        assert state["order"].keys() == was["order"].keys()
        for key in state["order"].keys() - {"random"}:
            assert state["order"][key] == was["order"][key], key
