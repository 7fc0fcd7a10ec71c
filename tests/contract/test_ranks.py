"""Ranks under real launchers: samples are divided, or one warning says that they are not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reader
from tests.ranks_program import COUNT, Plain, Sharded, told_by

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "tests" / "ranks_program.py")
OF_RANKS = ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "WORLD_SIZE", "RANK")
LIMIT_S = 240


def free_address() -> str:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return f"localhost:{taken.getsockname()[1]}"


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in OF_RANKS}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def run(
    commands: list[list[str]],
    environments: list[dict[str, str]],
    folder: Path,
    cwd: Path | None = None,
) -> None:
    """Run programs side by side, to their ends; folder/NUMBER.log has what each printed."""
    logs = [folder / f"{number}.log" for number in range(len(commands))]
    started = []
    for command, env, log in zip(commands, environments, logs, strict=True):
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT)
            )
    try:
        codes = [each.wait(LIMIT_S) for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert not any(codes), "\n".join(log.read_text()[-3000:] for log in logs)


def launch(how: str, folder: Path) -> None:
    python, out = [sys.executable, "-W", "ignore"], str(folder)
    address = free_address()
    if how.startswith("torchrun"):
        program = [PROGRAM, out, "env" if how == "torchrun" else "torch"]
        options = ["--nproc_per_node=2", f"--master_port={address.rpartition(':')[2]}"]
        run([[*python, "-m", "torch.distributed.run", *options, *program]], [environment()], folder)
    elif how == "paddle":
        options = ["--backend", "gloo", "--nproc_per_node", "2", "--log_dir", str(folder / "log")]
        command = [*python, "-m", "paddle.distributed.launch", *options, PROGRAM, out, "paddle"]
        run([command], [environment()], folder)
    elif how in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        name = how.replace("SIZE", "RANK") if how[0] == "O" else "RANK"
        envs = [environment(**{how: "2", name: str(rank)}) for rank in range(2)]
        run([[*python, PROGRAM, out, "env"]] * 2, envs, folder)
    else:  # only the library in the trainer's process knows
        commands = [[*python, PROGRAM, out, how, str(rank), address] for rank in range(2)]
        run(commands, [environment()] * 2, folder)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "how",
    ["torchrun", "torchrun, gloo", "gloo", "paddle", "jax", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"],
)
def test_ranks_share_divided_datasets_and_are_warned_of_others(how: str, tmp_path: Path) -> None:
    launch(how, tmp_path)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    whole = list(range(COUNT))
    for rank, each in enumerate(found):
        assert (each["world"], each["whole"]) == (2, whole)
        told = each["told"]
        assert told.pop("shard, workers") == []
        for name in told:
            assert [text[:28] for text in told[name]] == ["every rank reads all samples"], name
            assert f"this is rank {rank} of 2 (" in told[name][0]
    for name, first in found[0]["shares"].items():
        second = found[1]["shares"][name]
        assert sorted(first + second) == whole, name
        assert len(first) == len(second) == COUNT // 2, name


@pytest.fixture
def rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


NUMBERS = list(range(8))


class Order:
    """A sampler of the user."""

    def __init__(self, count: int, **attributes: Any) -> None:
        self.count = count
        vars(self).update(attributes)

    def __iter__(self) -> Any:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


class Unsized:
    def __iter__(self) -> Any:
        return iter(NUMBERS)


@pytest.mark.usefixtures("rank_1")
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, r"^every rank reads all samples: this is rank 1 of 2 \(WORLD_SIZE and RANK\).*order"),
        ({"shuffle": True}, r"num_replicas=1, rank=0, shuffle=True\)$"),
        ({"sampler": Order(8)}, r"unless the sampler \(Order\) divides them .*DistributedSampler"),
        ({"sampler": Unsized()}, r"unless the sampler \(Unsized\)"),
        ({"batch_size": 1, "batch_sampler": [[0, 1, 2, 3], [4, 5, 6, 7]]}, r"sampler \(list\) div"),
    ],
)
def test_order_that_is_not_divided_is_warned_of_once(options: dict[str, Any], match: str) -> None:
    options = {"batch_size": 4, **options}
    loader = reader.DataLoader(NUMBERS, **options)
    with pytest.warns(UserWarning, match=match) as told:
        list(loader)
    list(loader)  # a second warning would be an error
    assert [each.filename for each in told] == [__file__]


class OfRank(list):  # type: ignore[type-arg]
    """A dataset that divides itself, and says so."""

    rank = 1


@pytest.mark.usefixtures("rank_1")
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (NUMBERS, {"sampler": reader.DistributedSampler(NUMBERS, 1, 0)}),
        (NUMBERS, {"sampler": reader.DistributedSampler(NUMBERS, 2, 1)}),
        (NUMBERS, {"sampler": Order(8, num_replicas=2)}),
        (NUMBERS, {"sampler": NUMBERS[1::2]}),
        (NUMBERS, {"batch_size": 1, "batch_sampler": reader.BatchSampler(Order(4), 2)}),
        (NUMBERS, {"batch_size": 1, "batch_sampler": reader.BatchSampler(Order(8, rank=1), 2)}),
        (NUMBERS, {"batch_size": 1, "batch_sampler": [[0, 1], [2, 3]]}),
        (OfRank(NUMBERS), {}),
        (reader.Subset(OfRank(NUMBERS), NUMBERS), {}),
        (reader.ConcatDataset([NUMBERS, OfRank(NUMBERS)]), {}),
    ],
)
def test_order_that_is_divided_gives_no_warning(dataset: Any, options: dict[str, Any]) -> None:
    list(reader.DataLoader(dataset, **{"batch_size": 2, **options}))  # warnings are errors


@pytest.mark.usefixtures("rank_1")
def test_torchs_distributed_sampler_is_known_to_divide() -> None:
    import torch.utils.data

    sampler: Any = torch.utils.data.DistributedSampler(NUMBERS, 2, 1, shuffle=False)  # type: ignore[arg-type,var-annotated]
    assert len(list(reader.DataLoader(NUMBERS, batch_size=2, sampler=sampler))) == 2


@pytest.mark.usefixtures("rank_1")
def test_stream_that_divides_by_itself_gives_no_warning() -> None:
    dataset: Any = Plain()
    dataset.world_size = 2
    assert told_by(dataset) == []
    assert told_by(reader.shuffle_buffer(dataset, 4)) == []
    assert len(told_by(reader.shuffle_buffer(Plain(), 4), num_workers=1)) == 1
    assert told_by(reader.shuffle_buffer(Sharded(), 4), num_workers=1) == []


@pytest.mark.usefixtures("rank_1")
@pytest.mark.filterwarnings("error")
def test_warning_made_an_error_loses_no_batch() -> None:
    batches = iter(reader.DataLoader(Plain(), batch_size=8))
    found = [next(batches)]
    with pytest.raises(UserWarning, match=r"no reader\.shard was at work in its"):
        next(batches)
    found += batches
    assert [batch.tolist() for batch in found] == [
        list(range(at, at + 8)) for at in range(0, COUNT, 8)
    ]


@pytest.mark.parametrize("world", [None, "1"])
def test_program_of_one_process_gets_no_warning(
    world: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world is not None:
        monkeypatch.setenv("WORLD_SIZE", world)
    assert told_by(NUMBERS) == told_by(Plain()) == []


@pytest.mark.usefixtures("rank_1")
def test_faces_of_libraries_give_no_warning() -> None:
    import reader.compat.torch as face

    list(face.DataLoader(NUMBERS, batch_size=2))
    list(face.DataLoader(Plain(), batch_size=2))


def test_other_ranks_from_the_environment_resume_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def loader(world: int, rank: int, workers: int) -> Any:
        monkeypatch.setenv("WORLD_SIZE", str(world))
        monkeypatch.setenv("RANK", str(rank))
        return reader.DataLoader(Sharded(), batch_size=2, num_workers=workers)

    seen: list[int] = []
    for rank in range(2):
        with loader(2, rank, 1) as old:
            batches = iter(old)
            seen += [int(item) for _ in range(2) for item in next(batches)]
            state = old.state_dict()
            del batches
    with loader(1, 0, 2) as new:
        new.load_state_dict(state)
        seen += [int(item) for batch in new for item in batch]
    assert sorted(seen) == list(range(COUNT))
    with loader(1, 0, 1) as same:
        same.load_state_dict(state)
        with pytest.raises(reader.StateError, match=r"over 2 ranks .* has world_size=1 now"):
            list(same)


class Items(reader.IterableDataset):
    """Items of which each rank has its share; without a length they come from a generator."""

    def __init__(self, count: int, has_length: bool = True, **options: Any) -> None:
        self.count = count
        self.has_length = has_length
        self.options = options

    def __iter__(self) -> Any:
        items: Any = range(self.count)
        if not self.has_length:
            items = (item for item in items)
        return reader.shard(items, **self.options)


@pytest.mark.usefixtures("rank_1")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "counts"),
    [
        (Items(23, has_length=False), (3, 4)),  # 11 items, or 6 and 5 of two workers
        (Items(23), (3, 4)),
        (Items(1), (0, 0)),
        (Items(0, has_length=False), (0, 0)),
        (reader.shuffle_buffer(Items(23), 4), (3, 4)),
    ],
)
def test_a_rank_whose_stream_ends_is_told_once_that_others_may_have_more(
    dataset: Any, counts: tuple[int, int], workers: int
) -> None:
    with reader.DataLoader(dataset, batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        with pytest.warns(UserWarning, match=r"reader\.EvenSteps\(loader\)") as told:
            list(batches)
        list(loader)  # a second warning would be an error
    assert len(told) == 1
    text = str(told[0].message)
    count = counts[workers > 0]
    assert text.startswith("this is rank 1 of 2 (WORLD_SIZE and RANK), whose stream has ended")
    assert f"after {count} batches" in text
    assert told[0].filename == __file__


@pytest.mark.usefixtures("rank_1")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Items(24), Items(23, even="drop")])
def test_ranks_that_are_known_to_end_together_are_told_nothing(dataset: Any, workers: int) -> None:
    with reader.DataLoader(dataset, batch_size=4, num_workers=workers) as loader:
        list(loader)  # warnings are errors


@pytest.mark.usefixtures("rank_1")
def test_a_loop_that_leaves_a_stream_before_its_end_is_told_nothing() -> None:
    loader = reader.DataLoader(Items(1 << 40, has_length=False), batch_size=4)
    for step, _ in enumerate(loader):
        if step == 3:
            break


@pytest.mark.usefixtures("rank_1")
@pytest.mark.filterwarnings("error")
def test_a_warning_of_the_end_made_an_error_loses_no_batch() -> None:
    batches = iter(reader.DataLoader(Items(23), batch_size=4))
    found = []
    with pytest.raises(UserWarning, match=r"reader\.EvenSteps\(loader\)"):
        for batch in batches:
            found += batch.tolist()
    assert found == list(range(1, 23, 2))
    assert list(batches) == []


@pytest.mark.usefixtures("rank_1")
def test_a_position_is_kept_where_the_first_warning_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = reader.DataLoader(Items(40, even="drop"), batch_size=4)
    batches = iter(loader)
    found = [next(batches), next(batches)]
    state = loader.state_dict()
    del batches

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    resumed = reader.DataLoader(Items(40, even="drop"), batch_size=4)
    resumed.load_state_dict(state)
    with monkeypatch.context() as patched:
        patched.setattr("reader.engine.engine.warn_if_undivided", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(resumed)
    found += resumed
    assert [number for batch in found for number in batch.tolist()] == list(range(1, 40, 2))
