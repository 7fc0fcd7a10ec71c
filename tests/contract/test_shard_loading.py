"""Shards in loaders: one sequence, whatever the workers, ranks, faces and places of a resume."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, DataLoader, ShardOrder, Shards, StateError
from tests.shard_files import make_mds, make_tar

COUNTS = (40, 3, 77, 20, 1, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shards")
    numbers = iter(range(sum(COUNTS)))
    rows = [[{"n": np.int64(next(numbers)).tobytes()} for _ in range(k)] for k in COUNTS]
    return make_mds(found, {"n": ("int", 8)}, rows)


def numbers_of(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch["n"]]


def loader_of(folder: Path, order: Any = None, **options: Any) -> DataLoader:
    dataset = Shards(folder)
    if order is not None:
        options["sampler"] = ShardOrder(dataset, **order)
    return DataLoader(dataset, batch_size=8, **options)


WORKERS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 1},
    {"num_workers": 2},
    {"num_workers": 5},
    {"num_workers": 2, "worker_type": "thread"},
    {"num_workers": 2, "start_method": "spawn"},
]


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_the_sequence_is_the_same_with_any_workers(workers: dict[str, Any], folder: Path) -> None:
    order = {"seed": 5, "window": 50, "rank": 0, "world_size": 1}
    expected = list(ShardOrder(Shards(folder), **order))
    with loader_of(folder, order, **workers) as loader:
        assert numbers_of(loader) == expected
        assert sorted(numbers_of(loader)) == sorted(expected)


def test_ranks_of_any_number_take_one_sequence(folder: Path) -> None:
    whole = list(ShardOrder(Shards(folder), 5, 50, rank=0, world_size=1))
    for world in (2, 3, 8):
        ranks = []
        for rank in range(world):
            order = {"seed": 5, "window": 50, "rank": rank, "world_size": world}
            with loader_of(folder, order, num_workers=rank % 3) as loader:
                ranks.append(numbers_of(loader))
        dealt = [each for turn in zip(*ranks, strict=True) for each in turn]
        assert dealt[: len(whole)] == whole


def test_a_state_is_resumed_with_other_workers(folder: Path) -> None:
    rng = random.Random(3)
    order = {"seed": 5, "window": 50, "rank": 0, "world_size": 1}
    expected = list(ShardOrder(Shards(folder), **order))
    for _ in range(12):
        batches = rng.randrange(0, 25)
        with loader_of(folder, order, num_workers=rng.choice([0, 2])) as loader:
            iterator = iter(loader)
            taken = numbers_of([next(iterator) for _ in range(batches)])
            state = loader.state_dict()
        with loader_of(folder, order, num_workers=rng.choice([0, 1, 3])) as other:
            other.load_state_dict(state)
            assert taken + numbers_of(other) == expected


@pytest.mark.parametrize("kind", ["whole", "map"])
def test_shuffle_takes_the_order_of_shards(kind: str, folder: Path) -> None:
    dataset: Any = Shards(folder)
    if kind == "map":
        dataset = dataset.map(dict)
    orders = []
    for epoch in range(2):
        order = ShardOrder(Shards(folder), 5)
        order.set_epoch(epoch)
        orders.append(list(order))
    assert orders[0] != orders[1]
    with DataLoader(dataset, batch_size=8, shuffle=True, seed=5, num_workers=2) as loader:
        assert isinstance(loader.sampler, ShardOrder)
        assert [numbers_of(loader) for _ in range(2)] == orders
    with DataLoader(dataset, batch_size=8, shuffle=True) as loader:
        first, second = numbers_of(loader), numbers_of(loader)
    assert first != second
    assert sorted(first) == sorted(second) == sorted(orders[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fresh_order_is_resumed(workers: int, folder: Path) -> None:
    with DataLoader(Shards(folder), batch_size=8, shuffle=True, num_workers=workers) as loader:
        batches = iter(loader)
        taken = numbers_of(next(batches) for _ in range(7))
        state = loader.state_dict()
        rest = numbers_of(batches)
    assert sorted(taken + rest) == list(range(sum(COUNTS)))
    with DataLoader(Shards(folder), batch_size=8, shuffle=True) as other:
        other.load_state_dict(state)
        assert numbers_of(other) == rest
        assert numbers_of(other) != taken + rest


@pytest.mark.parametrize(
    ("order", "lengths", "text"),
    [
        ({"window": 20}, COUNTS, r"window of \w+( \w+)? is 20 here and 50 in the state"),
        ({"window": "all"}, COUNTS, r"window of \w+( \w+)? is 0 here and 50 in the state"),
        (
            {"window": 50},
            (101, 100),
            r"shards (of ShardOrder is \d+ here and \d+ in|was 6 and is 2)",
        ),
    ],
)
def test_a_state_of_another_order_is_refused(
    order: dict[str, Any], lengths: tuple[int, ...], text: str, folder: Path, tmp_path: Path
) -> None:
    """The rest of another order would lose samples, and give some twice."""
    numbers = iter(range(sum(COUNTS)))
    rows = [[{"n": np.int64(next(numbers)).tobytes()} for _ in range(k)] for k in lengths]
    other = Shards(make_mds(tmp_path / "m", {"n": ("int", 8)}, rows))
    for seed in (3, 2**64 - 1):
        saved = ShardOrder(Shards(folder), seed, 50)
        with DataLoader(saved.dataset, batch_size=8, sampler=saved) as loader:
            taken = [next(batches) for batches in [iter(loader)] for _ in range(3)]
            state = loader.state_dict()
            expected = list(ShardOrder(Shards(folder), seed, 50))
            assert numbers_of(taken) == expected[:24]
        fresh = DataLoader(other, batch_size=8, sampler=ShardOrder(other, seed, **order))
        told = text if lengths == COUNTS else r"the data are not those .* shards was 6 and is 2"
        with pytest.raises(StateError, match=told):
            fresh.load_state_dict(state)
        with pytest.raises(StateError, match=text):
            ShardOrder(other, seed, **order).load_state_dict(saved.state_dict())
        same = ShardOrder(Shards(folder), seed, 50)
        with DataLoader(same.dataset, batch_size=8, sampler=same) as loader:
            loader.load_state_dict(state)
            assert numbers_of(loader) == expected[24:]


def test_shuffled_shards_are_divided_among_the_ranks_of_a_launcher(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(ShardOrder(Shards(folder), 5, rank=0, world_size=1))
    ranks = []
    for rank in range(3):
        for name, value in {"RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))
        with DataLoader(Shards(folder), batch_size=8, shuffle=True, seed=5) as loader:
            ranks.append(numbers_of(loader))
        with pytest.raises(ConfigError, match=r"seed must be an int, the same one in all 3 ranks"):
            DataLoader(Shards(folder), shuffle=True)
    assert [each for turn in zip(*ranks, strict=True) for each in turn][: len(whole)] == whole


@pytest.mark.sampled(15)
@pytest.mark.parametrize("part", range(15))
def test_an_epoch_goes_on_with_any_other_ranks_and_workers(part: int, folder: Path) -> None:
    """Twenty places a part: what ranks of two layouts take is one sequence, with either window."""
    rng = random.Random(part)
    for _ in range(20):
        window = rng.choice([50, "all"])
        epoch = rng.randrange(3)
        place = {"seed": rng.randrange(1 << 64), "window": window}
        whole = ShardOrder(Shards(folder), **place, rank=0, world_size=1)
        whole.set_epoch(epoch)
        expected = list(whole)
        steps = rng.randrange(len(expected) // 4)
        found: list[int] = []
        for _ in range(2):
            world = rng.choice([1, 2, 3, 8])
            steps = min(steps, (len(expected) - len(found)) // (4 * world))
            ranks = []
            for rank in range(world):
                order = ShardOrder(Shards(folder), **place, rank=rank, world_size=world)
                order.set_epoch(epoch)
                order.resume_from(len(found))
                workers = rng.choice(WORKERS[:5]) if rank == 0 else {}
                with DataLoader(order.dataset, batch_size=4, sampler=order, **workers) as loader:
                    batches = iter(loader)
                    ranks.append(numbers_of(batch for batch, _ in zip(batches, range(steps))))
            found += [each for turn in zip(*ranks, strict=True) for each in turn]
            steps = len(expected)
        rest = len(expected) - len(found)
        assert found == expected[: len(found)], (place, epoch)
        assert rest < 4 * world


@pytest.mark.parametrize("face", ["torch", "paddle", "gluon"])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_face_takes_shards_and_their_order(face: str, workers: int, folder: Path) -> None:
    if face != "gluon":
        pytest.importorskip(face)
    dataset = Shards(folder, fields={"n": None})
    expected = list(ShardOrder(dataset, 7, 50, rank=0, world_size=1))
    order = ShardOrder(dataset, 7, 50, rank=0, world_size=1)
    made = getattr(reader.compat, face).DataLoader
    if face == "paddle":
        sampler = reader.BatchSampler(order, batch_size=8)
        loader = made(dataset, batch_sampler=sampler, num_workers=workers)
    else:
        loader = made(
            dataset,
            batch_size=8,
            sampler=order,
            num_workers=workers,
            **({"last_batch": "keep"} if face == "gluon" else {}),
        )
    found = [int(each) for batch in loader for each in np.ravel(np.asarray(batch["n"]))]
    assert found == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_damaged_sample_is_left_out_as_asked(workers: int, on_error: Any, tmp_path: Path) -> None:
    members = [(f"{k}.cls", b"no number" if k == 11 else str(k).encode()) for k in range(32)]
    dataset = Shards(make_tar(tmp_path / "t.tar", members), fields={"cls": int})
    with DataLoader(dataset, batch_size=8, num_workers=workers, on_error=on_error) as loader:
        found = [int(each) for batch in loader for each in batch["cls"]]
    expected = [k for k in range(32) if k != 11]
    assert found[:11] == expected[:11]
    assert set(expected) <= set(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_written_into_their_batch(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    import io

    from PIL import Image

    members = []
    for k in range(10):
        file = io.BytesIO()
        Image.new("RGB", (20 + k, 30), (k, 2 * k, 3 * k)).save(file, "PNG")
        members += [(f"{k}.png", file.getvalue()), (f"{k}.cls", str(k).encode())]
    dataset = Shards(make_tar(tmp_path / "t.tar", members)).images("png", "cls", size=(8, 6))
    with DataLoader(dataset, batch_size=5, num_workers=workers) as loader:
        batches = [(np.array(images), np.array(labels)) for images, labels in loader]
    assert [images.shape for images, _ in batches] == [(5, 8, 6, 3)] * 2
    for images, labels in batches:
        assert (images[:, 0, 0] == labels[:, None] * [1, 2, 3]).all()


def test_a_subclass_is_asked_for_its_samples(folder: Path) -> None:
    class Doubled(Shards):
        def __getitem__(self, index: int, /) -> Any:
            return super().__getitem__(index)["n"] * 2

    with DataLoader(Doubled(folder), batch_size=50) as loader:
        found = np.concatenate(list(loader)).tolist()
    assert found == [2 * n for n in range(sum(COUNTS))]
