"""Ranks end together: sums over real gloo ranks are exact, whatever fails, and none waits."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, ConfigTypeError, DataLoader, EvenSteps, StateError
from tests.contract.test_ranks import LIMIT_S, environment, free_address, run
from tests.even_program import CASES, COUNT, STREAMS, sums_without

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "tests" / "even_program.py")


def evaluate(cases: list[str], ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Run cases in a group of real ranks; return what each of them found."""
    python, address = [sys.executable, "-W", "ignore"], free_address()
    commands = [
        [*python, PROGRAM, str(folder), "; ".join(cases), str(rank), str(ranks), address]
        for rank in range(ranks)
    ]
    run(commands, [environment()] * ranks, folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.sampled(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_an_evaluation_of_1003_samples_counts_1003_on_any_number_of_ranks(
    ranks: int, tmp_path: Path
) -> None:
    found = evaluate(list(CASES), ranks, tmp_path)
    steps = math.ceil(math.ceil(COUNT / ranks) / 16)
    failing = {*range(0, 16 * ranks, ranks), 500, 501, 502, COUNT - 1}
    for each in found:
        assert each == found[0]
    for case, told in found[0].items():
        if case.startswith("skip"):
            assert told["sums"] == sums_without(*failing), case
            assert told["failed"] >= len(failing)
        elif case == "replace":
            assert told["sums"] == sums_without(3, 500, 501, 502, COUNT - 1)
        else:
            assert told["sums"] == sums_without(), case
        if case != "batches":
            assert told["steps"] == steps, case


NUMBERS_OF = {"drop": [17, 9, 30], "drop, workers": [16, 33, 9], "repeat": [17, 9, 30]}
NUMBERS_OF["pad"] = NUMBERS_OF["drop"]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_of_streams_of_unknown_length_end_together(ranks: int, tmp_path: Path) -> None:
    cases = [case for case in STREAMS if case not in ("killed",)]
    found = evaluate(cases, ranks, tmp_path)
    for case, counts in NUMBERS_OF.items():
        batches = [
            _batches(count, 2 if case in ("drop, workers", "pad") else 0) for count in counts
        ]
        lengths = [len(each) for each in batches[:ranks]]
        steps = min(lengths) if case.startswith("drop") else max(lengths)
        for rank, each in enumerate(found):
            for epoch, told in enumerate(each[case]["epochs"]):
                own = [1000 * rank + number for batch in batches[rank][:steps] for number in batch]
                if case == "repeat":
                    again = (steps - lengths[rank]) * batches[rank][-1]
                    own += [1000 * rank + number for number in again]
                assert told == {"numbers": own, "steps": steps, "epoch": epoch + 1}, case
    for rank, each in enumerate(found):
        assert "has no batch in this epoch" in each["nothing"]["text"]
        own = {"failed": ["ValueError", "sample 5 is damaged"]}
        own["failed repeat"] = ["OSError", "the stream is gone"]
        for case, raised in own.items():
            error = each[case]
            if rank == 1:
                assert [error["error"], error["text"]] == raised
            else:
                assert error["error"] == "DatasetError"
                assert error["text"].startswith("rank 1 failed before this step")
        assert each["trained, drop"]["steps"] == 3
        assert each["resumed, drop"]["steps"] == 3
        assert each["resumed, pad"]["steps"] == (4 if ranks == 2 else 6)


def _batches(count: int, workers: int) -> list[list[int]]:
    """The batches of 4 that a stream of numbers gives, from one worker after the other."""
    shares = [list(range(worker, count, max(1, workers))) for worker in range(max(1, workers))]
    rows = [[share[at : at + 4] for at in range(0, len(share), 4)] for share in shares]
    return [batch for turn in itertools.zip_longest(*rows) for batch in turn if batch]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
def test_a_rank_that_is_killed_leaves_no_other_waiting(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as told:
        evaluate(["killed"], 3, tmp_path)
    assert "Error" in str(told.value)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 4)])
@pytest.mark.parametrize("kind", ["balanced", "shared"])
def test_other_ranks_go_on_where_ranks_were_killed_and_each_sample_counts_once(
    kind: str, before: int, after: int, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="Error"):
        evaluate([f"{kind}, killed"], before, tmp_path)
    steps = int((tmp_path / "steps.json").read_text())
    assert steps == 5
    taken: list[int] = []
    for rank in range(before):
        for step in range(steps):
            taken += json.loads((tmp_path / f"step {step} of {rank}.json").read_text())
    found = [each[f"{kind}, on"]["indices"] for each in evaluate([f"{kind}, on"], after, tmp_path)]
    assert {len(batches) for batches in found} == {len(found[0])}
    taken += [index for batches in found for batch in batches for index in batch]
    assert sorted(taken) == list(range(COUNT))


PADDLE = """
import json, sys
import paddle.distributed
import reader
from tests.streams import RangeStream

paddle.distributed.init_parallel_env()
rank = paddle.distributed.get_rank()
steps = reader.EvenSteps(reader.DataLoader(RangeStream(5 + 6 * rank), batch_size=2), end="pad")
found = [(batch.tolist(), is_new) for batch, is_new in steps]
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
def test_ranks_of_paddle_agree_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PADDLE)
    options = ["--backend", "gloo", "--nproc_per_node", "2", "--log_dir", str(tmp_path / "log")]
    command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", *options]
    run([[*command, str(program), str(tmp_path)]], [environment()], tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == [[[0, 1], True], [[2, 3], True], [[4], True], *[[[4], False]] * 3]
    assert [batch for batch, _ in second] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]


def test_several_ranks_that_no_library_has_joined_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(
        ConfigError, match=r"no library has joined them: this is rank 0 of 2 .*Call"
    ):
        iter(EvenSteps([[1]]))


def test_a_state_of_one_rank_is_that_of_its_loader() -> None:
    steps = EvenSteps(DataLoader(range(10), batch_size=2))
    batches = iter(steps)
    taken = [next(batches).tolist() for _ in range(2)]
    state = json.loads(json.dumps(steps.state_dict()))
    other = EvenSteps(DataLoader(range(10), batch_size=2))
    other.load_state_dict(state)
    assert taken + [batch.tolist() for batch in other] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    other.set_epoch(5)
    assert other.loader.epoch == 5
    for damaged in (None, {}, state["loader"]):
        with pytest.raises(StateError, match="state of EvenSteps is a dict with 'loader'"):
            other.load_state_dict(damaged)


def test_loaders_without_a_state_are_named() -> None:
    steps = EvenSteps([[1]])
    for call in (steps.state_dict, lambda: steps.set_epoch(1), lambda: steps.state_dict(1)):
        with pytest.raises(StateError, match=r"the loader of this EvenSteps has no .*got \[\[1"):
            call()


@pytest.mark.parametrize("loader", ["text", 3, iter([1]), list])
def test_even_steps_takes_a_loader(loader: Any) -> None:
    with pytest.raises(ConfigTypeError, match="EvenSteps takes a loader"):
        EvenSteps(loader)
    for end in ("skip", 3):
        with pytest.raises(ConfigError, match="end must be 'drop', 'repeat' or 'pad'"):
            EvenSteps([], end=end)  # type: ignore[arg-type]
