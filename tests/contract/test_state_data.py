"""States know their data: what differs is told in words, and states of earlier versions load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
import torch.utils.data
from PIL import Image

import reader
from reader import (
    ConcatDataset,
    ConfigTypeError,
    DataLoader,
    Mix,
    Shards,
    StateError,
    Subset,
    SubsetRandomSampler,
    TableRows,
    TensorDataset,
    TokenWindows,
    WeightedRandomSampler,
)
from reader.compat.torch import StatefulDataLoader
from reader.data.fingerprint import digest_of, fingerprint_of
from reader.images import ImageFolder
from tests.datasets import Indices, Rows
from tests.streams import Endless, RangeStream


def begun(dataset: Any, **options: Any) -> Any:
    """A state within an epoch."""
    with DataLoader(dataset, batch_size=4, **options) as loader:
        next(iter(loader))
        return json.loads(json.dumps(loader.state_dict()))


def load(dataset: Any, state: Any, **options: Any) -> DataLoader:
    loader = DataLoader(dataset, batch_size=4, **options)
    loader.load_state_dict(state)
    return loader


def write_in(folder: Path, counts: list[int]) -> Shards:
    folder.mkdir(parents=True)
    for number, count in enumerate(counts):
        lines = "".join(f'{{"shard": {number}, "n": {n}}}\n' for n in range(count))
        (folder / f"{number}.jsonl").write_text(lines)
    return Shards(folder)


def folder_of(folder: Path, names: list[str]) -> ImageFolder:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / name)
    return ImageFolder(folder)


def test_what_datasets_say_of_themselves_has_no_place_of_this_machine(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    every = {
        "tensors": TensorDataset([np.zeros((8, 3), np.float32), torch.arange(8)]),
        "concat": ConcatDataset([Indices(4), Indices(6)]),
        "subset": Subset(Indices(40), [5, 2, 9, 8]),
        "tokens": TokenWindows(tmp_path / "tokens.bin", 8, dtype=np.uint16, shuffle=True),
        "shards": write_in(tmp_path / "shards", [6, 6, 4]),
        "table": TableRows(pyarrow.table({"x": np.arange(9.0), "y": np.arange(9)})),
        "folder": folder_of(tmp_path / "pictures", ["a/1.png", "a/2.png", "b/1.png"]),
        "list": [1, 2, 3],
        "cached": reader.cache(Indices(5), memory="1MB"),
        "torch": torch.utils.data.TensorDataset(torch.arange(4)),
        "mix": Mix([Indices(5), Indices(7)], [1, 2]),
    }
    for name, dataset in every.items():
        facts = fingerprint_of(dataset)
        assert facts["kind"], name
        assert facts["samples"] == len(dataset)
        assert str(tmp_path) not in json.dumps(facts)
        assert fingerprint_of(dataset) == facts
        assert fingerprint_of(dataset, len(dataset)) == facts
    assert fingerprint_of(every["tokens"])["shuffled"] == len(every["tokens"])
    assert fingerprint_of(every["shards"])["shards"] == 3
    assert fingerprint_of(every["cached"])["of"]["samples"] == 5


def test_data_that_are_others_are_refused_with_what_was_and_what_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    cases: list[tuple[Any, Any, str]] = [
        (Rows(20), Indices(20), "kind was 'Rows' and is 'Indices'"),
        (
            TensorDataset([rng.random((20, 3))]),
            TensorDataset([rng.random((20, 4))]),
            r"fields\[0\] was 'float64 \[3\]' and is 'float64 \[4\]'",
        ),
        (
            ConcatDataset([Indices(12), Indices(8)]),
            ConcatDataset([Indices(8), Indices(12)]),
            r"of\[0\].samples was 12 and is 8; of\[1\].samples was 8 and is 12",
        ),
        (
            Subset(Indices(60), list(range(20))),
            Subset(Indices(60), list(range(20))[::-1]),
            "indices was",
        ),
        (
            write_in(tmp_path / "one", [10, 10]),
            write_in(tmp_path / "two", [10, 5, 5]),
            "shards was 2 and is 3; files was",
        ),
        (
            folder_of(tmp_path / "a", [f"x/{n}.png" for n in range(20)]),
            folder_of(tmp_path / "b", [f"x/{n}.png" for n in range(1, 21)]),
            "files was",
        ),
    ]
    for was, own, text in cases:
        state = begun(was)
        match = f"cannot be resumed: the data are not .*{text}.*delete data from fit"
        with pytest.raises(StateError, match=match):
            load(own, state)
        del state["fit"]["data"]  # as in states of earlier versions: nothing is known
        load(own, state)


def test_the_same_shards_in_another_folder_resume(tmp_path: Path) -> None:
    state = begun(write_in(tmp_path / "here", [10, 10]), shuffle=True, seed=1)
    load(write_in(tmp_path / "there", [10, 10]), state, shuffle=True, seed=1)


def test_a_new_epoch_sees_other_data() -> None:
    with DataLoader(Rows(20), batch_size=4) as loader:
        list(loader)
        state = loader.state_dict()
    assert load(Indices(12), state).epoch == 1


class Said(Indices):
    """Says what it is told to say."""

    said: Any = None

    def __fingerprint__(self, samples: int | None) -> Any:
        return self.said


def test_what_a_dataset_says_must_be_plain() -> None:
    dataset = Said(9)
    for wrong in (None, "text", {"a": object()}, {1: 2}, {"a": float("nan")}, {"a": 1 << 70}):
        dataset.said = wrong
        with pytest.raises(ConfigTypeError, match="__fingerprint__ of Said must return a dict of"):
            begun(dataset)
    dataset.said = {"kind": "mine", "version": 3}
    state = begun(dataset)
    assert state["fit"]["data"] == {"kind": "mine", "version": 3}
    dataset = Said(9)
    dataset.said = {"kind": "mine", "version": 4}
    with pytest.raises(StateError, match="version was 3 and is 4"):
        load(dataset, state)


def test_a_stream_of_another_kind_is_refused() -> None:
    state = begun(RangeStream(30))
    with pytest.raises(StateError, match="kind was 'RangeStream' and is 'Endless'"):
        load(Endless(), state)


def test_torchs_loader_knows_its_data() -> None:
    rows, others = torch.arange(20), torch.arange(20.0)
    loader = StatefulDataLoader(torch.utils.data.TensorDataset(rows), batch_size=4, seed=1)
    next(iter(loader))
    other = StatefulDataLoader(TensorDataset([others]), batch_size=4, seed=1)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="cannot be resumed"):
        other.load_state_dict(loader.state_dict())


def test_digests_tell_numbers_and_names_apart() -> None:
    values: list[Any] = [[1, 2], [2, 1], ["1", "2"], ["2", "1"], ["12"], [], [1.0, 2.0]]
    values.append(np.array([[1, 2]]))
    assert len({digest_of(value) for value in values}) == len(values)
    assert digest_of([1, 2]) == digest_of(np.array([1, 2], np.int32)) == digest_of(range(1, 3))
    names = [f"name {n}" for n in range(100_000)]
    assert digest_of(names) == digest_of(list(names))
    assert digest_of(names[:-1]) != digest_of(names)
    assert digest_of([*names[:-1], "another"]) != digest_of(names)


def test_a_mix_of_other_weights_or_sources_is_refused() -> None:
    def state_of(**how: Any) -> Any:
        loader = loader_of(**how)
        next(iter(loader))
        return loader.state_dict()

    def loader_of(count: int = 20, weights: Any = (1, 1), seed: Any = None) -> Any:
        mix = Mix({"a": range(count), "b": range(100, 120)}, list(weights), stop="all", seed=seed)
        return DataLoader(mix, batch_size=2)

    state = json.loads(json.dumps(state_of()))
    loader_of().load_state_dict(state)
    with pytest.raises(StateError, match="weights"):
        loader_of(weights=(3, 1)).load_state_dict(state)
    with pytest.raises(StateError, match="seed"):
        loader_of(seed=3).load_state_dict(state)
    with pytest.raises(StateError, match="samples was 40 and is 41"):
        loader_of(count=21).load_state_dict(state)


@pytest.mark.parametrize(
    ("saved", "loaded", "text"),
    [
        (
            WeightedRandomSampler(np.ones(100), 40, seed=1),
            WeightedRandomSampler(np.arange(100), 40, seed=1),
            "weights of WeightedRandomSampler",
        ),
        (
            WeightedRandomSampler(np.ones(100), 40, seed=1),
            WeightedRandomSampler(np.ones(100), 41, seed=1),
            "num_samples of WeightedRandomSampler is 41 here and 40 in the state",
        ),
        (
            SubsetRandomSampler(range(50), seed=1),
            SubsetRandomSampler(range(1, 51), seed=1),
            "indices of SubsetRandomSampler",
        ),
        (
            SubsetRandomSampler(np.arange(50), seed=1),
            SubsetRandomSampler(list(range(49)), seed=1),
            "indices of SubsetRandomSampler",
        ),
    ],
)
def test_draws_of_other_weights_or_indices_are_refused(saved: Any, loaded: Any, text: str) -> None:
    loader = DataLoader(range(100), batch_size=5, sampler=saved)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch.tolist() for batch in batches]
    again = DataLoader(range(100), batch_size=5, sampler=saved)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == rest
    other = DataLoader(range(100), batch_size=5, sampler=loaded)
    with pytest.raises(StateError, match=text):
        other.load_state_dict(state)
    at_the_end = loader.state_dict()  # the next epoch's order is drawn anew
    other.load_state_dict(at_the_end)
    assert sum(len(batch) for batch in other) == len(loaded)
