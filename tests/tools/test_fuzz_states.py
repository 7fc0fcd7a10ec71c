"""A sample of what the fuzzer of states tries; `make nightly` runs more of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tools import fuzz_states
from tools.crossed_states import crossed_case
from tools.torch_states import torch_case


@pytest.mark.parametrize("seed", [5, 6])
def test_states_that_are_damaged_or_crossed_are_refused_or_work(seed: int) -> None:
    rng = random.Random(seed)
    saved = [fuzz_states.save_some(rng, kind) for kind in fuzz_states.KINDS for _ in range(3)]
    outcomes = set()
    for number in range(150):
        np.random.seed(5)
        outcomes.add(fuzz_states.one_case(random.Random(f"{seed}/{number}"), saved))
    assert {"refused", "resumed", "worked"} <= outcomes


def test_states_resume_exactly_or_are_refused_under_other_options() -> None:
    outcomes = [crossed_case(random.Random(f"0/{number}")) for number in range(60)]
    assert outcomes.count("resumed") > 30
    assert any(each.startswith("refused") for each in outcomes)


def test_states_of_the_torch_face_give_what_the_uninterrupted_run_gives() -> None:
    outcomes = [torch_case(random.Random(f"0/{number}")) for number in range(24)]
    assert outcomes.count("resumed") > 12
    assert any(each.startswith("refused") for each in outcomes)
